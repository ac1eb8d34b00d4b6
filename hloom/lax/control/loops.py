"""Loops on traced values with JAX's names: while_loop and fori_loop.

Bodies and conditions are traced once. Outside of jit a loop is compiled, once per distinct region, and run.
"""

from __future__ import annotations

import numpy as np

from hloom.arrays.array import Array
from hloom.errors import ArgumentError, DTypeError, ShapeError, TreeError
from hloom.ir.build import tuple_elements
from hloom.ir.types import DTYPES, PRED, Shape, kind, promote
from hloom.lax.control.arguments import (
    array_leaves,
    carried_twins,
    checked_carry,
    checked_return,
    function_name,
    output_shapes,
    require_function,
    results_of,
    with_twins,
    with_weakness_flags,
)
from hloom.lax.control.branches import cond
from hloom.lax.control.scan import scan
from hloom.lax.operands import convert, default_int, whole_number
from hloom.tracing.active import bringing_twins
from hloom.tracing.exact import wide_value
from hloom.tracing.refs import while_carries_refs
from hloom.tracing.regions import Region, apply, described, inline_region, joined_captures, same_tree, trace_region
from hloom.tracing.signatures import call_of_user
from hloom.tracing.trace import as_array, current_trace, typed_sharding
from hloom.tree import pytrees as tree

S32 = DTYPES["s32"]


@bringing_twins
@while_carries_refs
def while_loop(cond_fun, body_fun, init_val, *, max_steps: int | None = None):
    """`val = init_val; while cond_fun(val): val = body_fun(val)`; the last val.

    cond_fun: val -> a bool scalar. body_fun: val -> the next val, a tree of the same structure, shapes and dtypes.
    max_steps: an upper bound on the number of steps, which enables reverse mode, as that stores residuals of each step;
    an unbounded loop has forward mode only.

    Raises TreeError, ShapeError or DTypeError if the body changes the type of val.

        hl.lax.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, 1.0)       # 128.0

    >>> hl.while_loop(lambda n: n < 100, lambda n: n * 2, 1)
    Array(128, dtype=int32, weak_type=True)
    """
    require_function(cond_fun, "while_loop", "cond_fun")
    require_function(body_fun, "while_loop", "body_fun")
    if max_steps is not None:
        return _bounded_while(cond_fun, body_fun, init_val, whole_number(max_steps, "while_loop", "max_steps"))
    leaves, structure, names = array_leaves(init_val, "while_loop", "init_val")
    pair, places = tree.structure((init_val,)), [typed_sharding(v) for v in leaves]
    while True:
        shapes, weak = [v._shape for v in leaves], [v.weak for v in leaves]
        name = function_name(body_fun, "body")
        body = trace_region(body_fun, shapes, weak, pair, name, names, places, len(leaves))
        same_tree(body.out_tree, structure, "while_loop: body_fun returns the structure that it takes")
        leaves, changed = checked_carry(leaves, names, output_shapes(body), body.weak, "while_loop")
        if not changed:
            break
    name = function_name(cond_fun, "condition")
    condition = trace_region(cond_fun, shapes, weak, pair, name, names, places, len(leaves))
    _check_condition(condition)
    captures = joined_captures([condition, body])
    count, own = len(captures), len(leaves)
    carried = carried_twins(body, own, condition)

    def build(builder, given):
        state = builder.tuple(given)

        def program(traced: Region, whole: bool):
            inner = type(builder)(traced.computation.name)
            parameter = inner.parameter(state.shape, "state")
            elements = tuple_elements(inner, parameter)
            wide = dict(zip(carried, elements[count + own :], strict=True))
            results = inline_region(inner, traced, elements[count : count + own], captures, elements[:count], wide)
            if not whole:
                return inner.finish(results[0])
            results, exact = results_of(inner, traced, results)
            return inner.finish(inner.tuple([*elements[:count], *results, *(exact(k) for k in carried)]))

        loop = builder.emit("while", state, condition=program(condition, False), body=program(body, True))
        return builder.tuple(tuple_elements(builder, loop)[count:])

    results = apply(build, [*captures, *leaves, *(wide_value(leaves[k]) for k in carried)], "while_loop")
    found = with_weakness_flags(results[:own], [a and b for a, b in zip(weak, body.weak, strict=True)])
    return tree.unflatten(structure, with_twins(found, carried, results[own:]))


