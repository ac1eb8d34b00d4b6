"""The benchmark of NumPy programs: comparison, timing, records and the page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hloom.benchmarks.numpy_programs import __main__ as command
from hloom.benchmarks.numpy_programs import gradients, page, worker
from hloom.benchmarks.numpy_programs.jax_forms import FORMS
from hloom.benchmarks.numpy_programs.table import PROGRAMS, error_of


def test_there_are_programs_of_each_kind():
    kinds = {program.kind for program in PROGRAMS.values()}
    assert len(PROGRAMS) >= 100 and len(kinds) == 12
    assert len(FORMS) >= 30 and FORMS.keys() <= PROGRAMS.keys()


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        (np.array([1.0, 4.0]), np.array([1.0, 4.0]), 0.0),
        (np.array([1.5, 4.0]), np.array([1.0, 5.0]), 0.2),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.0),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan]), np.inf),
        (np.array([1, 2]), np.array([1, 3]), np.inf),
        (np.array([1, 2]), np.array([1.0, 2.0]), np.inf),
        (np.ones(2), np.ones(3), np.inf),
        ((1.0, np.ones(2)), (1.0, np.ones(2)), 0.0),
        ((1.0,), (1.0, 2.0), np.inf),
        (0.0, None, np.inf),
    ],
)
def test_errors_of_results(found, wanted, error):
    assert error_of(found, wanted) == error


def test_a_program_is_compared_and_timed():
    record = worker.measured(PROGRAMS["affine_recurrence"], "tiny", ["numpy", "hloom", "gradient"], 20.0, 1)
    assert record["status"] == dict.fromkeys(("numpy", "hloom", "gradient"), "agrees"), record
    assert record["reference"] == "numpy" and all(record["seconds"][n] > 0 for n in ("numpy", "hloom", "gradient"))


def test_arguments_are_restored_between_calls():
    program = PROGRAMS["saxpy_loop"]
    given = program.arguments("tiny")
    call = worker.Call(worker.engine("numpy", program), given, [2])
    call()
    once = call.arguments[2].copy()
    call()
    np.testing.assert_array_equal(call.arguments[2], once)
    assert not np.array_equal(once, given[2])


def test_a_gradient_is_that_of_central_differences():
    assert gradients.error(PROGRAMS["tridiagonal"]) < gradients.TOLERANCE
    assert gradients.engine(PROGRAMS["edit_distance"], PROGRAMS["edit_distance"].arguments("tiny")) is None


def test_programs_are_chosen_by_name_and_kind():
    assert command.chosen(["lu"]) == ["lu"]
    assert {PROGRAMS[n].kind for n in command.chosen(["linear_algebra"])} == {"linear algebra"}
    with pytest.raises(SystemExit, match="no programs"):
        command.chosen(["luu"])


def test_the_page_of_records():
    def record(numba, parallel, hloom="agrees"):
        seconds = {"numpy": 1.0, "numba": numba, "parallel": parallel, "hloom": 0.1, "jax": 0.3, "gradient": 0.3}
        return {"n": 3, "reference": "numpy", "status": dict.fromkeys(seconds, "agrees") | {"hloom": hloom},
                "seconds": seconds}  # fmt: skip

    refused = record(0.2, 0.2, "refused: /home/me/stencils.py:3") | {"seconds": {}}
    results = {
        "machine": page.machine(),
        "programs": {
            "lu": {"sizes": {"small": record(0.2, 0.4)}, "first": {"cold": 0.1, "warm": 0.05, "numba": 1.0}},
            "heat_3d": {"sizes": {"small": record(0.08, 0.05), "large": refused}},
        },
    }
    text = page.text_of(results)
    assert "| linear algebra |" in text and "heat_3d (small: 0.50)" in text and "Below 0.9 (1 of 2)" in text
    assert "| all | 1.00 |" in text  # of 2.0 and 0.5
    assert "- `heat_3d`, large: refused: stencils.py:3" in text and "geometric mean 0.10 of 1 programs" in text
    assert "geometric mean 3.00" in text


def test_the_page_is_that_of_the_records():
    results = json.loads((command.FOLDER / "numpy_programs.json").read_text(encoding="utf-8"))
    text = (command.FOLDER / "NUMPY.md").read_text(encoding="utf-8")
    assert text == page.text_of(results), "python -m benchmarks.numpy_programs --page"
