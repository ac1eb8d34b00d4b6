"""Programs for other compilers: hloom-specific ops become calls of computations in HLO's ops, as do fusions.

Generators of random bits and neighbours of floats are expanded exactly. Sources: Salmon, Moraes, Dror and
Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011); M. Giles, Approximating the erfinv function (2010), for
float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Instruction, Module, map_module
from hloom.ir.ops.elementwise.random import philox4x32, threefry2x32
from hloom.ir.types import DTYPES, HLO_NAME

_GENERATORS: dict[str, tuple[Callable, int]] = {
    "threefry2x32-first": (threefry2x32, 0),
    "threefry2x32-second": (threefry2x32, 1),
    "philox4x32-low": (philox4x32, 0),
    "philox4x32-high": (philox4x32, 1),
}


def portable(module: Module, dialect: str = "hlo") -> Module:
    """The module in a form that other compilers accept: the ops of `EXPANSIONS` as calls, and fusions as calls.

    dialect: 'hlo' or 'stablehlo', whose CHLO has some of these ops. A pass: returns the same object if nothing changes.
    """
    wanted = set(_GENERATORS if dialect == "stablehlo" else EXPANSIONS)
    made: dict[tuple, Computation] = {}

    def change(instruction: Instruction) -> Instruction:
        if instruction.opcode not in wanted:
            return instruction
        called = _called(instruction, made)
        return instruction if called is None else _call(instruction, {"to_apply": called})

    return fusions_as_calls(map_module(module, change))


def fusions_as_calls(module: Module) -> Module:
    """The module with every fusion replaced by a call with its kind in the attribute `fusion_kind`.

    Compilers accept different forms of fusions, and XLA's CPU backend aborts on others.
    """

    def change(instruction: Instruction) -> Instruction:
        if instruction.opcode != "fusion":
            return instruction
        return _call(instruction, {"to_apply": instruction["calls"], "fusion_kind": instruction["kind"]})

    return map_module(module, change)


def _call(instruction: Instruction, attributes: dict) -> Instruction:
    return Instruction(
        "call", instruction.operands, instruction.shape, attributes, instruction.hint, instruction.source,
        instruction.made_by,
    )  # fmt: skip


def _called(instruction: Instruction, made) -> Computation | None:
    """The expansion of an instruction as a computation, created once per shape; None if there is none."""
    shapes = tuple(o.shape for o in instruction.operands)
    key = (instruction.opcode, shapes)
    if key not in made:
        builder = Builder(re.sub(r"\W", "_", instruction.opcode))
        operands = [Value(builder, builder.parameter(shape, f"x{k}")) for k, shape in enumerate(shapes)]
        root = EXPANSIONS[instruction.opcode](*operands)
        made[key] = None if root is None else builder.finish(root.instruction)
    return made[key]


# --- the ops ------------------------------------------------------------------------------------------------------


class _Word:
    """A value with the operators of unsigned words. Constants are shared."""

    def __init__(self, value: Value, constants: dict[int, Value]):
        self.value, self.constants = value, constants

    def _with(self, opcode: str, other) -> _Word:
        if not isinstance(other, _Word):
            number = int(other)
            if number not in self.constants:
                self.constants[number] = self.value.like(np.asarray(number, self.value.dtype))
            other = _Word(self.constants[number], self.constants)
        return _Word(self.value.op(opcode, other.value), self.constants)

    def __add__(self, other):
        return self._with("add", other)

    def __mul__(self, other):
        return self._with("multiply", other)

    def __xor__(self, other):
        return self._with("xor", other)

    def __or__(self, other):
        return self._with("or", other)

    def __and__(self, other):
        return self._with("and", other)

    def __lshift__(self, other):
        return self._with("shift-left", other)

    def __rshift__(self, other):
        return self._with("shift-right-logical", other)


def _generated(opcode: str):
    function, which = _GENERATORS[opcode]

    def expand(*operands: Value) -> Value:
        constants: dict[int, Value] = {}
        return function(*(_Word(v, constants) for v in operands))[which].value

    return expand


def _next_after(x: Value, y: Value) -> Value | None:
    """The bits of a float without the sign are its rank among floats, counted from zero."""
    words = {"f16": "s16", "bf16": "s16", "f32": "s32", "f64": "s64"}
    word = words.get(HLO_NAME[x.dtype])
    if word is None:
        return None
    shape = x.shape.with_dtype(DTYPES[word])
    bits, target = (v.op("bitcast-convert", shape=shape) for v in (x, y))
    width = 8 * x.dtype.itemsize
    sign = bits.like(np.asarray(-(1 << (width - 1)), shape.dtype))
    outwards = y.compare("GT", x).op("xor", x.compare("LT", 0)).where(bits.like(1), bits.like(-1))
    moved = (bits + outwards).op("bitcast-convert", shape=x.shape)
    least = target.op("and", sign).op("or", 1).op("bitcast-convert", shape=x.shape)
    moved = x.compare("EQ", 0).where(least, moved)
    moved = x.compare("EQ", y).where(y, moved)
    unordered = x.compare("NE", x).op("or", y.compare("NE", y))
    return unordered.where(x + y, moved)


_CENTER = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _erf_inv(x: Value) -> Value | None:
    dtype = x.dtype
    if dtype == DTYPES["f64"]:
        return None
    y = x.convert(DTYPES["f32"])
    w = -(-(y * y)).op("log-plus-one")
    central = w.compare("LT", 5)
    near, far = w - 2.5, w.op("sqrt") - 3
    p, q = near.like(_CENTER[0]), far.like(_TAIL[0])
    for a, b in zip(_CENTER[1:], _TAIL[1:], strict=True):
        p, q = p * near + a, q * far + b
    end = y.op("abs").compare("EQ", 1)
    return end.where(y * np.inf, central.where(p, q) * y).convert(dtype)


def _atan(x: Value) -> Value | None:
    if x.dtype.kind == "c":
        return None
    return x.op("atan2", 1)


EXPANSIONS: dict[str, Callable[..., Value | None]] = {name: _generated(name) for name in _GENERATORS}
EXPANSIONS |= {"next-after": _next_after, "erf-inv": _erf_inv, "atan": _atan}

__all__ = ["EXPANSIONS", "fusions_as_calls", "portable"]
