"""x[index]: NumPy's indexing, basic and advanced. `Index` is an index resolved for an array of given sizes."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from hloom import lax
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.arrays.digits import has_twin
from hloom.arrays.eager import eager_device, eager_result, log_placement
from hloom.config import config
from hloom.dispatch.counted_sizes import counts
from hloom.errors import IndexOutOfBoundsError, NonConcreteBooleanIndexError, UnsupportedIndexError
from hloom.ir.records import field, record
from hloom.ir.sizes.expressions import Size, SizeExpression, greatest, is_known, least
from hloom.ir.types import DTYPES, INTEGERS, PRED, Shape
from hloom.lax.movement import slice_by
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    constant,
    convert,
    convert_index,
    index_of_axis,
    product,
    reshape_to,
    static_size,
    whole_number,
)
from hloom.lax.slicing import GatherDimensionNumbers, GatherScatterMode, gather
from hloom.numpy.indexing.nonzero import nonzero
from hloom.tracing.trace import Tracer, bind, current_trace

_STATIC_ENTRIES = frozenset((int, np.int32, np.int64, builtins.slice, type(None), type(Ellipsis)))
S32, S64 = DTYPES["s32"], DTYPES["s64"]
_HINT = "index with integers, slices, None, Ellipsis, and arrays of integers or booleans"


@record
class Index:
    """An index, axis by axis.

    items: in the order of the index, (kind, payload): 'new' (None), 'slice', 'integer' (an axis each) or 'array'.
    bounds: for each axis the (start, limit, step) of the static part, step > 0; an array's axis is whole.
    reverse: the axes whose static part is then reversed. arrays: axis -> integers, an ndarray, Array or Tracer.
    integers: the axes with a static integer.
    """

    dims: tuple[int, ...]
    items: list[tuple[str, int]] = field(default_factory=list)
    bounds: list[tuple[Any, Any, int]] = field(default_factory=list)
    reverse: list[int] = field(default_factory=list)
    arrays: dict[int, np.ndarray | ArrayMethods] = field(default_factory=dict)
    integers: set[int] = field(default_factory=set)

    def counts(self) -> list[int]:
        """The shape of the static part, one for each axis."""
        return [count_of(*b) for b in self.bounds]

    def is_whole(self) -> bool:
        """Whether the static part is the whole array, unchanged."""
        return not self.reverse and all(
            step == 1 and is_known(start == 0) and is_known(limit == extent)
            for (start, limit, step), extent in zip(self.bounds, self.dims, strict=True)
        )

    def place(self) -> tuple[bool, int, int]:
        """(whether the arrays are adjacent, kept and new axes before them, kept axes before them)."""
        advanced = [k for k, (kind, _) in enumerate(self.items) if kind in ("array", "integer")]
        if not self.arrays or advanced != list(range(advanced[0], advanced[-1] + 1)):
            return False, 0, 0
        before = [kind for kind, _ in self.items[: advanced[0]]]
        return True, len(before), before.count("slice")

    def kept(self) -> list[int]:
        """The axes that remain, in order."""
        return [axis for kind, axis in self.items if kind == "slice"]

    def array_shape(self) -> tuple[int, ...]:
        """The shape to which the arrays broadcast."""
        if not self.arrays:
            return ()
        return broadcast_shapes("indexing with arrays", [a.shape for a in self.arrays.values()])

    def shape(self, core: bool = False) -> tuple[int, ...]:
        """The shape of the indexed part; core: without new axes."""
        counts = self.counts()
        rest = [1 if kind == "new" else counts[axis] for kind, axis in self.items if kind in ("slice", "new")]
        _, before, kept_before = self.place()
        if core:
            rest, before = [counts[axis] for axis in self.kept()], kept_before
        return (*rest[:before], *self.array_shape(), *rest[before:])


def count_of(start: Size, limit: Size, step: int) -> Any:
    """The number of elements of a static part; step > 0, start <= limit."""
    return -((start - limit) // step)


def _is_numpy(value) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


# --- reading an index ---------------------------------------------------------------------------------------------


def read_index(x, index, clamps: bool = False, wrap_negative: bool = True) -> Index:
    """The `Index` for the expression in x[...].

    clamps: a static integer out of bounds becomes an array, to which the mode applies; otherwise it raises.
    wrap_negative: negative integers count from the end; otherwise they are out of bounds. Raises IndexOutOfBoundsError,
    UnsupportedIndexError, NonConcreteBooleanIndexError, ShapeError.
    """
    result = Index(x.shape)
    axis = 0

    for entry in _entries(x, index if isinstance(index, tuple) else (index,)):
        if entry is None:
            result.items.append(("new", -1))
            continue
        if isinstance(entry, builtins.slice):
            _read_slice(x, entry, axis, result)
        elif isinstance(entry, (int, SizeExpression)) and not (
            clamps and not (-x.shape[axis] if wrap_negative else 0) <= entry < x.shape[axis]
        ):
            position = _position(x, entry, axis, x.shape[axis])
            result.bounds.append((position, position + 1, 1))
            result.items.append(("integer", axis))
            result.integers.add(axis)
        else:
            result.arrays[axis] = _static_index(entry) if isinstance(entry, int) else entry
            result.bounds.append((0, x.shape[axis], 1))
            result.items.append(("array", axis))
        axis += 1
    return result


def _static_index(entry: int) -> np.ndarray:
    """A Python integer as an index array: s32 if it fits, else the nearest s64."""
    small, large = np.iinfo(np.int32), np.iinfo(np.int64)
    if small.min <= entry <= small.max:
        return np.asarray(entry, S32)
    return np.asarray(min(max(entry, large.min), large.max), S64)


def _read_slice(x, entry, axis: int, result: Index) -> None:
    extent = x.shape[axis]
    if any(isinstance(n, SizeExpression) for n in (extent, entry.start, entry.stop)):
        _read_slice_of_size(x, entry, axis, result)
        return
    start, stop, step = _slice_bounds(x, entry, extent)
    count = len(range(start, stop, step))
    if not count:
        result.bounds.append((0, 0, 1))
    elif step > 0:
        result.bounds.append((start, start + (count - 1) * step + 1, step if count > 1 else 1))
    else:
        # The same elements in increasing order, then reversed.
        last = start + (count - 1) * step
        result.bounds.append((last, start + 1, -step if count > 1 else 1))
        result.reverse += [axis] if count > 1 else []
    result.items.append(("slice", axis))


def _read_slice_of_size(x, entry, axis: int, result: Index) -> None:
    """A slice of an axis with a dynamic size, or with dynamic bounds."""
    extent = x.shape[axis]
    step = 1 if entry.step is None else whole_number(entry.step, "a slice", "step")
    if step == 0:
        raise UnsupportedIndexError(
            "a slice takes integers, and a step other than 0", f"{entry!r} of {x._shape!r}", "check its bounds"
        )

    def bound(given, default: Size, low: Size, high: Size) -> Size:
        if given is None:
            return default
        size = static_size(given, "a slice", "bound")
        return least(greatest(size + extent if size < 0 else size, low), high)

    if step > 0:
        start, stop = bound(entry.start, 0, 0, extent), bound(entry.stop, extent, 0, extent)
        result.bounds.append((start, greatest(start, stop), step))
    else:  # the same elements in increasing order, then reversed
        start, stop = bound(entry.start, extent - 1, -1, extent - 1), bound(entry.stop, -1, -1, extent - 1)
        if step == -1:
            result.bounds.append((least(start, stop) + 1, start + 1, 1))
        else:
            count = (start - stop - step - 1) // -step
            if not count > 0:
                start, count = 0, 0
            result.bounds.append((start + (count - 1) * step, start + 1, -step))
        result.reverse.append(axis)
    result.items.append(("slice", axis))


def _entries(x, index) -> list:
    """One entry per axis and new axis: masks as index arrays, the Ellipsis expanded to whole slices."""
    entries = []
    for entry in index:
        entry = _entry(entry)
        if (not isinstance(entry, ArrayMethods) and not _is_numpy(entry)) or entry.dtype != PRED:
            entries.append(entry)
            continue
        if not entry.ndim:
            if not concrete_mask(entry):
                raise UnsupportedIndexError(
                    "one false boolean among other indexes", f"{index!r:.80}", "index by it alone"
                )
            entries.append(None)
            continue
        axis = _axis_of(x, entries, index)
        entries += _mask(x, entry, axis)
    named = sum(e is not None and e is not Ellipsis for e in entries)
    dots = sum(e is Ellipsis for e in entries)
    if dots > 1 or named > x.ndim:
        raise _too_many(x, named, dots)
    if not dots:
        entries.append(Ellipsis)
    place = next(k for k, e in enumerate(entries) if e is Ellipsis)
    return entries[:place] + [builtins.slice(None)] * (x.ndim - named) + entries[place + 1 :]


def _axis_of(x, entries, index) -> int:
    """The axis at which the next entry begins."""
    if Ellipsis not in [e for e in entries if e is Ellipsis]:
        return sum(e is not None for e in entries)
    # After the Ellipsis: counted from the end.
    after = next(k for k, e in enumerate(index) if e is Ellipsis) + 1
    behind = 0
    for entry in index[after:]:
        entry = _entry(entry)
        is_mask = isinstance(entry, ArrayMethods) or _is_numpy(entry)
        behind += entry.ndim if is_mask and entry.dtype == PRED else entry is not None
    done = len(entries) - 1 - next(k for k, e in enumerate(entries) if e is Ellipsis)
    done -= sum(e is None for e in entries[len(entries) - done :]) if done else 0
    return x.ndim - behind + done


def _mask(x, mask, axis: int) -> list:
    """The indices of the true elements of a boolean array, one array per dimension.

    An empty mask selects nothing along any axis: the Array API standard allows its sizes to be 0 where the array's are
    not.
    """
    dims = x.shape[axis : axis + mask.ndim]
    if len(dims) != mask.ndim or any(m not in (d, 0) for m, d in zip(mask.shape, dims, strict=True)):
        raise IndexOutOfBoundsError(
            f"a boolean index with the sizes of the axes from {axis} on",
            f"a mask of {tuple(mask.shape)} for {x._shape!r}",
            f"make the mask's sizes {dims}" if len(dims) == mask.ndim else "use a mask of lower rank",
        )
    return list(nonzero(mask) if counts(mask) else np.nonzero(concrete_mask(mask)))


def concrete_mask(mask) -> np.ndarray:
    """The values of a boolean array. Raises NonConcreteBooleanIndexError for a traced one."""
    if isinstance(mask, Tracer):
        if mask.value is None:
            raise NonConcreteBooleanIndexError(
                "a boolean index inside of jit",
                f"a traced mask {mask._shape!r}: the number of selected elements is known only at run time",
                "use hnp.where(mask, x, y), or hnp.nonzero(mask, size=n) to name a fixed number of them",
            )
        return np.asarray(mask.value)
    return np.asarray(mask._value() if isinstance(mask, Array) else mask)


def _too_many(x, named, dots):
    if dots > 1:
        return IndexOutOfBoundsError("an index with one Ellipsis at most", f"{dots} of them", "write the slices out")
    return IndexOutOfBoundsError(
        f"an index of {named} axes", f"{x._shape!r}, which has {x.ndim}", "remove indexes, or add axes with None"
    )


def _entry(entry):
    """None, Ellipsis, a slice, a Python integer, or an array of integers or booleans. Raises UnsupportedIndexError."""
    if entry is None or entry is Ellipsis or isinstance(entry, (builtins.slice, SizeExpression)):
        return entry
    if isinstance(entry, (bool, np.bool_)):
        return np.asarray(entry)
    if isinstance(entry, int):
        return int(entry)
    if isinstance(entry, (list, tuple)):
        numbers = None if len(entry) else S32
        entry = as_operand(entry, "indexing") if _holds_arrays(entry) else np.asarray(entry, numbers)
    if isinstance(entry, ArrayMethods):
        if entry.dtype in INTEGERS or entry.dtype == PRED:
            return entry
        raise _no_index(f"an array {entry._shape!r}")
    if isinstance(entry, (np.ndarray, np.generic)):
        if entry.dtype.kind not in "iub":
            raise _no_index(f"an array of {entry.dtype} {entry!r:.60}")
        return entry if entry.ndim or entry.dtype.kind == "b" else int(entry)
    if hasattr(entry, "__index__"):
        return entry.__index__()
    if hasattr(entry, "__array__") or hasattr(entry, "__dlpack__"):
        return _entry(as_operand(entry, "indexing"))
    raise _no_index(f"{type(entry).__name__}: {entry!r:.80}")


def _no_index(found: str) -> UnsupportedIndexError:
    return UnsupportedIndexError(
        "an array takes integers, booleans, slices, None and Ellipsis as indexes",
        found,
        "convert it with astype('int32') if it counts elements" if "array" in found else _HINT,
    )


def _holds_arrays(value) -> bool:
    return any(isinstance(v, ArrayMethods) or (isinstance(v, (list, tuple)) and _holds_arrays(v)) for v in value)


def _slice_bounds(x, entry, extent) -> tuple[int, int, int]:
    try:
        return entry.indices(extent)
    except (TypeError, ValueError) as error:
        if any(isinstance(b, ArrayMethods) for b in (entry.start, entry.stop, entry.step)):
            raise
        raise UnsupportedIndexError(
            "a slice takes integers, and a step other than 0", f"{entry!r} of {x._shape!r}: {error}", "check its bounds"
        ) from None


def _position(x, entry: Size, axis: int, extent: Size) -> Any:
    if not -extent <= entry < extent:
        if config.clamp_indexes and extent:
            return 0 if entry < 0 else extent - 1
        raise IndexOutOfBoundsError(
            f"element {entry} of axis {axis}",
            f"{x._shape!r}, whose axis {axis} has size {extent}",
            f"index between {-extent} and {extent - 1}" if extent else "the axis is empty",
        )
    return entry + extent if entry < 0 else entry


def _not_empty(x, axis: int) -> None:
    if not x.shape[axis]:
        raise IndexOutOfBoundsError(
            f"an element of axis {axis}", f"{x._shape!r}, whose axis {axis} is empty", "pass a non-empty array"
        )


# --- elements -----------------------------------------------------------------------------------------------------


def index_array(x, index):
    """The part of x selected by `index`, by NumPy's rules.

    index: an integer, a slice (any step), None (a new axis), Ellipsis, an array of integers or a boolean mask, or a
    tuple of these. A negative integer counts from the end. A static integer out of bounds raises; a computed one is
    clamped, since a compiled function cannot raise. Under jit, a mask yields a dynamic size. Raises
    IndexOutOfBoundsError (also for too many indexes and masks of other sizes), UnsupportedIndexError,
    NonConcreteBooleanIndexError.
    """
    x = as_operand(x, "indexing")
    if x.__class__ is Array and current_trace() is None and (found := _view_of(x, index)) is not None:
        return found
    if is_false(index):
        return reshape_to(
            slice_by(reshape_to(x, (1, *x.shape)), ((0, 0, 1), *((0, d, 1) for d in x.shape))), (0, *x.shape)
        )
    read = read_index(x, index)
    if not read.arrays:
        return reshape_to(static_part(x, read), read.shape())
    if all(isinstance(a, ArrayMethods) and not a.ndim for a in read.arrays.values()):
        return _dynamic(x, read)
    if (
        current_trace() is None
        and isinstance(x, Array)
        and not x.is_sharded
        and not has_twin(x)
        and not any(isinstance(a, Tracer) for a in read.arrays.values())
    ):
        return _at_once(x, read)
    mode = GatherScatterMode.PROMISE_IN_BOUNDS if config.clamp_indexes else GatherScatterMode.CLIP
    return take_index(x, read, mode)


def _view_of(x: Array, index) -> Array | None:
    """Outside of a trace: x by static and computed integers, slices, None and Ellipsis. None if there are others, or if
    NumPy rejects them."""
    operands: tuple[Array, ...] = (x,)
    for entry in index if index.__class__ is tuple else (index,):
        if entry.__class__ not in _STATIC_ENTRIES:
            if entry.__class__ is not Array or entry._shape.dims or entry._shape.dtype not in INTEGERS:
                return None
            operands = (*operands, entry)
    if len(operands) > 1:
        index = _moved_inside(x, index if index.__class__ is tuple else (index,))
        if index is None:
            return None
    if x.is_sharded or has_twin(x):
        return None
    value = x._in_any_order()
    try:
        found = value[index]
    except (IndexError, TypeError, ValueError):
        return None
    return eager_result(found, x.weak, eager_device(operands, "indexing"), "slice", operands)


def _moved_inside(x: Array, index: tuple) -> tuple | None:
    """An index with computed integers as static ones, clamped to the bounds. None unless each of them indexes the axis
    of its position, or if an axis is empty."""
    dims = x._shape.dims
    if len(index) > len(dims) or 0 in dims or any(e is None or e is Ellipsis for e in index):
        return None
    entries = []
    for entry, extent in zip(index, dims, strict=False):
        if entry.__class__ is Array:
            position = int(entry._value())
            entry = min(max(position + extent if position < 0 else position, 0), extent - 1)
        entries.append(entry)
    return tuple(entries)


def is_false(index) -> bool:
    """Whether an index is a single false boolean, which selects nothing along a new axis. Raises
    NonConcreteBooleanIndexError."""
    if not isinstance(index, (bool, np.bool_, np.ndarray, ArrayMethods)):
        return False
    if isinstance(index, (bool, np.bool_)):
        return not index
    return not index.ndim and index.dtype == PRED and not concrete_mask(index)


def static_part(x, read: Index):
    """x by the slices and integers of the index; an array's axis stays whole."""
    return lax.rev(slice_by(x, tuple(read.bounds)), read.reverse)


