"""Branches on traced values with JAX's names: cond, switch and platform_dependent."""

from __future__ import annotations

import numpy as np

from hloom.arrays.digits import DOUBLE, WIDE
from hloom.errors import ArgumentError, DTypeError, ShapeError, TreeError
from hloom.ir.build import tuple_elements
from hloom.ir.module import Instruction
from hloom.ir.types import DTYPES, PRED, Shape, kind, promote
from hloom.lax.control.arguments import (
    array_leaves,
    function_name,
    require_function,
    results_of,
    with_twins,
    with_weakness_flags,
)
from hloom.lax.elementwise import clamp
from hloom.lax.operands import convert
from hloom.tracing.active import bringing_twins, require_twins
from hloom.tracing.exact import wide_shape, wide_value
from hloom.tracing.refs import branches_take_refs
from hloom.tracing.regions import Region, apply, described, inline_region, joined_captures, leaf_names, trace_region
from hloom.tracing.trace import as_array, typed_sharding
from hloom.tree import pytrees as tree

S32 = DTYPES["s32"]
_MISSING = object()


def cond(pred, true_fun, false_fun, *operands, operand=_MISSING, linear=None):
    """`true_fun(*operands)` where pred is true, else `false_fun(*operands)`. Only the selected one is computed.

    pred: a scalar (true if nonzero). Both functions return trees of the same structure, shapes and dtypes. The older
    form cond(pred, true_operand, true_fun, false_operand, false_fun) works too. Raises TreeError, ShapeError or
    DTypeError if the branches differ.

    >>> absolute = lambda x: hl.cond(x > 0, lambda v: v, lambda v: -v, x)
    >>> absolute(-3.0)
    Array(3., dtype=float32, weak_type=True)
    >>> hl.grad(absolute)(-3.0)
    Array(-1., dtype=float32, weak_type=True)
    """
    if operand is not _MISSING:
        operands = (operand, *operands)
    if not callable(true_fun) and len(operands) == 2 and callable(false_fun) and callable(operands[1]):
        on_true, (false_operand, on_false) = false_fun, operands
        both = (true_fun, false_operand)
        return cond(pred, lambda pair: on_true(pair[0]), lambda pair: on_false(pair[1]), both)
    require_function(true_fun, "cond", "true_fun")
    require_function(false_fun, "cond", "false_fun")
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
    """`branches[index](*operands)`; an index out of range is clamped. Only the selected branch is computed.

    index: an int scalar. branches: functions that return trees of the same structure, shapes and dtypes.

    >>> branches = [lambda x: x, lambda x: 10 * x, lambda x: -x]
    >>> hl.lax.switch(1, branches, hnp.array([1, 2]))
    Array([10, 20], dtype=int32)
    >>> hl.lax.switch(7, branches, hnp.array([1, 2]))
    Array([-1, -2], dtype=int32)
    """
    if operand is not _MISSING:
        operands = (operand, *operands)
    branches = list(branches)
    if not branches:
        raise ArgumentError("switch takes at least one branch", "none", "pass a list of functions")
    for branch in branches:
        require_function(branch, "switch", "branch")
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


@bringing_twins
@branches_take_refs
def _choose(name: str, selector, functions, titles, operands):
    leaves, _, names = array_leaves(operands, name, "operands")
    structure = tree.structure(operands)
    shapes, weak, places = [v._shape for v in leaves], [v.weak for v in leaves], [typed_sharding(v) for v in leaves]
    bodies = [
        trace_region(f, shapes, weak, structure, function_name(f, title), names, places)
        for f, title in zip(functions, titles, strict=True)
    ]
    weak = _joined_branches(name, bodies, titles)
    captures = joined_captures(bodies)
    count, own = len(captures), len(leaves)
    given_wide = sorted({k for body in bodies for k in body.wide})
    with_twin = [k for k, (shape, flag) in enumerate(weak) if flag and any(k in body.twins for body in bodies)]

    def build(builder, given):
        argument = builder.tuple(given[1:])
        branches = []
        for body in bodies:
            inner = type(builder)(body.computation.name)
            elements = tuple_elements(inner, inner.parameter(argument.shape, "operands"))
            wide = dict(zip(given_wide, elements[count + own :], strict=True))
            results = inline_region(inner, body, elements[count : count + own], captures, elements[:count], wide)
            results, exact = results_of(inner, body, results)
            best = [exact(k) if k in body.twins else r for k, r in enumerate(results)]
            converted = [
                r if r.shape is s else _converted(inner, v, s) for r, v, s in zip(results, best, wanted, strict=True)
            ]
            converted += [_converted(inner, best[k], wide_shape(wanted[k])) for k in with_twin]
            branches.append(inner.finish(inner.tuple(converted)))
        arguments = [argument] * len(branches)
        return builder.emit("conditional", given[0], *arguments, branch_computations=tuple(branches))

    wanted = [shape for shape, _ in weak]
    results = apply(build, [selector, *captures, *leaves, *(wide_value(leaves[k]) for k in given_wide)], name)
    found = with_weakness_flags(results[: len(wanted)], [flag for _, flag in weak])
    return tree.unflatten(bodies[0].out_tree, with_twins(found, with_twin, results[len(wanted) :]))


def _converted(builder, value: Instruction, shape: Shape) -> Instruction:
    if value.shape is shape:
        return value
    if value.dtype in DOUBLE and shape.dtype in WIDE:
        require_twins()  # a Python scalar in one branch becomes double precision if another branch is
    return builder.emit("convert", value, shape=shape)


def _joined_branches(name: str, bodies: list[Region], titles) -> list[tuple[Shape, bool]]:
    """(shape, weak) of each result: Python scalars in one branch take the dtype of the other's array."""
    first = bodies[0]
    for body, title in zip(bodies[1:], titles[1:], strict=True):
        if body.out_tree != first.out_tree:
            raise TreeError(
                f"{name}: all branches return one structure",
                f"{titles[0]} {tree.written(first.out_tree)}; {title} {tree.written(body.out_tree)}",
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
        # As in JAX: for equal dtypes one branch determines the type, in cond the false branch.
        equal = all(s.dtype == dtype for s, _ in found)
        decides = found[-1 if name == "cond" else 0][1]
        joined.append((found[0][0].with_dtype(dtype), decides if equal else not strong))
    return joined


def platform_dependent(*args, default=None, **per_platform):
    """Calls the function for the platform of the program (`cpu=`, `cuda=`), or `default`, with args.

    Raises ArgumentError if there is none.

    >>> hl.lax.platform_dependent(hnp.array([2.0]), cpu=lambda x: x + 1, default=lambda x: x)
    Array([3.], dtype=float32)
    """
    found = per_platform.get("cpu", default)
    if found is None:
        raise ArgumentError(
            "platform_dependent takes a function for the platform of the program",
            f"the platform is cpu; functions for {', '.join(per_platform) or 'none'}",
            "pass cpu=, or default=",
        )
    require_function(found, "platform_dependent", "choice")
    return found(*args)
