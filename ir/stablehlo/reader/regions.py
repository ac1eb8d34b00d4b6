"""Converters of ops with bodies: reductions, windows, scatter, sort, map, loops and branches; and convolution."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from hloom.ir.build import Builder
from hloom.ir.errors import UnsupportedError
from hloom.ir.stablehlo.assembly.attributes import Array
from hloom.ir.stablehlo.reader.module import Scope
from hloom.ir.stablehlo.reader.registry import Item, converts
from hloom.ir.stablehlo.values import dense_integers, fields, flag, ints, number, word
from hloom.ir.types import DTYPES, Shape, TupleShape
from hloom.ir.window import WindowDimension

S32, S64 = DTYPES["s32"], DTYPES["s64"]


def _scalars(items) -> list[Shape]:
    return [Shape(i.dtype) for i in items]


def _one_or_all(scope, item: Item) -> list[Item]:
    return scope.elements(item) if isinstance(item.shape, TupleShape) else [item]


def _combiner(scope, op, arrays, region=None):
    """The body of a reduction of these arrays: (accumulators, elements) -> accumulators, on scalars."""
    return scope.region(region or op.regions[0], _scalars(arrays) * 2)


def _same_dtype(scope, op, arrays, starts, region):
    """Accumulators may be wider than the elements: the elements are converted first."""
    if not region.arguments:
        return arrays
    result = []
    for k, (x, start) in enumerate(zip(arrays, starts, strict=True)):
        wanted = start.dtype
        type_ = region.arguments[k][1]
        if hasattr(type_, "element") and isinstance(type_.element, str):
            wanted = scope.converter.dtype(op, type_)
        result.append(x if x.dtype == wanted else scope.emit("convert", x, shape=x.shape.with_dtype(wanted)))
    return result


@converts("stablehlo.reduce")
def _reduce(scope, op, items):
    half = len(items) // 2
    arrays, starts = items[:half], items[half:]
    arrays = _same_dtype(scope, op, arrays, starts, op.regions[0])
    starts = [s if s.dtype == a.dtype else scope.emit("convert", s, shape=s.shape.with_dtype(a.dtype))
              for s, a in zip(starts, arrays, strict=True)]  # fmt: skip
    dimensions = ints(op.attributes["dimensions"])
    body = _combiner(scope, op, arrays)
    return _one_or_all(scope, scope.emit("reduce", *arrays, *starts, dimensions=dimensions, to_apply=body))


def window(rank: int, attributes, sizes, padding=None, reversal=()) -> tuple[WindowDimension, ...]:
    """The window of `window_strides`, `padding` and dilations, which are optional."""

    def of(*names):
        for name in names:
            if name in attributes:
                return ints(attributes[name])
        return (1,) * rank

    strides, base, dilation = (
        of("window_strides"),
        of("base_dilations", "lhs_dilation"),
        of("window_dilations", "rhs_dilation"),
    )
    if padding is None:
        padding = paddings(attributes.get("padding"), rank)
    reversal = tuple(reversal) or (False,) * rank
    columns = (sizes, strides, padding, base, dilation, reversal)
    if any(len(c) != rank for c in columns):
        raise ValueError(f"a window of {rank} dimensions has {rank} entries in each of its attributes")
    return tuple(
        WindowDimension(size, stride, low, high, b, w, bool(r))
        for size, stride, (low, high), b, w, r in zip(*columns, strict=True)
    )


def paddings(value, rank: int) -> tuple[tuple[int, int], ...]:
    if value is None:
        return ((0, 0),) * rank
    return tuple((int(a), int(b)) for a, b in dense_integers(value).reshape(-1, 2))


@converts("stablehlo.reduce_window")
def _reduce_window(scope, op, items):
    half = len(items) // 2
    arrays = _same_dtype(scope, op, items[:half], items[half:], op.regions[0])
    starts = items[half:]
    w = window(len(arrays[0].dims), op.attributes, ints(op.attributes["window_dimensions"]))
    body = _combiner(scope, op, arrays)
    return _one_or_all(scope, scope.emit("reduce-window", *arrays, *starts, window=w, to_apply=body))


@converts("stablehlo.select_and_scatter")
def _select_and_scatter(scope, op, items):
    x = items[0]
    rank = len(x.dims)
    sizes = ints(op.attributes["window_dimensions"]) if "window_dimensions" in op.attributes else (1,) * rank
    w = window(rank, op.attributes, sizes)
    select, scatter = (scope.region(r, _scalars([x]) * 2) for r in op.regions)
    return scope.emit("select-and-scatter", *items, window=w, select=select, scatter=scatter)


@converts("stablehlo.scatter")
def _scatter(scope, op, items):
    n = fields(op.attributes["scatter_dimension_numbers"])
    count = (len(items) - 1) // 2
    arrays = items[:count]
    attributes: dict[str, Any] = {
        name: ints(n.get(name, ()))
        for name in ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    }
    for name in ("input_batching_dims", "scatter_indices_batching_dims"):
        if name in n:
            attributes[name] = ints(n[name])
    attributes["index_vector_dim"] = number(n["index_vector_dim"]) if "index_vector_dim" in n else 0
    for name in ("indices_are_sorted", "unique_indices"):
        if flag(op.attributes.get(name, False)):
            attributes[name] = True
    body = _combiner(scope, op, arrays)
    return _one_or_all(scope, scope.emit("scatter", *items, to_apply=body, **attributes))


@converts("stablehlo.sort")
def _sort(scope, op, items):
    dimension = number(op.attributes["dimension"]) if "dimension" in op.attributes else -1
    rank = len(items[0].dims)
    attributes = {"is_stable": True} if flag(op.attributes.get("is_stable", False)) else {}
    body = scope.region(op.regions[0], [s for i in items for s in (Shape(i.dtype),) * 2])
    result = scope.emit("sort", *items, dimensions=(dimension % rank if rank else 0,), to_apply=body, **attributes)
    return _one_or_all(scope, result)


@converts("stablehlo.map")
def _map(scope, op, items):
    body = scope.region(op.regions[0], _scalars(items))
    return scope.emit("map", *items, dimensions=tuple(range(len(items[0].dims))), to_apply=body)


# --- convolution and normalization --------------------------------------------------------------------------------

_LABELS = re.compile(r"\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]")


def convolution(scope, op, x: Item, kernel: Item, padding=None, dtype=None) -> Item:
    numbers = op.attributes["dimension_numbers"]
    match = _LABELS.fullmatch(numbers.body.replace(" ", "")) if hasattr(numbers, "body") else None
    if match is None:
        raise ValueError("dimension_numbers are #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>")
    left, right, out = (part.split(",") for part in match.groups())
    labels = f"{''.join(left)}_{''.join(right)}->{''.join(out)}"
    rank = len(left) - 2
    sizes = tuple(kernel.dims[right.index(str(k))] for k in range(rank))
    reversal: tuple[bool, ...] = ()
    if "window_reversal" in op.attributes:
        found = op.attributes["window_reversal"]
        reversal = tuple(bool(v) for v in (ints(found) if not hasattr(found, "body") else dense_integers(found)))
    w = window(rank, op.attributes, sizes, padding, reversal)
    groups = {}
    for name in ("feature_group_count", "batch_group_count"):
        if name in op.attributes and number(op.attributes[name]) != 1:
            groups[name] = number(op.attributes[name])
    dtype = dtype or scope.result_dtype(op)
    x, kernel = (
        i if i.dtype == dtype else scope.emit("convert", i, shape=i.shape.with_dtype(dtype)) for i in (x, kernel)
    )
    return scope.emit("convolution", x, kernel, window=w, dim_labels=labels, **groups)


@converts("stablehlo.convolution")
def _convolution(scope, op, items):
    return convolution(scope, op, *items)


@converts("stablehlo.dynamic_conv")
def _dynamic_conv(scope, op, items):
    """JAX's exporter writes `window_strides` for too many dimensions; only the first ones are used."""
    rows = scope.integers(items[2], "padding")
    rank = len(items[0].dims) - 2
    attributes = dict(op.attributes)
    for name in ("window_strides", "lhs_dilation", "rhs_dilation"):
        if name in attributes:
            attributes[name] = Array("i64", ints(attributes[name])[:rank])
    op = dataclasses.replace(op, attributes=attributes)
    left, right = items[:2]
    return convolution(scope, op, left, right, tuple(zip(rows[::2], rows[1::2], strict=True)))


