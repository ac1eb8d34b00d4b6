"""Collectives over named axes: between the batch elements of a `vmap(..., axis_name="i")`, or the devices of a
`shard_map`.

Inside the mapped function each of them is a participant of the axis. Every function takes trees of arrays, and raises
ParticipantsError if no enclosing map has an axis of that name.
"""

from __future__ import annotations

import difflib
import math

from hloom.arrays.array import Array
from hloom.errors import ArgumentError, ParticipantsError, ShapeError
from hloom.ir.build import scalar_computation
from hloom.ir.types import DTYPES, INEXACT
from hloom.lax.elementwise import convert_element_type
from hloom.lax.operands import as_operand, convert, default_float
from hloom.lax.table import div
from hloom.tracing.trace import TRACES, bind
from hloom.tree import pytrees as tree


def axis_size(axis_name) -> int:
    """The number of participants of a named axis; the product for a tuple of names. A Python integer.

    >>> hl.vmap(lambda x: x * hl.lax.axis_size("i"), axis_name="i")(hnp.array([1, 2, 3]))
    Array([3, 6, 9], dtype=int32)
    """
    return math.prod(_sizes(axis_name, "axis_size").values())


def axis_index(axis_name):
    """s32[]: the index of this participant along the axis; row-major for a tuple of names.

    >>> hl.vmap(lambda x: x + hl.lax.axis_index("i"), axis_name="i")(hnp.array([10, 20, 30]))
    Array([10, 21, 32], dtype=int32)
    """
    total = None
    for name, size in _sizes(axis_name, "axis_index").items():
        own = convert_element_type(bind("partition-id", axis_name=(name,), axis_size=size), DTYPES["s32"])
        total = own if total is None else total * size + own
    return total


def psum(x, axis_name, *, axis_index_groups=None):
    """The sum over all participants (of a group, with axis_index_groups: lists of indices that form a partition of the
    participants). A Python number is multiplied by the number of participants, and remains a Python number.

    >>> hl.vmap(lambda x: hl.lax.psum(x, "i"), axis_name="i")(hnp.array([1, 5, 2]))
    Array([8, 8, 8], dtype=int32)
    """
    sizes = _sizes(axis_name, "psum")
    count = len(axis_index_groups[0]) if axis_index_groups else math.prod(sizes.values())

    def one(leaf):
        if isinstance(leaf, (int, float, complex)) and not isinstance(leaf, bool):
            return leaf * count
        return _reduced("add", leaf, sizes, axis_index_groups, "psum")

    return tree.map(one, x)


def pmean(x, axis_name, *, axis_index_groups=None):
    """The mean over all participants, as `psum`. Integers become floats.

    >>> hl.vmap(lambda x: x - hl.lax.pmean(x, "i"), axis_name="i")(hnp.array([1.0, 2.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    sizes = _sizes(axis_name, "pmean")
    count = len(axis_index_groups[0]) if axis_index_groups else math.prod(sizes.values())

    def one(leaf):
        leaf = as_operand(leaf, "pmean")
        if leaf.dtype not in INEXACT:
            leaf = convert(leaf, default_float(), leaf.weak)
        total = _reduced("add", leaf, sizes, axis_index_groups, "pmean")
        return div(total, count)

    return tree.map(one, x)


def pmax(x, axis_name, *, axis_index_groups=None):
    """The maximum over all participants, as `psum`.

    >>> hl.vmap(lambda x: hl.lax.pmax(x, "i"), axis_name="i")(hnp.array([1, 5, 2]))
    Array([5, 5, 5], dtype=int32)
    """
    sizes = _sizes(axis_name, "pmax")
    return tree.map(lambda leaf: _reduced("maximum", leaf, sizes, axis_index_groups, "pmax"), x)


def pmin(x, axis_name, *, axis_index_groups=None):
    """The minimum over all participants, as `psum`.

    >>> hl.vmap(lambda x: hl.lax.pmin(x, "i"), axis_name="i")(hnp.array([1, 5, 2]))
    Array([1, 1, 1], dtype=int32)
    """
    sizes = _sizes(axis_name, "pmin")
    return tree.map(lambda leaf: _reduced("minimum", leaf, sizes, axis_index_groups, "pmin"), x)


def all_gather(x, axis_name, *, axis_index_groups=None, axis: int = 0, tiled: bool = False):
    """The values of all participants, stacked along a new axis `axis`, or concatenated along it with tiled=True.
    Several axes are in row-major order.

    >>> hl.vmap(lambda x: hl.lax.all_gather(x, "i"), axis_name="i")(hnp.array([1, 2]))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    if isinstance(axis_name, (tuple, list)) and len(axis_name) > 1:
        for name in reversed(axis_name):
            x = all_gather(x, name, axis=axis, tiled=tiled)
            if not tiled and name != axis_name[-1]:
                x = tree.map(lambda leaf: _merged(leaf, axis), x)
        return x
    name, size = _one("all_gather", axis_name, axis_index_groups)

    def one(leaf):
        leaf = as_operand(leaf, "all_gather")
        rank = len(leaf.shape) + (not tiled)
        d = _axis("all_gather", axis, rank)
        if not tiled:
            leaf = _reshaped(leaf, (*leaf.shape[:d], 1, *leaf.shape[d:]))
        return bind("all-gather", leaf, dimensions=(d,), axis_name=(name,), axis_size=size)

    return tree.map(one, x)


