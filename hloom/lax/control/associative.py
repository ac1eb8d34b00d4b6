"""associative_scan: prefix results of an associative function, in logarithmically many steps."""

from __future__ import annotations

import operator

from hloom.errors import ShapeError
from hloom.lax.control.arguments import array_leaves, require_function
from hloom.lax.movement import concatenate, expand_dims, rev, slice_in_dim
from hloom.tracing.regions import same_tree
from hloom.tracing.trace import as_array
from hloom.tree import pytrees as tree


def associative_scan(fn, elems, reverse: bool = False, axis: int = 0):
    """The prefix results of an associative function along an axis, in logarithmically many steps.

    fn: (a, b) -> a tree like elems; it combines slices element-wise. elems: a tree of arrays of equal size along the
    axis. reverse: starts at the end. Returns a tree like elems. G. E. Blelloch, Prefix sums and their applications
    (1990): pairs are combined, scanned at half the length, and the positions in between filled in.

    >>> hl.associative_scan(hnp.maximum, hnp.array([3, 1, 4, 1, 5]))
    Array([3, 3, 4, 4, 5], dtype=int32)
    """
    require_function(fn, "associative_scan", "function")

    leaves, structure, names = array_leaves(elems, "associative_scan", "elems")
    if not leaves:
        return elems
    rank = leaves[0]._shape.rank
    axis = operator.index(axis)
    extents = {}
    for leaf, name in zip(leaves, names, strict=True):
        if not -leaf._shape.rank <= axis < leaf._shape.rank:
            raise ShapeError(
                "associative_scan takes an axis of its elems",
                f"axis {axis}, {name} {leaf._shape!r}",
                "name another axis",
            )
        extents[name] = leaf._shape.dims[axis]
    if len(set(extents.values())) != 1:
        found = ", ".join(f"{name} {extent}" for name, extent in extents.items())
        raise ShapeError("associative_scan takes elems of one size along the axis", found, "make them equal")
    axis = axis % rank if axis < 0 and len({v._shape.rank for v in leaves}) == 1 else axis

    def combine(a, b):
        result, found = tree.flatten(fn(tree.unflatten(structure, a), tree.unflatten(structure, b)))
        same_tree(found, structure, "associative_scan: the function returns the structure of elems")
        for value, left, name in zip(result, a, names, strict=True):
            if as_array(value)._shape is not left._shape:
                raise ShapeError(
                    "associative_scan: the function returns the types that it takes",
                    f"{name} goes in as {left._shape!r} and comes out as {value._shape!r}",
                    "combine element by element, in one dtype",
                )
        return result

    values = [rev(v, (axis % v._shape.rank,)) for v in leaves] if reverse else leaves
    values = _associative(combine, values, axis)
    return tree.unflatten(structure, [rev(v, (axis % v._shape.rank,)) for v in values] if reverse else values)


def _associative(combine, values, axis: int):
    extent = values[0]._shape.dims[axis]
    if extent < 2:
        return values

    def part(value, start, limit, stride=1):
        return slice_in_dim(value, start, limit, stride, axis=axis % value._shape.rank)

    pairs = combine([part(v, 0, extent - 1, 2) for v in values], [part(v, 1, extent, 2) for v in values])
    odd = _associative(combine, pairs, axis)  # the results at 1, 3, 5, ...
    before = [part(v, 0, v._shape.dims[axis] - 1) for v in odd] if extent % 2 == 0 else odd
    even = combine(before, [part(v, 2, extent, 2) for v in values]) if extent > 2 else []
    results = []
    for k, (value, odd_part) in enumerate(zip(values, odd, strict=True)):
        first = part(value, 0, 1)
        even_part = concatenate([first, even[k]], axis % value._shape.rank) if even else first
        results.append(_interleaved(even_part, odd_part, axis % value._shape.rank))
    return results


def _interleaved(even, odd, axis: int):
    """even[0], odd[0], even[1], odd[1], ... along an axis; there are as many even elements as odd ones, or one more."""
    count = odd._shape.dims[axis]
    pairs = [expand_dims(x, (axis + 1,)) for x in (slice_in_dim(even, 0, count, axis=axis), odd)]
    dims = list(odd._shape.dims)
    dims[axis] = 2 * count
    joined = concatenate(pairs, axis + 1).reshape(tuple(dims))
    if even._shape.dims[axis] == count:
        return joined
    return concatenate([joined, slice_in_dim(even, count, count + 1, axis=axis)], axis)
