"""Pytest plugin of `tests/mutation.py`: writes down how long the tests that passed took, and builds no prebuilt code.

HLOOM_MUTATION_TIMES: the file that gets a line of JSON for each test that passed. Without it the run is that of a
mutant: where that is in the code generator, the file of prebuilt code is of another version and unused, and building
it anew would take longer than most tests.
"""

from __future__ import annotations

import json
import os

import pytest

TIMES = os.environ.get("HLOOM_MUTATION_TIMES")
_seconds: dict[str, float] = {}
_wrong: set[str] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if TIMES is None:
        from hloom.compiler.targets.cpu.prebuilt import archive

        archive.is_current = lambda: True


def pytest_runtest_logreport(report):
    if TIMES is None:
        return
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":  # failed, skipped or expected to fail: tells nothing about a mutant
        _wrong.add(report.nodeid)
    if report.when == "teardown" and report.nodeid not in _wrong:
        with open(TIMES, "a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, round(_seconds[report.nodeid], 3)]) + "\n")