def psum_scatter(x, axis_name, *, scatter_dimension: int = 0, axis_index_groups=None, tiled: bool = False):
    """The sum over all participants, scattered along `scatter_dimension`.

    Without tiled, its size is the number of participants, and the dimension is removed; with tiled=True its size is a
    multiple of that number, and is divided. Over several axes, with tiled=True, parts are in row-major order. Raises
    ShapeError.

    >>> hl.vmap(lambda x: hl.lax.psum_scatter(x, "i"), axis_name="i")(hnp.array([[1, 2], [10, 20]]))
    Array([11, 22], dtype=int32)
    """
    if isinstance(axis_name, (tuple, list)) and len(axis_name) > 1 and tiled:
        for name in axis_name:
            x = psum_scatter(x, name, scatter_dimension=scatter_dimension, tiled=True)
        return x
    name, size = _one("psum_scatter", axis_name, axis_index_groups)

    def one(leaf):
        leaf = as_operand(leaf, "psum_scatter")
        d = _axis("psum_scatter", scatter_dimension, len(leaf.shape))
        if not tiled and leaf.shape[d] != size:
            raise ShapeError(
                f"psum_scatter gives each of {size} participants a part of dimension {d}",
                f"{leaf._shape!r}",
                f"make the size {size}, or set tiled=True for a multiple of it",
            )
        part = bind(
            "reduce-scatter",
            leaf,
            dimensions=(d,),
            axis_name=(name,),
            axis_size=size,
            to_apply=scalar_computation("add", leaf._shape.dtype),
        )
        return part if tiled else _reshaped(part, (*part.shape[:d], *part.shape[d + 1 :]))

    return tree.map(one, x)


