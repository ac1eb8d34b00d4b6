"""NaN and infinity under `debug_nans` and `debug_infs`: results are checked, and the first instruction that made one is
found, by computing the program again with the reference of each operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.config import config
from hloom.errors import NonFiniteError
from hloom.ir.interpret import evaluate, evaluate_instruction, observed
from hloom.ir.module import Computation, Instruction
from hloom.ir.source import Source
from hloom.ir.types import Shape
from hloom.tree import pytrees as tree

_GUARD = "select safe operands first: hnp.where(ok, x, 1), then the result; hnp.where of the result leaves NaN in "
REPAIRS = {
    "log": "keep the operand positive: hnp.log(hnp.maximum(x, 1e-12)), or nn.log_softmax for logits",
    "sqrt": "keep the operand positive, and away from 0 where it is differentiated: hnp.sqrt(x + 1e-12)",
    "rsqrt": "keep the operand positive: lax.rsqrt(x + 1e-12)",
    "divide": f"{_GUARD}the gradient",
    "power": "keep the base positive, or take an integer exponent",
    "multiply": f"0 * inf: find the infinite operand with hl.debug_infs(); {_GUARD}the gradient",
    "subtract": "inf - inf: find the infinite operand with hl.debug_infs()",
    "exponential": "subtract the largest operand first, as nn.softmax and nn.logsumexp do",
}


def check_result(value, opcode: str = "", operands: Sequence[Array] = ()) -> None:
    """Raises NonFiniteError if an array of a result has a NaN (debug_nans) or infinity (debug_infs).

    opcode, operands: of the operation that made it, run eagerly.
    """
    wrong = _wrong_leaf(value)
    if wrong is not None:
        raise _error(opcode or "a result", _plain(wrong), [a._value() for a in operands], None)


def check_outputs(value, computation: Computation, arguments: Sequence[np.ndarray]) -> None:
    """As check_result, for the result of a computation with these arguments: the error names the instruction."""
    wrong = _wrong_leaf(value)
    if wrong is not None:
        raise _origin(computation, arguments) or _error("a result", _plain(wrong), [], None)


def _wrong_leaf(value):
    for leaf in tree.leaves(value):
        if (isinstance(leaf, Array) or not isinstance(leaf, ArrayMethods)) and _is_wrong(_plain(leaf)):
            return leaf
    return None


def _plain(leaf):
    return leaf._value() if isinstance(leaf, Array) else leaf


def _is_wrong(value) -> bool:
    """Whether an array, or one in a tuple of them, has values that the settings forbid."""
    if isinstance(value, tuple):
        return any(map(_is_wrong, value))
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind not in "fcV":
        return False
    return bool(config.debug_nans and np.isnan(value).any()) or bool(config.debug_infs and np.isinf(value).any())


class _Inside(Exception):
    """The computation inside of an instruction in which a wrong value begins, with its values."""

    def __init__(self, computation: Computation, values: dict[Instruction, Any]):
        self.computation, self.values = computation, values


def _origin(computation: Computation, arguments: Sequence[np.ndarray]) -> NonFiniteError | None:
    """The error of the first instruction that made a wrong value which reached the results; None if the reference
    computes none."""
    found: dict[Instruction, Any] = {}

    def keep(finished: Computation, values: dict[Instruction, Any]) -> None:
        if finished is computation:
            found.update(values)

    with np.errstate(all="ignore"):
        with observed(keep):
            evaluate(computation, list(arguments))
        first = _first(computation, found)
        while first is not None and first.called() and first.opcode in ("call", "while", "conditional", "scan"):
            inside = _inside(first, [found[o] for o in first.operands])
            if inside is None:
                break
            inner = _first(inside.computation, inside.values)
            if inner is None or inner.opcode == "parameter":
                break
            first, found = inner, inside.values
    if first is None:
        return None
    return _error(_named(first), found[first], [found[o] for o in first.operands], first.source)


def _first(computation: Computation, values: dict[Instruction, Any]) -> Instruction | None:
    """The first instruction of wrong value without a wrong operand, among those from which the root's follows."""
    waiting, seen, origins = [computation.root], set(), set()
    while waiting:
        instruction = waiting.pop()
        if instruction in seen or not _is_wrong(values[instruction]):
            continue
        seen.add(instruction)
        wrong = [o for o in instruction.operands if _is_wrong(values[o])]
        waiting += wrong
        if not wrong:
            origins.add(instruction)
    return next((i for i in [*computation.parameters, *computation.instructions] if i in origins), None)


def _inside(instruction: Instruction, operands: list) -> _Inside | None:
    """Where in the computations that an instruction runs its wrong value begins."""

    def stop(finished: Computation, values: dict[Instruction, Any]) -> None:
        first = _first(finished, values)
        if first is not None and first.opcode != "parameter":
            raise _Inside(finished, values)

    try:
        with observed(stop):
            evaluate_instruction(instruction, operands)
    except _Inside as found:
        return found
    return None


def _named(instruction: Instruction) -> str:
    if instruction.opcode == "parameter":
        return f"the argument {instruction.hint or instruction['index']}"
    if instruction.hint:
        return f"{instruction.opcode} ({instruction.hint})"
    return instruction.opcode


def _error(what: str, value, operands: list, source: Source | None) -> NonFiniteError:
    """The error of a wrong value: which one, at which position, and of which operands there."""
    if isinstance(value, tuple):
        value = next(v for v in value if _is_wrong(v))
    value = np.asarray(value)
    is_nan = config.debug_nans and bool(np.isnan(value).any())
    mask = np.isnan(value) if is_nan else np.isinf(value)
    place = tuple(int(k) for k in np.argwhere(mask)[0])
    found = f"{int(mask.sum())} of {mask.size} elements of {Shape(value.dtype, value.shape)!r}"
    found += f", the first at {list(place)}" if place else ""
    given = [o for o in operands if isinstance(o, (np.ndarray, np.generic))]
    if given and all(np.shape(o) in ((), value.shape) for o in given):
        numbers = ", ".join(f"{np.asarray(o)[place if np.shape(o) else ()]}" for o in given)
        found += f": {what.split(' ')[0]}({numbers})"
    opcode = what.split(" ")[0]
    repair = REPAIRS.get(opcode, "check the operands of this operation; hl.debug.print(...) shows them")
    if what.startswith("the argument"):
        repair = "check the data, or the step before"
    verb = "has" if what.startswith("the argument") else "made"
    return NonFiniteError(f"{what} {verb} an invalid value ({'nan' if is_nan else 'inf'})", found, repair, source)