@converts("stablehlo.batch_norm_training", "stablehlo.batch_norm_inference", "stablehlo.batch_norm_grad")
def _batch_norm(scope, op, items):
    opcode = op.name.split(".")[1].replace("_", "-")
    attributes = {
        "epsilon": float(number(op.attributes["epsilon"])),
        "feature_index": number(op.attributes["feature_index"]),
    }
    return _one_or_all(scope, scope.emit(opcode, *items, **attributes))


# --- random bits --------------------------------------------------------------------------------------------------


@converts("stablehlo.rng_bit_generator")
def _rng_bit_generator(scope, op, items):
    algorithm = word(op.attributes["rng_algorithm"]) if "rng_algorithm" in op.attributes else "DEFAULT"
    name = {"DEFAULT": "rng_default", "THREE_FRY": "rng_three_fry", "PHILOX": "rng_philox"}[algorithm]
    shape = TupleShape([items[0].shape, scope.result_shape(op, 1)])
    return scope.elements(scope.emit("rng-bit-generator", *items, shape=shape, algorithm=name))


@converts("stablehlo.rng")
def _rng(scope, op, items):
    raise UnsupportedError(
        "stablehlo.rng draws numbers from a hidden state", "hloom's programs are functions",
        "use stablehlo.rng_bit_generator, which takes its state", scope.builder.source,
    )  # fmt: skip


