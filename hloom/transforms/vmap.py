"""vmap: vectorization of a function over a batch axis.

The function is traced once, on the shapes of one batch element; the computation is then vectorized
(`hloom.compiler.transforms.batch`) and applied: computed eagerly outside of a trace, inlined in the enclosing trace
otherwise. So vmap nests in any order with itself, with `jit` and with derivatives.
"""

from __future__ import annotations

import functools

import optree

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.inline import inline_calls
from hloom.errors import ArgumentError, BatchingError, ShapeError, TreeError
from hloom.tracing.refs import OuterRef, RefArgument, mapped_with_refs
from hloom.tracing.signatures import argument_hints, function_name
from hloom.tracing.trace import (
    apply_computation,
    as_array,
    bind,
    current_trace,
    named_axis,
    trace_function,
)
from hloom.tree import pytrees as tree
from hloom.tree.prefixes import _is_axis, mapped_axes


def vmap(
    function,
    in_axes=0,
    out_axes=0,
    axis_name=None,
    axis_size: int | None = None,
    spmd_axis_name=None,
    *,
    _takes_refs: bool = True,
):
    """The function that applies `function` to each element of its arguments along an axis, vectorized.

    in_axes: the batch axis of each positional argument, None for an unbatched one: one integer (or None) for all
        arguments, or a tuple with an entry per argument; an entry may be a tree that is a prefix of the argument's.
        Negative axes count from the end. Keyword arguments are mapped over axis 0.
    out_axes: the position of the batch axis in the results, a prefix of the result's tree; None for a result that is
        the same for all batch elements.
    axis_name: the name under which `lax.psum` and the other collectives inside `function` find the axis.
    axis_size: the batch size, required where no argument is mapped.
    spmd_axis_name: accepted; no effect, since the batch is computed on one device.

    Raises ShapeError where the mapped axes differ in size (it names each argument) or do not exist, TreeError where
    in_axes or out_axes do not match, BatchingError for a batched result with out_axes None.

        hl.vmap(hnp.dot, in_axes=(0, None))(matrix, vector)    # one product per row
    """
    if not callable(function):
        raise ArgumentError("vmap of a function", f"{type(function).__name__}", "pass a function")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(in_axes, "in_axes")
    _check_axes(out_axes, "out_axes")
    name = function_name(function)
    what = f"vmap of '{name}'"

    @functools.wraps(function)
    def mapped(*args, **kwargs):
        try:
            return on_arrays(*args, **kwargs)
        except (OuterRef, RefArgument):
            if not _takes_refs:
                raise
            again = functools.partial(vmap, axis_name=axis_name, axis_size=axis_size, _takes_refs=False)
            return mapped_with_refs(again, function, in_axes, out_axes, args, kwargs)

    def on_arrays(*args, **kwargs):
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise TreeError(
                f"{what}: in_axes has an entry for each positional argument",
                f"{len(in_axes)} entries, {len(args)} arguments",
                "pass as many entries as arguments; keyword arguments are mapped over axis 0",
            )
        leaves, structure = tree.flatten((args, kwargs))
        axes = [a for k, arg in enumerate(args) for a in _each(in_axes, k, arg, what)]
        axes += [0] * (len(leaves) - len(axes))
        hints = argument_hints(function, args, kwargs)
        chosen = [k for k, axis in enumerate(axes) if axis is not None]
        arrays = {k: as_array(leaves[k], f"argument '{hints[k]}' of {what}") for k in chosen}
        axes = [_normal(axes[k], arrays[k], hints[k], what) if k in arrays else None for k in range(len(axes))]
        size = _common_size([(hints[k], arrays[k], axes[k]) for k in chosen], axis_size, what)

        def one(*elements):
            flat = list(leaves)
            for k, element in zip(chosen, elements, strict=True):
                flat[k] = element
            given, named = tree.unflatten(structure, flat)
            return function(*given, **named)

        outer = current_trace()
        shapes = [_without(arrays[k], axes[k]) for k in chosen]
        _, in_tree = tree.flatten((tuple(shapes), {}))
        with named_axis(axis_name, size):
            traced = trace_function(
                one,
                shapes,
                in_tree,
                name,
                outer is None or outer.carries_values,
                [hints[k] for k in chosen],
                kind="vmap",
            )
        positions = _out_positions(out_axes, traced.out_tree, what)
        computation = inline_calls(traced.computation, traced.known)
        flags = [True] * len(chosen) + [False] * len(traced.captures)
        computation, differs = batch(computation, flags, size, [p is not None for p in positions], axis_name)
        for k, (position, differing) in enumerate(zip(positions, differs, strict=True)):
            if position is None and differing:
                raise BatchingError(
                    f"{what} with out_axes None for result {k}",
                    "the result differs between the batch elements",
                    "set an axis in out_axes, or reduce it over the batch with lax.psum",
                )
        operands = [_move(arrays[k], axes[k], 0) for k in chosen]
        results = apply_computation(computation, [*operands, *traced.captures], traced.known, leaves)
        results = [
            result if position is None else _move(result, 0, _out_axis(position, result, k, what))
            for k, (result, position) in enumerate(zip(results, positions, strict=True))
        ]
        return traced.unflatten(results)

    return mapped


