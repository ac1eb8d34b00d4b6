"""canonicalize-dots: converts every dot to the contraction nest's form, or to a multiplication and a reduction.

The form: lhs [b]?, {m, k} in either order; rhs [b]?, {k, n} in either order; result [b]?, m, n; all sizes above 1.
Dimensions of the same kind are merged by free reshapes. An operand is transposed only if its memory order prevents
merging; the order of merged dimensions minimizes the bytes moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.rules.movement import MOVEMENT
from hloom.compiler.passes.walk import change_computations
from hloom.ir.build import scalar_computation
from hloom.ir.module import Instruction, Module
from hloom.ir.ops.linalg.dot import dot_dims, free_dims
from hloom.ir.patterns import Any, Op
from hloom.ir.records import record
from hloom.ir.rewrite import ROUNDING, Rules, rewrite, rule
from hloom.ir.types import COMPLEX, PRED, compute_dtype, promote

# A label names a dimension of the result or a contracted one: ('b', 0) a batch, ('m', 1) a free one of the left
# operand, ('n', 0) of the right, ('k', 0) a contracted one.
Label = tuple[str, int]


@record(frozen=True)
class Side:
    """An operand: the instruction, a label for each of its dimensions, and the bytes moved so far to create it."""

    array: Instruction
    labels: tuple[Label, ...]
    moved: int = 0

    def wide(self) -> tuple[Label, ...]:
        """The labels of the dimensions with sizes other than 1, in memory order."""
        return tuple(label for label, extent in zip(self.labels, self.array.dims, strict=True) if extent != 1)


@record(frozen=True)
class Plan:
    """The order in which the dimensions of each kind are merged, and the bytes that transposes then move."""

    batch: tuple[Label, ...]
    left: tuple[Label, ...]
    right: tuple[Label, ...]
    contracted: tuple[Label, ...]
    bytes: int


def labelled(root: Instruction) -> tuple[Side, Side, tuple[Label, ...]]:
    """Both operands with labels, and the labels of the result."""
    left, right = root.operands
    lb, rb, lc, rc = dot_dims(root.attributes)

    def label(array, batch, contracted, free_kind):
        labels: list[Label] = [("", 0)] * len(array.dims)
        for kind, dims in (
            ("b", batch),
            ("k", contracted),
            (free_kind, free_dims(len(array.dims), batch, contracted)),
        ):
            for number, d in enumerate(dims):
                labels[d] = (kind, number)
        return tuple(labels)

    sides = []
    for array, batch, contracted, kind in ((left, lb, lc, "m"), (right, rb, rc, "n")):
        moved = array.shape.bytes if array.opcode == "transpose" else 0
        sides.append(Side(array, label(array, batch, contracted, kind), moved))
    result = tuple(
        [("b", i) for i in range(len(lb))]
        + [("m", i) for i in range(len(left.dims) - len(lb) - len(lc))]
        + [("n", i) for i in range(len(right.dims) - len(rb) - len(rc))]
    )
    return sides[0], sides[1], result


def through_transposes(side: Side) -> Side:
    """The side before the transposes that produced it."""
    array, labels = side.array, side.labels
    while array.opcode == "transpose":
        before: list[Label] = [("", 0)] * len(labels)
        for d, source in enumerate(array["dimensions"]):
            before[source] = labels[d]
        array, labels = array.operands[0], tuple(before)
    return Side(array, labels)


def without_broadcast_batch(side: Side) -> Side:
    """A broadcast operand without the batch dimensions that it is broadcast along."""
    array = side.array
    if array.opcode != "broadcast":
        return side
    own = array["dimensions"]
    if any(k not in own and side.labels[k][0] != "b" for k in range(len(array.dims)) if array.dims[k] != 1):
        return side
    return Side(array.operands[0], tuple(side.labels[d] for d in own))


def best_plan(left: Side, right: Side, result: Sequence[Label], extents: dict[Label, int], result_bytes: int) -> Plan:
    """The orders that move the fewest bytes; at ties, the result's."""
    mine, other = left.wide(), right.wide()
    moved = left.moved + right.moved
    shared = set(mine) & set(other)
    wide = [r for r in result if extents[r] != 1]

    def orders(members, *sequences):
        return list(dict.fromkeys(tuple(label for label in s if label in members) for s in sequences))

    batch = {label for label in shared if label in wide}
    contracted = shared - batch
    own_left, own_right = set(mine) - shared, set(other) - shared
    best: Plan | None = None
    for b, m, n, k in product(
        orders(batch, wide, mine, other),
        orders(own_left, wide, mine),
        orders(own_right, wide, other),
        orders(contracted, mine, other),
    ):
        cost = moved
        if mine not in (b + m + k, b + k + m):
            cost += left.array.shape.bytes
        if other not in (b + k + n, b + n + k):
            cost += right.array.shape.bytes
        if tuple(wide) != b + m + n:
            cost += result_bytes
        if best is None or cost < best.bytes:
            best = Plan(b, m, n, k, cost)
    assert best is not None  # each kind has at least one order
    return best


