"""Loops and branches on traced values, with JAX's names: while_loop, fori_loop, scan, cond, switch, map,
associative_scan, platform_dependent.

Regions (bodies, conditions, branches) are traced once. Outside of jit a loop is compiled, once for equal regions, and
run.
"""

from __future__ import annotations

import operator

import numpy as np

from hloom.arrays.array import Array
from hloom.errors import ArgumentError, DTypeError, ShapeError, TreeError
from hloom.ir.build import tuple_elements
from hloom.ir.module import Instruction
from hloom.ir.types import DTYPES, PRED, Shape, kind, promote
from hloom.lax.elementwise import clamp
from hloom.lax.movement import concatenate, expand_dims, rev, slice_in_dim
from hloom.lax.operands import convert, whole_number
from hloom.tracing.refs import branches_take_refs, scan_carries_refs, while_carries_refs
from hloom.tracing.regions import (
    Region,
    apply,
    described,
    inline_region,
    joined_captures,
    leaf_names,
    same_tree,
    trace_region,
)
from hloom.tracing.trace import as_array, current_trace
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree

S32 = DTYPES["s32"]


def _name(function, default: str) -> str:
    return getattr(function, "__name__", None) or type(function).__name__ or default


def _require_function(function, name: str, what: str) -> None:
    if not callable(function):
        raise ArgumentError(f"{name} takes a function as its {what}", f"{type(function).__name__}", "pass a function")


def _leaves(value, what: str, base: str):
    """(arrays, structure, names) of a tree of arrays and numbers."""
    leaves, structure = tree.flatten(value)
    names = leaf_names(value, base)
    return [as_array(v, f"{n} of {what}") for v, n in zip(leaves, names, strict=True)], structure, names


# --- carries ------------------------------------------------------------------------------------------------------


def _checked_carry(leaves, names, body_shapes, body_weak, what: str):
    """The first carry, where weak leaves (Python numbers) take the dtype that the body returns; and whether any did.

    Raises ShapeError or DTypeError where a leaf changes its type on the way through the body.
    """
    promoted, changed = [], False
    for leaf, name, shape, weak in zip(leaves, names, body_shapes, body_weak, strict=True):
        if leaf._shape is shape:
            promoted.append(leaf)
            continue
        if leaf.weak and leaf._shape.dims == shape.dims and _joins(leaf.dtype, shape.dtype, weak):
            promoted.append(convert(leaf, shape.dtype, weak))
            changed = True
            continue
        error = ShapeError if leaf._shape.dims != shape.dims else DTypeError
        repair = f"convert the body's {name} with astype, or start with an array of its dtype"
        if error is ShapeError:
            repair = f"broadcast or reshape {name} so that it keeps its shape"
        raise error(
            f"{what}: every leaf of the carry has one type, before and after the body",
            f"{name} goes in as {described(leaf._shape, leaf.weak)} and comes out as {described(shape, weak)}",
            repair,
        )
    return promoted, changed


def _joins(weak_dtype, dtype, weak: bool) -> bool:
    """Whether a weakly typed number may take the dtype."""
    return promote((weak_dtype, True), (dtype, weak))[0] == dtype


def _outputs(body: Region):
    return [o.shape for o in body.outputs]


def _with_weak(values, weak):
    for value, flag in zip(values, weak, strict=True):
        if flag:
            value.weak = True
    return values


# --- while --------------------------------------------------------------------------------------------------------


