"""Masks that hide the rest of a row: found by their indexes, so that what they hide need not be computed.

`select(index of the row >= index in the row, score, constant)` is the constant from some position of each row on, and
that position is an affine function of the row. Scores behind it are not needed, and all that the row nest computes from
them is one value per row.
"""

from __future__ import annotations

from hloom.compiler.kernels.codegen.affine import ZERO, Affine, Index, variables
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.ir.module import Instruction, walk
from hloom.ir.ops import OPS
from hloom.ir.records import record

# a - b compared with 0: from the position where they are equal to the first one that is outside, where the index in the
# row has the coefficient -1 (i - j >= 0 up to j = i) and 1 (j - i <= 0).
_FALLING = {"GE": 1, "GT": 0}
_RISING = {"LE": 1, "LT": 0}
_NEGATED = {"GE": "LT", "LT": "GE", "GT": "LE", "LE": "GT"}
LARGEST = 1 << 30  # of index arithmetic that s32 does without wrapping


@record(frozen=True)
class Mask:
    """`select` is `inside` or something else before the position `bound` of a row and `outside`, one value per row,
    from there on. alone: before that position it is always `inside`. bound: in the variables of the domain."""

    select: Instruction
    inside: Instruction
    outside: Instruction
    bound: Affine
    alone: bool


def mask_of(domain: tuple[int, ...], reduces, targets) -> Mask | None:
    """The mask of a row nest over `domain` behind whose bound all that is reduced, and all `targets`, are one value per
    row; None where there is none."""
    if any(Reduction(r).opcode not in ("add", "maximum", "minimum") for r in reduces):
        return None
    needed = [*(r.operands[0] for r in reduces), *targets]
    for instruction in walk(needed):
        if instruction.opcode == "select" and instruction.dims == domain:
            mask = _mask(instruction, domain)
            if mask is not None and all(_is_known(value, mask.select) for value in needed):
                return mask
    return None


def _is_known(value: Instruction, select: Instruction) -> bool:
    """Whether a value is one per row where `select` is."""
    known: dict[Instruction, bool] = {select: True}

    def ask(value: Instruction) -> bool:
        if value not in known:
            if value.opcode == "broadcast":
                known[value] = len(value.dims) - 1 not in value["dimensions"]
            elif value.opcode == "constant":
                known[value] = not value.dims
            else:
                plain = OPS[value.opcode].family == "elementwise" or value.opcode == "reshape"
                known[value] = plain and all(ask(o) for o in value.operands)
        return known[value]

    return ask(value)


def _mask(select: Instruction, domain) -> Mask | None:
    condition, yes, no = select.operands
    index = variables(domain)
    last = len(domain) - 1
    for inside, outside, value in ((yes, no, False), (no, yes, True)):
        if outside.opcode != "broadcast" or last in outside["dimensions"] or domain[last] == 1:
            continue
        found = _outside(condition, index, last, value)
        if found is not None:
            return Mask(select, inside, outside, *found)
    return None


def _outside(condition: Instruction, index: Index, last: int, value: bool) -> tuple[Affine, bool] | None:
    """(position in the row from which on a condition has a value, whether it has the other value before)."""
    opcode = condition.opcode
    if opcode == "not":
        return _outside(condition.operands[0], index, last, not value)
    if opcode == ("or" if value else "and"):
        every = (_outside(operand, index, last, value) for operand in condition.operands)
        return next(((found[0], False) for found in every if found is not None), None)
    if opcode in ("broadcast", "reshape", "transpose"):
        inner = _operand_index(condition, index)
        return None if inner is None else _outside(condition.operands[0], inner, last, value)
    if opcode != "compare":
        return None
    direction = condition["direction"]
    if value:
        direction = _NEGATED.get(direction)
    difference = _difference(condition, index)
    if difference is None:
        return None
    step = difference.terms.get(last, 0)
    rest = Affine(difference.constant, {v: c for v, c in difference.terms.items() if v != last})
    if step == -1 and direction in _FALLING:
        return rest + _FALLING[direction], True
    if step == 1 and direction in _RISING:
        return rest * -1 + _RISING[direction], True
    return None


def _operand_index(instruction: Instruction, index: Index) -> Index | None:
    """The index of the operand's element that is read at `index`."""
    operand = instruction.operands[0]
    if instruction.opcode == "broadcast":
        return tuple(index[d] if operand.dims[k] != 1 else ZERO for k, d in enumerate(instruction["dimensions"]))
    if instruction.opcode == "transpose":
        inner = [ZERO] * len(index)
        for k, d in enumerate(instruction["dimensions"]):
            inner[d] = index[k]
        return tuple(inner)
    wide = [k for k, extent in enumerate(instruction.dims) if extent != 1]
    if [instruction.dims[k] for k in wide] != [d for d in operand.dims if d != 1]:
        return None
    rest = iter(wide)
    return tuple(index[next(rest)] if d != 1 else ZERO for d in operand.dims)


def _affine(value: Instruction, index: Index) -> Affine | None:
    """An integer as an affine function of the domain's variables, where it is one."""
    opcode = value.opcode
    if value.dtype.kind not in "iu" or value.dtype.itemsize < 4:
        return None
    if opcode == "iota":
        return index[value["iota_dimension"]]
    if opcode == "constant":
        number = int(value["value"].reshape(-1)[0]) if value.shape.size == 1 else LARGEST
        return Affine(number) if abs(number) < LARGEST else None
    if opcode in ("broadcast", "reshape", "transpose"):
        inner = _operand_index(value, index)
        return None if inner is None else _affine(value.operands[0], inner)
    if value.dtype.kind == "u":
        return None  # its differences wrap
    if opcode == "convert":
        return _affine(value.operands[0], index)
    if opcode in ("add", "subtract"):
        result = _difference(value, index, 1 if opcode == "add" else -1)
        return result if result is not None and abs(result.constant) < LARGEST else None
    return None


def _difference(instruction: Instruction, index: Index, sign: int = -1) -> Affine | None:
    """The first operand minus (or plus) the second as an affine function, where it is one."""
    a, b = (_affine(o, index) for o in instruction.operands)
    return None if a is None or b is None else a + b * sign