def best_sides(left: Side, right: Side, result, extents, result_bytes: int) -> tuple[Side, Side, Plan]:
    """The operands unchanged, before their transposes, or before their broadcasts along batch dimensions: whichever
    moves the fewest bytes. A necessary transpose is left in place, so that the pass terminates."""
    best = left, right, best_plan(left, right, result, extents, result_bytes)
    before_left, before_right = through_transposes(left), through_transposes(right)
    choices = dict.fromkeys(((left, before_right), (before_left, right), (before_left, before_right)), False)
    for mine, other in ((before_left, before_right), (left, right)):
        # Without the broadcast along the batch an operand is smaller, and the product has more rows per matrix.
        choices[mine, without_broadcast_batch(other)] = True
        choices[without_broadcast_batch(mine), other] = True
    for (mine, other), fewer in choices.items():
        if mine.labels == best[0].labels and other.labels == best[1].labels:
            continue
        plan = best_plan(mine, other, result, extents, result_bytes)
        repeated = len(mine.labels) < len(left.labels) or len(other.labels) < len(right.labels)
        fewer = fewer and repeated and plan.bytes <= best[2].bytes
        if plan.left and plan.right and (fewer or plan.bytes < best[2].bytes):
            best = mine, other, plan
    return best


def arranged(b, side: Side, preferred: tuple[tuple[Label, ...], ...], other: tuple[tuple[Label, ...], ...]):
    """The operand with the labels of each group merged, in memory order if possible, else transposed to the preferred
    one. Returns (instruction, groups in order), without empty groups."""
    wide = side.wide()
    for groups in (preferred, other):
        if wide == sum(groups, ()):
            array = side.array
            break
    else:
        groups = preferred
        order = sum(groups, ())
        narrow = tuple(label for label in side.labels if label not in order)
        array = b.transpose(side.array, [side.labels.index(label) for label in order + narrow])
    extents = dict(zip(side.labels, side.array.dims, strict=True))
    joined = [math.prod(extents[label] for label in group) for group in groups if group]
    return b.reshape(array, joined), [group for group in groups if group]


def is_canonical(root: Instruction) -> bool:
    """Whether there is nothing to do, determined without a plan."""
    left, right = root.operands
    lb, rb, lc, rc = dot_dims(root.attributes)
    rank = 2 + len(lb)
    return (
        len(lc) == 1
        and len(left.dims) == len(right.dims) == rank
        and lb == rb == tuple(range(len(lb)))
        and rank <= 3
        and not {left.opcode, right.opcode} & {"transpose", "broadcast"}
        and all([size > 1 for size in left.dims + right.dims])  # without comparing sizes with each other
        and root.shape.dtype not in COMPLEX
        and root.shape.dtype != PRED
    )


def canonical(b, root: Instruction) -> Instruction | None:
    """The dot in normal form, or None if it already is."""
    if is_canonical(root):
        return None
    left, right, result = labelled(root)
    extents = dict(zip(left.labels + right.labels, left.array.dims + right.array.dims, strict=True))
    if math.prod(extents[label] for label in extents if label[0] == "k") == 0:
        return b.splat(0, root.shape)
    if 0 in root.dims:
        return None  # simplify makes empty arrays constants
    kinds = {label[0] for label, extent in extents.items() if extent != 1}
    # A product without a free or without a contracted dimension has no reuse for tiles to exploit: it is memory-bound,
    # and a loop or row nest fuses it with neighbouring ops. Complex numbers and pred have no register tiles.
    if not {"m", "n", "k"} <= kinds or root.shape.dtype in COMPLEX or root.shape.dtype == PRED:
        return multiply_reduce(b, root, through_transposes(left), through_transposes(right), result, extents)
    left, right, plan = best_sides(left, right, result, extents, root.shape.bytes)
    lhs, lhs_groups = arranged(
        b, left, (plan.batch, plan.left, plan.contracted), (plan.batch, plan.contracted, plan.left)
    )
    rhs, rhs_groups = arranged(
        b, right, (plan.batch, plan.contracted, plan.right), (plan.batch, plan.right, plan.contracted)
    )
    batch = (0,) if plan.batch else ()
    attributes = {
        "lhs_batch_dims": batch,
        "rhs_batch_dims": batch,
        "lhs_contracting_dims": (lhs_groups.index(plan.contracted),),
        "rhs_contracting_dims": (rhs_groups.index(plan.contracted),),
    }
    if lhs is root.operands[0] and rhs is root.operands[1] and dot_dims(root.attributes) == dot_dims(attributes):
        return None
    order = plan.batch + plan.left + plan.right
    joined = [math.prod(extents[label] for label in group) for group in (plan.batch, plan.left, plan.right) if group]
    dot = b.emit("dot", lhs, rhs, shape=root.shape.with_dims(joined), **attributes)
    return ordered(b, dot, order, result, extents)


