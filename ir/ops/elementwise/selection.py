"""Element-wise ops that compare, choose and change types: compare, select, clamp, convert, bitcast-convert."""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.op_table import No, op
from hloom.ir.ops.batching import clamp_batch, select_batch
from hloom.ir.ops.elementwise.declare import NO_TANGENT, NOT_LINEAR
from hloom.ir.ops.rules import in_float32, require_count, require_kind, require_same, require_shape, to_pred, zero_jvp
from hloom.ir.spmd.factors import FactorRule, leading, pointwise
from hloom.ir.types import (
    BITS,
    COMPLEX,
    DTYPES,
    FLOATS,
    HLO_NAME,
    INEXACT,
    INTEGERS,
    NARROW_FLOATS,
    PRED,
    SIGNED,
    Shape,
    bit_width,
)

# --- compare ------------------------------------------------------------------------------------------------------

COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _compare_infer(operands, attributes, shape):
    require_count("compare", operands, 2)
    require_kind("compare", operands[0], ())
    require_same("compare", operands)
    direction = attributes.get("direction")
    if direction not in COMPARISONS:
        raise AttributeValueError("compare takes a direction", f"{direction!r}", f"one of {', '.join(COMPARISONS)}")
    if operands[0].dtype in COMPLEX and direction not in ("EQ", "NE"):
        raise DTypeError(
            f"compare {direction} takes ordered elements",
            f"{operands[0]!r}",
            "compare real parts or absolute values",
        )
    order = attributes.get("type")
    if order is not None and (order != "TOTALORDER" or operands[0].dtype not in FLOATS):
        raise AttributeValueError(
            "compare's type is TOTALORDER, for floats, or left out", f"{order} of {operands[0]!r}", "leave it out"
        )
    return operands[0].with_dtype(to_pred(None))


OTHER_SIGNS = frozenset((DTYPES["f4e2m1fn"], DTYPES["f8e8m0fnu"]))  # the sign is not the top bit of a byte


