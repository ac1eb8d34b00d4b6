"""Complex numbers from their parts, their products, the larger and smaller of two, in the arithmetic of the parts."""

from __future__ import annotations

from llvmlite import ir

from hloom.compiler.kernels.math.bits import call_overloaded, instruction, negated, select
from hloom.compiler.kernels.math.registry import function


def _pair(builder, real, imaginary):
    kind = ir.LiteralStructType([real.type, imaginary.type])
    return builder.insert_value(builder.insert_value(ir.Constant(kind, ir.Undefined), real, 0), imaginary, 1)


def _product(builder, x, y):
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i; the first and the last of these products are exact: each part is
    rounded twice. NaN is not mended, as C's Annex G would have it."""
    a, b = (builder.extract_value(x, k) for k in range(2))
    c, d = (builder.extract_value(y, k) for k in range(2))
    real = call_overloaded(builder, "llvm.fma", a, c, negated(builder, builder.fmul(b, d)))
    return _pair(builder, real, call_overloaded(builder, "llvm.fma", b, c, builder.fmul(a, d)))


complex_f32 = instruction("complex_f32", "f32 f32", "c64", _pair, "a number of two parts: exact")
complex_f64 = instruction("complex_f64", "f64 f64", "c128", _pair, "a number of two parts: exact")
for _dtype in ("c64", "c128"):
    instruction(f"mul_{_dtype}", f"{_dtype} {_dtype}", _dtype, _product, "two products, two fused multiply-adds")


# Ordered by the real part, then by the imaginary part; the first NaN wins.


@function("c128 c128", "c128")
def max_c128(x, y):
    """The later of two in dictionary order: exact."""
    ordered = (y.real == y.real) & (y.imag == y.imag)
    first = ((x.real > y.real) & ordered) | ((x.real == y.real) & (x.imag >= y.imag))
    first = first | (x.real != x.real) | (x.imag != x.imag)
    return complex(select(first, x.real, y.real), select(first, x.imag, y.imag))


@function("c128 c128", "c128")
def min_c128(x, y):
    """The earlier of two in dictionary order: exact."""
    ordered = (y.real == y.real) & (y.imag == y.imag)
    first = ((x.real < y.real) & ordered) | ((x.real == y.real) & (x.imag <= y.imag))
    first = first | (x.real != x.real) | (x.imag != x.imag)
    return complex(select(first, x.real, y.real), select(first, x.imag, y.imag))
