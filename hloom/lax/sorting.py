"""Sorting of `hloom.lax`."""

from __future__ import annotations

from hloom.errors import ArgumentError, ShapeError
from hloom.ir.ops.indexing.sort import comparator
from hloom.lax.operands import as_operand, canonical_axis, whole_number
from hloom.tracing.trace import bind


def sort(operand, dimension: int = -1, is_stable: bool = True, num_keys: int = 1):
    """operand sorted along a dimension; a tuple of arrays is sorted together, by its first num_keys arrays.

    NaN comes last, -0.0 and 0.0 are equal, complex numbers are ordered by real, then imaginary part.
    Raises ShapeError, ArgumentError.

    >>> hl.lax.sort(hnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    >>> hl.lax.sort((hnp.array([3, 1, 2]), hnp.array([30, 10, 20])), num_keys=1)
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    return sort_by(operand, dimension, is_stable, num_keys, False)


def sort_by(operand, dimension: int, is_stable: bool, num_keys: int, descending: bool):
    """`sort`, ascending or descending (then NaN comes first)."""
    several = isinstance(operand, (tuple, list))
    arrays = [as_operand(x, "sort") for x in (operand if several else (operand,))]
    if not arrays or not 1 <= num_keys <= len(arrays):
        raise ArgumentError(
            "sort takes at least one array, and between 1 and that many keys",
            f"{len(arrays)} arrays, num_keys={num_keys}",
            "pass the keys first",
        )
    if any(a.shape != arrays[0].shape for a in arrays):
        raise ShapeError(
            "sort takes arrays of one shape", ", ".join(repr(a._shape) for a in arrays), "broadcast them first"
        )
    axis = canonical_axis(dimension, arrays[0].ndim, "sort")
    to_apply = comparator([a.dtype for a in arrays], num_keys, descending)
    attributes: dict = {"dimensions": (axis,), "to_apply": to_apply}
    if is_stable:
        attributes["is_stable"] = True
    if len(arrays) > 1:
        results = bind("sort", *arrays, **attributes)
        for result, array in zip(results, arrays, strict=True):
            result.weak = array.weak
        return results
    result = bind("sort", arrays[0], weak=arrays[0].weak, **attributes)
    return (result,) if several else result


def sort_key_val(keys, values, dimension: int = -1, is_stable: bool = True):
    """(keys sorted along a dimension, values in the same order). Raises ShapeError.

    >>> hl.lax.sort_key_val(hnp.array([3, 1, 2]), hnp.array([30, 10, 20]))
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    return sort((keys, values), dimension=dimension, is_stable=is_stable, num_keys=1)


def top_k(operand, k: int, *, axis: int = -1):
    """(the k largest elements along an axis in descending order, their indices as s32).

    Equal elements are in order of index; floats use their total order, so 0.0 comes before -0.0 and NaN first.
    Raises ShapeError, AttributeValueError, DTypeError.

    >>> hl.lax.top_k(hnp.array([3, 9, 1, 7]), 2)
    (Array([9, 7], dtype=int32), Array([1, 3], dtype=int32))
    """
    x = as_operand(operand, "top_k")
    k = whole_number(k, "top_k", "k")
    axis = canonical_axis(axis, x.ndim, "top_k")
    if axis == x.ndim - 1:
        values, places = bind("topk", x, k=k, largest=True)
        values.weak = x.weak
        return values, places
    order = [*(d for d in range(x.ndim) if d != axis), axis]
    back = tuple(order.index(d) for d in range(x.ndim))
    found = bind("topk", bind("transpose", x, dimensions=tuple(order)), k=k, largest=True)
    return tuple(bind("transpose", f, dimensions=back) for f in found)


def _approximate(name: str, operand, k, reduction_dimension, aggregate_to_topk, largest: bool):
    x = as_operand(operand, name)
    if not aggregate_to_topk:
        raise ArgumentError(
            f"{name} returns exactly k elements", "aggregate_to_topk=False", "leave aggregate_to_topk at True"
        )
    if largest:
        return top_k(x, k, axis=reduction_dimension)
    values, places = top_k(bind("negate", x), k, axis=reduction_dimension)
    return bind("negate", values), places


def approx_max_k(
    operand,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
):
    """`top_k` along reduction_dimension: exact, so any recall_target is met. Raises ArgumentError like `top_k`.

    >>> hl.lax.approx_max_k(hnp.array([3.0, 9.0, 1.0, 7.0]), 2)
    (Array([9., 7.], dtype=float32), Array([1, 3], dtype=int32))
    """
    return _approximate("approx_max_k", operand, k, reduction_dimension, aggregate_to_topk, True)


def approx_min_k(
    operand,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
):
    """The k smallest along reduction_dimension in ascending order and their indices: exact.

    >>> hl.lax.approx_min_k(hnp.array([3.0, 9.0, 1.0, 7.0]), 2)
    (Array([1., 3.], dtype=float32), Array([2, 0], dtype=int32))
    """
    return _approximate("approx_min_k", operand, k, reduction_dimension, aggregate_to_topk, False)
