"""`reduce_precision_f32(x, exponent_bits, mantissa_bits)`: the nearest value that a narrower float format has.

Rounds to nearest even; what is larger than the format's largest number becomes infinite, what is smaller than its
smallest normal number becomes a zero of the same sign. The two numbers of bits are constants in kernel text, and LLVM
folds what depends on them.
"""

from __future__ import annotations

from llvmlite import ir

from hloom.compiler.kernels.vmath.bits import FLOAT, call_overloaded, instruction


def _reduce(builder: ir.IRBuilder, x: ir.Value, exponent: ir.Value, mantissa: ir.Value) -> ir.Value:
    width, digits, bias = (32, 23, 127) if x.type == FLOAT else (64, 52, 1023)
    word = ir.IntType(width)
    constant = lambda number: ir.Constant(word, number)  # noqa: E731
    exponent, mantissa = (v if width == 64 else builder.trunc(v, word) for v in (exponent, mantissa))
    mantissa = builder.select(builder.icmp_signed("<", mantissa, constant(digits)), mantissa, constant(digits))
    drop = builder.sub(constant(digits), mantissa)
    bits = builder.bitcast(x, word)
    last = builder.and_(builder.lshr(bits, drop), constant(1))
    below_half = builder.sub(builder.shl(constant(1), builder.sub(drop, constant(1))), constant(1))
    rounded = builder.and_(builder.add(bits, builder.add(below_half, last)), builder.shl(constant(-1), drop))
    # With no digit to drop the shift above is by -1, which has no meaning.
    rounded = builder.select(builder.icmp_signed("==", drop, constant(0)), bits, rounded)
    y = builder.bitcast(rounded, x.type)
    top = builder.sub(builder.shl(constant(1), builder.sub(exponent, constant(1))), constant(1))
    digits_kept = builder.shl(builder.sub(builder.shl(constant(1), mantissa), constant(1)), drop)
    largest = builder.or_(builder.shl(builder.add(top, constant(bias)), constant(digits)), digits_kept)
    smallest = builder.shl(builder.sub(constant(bias + 1), top), constant(digits))
    narrower = builder.icmp_signed("<", exponent, constant(8 if width == 32 else 11))
    magnitude = call_overloaded(builder, "llvm.fabs", y)
    signed = lambda number: call_overloaded(builder, "llvm.copysign", ir.Constant(x.type, number), y)  # noqa: E731
    over = builder.fcmp_ordered(">", magnitude, builder.bitcast(largest, x.type))
    under = builder.fcmp_ordered("<", magnitude, builder.bitcast(smallest, x.type))
    result = builder.select(builder.and_(narrower, over), signed(float("inf")), y)
    result = builder.select(builder.and_(narrower, under), signed(0.0), result)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, result)


for _dtype in ("f32", "f64"):
    instruction(f"reduce_precision_{_dtype}", f"{_dtype} s64 s64", _dtype, _reduce, "rounding of the bit pattern")
