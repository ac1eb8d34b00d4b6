"""Loops of static length with JAX's names: scan and map.

The body is traced once. Outside of jit a loop is compiled, once per distinct body, and run.
"""

from __future__ import annotations

import operator

from hloom.errors import ArgumentError, ShapeError, TreeError
from hloom.ir.module import Instruction
from hloom.ir.sizes.guards import size_key
from hloom.lax.control.arguments import (
    array_leaves,
    carried_twins,
    checked_carry,
    function_name,
    output_shapes,
    require_function,
    results_of,
    with_twins,
    with_weakness_flags,
)
from hloom.lax.movement import concatenate
from hloom.lax.operands import whole_number
from hloom.sharding.shardings import NamedSharding, PartitionSpec
from hloom.tracing.active import bringing_twins
from hloom.tracing.exact import wide_value
from hloom.tracing.refs import scan_carries_refs
from hloom.tracing.regions import Region, apply, inline_region, same_tree, trace_region
from hloom.tracing.trace import typed_sharding
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree


@bringing_twins
@scan_carries_refs
def scan(f, init, xs=None, length: int | None = None, reverse: bool = False, unroll=1, _split_transpose: bool = False):
    """A loop over the first axis of xs that carries a value and stacks results: `(carry, y) = f(carry, x)` for each x.

    init: the initial carry, a tree whose structure, shapes and dtypes are invariant. xs: a tree of arrays with equal
    first sizes, or None with `length`. reverse: from the last x to the first; each y is at the index of its x. unroll:
    True, or at least the length, unrolls the loop; smaller numbers have no effect.

    Returns (last carry, ys): ys is the tree of y, each leaf with a new first axis. Supports forward and reverse mode.
    Raises ShapeError if sizes differ, and for the carry TreeError, ShapeError, DTypeError.

        total, sums = hl.lax.scan(lambda s, x: (s + x, s + x), 0.0, hnp.arange(4.0))

    >>> def step(total, x):
    ...     return total + x, total
    >>> hl.scan(step, hnp.int32(0), hnp.array([1, 2, 3]))
    (Array(6, dtype=int32), Array([0, 1, 3], dtype=int32))
    """
    require_function(f, "scan", "body")
    carry, carry_tree, names = array_leaves(init, "scan", "init")
    items, items_tree, item_names = array_leaves(xs, "scan", "xs")
    length = scan_length(items, item_names, length)
    count, slices = len(carry), [x._shape.with_dims(x._shape.dims[1:]) for x in items]
    pair = tree.structure((init, xs))
    body, carry = _traced_body(f, pair, carry, carry_tree, names, items, item_names)
    weak, ys_tree = [v.weak for v in carry], body.out_tree.children()[1]
    captures = list(body.captures)
    unrolled = unroll is True or (length > 0 and operator.index(unroll) >= length)
    carried = carried_twins(body, count)
    scanned = [k - count for k in body.wide if k >= count]
    stacked = [k for k in body.twins if k >= count]
    state = count + len(carried)

    def step(builder, first, rest, consts):
        """The results of a step: the state, then the stacked values."""
        wide = dict(zip(carried, first[count:], strict=True))
        wide |= {k + count: x for k, x in zip(scanned, rest[len(items) :], strict=True)}
        results = inline_region(builder, body, [*first[:count], *rest[: len(items)]], captures, consts, wide)
        own, exact = results_of(builder, body, results)
        return [*own[:count], *(exact(k) for k in carried), *own[count:], *(exact(k) for k in stacked)]

    def build(builder, given):
        consts, first = given[: len(captures)], given[len(captures) : len(captures) + state]
        rest = given[len(captures) + state :]
        if unrolled:
            return _unrolled(builder, step, consts, first, rest, length, reverse)
        inner = type(builder)(body.computation.name)
        named = body.computation.parameters
        parameters = [inner.parameter(i.shape, i.hint) for i in consts]
        parameters += [inner.parameter(i.shape, p.hint) for i, p in zip(first[:count], named, strict=False)]
        parameters += [inner.parameter(i.shape) for i in first[count:]]
        parameters += [inner.parameter(s, p.hint) for s, p in zip(slices, named[count:], strict=False)]
        parameters += [inner.parameter(x.shape.with_dims(x.dims[1:])) for x in rest[len(items) :]]
        split = len(consts) + state
        results = step(inner, parameters[len(consts) : split], parameters[split:], parameters[: len(consts)])
        program = inner.finish(inner.tuple(results))
        return builder.emit(
            "scan", *given, num_consts=len(consts), num_carry=state, length=length, reverse=bool(reverse), body=program
        )

    exact = [wide_value(carry[k]) for k in carried]
    results = apply(build, [*captures, *carry, *exact, *items, *(wide_value(items[k]) for k in scanned)], "scan")
    flags = [*(a and b for a, b in zip(weak, body.weak, strict=False)), *body.weak[count:]]
    ys, last = results[state : state + len(flags) - count], len(results) - len(stacked)
    found = with_weakness_flags([*results[:count], *ys], flags)
    found = with_twins(found, [*carried, *stacked], [*results[count:state], *results[last:]])
    return tree.unflatten(carry_tree, found[:count]), tree.unflatten(ys_tree, found[count:])


