"""Arithmetic: sums, products, quotients, powers, extremes, signs.

Source: HLO operation semantics, openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.ops.elementwise import complex_references
from hloom.ir.ops.elementwise.declare import (
    ARITHMETIC,
    hlo_binary,
    hlo_unary,
    wrapped,
)
from hloom.ir.ops.rules import conjugate, partials, to_real
from hloom.ir.types import COMPLEX, kind


def _add_transpose(build, instruction, cotangent, operands):
    return [cotangent if o is None else None for o in operands]


def _subtract_jvp(build, instruction, primals, tangents):
    left, right = tangents
    if right is None:
        return left
    return -right if left is None else left - right


def _subtract_transpose(build, instruction, cotangent, operands):
    left, right = operands
    return [cotangent if left is None else None, -cotangent if right is None else None]


def _multiply_transpose(build, instruction, cotangent, operands):
    left, right = operands
    return [cotangent * right, None] if left is None else [None, cotangent * left]


def _divide_transpose(build, instruction, cotangent, operands):
    return [cotangent / operands[1], None]


def _truncated_divide(x, y):
    """HLO integer division: truncates toward zero; x / 0 has all bits set; the smallest / -1 is itself."""
    if x.dtype.kind not in "iu":
        return complex_references.divide(x, y) if x.dtype.kind == "c" else np.divide(x, y)
    zero = y == 0
    safe = np.where(zero, 1, y).astype(x.dtype)
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // safe)
    overflow = (safe == -1) & (x == np.iinfo(x.dtype).min)
    safe = np.where(overflow, 1, safe).astype(x.dtype)
    quotient = x // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != x))
    return np.where(zero, -1, quotient)


def _remainder(x, y):
    """HLO remainder: the sign of the dividend; x rem 0 is x for integers, NaN for floats."""
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    zero = y == 0
    safe = np.where(zero | (y == np.asarray(-1).astype(x.dtype)) if x.dtype.kind == "i" else zero, 1, y).astype(x.dtype)
    return np.where(zero, x, np.fmod(x, safe))


def _sign(x):
    """Preserves the sign of zero, which NumPy drops."""
    if x.dtype.kind == "c":
        return complex_references.sign(x)
    return np.where(x == 0, x, np.sign(x)) if x.dtype.kind not in "iu" else np.sign(x)


def _power(x, y):
    """Integers: the result of a negative exponent is 0 unless the base is 1 or -1."""
    if x.dtype.kind == "f":
        # NumPy's results depend on strides: with AVX-512 it uses another function for contiguous arrays, and a
        # broadcast exponent of 0.5 becomes a square root, which differs from IEEE 754 at -0 and -inf.
        x, y = np.asarray(x, order="C"), np.asarray(y, order="C")
        result, roots = np.power(x, y), y == 0.5
        return np.where(roots & ((x == 0) | (x == -np.inf)), np.abs(x), result) if roots.any() else result
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    if x.dtype.kind == "u":
        return np.power(x, y)
    negative = y < 0
    positive = np.power(x, np.where(negative, 0, y).astype(x.dtype))
    parity = np.where((y & 1) == 1, x, 1)
    return np.where(negative, np.where(x == 1, 1, np.where(x == -1, parity, 0)), positive)


hlo_binary(
    "add",
    ("pred", *ARITHMETIC),
    np.add,
    {"pred": "{0} | {1}", **wrapped("{0} + {1}")},
    partials(lambda g, z, x, y: g, lambda g, z, x, y: g),
    _add_transpose,
    commutative=True,
    associative=True,
    identity=lambda dtype: 0,
    doc="{0} + {1}; `or` of booleans.",
    lax="add",
    example=("{f}(hnp.array([1.5, 2.0]), hnp.array([10.0, 20.0]))", "Array([11.5, 22. ], dtype=float32)"),
    numpy="add",
)
hlo_binary(
    "subtract",
    ARITHMETIC,
    np.subtract,
    wrapped("{0} - {1}"),
    _subtract_jvp,
    _subtract_transpose,
    doc="{0} - {1}.",
    lax="sub",
    example=("{f}(hnp.array([5, 7]), hnp.array([1, 10]))", "Array([ 4, -3], dtype=int32)"),
    numpy="subtract",
)
hlo_binary(
    "multiply",
    ("pred", *ARITHMETIC),
    np.multiply,
    {"pred": "{0} & {1}", "complex": "mul_{t}({0}, {1})", **wrapped("{0} * {1}")},
    partials(lambda g, z, x, y: g * y, lambda g, z, x, y: g * x),
    _multiply_transpose,
    commutative=True,
    associative=True,
    identity=lambda dtype: 1,
    doc="{0} * {1}; `and` of booleans.",
    lax="mul",
    example=("{f}(hnp.array([1.5, 2.0]), hnp.array([4.0, 0.5]))", "Array([6., 1.], dtype=float32)"),
    numpy="multiply",
)
hlo_binary(
    "divide",
    ARITHMETIC,
    _truncated_divide,
    {"integer": "div_{t}({0}, {1})", "complex": "div_{t}({0}, {1})", "float": "{0} / {1}"},
    partials(lambda g, z, x, y: g / y, lambda g, z, x, y: -(g * z) / y),
    _divide_transpose,
    flops=4,
    doc="{0} / {1}. Integers truncate toward zero; a division by zero has all bits set.",
    lax="div",
    example=("{f}(hnp.array([7, -7]), hnp.array([2, 2]))", "Array([ 3, -3], dtype=int32)"),
)
hlo_binary(
    "remainder",
    ("signed", "unsigned", "float"),
    _remainder,
    "rem_{t}({0}, {1})",
    partials(
        lambda g, z, x, y: g,
        # x rem y = x - trunc(x / y) y
        lambda g, z, x, y: -g * ((x / y).op("sign") * (x / y).op("abs").op("floor")),
    ),
    flops=10,
    doc="The remainder of {0} / {1} with the sign of {0}.",
    lax="rem",
    example=("{f}(hnp.array([7, -7]), hnp.array([3, 3]))", "Array([ 1, -1], dtype=int32)"),
)
hlo_binary(
    "power",
    ARITHMETIC,
    _power,
    "pow_{t}({0}, {1})",
    partials(
        # y x^(y-1); for y = 0 the derivative is 0 even at x = 0
        lambda g, z, x, y: g * y.compare("EQ", 0).where(x.like(0), y * x.op("power", y - 1)),
        # log(x) x^y; 0 for x = 0
        lambda g, z, x, y: g * z * x.compare("EQ", 0).where(x.like(1), x).op("log"),
    ),
    flops=40,
    transcendental=True,
    doc="{0} to the power {1}, of equal dtypes.",
    lax="pow",
    example=("{f}(hnp.array([2.0, 4.0]), hnp.array([3.0, 0.5]))", "Array([8., 2.], dtype=float32)"),
    ulp=(1.92, 0.62),
)


def _extreme(name: str, lax: str, function, joined: str, farthest, doc: str, printed: str) -> None:
    """Declares maximum or minimum.

    farthest: dtype -> its neutral element. printed: the example's output.
    """
    hlo_binary(
        name,
        ("pred", *ARITHMETIC),
        function,
        {"pred": joined, "any": lax + "_{t}({0}, {1})"},
        partials(lambda g, z, x, y: _shared(g, x, y, z), lambda g, z, x, y: _shared(g, y, x, z)),
        commutative=True,
        associative=True,
        idempotent=True,
        identity=farthest,
        doc=doc,
        lax=lax,
        example=("{f}(hnp.array([1.0, 5.0]), hnp.array([3.0, 2.0]))", printed),
    )


def _shared(g, x, other, extreme):
    """g by the derivative of max or min with respect to x: 1 where x is the extremum, 0.5 at ties, else 0. Selected,
    not multiplied: where x is not the extremum, an infinite g counts as little as any other."""
    both = other.compare("EQ", extreme).where(x.like(0.5), x.like(1))
    return x.compare("EQ", extreme).where(g * both, g.like(0))


def _lowest(dtype):
    if kind(dtype) in ("float", "complex"):
        return -np.inf
    return False if kind(dtype) == "pred" else np.iinfo(dtype).min


def _highest(dtype):
    if kind(dtype) in ("float", "complex"):
        return np.inf
    return True if kind(dtype) == "pred" else np.iinfo(dtype).max


_extreme(
    "maximum",
    "max",
    np.maximum,
    "{0} | {1}",
    _lowest,
    "The larger of {0} and {1}; NaN where one is NaN.",
    "Array([3., 5.], dtype=float32)",
)
_extreme(
    "minimum",
    "min",
    np.minimum,
    "{0} & {1}",
    _highest,
    "The smaller of {0} and {1}; NaN where one is NaN.",
    "Array([1., 2.], dtype=float32)",
)


def _negate_transpose(build, instruction, cotangent, operands):
    return [-cotangent]


hlo_unary(
    "negate",
    ARITHMETIC,
    np.negative,
    {"integer": "{r}(-{0})", "any": "-{0}"},
    partials(lambda g, y, x: -g),
    _negate_transpose,
    involution=True,
    doc="-{0}.",
    lax="neg",
    example=("{f}(hnp.array([1.5, -2.0]))", "Array([-1.5,  2. ], dtype=float32)"),
    numpy="negative",
)
hlo_unary(
    "abs",
    ARITHMETIC,
    np.abs,
    "abs_{t}({0})",
    partials(
        lambda g, y, x: (
            # Re(g conj(x)) / |x| for complex x, 0 at 0
            (g * conjugate(x)).op("real") / y.compare("EQ", 0).where(y.like(1), y)
            if x.dtype in COMPLEX
            else x.compare("GE", 0).where(g, -g)  # at 0 the derivative from above, as in JAX
        )
    ),
    result=to_real,
    doc="The absolute value; real for complex {0}.",
    lax="abs",
    example=("{f}(hnp.array([-1.5, 2.0]))", "Array([1.5, 2. ], dtype=float32)"),
)
hlo_unary(
    "sign",
    ARITHMETIC,
    _sign,
    "sign_{t}({0})",
    lambda build, instruction, primals, tangents: (
        _direction_jvp(primals[0], build.primal, tangents[0]) if instruction.dtype in COMPLEX else None
    ),
    doc="-1, 0 or 1; {0} / |{0}| for complex {0}; NaN for NaN.",
    lax="sign",
    example=("{f}(hnp.array([-2.5, 0.0, 3.0]))", "Array([-1.,  0.,  1.], dtype=float32)"),
)


def _direction_jvp(x, y, g):
    """The tangent of y = x / |x|: the component of g orthogonal to y, over |x|; 0 at 0."""
    size = x.op("abs")
    along = (g * conjugate(y)).op("real")
    across = g - y * along.op("complex", along.like(0))
    nonzero = size.compare("EQ", 0).where(size.like(1), size)
    return across / nonzero.op("complex", nonzero.like(0))