def all_to_all(x, axis_name, split_axis: int, concat_axis: int, *, axis_index_groups=None, tiled: bool = False):
    """Part k of `split_axis` goes to participant k; received parts are concatenated along `concat_axis`.

    Without tiled, the size of split_axis is the number of participants, the axis is removed, and a new axis concat_axis
    indexes the senders; with tiled=True the sizes are divided and multiplied. Raises ShapeError.

    >>> x = hnp.arange(4).reshape(2, 2)
    >>> hl.vmap(lambda row: hl.lax.all_to_all(row, "i", 0, 0), axis_name="i")(x)
    Array([[0, 2],
           [1, 3]], dtype=int32)
    """
    name, size = _one("all_to_all", axis_name, axis_index_groups)

    def one(leaf):
        leaf = as_operand(leaf, "all_to_all")
        rank = len(leaf.shape)
        split, concat = _axis("all_to_all", split_axis, rank), _axis("all_to_all", concat_axis, rank)
        extent = leaf.shape[split]
        if extent % size or (not tiled and extent != size):
            raise ShapeError(
                f"all_to_all cuts dimension {split} for {size} participants",
                f"{leaf._shape!r}",
                f"make the size {'a multiple of ' if tiled else ''}{size}",
            )
        sent = bind("all-to-all", leaf, dimensions=(split,), axis_name=(name,), axis_size=size)
        dims = leaf.shape
        opened = _reshaped(sent, (*dims[:split], size, extent // size, *dims[split + 1 :]))
        # The senders are at `split`, followed by their parts.
        order = [k for k in range(rank + 1) if k != split]
        if tiled:
            place = order.index(concat if concat < split else concat + 1)
            order.insert(place, split)
            moved = bind("transpose", opened, dimensions=tuple(order))
            shape = moved.shape
            return _reshaped(moved, (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :]))
        order.remove(split + 1)
        order.insert(concat, split)
        flat = _reshaped(opened, (*dims[:split], size, *dims[split + 1 :]))
        order = [k if k <= split else k - 1 for k in order]
        return bind("transpose", flat, dimensions=tuple(order))

    return tree.map(one, x)


def ppermute(x, axis_name, perm):
    """Participant s sends its value to participant t for each (s, t) of perm; participants without a source get zeros.

    Raises AttributeValueError if a participant is a source or a target twice, ArgumentError for one that does not
    exist.

    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> hl.vmap(lambda x: hl.lax.ppermute(x, "i", ring), axis_name="i")(hnp.array([10, 20, 30]))
    Array([30, 10, 20], dtype=int32)
    """
    name, size = _one("ppermute", axis_name, None)
    pairs = tuple((int(s), int(t)) for s, t in perm)
    for pair in pairs:
        if not all(0 <= k < size for k in pair):
            raise ArgumentError(
                f"ppermute over the axis '{name}' of {size} participants",
                f"{pair}",
                f"number them from 0 to {size - 1}",
            )
    attributes = {"source_target_pairs": pairs, "axis_name": (name,), "axis_size": size}
    return tree.map(lambda leaf: bind("collective-permute", as_operand(leaf, "ppermute"), **attributes), x)


def pshuffle(x, axis_name, perm):
    """Participant k gets the value of participant perm[k]. Raises ArgumentError if perm is not a permutation."""
    size = axis_size(axis_name)
    if sorted(perm) != list(range(size)):
        raise ArgumentError("pshuffle takes a permutation of the participants", f"{perm!r}", f"of 0 to {size - 1}")
    return ppermute(x, axis_name, list(zip(perm, range(size), strict=True)))


def pswapaxes(x, axis_name, axis: int, *, axis_index_groups=None):
    """Exchanges the named axis with an axis of the array, whose size is the number of participants."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x, axis_name, source: int):
    """The value of participant `source`, for all."""
    name, size = _one("pbroadcast", axis_name, None)
    if not 0 <= source < size:
        raise ArgumentError(
            f"pbroadcast over the axis '{name}' of {size} participants",
            f"{source}",
            f"number them from 0 to {size - 1}",
        )
    attributes = {"axis_source": int(source), "axis_name": (name,), "axis_size": size}
    return tree.map(lambda leaf: bind("collective-broadcast", as_operand(leaf, "pbroadcast"), **attributes), x)


# --- axes ---------------------------------------------------------------------------------------------------------


def _sizes(axis_name, what: str) -> dict:
    """The named axes and their sizes."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    known = dict(TRACES.axes)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), map(str, known), 1)
            raise ParticipantsError(
                f"{what} over the axis {name!r}",
                f"named axes around it (of vmap, shard_map): {', '.join(map(repr, known)) or 'none'}",
                f"did you mean {near[0]!r}?"
                if near
                else f"call it in a function of hl.vmap(..., axis_name={name!r}), or of hl.shard_map",
            )
    return {name: known[name] for name in names}


def _one(what: str, axis_name, groups) -> tuple:
    sizes = _sizes(axis_name, what)
    if len(sizes) != 1:
        raise ArgumentError(f"{what} over several axes", f"{axis_name!r}", "apply it to each axis in turn")
    if groups is not None:
        raise ArgumentError(
            f"{what} with axis_index_groups", f"{groups!r}", "use psum, pmean, pmax or pmin, which take groups"
        )
    return next(iter(sizes.items()))


def _reduced(opcode: str, leaf, sizes: dict, groups, what: str):
    leaf = as_operand(leaf, what)
    attributes = {}
    if groups is not None:
        (size,) = sizes.values()
        groups = tuple(tuple(int(k) for k in group) for group in groups)
        members = sorted(k for group in groups for k in group)
        if members != list(range(size)) or len({len(g) for g in groups}) != 1:
            raise ArgumentError(
                f"{what} takes axis_index_groups of one size that name each of {size} participants once",
                f"{groups}",
                "check the groups",
            )
        attributes["axis_groups"] = groups
    dtype = leaf._shape.dtype
    if dtype == DTYPES["pred"] and opcode == "add":
        leaf, dtype = convert_element_type(leaf, DTYPES["s32"]), DTYPES["s32"]
    return bind(
        "all-reduce",
        leaf,
        weak=leaf.weak,
        to_apply=scalar_computation(opcode, dtype),
        axis_name=tuple(sizes),
        axis_size=math.prod(sizes.values()),
        **attributes,
    )


def _axis(what: str, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(f"{what} along axis {axis}", f"rank {rank}", f"name one between {-rank} and {rank - 1}")
    return axis % rank


def _merged(x: Array, axis: int):
    """x with an axis and the next one merged."""
    d = _axis("all_gather", axis, len(x.shape) - 1)
    return _reshaped(x, (*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :]))


def _reshaped(x: Array, dims):
    dims = tuple(dims)
    return x if x.shape == dims else bind("reshape", x, shape=x._shape.with_dims(dims))