def _traced_body(f, pair, carry: list, carry_tree, names: list, items: list, item_names: list) -> tuple[Region, list]:
    """(the body, the carry that it takes): traced until the returned carry has the same dtypes and layouts."""
    count, slices = len(carry), [x._shape.with_dims(x._shape.dims[1:]) for x in items]
    while True:
        body = trace_region(
            f,
            [*(v._shape for v in carry), *slices],
            [v.weak for v in [*carry, *items]],
            pair,
            function_name(f, "step"),
            [*names, *item_names],
            [*(typed_sharding(v) for v in carry), *(_without_rows(typed_sharding(x)) for x in items)],
            count,
        )
        if body.out_tree.type is not tuple or body.out_tree.num_children != 2:
            raise TreeError(
                "scan: the body returns a pair (carry, y)", tree.written(body.out_tree), "return (carry, y)"
            )
        new_tree, _ = body.out_tree.children()
        same_tree(new_tree, carry_tree, "scan: the body returns a carry of the structure of init")
        carry, changed = checked_carry(carry, names, output_shapes(body)[:count], body.weak[:count], "scan")
        if not changed:
            return body, carry


def _without_rows(place: NamedSharding | None) -> NamedSharding | None:
    """The layout of a row of an array."""
    return None if place is None else place.update(spec=PartitionSpec(*place.spec[1:]))


def scan_length(items, names, length) -> int:
    for x, name in zip(items, names, strict=True):
        if not x._shape.dims:
            raise ShapeError("scan walks over the first axis of its xs", f"{name} is a scalar", "give it an axis")
    found = {name: x._shape.dims[0] for x, name in zip(items, names, strict=True)}
    if length is not None:
        found["length"] = whole_number(length, "scan", "length")
    if not found:
        raise ArgumentError("scan needs the number of steps", "neither xs nor length", "pass length=")
    sizes = {size_key(size): size for size in found.values()}
    if len(sizes) != 1:
        extents = ", ".join(f"{name} {extent}" for name, extent in found.items())
        raise ShapeError("scan takes xs of one first size, and a length that is it", extents, "make them equal")
    (result,) = sizes.values()
    if result < 0:
        raise ArgumentError("scan takes a length of at least 0", f"{result}", "give the number of steps")
    return result


def _unrolled(builder, step, consts, carry, xs, length: int, reverse: bool) -> Instruction:
    count = len(carry)
    ys: dict[int, list[Instruction]] = {}
    for k in reversed(range(length)) if reverse else range(length):
        slices = []
        for x in xs:
            dims = x.dims[1:]
            row = builder.emit("slice", x, slice=((k, k + 1, 1), *((0, d, 1) for d in dims)))
            slices.append(builder.emit("reshape", row, shape=x.shape.with_dims(dims)))
        results = step(builder, carry, slices, consts)
        carry = results[:count]
        ys[k] = [builder.emit("reshape", y, shape=y.shape.with_dims((1, *y.dims))) for y in results[count:]]
    columns = list(zip(*(ys[k] for k in range(length)), strict=True))
    return builder.tuple([*carry, *(builder.emit("concatenate", *rows, dimensions=(0,)) for rows in columns)])


def map(f, xs, *, batch_size: int | None = None):
    """`f` applied to each slice of xs along the first axis, sequentially; the results are stacked.

    xs: a tree of arrays with equal first sizes. batch_size: number of slices computed together, by vmap.

    >>> hl.lax.map(lambda x: x * x, hnp.arange(4))
    Array([0, 1, 4, 9], dtype=int32)
    """
    require_function(f, "map", "function")
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]

    size = whole_number(batch_size, "map", "batch_size")
    if size < 1:
        raise ArgumentError(
            "map takes a batch_size of at least 1", f"{size}", "pass the number of slices to compute together"
        )
    leaves, structure, names = array_leaves(xs, "map", "xs")
    extent = scan_length(leaves, names, None)
    whole = extent // size * size
    parts = []
    if whole:
        blocks = [v[:whole].reshape((whole // size, size, *v.shape[1:])) for v in leaves]
        found = scan(lambda _, x: (None, vmap(f)(x)), None, tree.unflatten(structure, blocks))[1]
        parts.append(tree.map(lambda y: y.reshape((whole, *y.shape[2:])), found))
    if whole < extent or not extent:
        parts.append(vmap(f)(tree.unflatten(structure, [v[whole:] for v in leaves])))
    if len(parts) == 1:
        return parts[0]

    return tree.map(lambda *rows: concatenate(rows, 0), *parts)
