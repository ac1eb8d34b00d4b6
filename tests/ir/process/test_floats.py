"""What is compiled where another library has changed the floating-point environment."""

from __future__ import annotations

import ctypes
import platform
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.ir.process.floats import default_floats

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the control word of x86-64")
_process = ctypes.CDLL(None)
_CONTROL = 28  # where glibc's fenv_t has MXCSR
_FLUSH = 0x8040  # denormal results, and denormal operands, are zero


def flush() -> None:
    """What XLA's threads and `torch.set_flush_denormal` do, for this thread."""
    state = ctypes.create_string_buffer(64)
    _process.fegetenv(state)
    (word,) = struct.unpack_from("I", state, _CONTROL)
    struct.pack_into("I", state, _CONTROL, word | _FLUSH)
    _process.fesetenv(state)


@pytest.fixture
def elsewhere():
    """A thread that takes denormal numbers for zero."""
    with ThreadPoolExecutor(1, initializer=flush) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def _tiny(dtype) -> bool:
    return bool(np.finfo(dtype).tiny / np.array(4, dtype) > 0)


def test_the_environment_is_the_threads_again_afterwards(elsewhere):
    def found():
        with default_floats():
            inside = _tiny(np.float32), _tiny(np.float64)
        return inside, (_tiny(np.float32), _tiny(np.float64))

    assert elsewhere(found) == ((True, True), (False, False))
    assert _tiny(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_constants_of_a_program_keep_their_bits(elsewhere, dtype, count):
    bits = np.dtype(f"u{np.finfo(dtype).dtype.itemsize}")
    rng = np.random.default_rng(count)
    parts = 2 if np.dtype(dtype).kind == "c" else 1
    values = rng.integers(1, 2**20, count * parts).astype(bits).view(dtype)  # denormal all
    constant = values[0] if count == 1 else values

    @hl.jit
    def program(x):
        return hnp.where(x, constant, -constant), hnp.asarray(constant) * 2

    x = np.arange(count) % 2 == 0
    compiled = elsewhere(lambda: program.lower(x).compile())
    chosen, doubled = (np.asarray(y) for y in compiled(x))
    np.testing.assert_array_equal(chosen.view(bits), np.where(x, values, -values).view(bits))
    np.testing.assert_array_equal(doubled, values * 2 if count > 1 else values[0] * 2)


def test_threads_that_compute_keep_denormal_numbers(elsewhere):
    """The threads of the pool are started by whoever calls first; each has a part of the numbers."""
    x = np.full(1 << 20, np.finfo(np.float32).tiny, np.float32)
    program = hl.jit(lambda x: x / 4)
    with hl.config(num_threads=4):
        elsewhere(program, x)
        assert "hloom-worker-1" in {thread.name for thread in threading.enumerate()}
        for _ in range(10):
            np.testing.assert_array_equal(np.asarray(program(x)), x / 4)


def test_constants_of_a_library_keep_their_bits(elsewhere, tmp_path):
    x, scalar, row = np.ones(3, np.float32), np.float32(1e-40), np.array([1e-40, 3e-41, 1], np.float32)

    def tiny(x):
        return hnp.where(x > 0, scalar, x), hnp.where(x > 0, row, x), hnp.where(x > 0, hnp.float32(2e-41), x)

    made = elsewhere(lambda: hl.export(tiny, x, folder=tmp_path))
    found = hl.export.load(made.path).tiny(x)
    for y, wanted in zip(found, (scalar, row, np.float32(2e-41)), strict=True):
        np.testing.assert_array_equal(np.asarray(y).view(np.uint32), np.broadcast_to(wanted, 3).view(np.uint32))
