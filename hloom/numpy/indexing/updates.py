"""x.at[index]: copies with some elements changed, since arrays are immutable."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from hloom import lax
from hloom.arrays.base import ArrayMethods
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import NonConcreteBooleanIndexError, ShapeError
from hloom.ir.records import replace
from hloom.ir.types import DTYPES, INEXACT, INTEGERS, PRED, Shape
from hloom.lax.operands import (
    NUMBERS,
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    constant,
    convert,
    dtype_of,
    inexact_dtype,
    limits,
    promoted,
    reshape_to,
    with_weakness,
)
from hloom.lax.slicing import (
    GatherScatterMode,
    ScatterDimensionNumbers,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
)
from hloom.numpy.elementwise.ufuncs import divide, power
from hloom.numpy.indexing.subscripts import (
    Index,
    count_of,
    is_false,
    known_inside,
    read_index,
    start_indices,
    static_part,
    take_index,
)
from hloom.tracing.trace import Tracer, bind


class IndexUpdates:
    """The object `x.at`: `x.at[index]` has the methods of `IndexedPart`."""

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index) -> IndexedPart:
        return IndexedPart(self.array, index)

    def __repr__(self) -> str:
        return f"IndexUpdates({self.array!r})"


class IndexedPart:
    """The elements of an array selected by an index, for reading and for modified copies.

    Every method takes indices_are_sorted and unique_indices (promises that allow faster code), mode (for indices out of
    bounds: 'drop' (the default of updates), 'clip', 'promise_in_bounds', for get also 'fill') and
    wrap_negative_indices. values broadcast to the selected part. The result has the array's dtype; if values have a
    wider one, the update is computed in the promoted dtype, then converted: [4, 6] of s32 multiplied by 1.5 is [6, 9].
    For repeated indices, add, multiply, min, max and apply accumulate, and set keeps the last. Raises
    IndexOutOfBoundsError, UnsupportedIndexError, NonConcreteBooleanIndexError, ShapeError, DTypeError.
    """

    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"IndexedPart({self.array!r}, {self.index!r})"

    @takes_out_sharding
    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode=None,
        fill_value=None,
        out_sharding=None,
        wrap_negative_indices: bool = True,
    ):
        """The elements x[index], with out-of-bounds indices by `mode`: clamped by default, filled if fill_value is
        given."""
        x = as_operand(self.array, "at[].get")
        if mode is None:
            mode = GatherScatterMode.CLIP if fill_value is None else GatherScatterMode.FILL_OR_DROP
        mode = GatherScatterMode.from_any(mode)
        read = read_index(x, self.index, True, wrap_negative_indices)
        if not read.arrays:
            return reshape_to(static_part(x, read), read.shape())
        found = known_inside(x, read, wrap_negative_indices)
        if found is not None:
            return found
        return take_index(x, read, mode, fill_value, indices_are_sorted, wrap_negative_indices)

    def set(self, values, **options):
        """x with the selected elements replaced by values."""
        return self._updated("set", values, **options)

    def add(self, values, **options):
        """x with values added to the selected elements."""
        return self._updated("add", values, **options)

    def subtract(self, values, **options):
        """x with values subtracted from the selected elements."""
        return self._updated("subtract", values, **options)

    sub = subtract

    def multiply(self, values, **options):
        """x with the selected elements multiplied by values."""
        return self._updated("multiply", values, **options)

    mul = multiply

    def divide(self, values, **options):
        """x with the selected elements divided by values. Integers become floats, as by x / y."""
        x = as_operand(self.array, "at[].divide")
        divided = divide(x, self._factors(x, values, options))
        return convert(divided, inexact_dtype(x.dtype), divided.weak)

    def power(self, values, **options):
        """x with the selected elements raised to values."""
        x = as_operand(self.array, "at[].power")
        exponents = self._factors(x, values, options)
        raised = convert(power(x, exponents), x.dtype, x.weak)
        return raised if _holds(exponents.dtype, x.dtype) else self._touched(raised, x, options)

    def min(self, values, **options):
        """x with the minimum of the selected elements and values."""
        return self._updated("min", values, **options)

    def max(self, values, **options):
        """x with the maximum of the selected elements and values."""
        return self._updated("max", values, **options)

    def apply(self, func, **options):
        """x with func applied to the selected elements; func takes and returns one element, or a whole array with
        unique indices."""
        return self._updated("apply", func, **options)

    def _factors(self, x, values, options):
        """1 in the promoted dtype of x and values, with values at the selected elements."""
        ones = lax.full_like(x, 1, _common_dtype(x, values) or x.dtype)
        return IndexedPart(ones, self.index)._updated("multiply", values, **options)

    def _touched(self, changed, x, options):
        """changed at the selected elements, x elsewhere."""
        touched = IndexedPart(lax.full_like(x, False, PRED), self.index).set(True, **options)
        return bind("select", touched, changed, x, weak=x.weak)

    def _promoted(self, kind: str, x, values, dtype, options):
        """The update computed in the promoted dtype of x and values. Other elements keep their digits."""
        wide = IndexedPart(convert(x, dtype), self.index)
        changed = convert(wide._updated(kind, convert(values, dtype), **options), x.dtype, x.weak)
        return changed if _holds(dtype, x.dtype) else self._touched(changed, x, options)

    def _updated(self, kind: str, values, **options):
        """One kind of update, after promotion."""
        x = as_operand(self.array, f"at[].{kind}")
        if kind not in ("set", "apply"):
            if not isinstance(values, ArrayMethods) and type(values) not in NUMBERS:
                values = as_operand(values, f"at[].{kind}")
            dtype = _common_dtype(x, values)
            if dtype is not None:
                return self._promoted(kind, x, values, dtype, options)
            if kind == "subtract":
                kind, values = "add", bind("negate", convert(values, x.dtype))
        changed = self._changed(x, kind, values, **options)
        return with_weakness(changed, x.weak)

    @takes_out_sharding
    def _changed(
        self,
        x,
        kind: str,
        values,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode=None,
        out_sharding=None,
        wrap_negative_indices: bool = True,
    ):
        name = f"at[].{kind}"
        mode = GatherScatterMode.from_any(mode)
        if not isinstance(values, ArrayMethods) and kind != "apply":
            values = constant(values, x.dtype) if type(values) in NUMBERS else as_operand(values, name)
        if _is_for_all(x, self.index, kind, values):
            return _where_mask(x, self.index, kind, values)
        try:
            if is_false(self.index):
                return x
            read = read_index(x, self.index, True, wrap_negative_indices)
        except NonConcreteBooleanIndexError:
            return _where_mask(x, self.index, kind, values)
        unique_indices = unique_indices or (kind != "apply" and _is_mask(self.index))
        if kind != "apply":
            values = _to_core(convert(values, x.dtype), read, name)
        if not read.arrays:
            return with_static_part(x, read, _combined(kind, static_part(x, read), values, read))
        whole, placed = _placed(read)
        part = static_part(x, whole)
        if kind == "apply" and unique_indices:
            values = values(take_index(x, read, mode, wrap_negative=wrap_negative_indices))
            values, kind = _to_core(convert(values, x.dtype), read, name), "set"
        if any(not part.shape[axis] for axis in read.arrays):
            return x  # an empty axis: every index is out of bounds
        indices = start_indices(placed, wrap_negative_indices)
        rank, kept = indices.ndim - 1, read.kept()
        _, _, before = read.place()
        window = (*range(before), *range(before + rank, len(kept) + rank))
        numbers = ScatterDimensionNumbers(window, tuple(sorted({*read.arrays, *read.integers})), tuple(placed.arrays))
        options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
        if kind == "apply":
            shape = read.shape(core=True)
            changed = scatter_apply(part, indices, values, numbers, update_shape=shape, **options)
        else:
            changed = _SCATTERS[kind](part, indices, values, numbers, **options)
        return with_static_part(x, whole, changed)


def _placed(read: Index) -> tuple[Index, Index]:
    """(the index with its dense static parts whole, the index with their starts among the arrays): what a scatter
    updates in place. To cut out the static part and to put it back costs its size, in each step of a loop."""
    bounds, arrays = list(read.bounds), dict(read.arrays)
    for axis, ((start, limit, step), size) in enumerate(zip(read.bounds, read.dims, strict=True)):
        numbers = all(isinstance(n, (int, np.integer)) for n in (start, limit, size))
        if axis not in arrays and numbers and step == 1 and start < limit and axis not in read.reverse:
            bounds[axis] = (0, size, 1)
            if limit - start < size:
                arrays[axis] = np.asarray(start, DTYPES["s32" if start < 2**31 else "s64"])
    return replace(read, bounds=bounds), replace(read, arrays=arrays)


_SCATTERS = {"set": scatter, "add": scatter_add, "multiply": scatter_mul, "min": scatter_min, "max": scatter_max}
_OPCODES = {"add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum"}


def _common_dtype(x, values) -> np.dtype | None:
    """The promoted dtype of an array and values (an array or a number); None where that is the array's own."""
    if type(values) not in NUMBERS:
        values = as_operand(values, "at")
    elif type(values) is int and x.dtype in INTEGERS:
        return None  # converts to the array's dtype, or raises if out of range
    dtype, _ = promoted((x.dtype, x.weak), dtype_of(values))
    return None if dtype == x.dtype else dtype


