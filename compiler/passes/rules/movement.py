"""Rules of ops that move elements: reshape, transpose, broadcast, slice, pad, concatenate, reverse, dynamic slices."""

from __future__ import annotations

from hloom.compiler.reshapes import keeps_order, reshape_of_broadcast
from hloom.ir.ops import OPS
from hloom.ir.ops.indexing.movement import clamp_starts
from hloom.ir.patterns import Any, Op, as_op, is_splat_of, splat_value
from hloom.ir.rewrite import Rules, rule
from hloom.ir.types import PRED

x, y = Any("x"), Any("y")
broadcast, pad, reshape, reverse = (as_op(n) for n in ("broadcast", "pad", "reshape", "reverse"))
slicing, transpose, concatenate = as_op("slice"), as_op("transpose"), as_op("concatenate")
ELEMENTWISE = " | ".join(name for name, o in OPS.items() if o.family == "elementwise")


def same_shape(root, x) -> bool:
    return root.shape is x.shape


def compose(outer, inner) -> tuple[int, ...]:
    """The permutation of transpose(transpose(x, inner), outer)."""
    return tuple(inner[d] for d in outer)


# --- reshape, transpose, broadcast ----------------------------------------------------------------------------------


def reshape_broadcast(b, root, x, inner):
    found = reshape_of_broadcast(x.dims, inner["dimensions"], inner.dims, root.dims)
    if found is None:
        return None
    dims, dimensions = found
    return b.broadcast(b.reshape(x, dims), root.dims, dimensions)


def transpose_broadcast(b, root, x, inner):
    old = inner["dimensions"]
    places = [(k, old.index(d)) for k, d in enumerate(root["dimensions"]) if d in old]
    moved = b.transpose(x, [source for _, source in places])
    return b.broadcast(moved, root.dims, [k for k, _ in places])


def broadcast_without_ones(b, root, x, inner):
    """broadcast(reshape(x)), if the reshape only adds dimensions of size 1."""
    wide = [k for k, extent in enumerate(inner.dims) if extent != 1]
    if tuple(inner.dims[k] for k in wide) != x.dims or len(wide) == len(inner.dims):
        return None
    return b.broadcast(x, root.dims, [root["dimensions"][k] for k in wide])


def hoist_broadcast(b, root):
    """f(broadcast(x), broadcast(y)) = broadcast(f(x, y)), over the dimensions that x or y has."""
    rank, dims = len(root.dims), root.dims
    kept: set[int] = set()
    for operand in root.operands:
        if operand.dims != dims:
            if operand.dims:
                return None
        elif operand.opcode != "broadcast":
            return None
        else:
            kept.update(operand.attributes["dimensions"])
            if len(kept) == rank:
                return None
    # A bitcast may change the sizes with the width.
    if not rank or not root.operands or (root.opcode == "bitcast-convert" and root.operands[0].dims != dims):
        return None
    order = sorted(kept)
    small = tuple(dims[d] for d in order)
    if small and root.shape.with_dims(small).size >= root.shape.size:
        return None
    operands = []
    for operand in root.operands:
        if operand.dims == dims:
            places = [order.index(d) for d in operand["dimensions"]]
            operand = b.broadcast(operand.operands[0], small, places)
        operands.append(operand)
    result = b.again(root, *operands, shape=root.shape.with_dims(small))
    return b.broadcast(result, dims, order)


