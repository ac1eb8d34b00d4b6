"""Keras on hloom, through jax: fit, evaluate, save and load, with the batch over two devices."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[4] / "examples" / "keras_digits.py"


@pytest.mark.slow
def test_a_keras_model_trains_and_is_saved(run_jax):
    for package in ("keras", "sklearn"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install keras scikit-learn")
    program = f"""
    import runpy, sys
    sys.argv = ['keras_digits.py', '--epochs', '3']
    runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')
    """
    printed = run_jax(program, KERAS_BACKEND="jax", HLOOM_NUM_CPU_DEVICES="2").splitlines()
    assert printed[-1] == "the saved model predicts the same", printed
    where, _, found = printed[-2].partition(": ")
    assert where == "hloom, 2 devices" and float(found.partition("%")[0]) > 70, printed
