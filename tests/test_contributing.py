"""The worked examples of CONTRIBUTING.md: each diff is applied to a copy of the tree, and its check runs there.

A diff that does not apply any more is repaired by hand; its context is one line, so that few changes reach it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in (ROOT / "docs" / "contributing").iterdir() if path.is_dir())
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", "results.png")


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of what the examples change and run."""
    for name in ("ir", "compiler", "runtime", "hloom", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=NOT_COPIED)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_the_example_works(tree, example):
    diff = example / "change.diff"
    if diff.exists():
        subprocess.run(["git", "apply", "-C1", "--whitespace=error", str(diff)], cwd=tree, check=True)
    environment = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, str(example / "check.py")],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_guide_has_every_example():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(docs/contributing/(\w+)/", page))
    assert named == {path.name for path in EXAMPLES}