shapes = Rules(
    [
        rule(reshape(x), x, when=same_shape, name="reshape-to-same", identity="reshape(x) = x"),
        rule(
            reshape(reshape(x)),
            lambda b, root, x: b.reshape(x, root.dims),
            name="reshape-of-reshape",
            identity="reshape(reshape(x)) = reshape(x)",
        ),
        rule(
            reshape(x),
            lambda b, root, x: b.broadcast(x, root.dims, ()),
            when=lambda x: not x.dims,
            name="reshape-of-scalar",
            identity="reshape(scalar) = broadcast(scalar)",
        ),
        rule(
            reshape(broadcast(x, name="inner")),
            reshape_broadcast,
            name="reshape-of-broadcast",
            identity="reshape(broadcast(x)) = broadcast(reshape(x)) where groups of dimensions allow",
        ),
        rule(
            transpose(x),
            x,
            when=lambda root: root["dimensions"] == tuple(range(len(root.dims))),
            name="transpose-to-same",
            identity="transpose(x) = x by the identity",
        ),
        rule(
            transpose(transpose(x, name="inner")),
            lambda b, root, x, inner: b.transpose(x, compose(root["dimensions"], inner["dimensions"])),
            name="transpose-of-transpose",
            identity="(x^p)^q = x^(pq)",
        ),
        rule(
            transpose(x),
            lambda b, root, x: b.reshape(x, root.dims),
            when=lambda root, x: keeps_order(root["dimensions"], x.dims) and root.shape.size,
            name="transpose-of-ones",
            identity="a transpose that moves only extents 1 is a reshape",
        ),
        rule(
            transpose(broadcast(x, name="inner")),
            transpose_broadcast,
            name="transpose-of-broadcast",
            identity="transpose(broadcast(x)) = broadcast(transpose(x))",
        ),
        rule(broadcast(x), x, when=same_shape, name="broadcast-to-same", identity="broadcast(x) = x"),
        rule(
            broadcast(broadcast(x, name="inner")),
            lambda b, root, x, inner: b.broadcast(x, root.dims, [root["dimensions"][d] for d in inner["dimensions"]]),
            name="broadcast-of-broadcast",
            identity="broadcast(broadcast(x)) = broadcast(x)",
        ),
        rule(
            broadcast(x),
            lambda b, root, x: b.reshape(x, root.dims),
            when=lambda root, x: x.dims and x.shape.size == root.shape.size,
            name="broadcast-of-ones",
            identity="a broadcast that adds only extents 1 is a reshape",
        ),
        rule(
            broadcast(reshape(x, name="inner")),
            broadcast_without_ones,
            name="broadcast-of-added-ones",
            identity="broadcast(reshape(x)) = broadcast(x) where the reshape adds extents 1",
        ),
        rule(
            Op(ELEMENTWISE, some="broadcast"),
            hoist_broadcast,
            name="elementwise-of-broadcasts",
            identity="f(broadcast(x), broadcast(y)) = broadcast(f(x, y))",
        ),
    ]
)

# --- slice, pad, concatenate, reverse -------------------------------------------------------------------------------


def whole(dims):
    return tuple((0, extent, 1) for extent in dims)


