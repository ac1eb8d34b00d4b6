"""Element-wise functions of `hloom.lax` that are not exactly one op of the table (`hloom.lax.table`).

As in `jax.lax` nothing is promoted: array operands have equal dtypes and, except for scalars and dimensions of size 1,
which are broadcast, equal shapes. Python scalars take the dtype of the other operands.
"""

from __future__ import annotations

import math

from hloom.arrays.keys import KeyArray
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import COMPLEX, INTEGERS, Shape, as_dtype
from hloom.lax.operands import NUMBERS, as_operand, broadcast_dims_to, constant, convert, full, reshape_to
from hloom.lax.table import (
    binary,
    complex,
    docstring,
    documented,
    exp,
    igamma_grad_a,
    imag,
    lgamma,
    like_arrays,
    log,
    mul,
    neg,
    real,
    sub,
)
from hloom.tracing.trace import bind


def _comparison(name: str, direction: str, sign: str, printed: str):
    text = f"x {sign} y, pred.\n\nElement-wise (HLO compare). Raises ShapeError, DTypeError."
    example = "{f}(hnp.array([1, 2, 3]), 2)", f"Array({printed}, dtype=bool)"
    function = binary(name, "compare", keeps_weak=False, direction=direction)
    return documented(function, name, docstring(text, example, f"hl.lax.{name}"))


eq = _comparison("eq", "EQ", "==", "[False,  True, False]")
ne = _comparison("ne", "NE", "!=", "[ True, False,  True]")
lt = _comparison("lt", "LT", "<", "[ True, False, False]")
le = _comparison("le", "LE", "<=", "[ True,  True, False]")
gt = _comparison("gt", "GT", ">", "[False, False,  True]")
ge = _comparison("ge", "GE", ">=", "[False,  True,  True]")

# --- short compositions -------------------------------------------------------------------------------------------


class RoundingMethod:
    """How `round` treats halves, as in `jax.lax`."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x, rounding_method: int = RoundingMethod.AWAY_FROM_ZERO):
    """x rounded to integers, floats. Halves are rounded away from zero, or to even. Raises DTypeError.

    >>> hl.lax.round(hnp.array([0.5, 1.5]))
    Array([1., 2.], dtype=float32)
    >>> hl.lax.round(hnp.array([0.5, 1.5]), hl.lax.RoundingMethod.TO_NEAREST_EVEN)
    Array([0., 2.], dtype=float32)
    """
    x = as_operand(x, "round")
    opcode = "round-nearest-even" if rounding_method == RoundingMethod.TO_NEAREST_EVEN else "round-nearest-afz"
    return bind(opcode, x, weak=x.weak)


def square(x):
    """x * x, element-wise.

    >>> hl.lax.square(hnp.array([-3, 2]))
    Array([9, 4], dtype=int32)
    """
    x = as_operand(x, "square")
    return bind("multiply", x, x, weak=x.weak)


def reciprocal(x):
    """1 / x, element-wise.

    >>> hl.lax.reciprocal(hnp.array([4.0, 0.5]))
    Array([0.25, 2.  ], dtype=float32)
    """
    x = as_operand(x, "reciprocal")
    return bind("divide", full(1, x.dtype, x.shape), x, weak=x.weak)


def exp2(x, accuracy=None):
    """2 to the power x, floats and complex: exp(x log 2).

    >>> hl.lax.exp2(hnp.array([0.0, 3.0])).round(3)
    Array([1., 8.], dtype=float32)
    """
    x = as_operand(x, "exp2")
    return exp(mul(x, math.log(2.0)))


def conj(x):
    """The complex conjugate; floats become complex, as in `jax.lax.conj`. Raises DTypeError.

    >>> hl.lax.conj(hnp.array([1 + 2j]))
    Array([1.-2.j], dtype=complex64)
    """
    x = as_operand(x, "conj")
    if x.dtype not in COMPLEX:
        return complex(x, full(0.0, x.dtype, x.shape))
    return bind("complex", real(x), neg(imag(x)), weak=x.weak)


def integer_pow(x, y: int):
    """x to the power of a static integer y, by repeated squaring: at most 2 log2|y| multiplications.

    Raises ArgumentError if y is not a Python integer, DTypeError for a negative power of integers.

    >>> hl.lax.integer_pow(hnp.array([2.0, 3.0]), -2).round(3)
    Array([0.25 , 0.111], dtype=float32)
    """
    x = as_operand(x, "integer_pow")
    if isinstance(y, bool) or not isinstance(y, int):
        raise ArgumentError("integer_pow takes a static integer y", f"{y!r:.80}", "use lax.pow for a computed exponent")
    if y < 0 and x.dtype in INTEGERS:
        raise DTypeError(
            "integers have no negative powers", f"{x._shape!r} to the power {y}", "convert to a float dtype first"
        )
    if y == 0:
        return full(1, x.dtype, x.shape)
    result, base, left = None, x, -y if y < 0 else y
    while True:
        if left & 1:
            result = base if result is None else mul(result, base)
        left >>= 1
        if not left:
            break
        base = mul(base, base)
    return reciprocal(result) if y < 0 else result


def select(pred, on_true, on_false):
    """on_true where pred, otherwise on_false. pred, booleans or integers 0 and 1, is a scalar or has their shape.

    on_true and on_false: numbers of equal dtype, or keys of equal implementation. Raises ShapeError, DTypeError.

    >>> hl.lax.select(hnp.array([True, False]), hnp.array([1, 2]), hnp.array([10, 20]))
    Array([ 1, 20], dtype=int32)
    """
    pred = as_operand(pred, "select")
    if type(on_true) is KeyArray and type(on_false) is KeyArray and on_true.dtype == on_false.dtype:
        if pred.ndim:
            pred = broadcast_dims_to(reshape_to(pred, (*pred.shape, 1)), (*pred.shape, on_true._data.shape[-1]))
        return KeyArray(select(pred, on_true._data, on_false._data), on_true._implementation)
    if pred.dtype in INTEGERS:
        pred = ne(pred, full(0, pred.dtype, pred.shape))
    (on_true, on_false), weak = like_arrays("select", (on_true, on_false))
    return bind("select", pred, on_true, on_false, weak=weak)


def clamp(min, x, max):
    """min(max(x, min), max). The bounds are scalars or have the shape of x, with its dtype. NaN is preserved.

    Raises ShapeError, DTypeError.

    >>> hl.lax.clamp(0.0, hnp.array([-1.0, 0.5, 3.0]), 1.0)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    x = as_operand(x, "clamp")
    low, high = (constant(b, x.dtype) if type(b) in NUMBERS else as_operand(b, "clamp") for b in (min, max))
    weak = x.weak and all(type(b) in NUMBERS or as_operand(b, "clamp").weak for b in (min, max))
    return bind("clamp", low, x, high, weak=weak)


