"""gather and scatter of `hloom.lax`: elements at computed indices, with modes for indices out of bounds."""

from __future__ import annotations

import enum
from typing import NamedTuple

import ml_dtypes
import numpy as np

from hloom.config import config
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.build import Builder, assignment_computation, scalar_computation
from hloom.ir.ops.indexing.gather import gather_attributes
from hloom.ir.ops.indexing.scatter import scatter_windows
from hloom.ir.ops.indexing.windows import Windows
from hloom.ir.sizes.expressions import Size, SizeExpression, greatest, least
from hloom.ir.types import INEXACT, INTEGERS, PRED, Shape, as_dtype, scalar_dtype
from hloom.lax.operands import (
    NUMBERS,
    as_operand,
    canonical_axis,
    canonical_shape,
    constant,
    convert,
    promoted,
    reshape_to,
)
from hloom.lax.table import docstring, documented
from hloom.tracing.signatures import function_name
from hloom.tracing.trace import bind, trace_function
from hloom.tree import pytrees as tree


class GatherDimensionNumbers(NamedTuple):
    """The dimensions of a gather. The last dimension of the start indices holds their components.

    offset_dims: the result's dimensions within a window. collapsed_slice_dims: the operand's dimensions of window size
    1 that the result lacks. start_index_map: the operand dimension of each component. operand_batching_dims,
    start_indices_batching_dims: corresponding batch dimensions. Source: the gather operation in OpenXLA's operation
    semantics.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """The dimensions of a scatter: as `GatherDimensionNumbers`, with the updates in place of the result."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(enum.Enum):
    """The treatment of indices out of bounds.

    CLIP: clamped. FILL_OR_DROP: a gather returns fill_value, a scatter drops the update. PROMISE_IN_BOUNDS: there are
    none (otherwise a gather clamps, a scatter drops). ONE_HOT: as FILL_OR_DROP.
    """

    CLIP = 0
    FILL_OR_DROP = 1
    PROMISE_IN_BOUNDS = 2
    ONE_HOT = 3

    @staticmethod
    def from_any(mode) -> GatherScatterMode:
        """The mode of a name ('clip', 'fill', 'drop', 'promise_in_bounds'), a mode or None. Raises ArgumentError."""
        if isinstance(mode, GatherScatterMode):
            return mode
        found = _MODES.get(mode) if mode is None or isinstance(mode, str) else None
        if found is None:
            raise ArgumentError(
                "the mode of a gather or scatter",
                f"{mode!r}",
                "one of 'clip', 'fill', 'drop', 'promise_in_bounds'",
            )
        return found


_MODES = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


def default_fill(dtype):
    """The result of a gather for indices out of bounds: NaN, the smallest signed integer, the largest unsigned one,
    True."""
    dtype = as_dtype(dtype)
    if dtype in INEXACT:
        return float("nan")
    if dtype == PRED:
        return True
    info = ml_dtypes.iinfo(dtype)
    return int(info.max if dtype.kind == "u" or int(info.min) == 0 else info.min)


def _indexes(name: str, indices):
    indices = as_operand(indices, name)
    if indices.dtype not in INTEGERS:
        raise DTypeError(f"{name} takes integer indexes", f"{indices._shape!r}", "convert them with astype('int32')")
    if not indices.ndim:
        raise ShapeError(
            f"{name} takes indexes whose last dimension holds the components",
            f"{indices._shape!r}",
            "reshape them to (..., number of components)",
        )
    return indices


def _limits(dtype, limits) -> list[Size]:
    largest = int(np.iinfo(dtype).max)
    return [greatest(least(limit, largest), 0) for limit in limits]


def _vector(sizes: list[Size], dtype):
    if not any(isinstance(size, SizeExpression) for size in sizes):
        return as_operand(np.asarray(sizes, dtype), "clip")
    parts = [reshape_to(constant(size, dtype), (1,)) for size in sizes]
    return bind("concatenate", *parts, dimensions=(0,)) if len(parts) > 1 else parts[0]


def clipped(indices, limits):
    """Indices (components in the last dimension) clamped between 0 and the limits."""
    if not limits:
        return indices
    high = _vector(_limits(indices.dtype, limits), indices.dtype)
    high = bind("broadcast", high, shape=indices._shape, dimensions=(indices.ndim - 1,))
    low = bind("broadcast", constant(0, indices.dtype), shape=indices._shape, dimensions=())
    return bind("clamp", low, indices, high)


