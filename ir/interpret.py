"""The reference interpreter: NumPy, one op at a time. It defines the semantics of ops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.op_table import OPS, No
from hloom.ir.types import Shape


def evaluate_instruction(instruction: Instruction, operands, shape=None) -> np.ndarray | tuple:
    """Evaluates one instruction on its operands' values."""
    reference = OPS[instruction.opcode].reference
    assert not isinstance(reference, No), reference.reason
    return reference(*operands, shape=shape or instruction.shape, **instruction.attributes)


class _Observers(threading.local):
    finished: Callable[[Computation, dict[Instruction, Any]], None] | None = None


_observers = _Observers()


@contextmanager
def observed(finished: Callable[[Computation, dict[Instruction, Any]], None]):
    """Within it `finished(computation, values of its instructions)` follows each evaluation of a computation."""
    before, _observers.finished = _observers.finished, finished
    try:
        yield
    finally:
        _observers.finished = before


def evaluate(
    computation: Computation,
    arguments,
    lifted: tuple[int, ...] | None = None,
    known=None,
    each=evaluate_instruction,
):
    """The value of a computation: a NumPy array, or a tuple of them.

    lifted: a shape; the computation is one on scalars and is applied to each element of arguments of this shape.
    known: values of instructions that are already computed. each: the function that evaluates an instruction.
    """
    values: dict[Instruction, Any] = dict(known or {})
    values.update(zip(computation.parameters, arguments, strict=True))
    for instruction in computation.instructions:
        if instruction in values:
            continue
        operands = [values[o] for o in instruction.operands]
        shape = instruction.shape
        if lifted and isinstance(shape, Shape):
            shape = Shape(shape.dtype, np.broadcast_shapes(*(np.shape(o) for o in operands)) if operands else ())
        values[instruction] = each(instruction, operands, shape)
    if _observers.finished is not None and lifted is None:
        _observers.finished(computation, values)
    result = values[computation.root]
    if lifted:
        results = result if isinstance(result, tuple) else (result,)
        results = tuple(np.broadcast_to(r, lifted) for r in results)
        return results if isinstance(result, tuple) else results[0]
    return result


def run(module: Module, arguments):
    """The value of a module's entry computation."""
    return evaluate(module.entry, arguments)
