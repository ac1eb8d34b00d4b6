"""Integer arithmetic with HLO's answers where C has none: division by zero, overflow, large shifts, powers."""

from __future__ import annotations

from llvmlite import ir

from hloom.compiler.kernels.math.bits import BIT, call, call_overloaded, instruction
from hloom.compiler.kernels.math.registry import INTEGERS, SIGNED


def _constant(x: ir.Value, value: int) -> ir.Constant:
    return ir.Constant(x.type, value)


def _safe_divisor(builder, x, y, signed):
    """(divisor that never traps, y == 0, whether x / y overflows)."""
    zero = builder.icmp_unsigned("==", y, _constant(y, 0))
    overflow = ir.Constant(BIT, 0)
    if signed:
        lowest = builder.icmp_unsigned("==", x, _constant(x, -(1 << (x.type.width - 1))))
        overflow = builder.and_(lowest, builder.icmp_unsigned("==", y, _constant(y, -1)))
    return builder.select(builder.or_(zero, overflow), _constant(y, 1), y), zero, overflow


def _divide(signed):
    def emit(builder, x, y):
        divisor, zero, _ = _safe_divisor(builder, x, y, signed)
        quotient = builder.sdiv(x, divisor) if signed else builder.udiv(x, divisor)
        return builder.select(zero, _constant(x, -1), quotient)

    return emit


def _remainder(signed):
    def emit(builder, x, y):
        divisor, zero, _ = _safe_divisor(builder, x, y, signed)
        rest = builder.srem(x, divisor) if signed else builder.urem(x, divisor)
        return builder.select(zero, x, rest)

    return emit


def _power(signed):
    def emit(builder, base, exponent):
        """Repeated squaring; leaves as soon as no bit of the exponent is left."""
        one, zero = _constant(base, 1), _constant(base, 0)
        before = builder.block
        head = builder.append_basic_block("power.head")
        body = builder.append_basic_block("power.body")
        after = builder.append_basic_block("power.after")
        builder.branch(head)
        builder.position_at_end(head)
        result, factor, left = (builder.phi(base.type) for _ in range(3))
        builder.cbranch(builder.icmp_unsigned("!=", left, zero), body, after)
        builder.position_at_end(body)
        odd = builder.trunc(left, BIT)
        next_result = builder.mul(result, builder.select(odd, factor, one))
        next_factor = builder.mul(factor, factor)
        next_left = builder.lshr(left, one)
        builder.branch(head)
        for phi, first, later in (
            (result, one, next_result), (factor, base, next_factor), (left, exponent, next_left),
        ):  # fmt: skip
            phi.add_incoming(first, before)
            phi.add_incoming(later, body)
        builder.position_at_end(after)
        if not signed:
            return result
        minus_one = _constant(base, -1)
        unit = builder.select(builder.trunc(exponent, BIT), minus_one, one)
        unit = builder.select(builder.icmp_unsigned("==", base, minus_one), unit, zero)
        unit = builder.select(builder.icmp_unsigned("==", base, one), one, unit)
        return builder.select(builder.icmp_signed("<", exponent, zero), unit, result)

    return emit


def _in_range(builder, amount):
    return builder.icmp_unsigned("<", amount, _constant(amount, amount.type.width))


def _shift_left(builder, x, amount):
    return builder.select(_in_range(builder, amount), builder.shl(x, amount), _constant(x, 0))


def _shift_right_logical(builder, x, amount):
    return builder.select(_in_range(builder, amount), builder.lshr(x, amount), _constant(x, 0))


def _shift_right_arithmetic(builder, x, amount):
    return builder.ashr(x, builder.select(_in_range(builder, amount), amount, _constant(x, x.type.width - 1)))


def _absolute(signed):
    if not signed:
        return lambda builder, x: x
    return lambda builder, x: builder.select(builder.icmp_signed("<", x, _constant(x, 0)), builder.neg(x), x)


def _sign(signed):
    def emit(builder, x):
        nonzero = builder.zext(builder.icmp_unsigned("!=", x, _constant(x, 0)), x.type)
        return builder.or_(builder.ashr(x, _constant(x, x.type.width - 1)), nonzero) if signed else nonzero

    return emit


def extremum(stem: str, signed: bool):
    """Emitter for the larger (`max`) or smaller (`min`) of two integers."""
    name = f"llvm.{'s' if signed else 'u'}{stem}"
    return lambda builder, x, y: call_overloaded(builder, name, x, y)


def _population_count(builder, x):
    return call_overloaded(builder, "llvm.ctpop", x)


def _leading_zeros(builder, x):
    return call(builder, f"llvm.ctlz.i{x.type.width}", x.type, x, ir.Constant(BIT, 0))


for _dtype in INTEGERS:
    _signed = _dtype in SIGNED
    _two = f"{_dtype} {_dtype}"
    instruction(f"div_{_dtype}", _two, _dtype, _divide(_signed), "toward zero; x / 0 is all ones, lowest / -1 wraps")
    instruction(f"rem_{_dtype}", _two, _dtype, _remainder(_signed), "sign of x; x rem 0 is x, lowest rem -1 is 0")
    instruction(f"pow_{_dtype}", _two, _dtype, _power(_signed), "wraps; a negative power of a base but 1 or -1 is 0")
    instruction(f"shl_{_dtype}", _two, _dtype, _shift_left, "0 where the unsigned amount reaches the width")
    instruction(f"shr_logical_{_dtype}", _two, _dtype, _shift_right_logical, "0 where the amount reaches the width")
    instruction(f"shr_arithmetic_{_dtype}", _two, _dtype, _shift_right_arithmetic, "sign fill, at any amount")
    instruction(f"abs_{_dtype}", _dtype, _dtype, _absolute(_signed), "abs of the lowest value is that value")
    instruction(f"sign_{_dtype}", _dtype, _dtype, _sign(_signed), "-1, 0 or 1")
    instruction(f"max_{_dtype}", _two, _dtype, extremum("max", _signed), "the larger")
    instruction(f"min_{_dtype}", _two, _dtype, extremum("min", _signed), "the smaller")
    instruction(f"popcnt_{_dtype}", _dtype, _dtype, _population_count, "number of ones")
    instruction(f"clz_{_dtype}", _dtype, _dtype, _leading_zeros, "zeros before the first one; the width for 0")

for _dtype in ("pred", *INTEGERS):
    _two = f"{_dtype} {_dtype}"
    instruction(f"and_{_dtype}", _two, _dtype, lambda builder, x, y: builder.and_(x, y), "bitwise and")
    instruction(f"or_{_dtype}", _two, _dtype, lambda builder, x, y: builder.or_(x, y), "bitwise or")
    instruction(f"xor_{_dtype}", _two, _dtype, lambda builder, x, y: builder.xor(x, y), "bitwise exclusive or")
    instruction(f"not_{_dtype}", _dtype, _dtype, lambda builder, x: builder.not_(x), "bitwise complement")

instruction("max_pred", "pred pred", "pred", lambda builder, x, y: builder.or_(x, y), "or")
instruction("min_pred", "pred pred", "pred", lambda builder, x, y: builder.and_(x, y), "and")
