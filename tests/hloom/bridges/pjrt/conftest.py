"""Processes of their own in which jax finds hloom's plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """A folder that says that a package with hloom's entry points is installed."""
    folder = tmp_path_factory.mktemp("installed")
    metadata = folder / "hloom_plugin_for_tests-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hloom-plugin-for-tests\nVersion: 0\n")
    lines = ["[jax_plugins]", *(f"{name} = {value}" for name, value in ENTRY_POINTS["jax_plugins"].items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def run_jax(installed):
    """run_jax(program, ENVIRONMENT=...) -> what the program printed; it must end well and silently."""

    def run(program: str, **environment: str) -> str:
        paths = [str(installed), str(ROOT), os.environ.get("PYTHONPATH", "")]
        settings = {"JAX_PLATFORMS": "hloom,cpu", "PYTHONPATH": os.pathsep.join(paths), **environment}
        done = subprocess.run(
            [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(program)],
            capture_output=True, text=True, timeout=300, check=False, env=os.environ | settings,
        )  # fmt: skip
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