def inside(indices, limits):
    """pred with the shape of the indices without the last dimension: whether all components are in 0..limit.

    None if there is nothing to compare."""
    result = None
    for k, limit in enumerate(_limits(indices.dtype, limits)):
        bounds = (*((0, d, 1) for d in indices.shape[:-1]), (k, k + 1, 1))
        one = reshape_to(bind("slice", indices, slice=bounds) if indices.shape[-1] > 1 else indices, indices.shape[:-1])
        for bound, direction in ((0, "GE"), (limit, "LE")):
            if direction == "GE" and indices.dtype.kind == "u":
                continue
            other = bind("broadcast", constant(bound, one.dtype), shape=one._shape, dimensions=())
            condition = bind("compare", one, other, direction=direction)
            result = condition if result is None else bind("and", result, condition)
    return result


def gather(
    operand,
    start_indices,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode=None,
    fill_value=None,
):
    """Windows of `operand`, of sizes slice_sizes, that begin at start_indices.

    start_indices: integers, components in the last dimension. mode: see `GatherScatterMode`, by default
    'fill'; fill_value: by default NaN, the smallest signed or the largest unsigned integer, or True.
    Raises ShapeError, DTypeError, AttributeValueError, ArgumentError.

    >>> numbers = hl.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> rows = hnp.array([[2], [0]])
    >>> hl.lax.gather(hnp.arange(6).reshape(3, 2), rows, numbers, (1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    x, indices = as_operand(operand, "gather"), _indexes("gather", start_indices)
    mode = GatherScatterMode.from_any(mode)
    numbers = GatherDimensionNumbers(*[tuple(int(d) for d in part) for part in dimension_numbers])
    sizes = canonical_shape(slice_sizes, "gather")
    w = Windows(x.shape, indices.shape, *numbers[:3], *numbers[3:], indices.ndim - 1, sizes)
    attributes = gather_attributes(w, indices_are_sorted)
    if mode == GatherScatterMode.PROMISE_IN_BOUNDS and config.clamp_indexes:
        attributes["drops_outside"] = True  # as in JAX, if the promise is broken
    result = bind("gather", x, indices, weak=x.weak, **attributes)
    if mode not in (GatherScatterMode.FILL_OR_DROP, GatherScatterMode.ONE_HOT):
        return result
    valid = inside(indices, w.limits())
    if valid is None:
        return result
    valid = bind("broadcast", valid, shape=Shape(PRED, result.shape), dimensions=w.places)
    return bind("select", valid, result, filled(result, fill_value), weak=x.weak)


def filled(like, fill_value):
    """An array like another one, filled with a fill value; by default that of `default_fill`."""
    value = default_fill(like.dtype) if fill_value is None else fill_value
    if type(value) in NUMBERS:
        value = constant(value, like.dtype)
    else:
        value = convert(as_operand(value, "gather"), like.dtype)
    return bind("broadcast", value, shape=like._shape, dimensions=()) if like.ndim else value


def _updates(name: str, updates, x):
    """The updates of a scatter. A scalar takes the operand's dtype unless that would truncate it, which the op
    rejects."""
    if type(updates) in NUMBERS and promoted((x.dtype, False), scalar_dtype(updates))[0] == x.dtype:
        return constant(updates, x.dtype)
    return as_operand(updates, name)


def _scatter(name, combiner, operand, scatter_indices, updates, numbers, are_sorted, unique, mode):
    x, indices = as_operand(operand, name), _indexes(name, scatter_indices)
    updates = _updates(name, updates, x)
    mode = GatherScatterMode.from_any(mode)
    parts = ScatterDimensionNumbers(*[tuple(int(d) for d in part) for part in numbers])
    attributes = {
        "update_window_dims": parts[0],
        "inserted_window_dims": parts[1],
        "scatter_dims_to_operand_dims": parts[2],
        "input_batching_dims": parts[3],
        "scatter_indices_batching_dims": parts[4],
        "index_vector_dim": indices.ndim - 1,
    }
    if mode == GatherScatterMode.CLIP:
        w = scatter_windows(x.shape, indices.shape, updates.shape, attributes)
        indices = clipped(indices, w.limits())
    if are_sorted:
        attributes["indices_are_sorted"] = True
    if unique:
        attributes["unique_indices"] = True
    return bind("scatter", x, indices, updates, weak=x.weak and updates.weak, **attributes, to_apply=combiner(x.dtype))


def _scatter_function(name: str, opcode: str | None, meaning: str, printed: str):
    def function(
        operand,
        scatter_indices,
        updates,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode=None,
    ):
        combiner = assignment_computation if opcode is None else lambda dtype: scalar_computation(opcode, dtype)
        return _scatter(
            name,
            combiner,
            operand,
            scatter_indices,
            updates,
            dimension_numbers,
            indices_are_sorted,
            unique_indices,
            mode,
        )

    text = f"""operand with windows {meaning} updates, at scatter_indices.

