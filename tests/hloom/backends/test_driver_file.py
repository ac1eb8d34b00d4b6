"""The driver's native functions, prebuilt and compiled from their source."""

import ctypes

import numpy as np
import pytest

from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.prebuilt import keys
from hloom.runtime import driver_source, native


@pytest.mark.parametrize("way", ["prebuilt", "compiled"])
def test_the_driver_copies_bytes(way, monkeypatch):
    """A program of one copy step, run by the native function itself."""
    if way == "compiled":
        monkeypatch.setattr(keys, "functions_code", lambda functions: None)
    code = codegen.compile_functions(driver_source.FUNCTIONS)
    run = native.load(code.data, code.symbols)["hloom_run"]
    source, target = np.arange(5.0), np.zeros(5)
    args = np.array([target.ctypes.data, source.ctypes.data], np.int64)
    steps = np.zeros(driver_source.STEP_WORDS, np.int64)
    steps[:4] = [driver_source.COPY, 0, 1, source.nbytes]
    pool, slots = np.zeros(driver_source.POOL_WORDS, np.int64), np.zeros(1, np.int64)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)(run)
    call(pool.ctypes.data, steps.ctypes.data, 1, 0, 0, args.ctypes.data, slots.ctypes.data, 0)
    np.testing.assert_array_equal(target, source)


def test_the_prebuilt_driver_is_what_the_source_compiles_to(monkeypatch):
    """Otherwise: python -m hloom.backends.cpu.prebuild"""
    prebuilt = codegen.compile_functions(driver_source.FUNCTIONS)
    monkeypatch.setattr(keys, "functions_code", lambda functions: None)
    assert codegen.compile_functions(driver_source.FUNCTIONS) == prebuilt
