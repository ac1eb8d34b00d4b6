"""The names of the kernel dialect as intrinsics of Numba's CUDA target. Importing this module needs the extra `cuda`.

Intrinsics, because a call of a device function asks for the current device while compiling, and there may be none. Most
of them run the emitter that the CPU has; libdevice gives the real transcendental functions, in their precise forms.
"""

from __future__ import annotations

import functools
import inspect
import types as python_types

from llvmlite import ir
from numba import cuda
from numba.core import cgutils, types
from numba.cuda.extending import intrinsic

from hloom.compiler.kernels.math import CASTS, FUNCTIONS, callees
from hloom.compiler.kernels.math.bits import DOUBLE, FLOAT, HALF, LLVM, to_bits
from hloom.compiler.kernels.math.memory import load
from hloom.compiler.kernels.math.registry import BITS, COMPLEX, REGISTER, SIGNED
from hloom.compiler.targets.cuda.codegen import tensor_intrinsics
from hloom.compiler.targets.cuda.codegen.names import meaning, split

_WORD = ir.IntType(32)


def _intrinsic(name: str, count: int, typing):
    """An intrinsic of `count` parameters; Numba reads their number from the Python signature."""
    parameters = ", ".join("abcdef"[:count])
    scope = {"typing": typing}
    exec(f"def {name}(context, {parameters}): return typing(context, {parameters})", scope)
    return intrinsic(scope[name])


def _typed(name: str, emit):
    """The intrinsic for a name with the types that the table gives it; emit(context, builder, *values)."""
    entry = FUNCTIONS[name]
    signature = REGISTER[entry.result](*(REGISTER[dtype] for dtype in entry.parameters))
    lower = lambda context, builder, signature, values: emit(context, builder, *values)  # noqa: E731
    return _intrinsic(name, len(entry.parameters), lambda context, *arguments: (signature, lower))


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def _libdevice(name: str, function: str):
    result = LLVM[FUNCTIONS[name].result]
    return _typed(name, lambda context, builder, *values: _call(builder, function, result, *values))


def _shared(name: str):
    """What the CPU's intrinsic emits."""
    definition = FUNCTIONS[name].python._defn  # type: ignore[attr-defined]  # of Numba's intrinsics
    return _intrinsic(name, len(inspect.signature(definition).parameters) - 1, definition)


def _composed(name: str):
    """The CPU's plain function, compiled into the kernel with the CUDA meanings of the names that it calls."""
    entry = FUNCTIONS[name]
    scope = dict(entry.python.__globals__) | {used: _resolved(used) for used in callees(name)}
    function = python_types.FunctionType(entry.python.__code__, scope, name)
    signature = REGISTER[entry.result](*(REGISTER[dtype] for dtype in entry.parameters))

    def lower(context, builder, signature, values):
        return context.compile_internal(builder, function, signature, values)

    return _intrinsic(name, len(entry.parameters), lambda context, *arguments: (signature, lower))


# --- written here -------------------------------------------------------------------------------------------------


def _extremum(stem: str, dtype: str):
    largest = stem.endswith("max")

    def emit(context, builder, x, y):
        if dtype == "f32":
            instruction = f"{'max' if largest else 'min'}.NaN.f32 $0, $1, $2;"
            return builder.asm(ir.FunctionType(FLOAT, [FLOAT, FLOAT]), instruction, "=f,f,f", [x, y], False)
        if dtype != "f64":
            compare = builder.icmp_signed if dtype in SIGNED else builder.icmp_unsigned
            return builder.select(compare(">" if largest else "<", x, y), x, y)
        chosen = builder.select(builder.fcmp_ordered(">" if largest else "<", x, y), x, y)
        # Equal values may be zeros of both signs: the larger one is -0 only if both are.
        bits = [builder.bitcast(value, ir.IntType(64)) for value in (x, y)]
        zero = builder.bitcast(builder.and_(*bits) if largest else builder.or_(*bits), DOUBLE)
        chosen = builder.select(builder.fcmp_ordered("==", x, y), zero, chosen)
        return builder.select(builder.fcmp_unordered("uno", x, y), builder.fadd(x, y), chosen)

    return emit