# --- loops and branches -------------------------------------------------------------------------------------------


def _captured(scope, op) -> dict[str, Item]:
    """The values captured by the regions of an op, which become arguments (constants are copied)."""
    found = {}
    for name in scope.free(op.regions):
        item = scope.get(op, name)
        if item.instruction is None or scope.known(item.instruction) is not None:
            continue
        found[name] = item
    return found


def _program(scope, op, region, shapes, names, quantized, captured, result_tuple: bool, keep: bool):
    """The computation of a region on one tuple: its own values, then the captured ones (also returned with `keep`)."""
    builder = Builder(f"{op.name.split('.')[-1]}_region")
    inner = Scope(scope.converter, builder, scope.function, scope)
    state = builder.parameter(TupleShape(shapes), "state")
    parts = [Item(builder.emit("get-tuple-element", state, index=k), q) for k, q in enumerate(quantized)]
    own = len(names)
    for (name, outside), part in zip(captured.items(), parts[own:], strict=True):
        inner.set(name, part)
        inner.numbers.same(part.instruction, scope.numbers, outside.instruction)
    results = inner.body(region, parts[:own])
    if not result_tuple:
        return builder.finish(results[0].instruction)
    values = results + (parts[own:] if keep else [])
    return builder.finish(builder.tuple([v.instruction for v in values]))


@converts("stablehlo.while")
def _while(scope, op, items):
    captured = _captured(scope, op)
    state = [*items, *captured.values()]
    if any(i.instruction is None for i in items):
        raise UnsupportedError(
            "stablehlo.while with tensors as its state", "a token", "leave the token out", scope.builder.source
        )
    shapes = [i.shape for i in state]
    quantized = [i.quantized for i in state]
    names = [n for n, _ in op.regions[0].arguments]
    if len(names) != len(items) or len(op.regions[1].arguments) != len(items):
        raise ValueError("the regions of while take its values")
    condition, body = op.regions
    condition = _program(scope, op, condition, shapes, names, quantized, captured, False, False)
    body = _program(scope, op, body, shapes, names, quantized, captured, True, True)
    result = scope.emit("while", scope.emit("tuple", *state), condition=condition, body=body)
    results = scope.elements(result)[: len(items)]
    return [Item(r.instruction, i.quantized) for r, i in zip(results, items, strict=True)]


@converts("stablehlo.if", "stablehlo.case")
def _if(scope, op, items):
    (selector,) = items
    captured = _captured(scope, op)
    state = list(captured.values())
    shapes, quantized = [i.shape for i in state], [i.quantized for i in state]
    branches = [_program(scope, op, r, shapes, [], quantized, captured, True, False) for r in op.regions]
    if op.name.endswith("case") and len(branches) == 1:
        selector = scope.constant(np.zeros((), np.int32), S32)
    argument = scope.emit("tuple", *state)
    result = scope.emit("conditional", selector, *[argument] * len(branches), branch_computations=tuple(branches))
    return scope.elements(result)
