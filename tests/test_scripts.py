"""The commands of the tests run from any folder, in an editable install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", ["complexity", "mutation", "numba_suite", "onnx_suite", "reliability"])
def test_a_script_finds_the_package_beside_its_folder(name, tmp_path):
    """The folder of a script is first on the path, and `hloom` in it is no package. Without PYTHONPATH, which would
    hide that."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, FOLDER / f"{name}.py", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "usage" in done.stdout, done.stderr