def _arithmetic(stem: str, dtype: str):
    operation = {"sum": ("add", "fadd"), "prod": ("mul", "fmul")}[stem][dtype in ("f32", "f64")]
    return lambda context, builder, x, y: getattr(builder, operation)(x, y)


def _logistic(stem: str, dtype: str):
    suffix = "f" if dtype == "f32" else ""

    def emit(context, builder, x):
        one, zero = ir.Constant(x.type, 1.0), ir.Constant(x.type, 0.0)
        # exp of what is not positive does not overflow.
        magnitude = _call(builder, f"__nv_fabs{suffix}", x.type, x)
        power = _call(builder, f"__nv_exp{suffix}", x.type, builder.fsub(ir.Constant(x.type, -0.0), magnitude))
        above = builder.select(builder.fcmp_ordered("<", x, zero), power, one)
        return builder.fdiv(above, builder.fadd(one, power))

    return emit


def _sign(stem: str, dtype: str):
    def emit(context, builder, x):
        zero = ir.Constant(x.type, 0.0)
        positive, negative = builder.fcmp_ordered(">", x, zero), builder.fcmp_ordered("<", x, zero)
        below = builder.select(negative, ir.Constant(x.type, -1.0), x)
        return builder.select(positive, ir.Constant(x.type, 1.0), below)

    return emit


_WRITTEN = {
    "max": _extremum, "min": _extremum, "accmax": _extremum, "accmin": _extremum,
    "sum": _arithmetic, "prod": _arithmetic, "logistic": _logistic, "sign": _sign,
}  # fmt: skip


def saturate(builder: ir.IRBuilder, x: ir.Value, target: str) -> ir.Value:
    """A float as an integer of dtype `target`: toward zero, clamped, NaN as 0."""
    width, signed = BITS[target], target in SIGNED
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    kind = LLVM[target]
    # high + 1 is a power of two and has no rounding; truncation keeps everything below it in range.
    above = builder.fcmp_ordered(">=", x, ir.Constant(x.type, float(high + 1)))
    inside = builder.fcmp_ordered(">", x, ir.Constant(x.type, float(low) if low else -1.0))
    # A comparison with NaN is false, so NaN is converted from 0 as everything outside of the range is.
    convertible = builder.and_(inside, builder.not_(above))
    safe = builder.select(convertible, x, ir.Constant(x.type, 0.0))
    value = builder.fptosi(safe, kind) if signed else builder.fptoui(safe, kind)
    below = builder.fcmp_ordered("<=", x, ir.Constant(x.type, float(low) if low else -1.0))
    value = builder.select(below, ir.Constant(kind, low), value)
    return builder.select(above, ir.Constant(kind, high), value)


def _conversion(name: str):
    """From a float to an integer, or from float64 to the nearest f16."""
    _, source, target = name.split("_")

    def emit(context, builder, x):
        if source in COMPLEX:
            x = context.make_complex(builder, REGISTER[source], x).real
        if target == "f16":
            return builder.fpext(builder.fptrunc(x, HALF), FLOAT)
        return saturate(builder, x, target)

    return _typed(name, emit)


def _half_value(builder: ir.IRBuilder, dtype: str, bits: ir.Value) -> ir.Value:
    """The float32 register for 16 bits of an f16. A bit cast of an element that `copy4` loaded becomes an element of a
    vector of halves, and NVVM then stops with "Do not know how to split the result of this operator!"; an intrinsic of
    integers stays one (cvt.f32.f16)."""
    return _call(builder, "llvm.convert.from.fp16.f32", FLOAT, bits)


def _half(name: str):
    """load_f16, or bitcast_*_f16 from another dtype of 16 bits."""
    if name == "load_f16":
        return _intrinsic(name, 2, load("f16", 16, _half_value))
    source = name.split("_")[1]
    return _typed(name, lambda context, builder, x: _half_value(builder, "f16", to_bits(builder, source, x)))