def _holds(wide: np.dtype, narrow: np.dtype) -> bool:
    """Whether every value of one dtype is representable in the other."""
    if narrow in INTEGERS and wide in INEXACT:
        return max(-limits(narrow)[0], limits(narrow)[1]) < 2 ** (ml_dtypes.finfo(wide).nmant + 2)
    return True


def _to_core(values, read: Index, name: str):
    """The values broadcast to the selected part, without its new axes."""
    full, core = read.shape(), read.shape(core=True)
    dims = values.shape
    while len(dims) > len(full) and dims[0] == 1:
        dims = dims[1:]
    values = reshape_to(values, dims)
    if broadcast_shapes(f"{name} (part and values)", [full, dims]) != full:
        raise ShapeError(
            f"{name}: values broadcast to the part that is named",
            f"values {dims}, a part {full}",
            "name a larger part, or reduce the values",
        )

    return reshape_to(broadcast_dims_to(values, full), core)


def _combined(kind: str, part, values, read: Index):
    """The new static part: old elements and values, whose sizes lack the axes with an integer."""
    if kind == "apply":
        made = as_operand(values(reshape_to(part, read.shape())), "at[].apply")
        return reshape_to(convert(made, part.dtype), part.shape)
    values = reshape_to(values, part.shape)
    return values if kind == "set" else bind(_OPCODES[kind], part, values)