def total_order(x: np.ndarray) -> np.ndarray:
    """Integers in the total order of floats (IEEE 754-2019, 5.10): -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    if x.dtype in OTHER_SIGNS:
        x = x.astype(np.float32)
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").reshape(x.shape)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _compare_reference(x, y, shape, direction, type=None):
    if type == "TOTALORDER":
        x, y = total_order(np.asarray(x)), total_order(np.asarray(y))
    with np.errstate(all="ignore"):
        return np.asarray(_COMPARE[direction](x, y))


def _compare_code(operands, shape, attributes, a):
    if "type" in attributes:
        # Narrow floats are held in float32 registers, where their total order is the same.
        name, bits = ("f64", 64) if operands[0].dtype == DTYPES["f64"] else ("f32", 32)
        top = (1 << (bits - 1)) - 1
        keys = [f"bitcast_{name}_s{bits}({x})" for x in a]
        a = [f"({key} ^ (({key} >> s{bits}({bits - 1})) & s{bits}({top})))" for key in keys]
    return f"{a[0]} {COMPARISONS[attributes['direction']]} {a[1]}"


op(
    "compare",
    family="elementwise",
    infer=_compare_infer,
    reference=_compare_reference,
    code=_compare_code,
    jvp=zero_jvp,
    transpose=NO_TANGENT,
    attributes={"direction": "enum", "type": "enum?"},
    dialects="hlo stablehlo",
)

# --- select and clamp ---------------------------------------------------------------------------------------------


def _select_infer(operands, attributes, shape):
    require_count("select", operands, 3)
    condition, on_true, on_false = operands
    require_kind("select", condition, ("pred",))
    require_same("select", [on_true, on_false])
    if condition.dims not in ((), on_true.dims):
        raise ShapeError(
            "select takes a condition that is a scalar or of its operands' shape",
            f"condition {condition!r}, operands {on_true!r}",
            "broadcast the condition",
        )
    return on_true


def _select_reference(condition, x, y, shape):
    return np.where(condition, x, y).astype(shape.dtype, copy=False)


def _select_jvp(build, instruction, primals, tangents):
    _, on_true, on_false = tangents
    condition = primals[0]
    if on_true is None and on_false is None:
        return None
    some = on_true or on_false
    on_true = some.like(0) if on_true is None else on_true
    on_false = some.like(0) if on_false is None else on_false
    return condition.where(on_true, on_false)


def _select_transpose(build, instruction, cotangent, operands):
    condition, on_true, on_false = operands
    zero = cotangent.like(0)
    return [
        None,
        condition.where(cotangent, zero) if on_true is None else None,
        condition.where(zero, cotangent) if on_false is None else None,
    ]


op(
    "select",
    family="elementwise",
    infer=_select_infer,
    reference=_select_reference,
    code=lambda operands, shape, attributes, a: f"{a[1]} if {a[0]} else {a[2]}",
    jvp=_select_jvp,
    transpose=_select_transpose,
    batch=select_batch,
    dialects="hlo stablehlo",
)


def _clamp_infer(operands, attributes, shape):
    require_count("clamp", operands, 3)
    low, operand, high = operands
    require_kind("clamp", operand, ("signed", "unsigned", "float", "pred"))
    for bound in (low, high):
        require_kind("clamp", bound, ())
        if bound.dtype != operand.dtype or bound.dims not in ((), operand.dims):
            raise ShapeError(
                "clamp takes bounds that are scalars or of the operand's shape, with its dtype",
                f"bounds {low!r} and {high!r}, operand {operand!r}",
                "broadcast or convert the bounds",
            )
    return operand


def _clamp_jvp(build, instruction, primals, tangents):
    low, x, high = primals
    result = build.primal

    def full(value):
        return value if value.dims == result.dims else value.broadcast(result.dims, ())

    low, high = full(low), full(high)
    t_low, t_x, t_high = (None if t is None else full(t) for t in tangents)
    # 0 at a bound, as in JAX.
    below, above = low.compare("GT", x).op("and", low.compare("LT", high)), high.compare("LT", x)
    inside = x.compare("GT", low).op("and", x.compare("LT", high))
    total = None
    for tangent, where in ((t_low, below), (t_x, inside), (t_high, above)):
        if tangent is not None:
            term = where.where(tangent, tangent.like(0))
            total = term if total is None else total + term
    return total


def _clamp_reference(low, x, high, shape):
    with np.errstate(all="ignore"):
        if x.dtype == PRED or x.dtype in NARROW_FLOATS:
            return np.minimum(np.maximum(x, low), high).astype(shape.dtype, copy=False)
        return x.clip(low, high).astype(shape.dtype, copy=False)


op(
    "clamp",
    family="elementwise",
    infer=_clamp_infer,
    reference=_clamp_reference,
    code=lambda operands, shape, attributes, a: "min_{0}(max_{0}({1}, {2}), {3})".format(
        HLO_NAME[DTYPES["f32"] if shape.dtype in NARROW_FLOATS else shape.dtype], a[1], a[0], a[2]
    ),
    jvp=_clamp_jvp,
    transpose=NOT_LINEAR,
    batch=clamp_batch,
    flops=2,
    dialects="hlo stablehlo",
)

# --- types --------------------------------------------------------------------------------------------------------


def convert_array(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """XLA's conversion: float to integer truncates and clamps, NaN becomes 0;
    complex to real drops the imaginary part."""
    with np.errstate(all="ignore"):
        if x.dtype in COMPLEX and dtype not in COMPLEX:
            x = x.real if dtype != PRED else x != 0
        if x.dtype in INEXACT and dtype.kind in "iu":
            x = x.astype(np.float64)
            info = np.iinfo(dtype)
            inside = np.clip(np.where(np.isnan(x), 0, np.trunc(x)), float(info.min), float(info.max))
            # float(info.max) of 64-bit integers rounds up to a value that does not fit.
            top = inside >= float(info.max)
            return np.where(top, info.max, np.where(top, 0, inside).astype(dtype)).astype(dtype)
        if x.dtype in BITS and dtype in BITS and x.dtype in INTEGERS and dtype in INTEGERS:
            x = x.astype(np.int8)  # ml_dtypes has no conversion between these
        return x.astype(dtype)


def _convert_infer(operands, attributes, shape):
    require_count("convert", operands, 1)
    require_kind("convert", operands[0], ())
    require_shape("convert", shape)
    if shape.dims != operands[0].dims:
        raise ShapeError("convert keeps the shape", f"from {operands[0]!r} to {shape!r}", "reshape separately")
    return shape


def _convert_code(operands, shape, attributes, a):
    """f16 and bf16 values live in float32 registers, so converting to them rounds and converting from them is free."""
    source, target = operands[0].dtype, shape.dtype
    computed = DTYPES["f32"] if source in NARROW_FLOATS else source
    if target in NARROW_FLOATS:
        text = a[0] if computed == DTYPES["f32"] else f"convert_{HLO_NAME[computed]}_f32({a[0]})"
        return text if source == target else f"round_{HLO_NAME[target]}({text})"
    return a[0] if computed == target else f"convert_{HLO_NAME[computed]}_{HLO_NAME[target]}({a[0]})"


def _convert_jvp(build, instruction, primals, tangents):
    return tangents[0].convert(instruction.dtype) if instruction.dtype in INEXACT else None


def _convert_transpose(build, instruction, cotangent, operands):
    target = instruction.operands[0].dtype
    if cotangent.dtype in COMPLEX and target not in COMPLEX:
        return [cotangent.op("real").convert(target)]
    return [cotangent.convert(target)]


op(
    "convert",
    family="elementwise",
    infer=_convert_infer,
    reference=lambda x, shape: convert_array(x, shape.dtype),
    code=_convert_code,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    shaped=True,
    dialects="hlo stablehlo",
)


def _bitcast_infer(operands, attributes, shape):
    require_count("bitcast-convert", operands, 1)
    operand = operands[0]
    require_kind("bitcast-convert", operand, ())
    require_shape("bitcast-convert", shape)
    old, new = bit_width(operand.dtype), bit_width(shape.dtype)
    if PRED in (operand.dtype, shape.dtype) and operand.dtype != shape.dtype:
        raise DTypeError("bitcast-convert takes numbers", f"from {operand!r} to {shape!r}", "use convert for pred")
    if old == new:
        expected = operand.dims
    elif old > new:
        expected = (*operand.dims, old // new)
    else:
        expected = operand.dims[:-1] if operand.dims and operand.dims[-1] == new // old else None
    if shape.dims != expected:
        raise ShapeError(
            "bitcast-convert keeps the bits: the last dimension holds the parts of a wider element",
            f"from {operand!r} to {shape!r}",
            f"request the shape {expected}" if expected is not None else f"a last dimension of {new // old}",
        )
    return shape


def _bitcast(x: np.ndarray, shape: Shape) -> np.ndarray:
    """Elements with fewer than 8 bits are in the low bits of their byte."""
    old, new = bit_width(x.dtype), bit_width(shape.dtype)
    x = np.ascontiguousarray(x).reshape(-1)
    if old == new or min(old, new) >= 8:
        return x.view(shape.dtype).reshape(shape.dims)
    if old < 8:
        shifts = old * np.arange(8 // old, dtype=np.uint8)
        parts = (x.view(np.uint8) & ((1 << old) - 1)).reshape(-1, 8 // old) if new >= 8 else None
        if parts is not None:
            return np.bitwise_or.reduce(parts << shifts, axis=1).view(shape.dtype).reshape(shape.dims)
        whole = _bitcast(x, Shape(DTYPES["u8"], (x.size * old // 8,)))
        return _bitcast(whole, shape)
    shifts = new * np.arange(8 // new, dtype=np.uint8)
    parts = (x.view(np.uint8)[:, None] >> shifts) & ((1 << new) - 1)
    if shape.dtype in SIGNED:
        parts = (parts.astype(np.int8) << (8 - new)) >> (8 - new)
    return parts.astype(np.uint8).view(shape.dtype).reshape(shape.dims)


def _bitcast_code(operands, shape, attributes, a):
    source, target = operands[0].dtype, shape.dtype
    return a[0] if source == target else f"bitcast_{HLO_NAME[source]}_{HLO_NAME[target]}({a[0]})"


def _bitcast_factors(instruction) -> FactorRule:
    operand, result = instruction.operands[0].shape, instruction.shape
    if operand.dims == result.dims:
        return pointwise(instruction)
    return leading(instruction, min(operand.rank, result.rank))


op(
    "bitcast-convert",
    family="elementwise",
    infer=_bitcast_infer,
    reference=_bitcast,
    code=_bitcast_code,
    jvp=zero_jvp,
    transpose=No("the bits of a number are not a linear function of it"),
    factors=_bitcast_factors,
    shaped=True,
    dialects="hlo stablehlo",
)


def _reduce_precision(x, exponent_bits, mantissa_bits):
    """Round to nearest even to `mantissa_bits`, then overflow to infinity and flush to zero outside the exponents."""
    bits_type: type[np.uint32] | type[np.uint64]
    if x.dtype == np.float64:
        bits_type, mantissa, exponent = np.uint64, 52, 11
    else:
        bits_type, mantissa, exponent = np.uint32, 23, 8
    bits = x.view(bits_type)
    if mantissa_bits < mantissa:
        drop = mantissa - mantissa_bits
        least = (bits >> bits_type(drop)) & bits_type(1)
        bits = (bits + (bits_type((1 << (drop - 1)) - 1) + least)) & bits_type(
            ~((1 << drop) - 1) & ((1 << (8 * x.itemsize)) - 1)
        )
    y = bits.view(x.dtype)
    if exponent_bits < exponent:
        top = (1 << (exponent_bits - 1)) - 1
        largest = np.ldexp(2.0 - 2.0**-mantissa_bits, top)
        smallest = np.ldexp(1.0, 1 - top)
        y = np.where(np.abs(y) > largest, np.copysign(np.inf, y), y)
        y = np.where(np.abs(y) < smallest, np.copysign(0.0, y), y)
    return np.where(np.isnan(x), x, y)


def _reduce_precision_code(operands, shape, attributes, a):
    name = "f64" if operands[0].dtype == DTYPES["f64"] else "f32"
    return f"reduce_precision_{name}({a[0]}, {attributes['exponent_bits']}, {attributes['mantissa_bits']})"


def _reduce_precision_infer(operands, attributes, shape):
    require_count("reduce-precision", operands, 1)
    require_kind("reduce-precision", operands[0], ("float",))
    if attributes.get("exponent_bits", 0) < 1 or attributes.get("mantissa_bits", -1) < 0:
        raise AttributeValueError(
            "reduce-precision takes exponent_bits >= 1 and mantissa_bits >= 0", f"{attributes}", "pass both as integers"
        )
    return operands[0]


op(
    "reduce-precision",
    family="elementwise",
    infer=_reduce_precision_infer,
    reference=in_float32(_reduce_precision),
    code=_reduce_precision_code,
    jvp=lambda build, instruction, primals, tangents: tangents[0].op("reduce-precision", **instruction.attributes),
    transpose=lambda build, instruction, cotangent, operands: [
        cotangent.op("reduce-precision", **instruction.attributes)
    ],
    attributes={"exponent_bits": "int", "mantissa_bits": "int"},
    flops=6,
    dialects="hlo",
)
