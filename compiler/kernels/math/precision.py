"""`reduce_precision_f32(x, exponent_bits, mantissa_bits)`: the nearest value that a narrower float format has.

Rounds to nearest even; what is larger than the format's largest number becomes infinite, what is smaller than its
smallest normal number becomes a zero of the same sign. The two numbers of bits are constants in kernel text, and LLVM
folds what depends on them.
"""

from __future__ import annotations

from llvmlite import ir

from hloom.compiler.kernels.math.bits import FLOAT, instruction


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
    top = builder.sub(builder.shl(constant(1), builder.sub(exponent, constant(1))), constant(1))
    digits_kept = builder.shl(builder.sub(builder.shl(constant(1), mantissa), constant(1)), drop)
    largest = builder.or_(builder.shl(builder.add(top, constant(bias)), constant(digits)), digits_kept)
    smallest = builder.shl(builder.sub(constant(bias + 1), top), constant(digits))
    narrower = builder.icmp_signed("<", exponent, constant(8 if width == 32 else 11))
    # Patterns of numbers without a sign are ordered as the numbers are.
    sign = builder.and_(rounded, constant(-1 << (width - 1)))
    magnitude = builder.xor(rounded, sign)
    infinity = builder.or_(sign, constant((2 * bias + 1) << digits))
    over = builder.and_(narrower, builder.icmp_unsigned(">", magnitude, largest))
    under = builder.and_(narrower, builder.icmp_unsigned("<", magnitude, smallest))
    result = builder.bitcast(builder.select(over, infinity, builder.select(under, sign, rounded)), x.type)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, result)


for _dtype in ("f32", "f64"):
    instruction(f"reduce_precision_{_dtype}", f"{_dtype} s64 s64", _dtype, _reduce, "rounding of the bit pattern")
