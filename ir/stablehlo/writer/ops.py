"""The StableHLO form of each op of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.ir.build import Builder
from hloom.ir.stablehlo.assembly.attributes import Array, Dense, Dialect, Number, Symbol
from hloom.ir.stablehlo.assembly.region_forms import renamed
from hloom.ir.stablehlo.types import Tensor, shape_type
from hloom.ir.stablehlo.writer.module import (
    GATHERED,
    dense,
    emits,
    enumeration,
    fixed,
    flat,
    integer,
    integers,
    nested,
    numbers,
    place_numbers,
    types_of,
)
from hloom.ir.types import DTYPES, FLOATS, INEXACT, PRED, UNSIGNED, Shape


@emits("constant")
def _constant(body, instruction, operands):
    lead = "cst" if instruction.dtype in INEXACT else "c"
    value = dense(instruction["value"])
    return body.add("stablehlo.constant", [], [], types_of(instruction.shape), {"value": value}, lead=lead)[0]


@emits("copy")
def _copy(body, instruction, operands):
    return operands[0]


@emits("tuple")
def _tuple(body, instruction, operands):
    return list(operands)


@emits("get-tuple-element")
def _element(body, instruction, operands):
    return operands[0][instruction["index"]]


@emits("optimization-barrier")
def _barrier(body, instruction, operands):
    if not any(flat(o) for o in operands):
        return nested(instruction.shape, iter(()))
    return body.simple("stablehlo.optimization_barrier", instruction, operands)


@emits("compare")
def _compare(body, instruction, operands):
    dtype = instruction.operands[0].dtype
    kind = "FLOAT" if dtype in INEXACT else "UNSIGNED" if dtype in UNSIGNED or dtype == PRED else "SIGNED"
    kind = instruction.attributes.get("type", kind)
    return body.simple(
        "stablehlo.compare", instruction, operands,
        comparison_direction=enumeration("comparison_direction", instruction["direction"]),
        compare_type=enumeration("comparison_type", kind),
    )  # fmt: skip


@emits("reduce-precision")
def _reduce_precision(body, instruction, operands):
    a = instruction.attributes
    return body.simple(
        "stablehlo.reduce_precision", instruction, operands,
        exponent_bits=Number(str(a["exponent_bits"]), "i32"), mantissa_bits=Number(str(a["mantissa_bits"]), "i32"),
    )  # fmt: skip


# --- moving elements ----------------------------------------------------------------------------------------------


# opcode -> (StableHLO's op, the attribute, its name in StableHLO, its form there)
_RENAMED = {
    "broadcast": ("broadcast_in_dim", "dimensions", "broadcast_dimensions", integers),
    "iota": ("iota", "iota_dimension", "iota_dimension", integer),
    "transpose": ("transpose", "dimensions", "permutation", integers),
    "reverse": ("reverse", "dimensions", "dimensions", integers),
    "dynamic-slice": ("dynamic_slice", "dynamic_slice_sizes", "slice_sizes", integers),
}


@emits(*_RENAMED)
def _renamed(body, instruction, operands):
    name, attribute, written, form = _RENAMED[instruction.opcode]
    return body.simple(f"stablehlo.{name}", instruction, operands, **{written: form(instruction[attribute])})


@emits("slice")
def _slice(body, instruction, operands):
    starts, limits, strides = zip(*instruction["slice"], strict=True) if instruction["slice"] else ((), (), ())
    return body.simple(
        "stablehlo.slice", instruction, operands,
        start_indices=integers(starts), limit_indices=integers(limits), strides=integers(strides),
    )  # fmt: skip


@emits("pad")
def _pad(body, instruction, operands):
    low, high, interior = zip(*instruction["padding"], strict=True) if instruction["padding"] else ((), (), ())
    return body.simple(
        "stablehlo.pad", instruction, operands,
        edge_padding_low=integers(low), edge_padding_high=integers(high), interior_padding=integers(interior),
    )  # fmt: skip


@emits("concatenate")
def _concatenate(body, instruction, operands):
    (dimension,) = instruction["dimensions"]
    return body.simple("stablehlo.concatenate", instruction, operands, dimension=integer(dimension))


@emits("gather")
def _gather(body, instruction, operands):
    a = instruction.attributes
    return body.simple(
        "stablehlo.gather", instruction, operands,
        dimension_numbers=place_numbers("stablehlo.gather", a, GATHERED), slice_sizes=integers(a["slice_sizes"]),
        indices_are_sorted=bool(a.get("indices_are_sorted", False)),
    )  # fmt: skip


# --- products, transforms -----------------------------------------------------------------------------------------


@emits("dot")
def _dot(body, instruction, operands):
    names = {
        "lhs_batching_dimensions": "lhs_batch_dims",
        "rhs_batching_dimensions": "rhs_batch_dims",
        "lhs_contracting_dimensions": "lhs_contracting_dims",
        "rhs_contracting_dimensions": "rhs_contracting_dims",
    }
    fields = {
        name: numbers(instruction.attributes[hlo]) for name, hlo in names.items() if instruction.attributes.get(hlo)
    }
    return body.simple(
        "stablehlo.dot_general", instruction, operands, dot_dimension_numbers=Dialect("stablehlo.dot", fields)
    )


def _pairs(rows) -> Dense:
    rows = list(rows)
    body = ", ".join(f"[{fixed(a)}, {fixed(b)}]" for a, b in rows)
    return Dense(f"[{body}]" if rows else "", Tensor((len(rows), 2), "i64"))


@emits("convolution")
def _convolution(body, instruction, operands):
    a = instruction.attributes
    window = a.get("window", ())
    left, rest = a["dim_labels"].split("_")
    right, out = rest.split("->")
    labels = "x".join(f"[{', '.join(part)}]" for part in (left, right)) + f"->[{', '.join(out)}]"
    attributes: dict[str, object] = {"dimension_numbers": Dialect("stablehlo.conv", None, labels)}
    if any(d.stride != 1 for d in window):
        attributes["window_strides"] = integers(d.stride for d in window)
    if any(d.low or d.high for d in window):
        attributes["padding"] = _pairs((d.low, d.high) for d in window)
    if any(d.base_dilation != 1 for d in window):
        attributes["lhs_dilation"] = integers(d.base_dilation for d in window)
    if any(d.window_dilation != 1 for d in window):
        attributes["rhs_dilation"] = integers(d.window_dilation for d in window)
    if any(d.reversed for d in window):
        attributes["window_reversal"] = Array("i1", tuple(bool(d.reversed) for d in window))
    attributes["batch_group_count"] = integer(a.get("batch_group_count") or 1)
    attributes["feature_group_count"] = integer(a.get("feature_group_count") or 1)
    return body.simple("stablehlo.convolution", instruction, operands, **attributes)


@emits("fft")
def _fft(body, instruction, operands):
    return body.simple(
        "stablehlo.fft", instruction, operands,
        fft_type=enumeration("fft_type", instruction["fft_type"]), fft_length=integers(instruction["fft_length"]),
    )  # fmt: skip


@emits("cholesky")
def _cholesky(body, instruction, operands):
    lower = bool(instruction.attributes.get("lower", False))
    return body.simple("stablehlo.cholesky", instruction, operands, lower=lower)


@emits("triangular-solve")
def _triangular_solve(body, instruction, operands):
    a = instruction.attributes
    flags = {name: bool(a.get(name, False)) for name in ("left_side", "lower", "unit_diagonal")}
    transpose = enumeration("transpose", a.get("transpose_a", "NO_TRANSPOSE"))
    return body.simple("stablehlo.triangular_solve", instruction, operands, transpose_a=transpose, **flags)


@emits("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def _batch_norm(body, instruction, operands):
    name = f"stablehlo.{instruction.opcode.replace('-', '_')}"
    epsilon = np.format_float_scientific(np.float32(instruction["epsilon"]), unique=True, trim="0")
    return body.simple(
        name, instruction, operands,
        epsilon=Number(epsilon, "f32"), feature_index=integer(instruction["feature_index"]),
    )  # fmt: skip


_ALGORITHMS = {"rng_default": "DEFAULT", "rng_three_fry": "THREE_FRY", "rng_philox": "PHILOX"}


@emits("rng-bit-generator")
def _rng_bit_generator(body, instruction, operands):
    algorithm = enumeration("rng_algorithm", _ALGORITHMS[instruction["algorithm"]])
    return body.simple("stablehlo.rng_bit_generator", instruction, operands, rng_algorithm=algorithm)


@emits("topk")
def _topk(body, instruction, operands):
    if instruction.attributes.get("largest", False):
        return body.simple("chlo.top_k", instruction, operands, k=integer(instruction["k"]))
    return _smallest(body, instruction, operands)


def _smallest(body, instruction, operands):
    """The smallest k: a stable sort of the elements with their indices, and its first k."""
    (x,) = instruction.operands
    rank = len(x.dims)
    builder = Builder("smallest")
    parameter = builder.parameter(x.shape, "x")
    places = builder.emit("iota", shape=x.shape.with_dtype(DTYPES["s32"]), iota_dimension=rank - 1)
    less = Builder("less")
    a, b, *_ = [less.parameter(Shape(d)) for d in (x.dtype, x.dtype, DTYPES["s32"], DTYPES["s32"])]
    order: dict[str, Any] = {"type": "TOTALORDER"} if x.dtype in FLOATS else {}
    comparator = less.finish(less.emit("compare", a, b, direction="LT", **order))
    pair = builder.emit("sort", parameter, places, dimensions=(rank - 1,), is_stable=True, to_apply=comparator)
    k = instruction["k"]
    cut = (*tuple((0, d, 1) for d in x.dims[:-1]), (0, k, 1))
    parts = [builder.emit("get-tuple-element", pair, index=j) for j in range(2)]
    computation = builder.finish(builder.tuple([builder.emit("slice", p, slice=cut) for p in parts]))
    body.values[parameter] = operands[0]
    return body.run(computation)


# --- ops with bodies ----------------------------------------------------------------------------------------------


@emits("reduce")
def _reduce(body, instruction, operands):
    region = body.region(instruction["to_apply"])
    dims = integers(instruction["dimensions"])
    return body.simple("stablehlo.reduce", instruction, operands, [region], dimensions=dims)


def _window(window, rank: int) -> dict:
    sizes = [d.size for d in window] if window else [1] * rank
    attributes: dict[str, object] = {"window_dimensions": integers(sizes)}
    if any(d.stride != 1 for d in window):
        attributes["window_strides"] = integers(d.stride for d in window)
    if any(d.base_dilation != 1 for d in window):
        attributes["base_dilations"] = integers(d.base_dilation for d in window)
    if any(d.window_dilation != 1 for d in window):
        attributes["window_dilations"] = integers(d.window_dilation for d in window)
    if any(d.low or d.high for d in window):
        attributes["padding"] = _pairs((d.low, d.high) for d in window)
    return attributes


@emits("reduce-window")
def _reduce_window(body, instruction, operands):
    region = body.region(instruction["to_apply"])
    window = _window(instruction.attributes.get("window", ()), len(instruction.operands[0].dims))
    return body.simple("stablehlo.reduce_window", instruction, operands, [region], **window)


@emits("select-and-scatter")
def _select_and_scatter(body, instruction, operands):
    regions = [body.region(instruction[name]) for name in ("select", "scatter")]
    window = _window(instruction.attributes.get("window", ()), len(instruction.operands[0].dims))
    return body.simple("stablehlo.select_and_scatter", instruction, operands, regions, **window)


@emits("scatter")
def _scatter(body, instruction, operands):
    a = instruction.attributes
    names = (
        "update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims "
        "scatter_dims_to_operand_dims"
    )
    return body.simple(
        "stablehlo.scatter", instruction, operands, [body.region(a["to_apply"])],
        scatter_dimension_numbers=place_numbers("stablehlo.scatter", a, names),
        indices_are_sorted=bool(a.get("indices_are_sorted", False)),
        unique_indices=bool(a.get("unique_indices", False)),
    )  # fmt: skip


@emits("sort")
def _sort(body, instruction, operands):
    a = instruction.attributes
    return body.simple(
        "stablehlo.sort", instruction, operands, [body.region(a["to_apply"])],
        dimension=integer(a["dimensions"][0]), is_stable=bool(a.get("is_stable", False)),
    )  # fmt: skip


@emits("map")
def _map(body, instruction, operands):
    region = body.region(instruction["to_apply"])
    dims = integers(range(len(instruction.dims)))
    return body.simple("stablehlo.map", instruction, operands, [region], dimensions=dims)


@emits("while")
def _while(body, instruction, operands):
    regions = [body.region(instruction[name]) for name in ("condition", "body")]
    # The arguments of both regions share names in the pretty syntax.
    names = [name for name, _ in regions[1].arguments]
    regions[0] = renamed(regions[0], names)
    return body.simple("stablehlo.while", instruction, operands, regions)


@emits("conditional")
def _conditional(body, instruction, operands):
    selector = instruction.operands[0]
    branches = instruction["branch_computations"]
    regions = [body.region(c, [argument]) for c, argument in zip(branches, operands[1:], strict=True)]
    name = "stablehlo.if" if selector.dtype == PRED else "stablehlo.case"
    found = body.add(name, [operands[0]], [shape_type(selector.shape)], types_of(instruction.shape), {}, regions)
    return nested(instruction.shape, iter(found))


@emits("call", "fusion")
def _call(body, instruction, operands):
    callee = instruction.attributes.get("to_apply") or instruction["calls"]
    return body.simple("func.call", instruction, operands, callee=Symbol(body.emitter.name(callee)))


@emits("custom-call")
def _custom_call(body, instruction, operands):
    attributes = {"call_target_name": instruction["custom_call_target"]}
    if instruction.attributes.get("custom_call_has_side_effect", False):
        attributes["has_side_effect"] = True
    return body.simple("stablehlo.custom_call", instruction, operands, **attributes)