def _dynamic(x, read: Index):
    """Scalar indices: one window, which compiled code reads in place, and to which its cotangent is added."""
    for axis in read.arrays:
        _not_empty(x, axis)
    whole = [(0, d, 1) for d in x.shape]
    dense = [low if low[2] == 1 else all_ for low, all_ in zip(read.bounds, whole, strict=True)]
    spaced = [all_ if low[2] == 1 else low for low, all_ in zip(read.bounds, whole, strict=True)]
    part = slice_by(x, tuple(spaced))
    starts, sizes = [], []
    for axis, ((low, high, _), extent) in enumerate(zip(dense, part.shape, strict=True)):
        at = axis in read.arrays
        starts.append(read.arrays[axis] if at else low)
        sizes.append(1 if at else min(high, extent) - low)
    return reshape_to(lax.rev(lax.dynamic_slice(part, starts, sizes), read.reverse), read.shape())


def known_inside(x, read: Index, wrap_negative: bool) -> Array | None:
    """Outside of a trace: the elements selected by an index with arrays. None if an index is out of bounds."""
    if not isinstance(x, Array) or x.is_sharded or current_trace() is not None:
        return None
    for place in read.arrays.values():
        if isinstance(place, Tracer):
            return None
        values = np.asarray(place._value() if isinstance(place, Array) else place)
        if not wrap_negative and values.size and values.min() < 0:
            return None
    try:
        return _at_once(x, read, inside=True)
    except IndexError:
        return None