def convert_element_type(operand, new_dtype):
    """operand with another dtype. Floats to integers truncate and saturate, NaN becomes 0. Raises DTypeError.

    >>> hl.lax.convert_element_type(hnp.array([1.7, -1.7, hnp.nan]), hnp.int32)
    Array([ 1, -1,  0], dtype=int32)
    """
    if isinstance(operand, NUMBERS):
        return constant(operand, as_dtype(new_dtype))
    return convert(as_operand(operand, "convert_element_type"), as_dtype(new_dtype))


def bitcast_convert_type(operand, new_dtype):
    """The bits of operand reinterpreted as another dtype.

    A narrower dtype adds a new last dimension; a wider one consumes the last dimension, which must have the matching
    size. Raises ShapeError, DTypeError.

    >>> hl.lax.bitcast_convert_type(hnp.array([1.0, -1.0]), hnp.uint32)
    Array([1065353216, 3212836864], dtype=uint32)
    """
    x, dtype = as_operand(operand, "bitcast_convert_type"), as_dtype(new_dtype)
    dims, old, new = x.shape, x.dtype.itemsize, dtype.itemsize
    if old > new:
        dims = (*dims, old // new)
    elif old < new:
        dims = dims[:-1]
    return bind("bitcast-convert", x, shape=Shape(dtype, dims))


def reduce_precision(operand, exponent_bits: int, mantissa_bits: int):
    """operand rounded to a float format with this many bits, in its original dtype. Raises AttributeValueError,
    DTypeError.

    >>> hl.lax.reduce_precision(hnp.array([1.001]), exponent_bits=8, mantissa_bits=7)
    Array([1.], dtype=float32)
    """
    x = as_operand(operand, "reduce_precision")
    return bind("reduce-precision", x, weak=x.weak, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)


def is_nan(x):
    """Whether x is NaN, pred: the only value that is not equal to itself."""
    x = as_operand(x, "is_nan")
    return bind("compare", x, x, direction="NE")


def random_gamma_grad(a, x):
    """The derivative of a sample x of the gamma distribution with respect to its shape a.

    -igamma_grad_a(a, x) divided by the density at x.
    Source: Figurnov et al., Implicit reparameterization gradients, 2018. Raises ShapeError, DTypeError.

    >>> hl.lax.random_gamma_grad(hnp.array([2.0]), hnp.array([1.0])).round(3)
    Array([0.751], dtype=float32)
    """
    (a, x), _ = like_arrays("random_gamma_grad", (a, x))
    log_density = sub(sub(mul(sub(a, 1.0), log(x)), x), lgamma(a))
    return neg(mul(igamma_grad_a(a, x), exp(neg(log_density))))
