"""Library ops as steps of a program: the Python functions that the driver calls between kernels."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np

from hloom.errors import HloomError
from hloom.ir.interpret import evaluate_instruction
from hloom.ir.module import Instruction
from hloom.native_setup import driver

PARALLEL = 1 << 16  # elements from which threads of a library, or several calls of it at once, pay


def host_function(instruction: Instruction, order: list[int]):
    """The function of a step. order: which of the distinct operands that it is given each operand is."""
    evaluated = evaluate_instruction
    large = any(o.shape.size >= PARALLEL for o in instruction.operands)
    if instruction.opcode == "sort" and instruction["dimensions"] != (0,) and large:
        evaluated = _in_rows
    workers = instruction.opcode == "fft" and large

    def function(*arrays):
        try:
            with _fft_workers() if workers else nullcontext():
                return evaluated(instruction, [arrays[k] for k in order])
        except HloomError as error:
            error.source = instruction.source or error.source  # the line that asked for it, not the one that runs it
            raise
        except Exception as error:
            if instruction.source:
                error.add_note(f"  in a function that the compiled program calls, at {instruction.source}")
            raise

    return function


def _in_rows(instruction: Instruction, operands: list[np.ndarray]):
    """The op on parts of the first dimension, in as many threads as the driver has. NumPy sorts without Python's lock;
    each row is sorted alone, so the bits are the same."""
    count = min(driver().num_threads, operands[0].shape[0])
    if count < 2:
        return evaluate_instruction(instruction, operands)
    bounds = [operands[0].shape[0] * k // count for k in range(count + 1)]
    parts = [[o[low:high] for o in operands] for low, high in zip(bounds, bounds[1:], strict=False)]
    waiting = [_threads(count - 1).submit(evaluate_instruction, instruction, part) for part in parts[1:]]
    found = [evaluate_instruction(instruction, parts[0]), *(one.result() for one in waiting)]
    if not isinstance(found[0], tuple):
        return np.concatenate(found)
    return tuple(np.concatenate(pieces) for pieces in zip(*found, strict=True))


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "hloom-library")


def _fft_workers():
    """A context in which SciPy's transforms share our number of threads; each of them is done by one, so the bits are
    the same."""
    from scipy.fft import set_workers

    return set_workers(driver().num_threads)