def _at_once(x: Array, read: Index, inside: bool = False) -> Array:
    """Outside of a trace: NumPy's indexing, with out-of-bounds indices clamped, or an IndexError for them."""
    value = x._value()[tuple(builtins.slice(*b) for b in read.bounds)]
    value = np.flip(value, tuple(read.reverse)) if read.reverse else value
    entries: list[builtins.slice | int | np.ndarray | None] = []
    for kind, axis in read.items:
        if kind == "new":
            entries.append(None)
        elif kind == "slice":
            entries.append(builtins.slice(None))
        elif kind == "integer":
            entries.append(0)
        else:
            place = read.arrays[axis]
            place = place._value() if isinstance(place, Array) else np.asarray(place)
            if place.size and not inside:
                _not_empty(x, axis)
            if place.dtype == np.uint64:  # beyond the end, not negative
                place = np.minimum(place, np.iinfo(np.int64).max)
            entries.append(place.astype(np.int64, copy=False))
    shape = read.shape()  # raises if the arrays do not broadcast
    try:
        found = value[tuple(entries)]
    except IndexError:
        if inside:
            raise
        moved = iter([axis for kind, axis in read.items if kind == "array"])
        found = value[tuple(_nearest(e, x.shape[next(moved)]) if isinstance(e, np.ndarray) else e for e in entries)]
    device = eager_device((x, *(a for a in read.arrays.values() if isinstance(a, Array))), "indexing")
    log_placement("gather", device)
    return Array(np.ascontiguousarray(found).reshape(shape), x.weak, device)


