"""`convert_T1_T2` with XLA's meaning, and rounding to f16 and bf16.

Float to integer clamps to the range of the target and turns NaN into 0; NumPy leaves both cases undefined. Integers
wrap. To pred is `x != 0`. Complex to real takes the real part. f16 and bf16 live in float32 registers.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba.extending import intrinsic

from hloom.compiler.kernels.math.bits import (
    DOUBLE,
    FLOAT,
    LLVM,
    bfloat_bits,
    bfloat_value,
    call,
    half_bits,
    half_value,
    instruction,
)
from hloom.compiler.kernels.math.registry import BITS, COMPLEX, FUNCTIONS, INTEGERS, REGISTER, SIGNED, Function


def _round_half(builder, x):
    return half_value(builder, half_bits(builder, x))


def _round_bfloat(builder, x):
    return bfloat_value(builder, bfloat_bits(builder, x))


def _double_to_half(builder, x):
    """Through float32 rounded to odd, so that the second rounding sees on which side of a tie the double lay."""
    word = ir.IntType(32)
    near = builder.fptrunc(x, FLOAT)
    back = builder.fpext(near, DOUBLE)
    bits = builder.bitcast(near, word)
    even = builder.icmp_unsigned("==", builder.and_(bits, ir.Constant(word, 1)), ir.Constant(word, 0))
    inexact = builder.and_(even, builder.fcmp_ordered("one", back, x))
    magnitude_below = builder.fcmp_ordered(
        "olt", call(builder, "llvm.fabs.f64", DOUBLE, back), call(builder, "llvm.fabs.f64", DOUBLE, x)
    )
    step = builder.select(magnitude_below, ir.Constant(word, 1), ir.Constant(word, -1))
    odd = builder.add(bits, builder.select(inexact, step, ir.Constant(word, 0)))
    return _round_half(builder, builder.bitcast(odd, FLOAT))


def _float_to_float(source: str, target: str) -> Callable:
    def emit(builder, x):
        if source == "f64" and target == "f16":
            return _double_to_half(builder, x)
        if source == "f64" and target != "f64":
            x = builder.fptrunc(x, FLOAT)  # to bf16 as XLA and ml_dtypes do: float32 first
        elif source != "f64" and target == "f64":
            return builder.fpext(x, DOUBLE)
        if target == "f16" and source != "f16":
            return _round_half(builder, x)
        if target == "bf16" and source != "bf16":
            return _round_bfloat(builder, x)
        return x

    return emit


def _clamp_to_integer(builder: ir.IRBuilder, target: str, x: ir.Value) -> ir.Value:
    """What llvm.fptosi.sat and llvm.fptoui.sat do, spelled out because those keep x86 loops scalar."""
    signed, bits = target in SIGNED, BITS[target]
    lowest, highest = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    # Both limits are powers of two or zero, so they are exact in either float width.
    below = builder.fcmp_ordered("<", x, ir.Constant(x.type, float(lowest)))
    above = builder.fcmp_ordered(">=", x, ir.Constant(x.type, float(highest + 1)))
    outside = builder.or_(builder.or_(below, above), builder.fcmp_unordered("uno", x, x))
    inside = builder.select(outside, ir.Constant(x.type, 0.0), x)
    if bits < 32:
        value = builder.trunc(builder.fptosi(inside, ir.IntType(32)), LLVM[target])
    else:
        value = builder.fptosi(inside, LLVM[target]) if signed else builder.fptoui(inside, LLVM[target])
    value = builder.select(below, ir.Constant(LLVM[target], lowest), value)
    return builder.select(above, ir.Constant(LLVM[target], highest), value)


def convert(builder: ir.IRBuilder, source: str, target: str, x: ir.Value) -> ir.Value:
    """Real `x` of dtype `source` as a register of real dtype `target`."""
    if source == target:
        return x
    integers = ("pred", *INTEGERS)
    if target == "pred":
        if source in integers:
            return builder.icmp_unsigned("!=", x, ir.Constant(x.type, 0))
        return builder.fcmp_unordered("une", x, ir.Constant(x.type, 0.0))
    if source in integers and target in integers:
        if BITS[source] == BITS[target]:
            return x
        if BITS[source] > BITS[target]:
            return builder.trunc(x, LLVM[target])
        return builder.sext(x, LLVM[target]) if source in SIGNED else builder.zext(x, LLVM[target])
    if source in integers:
        kind = DOUBLE if target == "f64" else FLOAT
        value = builder.sitofp(x, kind) if source in SIGNED else builder.uitofp(x, kind)
        return _float_to_float("f64" if target == "f64" else "f32", target)(builder, value)
    if target in integers:
        return _clamp_to_integer(builder, target, x)
    return _float_to_float(source, target)(builder, x)


def _enter_complex(source: str, target: str) -> None:
    """A conversion from or to a complex dtype."""

    def typing(context, x):
        def emit(context, builder, signature, values):
            if source in COMPLEX:
                parts = context.make_complex(builder, REGISTER[source], values[0])
                real, imaginary = parts.real, parts.imag
            else:
                real, imaginary = values[0], None
            part = {"c64": "f32", "c128": "f64"}
            source_part = part.get(source, source)
            if target == "pred":
                return builder.or_(convert(builder, source_part, "pred", real),
                                   convert(builder, source_part, "pred", imaginary))  # fmt: skip
            if target not in COMPLEX:
                return convert(builder, source_part, target, real)
            result = context.make_complex(builder, REGISTER[target])
            kind = part[target]
            result.real = convert(builder, source_part, kind, real)
            zero = ir.Constant(LLVM[kind], 0.0)
            result.imag = zero if imaginary is None else convert(builder, source_part, kind, imaginary)
            return result._getvalue()

        return REGISTER[target](REGISTER[source]), emit

    name = f"convert_{source}_{target}"
    typing.__name__ = typing.__qualname__ = name
    FUNCTIONS[name] = Function(name, intrinsic(typing), (source,), target, "intrinsic", 0.0, "part by part")


_REAL = ("pred", *INTEGERS, "f16", "bf16", "f32", "f64")
for _source in (*_REAL, *COMPLEX):
    for _target in (*_REAL, *COMPLEX):
        if _source in COMPLEX or _target in COMPLEX:
            _enter_complex(_source, _target)
        else:
            instruction(
                f"convert_{_source}_{_target}", _source, _target,
                lambda builder, x, source=_source, target=_target: convert(builder, source, target, x),
                "clamps to the range, NaN to 0" if _target in INTEGERS and _source not in INTEGERS else "nearest value",
            )  # fmt: skip

instruction("round_f16", "f32", "f32", _round_half, "nearest f16, ties to even")
instruction("round_bf16", "f32", "f32", _round_bfloat, "nearest bf16, ties to even")