scatter_indices: integers, components in the last dimension. Several updates of one element are applied in order. mode:
see `GatherScatterMode`, by default updates outside are dropped. Raises ShapeError, DTypeError, AttributeValueError,
ArgumentError.
"""
    call = """numbers = hl.lax.ScatterDimensionNumbers((), (0,), (0,))
>>> {f}(hnp.array([5, 5, 5]), hnp.array([[0], [2]]), hnp.array([9, 2]), numbers)"""
    example = call, f"Array({printed}, dtype=int32)"
    return documented(function, name, docstring(text.rstrip(), example, f"hl.lax.{name}"))


scatter = _scatter_function("scatter", None, "replaced by", "[9, 5, 2]")
scatter_add = _scatter_function("scatter_add", "add", "increased by", "[14,  5,  7]")
scatter_mul = _scatter_function("scatter_mul", "multiply", "multiplied by", "[45,  5, 10]")
scatter_min = _scatter_function("scatter_min", "minimum", "replaced by their minimum with", "[5, 5, 2]")
scatter_max = _scatter_function("scatter_max", "maximum", "replaced by their maximum with", "[9, 5, 5]")


def scatter_sub(
    operand,
    scatter_indices,
    updates,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode=None,
):
    """operand with updates subtracted from the windows at scatter_indices; otherwise as `scatter_add`.

    >>> numbers = hl.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> hl.lax.scatter_sub(hnp.zeros(4), hnp.array([[1], [3]]), hnp.array([5.0, 7.0]), numbers)
    Array([ 0., -5.,  0., -7.], dtype=float32)
    """
    x = as_operand(operand, "scatter_sub")
    updates = _updates("scatter_sub", updates, x)
    return scatter_add(
        x,
        scatter_indices,
        bind("negate", updates),
        dimension_numbers,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )


def scatter_apply(
    operand,
    scatter_indices,
    func,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape=(),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode=None,
):
    """operand with func (scalar to scalar of the same dtype) applied to the windows at scatter_indices.

    update_shape: the sizes that the updates of a `scatter` would have. Repeated indices apply func repeatedly.
    Raises ShapeError, DTypeError, ArgumentError.

    >>> numbers = hl.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = hnp.array([1.0, 2.0, 3.0])
    >>> hl.lax.scatter_apply(x, hnp.array([[1]]), lambda v: 10 * v, numbers, update_shape=(1,))
    Array([ 1., 20.,  3.], dtype=float32)
    """
    x = as_operand(operand, "scatter_apply")
    updates = bind("broadcast", constant(0, x.dtype), shape=Shape(x.dtype, tuple(update_shape)), dimensions=())
    return _scatter(
        "scatter_apply",
        lambda dtype: applied(func, dtype),
        x,
        scatter_indices,
        updates,
        dimension_numbers,
        indices_are_sorted,
        unique_indices,
        mode,
    )


def applied(func, dtype):
    """The computation (element, update) -> func(element)."""
    _, structure = tree.flatten(((0,), {}))
    traced = trace_function(func, [Shape(dtype)], structure, function_name(func))
    if traced.captures or not isinstance(traced.computation.shape, Shape) or traced.computation.shape.dims:
        raise ArgumentError(
            "apply takes a function of one element that returns one",
            f"{traced.computation.shape!r}, {len(traced.captures)} traced values from outside",
            "use x.at[i].set(f(x[i])) instead",
        )
    builder = Builder(traced.computation.name)
    element = builder.parameter(Shape(dtype), "element")
    builder.parameter(Shape(dtype), "update")
    root = builder.inline(traced.computation, [element])
    if root.shape.dtype != dtype:
        root = builder.emit("convert", root, shape=Shape(dtype))
    return builder.finish(root)


def index_take(src, idxs, axes):
    """src[..., idxs[0], ..., idxs[1], ...]: simultaneous indexing along several axes; the new dimension comes first.

    idxs: one integer array of rank 1 per axis. Raises ShapeError, DTypeError.

    >>> hl.lax.index_take(hnp.arange(6).reshape(3, 2), (hnp.array([2, 0]),), (0,))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    x = as_operand(src, "index_take")
    axes = tuple(canonical_axis(a, x.ndim, "index_take") for a in axes)
    columns = [reshape_to(as_operand(i, "index_take"), (*as_operand(i, "index_take").shape, 1)) for i in idxs]
    indices = columns[0] if len(columns) == 1 else bind("concatenate", *columns, dimensions=(columns[0].ndim - 1,))
    sizes = tuple(1 if k in axes else d for k, d in enumerate(x.shape))
    rank = columns[0].ndim - 1
    offset = tuple(range(rank, rank + x.ndim - len(axes)))
    numbers = GatherDimensionNumbers(offset, tuple(sorted(axes)), axes)
    return gather(x, indices, numbers, sizes, mode="clip")
