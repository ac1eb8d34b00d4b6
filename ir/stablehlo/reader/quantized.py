"""Quantized values: arrays of integers q that represent scale * (q - zero point).

StableHLO defines ops on quantized operands through real numbers: dequantize the operands, compute, quantize
the result (StableHLO specification, "Quantization computations"). Data movement ops move the integers.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from hloom.ir.build import Value
from hloom.ir.errors import DTypeError
from hloom.ir.stablehlo.reader.registry import CONVERTERS, Item, converts
from hloom.ir.stablehlo.syntax import Operation
from hloom.ir.stablehlo.types import Quantized, Tensor
from hloom.ir.types import DTYPES, HLO_NAME, Shape

# Ops that are independent of element values, and those whose bodies are converted for quantized scalars.
_ON_STORAGE = {
    f"stablehlo.{name}"
    for name in """all_gather all_to_all broadcast broadcast_in_dim case collective_broadcast
    collective_permute composite concatenate constant custom_call dynamic_broadcast_in_dim
    dynamic_gather dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice gather
    get_dimension_size get_tuple_element if map optimization_barrier pad real_dynamic_slice
    reduce reduce_scatter reduce_window reshape reverse scatter select select_and_scatter
    set_dimension_size slice sort transpose tuple while""".split()
} | {"func.call"}


def is_quantized(op: Operation, items) -> bool:
    return any(i.quantized for i in items) or any(
        isinstance(t, Tensor) and isinstance(t.element, Quantized) for t in op.result_types
    )


def convert_quantized(scope, op: Operation, items):
    """Converts an op that has quantized operands or results."""
    converted = CONVERTERS[op.name]
    if op.name in _ON_STORAGE or op.name.startswith(("stablehlo.uniform_", "check.")):
        return converted(scope, op, items)
    # The op on real numbers: the same, with the expressed types.
    operand_types, result_types = (tuple(map(expressed_type, types)) for types in (op.operand_types, op.result_types))
    real = dataclasses.replace(op, operand_types=operand_types, result_types=result_types)
    results = converted(scope, real, [dequantize(scope, i) if i.quantized else i for i in items])
    results = [results] if isinstance(results, Item) else results
    targets = [scope.quantized(op, k) for k in range(len(op.result_types))]
    return [r if t is None else quantize(scope, r, t) for r, t in zip(results, targets, strict=True)]


def expressed_type(type_):
    """The tensor type of the real numbers of a quantized tensor; other types unchanged."""
    if isinstance(type_, Tensor) and isinstance(type_.element, Quantized):
        return Tensor(type_.dims, type_.element.expressed, type_.encoding)
    return type_


def _along(x: Value, type_: Quantized, values, dtype) -> Value:
    """A number per element: one for all, or one for each index along the type's axis."""
    if type_.axis is None:
        return x.filled(values[0], x.shape.with_dtype(dtype))
    axis = type_.axis
    if not 0 <= axis < len(x.dims) or x.dims[axis] != len(values):
        raise DTypeError(
            f"{type_} has {len(values)} scales along dimension {axis}", repr(x.shape), "write a scale for each index"
        )
    array = Value(x.builder, x.builder.constant(np.asarray(values).astype(dtype), dtype))
    return array.broadcast(x.dims, (axis,))


def dequantize(scope, item: Item) -> Item:
    """(q - zero point) * scale, in the expressed type."""
    type_ = item.quantized
    expressed = DTYPES[type_.expressed]
    x = scope.value(item)
    # Differences of 32-bit integers can leave their range.
    wide = DTYPES["s64" if x.dtype.itemsize >= 4 else "s32"]
    if any(type_.zeros):
        difference = x.convert(wide) - _along(x, type_, type_.zeros, wide)
    else:
        difference = x
    real = difference.convert(expressed)
    return Item((real * _along(real, type_, type_.scales, expressed)).instruction)


def quantize(scope, item: Item, type_: Quantized) -> Item:
    """round(clamp(x / scale + zero point)), to the nearest and even integer."""
    x = scope.value(item)
    expressed = DTYPES[type_.expressed]
    x = x.convert(expressed)
    scaled = x.op("divide", _along(x, type_, type_.scales, expressed))
    if any(type_.zeros):
        scaled = scaled + _along(x, type_, type_.zeros, expressed)
    low, high = (np.asarray(v, np.float64).astype(expressed) for v in (type_.low, type_.high))
    clamped = scaled.like(low).op("clamp", scaled, scaled.like(high))
    return Item(clamped.op("round-nearest-even").convert(storage_dtype(type_)).instruction, type_)


def storage_dtype(type_: Quantized):
    return DTYPES[{"i": "s", "u": "u"}[type_.storage[0]] + type_.storage.lstrip("ui")]


@converts("stablehlo.uniform_quantize")
def _uniform_quantize(scope, op, items):
    (x,) = items
    target = scope.quantized(op)
    if target is None:
        raise DTypeError(
            "uniform_quantize returns quantized elements",
            str(op.result_types[0]),
            "make its result a !quant.uniform type",
        )
    if x.quantized:
        x = dequantize(scope, x)
    return quantize(scope, x, target)


@converts("stablehlo.uniform_dequantize")
def _uniform_dequantize(scope, op, items):
    (x,) = items
    if x.quantized is None:
        raise DTypeError(
            "uniform_dequantize takes quantized elements",
            HLO_NAME[x.dtype],
            "leave it out: the operand is not quantized",
        )
    return dequantize(scope, x)


__all__ = ["Shape", "convert_quantized", "dequantize", "is_quantized", "quantize"]
