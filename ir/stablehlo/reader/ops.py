"""Converters of ops on arrays: constants, element-wise ops, data movement, shapes, and their dynamic forms."""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import ShapeError, UnsupportedError
from hloom.ir.op_table import OPS
from hloom.ir.ops.linalg.dot import free_dims
from hloom.ir.sizes.expressions import Size
from hloom.ir.stablehlo.assembly.attributes import Dense
from hloom.ir.stablehlo.reader.registry import Item, converts
from hloom.ir.stablehlo.values import fields, flag, ints, number, word
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, Shape

S32, S64 = DTYPES["s32"], DTYPES["s64"]


def _plain(opcode: str):
    """The converter of an op of the table without attributes."""

    def convert(scope, op, items):
        return scope.emit(opcode, *items)

    return convert


for _opcode, _entry in OPS.items():
    if _entry.arity:
        for _dialect in _entry.dialects.split():
            converts(f"{_dialect}.{_opcode.replace('-', '_')}")(_plain(_opcode))
converts("stablehlo.select")(_plain("select"))
converts("stablehlo.dynamic_update_slice")(_plain("dynamic-update-slice"))


@converts("stablehlo.constant", "chlo.constant")
def _constant(scope, op, items):
    value = op.attributes["value"]
    if not isinstance(value, Dense):
        raise ValueError("a constant has a value dense<...>")
    quantized = scope.quantized(op)
    array = scope.dense(value)
    converter = scope.converter
    if converter.collects and scope.is_entry and (array.size > 1 or scope.function == "inputs"):
        if scope.function not in ("expected", "main") or not _is_expected(scope, op):
            converter.lifted.append(np.ascontiguousarray(array).reshape(array.shape))
            shape = Shape(array.dtype, array.shape)
            return Item(scope.builder.parameter(shape, op.results[0][0][1:], scope.builder.source), quantized)
    if array.size > 1 and array.strides == (0,) * array.ndim:
        # A splat remains a scalar, so that kernels can inline it.
        return Item(scope.builder.splat(array.reshape(-1)[0], Shape(array.dtype, array.shape)), quantized)
    return Item(scope.builder.constant(array), quantized)


def _is_expected(scope, op) -> bool:
    """Whether a test program's constant is the expected result of a check (or is in the function of expected
    results)."""
    if scope.function == "expected":
        return True
    body = scope.converter.functions[scope.function].regions[0].operations
    uses = [o for o in body if op.results[0][0] in o.operands]
    return bool(uses) and all(o.attributes.get("call_target_name") == "check.eq" for o in uses)


@converts("stablehlo.iota")
def _iota(scope, op, items):
    return scope.emit("iota", shape=scope.result_shape(op), iota_dimension=number(op.attributes["iota_dimension"]))


@converts("stablehlo.dynamic_iota")
def _dynamic_iota(scope, op, items):
    dims = scope.integers(items[0], "sizes")
    shape = Shape(scope.result_dtype(op), _sizes(dims))
    return scope.emit("iota", shape=shape, iota_dimension=number(op.attributes["iota_dimension"]))


def _sizes(dims) -> tuple[Size, ...]:
    if any(d < 0 for d in dims):
        raise ShapeError("sizes are not negative", f"{dims}", "check what they are computed from")
    return tuple(dims)


@converts("stablehlo.convert")
def _convert(scope, op, items):
    (x,) = items
    return scope.emit("convert", x, shape=Shape(scope.result_dtype(op), x.dims))