def with_static_part(x, read: Index, part):
    """x with the elements selected by the slices and integers of an index replaced."""
    if read.is_whole():
        return part
    part = lax.rev(part, read.reverse)
    if not part.size:
        return x
    starts = [b[0] for b in read.bounds]
    if all(step == 1 for _, _, step in read.bounds):
        return lax.dynamic_update_slice(x, part, starts)
    padding, mask_padding = [], []
    for (start, limit, step), extent in zip(read.bounds, x.shape, strict=True):
        last = start + (count_of(start, limit, step) - 1) * step + 1  # after it; the limit may be further
        padding.append((start, extent - last, step - 1))
        mask_padding.append((start, extent - last, step - 1))
    spread = bind("pad", part, constant(0, part.dtype), padding=tuple(padding))
    everywhere = bind("broadcast", constant(True, PRED), shape=Shape(PRED, part.shape), dimensions=())
    mask = bind("pad", everywhere, constant(False, PRED), padding=tuple(mask_padding))
    return bind("select", mask, spread, x)


def _alone(index):
    """The entry of an index that has only one; None for other indexes."""
    return index if not isinstance(index, tuple) else index[0] if len(index) == 1 else None


def _is_mask(index) -> bool:
    """Whether an index is one mask, which selects no element twice."""
    return isinstance(_alone(index), (ArrayMethods, np.ndarray)) and _alone(index).dtype == PRED


def _only_mask(x, index):
    """The traced mask that an index is; None for other indexes."""
    index = _alone(index)
    is_mask = isinstance(index, Tracer) and index.dtype == PRED and index.value is None
    return index if is_mask and index.shape == x.shape[: index.ndim] else None


def _is_for_all(x, index, kind: str, values) -> bool:
    """Whether an update at one traced mask needs no number of selected elements: all get the same values."""
    mask = _only_mask(x, index)
    return mask is not None and (kind == "apply" or len(np.shape(values)) <= x.ndim - mask.ndim)


def _where_mask(x, index, kind: str, values):
    """The update for one traced mask and values that broadcast over it: an element-wise select."""
    mask = _only_mask(x, index)
    if mask is None or not _is_for_all(x, index, kind, values):
        raise NonConcreteBooleanIndexError(
            "a change at a boolean index inside of jit",
            f"a traced mask with values {getattr(values, '_shape', values)!r}: the number of selected elements is not "
            "known",
            "use hnp.where(mask, values, x), or a single mask with one value for all elements",
        )
    rest = x.shape[mask.ndim :]

    if kind == "apply":
        new = convert(as_operand(values(x), "at[].apply"), x.dtype)
    else:
        values = convert(values, x.dtype)
        broadcast_shapes("at[].set (part and values)", [rest, values.shape])
        values = broadcast_dims_to(values, x.shape)
        new = values if kind == "set" else bind(_OPCODES[kind], x, values)
    if rest:
        mask = bind("broadcast", mask, shape=Shape(PRED, x.shape), dimensions=tuple(range(mask.ndim)))
    return bind("select", mask, new, x)