def _nearest(place: np.ndarray, extent: int) -> np.ndarray:
    """Indices, with negative ones counted from the end and out-of-bounds ones clamped."""
    return np.clip(np.where(place < 0, place + extent, place), 0, max(extent - 1, 0))


def start_indices(read: Index, wrap_negative: bool = True):
    """The index arrays broadcast together, components in the last dimension: start indices of a gather."""
    dims = read.array_shape()
    arrays = [_wrapped(a, read.dims[axis], wrap_negative) for axis, a in read.arrays.items()]
    if len({a.dtype for a in arrays}) > 1:
        wide = any(a.dtype.itemsize == 8 or a.dtype == DTYPES["u32"] for a in arrays)
        arrays = [convert_index(a, S64 if wide else S32) for a in arrays]
    columns = [reshape_to(broadcast_dims_to(a, dims), (*dims, 1)) for a in arrays]
    return columns[0] if len(columns) == 1 else bind("concatenate", *columns, dimensions=(len(dims),))


def _wrapped(array, extent: int, wrap_negative: bool):
    """Indices with negative ones converted to count from the front."""
    if isinstance(array, Array) and not isinstance(extent, SizeExpression):
        array = array._value()
    if _is_numpy(array):
        array = np.asarray(array)
        if array.dtype.kind != "i":
            return as_operand(array, "indexing")
        array = array if array.dtype.itemsize >= 4 else array.astype(np.int32)
        if isinstance(extent, SizeExpression):
            traced = as_operand(array, "indexing")
            return _wrapped(traced, extent, wrap_negative) if (array < 0).any() else traced
        return as_operand(np.where(array < 0, array + extent, array) if wrap_negative else array, "indexing")
    if array.dtype.kind == "u":
        return array
    if array.dtype.itemsize < 4:
        array = convert(array, S32)
    if not wrap_negative:
        return array
    array = index_of_axis(array, extent)
    zero, more = (_splat(constant(v, array.dtype), array) for v in (0, extent))
    return bind("select", bind("compare", array, zero, direction="LT"), bind("add", array, more), array)


