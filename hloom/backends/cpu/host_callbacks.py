"""Library ops as steps of a program: Python functions that the driver calls between kernels."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from hloom.backends.cpu.blas_threads import limited
from hloom.backends.cpu.driver import driver
from hloom.errors import HloomError
from hloom.ir.interpret import evaluate_instruction
from hloom.ir.module import Instruction
from hloom.ir.ops.indexing.sort import is_plain_sort, sort_keys, sort_plainly
from hloom.ir.process import forking
from hloom.ir.types import Shape

PARALLEL = 1 << 16  # elements from which threads of a library, or concurrent calls of it, pay off
# Ops of LAPACK, which starts threads for matrices of a thousand elements or more.
LAPACK = frozenset(
    "adjugate cholesky det eig eigh geqrf hessenberg householder-product lu pinv qr schur solve sqrtm svd sylvester "
    "triangular-solve tridiagonal".split()
)
_THREADED_BY_LAPACK = 1 << 10


def host_function(instruction: Instruction, order: list[int]):
    """The function of a step: (operands, arrays for the results) -> None.

    order: for each operand of the instruction its index among the distinct operands that the function receives.
    """
    call = _evaluated
    large = any(o.shape.size >= PARALLEL for o in instruction.operands)
    if instruction.opcode == "sort":
        call = functools.partial(_sorted, sort_keys(instruction["to_apply"]))
        if instruction["dimensions"] != (0,) and large:
            call = functools.partial(_in_rows, call)
    threads = _threads_of_libraries(instruction, large)

    def function(arrays, results) -> None:
        try:
            with threads():
                call(instruction, [arrays[k] for k in order], results)
        except HloomError as error:
            # The line that called the function, not the one that runs the program.
            error.source = instruction.source or error.source
            raise
        except Exception as error:
            if instruction.source:
                error.add_note(f"  in a function that the compiled program calls, at {instruction.source}")
            raise

    return function


def _threads_of_libraries(instruction: Instruction, large: bool) -> Callable[[], AbstractContextManager]:
    """The context of an instruction's call, which limits the library's threads to `hl.config.num_threads`."""
    if instruction.opcode == "fft" and large:
        return _fft_workers
    largest = max((o.shape for o in instruction.operands if len(o.shape.dims) > 1), key=_matrix_size, default=None)
    if instruction.opcode not in LAPACK or largest is None or _matrix_size(largest) < _THREADED_BY_LAPACK:
        return nullcontext
    work = _matrix_size(largest) * min(largest.dims[-2:])
    return lambda: limited(work, driver().num_threads)


def _matrix_size(shape: Shape) -> int:
    return shape.dims[-2] * shape.dims[-1]


def _evaluated(instruction: Instruction, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    found = evaluate_instruction(instruction, operands)
    for result, value in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
        result[...] = value


def _sorted(keys, instruction: Instruction, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    """Sorts a single operand in the buffer of its result. keys: `sort_keys` of the comparison."""
    if len(operands) == 1 and is_plain_sort(operands[0], keys):
        (axis,) = instruction["dimensions"]
        results[0][...] = operands[0]
        sort_plainly(results[0], axis, keys[0])
    else:
        _evaluated(instruction, operands, results)


def _in_rows(call, instruction: Instruction, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    """Applies `call` to parts of the first dimension, in as many threads as the driver has.

    NumPy sorts without the GIL. Each row is sorted alone, so the bits are the same.
    """
    rows = operands[0].shape[0]
    count = min(driver().num_threads, rows)
    bounds = [rows * k // count for k in range(count + 1)]
    parts = [
        ([o[low:high] for o in operands], [r[low:high] for r in results]) for low, high in itertools.pairwise(bounds)
    ]
    waiting = [_threads(count - 1).submit(call, instruction, *part) for part in parts[1:]]
    call(instruction, *parts[0])
    for one in waiting:
        one.result()


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "hloom-library")


forking.on_fork(child=_threads.cache_clear)


def _fft_workers():
    """A context in which SciPy's transforms use our number of threads. One thread computes a transform, so the bits are
    the same."""
    from scipy.fft import set_workers  # SciPy is heavy, and most programs have no transform

    return set_workers(driver().num_threads)
