"""The names of the kernel dialect as functions of NumPy scalars, for the simulator.

A name that an op's `code` writes (`exp_{t}({0})`) means the op's own NumPy reference, so that the simulator and the
reference interpreter agree by construction; what is left stands here.
"""

from __future__ import annotations

import functools
import string
import types as python_types
from collections.abc import Callable

import numpy as np

from hloom.compiler.kernels.math import FUNCTIONS, callees
from hloom.compiler.kernels.math.registry import REGISTER
from hloom.compiler.targets.cuda.codegen.names import split
from hloom.compiler.targets.cuda.simulator import tensor_cores
from hloom.ir.ops import OPS
from hloom.ir.ops.elementwise.selection import convert_array
from hloom.ir.types import DTYPES, Shape, compute_dtype

CASTS = set(REGISTER) - {"pred", "f16", "bf16"}


@functools.cache
def _op_of_stem() -> dict[str, str]:
    """'exp' -> 'exponential', of the ops that the op table writes as one function of their operands."""
    result = {}
    for name, entry in OPS.items():
        for template in entry.code.values() if isinstance(entry.code, dict) else ():
            match [(text, field) for text, field, _, _ in string.Formatter().parse(template)]:
                case [(stem, "t"), ("(", "0"), (")", None)] | [(stem, "t"), ("(", "0"), (", ", "1"), (")", None)]:
                    result[stem.removesuffix("_")] = name
    return result


def register_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a register of an HLO dtype: float32 for f16 and bf16."""
    return compute_dtype(DTYPES[name])


_FLOATS = frozenset({float, np.float16, np.float32, np.float64})


@functools.cache
def cast(name: str) -> Callable:
    """The cast `f32(x)`, `s8(x)`, ...: C's conversion, which kernels call more than anything else.

    Its `dtype` is that of the result.
    """
    dtype = register_dtype(name)
    scalar = dtype.type
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        least, most = int(info.min), int(info.max)

        def convert(x):
            kind = type(x)
            if kind is scalar:
                return x
            if kind in _FLOATS:
                return scalar(x)
            x = int(x)
            return scalar(x if least <= x <= most else (x - least) % (most - least + 1) + least)
    else:

        def convert(x):
            return x if type(x) is scalar else scalar(x)

    convert.dtype = dtype  # type: ignore[attr-defined]
    return convert


def _from_op(opcode: str, dtype: np.dtype) -> Callable:
    """An op's reference on scalars of a dtype."""
    entry = OPS[opcode]

    @functools.cache
    def result_shape(count: int) -> Shape:
        return entry.infer([Shape(dtype, ())] * count, {}, None)

    def call(*values):
        shape = result_shape(len(values))
        return np.asarray(entry.evaluate(*(np.asarray(v) for v in values), shape=shape))[()]

    # Counts of bits have few values and many calls.
    return functools.lru_cache(1024, typed=True)(call) if dtype.kind in "iu" else call


def _convert(source: str, target: str) -> Callable:
    narrow, wide = DTYPES[target], register_dtype(target)
    return lambda x: convert_array(np.asarray(x, register_dtype(source)), narrow).astype(wide)[()]


def _bitcast(source: str, target: str) -> Callable:
    def call(x):
        stored = np.asarray(x, register_dtype(source)).astype(DTYPES[source])
        return stored.view(DTYPES[target]).astype(register_dtype(target))[()]

    return call


def _polynomial(x, coefficients):
    result = x * 0
    for coefficient in reversed(coefficients):
        result = result * x + type(x)(coefficient)
    return result


_PLAIN: dict[str, Callable] = {
    "trunc": np.trunc, "copysign": np.copysign, "exp2": np.exp2, "log2": np.log2, "log10": np.log10,
    "library_exp": np.exp, "library_log1p": np.log1p, "hypot": np.hypot, "atan": np.arctan, "nextafter": np.nextafter,
    "sum": np.add, "prod": np.multiply, "accmax": np.maximum, "accmin": np.minimum, "max": np.maximum,
    "min": np.minimum, "accand": np.bitwise_and, "accor": np.bitwise_or, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_PLAIN["not"] = lambda x: np.logical_not(x) if np.asarray(x).dtype == bool else np.invert(x)
_PLAIN["erfc"] = lambda x: 1 - _from_op("erf", np.dtype(np.float64))(np.float64(x))


def _load(pointer, index):
    value = pointer[index]
    return value != 0 if value.dtype in (np.bool_, np.uint8) else np.float32(value)


def _store(pointer, index, value) -> None:
    pointer[index] = value


def _copy4(to, to_index, source, source_index) -> None:
    for k in range(4):
        to[to_index + k] = source[source_index + k]


def _composed(name: str) -> Callable:
    """A function that only the dialect has (random bits): its own text over the meanings of the names that it calls."""
    entry = FUNCTIONS[name]
    names = {word: cast(word) for word in CASTS} | {used: function(used) for used in callees(name)}
    return python_types.FunctionType(entry.python.__code__, dict(entry.python.__globals__) | names, name)


@functools.cache
def function(name: str) -> Callable:
    """The meaning of a name of `vmath.FUNCTIONS` or of a cast on NumPy scalars. Raises KeyError where it has none."""
    if name in CASTS:
        return cast(name)
    if name in ("load_f16", "load_bf16", "load_pred"):
        return _load
    if name in ("store_f16", "store_bf16", "store_pred"):
        return _store
    if name == "copy4":
        return _copy4
    if of_products := tensor_cores.meaning(name):
        return of_products
    if name.startswith("scratch_"):
        element = np.dtype(np.uint8) if name == "scratch_pred" else DTYPES[name.removeprefix("scratch_")]
        return lambda count: np.zeros(count, element)
    if name == "select":
        return lambda condition, x, y: x if condition else y
    if name == "polynomial":
        return _polynomial
    stem, dtype = split(name)
    if name.startswith(("convert_", "bitcast_")):
        kind, source, target = name.split("_")
        return (_convert if kind == "convert" else _bitcast)(source, target)
    if stem == "round":
        return lambda x: np.float32(np.float32(x).astype(DTYPES[dtype]))
    if stem == "reduce_precision":
        reduced, shape = OPS["reduce-precision"].evaluate, Shape(DTYPES[dtype], ())
        return lambda x, exponent, mantissa: np.asarray(
            reduced(np.asarray(x), shape=shape, exponent_bits=exponent, mantissa_bits=mantissa)
        ).astype(DTYPES[dtype])[()]
    if stem in _op_of_stem():
        return _from_op(_op_of_stem()[stem], register_dtype(dtype))
    if stem == "fma":  # most of what a product does
        scalar = register_dtype(dtype).type
        return lambda x, y, z: scalar(float(x) * float(y) + float(z))
    if stem not in _PLAIN:
        return _composed(name)
    plain, result = _PLAIN[stem], register_dtype(FUNCTIONS[name].result)
    return lambda *values: np.asarray(plain(*values)).astype(result)[()]