@while_carries_refs
def while_loop(cond_fun, body_fun, init_val, *, max_steps: int | None = None):
    """`val = init_val; while cond_fun(val): val = body_fun(val)`; the last val.

    cond_fun: val -> a bool scalar. body_fun: val -> the next val, a tree of the same structure, shapes and dtypes.
    max_steps: stops after so many steps at the latest. The loop can then be differentiated in reverse mode, which has
        to keep something of each step; a loop without a bound has forward mode only.

    Raises TreeError, ShapeError or DTypeError where the body does not return what it takes.

        hl.lax.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, 1.0)       # 128.0
    """
    _require_function(cond_fun, "while_loop", "cond_fun")
    _require_function(body_fun, "while_loop", "body_fun")
    if max_steps is not None:
        return _bounded_while(cond_fun, body_fun, init_val, whole_number(max_steps, "while_loop", "max_steps"))
    leaves, structure, names = _leaves(init_val, "while_loop", "init_val")
    pair = tree.structure((init_val,))
    while True:
        shapes, weak = [v._shape for v in leaves], [v.weak for v in leaves]
        body = trace_region(body_fun, shapes, weak, pair, _name(body_fun, "body"), names)
        same_tree(body.out_tree, structure, "while_loop: body_fun returns the structure that it takes")
        leaves, changed = _checked_carry(leaves, names, _outputs(body), body.weak, "while_loop")
        if not changed:
            break
    condition = trace_region(cond_fun, shapes, weak, pair, _name(cond_fun, "condition"), names)
    _check_condition(condition)
    captures = joined_captures([condition, body])
    count = len(captures)

    def build(builder, given):
        state = builder.tuple(given)

        def program(traced: Region, whole: bool):
            inner = type(builder)(traced.computation.name)
            parameter = inner.parameter(state.shape, "state")
            elements = tuple_elements(inner, parameter)
            results = inline_region(inner, traced, elements[count:], captures, elements[:count])
            return inner.finish(inner.tuple([*elements[:count], *results]) if whole else results[0])

        loop = builder.emit("while", state, condition=program(condition, False), body=program(body, True))
        return builder.tuple(tuple_elements(builder, loop)[count:])

    results = apply(build, [*captures, *leaves], "while_loop")
    return tree.unflatten(structure, _with_weak(results, [a and b for a, b in zip(weak, body.weak, strict=True)]))


def _check_condition(condition: Region) -> None:
    outputs = condition.outputs
    if len(outputs) != 1 or not condition.out_tree.is_leaf():
        raise TreeError("while_loop: cond_fun returns one bool", f"{condition.out_tree}", "return a scalar")
    if outputs[0].shape is not Shape(PRED, ()):
        error = DTypeError if outputs[0].dims == () else ShapeError
        raise error(
            "while_loop: cond_fun returns a bool scalar",
            described(outputs[0].shape, False),
            "compare something, and reduce arrays with .all() or .any()",
        )


def _bounded_while(cond_fun, body_fun, init_val, max_steps: int):
    """A scan of max_steps steps, of which those after the end hand the value on."""
    if max_steps < 0:
        raise ArgumentError("while_loop takes max_steps of at least 0", f"{max_steps}", "give a bound, or None")
    leaves, structure, names = _leaves(init_val, "while_loop", "init_val")
    pair = tree.structure((init_val,))
    shapes, weak = [v._shape for v in leaves], [v.weak for v in leaves]
    body = trace_region(body_fun, shapes, weak, pair, _name(body_fun, "body"), names)
    same_tree(body.out_tree, structure, "while_loop: body_fun returns the structure that it takes")
    leaves, _ = _checked_carry(leaves, names, _outputs(body), body.weak, "while_loop")
    shapes, weak = [v._shape for v in leaves], [v.weak for v in leaves]
    _check_condition(trace_region(cond_fun, shapes, weak, pair, _name(cond_fun, "condition"), names))

    def step(value, _):
        return cond(cond_fun(value), body_fun, lambda same: same, value), None

    return scan(step, tree.unflatten(structure, leaves), None, length=max_steps)[0]


