"""The harness of SciPy's own Array API tests finds them, runs them on hloom's arrays, and counts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "scipy_suite.py"


@pytest.mark.slow
def test_some_tests_of_each_file_of_two_subpackages():
    command = [sys.executable, str(SUITE), "integrate", "cluster", "--most", "12"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    passed, of = map(int, re.search(r"^all; hloom.numpy: (\d+) of (\d+)", done.stdout, re.MULTILINE).groups())
    assert passed == of >= 50, done.stdout
