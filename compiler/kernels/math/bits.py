"""Intrinsics for single LLVM instructions: bit patterns, selection, fused multiply-add, rounding to integers.

`instruction` makes one from a short emitter. All of them are exact, or correctly rounded, and have no side effect.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hloom.compiler.kernels.math.registry import BITS, FLOATS, FUNCTIONS, INTEGERS, REGISTER, Function

HALF, FLOAT, DOUBLE, BIT = ir.HalfType(), ir.FloatType(), ir.DoubleType(), ir.IntType(1)
LLVM = {name: ir.IntType(BITS[name]) for name in ("pred", *INTEGERS)}
LLVM |= {"f16": FLOAT, "bf16": FLOAT, "f32": FLOAT, "f64": DOUBLE}

s8, s16, s32, s64 = types.int8, types.int16, types.int32, types.int64
u8, u16, u32, u64 = types.uint8, types.uint16, types.uint32, types.uint64
f32, f64, c64, c128 = types.float32, types.float64, types.complex64, types.complex128


def _intrinsic(typing: Callable) -> Callable:
    """Numba's `intrinsic`. Its types have the typing context among the parameters of a call, which has none."""
    return intrinsic(typing)


def instruction(name: str, parameters: str, result: str, emit: Callable, reference: str = "") -> Callable:
    """Enter the intrinsic `name`. `emit(builder, *values)` writes LLVM and gives the result value."""
    dtypes = tuple(parameters.split())
    signature = REGISTER[result](*(REGISTER[dtype] for dtype in dtypes))

    typed = signature, lambda context, builder, signature, values: emit(builder, *values)
    # Numba matches calls against the parameters of this function, so it can't take *arguments.
    typing = (lambda context, a: typed, lambda context, a, b: typed, lambda context, a, b, c: typed)[len(dtypes) - 1]
    typing.__name__ = typing.__qualname__ = name
    typing.__doc__ = reference
    python = _intrinsic(typing)
    FUNCTIONS[name] = Function(name, python, dtypes, result, "intrinsic", 0.0, reference)
    return python


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    """Call the LLVM function of that full name (`llvm.fma.f32`)."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def call_overloaded(builder: ir.IRBuilder, stem: str, *values: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic overloaded on the type of its first argument: `llvm.fma` becomes `llvm.fma.f32`."""
    kind = values[0].type
    suffix = f"i{kind.width}" if isinstance(kind, ir.IntType) else {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}[kind]
    return call(builder, f"{stem}.{suffix}", kind, *values)