def fori_loop(lower, upper, body_fun, init_val, *, unroll=None):
    """`val = init_val; for i in range(lower, upper): val = body_fun(i, val)`; the last val.

    lower, upper: int scalars. Where both are Python integers the loop is a scan and can be differentiated in reverse
        mode; otherwise it is a while loop. unroll: as for scan, of loops with such bounds.
    """
    _require_function(body_fun, "fori_loop", "body_fun")
    if current_trace() is not None:  # known numbers, such as elements of a shape, are worth a loop of known length
        lower, upper = _known(lower), _known(upper)
    static = all(isinstance(b, (int, np.integer)) and not isinstance(b, bool) for b in (lower, upper))
    if not static:
        for bound, name in ((lower, "lower"), (upper, "upper")):
            found = as_array(bound, f"{name} of fori_loop")
            if kind(found.dtype) not in ("signed", "unsigned") or found._shape.dims:
                raise DTypeError(
                    f"fori_loop takes an integer scalar as {name}", described(found._shape, found.weak), "convert it"
                )
        if unroll is not None and unroll not in (False, 1):
            raise ArgumentError(
                "fori_loop unrolls loops whose bounds are Python integers", "a bound that is traced", "leave out unroll"
            )
        lower, upper = as_array(lower), as_array(upper)
        dtype = promote((lower.dtype, lower.weak), (upper.dtype, upper.weak))[0]
        first, last = convert(lower, dtype), convert(upper, dtype)
        result = while_loop(
            lambda state: state[0] < state[1],
            lambda state: (state[0] + 1, state[1], body_fun(state[0], state[2])),
            (first, last, init_val),
        )
        return result[2]
    given = lower.dtype if isinstance(lower, np.integer) else None
    lower, upper = int(lower), int(upper)
    wide = not (-(2**31) <= lower < 2**31 and -(2**31) <= upper < 2**31)
    dtype = DTYPES["s64"] if wide else given if given is not None else S32
    start = as_array(np.asarray(lower, dtype))

    def step(state, _):
        count, value = state
        return (count + 1, body_fun(count, value)), None

    (_, value), _ = scan(step, (start, init_val), None, length=max(upper - lower, 0), unroll=unroll or 1)
    return value


def _known(bound):
    """A bound that is an array with a value as a NumPy integer; others as they are."""
    if isinstance(bound, (Array, np.ndarray)) and not bound.shape and kind(bound.dtype) in ("signed", "unsigned"):
        return np.asarray(bound)[()]
    return bound


# --- scan ---------------------------------------------------------------------------------------------------------


@scan_carries_refs
def scan(f, init, xs=None, length: int | None = None, reverse: bool = False, unroll=1, _split_transpose: bool = False):
    """A loop over the first axis of xs that carries a value and stacks results: `(carry, y) = f(carry, x)` for each x.

    init: the first carry, a tree that keeps its structure, shapes and dtypes. xs: a tree of arrays of one first extent,
    or None with `length`. reverse: from the last x to the first; ys stand where their x does. unroll: True, or at least
    the length, writes the steps one behind the other instead of a loop; smaller numbers are of no effect.

    Returns (last carry, ys): ys is the tree of y, each leaf with a new first axis. Can be differentiated in both modes.
    Raises ShapeError where extents differ, and what concerns the carry: TreeError, ShapeError, DTypeError.

        total, sums = hl.lax.scan(lambda s, x: (s + x, s + x), 0.0, hnp.arange(4.0))
    """
    _require_function(f, "scan", "body")
    carry, carry_tree, names = _leaves(init, "scan", "init")
    items, items_tree, item_names = _leaves(xs, "scan", "xs")
    length = _length(items, item_names, length)
    slices = [x._shape.with_dims(x._shape.dims[1:]) for x in items]
    pair = tree.structure((init, xs))
    while True:
        shapes, weak = [v._shape for v in carry], [v.weak for v in carry]
        body = trace_region(
            f, [*shapes, *slices], [*weak, *(x.weak for x in items)], pair, _name(f, "step"), [*names, *item_names]
        )
        children = body.out_tree.children() if body.out_tree.type is tuple else ()
        if len(children) != 2:
            raise TreeError("scan: the body returns a pair (carry, y)", f"{body.out_tree}", "return (carry, y)")
        new_tree, ys_tree = children
        same_tree(new_tree, carry_tree, "scan: the body returns a carry of the structure of init")
        count = len(carry)
        carry, changed = _checked_carry(carry, names, _outputs(body)[:count], body.weak[:count], "scan")
        if not changed:
            break
    captures = list(body.captures)
    unrolled = unroll is True or (length > 0 and operator.index(unroll) >= length)

    def build(builder, given):
        consts, first, rest = given[: len(captures)], given[len(captures) : len(captures) + count], None
        rest = given[len(captures) + count :]
        if unrolled:
            return _unrolled(builder, body, captures, consts, first, rest, length, reverse)
        inner = type(builder)(body.computation.name)
        parameters = [inner.parameter(i.shape, i.hint) for i in consts]
        parameters += [inner.parameter(p.shape, p.hint) for p in body.computation.parameters[: count + len(items)]]
        results = inline_region(inner, body, parameters[len(consts) :], captures, parameters[: len(consts)])
        step = inner.finish(inner.tuple(results))
        return builder.emit(
            "scan", *given, num_consts=len(consts), num_carry=count, length=length, reverse=bool(reverse), body=step
        )

    results = apply(build, [*captures, *carry, *items], "scan")
    _with_weak(results, [*(a and b for a, b in zip(weak, body.weak, strict=False)), *body.weak[count:]])
    return tree.unflatten(carry_tree, results[:count]), tree.unflatten(ys_tree, results[count:])