def _check_condition(condition: Region) -> None:
    outputs = condition.outputs
    if len(outputs) != 1 or not condition.out_tree.is_leaf():
        raise TreeError("while_loop: cond_fun returns one bool", tree.written(condition.out_tree), "return a scalar")
    if outputs[0].shape is not Shape(PRED, ()):
        error = DTypeError if outputs[0].dims == () else ShapeError
        raise error(
            "while_loop: cond_fun returns a bool scalar",
            described(outputs[0].shape, False),
            "compare something, and reduce arrays with .all() or .any()",
        )


def _bounded_while(cond_fun, body_fun, init_val, max_steps: int):
    """A scan of max_steps steps; those after the end pass the value through."""
    if max_steps < 0:
        raise ArgumentError("while_loop takes max_steps of at least 0", f"{max_steps}", "give a bound, or None")
    leaves, structure, names = array_leaves(init_val, "while_loop", "init_val")
    pair, places = tree.structure((init_val,)), [typed_sharding(v) for v in leaves]
    shapes, weak = [v._shape for v in leaves], [v.weak for v in leaves]
    body = trace_region(body_fun, shapes, weak, pair, function_name(body_fun, "body"), names, places)
    same_tree(body.out_tree, structure, "while_loop: body_fun returns the structure that it takes")
    leaves, _ = checked_carry(leaves, names, output_shapes(body), body.weak, "while_loop")
    shapes, weak = [v._shape for v in leaves], [v.weak for v in leaves]
    _check_condition(trace_region(cond_fun, shapes, weak, pair, function_name(cond_fun, "condition"), names))

    def step(value, _):
        return cond(cond_fun(value), body_fun, lambda same: same, value), None

    return scan(step, tree.unflatten(structure, leaves), None, length=max_steps)[0]


def fori_loop(lower, upper, body_fun, init_val, *, unroll=None):
    """`val = init_val; for i in range(lower, upper): val = body_fun(i, val)`; the last val.

    lower, upper: int scalars. If both are Python integers the loop is a scan and has a reverse mode; otherwise it is a
    while loop. unroll: as for scan, for loops with such bounds.

    >>> hl.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    """
    require_function(body_fun, "fori_loop", "body_fun")
    leaves, structure, _ = array_leaves(init_val, "fori_loop", "init_val")
    init_val = tree.unflatten(structure, leaves)

    def body(count, value):
        after = call_of_user(body_fun, function_name(body_fun, "body_fun"), count, value)
        return checked_return(value, after, "fori_loop", "init_val")

    if current_trace() is not None:  # concrete values, such as elements of a shape, allow a loop of static length
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
        dtype, weak = promote((lower.dtype, lower.weak), (upper.dtype, upper.weak))
        first, last = convert(lower, dtype, weak), convert(upper, dtype, weak)
        result = while_loop(
            lambda state: state[0] < state[1],
            lambda state: (state[0] + 1, state[1], body(state[0], state[2])),
            (first, last, init_val),
        )
        return result[2]
    bounds = [b.dtype for b in (lower, upper) if isinstance(b, np.integer)]
    given = promote(*((b, False) for b in bounds))[0] if bounds else None
    lower, upper = int(lower), int(upper)
    wide = not (-(2**31) <= lower < 2**31 and -(2**31) <= upper < 2**31)
    dtype = DTYPES["s64"] if wide else given if given is not None else default_int()
    start = as_array(np.asarray(lower, dtype))
    start.weak = given is None  # Python integers take the dtype of the other operand

    def step(state, _):
        count, value = state
        return (count + 1, body(count, value)), None

    (_, value), _ = scan(step, (start, init_val), None, length=max(upper - lower, 0), unroll=unroll or 1)
    return value


def _known(bound):
    """A bound: a concrete array as a NumPy integer, others unchanged."""
    if isinstance(bound, (Array, np.ndarray)) and not bound.shape and kind(bound.dtype) in ("signed", "unsigned"):
        return np.asarray(bound)[()]
    return bound
