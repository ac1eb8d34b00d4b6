"""The Array API standard's test-suite against hloom.numpy, where a copy of it is given.

    ARRAY_API_TESTS_FOLDER=FOLDER pytest tests/conformance/test_array_api.py

FOLDER holds the files of data-apis/array-api-tests at 55fcc601 and, as array-api/, `spec` and `src/array_api_stubs` of
data-apis/array-api at 5f847a38; the suite needs `pip install pytest-json-report hypothesis ndindex`. NumPy 2.4.6 passes
1,319 of the 1,380 tests, jax.numpy with 64 bits 1,273. `array_api_failures.tsv` has a line for each that fails here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("ARRAY_API_TESTS_FOLDER", "")
LIST = Path(__file__).with_name("array_api_failures.tsv")
PASSING = 1319  # NumPy's
SETTING = "HLOOM_ITEM_ASSIGNMENT=1"

given = pytest.mark.skipif(not FOLDER, reason="set ARRAY_API_TESTS_FOLDER to a copy of the suite: see this file")


def known_failures() -> dict[str, str]:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def run(*tests: str, **variables: str) -> tuple[int, list[str]]:
    """(how many tests pass, the names of those that fail). Slow machines do not count: no deadlines."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(f"array_api_tests/{t}" for t in tests or ("",)), "--max-examples=20",
         "--disable-deadline", "-p", "no:cacheprovider"],
        cwd=Path(FOLDER), capture_output=True, text=True,
        env={**os.environ, "ARRAY_API_TESTS_MODULE": "hloom.numpy", "ARRAY_API_TESTS_VERSION": "2024.12", **variables},
    )  # fmt: skip
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout[-2000:] + done.stderr[-2000:]
    # A name in brackets may have " - " in it, so the message is what follows a bracket or a name without one.
    names = re.findall(
        r"^(?:FAILED|ERROR) array_api_tests/(\S+?\.py(?:::\w+(?:\[.*\])?)?)(?: - .*)?$", done.stdout, re.MULTILINE
    )
    return int(passed[1]), names


@pytest.mark.slow
@given
def test_array_api_suite(capsys):
    passed, failed = run()
    unnamed = [name for name in failed if name not in known_failures()]
    with capsys.disabled():
        print(f"\nArray API suite: {passed} pass, {len(failed)} fail (NumPy: {PASSING} pass)")
    assert not unnamed, unnamed
    assert passed > PASSING


@pytest.mark.slow
@given
def test_what_assigns_to_elements_passes_with_the_setting():
    tests = [name for name, reason in known_failures().items() if SETTING in reason]
    passed, failed = run(*tests, HLOOM_ITEM_ASSIGNMENT="1")
    assert passed == len(tests) == 3 and not failed, failed


def test_the_list_names_tests_and_reasons():
    found = known_failures()
    for name, reason in found.items():
        assert re.fullmatch(r"test_\w+\.py::test_\w+(\[.+\])?", name), name
        assert len(reason.split()) >= 4, f"{name}: the reason is missing"
    # Those that fail have to be fewer than NumPy's 47.
    assert len(found) < 25