def _length(items, names, length) -> int:
    for x, name in zip(items, names, strict=True):
        if not x._shape.dims:
            raise ShapeError("scan walks over the first axis of its xs", f"{name} is a scalar", "give it an axis")
    found = {name: x._shape.dims[0] for x, name in zip(items, names, strict=True)}
    if length is not None:
        found["length"] = whole_number(length, "scan", "length")
    if not found:
        raise ArgumentError("scan needs to know how many steps to make", "neither xs nor length", "pass length=")
    if len(set(found.values())) != 1:
        extents = ", ".join(f"{name} {extent}" for name, extent in found.items())
        raise ShapeError("scan takes xs of one first extent, and a length that is it", extents, "make them equal")
    (result,) = set(found.values())
    if result < 0:
        raise ArgumentError("scan takes a length of at least 0", f"{result}", "give the number of steps")
    return result


def _unrolled(builder, body: Region, captures, consts, carry, xs, length: int, reverse: bool) -> Instruction:
    count = len(carry)
    ys: dict[int, list[Instruction]] = {}
    for k in reversed(range(length)) if reverse else range(length):
        slices = []
        for x in xs:
            dims = x.dims[1:]
            row = builder.emit("slice", x, slice=((k, k + 1, 1), *((0, d, 1) for d in dims)))
            slices.append(builder.emit("reshape", row, shape=x.shape.with_dims(dims)))
        results = inline_region(builder, body, [*carry, *slices], captures, consts)
        carry = results[:count]
        ys[k] = [builder.emit("reshape", y, shape=y.shape.with_dims((1, *y.dims))) for y in results[count:]]
    columns = list(zip(*(ys[k] for k in range(length)), strict=True))
    return builder.tuple([*carry, *(builder.emit("concatenate", *rows, dimensions=(0,)) for rows in columns)])


# --- branches -----------------------------------------------------------------------------------------------------

_MISSING = object()