def resolve(name: str):
    """The intrinsic for a name of the dialect. Raises LookupError, with the reason, for one that is missing."""
    how = meaning(name)
    stem, dtype = split(name)
    if how.how == "missing":
        raise LookupError(f"{name} is not available on CUDA: {how.what}")
    if how.how == "libdevice":
        return _libdevice(name, how.what)
    if how.how == "written" and stem in _WRITTEN:
        return _typed(name, _WRITTEN[stem](stem, dtype))
    if how.how == "written" and stem.split("_")[0] in ("load", "bitcast"):
        return _half(name)
    return {"written": _conversion, "saturate": _conversion, "shared": _shared, "composed": _composed}[how.how](name)


# --- names that only CUDA text has --------------------------------------------------------------------------------


def _shuffle_word(builder: ir.IRBuilder, word: ir.Value, distance: ir.Value) -> ir.Value:
    every, clamp = ir.Constant(_WORD, 0xFFFFFFFF), ir.Constant(_WORD, 0x1F)
    return _call(builder, "llvm.nvvm.shfl.sync.bfly.i32", _WORD, every, word, distance, clamp)


def _shuffle(builder: ir.IRBuilder, kind: types.Type | None, value: ir.Value, distance: ir.Value) -> ir.Value:
    """The register of the lane whose number differs by `distance`, in pieces of 32 bits."""
    if isinstance(kind, types.Complex):
        for k in range(2):
            part = _shuffle(builder, kind.underlying_float, builder.extract_value(value, k), distance)
            value = builder.insert_value(value, part, k)
        return value
    if isinstance(kind, types.Float):
        whole = builder.bitcast(value, ir.IntType(kind.bitwidth))
        return builder.bitcast(_shuffle(builder, None, whole, distance), value.type)
    width = value.type.width
    if width <= 32:
        word = value if width == 32 else builder.zext(value, _WORD)
        word = _shuffle_word(builder, word, distance)
        return word if width == 32 else builder.trunc(word, value.type)
    half = ir.Constant(value.type, 32)
    low = _shuffle_word(builder, builder.trunc(value, _WORD), distance)
    high = _shuffle_word(builder, builder.trunc(builder.lshr(value, half), _WORD), distance)
    wide = [builder.zext(word, value.type) for word in (low, high)]
    return builder.or_(builder.shl(wide[1], half), wide[0])


@intrinsic
def shuffle_xor(context, value, distance):
    """The value of the lane `lane ^ distance` of the warp; all 32 lanes take part."""
    kind = types.unliteral(value)

    def emit(context, builder, signature, values):
        return _shuffle(builder, kind, values[0], values[1])

    return kind(kind, types.int32), emit


@intrinsic
def ballot(context, condition):
    """A word whose bit k is the condition of lane k of the warp; all 32 lanes take part."""
    if types.unliteral(condition) != types.boolean:
        return None

    def emit(context, builder, signature, values):
        return _call(builder, "llvm.nvvm.vote.ballot.sync", _WORD, ir.Constant(_WORD, 0xFFFFFFFF), values[0])

    return types.uint32(types.boolean), emit


@intrinsic
def copy4(context, to, to_index, source, source_index):
    """Copies four elements by loads and stores of up to 16 bytes; both addresses are aligned to that."""
    if to != source or not isinstance(to, types.CPointer):
        return None

    def emit(context, builder, signature, values):
        element = context.get_data_type(to.dtype)
        size = context.get_abi_sizeof(element)
        kind = ir.VectorType(element, 4)
        target, origin = (builder.bitcast(builder.gep(values[k], [values[k + 1]]), kind.as_pointer()) for k in (0, 2))
        align = min(4 * size, 16)
        builder.store(builder.load(origin, align=align), target, align=align)
        return context.get_dummy_value()

    return types.void(to, types.int64, source, types.int64), emit


@functools.cache
def _resolved(name: str):
    return resolve(name)


def namespace(names) -> dict[str, object]:
    """Globals for a CUDA text that uses these names."""
    scope = dict(CASTS) | {
        "cuda": cuda,
        "shuffle_xor": shuffle_xor,
        "ballot": ballot,
        "copy4": copy4,
        "nan": float("nan"),
        "inf": float("inf"),
    }
    scope |= {name: tensor_intrinsics.NAMES[name] for name in names if name in tensor_intrinsics.NAMES}
    return scope | {name: _resolved(name) for name in names if name in FUNCTIONS}
