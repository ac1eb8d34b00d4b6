"""Elements at computed positions: gathers, scatters, embeddings, and bags of these: their sums, means and maxima."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import PRED, S64, TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.table import rule
from hloom.errors import UnsupportedError

MEAN, MAX = 1, 2  # of the mode of a bag; 0 is the sum


def _one_dimension(x):
    return lax.reshape(x, (1,)) if not x.ndim else x


def _index(x, indices) -> tuple:
    """A list of index tensors and None as a subscript."""
    entries = []
    for entry in indices:
        if entry is not None and entry.dtype in (PRED, np.dtype(np.uint8)):
            raise UnsupportedError(
                "an index of booleans, which selects a number of elements that is known only when it runs",
                f"{entry._shape!r}",
                "use torch.where, or masked_fill, which keep the shape",
                "",
            )
        entries.append(slice(None) if entry is None else entry)
    return tuple(entries)


def _bound(x, indices, bounds) -> None:
    """Records the bounds of index tensors, whose negative elements count from the end."""
    for dim, entry in enumerate(indices):
        if entry is not None and entry.dtype not in (PRED, np.dtype(np.uint8)):
            bounds.indices(entry, x.shape[dim], dim, wraps=True)


@rule("index.Tensor", bounds=True)
def index(x, indices, *, bounds):
    _bound(x, indices, bounds)
    return unsafe_index(x, indices)


@rule("_unsafe_index.Tensor")
def unsafe_index(x, indices):
    return x[_index(x, indices)]


@rule("index_put.default", bounds=True)
def index_put(x, indices, values, accumulate=False, *, bounds):
    _bound(x, indices, bounds)
    return unsafe_index_put(x, indices, values, accumulate)


@rule("_unsafe_index_put.default")
def unsafe_index_put(x, indices, values, accumulate=False):
    values = convert(values, x.dtype)
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == PRED and not accumulate and not values.ndim:
        mask = lax.reshape(indices[0], (*indices[0].shape, *[1] * (x.ndim - indices[0].ndim)))
        return hnp.where(mask, values, x)
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == PRED:
        return _masked_put(x, indices[0], values, accumulate)
    place = x.at[_index(x, indices)]
    if not accumulate:
        return place.set(values)
    if x.dtype == PRED:
        return place.max(values)
    return place.add(values)


def _masked_put(x, mask, values, accumulate: bool):
    """values, in order, written (or added) to the positions of x whose leading indices a mask selects."""
    inner = x.shape[mask.ndim :]
    flat = lax.reshape(mask, (mask.size,))
    values = hnp.broadcast_to(values, (values.shape[0] if values.ndim > len(inner) else 1, *inner))
    if not values.size or not x.size:
        return x
    places = hnp.cumsum(convert(flat, S64)) - operand(1, S64)
    limits = operand(0, S64), operand(values.shape[0] - 1, S64)
    rows = lax.reshape(hnp.take(values, hnp.clip(places, *limits), axis=0, mode="clip"), x.shape)
    mask = lax.reshape(mask, (*mask.shape, *[1] * len(inner)))
    return hnp.where(mask, x + rows if accumulate else rows, x)


_IN_SELF = "index out of range in self: {{}} in dimension {dim} with size {size}"


@rule("index_select.default", bounds=True)
def index_select(x, dim, index, *, bounds):
    dim %= max(x.ndim, 1)
    bounds.indices(index, _one_dimension(x).shape[dim], dim, text=_IN_SELF)
    return (
        hnp.take(_one_dimension(x), _one_dimension(index), axis=dim)
        if x.ndim
        else lax.reshape(hnp.take(_one_dimension(x), _one_dimension(index), axis=0), ())
    )


@rule("embedding.default", bounds=True)
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False, *, bounds):
    bounds.indices(indices, weight.shape[0], text=_IN_SELF)
    return hnp.take(weight, indices, axis=0)


@rule("embedding_renorm.default", bounds=True)
def embedding_renorm(weight, indices, max_norm, norm_type, *, bounds):
    """The rows that are named, made shorter where their norm is more than max_norm."""
    bounds.indices(indices, weight.shape[0], text=_IN_SELF)
    wide = convert(weight, computed_in(TO_TORCH[weight.dtype]))
    norms = hnp.linalg.norm(wide, norm_type, axis=1, keepdims=True)
    limit = operand(max_norm, wide.dtype)
    flat = lax.reshape(indices, (indices.size,))
    named = lax.full((weight.shape[0], 1), False, PRED).at[flat].set(lax.full((flat.size, 1), True, PRED))
    scaled = wide * (limit / (norms + operand(1e-7, wide.dtype)))
    return convert(hnp.where(named & (norms > limit), scaled, wide), weight.dtype)


@rule("embedding_dense_backward.default")
def embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq):
    features = grad.shape[-1]
    flat = lax.reshape(indices, (indices.size,))
    rows = lax.reshape(grad, (indices.size, features))
    if padding_idx >= 0:
        rows = hnp.where(hnp.expand_dims(hnp.not_equal(flat, operand(padding_idx, flat.dtype)), 1), rows,
                         operand(0, rows.dtype))  # fmt: skip
    if scale_grad_by_freq:
        counts = lax.full((num_weights,), 0, rows.dtype).at[flat].add(lax.full((flat.size,), 1, rows.dtype))
        rows = rows / hnp.expand_dims(hnp.take(counts, flat, axis=0), 1)
    return lax.full((num_weights, features), 0, rows.dtype).at[flat].add(rows)


# --- along one axis ---


@rule("gather.default", bounds=True)
def gather(x, dim, index, *, bounds):
    _bound_along(x, dim, index, bounds)
    if not index.ndim and not x.ndim:
        return x
    x, index, dims = _one_dimension(x), _one_dimension(index), index.shape
    if not index.size:
        return lax.full(dims, 0, x.dtype)
    return lax.reshape(x[_along(x, dim % x.ndim, index)], dims)


def _bound_along(x, dim: int, index, bounds) -> None:
    """Records that indices along a dimension are in range, none of them negative."""
    dim %= max(x.ndim, 1)
    bounds.indices(index, _one_dimension(x).shape[dim], dim, kind=RuntimeError)


def _along(x, dim: int, index) -> tuple:
    """The subscript of the elements of x that have the positions of `index`, but for the number in it along dim."""
    entries = []
    for k, size in enumerate(index.shape):
        if k == dim:
            entries.append(index)
        else:
            entries.append(
                lax.reshape(lax.iota(index.dtype, size), tuple(size if m == k else 1 for m in range(x.ndim)))
            )
    return tuple(entries)


def _scatter(x, dim, index, source, change):
    """change(place, values) for the elements of x selected by `index` along dim, with the corresponding elements of
    source."""
    dims = x.shape
    x, index = _one_dimension(x), _one_dimension(index)
    if not index.size:
        return lax.reshape(x, dims)
    if hasattr(source, "dtype"):
        source = (
            _one_dimension(convert(source, x.dtype)) if source.ndim or index.ndim == 1 else convert(source, x.dtype)
        )
        if source.ndim:
            source = source[tuple(slice(n) for n in index.shape)]
    else:
        source = lax.full(index.shape, np.asarray(source).astype(x.dtype), x.dtype)
    return lax.reshape(change(x.at[_along(x, dim % x.ndim, index)], source), dims)


@rule("scatter.src", "scatter.value", bounds=True)
def scatter(x, dim, index, source, *, bounds):
    _bound_along(x, dim, index, bounds)
    return _scatter(x, dim, index, source, lambda place, values: place.set(values))


@rule("scatter_add.default", bounds=True)
def scatter_add(x, dim, index, source, *, bounds):
    _bound_along(x, dim, index, bounds)
    if x.dtype == PRED:
        return _scatter(x, dim, index, source, lambda place, values: place.max(values))
    return _scatter(x, dim, index, source, lambda place, values: place.add(values))


_REDUCTIONS = {
    "sum": lambda place, values: place.add(values),
    "prod": lambda place, values: place.multiply(values),
    "amax": lambda place, values: place.max(values),
    "amin": lambda place, values: place.min(values),
}
_NEUTRAL = {"sum": 0, "mean": 0, "prod": 1}


def _neutral(reduce: str, dtype):
    """The neutral element of a reduction."""
    if reduce in _NEUTRAL:
        return _NEUTRAL[reduce]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if reduce == "amax" else limits.max
    if dtype == PRED:
        return reduce == "amin"
    return -np.inf if reduce == "amax" else np.inf


@rule("scatter.reduce", "scatter.value_reduce", bounds=True)
def scatter_combined(x, dim, index, source, *, reduce, bounds):
    _bound_along(x, dim, index, bounds)
    return _scatter(x, dim, index, source, _REDUCTIONS[{"add": "sum", "multiply": "prod"}[reduce]])


@rule("scatter_reduce.two", bounds=True)
def scatter_reduce(x, dim, index, source, reduce, *, include_self=True, bounds):
    _bound_along(x, dim, index, bounds)
    return _scatter_reduce(x, dim, index, source, reduce, include_self)


def _scatter_reduce(x, dim, index, source, reduce: str, include_self: bool):
    if not index.size:
        return x
    start = x
    if not include_self:
        touched = _scatter(lax.full(x.shape, False, PRED), dim, index, lax.full(source.shape, True, PRED),
                           lambda place, values: place.max(values))  # fmt: skip
        start = hnp.where(touched, operand(_neutral(reduce, x.dtype), x.dtype), x)
    found = _scatter(start, dim, index, source, _REDUCTIONS["sum" if reduce == "mean" else reduce])
    if reduce != "mean":
        return found
    ones = lax.full(source.shape, 1, S64)
    counts = _scatter(lax.full(x.shape, int(include_self), S64), dim, index, ones, _REDUCTIONS["sum"])
    counts = convert(hnp.maximum(counts, operand(1, S64)), x.dtype)
    return found / counts if x.dtype.kind not in "iu" else hnp.floor_divide(found, counts)


@rule("put.default", bounds=True)
def put(x, index, source, accumulate=False, *, bounds):
    """x with other elements at some positions of its elements in row-major order."""
    bounds.indices(index, x.size, wraps=True,
                   text="out of range: tried to access index {{}} on a tensor of {size} elements.")  # fmt: skip
    if not index.size:
        return x
    flat = lax.reshape(x, (x.size,)).at[lax.reshape(index, (index.size,))]
    values = lax.reshape(convert(source, x.dtype), (source.size,))
    return lax.reshape(flat.add(values) if accumulate else flat.set(values), x.shape)


@rule("index_reduce.default", bounds=True)
def index_reduce(x, dim, index, source, reduce, *, include_self=True, bounds):
    dim = _bound_slices(x, dim, index, source, bounds, _IN_SELF)
    if not index.size or not x.size:
        return x
    dims, source = x.shape, _one_dimension(source)
    x, dim = _one_dimension(x), dim % max(x.ndim, 1)
    places = lax.reshape(index, tuple(index.size if k == dim else 1 for k in range(x.ndim)))
    full = hnp.broadcast_to(places, tuple(index.size if k == dim else n for k, n in enumerate(x.shape)))
    return lax.reshape(_scatter_reduce(x, dim, full, source, reduce, include_self), dims)


def _bound_slices(x, dim: int, index, source, bounds, text: str) -> int:
    """Records that an index selects slices of x along a dimension, which is returned. Raises UnsupportedError if there
    is not one slice of source for each: torch computes the op then, and refuses it."""
    x, source, dim = _one_dimension(x), _one_dimension(source), dim % max(x.ndim, 1)
    if source.ndim != x.ndim or source.shape != (*x.shape[:dim], index.size, *x.shape[dim + 1 :]):
        raise UnsupportedError(
            "slices of a tensor by their indices",
            f"{index.size} of {x._shape!r} for {source._shape!r}",
            "pass a source with a slice for each number",
        )
    bounds.indices(index, x.shape[dim], dim, text=text)
    return dim


def _slices(x, dim: int, index):
    """A function that changes the slices of x selected by an index along a dimension."""
    return _one_dimension(x).at[(*[slice(None)] * dim, _one_dimension(index))]


@rule("index_add.default", bounds=True)
def index_add(x, dim, index, source, *, alpha=1, bounds):
    dim = _bound_slices(x, dim, index, source, bounds, _IN_SELF)
    source = _one_dimension(convert(source, x.dtype))
    if alpha != 1:
        source = source * operand(alpha, x.dtype)
    place = _slices(x, dim, index)
    return lax.reshape(place.max(source) if x.dtype == PRED else place.add(source), x.shape)


@rule("index_copy.default", bounds=True)
def index_copy(x, dim, index, source, *, bounds):
    text = "index_copy_(): index {{}} is out of bounds for dimension {dim} with size {size}"
    dim = _bound_slices(x, dim, index, source, bounds, text)
    return lax.reshape(_slices(x, dim, index).set(_one_dimension(convert(source, x.dtype))), x.shape)


@rule("index_fill.int_Scalar", "index_fill.int_Tensor", bounds=True)
def index_fill(x, dim, index, value, *, bounds):
    dim %= max(x.ndim, 1)
    bounds.indices(index, _one_dimension(x).shape[dim], dim, wraps=True)
    return lax.reshape(_slices(x, dim, index).set(operand(value, x.dtype)), x.shape)


@rule("masked_scatter.default")
def masked_scatter(x, mask, source):
    """The elements of source, in order, at the positions of x where the mask is true."""
    dims = np.broadcast_shapes(mask.shape, x.shape)
    mask, x = hnp.broadcast_to(mask, dims), hnp.broadcast_to(x, dims)
    if not source.size:
        return x
    flat = lax.reshape(mask, (mask.size,))
    places = hnp.cumsum(convert(flat, S64)) - operand(1, S64)
    values = hnp.take(lax.reshape(source, (source.size,)), hnp.maximum(places, operand(0, S64)), axis=0, mode="clip")
    return hnp.where(mask, lax.reshape(convert(values, x.dtype), x.shape), x)


@rule("masked_scatter_backward.default")
def masked_scatter_backward(grad, mask, sizes):
    """The elements of grad where the mask is true, in their order, then zeros."""
    grad, mask = hnp.broadcast_arrays(grad, mask)
    count = math.prod(sizes)
    flat = lax.reshape(mask, (mask.size,))
    places = hnp.where(flat, hnp.cumsum(convert(flat, S64)) - operand(1, S64), operand(count, S64))
    found = lax.full((count,), 0, grad.dtype).at[places].set(lax.reshape(grad, (grad.size,)), mode="drop")
    return lax.reshape(found, tuple(sizes))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x, mask, value):
    return hnp.broadcast_to(hnp.where(mask, operand(value, x.dtype), x), np.broadcast_shapes(x.shape, mask.shape))


# --- bags of embeddings ---


def _computed(x):
    return convert(x, computed_in(TO_TORCH[x.dtype]))


def _bag_of(offsets, bags: int, count: int):
    """The number of the bag of each of `count` indices."""
    starts = convert(lax.slice_in_dim(offsets, 0, bags), S64)
    begun = hnp.expand_dims(starts, 0) <= hnp.expand_dims(lax.iota(S64, count), 1)
    return hnp.sum(convert(begun, S64), axis=1) - operand(1, S64)


def _counted(indices, padding_idx: int):
    """Whether each index counts."""
    return hnp.not_equal(indices, operand(padding_idx, indices.dtype))


def _sums(values, groups, count: int):
    """Sums of the values of each of `count` groups."""
    return lax.full((count, *values.shape[1:]), 0, values.dtype).at[groups].add(values)


def _largest(rows, counted, indices, bag_of, bags: int):
    """(the maxima of each bag, the indices of their rows); 0 for a bag of none."""
    count = indices.shape[0]
    rows = hnp.where(counted, rows, operand(-math.inf, rows.dtype))
    found = lax.full((bags, rows.shape[1]), -math.inf, rows.dtype).at[bag_of].max(rows)
    numbers = hnp.expand_dims(lax.iota(S64, count), 1)
    reached = hnp.logical_and(counted, hnp.equal(rows, hnp.take(found, bag_of, axis=0)))
    first = lax.full(found.shape, count, S64).at[bag_of].min(hnp.where(reached, numbers, operand(count, S64)))
    some = first < operand(count, S64)
    places = hnp.where(some, first, operand(0, S64))
    return hnp.where(some, found, operand(0, found.dtype)), hnp.where(some, hnp.take(indices, places), operand(0, S64))


@rule("_embedding_bag.default", "_embedding_bag_forward_only.default", result=True, bounds=True)
def embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
    include_last_offset=False, padding_idx=-1, *, result, bounds,
):  # fmt: skip
    """(sums, means or maxima of bags of rows, the bag of each index, the sizes of the bags, the indices of maxima).

    The last three have elements where torch declares them.
    """
    bounds.indices(indices, weight.shape[0], kind=RuntimeError,
                   text="an index of the input takes value {{}}, not in the valid range [0, {size})")  # fmt: skip
    bags, indices = result[0].dims[0], convert(indices, S64)
    nothing = [lax.full(shape.dims, 0, shape.dtype) for shape in result]
    if not indices.size or not bags:
        return tuple(nothing)
    bag_of, counted = _bag_of(offsets, bags, indices.size), _counted(indices, padding_idx)
    rows = _computed(hnp.take(weight, indices, axis=0))
    sizes = _sums(convert(counted, S64), bag_of, bags)
    if per_sample_weights is not None:
        rows = rows * hnp.expand_dims(convert(per_sample_weights, rows.dtype), 1)
    maxima = nothing[3]
    counted = hnp.expand_dims(counted, 1)
    if mode == MAX:
        found, maxima = _largest(rows, counted, indices, bag_of, bags)
    else:
        found = _sums(hnp.where(counted, rows, operand(0, rows.dtype)), bag_of, bags)
        if mode == MEAN:
            found = found / hnp.expand_dims(convert(hnp.maximum(sizes, operand(1, S64)), found.dtype), 1)
    declared = zip((bag_of, sizes, maxima), nothing[1:], strict=True)
    return found, *[value if value.shape == empty.shape else empty for value, empty in declared]


@rule("_embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    grad, indices, bag_of, sizes, maxima, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx=-1
):
    """The derivative of the table of `num_weights` rows."""
    dtype, grad, indices = grad.dtype, _computed(grad), convert(indices, S64)
    features = grad.shape[1]
    if not indices.size:
        return lax.full((num_weights, features), 0, dtype)
    if mode == MAX:
        some = hnp.expand_dims(sizes > operand(0, sizes.dtype), 1)
        columns = hnp.broadcast_to(hnp.expand_dims(lax.iota(S64, features), 0), maxima.shape)
        parts = hnp.where(some, grad, operand(0, grad.dtype))
        return convert(
            lax.full((num_weights, features), 0, grad.dtype).at[convert(maxima, S64), columns].add(parts), dtype
        )
    parts = hnp.take(grad, bag_of, axis=0)
    if mode == MEAN:
        count = hnp.take(sizes, bag_of)
        parts = parts / hnp.expand_dims(convert(hnp.maximum(count, operand(1, count.dtype)), parts.dtype), 1)
    if per_sample_weights is not None:
        parts = parts * hnp.expand_dims(convert(per_sample_weights, parts.dtype), 1)
    if scale_grad_by_freq:
        uses = _sums(lax.full(indices.shape, 1, parts.dtype), indices, num_weights)
        parts = parts / hnp.expand_dims(hnp.take(uses, indices), 1)
    counted = hnp.expand_dims(_counted(indices, padding_idx), 1)
    return convert(_sums(hnp.where(counted, parts, operand(0, parts.dtype)), indices, num_weights), dtype)


@rule("_embedding_bag_backward.default")
def embedding_bag_backward(
    grad, indices, offsets, bag_of, sizes, maxima, num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights,
    padding_idx=-1,
):  # fmt: skip
    """As the dense one; the bags of the indices are computed where the forward left them out."""
    if indices.size and not bag_of.size:
        bag_of = _bag_of(offsets, grad.shape[0], indices.size)
    return embedding_bag_dense_backward(
        grad, indices, bag_of, sizes, maxima, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx
    )


@rule("_embedding_bag_per_sample_weights_backward.default")
def embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, bag_of, mode, padding_idx=-1):
    """The derivative of the factors of sums, one for each index."""
    indices = convert(indices, S64)
    if not indices.size:
        return lax.full(indices.shape, 0, grad.dtype)
    if not bag_of.size:
        bag_of = _bag_of(offsets, grad.shape[0], indices.size)
    parts = _computed(hnp.take(grad, bag_of, axis=0)) * _computed(hnp.take(weight, indices, axis=0))
    found = hnp.sum(parts, axis=1)
    return convert(hnp.where(_counted(indices, padding_idx), found, operand(0, found.dtype)), grad.dtype)