@converts("stablehlo.bitcast_convert")
def _bitcast_convert(scope, op, items):
    (x,) = items
    dtype = scope.result_dtype(op)
    old, new = x.dtype.itemsize, dtype.itemsize
    if "s4" in (HLO_NAME[x.dtype], HLO_NAME[dtype]) or "u4" in (HLO_NAME[x.dtype], HLO_NAME[dtype]):
        raise UnsupportedError(
            f"{op.name} between elements of 4 bits and others",
            f"{HLO_NAME[x.dtype]} and {HLO_NAME[dtype]}",
            "convert to 8 bits first",
            scope.builder.source,
        )
    dims = x.dims
    if old > new:
        dims = (*dims, old // new)
    elif old < new:
        if not dims or dims[-1] != new // old:
            raise ShapeError(
                f"bitcast_convert to a wider element takes a last dimension of size {new // old}",
                f"{x.shape!r}",
                "reshape the operand",
            )
        dims = dims[:-1]
    return scope.emit("bitcast-convert", x, shape=Shape(dtype, dims))


@converts("stablehlo.compare")
def _compare(scope, op, items):
    direction = word(op.attributes["comparison_direction"])
    order = word(op.attributes["compare_type"]) if "compare_type" in op.attributes else ""
    if order == "TOTALORDER":
        return scope.emit("compare", *items, direction=direction, type="TOTALORDER")
    return scope.emit("compare", *items, direction=direction)


@converts("stablehlo.clamp")
def _clamp(scope, op, items):
    low, x, high = (scope.value(i) for i in items)
    low, high = (v.broadcast(x.dims, ()) if v.dims == () != x.dims else v for v in (low, high))
    if x.dtype in COMPLEX:  # XLA compares the real parts; a NaN exceeds the upper bound
        raised = low.op("real").compare("GE", x.op("real")).where(low, x)
        return Item(raised.op("real").compare("LE", high.op("real")).where(raised, high).instruction)
    return scope.emit("clamp", Item(low.instruction), items[1], Item(high.instruction))


@converts("stablehlo.reduce_precision")
def _reduce_precision(scope, op, items):
    a = op.attributes
    bits = {name: number(a[name]) for name in ("exponent_bits", "mantissa_bits")}
    return scope.emit("reduce-precision", *items, **bits)


# --- moving elements ----------------------------------------------------------------------------------------------


def broadcast_in_dim(scope, x: Item, dims: tuple[Size, ...], dimensions: tuple[int, ...]) -> Item:
    """Dimension k of x becomes dimension `dimensions[k]`, in any order; sizes of 1 are broadcast."""
    value = scope.value(x)
    if len(dimensions) != len(value.dims) or len(set(dimensions)) != len(dimensions):
        raise ShapeError(
            "broadcast_in_dim takes a different dimension of the result for each of the operand",
            f"dims = {dimensions} of {value.shape!r}",
            "name as many dimensions as the operand has, each once",
        )
    kept = []  # the dimensions whose size is that of the result
    for k, (size, d) in enumerate(zip(value.dims, dimensions, strict=True)):
        fits = 0 <= d < len(dims)
        if fits and size == dims[d]:
            kept.append(k)
        elif not fits or size != 1:
            raise ShapeError(
                "broadcast_in_dim keeps the sizes of the operand, or spreads sizes of 1",
                f"{value.shape!r} to {dims} with dims = {dimensions}",
                "make the sizes of the result those of the operand",
            )
    order = tuple(sorted(range(len(dimensions)), key=lambda k: dimensions[k]))
    value = value.transpose(order).reshape(value.dims[k] for k in order if k in kept)
    dimensions = tuple(dimensions[k] for k in order if k in kept)
    if value.dims != dims or dimensions != tuple(range(len(dims))):
        value = value.broadcast(dims, dimensions)
    return Item(value.instruction, x.quantized)


@converts("stablehlo.broadcast_in_dim")
def _broadcast_in_dim(scope, op, items):
    shape = scope.result_shape(op)
    return broadcast_in_dim(scope, items[0], shape.dims, ints(op.attributes["broadcast_dimensions"]))


@converts("stablehlo.dynamic_broadcast_in_dim")
def _dynamic_broadcast_in_dim(scope, op, items):
    dims = _sizes(scope.integers(items[1], "sizes"))
    return broadcast_in_dim(scope, items[0], dims, ints(op.attributes["broadcast_dimensions"]))


@converts("stablehlo.broadcast")
def _broadcast(scope, op, items):
    (x,) = items
    sizes = ints(op.attributes["broadcast_sizes"])
    return broadcast_in_dim(scope, x, (*sizes, *x.dims), tuple(range(len(sizes), len(sizes) + len(x.dims))))


@converts("stablehlo.reshape")
def _reshape(scope, op, items):
    return scope.emit("reshape", *items, shape=items[0].shape.with_dims(scope.result_shape(op).dims))


@converts("stablehlo.dynamic_reshape")
def _dynamic_reshape(scope, op, items):
    x, dims = items
    return scope.emit("reshape", x, shape=x.shape.with_dims(_sizes(scope.integers(dims, "sizes"))))


@converts("stablehlo.transpose")
def _transpose(scope, op, items):
    permutation = ints(op.attributes["permutation"])
    return scope.emit("transpose", *items, dimensions=permutation)


@converts("stablehlo.reverse")
def _reverse(scope, op, items):
    return scope.emit("reverse", *items, dimensions=ints(op.attributes["dimensions"]))


@converts("stablehlo.slice")
def _slice(scope, op, items):
    a = op.attributes
    parts = [ints(a[name]) for name in ("start_indices", "limit_indices", "strides")]
    return scope.emit("slice", *items, slice=tuple(zip(*parts, strict=True)))


@converts("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(scope, op, items):
    x, *bounds = items
    names = ("starts", "limits", "strides")
    starts, limits, strides = values = [scope.sizes(b) for b in bounds]
    if starts is not None and limits is not None and strides is not None:
        return scope.emit("slice", x, slice=tuple(zip(starts, limits, strides, strict=True)))
    # Starts that depend on values: a slice of known size, from the type or from the difference of limits and starts.
    sizes = _static_sizes(scope, op, bounds)
    if sizes is not None and strides is not None and all(s == 1 for s in strides):
        scalars = []
        for k in range(len(x.dims)):
            one = scope.emit("slice", bounds[0], slice=((k, k + 1, 1),))
            scalars.append(scope.emit("reshape", one, shape=one.shape.with_dims(())))
        return scope.emit("dynamic-slice", x, *scalars, dynamic_slice_sizes=sizes)
    for item, name, value in zip(bounds, names, values, strict=True):
        if value is None:
            scope.integers(item, name)
    raise UnsupportedError(
        f"{op.name} with constant starts, limits and strides",
        "some depend on values",
        "give constants, or use dynamic_slice, whose size is static",
        scope.builder.source,
    )


def _static_sizes(scope, op, bounds) -> tuple[Size, ...] | None:
    """limits - starts, if given by the type or if the limits are the starts plus known values."""
    type_ = scope.result(op)
    if type_.static:
        return type_.dims
    starts, limits = (b.instruction for b in bounds[:2])
    if limits.opcode != "add":
        return None
    for left, right in (limits.operands, limits.operands[::-1]):
        distance = scope.sizes(Item(right)) if _is_same(left, starts) else None
        if distance is not None:
            return distance
    return None


def _is_same(a, b) -> bool:
    """Whether two instructions are structurally equal."""
    stack, seen = [(a, b)], set()
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if a.opcode != b.opcode or a.shape is not b.shape or len(a.operands) != len(b.operands) or len(seen) > 1000:
            return False
        if a.opcode == "parameter" or a.attributes.keys() != b.attributes.keys():
            return False
        if any(not np.array_equal(v, b.attributes[k]) for k, v in a.attributes.items()):
            return False
        stack.extend(zip(a.operands, b.operands, strict=True))
    return True


@converts("stablehlo.dynamic_slice")
def _dynamic_slice(scope, op, items):
    return scope.emit("dynamic-slice", *items, dynamic_slice_sizes=ints(op.attributes["slice_sizes"]))


@converts("stablehlo.pad")
def _pad(scope, op, items):
    a = op.attributes
    parts = [ints(a[name]) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    return scope.emit("pad", *items, padding=tuple(zip(*parts, strict=True)))


@converts("stablehlo.dynamic_pad")
def _dynamic_pad(scope, op, items):
    parts = [scope.integers(i, "padding") for i in items[2:]]
    return scope.emit("pad", *items[:2], padding=tuple(zip(*parts, strict=True)))


@converts("stablehlo.concatenate")
def _concatenate(scope, op, items):
    if len(items) == 1:
        return items[0]
    return scope.emit("concatenate", *items, dimensions=(number(op.attributes["dimension"]),))


@converts("stablehlo.get_dimension_size")
def _get_dimension_size(scope, op, items):
    size = items[0].dims[number(op.attributes["dimension"])]
    return scope.constant_of_sizes(np.array(size, object), Shape(S32))


@converts("stablehlo.set_dimension_size")
def _set_dimension_size(scope, op, items):
    """The first elements along a dimension, as sizes are static in hloom."""
    x, size = items
    k = number(op.attributes["dimension"])
    (length,) = scope.integers(size, "the size")
    if not 0 <= k < len(x.dims) or not 0 <= length <= x.dims[k]:
        raise ShapeError(
            "set_dimension_size takes a size within the operand's",
            f"{length} of {x.shape!r}",
            "pad the operand first",
        )
    if length == x.dims[k]:
        return x
    return scope.emit("slice", x, slice=tuple((0, length if j == k else d, 1) for j, d in enumerate(x.dims)))


# --- dot, gather, linear algebra ----------------------------------------------------------------------------------

_DOT = {
    "lhs_batch_dims": "lhs_batching_dimensions",
    "rhs_batch_dims": "rhs_batching_dimensions",
    "lhs_contracting_dims": "lhs_contracting_dimensions",
    "rhs_contracting_dims": "rhs_contracting_dimensions",
}


def dot(scope, op, left: Item, right: Item, dimensions: dict[str, tuple[int, ...]]) -> Item:
    """The product in the result's dtype."""
    lb, rb = dimensions["lhs_batch_dims"], dimensions["rhs_batch_dims"]
    lc, rc = dimensions["lhs_contracting_dims"], dimensions["rhs_contracting_dims"]
    for item, batch, contracting in ((left, lb, lc), (right, rb, rc)):
        if any(not 0 <= d < len(item.dims) for d in batch + contracting):
            raise ShapeError(
                "dot_general has dimensions of its operands",
                f"{batch + contracting} of {item.shape!r}",
                f"name dimensions below {len(item.dims)}",
            )
    dims = [left.dims[k] for k in lb]
    dims += [left.dims[k] for k in free_dims(len(left.dims), lb, lc)]
    dims += [right.dims[k] for k in free_dims(len(right.dims), rb, rc)]
    dtype = scope.result_dtype(op)
    if left.dtype != right.dtype:
        # Products of different dtypes are computed in the result's.
        left, right = (scope.emit("convert", i, shape=i.shape.with_dtype(dtype)) for i in (left, right))
    return scope.emit("dot", left, right, shape=Shape(dtype, tuple(dims)), **{k: v for k, v in dimensions.items() if v})


def dot_numbers(op) -> dict[str, tuple[int, ...]]:
    numbers = fields(op.attributes["dot_dimension_numbers"])
    return {hlo: ints(numbers.get(name, ())) for hlo, name in _DOT.items()}


@converts("stablehlo.dot_general")
def _dot_general(scope, op, items):
    left, right = items
    return dot(scope, op, left, right, dot_numbers(op))


@converts("stablehlo.dot")
def _dot(scope, op, items):
    left, right = items
    return dot(scope, op, left, right, plain_dot_numbers(items))


def plain_dot_numbers(items) -> dict[str, tuple[int, ...]]:
    left = items[0]
    return {
        "lhs_batch_dims": (),
        "rhs_batch_dims": (),
        "lhs_contracting_dims": (len(left.dims) - 1,),
        "rhs_contracting_dims": (0,),
    }


def gather(scope, op, x: Item, starts: Item, sizes: tuple[int, ...]) -> Item:
    n = fields(op.attributes["dimension_numbers"])
    attributes = {
        "offset_dims": ints(n.get("offset_dims", ())),
        "collapsed_slice_dims": ints(n.get("collapsed_slice_dims", ())),
        "start_index_map": ints(n.get("start_index_map", ())),
        "index_vector_dim": number(n["index_vector_dim"]) if "index_vector_dim" in n else 0,
        "slice_sizes": sizes,
    }
    for name in ("operand_batching_dims", "start_indices_batching_dims"):
        if name in n:
            attributes[name] = ints(n[name])
    if "indices_are_sorted" in op.attributes and flag(op.attributes["indices_are_sorted"]):
        attributes["indices_are_sorted"] = True
    return scope.emit("gather", x, starts, **attributes)


@converts("stablehlo.gather")
def _gather(scope, op, items):
    x, starts = items
    return gather(scope, op, x, starts, ints(op.attributes["slice_sizes"]))


@converts("stablehlo.dynamic_gather")
def _dynamic_gather(scope, op, items):
    x, starts, sizes = items
    return gather(scope, op, x, starts, scope.integers(sizes, "slice sizes"))


@converts("stablehlo.torch_index_select")
def _torch_index_select(scope, op, items):
    """Slices of x along `dim` by the indices, after `batch_dims` common dimensions."""
    x, index = items
    dim = number(op.attributes["dim"])
    batch = number(op.attributes["batch_dims"]) if "batch_dims" in op.attributes else 0
    rank, count = len(x.dims), len(index.dims)
    moved = count - batch
    offsets = tuple(k for k in range(rank - 1 + moved) if not (k < batch or dim <= k < dim + moved))
    return scope.emit(
        "gather", x, index, offset_dims=offsets, collapsed_slice_dims=(dim,), start_index_map=(dim,),
        operand_batching_dims=tuple(range(batch)), start_indices_batching_dims=tuple(range(batch)),
        index_vector_dim=count, slice_sizes=tuple(1 if k == dim or k < batch else d for k, d in enumerate(x.dims)),
    )  # fmt: skip


@converts("stablehlo.einsum", "stablehlo.unary_einsum")
def _einsum(scope, op, items):
    raise UnsupportedError(f"{op.name} is not read", "it is deprecated", "use dot_general", scope.builder.source)


@converts("stablehlo.cholesky")
def _cholesky(scope, op, items):
    return scope.emit("cholesky", *items, lower=flag(op.attributes.get("lower", False)))


@converts("stablehlo.triangular_solve")
def _triangular_solve(scope, op, items):
    a = op.attributes
    flags = {name: flag(a.get(name, False)) for name in ("left_side", "lower", "unit_diagonal")}
    transpose = word(a["transpose_a"]) if "transpose_a" in a else "NO_TRANSPOSE"
    return scope.emit("triangular-solve", *items, transpose_a=transpose, **flags)


@converts("stablehlo.fft")
def _fft(scope, op, items):
    return scope.emit(
        "fft", *items, fft_type=word(op.attributes["fft_type"]), fft_length=ints(op.attributes["fft_length"])
    )