def compose_slices(outer, inner):
    """Bounds of slice(slice(x, inner), outer)."""
    bounds = []
    for (start, limit, stride), (base, _, step) in zip(outer, inner, strict=True):
        count = -(-(limit - start) // stride)
        first = base + start * step
        bounds.append((first, first + (count - 1) * step * stride + 1 if count else first, step * stride))
    return tuple(bounds)


def slice_of_broadcast(b, root, x, inner):
    bounds = tuple(root["slice"][d] for d in inner["dimensions"])
    return b.broadcast(b.slice(x, bounds), root.dims, inner["dimensions"])


def slice_of_concatenate(b, root, inner):
    (d,) = inner["dimensions"]
    start, limit, stride = root["slice"][d]
    last = start + (root.dims[d] - 1) * stride
    offset, kept, before = 0, [], 0
    for operand in inner.operands:
        extent = operand.dims[d]
        if offset + extent <= start:
            before = offset + extent
        elif offset <= last:
            kept.append(operand)
        offset += extent
    if len(kept) == len(inner.operands):
        return None
    operand = kept[0] if len(kept) == 1 else b.emit("concatenate", *kept, dimensions=(d,))
    bounds = list(root["slice"])
    bounds[d] = (start - before, min(limit - before, operand.dims[d]), stride)
    return b.slice(operand, tuple(bounds))


def slice_of_pad(b, root, x, inner):
    bounds = []
    for (start, limit, stride), (low, _, interior), extent in zip(root["slice"], inner["padding"], x.dims, strict=True):
        if limit > start:
            limit = start + (-(-(limit - start) // stride) - 1) * stride + 1
        if interior or start < low or limit > low + extent:
            return None
        bounds.append((start - low, limit - low, stride))
    return b.slice(x, tuple(bounds))


def pad_as_slice(b, root, x):
    bounds = tuple((-low, extent + high, 1) for (low, high, _), extent in zip(root["padding"], x.dims, strict=True))
    return b.slice(x, bounds)


def pads_join(root, inner) -> bool:
    same = inner.operands[1] is root.operands[1]
    if not same:
        left, right = splat_value(inner.operands[1]), splat_value(root.operands[1])
        same = left is not None and right is not None and left.tobytes() == right.tobytes()
    return same and all(
        low >= 0 and high >= 0 and not interior
        for padding in (root["padding"], inner["padding"])
        for low, high, interior in padding
    )


def join_pads(b, root, x, inner):
    padding = tuple((a + e, c + f, 0) for (a, c, _), (e, f, _) in zip(root["padding"], inner["padding"], strict=True))
    return b.emit("pad", x, root.operands[1], padding=padding)


def sum_of_pads(b, root, left, right):
    """The gradient of an array that was split into parts, as one concatenation of the parts.

    Two zero-padded arrays that are adjacent in one dimension, and have the same position in the others.
    """
    if not all(is_splat_of(p.operands[1], 0) for p in (left, right)):
        return None
    if any(low < 0 or high < 0 or inner for p in (left, right) for low, high, inner in p["padding"]):
        return None
    apart = [k for k, (one, two) in enumerate(zip(left["padding"], right["padding"], strict=True)) if one != two]
    if len(apart) != 1:
        return None
    (d,) = apart
    if left["padding"][d] > right["padding"][d]:
        left, right = right, left
    first, second = left.operands[0], right.operands[0]
    if left["padding"][d][0] + first.dims[d] != right["padding"][d][0]:
        return None
    joined = b.emit("concatenate", _plus_zero(b, first), _plus_zero(b, second), dimensions=(d,))
    padding = list(left["padding"])
    padding[d] = (left["padding"][d][0], right["padding"][d][1], 0)
    return b.emit("pad", joined, left.operands[1], padding=tuple(padding))


def _plus_zero(b, x):
    """x + 0, which differs from x for -0."""

    def is_sum(x):
        return x.opcode == "add" and is_splat_of(x.operands[1], 0)

    done = is_sum(x) or (x.opcode == "concatenate" and all(is_sum(o) for o in x.operands))
    return x if done else b.emit("add", x, b.splat(0, x.shape))


def join_operands(b, root):
    """Concatenate without empty operands, with nested ones flattened, and adjacent slices merged."""
    (d,) = root["dimensions"]
    operands = []
    for operand in root.operands:
        if operand.opcode == "concatenate" and operand["dimensions"] == (d,):
            operands += operand.operands
        elif operand.dims[d]:
            operands.append(operand)
    joined: list = []
    for operand in operands:
        merged = joined and join_slices(b, joined[-1], operand, d)
        if merged:
            joined[-1] = merged
        else:
            joined.append(operand)
    if not joined or joined == list(root.operands):
        return None
    return joined[0] if len(joined) == 1 else b.emit("concatenate", *joined, dimensions=(d,))


def join_slices(b, left, right, d):
    """slice(x, [a:b]) and slice(x, [b:c]) as slice(x, [a:c])."""
    if left.opcode != "slice" or right.opcode != "slice" or left.operands[0] is not right.operands[0]:
        return None
    for k, (first, second) in enumerate(zip(left["slice"], right["slice"], strict=True)):
        if first[2] != 1 or second[2] != 1 or (first[1] != second[0] if k == d else first != second):
            return None
    bounds = tuple(
        (first[0], second[1], 1) if k == d else first
        for k, (first, second) in enumerate(zip(left["slice"], right["slice"], strict=True))
    )
    return b.slice(left.operands[0], bounds)


def concatenate_splats(b, root):
    values = [v for o in root.operands if (v := splat_value(o)) is not None]
    if len(values) < len(root.operands) or len({v.tobytes() for v in values}) != 1:
        return None
    return b.splat(values[0], root.shape)


def reverse_without_ones(b, root, x):
    wide = tuple(d for d in root["dimensions"] if x.dims[d] != 1)
    if len(wide) == len(root["dimensions"]):
        return None
    return b.emit("reverse", x, dimensions=wide) if wide else x


def reverse_of_reverse(b, root, x, inner):
    once = tuple(sorted(set(root["dimensions"]) ^ set(inner["dimensions"])))
    return b.emit("reverse", x, dimensions=once) if once else x


def reverse_of_broadcast(b, root, x, inner):
    places = inner["dimensions"]
    own = tuple(k for k, d in enumerate(places) if d in root["dimensions"])
    moved = b.emit("reverse", x, dimensions=own) if own else x
    return b.broadcast(moved, root.dims, places)


pieces = Rules(
    [
        rule(slicing(x), x, when=same_shape, name="slice-to-same", identity="x[0:n] = x"),
        rule(
            slicing(slicing(x, name="inner")),
            lambda b, root, x, inner: b.slice(x, compose_slices(root["slice"], inner["slice"])),
            name="slice-of-slice",
            identity="x[a:][b:] = x[a+b:]",
        ),
        rule(
            slicing(broadcast(x, name="inner")),
            slice_of_broadcast,
            name="slice-of-broadcast",
            identity="broadcast(x)[s] = broadcast(x[s])",
        ),
        rule(
            slicing(concatenate(name="inner")),
            slice_of_concatenate,
            when=lambda root: root.shape.size > 0,
            name="slice-of-concatenate",
            identity="(x ++ y)[:n] = x[:n] within the extent of x",
        ),
        rule(
            slicing(pad(x, Any("value"), name="inner")),
            slice_of_pad,
            when=lambda root: root.shape.size > 0,
            name="slice-of-pad",
            identity="pad(x)[s] = x[s] inside of the padding",
        ),
        rule(
            pad(x, y),
            x,
            when=lambda root: not any(any(p) for p in root["padding"]),
            name="pad-by-nothing",
            identity="pad(x, 0) = x",
        ),
        rule(
            pad(x, y),
            lambda b, root, y: b.broadcast(y, root.dims, ()),
            when=lambda x: x.shape.size == 0,
            name="pad-of-nothing",
            identity="pad(empty, c) = c everywhere",
        ),
        rule(
            pad(x, y),
            pad_as_slice,
            when=lambda root: all(
                low <= 0 and high <= 0 and (not i or (low == high == 0 and n < 2))
                for (low, high, i), n in zip(root["padding"], root.operands[0].dims, strict=True)
            ),
            name="pad-that-crops",
            identity="pad(x, -a, -b) = x[a:n-b]",
        ),
        rule(
            pad(pad(x, y, name="inner"), Any("value")),
            join_pads,
            when=pads_join,
            name="pad-of-pad",
            identity="pad(pad(x, a), b) = pad(x, a + b) of one value",
        ),
        rule(
            Op("add", pad(name="left"), pad(name="right")),
            sum_of_pads,
            when=lambda root: root.shape.dtype != PRED,
            name="sum-of-pads",
            identity="pad(x, 0, n) + pad(y, m, 0) = (x + 0) ++ (y + 0) of m and n elements",
        ),
        rule(concatenate(x), x, name="concatenate-of-one", identity="++(x) = x"),
        rule(
            concatenate(),
            join_operands,
            name="concatenate-of-pieces",
            identity="x ++ (y ++ z) = x ++ y ++ z; x[:n] ++ x[n:] = x; empty ++ x = x",
        ),
        rule(
            concatenate(),
            concatenate_splats,
            name="concatenate-of-splats",
            identity="c ++ c = c",
        ),
        rule(
            reverse(x),
            reverse_without_ones,
            name="reverse-of-ones",
            identity="reverse(x) = x along extents 1, or no dimension",
        ),
        rule(
            reverse(reverse(x, name="inner")),
            reverse_of_reverse,
            name="reverse-of-reverse",
            identity="reverse(reverse(x)) = x",
        ),
        rule(
            reverse(broadcast(x, name="inner")),
            reverse_of_broadcast,
            name="reverse-of-broadcast",
            identity="reverse(broadcast(x)) = broadcast(reverse(x))",
        ),
    ]
)

# --- dynamic slices -------------------------------------------------------------------------------------------------


def known_starts(root, first: int, sizes):
    """The starts of a dynamic slice or update, clamped to the operand, if all of them are known."""
    dims = root.operands[0].dims
    starts = []
    for start, extent, size in zip(root.operands[first:], dims, sizes, strict=True):
        value = splat_value(start)
        if value is None and extent != size:
            return None
        starts.append(0 if value is None else value)  # the start of a window of the full size is always clamped to 0
    return clamp_starts(starts, dims, sizes)


def dynamic_slice_as_slice(b, root, x):
    sizes = root["dynamic_slice_sizes"]
    starts = known_starts(root, 1, sizes)
    if starts is None:
        return None
    return b.slice(x, tuple((start, start + size, 1) for start, size in zip(starts, sizes, strict=True)))


def same_starts(left, right) -> bool:
    return len(left) == len(right) and all(
        a is b or ((value := splat_value(b)) is not None and is_splat_of(a, value))
        for a, b in zip(left, right, strict=True)
    )


dynamic = Rules(
    [
        rule(
            Op("dynamic-slice"),
            lambda b, root: dynamic_slice_as_slice(b, root, root.operands[0]),
            name="dynamic-slice-at-constant",
            identity="dynamic-slice(x, c) = x[c:c+n], c moved inside",
        ),
        rule(
            Op("dynamic-slice"),
            lambda root: root.operands[0].operands[1],
            when=lambda root: (
                root.operands[0].opcode == "dynamic-update-slice"
                and root.operands[0].operands[1].shape is root.shape
                and same_starts(root.operands[1:], root.operands[0].operands[2:])
            ),
            name="dynamic-slice-of-update",
            identity="reading what was just written gives what was written",
        ),
        rule(
            Op("dynamic-update-slice"),
            lambda root: root.operands[1],
            when=lambda root: root.operands[1].shape is root.shape,
            name="update-of-whole",
            identity="writing the whole array gives what was written",
        ),
        rule(
            Op("dynamic-update-slice"),
            lambda root: root.operands[0],
            when=lambda root: root.operands[1].shape.size == 0,
            name="update-of-nothing",
            identity="writing nothing changes nothing",
        ),
    ]
)

MOVEMENT = shapes + pieces + dynamic