def negated(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """-value; NVVM's LLVM IR has no fneg, and for LLVM this is the same."""
    return builder.fsub(ir.Constant(value.type, -0.0), value)


def _overloaded(stem: str) -> Callable:
    return lambda builder, *values: call_overloaded(builder, stem, *values)


# ---- one operation each, for f32 and f64


def _pair(stem: str, parameters: int, result: str, emit: Callable, reference: str) -> tuple[Callable, Callable]:
    """Enters STEM_f32 and STEM_f64. result: its dtype; "" is that of the parameters."""
    single, double = (
        instruction(f"{stem}_{dtype}", " ".join([dtype] * parameters), result or dtype, emit, reference)
        for dtype in FLOATS
    )
    return single, double


def _rounded(stem: str, name: str) -> tuple[Callable, Callable]:
    return _pair(stem, 1, "", _overloaded(name), f"{name}: correctly rounded")


def _exact(stem: str, name: str) -> tuple[Callable, Callable]:
    return _pair(stem, 2, "", _overloaded(name), f"{name}: exact")


sqrt_f32, sqrt_f64 = _rounded("sqrt", "llvm.sqrt")
floor_f32, floor_f64 = _rounded("floor", "llvm.floor")
ceil_f32, ceil_f64 = _rounded("ceil", "llvm.ceil")
trunc_f32, trunc_f64 = _rounded("trunc", "llvm.trunc")
round_even_f32, round_even_f64 = _rounded("round_even", "llvm.roundeven")
round_afz_f32, round_afz_f64 = _rounded("round_afz", "llvm.round")
abs_f32, abs_f64 = _rounded("abs", "llvm.fabs")
copysign_f32, copysign_f64 = _exact("copysign", "llvm.copysign")
max_f32, max_f64 = _exact("max", "llvm.maximum")
min_f32, min_f64 = _exact("min", "llvm.minimum")
fma_f32, fma_f64 = _pair("fma", 3, "", _overloaded("llvm.fma"), "rounded once")


def _is_finite(builder, x):
    width = ir.IntType(32 if x.type == FLOAT else 64)
    exponent = ir.Constant(width, 0x7F800000 if width.width == 32 else 0x7FF0000000000000)
    bits = builder.and_(builder.bitcast(x, width), exponent)
    return builder.icmp_unsigned("!=", bits, exponent)


is_finite_f32, is_finite_f64 = _pair("is_finite", 1, "pred", _is_finite, "exponent field below its maximum")


# ---- reading a bit pattern as another dtype


def half_bits(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """The 16 bits of the f16 value that a float32 register holds."""
    return builder.bitcast(builder.fptrunc(x, HALF), ir.IntType(16))


def half_value(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """The float32 register for 16 bits of an f16."""
    return builder.fpext(builder.bitcast(bits, HALF), FLOAT)


def bfloat_bits(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """The 16 bits of the nearest bf16, ties to even; a NaN stays a NaN and becomes quiet."""
    word = ir.IntType(32)
    bits = builder.bitcast(x, word)
    last = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
    rounded = builder.add(bits, builder.add(last, ir.Constant(word, 0x7FFF)))
    quiet = builder.or_(bits, ir.Constant(word, 0x400000))
    chosen = builder.select(builder.fcmp_unordered("uno", x, x), quiet, rounded)
    return builder.trunc(builder.lshr(chosen, ir.Constant(word, 16)), ir.IntType(16))


def bfloat_value(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """The float32 register for 16 bits of a bf16."""
    word = ir.IntType(32)
    return builder.bitcast(builder.shl(builder.zext(bits, word), ir.Constant(word, 16)), FLOAT)


def to_bits(builder: ir.IRBuilder, dtype: str, x: ir.Value) -> ir.Value:
    """The storage bits of a register of `dtype`, as an LLVM integer."""
    if dtype == "f16":
        return half_bits(builder, x)
    if dtype == "bf16":
        return bfloat_bits(builder, x)
    return builder.bitcast(x, ir.IntType(BITS[dtype]))


def from_bits(builder: ir.IRBuilder, dtype: str, bits: ir.Value) -> ir.Value:
    """The register of `dtype` for its storage bits."""
    if dtype == "f16":
        return half_value(builder, bits)
    if dtype == "bf16":
        return bfloat_value(builder, bits)
    return builder.bitcast(bits, LLVM[dtype])


def _bitcast(source: str, target: str) -> Callable:
    return lambda builder, x: from_bits(builder, target, to_bits(builder, source, x))


for _source in (*INTEGERS, "f16", "bf16", "f32", "f64"):
    for _target in (*INTEGERS, "f16", "bf16", "f32", "f64"):
        if _source != _target and BITS[_source] == BITS[_target]:
            _note = "the same bits read as the other dtype; a signalling f16 NaN becomes quiet"
            instruction(f"bitcast_{_source}_{_target}", _source, _target, _bitcast(_source, _target), _note)


def _both_ways(one: str, other: str) -> tuple[Callable, Callable]:
    return FUNCTIONS[f"bitcast_{one}_{other}"].python, FUNCTIONS[f"bitcast_{other}_{one}"].python


bitcast_f16_s16, bitcast_s16_f16 = _both_ways("f16", "s16")
bitcast_bf16_s16, bitcast_s16_bf16 = _both_ways("bf16", "s16")
bitcast_f32_s32, bitcast_s32_f32 = _both_ways("f32", "s32")
bitcast_f32_u32, bitcast_u32_f32 = _both_ways("f32", "u32")
bitcast_f64_s64, bitcast_s64_f64 = _both_ways("f64", "s64")
bitcast_f64_u64, bitcast_u64_f64 = _both_ways("f64", "u64")


# ---- intrinsics whose types follow their arguments


@_intrinsic
def select(context, condition, when_true, when_false):
    """LLVM's select, so that no branch is ever formed; both values are evaluated. Types: pred, T, T."""
    signature = when_true(types.boolean, when_true, when_true)
    return signature, lambda context, builder, signature, values: builder.select(*values)


def _horner(builder, x, terms):
    *terms, result = terms
    while terms:
        result = call_overloaded(builder, "llvm.fma", result, x, terms.pop())
    return result


@_intrinsic
def polynomial(context, x, coefficients):
    """coefficients[0] + coefficients[1] * x + ..., in fused multiply-adds, even and odd powers side by side (Estrin).

    Loops of vector math wait for chains of dependent operations rather than for their number: half the chain is worth
    one more multiplication. x: f32 or f64.
    """
    if not isinstance(coefficients, types.UniTuple):
        return None

    def emit(context, builder, signature, values):
        x, constants = values
        terms = [builder.extract_value(constants, i) for i in range(coefficients.count)]
        if x.type == FLOAT:
            terms = [builder.fptrunc(term, FLOAT) for term in terms]
        if len(terms) < 4:
            return _horner(builder, x, terms)
        square = builder.fmul(x, x)
        even, odd = _horner(builder, square, terms[0::2]), _horner(builder, square, terms[1::2])
        return call_overloaded(builder, "llvm.fma", odd, x, even)

    return x(x, coefficients), emit


@_intrinsic
def polynomial_parts(context, x, coefficients):
    """`polynomial` of f64 as high + low (real and imag of the result): Horner's rule, each rounding error kept.

    Source: Graillat, Langlois and Louvet, Compensated Horner scheme, 2005.
    """
    if not isinstance(coefficients, types.UniTuple):
        return None

    def emit(context, builder, signature, values):
        x, constants = values
        terms = [builder.extract_value(constants, i) for i in range(coefficients.count)]
        high, low = terms.pop(), ir.Constant(DOUBLE, 0.0)
        while terms:
            constant = terms.pop()
            product = builder.fmul(high, x)
            lost = call_overloaded(builder, "llvm.fma", high, x, negated(builder, product))
            high = builder.fadd(product, constant)
            step = builder.fsub(high, product)
            rest = builder.fadd(builder.fsub(product, builder.fsub(high, step)), builder.fsub(constant, step))
            low = call_overloaded(builder, "llvm.fma", low, x, builder.fadd(lost, rest))
        result = context.make_complex(builder, types.complex128)
        result.real, result.imag = high, low
        return result._getvalue()

    return c128(x, coefficients), emit


for _python in (select, polynomial, polynomial_parts):
    _name = _python.__name__
    FUNCTIONS[_name] = Function(_name, _python, (), "*", "intrinsic", 0.0, (_python.__doc__ or "").split("\n")[0])

# The C library's functions, where bits have to be those of programs that call it.
for _name in ("exp", "log1p"):
    instruction(
        f"library_{_name}_f64", "f64", "f64", lambda builder, x, name=_name: call(builder, name, DOUBLE, x),
        "the C library's",
    )  # fmt: skip
