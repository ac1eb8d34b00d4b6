"""Library ops as steps of a program: the Python functions that the driver calls between kernels."""

from __future__ import annotations

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np

from hloom.backends.cpu.driver import driver
from hloom.errors import HloomError
from hloom.ir.interpret import evaluate_instruction
from hloom.ir.module import Instruction
from hloom.ir.ops.indexing.sort import is_plain_sort, sort_keys, sort_plainly

PARALLEL = 1 << 16  # elements from which threads of a library, or several calls of it at once, pay


def host_function(instruction: Instruction, order: list[int]):
    """The function of a step: (its operands, the arrays that its results go to) -> None. order: which of the distinct
    operands that it is given each operand is."""
    call = _evaluated
    large = any(o.shape.size >= PARALLEL for o in instruction.operands)
    if instruction.opcode == "sort":
        call = functools.partial(_sorted, sort_keys(instruction["to_apply"]))
        if instruction["dimensions"] != (0,) and large:
            call = functools.partial(_in_rows, call)
    workers = instruction.opcode == "fft" and large

    def function(arrays, results) -> None:
        try:
            with _fft_workers() if workers else nullcontext():
                call(instruction, [arrays[k] for k in order], results)
        except HloomError as error:
            error.source = instruction.source or error.source  # the line that asked for it, not the one that runs it
            raise
        except Exception as error:
            if instruction.source:
                error.add_note(f"  in a function that the compiled program calls, at {instruction.source}")
            raise

    return function


def _evaluated(instruction: Instruction, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    found = evaluate_instruction(instruction, operands)
    for result, value in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
        result[...] = value


def _sorted(keys, instruction: Instruction, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    """A single operand is sorted where its result lies. keys: `sort_keys` of the comparison."""
    if len(operands) == 1 and is_plain_sort(operands[0], keys):
        results[0][...] = operands[0]
        sort_plainly(results[0], *instruction["dimensions"], keys[0])
    else:
        _evaluated(instruction, operands, results)


def _in_rows(call, instruction: Instruction, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    """`call` on parts of the first dimension, in as many threads as the driver has. NumPy sorts without Python's lock;
    each row is sorted alone, so the bits are the same."""
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


def _fft_workers():
    """A context in which SciPy's transforms share our number of threads; each of them is done by one, so the bits are
    the same."""
    from scipy.fft import set_workers

    return set_workers(driver().num_threads)