# --- axes ---------------------------------------------------------------------------------------------------------


def _check_axes(axes, what: str) -> None:
    for leaf in optree.tree_leaves(axes, none_is_leaf=True, namespace="hloom"):
        if not _is_axis(leaf):
            raise ArgumentError(f"vmap requires integers or None in {what}", f"{leaf!r}", "pass axes as integers")


def _each(in_axes, position: int, argument, what: str) -> list:
    """The axis of each leaf of an argument."""
    own = in_axes[position] if isinstance(in_axes, tuple) else in_axes
    if not isinstance(in_axes, tuple) and not _is_axis(own):
        raise TreeError(
            f"{what}: in_axes is an integer, None or a tuple with an entry for each argument",
            f"{in_axes!r}",
            "wrap it in a tuple: in_axes=(axes_of_the_first_argument,)",
        )
    return mapped_axes(own, argument, f"in_axes of argument {position} in {what}")


def _normal(axis: int, array, hint: str, what: str) -> int:
    rank = len(array.shape)
    if not -rank <= axis < rank:
        raise ShapeError(
            f"{what} over axis {axis} of argument '{hint}'",
            f"{array._shape!r} has {rank} dimension{'s' * (rank != 1)}",
            "use an existing axis, or None in in_axes for an unbatched argument",
        )
    return axis % rank


def _common_size(entries, axis_size: int | None, what: str) -> int:
    sizes = {array.shape[axis] for _, array, axis in entries}
    if axis_size is not None:
        sizes.add(axis_size)
    if not sizes:
        raise ArgumentError(
            f"{what} maps at least one argument",
            "in_axes is None for all of them",
            "map an argument over an axis, or pass axis_size",
        )
    if len(sizes) > 1:
        found = [
            f"'{hint}' {array._shape!r} has {array.shape[axis]} along axis {axis}" for hint, array, axis in entries
        ]
        if axis_size is not None:
            found.append(f"axis_size is {axis_size}")
        raise ShapeError(
            f"{what} requires arguments of one size along their mapped axes",
            "; ".join(found),
            "slice the longer ones, or set the axis of an unbatched argument to None",
        )
    return sizes.pop()


def _without(array, axis: int) -> ShapeDtypeStruct:
    dims = array.shape
    return ShapeDtypeStruct((*dims[:axis], *dims[axis + 1 :]), array._shape.dtype, weak=array.weak)


def _out_positions(out_axes, out_tree, what: str) -> list:
    if _is_axis(out_axes):
        return [out_axes] * out_tree.num_leaves
    return mapped_axes(out_axes, tree.unflatten(out_tree, [0] * out_tree.num_leaves), f"out_axes of {what}")


def _out_axis(position: int, result, number: int, what: str) -> int:
    rank = len(result.shape)
    if not -rank <= position < rank:
        raise ShapeError(
            f"{what} with the new axis at {position} of result {number}",
            f"the result has {rank} dimension{'s' * (rank != 1)} with it",
            f"use one between {-rank} and {rank - 1} in out_axes",
        )
    return position % rank


def _move(array, source: int, target: int):
    """The array with one axis moved to another position."""
    if source == target:
        return array
    order = [k for k in range(len(array.shape)) if k != source]
    order.insert(target, source)
    return bind("transpose", array, dimensions=tuple(order))