def cond(pred, true_fun, false_fun, *operands, operand=_MISSING, linear=None):
    """`true_fun(*operands)` where pred is true, else `false_fun(*operands)`. Only the chosen one is computed.

    pred: a scalar (a number is true where it is not 0). Both functions return trees of one structure, with the same
    shapes and dtypes. The older form cond(pred, true_operand, true_fun, false_operand, false_fun) works too.
    Raises TreeError, ShapeError or DTypeError where the branches differ.
    """
    if operand is not _MISSING:
        operands = (operand, *operands)
    if not callable(true_fun) and len(operands) == 2 and callable(false_fun) and callable(operands[1]):
        true_operand, on_true, false_operand, on_false = true_fun, false_fun, *operands
        both = (true_operand, false_operand)
        return cond(pred, lambda pair: on_true(pair[0]), lambda pair: on_false(pair[1]), both)
    _require_function(true_fun, "cond", "true_fun")
    _require_function(false_fun, "cond", "false_fun")
    selector = as_array(pred, "pred of cond")
    if selector._shape.dims:
        raise ShapeError(
            "cond takes a scalar as pred",
            described(selector._shape, selector.weak),
            "reduce it with .all() or .any(), or choose element by element with hnp.where",
        )
    if kind(selector.dtype) not in ("pred", "signed", "unsigned", "float"):
        raise DTypeError("cond takes a bool or a real number as pred", described(selector._shape, False), "compare it")
    if selector.dtype != PRED:
        selector = selector != 0
    return _choose("cond", selector, [true_fun, false_fun], ("true_fun", "false_fun"), operands)


def switch(index, branches, *operands, operand=_MISSING):
    """`branches[index](*operands)`; an index out of range is moved into it. Only the chosen branch is computed.

    index: an int scalar. branches: functions that return trees of one structure, shapes and dtypes.
    """
    if operand is not _MISSING:
        operands = (operand, *operands)
    branches = list(branches)
    if not branches:
        raise ArgumentError("switch takes at least one branch", "none", "pass a list of functions")
    for branch in branches:
        _require_function(branch, "switch", "branch")
    selector = as_array(index, "the index of switch")
    if selector._shape.dims or kind(selector.dtype) not in ("signed", "unsigned"):
        error = ShapeError if selector._shape.dims else DTypeError
        raise error("switch takes an integer scalar as its index", described(selector._shape, False), "convert it")
    if len(branches) == 1:
        return branches[0](*operands)

    last = len(branches) - 1
    if not (selector.dtype.itemsize == 1 and last > np.iinfo(selector.dtype).max):
        selector = clamp(np.asarray(0, selector.dtype), selector, np.asarray(last, selector.dtype))
    selector = convert(selector, S32)
    return _choose("switch", selector, branches, [f"branch {k}" for k in range(len(branches))], operands)


@branches_take_refs
def _choose(name: str, selector, functions, titles, operands):
    leaves, _, names = _leaves(operands, name, "operands")
    structure = tree.structure(operands)
    shapes, weak = [v._shape for v in leaves], [v.weak for v in leaves]
    bodies = [
        trace_region(f, shapes, weak, structure, _name(f, title), names)
        for f, title in zip(functions, titles, strict=True)
    ]
    weak = _joined_branches(name, bodies, titles)
    captures = joined_captures(bodies)
    count = len(captures)

    def build(builder, given):
        argument = builder.tuple(given[1:])
        branches = []
        for body in bodies:
            inner = type(builder)(body.computation.name)
            elements = tuple_elements(inner, inner.parameter(argument.shape, "operands"))
            results = inline_region(inner, body, elements[count:], captures, elements[:count])
            results = [_converted(inner, r, s) for r, s in zip(results, wanted, strict=True)]
            branches.append(inner.finish(inner.tuple(results)))
        arguments = [argument] * len(branches)
        return builder.emit("conditional", given[0], *arguments, branch_computations=tuple(branches))

    wanted = [shape for shape, _ in weak]
    results = apply(build, [selector, *captures, *leaves], name)
    return tree.unflatten(bodies[0].out_tree, _with_weak(results, [flag for _, flag in weak]))


def _converted(builder, value: Instruction, shape: Shape) -> Instruction:
    return value if value.shape is shape else builder.emit("convert", value, shape=shape)