def ordered(b, array: Instruction, order: Sequence[Label], result: Sequence[Label], extents) -> Instruction:
    """An array whose merged dimensions have the labels `order`, with a dimension for each label of `result`."""
    array = b.reshape(array, [extents[label] for label in order])
    wanted = [label for label in result if label in order]
    array = b.transpose(array, [order.index(label) for label in wanted])
    return b.reshape(array, [extents[label] for label in result])


def multiply_reduce(b, root, left: Side, right: Side, result, extents) -> Instruction | None:
    """sum over k of lhs * rhs, in the memory order of an operand with all dimensions, if any."""
    dtypes = {side.array.shape.dtype for side in (left, right)}
    if PRED in dtypes | {root.shape.dtype} and dtypes != {PRED}:
        return None
    logical = root.shape.dtype == PRED
    dtype = PRED if logical else compute_dtype(promote(*((d, False) for d in [root.shape.dtype, *dtypes]))[0])
    order = [label for label in result if extents[label] != 1]
    order += [label for label in dict.fromkeys(left.labels) if label[0] == "k" and extents[label] != 1]
    for side in sorted((left, right), key=lambda s: -s.array.shape.bytes):
        if set(side.wide()) == set(order):
            order = list(side.wide())
            break
    factors = [_factor(b, side, order, extents, dtype) for side in (left, right)]
    value = b.emit("and" if logical else "multiply", *factors)
    reduced = tuple(d for d, label in enumerate(order) if label[0] == "k")
    if reduced:
        combiner = scalar_computation("or" if logical else "add", dtype)
        start = b.splat(0, value.shape.with_dims(()))
        value = b.emit("reduce", value, start, dimensions=reduced, to_apply=combiner)
    value = b.convert(value, root.shape.dtype)
    return ordered(b, value, tuple(label for label in order if label[0] != "k"), result, extents)


def _factor(b, side: Side, order: Sequence[Label], extents, dtype) -> Instruction:
    """An operand broadcast to the dimensions `order`."""
    wide = side.wide()
    array = b.convert(b.reshape(side.array, [extents[label] for label in wide]), dtype)
    wanted = [label for label in order if label in wide]
    array = b.transpose(array, [wide.index(label) for label in wanted])
    return b.broadcast(array, tuple(extents[label] for label in order), [order.index(label) for label in wanted])


def swaps_free(root: Instruction, dot: Instruction) -> bool:
    """Whether a transpose puts the right operand's free dimensions before the left's and changes nothing else."""
    lb, _, lc, _ = dot_dims(dot.attributes)
    rank, batch = len(root.dims), len(lb)
    split = len(dot.operands[0].dims) - len(lc)
    return root["dimensions"] == (*range(batch), *range(split, rank), *range(batch, split))


def swapped(b, root, dot):
    lb, rb, lc, rc = dot_dims(dot.attributes)
    left, right = dot.operands
    return b.emit(
        "dot",
        right,
        left,
        shape=root.shape,
        lhs_batch_dims=rb,
        rhs_batch_dims=lb,
        lhs_contracting_dims=rc,
        rhs_contracting_dims=lc,
    )


TRANSPOSED_DOTS = Rules(
    [
        rule(
            Op("transpose", Op("dot", Any("left"), Any("right"), name="dot")),
            swapped,
            when=lambda b, root, dot: b.used_once(dot) and swaps_free(root, dot),
            name="transpose-of-dot",
            identity="(x y)^T = y^T x^T",
            counts_uses=True,
        )
    ]
)
DOTS = TRANSPOSED_DOTS + Rules(
    [
        rule(
            Op("dot"),
            lambda b, root: canonical(b, root),
            name="canonical-dot",
            identity="dot over many dimensions = dot over joined ones; without m, n or k: sum(x * y)",
            numerics=ROUNDING,
        )
    ]
)
CANONICAL: Rules = DOTS + MOVEMENT


@module_pass("canonicalize-dots")
def canonicalize_dots(module: Module) -> Module:
    """Converts every dot to the contraction nest's form, or to a multiplication and a reduction."""
    return change_computations(module, lambda computation: rewrite(computation, CANONICAL))
