"""The stored driver: made from the present source, and the same as what Numba makes of it."""

import ctypes
import sys

import numpy as np
import pytest

from hloom.backends.cpu import driver
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.machine import host
from hloom.runtime import driver_source, native


@pytest.mark.skipif((sys.platform, host().arch) != ("linux", "x86_64"), reason="it is stored for Linux on x86-64")
def test_the_stored_driver_is_what_the_present_source_gives():
    """Otherwise: python -m hloom.backends.cpu.driver"""
    assert driver._stored_driver() == driver.portable_driver()


def test_a_driver_of_another_source_is_not_taken(tmp_path, monkeypatch):
    stale = tmp_path / "driver.bin"
    stale.write_bytes(b"; the driver of something else\n")
    monkeypatch.setattr(driver, "_stored_file", lambda: stale)
    assert driver._stored_driver() is None
    monkeypatch.setattr(driver, "_stored_file", lambda: tmp_path / "absent.bin")
    assert driver._stored_driver() is None


@pytest.mark.parametrize("way", ["for the host", "portable"])
def test_both_ways_copy_bytes(way):
    """A program of one copy step, run by the native function itself."""
    functions = driver_source.FUNCTIONS
    exported = [f.name for f in functions if f.exported]
    data = codegen.compile_functions(functions).data if way == "for the host" else driver.portable_driver()
    run = native.load(data, exported)["hloom_run"]
    source, target = np.arange(5.0), np.zeros(5)
    args = np.array([target.ctypes.data, source.ctypes.data], np.int64)
    steps = np.zeros(driver_source.STEP_WORDS, np.int64)
    steps[:4] = [driver_source.COPY, 0, 1, source.nbytes]
    pool, slots = np.zeros(driver_source.POOL_WORDS, np.int64), np.zeros(1, np.int64)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)(run)
    call(pool.ctypes.data, steps.ctypes.data, 1, 0, 0, args.ctypes.data, slots.ctypes.data)
    np.testing.assert_array_equal(target, source)
