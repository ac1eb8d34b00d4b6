"""Constants of fused computations: literals of the text, or arguments where the number follows a size of the arrays.

A mean divides by a size, an index that counts from the end has one added, attention divides by the root of one. Were
they literals, a kernel would be compiled anew for each shape, though nothing else in it changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hloom.compiler.kernel_ir.builder import constant, unary
from hloom.compiler.kernel_ir.nodes import Call, Cast, Expr
from hloom.ir.module import Computation, Instruction
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, PRED, compute_dtype, kind

LEAST = 9  # of what may be a size: smaller numbers are those of formulas
_INDEXES = (DTYPES["s32"], DTYPES["s64"])
# What arithmetic on indexes is made of. Numbers of other integer operations stay literals: LLVM makes shorter code of a
# shift, a mask or a division whose number it knows, and selects in 64 bits between indexes and arguments.
_INDEX_ARITHMETIC = {"add", "subtract", "compare", "clamp", "minimum", "maximum", "negate", "convert"}
_BEFORE_STARTS = {"dynamic-slice": 1, "dynamic-update-slice": 2}  # operands
_SAME = {"broadcast", "reshape", "transpose", "slice", "concatenate", "pad", "copy"}


def literal(value, dtype: np.dtype) -> Expr:
    """A typed constant of the language."""
    if dtype == PRED:
        return constant(bool(value))
    name = HLO_NAME[compute_dtype(dtype)]
    if dtype in COMPLEX:
        part = "f64" if name == "c128" else "f32"
        value = complex(value)
        return Call(name, f"complex_{part}", (_float(value.real, part), _float(value.imag, part)))
    if dtype.kind in "iu":
        return Cast(name, _signed(int(value)))
    return _float(float(value), name)


def _float(value: float, name: str) -> Cast:
    # The shortest decimal of the dtype itself: 0.79, not 0.7900000214576721.
    shown = float(str(np.float32(value))) if name == "f32" and math.isfinite(value) else value
    return Cast(name, _signed(shown))


def _signed(value: int | float) -> Expr:
    """A number, as the language writes it: without a sign, or negated."""
    if value < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0 and value == 0):
        return unary("-", constant(-value))
    return constant(value)


def argument(value, dtype: np.dtype) -> tuple[str, int, Callable[[Expr], Expr]]:
    """(name of the argument, the integer that it is, the constant that is made from the argument)."""
    name = HLO_NAME[compute_dtype(dtype)]
    if dtype in _INDEXES:
        return f"constant_{name}", int(value), lambda number: Cast(name, number)
    if name == "f64":
        return (
            "constant_f64",
            int(np.float64(value).view(np.int64)),
            lambda number: Call("f64", "bitcast_s64_f64", (number,)),
        )
    return (
        "constant_f32",
        int(np.float32(value).view(np.int32)),
        lambda number: Call("f32", "bitcast_s32_f32", (Cast("s32", number),)),
    )


def shown_arguments(names: Sequence[str], arguments: Sequence) -> str:
    """'constant_f32 = 0.5, ...' of the arguments of a kernel that are constants; '' where it has none. names: of its
    parameters."""
    parts = []
    for name, value in zip(names, arguments, strict=False):
        if name.startswith("constant_f32"):
            value = np.int32(value).view(np.float32)
        elif name.startswith("constant_f64"):
            value = np.int64(value).view(np.float64)
        elif not name.startswith("constant_"):
            continue
        parts.append(f"{name} = {value!s}")
    return ", ".join(parts)


def sized(computation: Computation) -> frozenset[Instruction]:
    """The constants of a computation that may follow a size: real floats, and integers that indexes are made with."""
    found = {i for i in computation.instructions if i.opcode == "constant" and _may_be_size(i)}
    held: dict[Instruction, set[Instruction]] = {i: {i} for i in found if i.dtype in _INDEXES}
    if held:
        for instruction in computation.instructions:
            # Where a window starts is an index in itself.
            operands = instruction.operands[: _BEFORE_STARTS.get(instruction.opcode)]
            behind = set().union(*(held.get(o, ()) for o in operands))
            if instruction.opcode in _SAME:
                held[instruction] = behind
            elif behind and instruction.opcode not in _INDEX_ARITHMETIC:
                found -= behind
    return frozenset(found)


def _may_be_size(constant: Instruction) -> bool:
    """Whether a number is a whole one from LEAST on, its root, one or two over it, or one over its root."""
    dtype = constant.dtype
    if constant.shape.size != 1 or not (dtype in _INDEXES or kind(dtype) == "float"):
        return False
    value = constant["value"].reshape(())[()]
    if dtype in _INDEXES:
        return abs(int(value)) >= LEAST
    number = abs(float(value))
    if not 2.0**-53 < number < 2.0**53:  # (NaN is neither)
        return False
    if number == round(number):
        return number >= LEAST
    for size, form in (
        (1 / number, lambda n: 1 / n),
        (2 / number, lambda n: 2 / n),
        (number**-2, lambda n: n**-0.5),
        (number**2, lambda n: n**0.5),
    ):
        whole = round(size) if size < 2.0**53 else 0
        if whole >= LEAST and np.float64(form(whole)).astype(dtype) == abs(value):
            return True
    return False
