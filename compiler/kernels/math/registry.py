"""The table of vector math functions: what a kernel text may call, with its types and accuracy.

Every entry works on one element. A kernel calls it inside a plain loop; the functions are branch-free, so LLVM turns
the loop into vector instructions of whatever width the machine has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from hloom.ir.op_table import OPS
from hloom.ir.records import record
from hloom.ir.types import DTYPES

# The type that a value of each HLO dtype has in a register: f16 and bf16 are computed in float32.
REGISTER = {
    "pred": types.boolean,
    "s8": types.int8, "s16": types.int16, "s32": types.int32, "s64": types.int64,
    "u8": types.uint8, "u16": types.uint16, "u32": types.uint32, "u64": types.uint64,
    "f16": types.float32, "bf16": types.float32, "f32": types.float32, "f64": types.float64,
    "c64": types.complex64, "c128": types.complex128,
}  # fmt: skip

SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f32", "f64")
COMPLEX = ("c64", "c128")
BITS = {"pred": 1, "f16": 16, "bf16": 16, "f32": 32, "f64": 64} | {name: int(name[1:]) for name in INTEGERS}


@record(frozen=True)
class Function:
    """One kernel intrinsic: a name that kernel sources call.

    name:       the name in kernel text, `exp_f32`.
    python:     a plain Python function, or a Numba intrinsic.
    parameters: HLO dtypes of the arguments; empty with kind "intrinsic" where the argument types are free (`select`).
    result:     HLO dtype of the result, "" where the function stores, and "*" where it depends on the arguments.
    kind:       "function" or "intrinsic".
    ulp:        the largest error seen, in units in the last place of the result (0: exact or correctly rounded).
    reference:  the method in a few words.
    """

    name: str
    python: Callable[..., Any]
    parameters: tuple[str, ...]
    result: str
    kind: str
    ulp: float = 0.0
    reference: str = ""


FUNCTIONS: dict[str, Function] = {}
# Largest errors seen of f32 and f64 functions, in units in the last place; those of ops are fields of the op table.
# Measured against long double (special functions: mpmath) on random bit patterns, on intervals around the interesting
# points and on special values: some 400,000 arguments per function, on AVX2. The tests hold smaller samples to the same
# bounds. f32 functions that go through float64 are within 0.501.
ULP = {"exp2": (0.94, 0.90), "hypot": (0.501, 0.501)}
for _op in OPS.values():
    if _op.ulp and isinstance(_op.code, dict):
        ULP[_op.code["any"].partition("_{t}")[0]] = _op.ulp


def function(parameters: str, result: str, ulp: float = 0.0) -> Callable:
    """Decorator: enter a plain Python function in the table and give it back unchanged.

    parameters, result: HLO dtypes separated by blanks, `"f32 f32"`. ulp: for helpers; the others are in `ULP`.
    The first line of the docstring names the method.
    """

    def enter(python: Callable) -> Callable:
        method = (python.__doc__ or "").strip().split("\n")[0]
        name = python.__name__
        base, _, dtype = name.rpartition("_")
        error = ULP[base][FLOATS.index(dtype)] if base in ULP and dtype in FLOATS else ulp
        FUNCTIONS[name] = Function(name, python, tuple(parameters.split()), result, "function", error, method)
        return python

    return enter


def rounded_from(wide: str, narrow: str, names: str) -> None:
    """Enters NAME_narrow for each name of the list: NAME_wide of the arguments, rounded to the narrower dtype."""
    for name in names.split():
        entry = FUNCTIONS[f"{name}_{wide}"]
        parameters = ("x", "y")[: len(entry.parameters)]
        scope: dict[str, Any] = {narrow: REGISTER[narrow], wide: REGISTER[wide], entry.name: entry.python}
        arguments = ", ".join(f"{wide}({parameter})" for parameter in parameters)
        head = f"def {name}_{narrow}({', '.join(parameters)}):"
        exec(f"{head}\n    return {narrow}({entry.name}({arguments}))\n", scope)
        python = scope[f"{name}_{narrow}"]
        python.__doc__ = f"through {DTYPES[wide].name}."
        function(" ".join([narrow] * len(parameters)), narrow)(python)