def _joined_branches(name: str, bodies: list[Region], titles) -> list[tuple[Shape, bool]]:
    """(shape, weak) of each result: Python numbers in one branch take the dtype of the other's array."""
    first = bodies[0]
    for body, title in zip(bodies[1:], titles[1:], strict=True):
        if body.out_tree != first.out_tree:
            raise TreeError(
                f"{name}: all branches return one structure",
                f"{titles[0]} {first.out_tree}; {title} {body.out_tree}",
                "return trees of the same structure",
            )
    joined = []
    leaves = leaf_names(tree.unflatten(first.out_tree, [0] * len(first.outputs)), "result")
    for k, leaf in enumerate(leaves):
        found = [(b.outputs[k].shape, b.weak[k]) for b in bodies]
        strong = {s.dtype for s, w in found if not w}
        dtype = promote(*((s.dtype, w) for s, w in found))[0] if len(strong) <= 1 else None
        if strong and dtype not in strong:
            dtype = None
        for title, (shape, flag) in zip(titles, found, strict=True):
            if shape.dims == found[0][0].dims and dtype is not None:
                continue
            if (shape.dims, shape.dtype) == (found[0][0].dims, found[0][0].dtype):
                continue
            error = ShapeError if shape.dims != found[0][0].dims else DTypeError
            raise error(
                f"{name}: all branches return the same types",
                f"{leaf} of {titles[0]} is {described(*found[0])}, of {title} {described(shape, flag)}",
                "convert or broadcast the result of one branch",
            )
        joined.append((found[0][0].with_dtype(dtype), not strong))
    return joined


def platform_dependent(*args, default=None, **per_platform):
    """The function given for the platform that the program runs on (`cpu=`, `cuda=`), or `default`, called with args.

    Raises ArgumentError where there is none for it.
    """
    found = per_platform.get("cpu", default)
    if found is None:
        raise ArgumentError(
            "platform_dependent takes a function for the platform of the program",
            f"the platform is cpu; functions for {', '.join(per_platform) or 'none'}",
            "pass cpu=, or default=",
        )
    _require_function(found, "platform_dependent", "choice")
    return found(*args)


# --- map and scans of associative functions -----------------------------------------------------------------------


def map(f, xs, *, batch_size: int | None = None):
    """`f` applied to each slice of xs along the first axis, one after the other; results stacked.

    xs: a tree of arrays of one first extent. batch_size: slices that are computed together, by vmap.
    """
    _require_function(f, "map", "function")
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]

    size = whole_number(batch_size, "map", "batch_size")
    if size < 1:
        raise ArgumentError("map takes a batch_size of at least 1", f"{size}", "say how many slices to compute at once")
    leaves, structure, names = _leaves(xs, "map", "xs")
    extent = _length(leaves, names, None)
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


def associative_scan(fn, elems, reverse: bool = False, axis: int = 0):
    """The running results of an associative function along an axis, in a number of steps that grows as the logarithm.

    fn: (a, b) -> a tree like elems; it combines slices element by element. elems: a tree of arrays of one extent along
    the axis. reverse: from the end. Returns a tree like elems. G. E. Blelloch, Prefix sums and their applications
    (1990): pairs are combined, scanned in half the length, and the places between filled in.
    """
    _require_function(fn, "associative_scan", "function")

    leaves, structure, names = _leaves(elems, "associative_scan", "elems")
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
        raise ShapeError("associative_scan takes elems of one extent along the axis", found, "make them equal")
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
    """even[0], odd[0], even[1], odd[1], ... along an axis; there are as many even as odd ones, or one more."""
    count = odd._shape.dims[axis]
    pairs = [expand_dims(x, (axis + 1,)) for x in (slice_in_dim(even, 0, count, axis=axis), odd)]
    dims = list(odd._shape.dims)
    dims[axis] = 2 * count
    joined = concatenate(pairs, axis + 1).reshape(tuple(dims))
    if even._shape.dims[axis] == count:
        return joined
    return concatenate([joined, slice_in_dim(even, count, count + 1, axis=axis)], axis)


__all__ = [
    "associative_scan",
    "cond",
    "fori_loop",
    "map",
    "platform_dependent",
    "scan",
    "switch",
    "while_loop",
]