def _splat(scalar, like):
    if not like.ndim:
        return scalar
    return bind("broadcast", scalar, shape=Shape(scalar.dtype, like.shape), dimensions=())


def take_index(x, read: Index, mode, fill_value=None, sorted_: bool = False, wrap_negative: bool = True):
    """The gather of an index that has arrays."""
    if mode is not GatherScatterMode.FILL_OR_DROP:
        for axis in read.arrays:
            if not x.shape[axis] and product(read.array_shape()):
                _not_empty(x, axis)
    part = static_part(x, read)
    indices = start_indices(read, wrap_negative)
    rank = indices.ndim - 1
    kept = read.kept()
    _, _, before = read.place()
    offset = (*range(before), *range(before + rank, len(kept) + rank))
    collapsed = tuple(sorted({*read.arrays, *read.integers}))
    sizes = [d if k in kept else 1 for k, d in enumerate(part.shape)]
    if any(
        is_known(part.shape[axis] == 0) for axis in read.arrays
    ):  # an empty axis: nothing to read, so nothing or fill values
        part = lax.pad(part, 0, [(0, int(not d and k in read.arrays), 0) for k, d in enumerate(part.shape)])
        indices = lax.full_like(indices, -1)
    numbers = GatherDimensionNumbers(offset, collapsed, tuple(read.arrays))
    found = gather(part, indices, numbers, sizes, mode=mode, fill_value=fill_value, indices_are_sorted=sorted_)
    return reshape_to(found, read.shape())
