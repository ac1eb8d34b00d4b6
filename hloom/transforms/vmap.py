"""vmap: vectorization of a function over a batch axis.

The function is traced once, on the shapes of one batch element; the computation is then vectorized
(`hloom.compiler.transforms.batch`) and applied: computed eagerly outside of a trace, inlined in the enclosing trace
otherwise. So vmap nests in any order with itself, with `jit` and with derivatives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import optree

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.inline import inline_calls
from hloom.errors import ArgumentError, BatchingError, ShapeError, TreeError
from hloom.ir.module import Computation
from hloom.ir.records import record
from hloom.ir.sizes.guards import size_key
from hloom.tracing.active import brings_twins, named_axis, restarts
from hloom.tracing.conversion import argument_array
from hloom.tracing.exact import wide_value
from hloom.tracing.refs import OuterRef, RefArgument, mapped_with_refs
from hloom.tracing.signatures import argument_hints, function_name, wraps
from hloom.tracing.trace import (
    Traced,
    apply_computation,
    bind,
    current_trace,
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

    >>> dot = lambda a, b: hnp.sum(a * b)
    >>> hl.vmap(dot, in_axes=(0, None))(hnp.array([[1, 2], [3, 4]]), hnp.array([10, 1]))
    Array([12, 34], dtype=int32)
    >>> hl.vmap(hl.grad(lambda x: x**2))(hnp.array([1.0, 2.0, 3.0]))
    Array([2., 4., 6.], dtype=float32)
    """
    if not callable(function):
        raise ArgumentError("vmap of a function", f"{type(function).__name__}", "pass a function")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(in_axes, "in_axes")
    _check_axes(out_axes, "out_axes")
    vectorized = _Vectorized(function, in_axes, out_axes, axis_name, axis_size)

    @wraps(function)
    def mapped(*args, **kwargs):
        try:
            return vectorized(args, kwargs)
        except (OuterRef, RefArgument):
            if not _takes_refs:
                raise
            again = functools.partial(vmap, axis_name=axis_name, axis_size=axis_size, _takes_refs=False)
            return mapped_with_refs(again, function, in_axes, out_axes, args, kwargs)

    return mapped


@record(frozen=True, eq=False)
class _Vectorized:
    """A function of arrays, mapped. The fields are vmap's arguments."""

    function: Callable
    in_axes: Any
    out_axes: Any
    axis_name: Any
    axis_size: int | None

    @property
    def what(self) -> str:
        return f"vmap of '{function_name(self.function)}'"

    @restarts
    def __call__(self, args: tuple, kwargs: dict):
        leaves, structure = tree.flatten((args, kwargs))
        in_axes = self._axes(args, len(leaves))
        hints = argument_hints(self.function, args, kwargs)
        arrays, axes = self._mapped(leaves, in_axes, hints)
        size = _common_size([(hints[k], arrays[k], axes[k]) for k in arrays], self.axis_size, self.what)

        def one(*elements):
            flat = list(leaves)
            for k, element in zip(arrays, elements, strict=True):
                flat[k] = element
            given, named = tree.unflatten(structure, flat)
            return self.function(*given, **named)

        traced = self._trace(one, [_without(arrays[k], axes[k]) for k in arrays], [hints[k] for k in arrays], size)
        positions = _out_positions(self.out_axes, traced.out_tree, self.what)
        computation = self._batch(traced, len(arrays), size, positions)
        operands = [_move(arrays[k], axes[k], 0) for k in arrays]
        given = list(arrays)
        operands += [_move(wide_value(arrays[given[k]]), axes[given[k]], 0) for k in traced.wide]
        positions = [*positions, *(positions[k] for k in traced.twins)]
        results = apply_computation(computation, [*operands, *traced.captures], traced.known, leaves)
        return traced.unflatten([
            result if position is None else _move(result, 0, _out_axis(position, result, k, self.what))
            for k, (result, position) in enumerate(zip(results, positions, strict=True))
        ])  # fmt: skip

    def _axes(self, args: tuple, count: int) -> list[int | None]:
        """The axis of each leaf; those of keyword arguments are mapped over axis 0."""
        if isinstance(self.in_axes, tuple) and len(self.in_axes) != len(args):
            raise TreeError(
                f"{self.what}: in_axes has an entry for each positional argument",
                f"{len(self.in_axes)} entries, {len(args)} arguments",
                "pass as many entries as arguments; keyword arguments are mapped over axis 0",
            )
        axes = [a for k, arg in enumerate(args) for a in _each(self.in_axes, k, arg, self.what)]
        return axes + [0] * (count - len(axes))

    def _mapped(self, leaves: list, axes: list[int | None], hints: list[str]) -> tuple[dict[int, Any], dict[int, int]]:
        """The mapped leaves as arrays, and their axes counted from the start, by position."""
        arrays: dict[int, Any] = {}
        found: dict[int, int] = {}
        for k, axis in enumerate(axes):
            if axis is not None:
                arrays[k] = argument_array(leaves[k], hints[k], self.what)
                found[k] = _normal(axis, arrays[k], hints[k], self.what)
        return arrays, found

    def _trace(self, one: Callable, shapes: list[ShapeDtypeStruct], hints: list[str], size: int) -> Traced:
        """The function of one batch element."""
        outer = current_trace()
        concrete = outer is None or outer.carries_values
        _, in_tree = tree.flatten((tuple(shapes), {}))
        with named_axis(self.axis_name, size):
            name = function_name(self.function)
            return trace_function(
                one, shapes, in_tree, name, concrete, hints, kind="vmap", weak=True, twins=brings_twins()
            )

    def _batch(self, traced: Traced, mapped: int, size: int, positions: list[int | None]) -> Computation:
        """The computation of all batch elements. Raises BatchingError for a batched result without a position."""
        flags = [True] * (mapped + len(traced.wide)) + [False] * len(traced.captures)
        positions = [*positions, *(positions[k] for k in traced.twins)]
        one = inline_calls(traced.computation, traced.known)
        computation, differs = batch(one, flags, size, [p is not None for p in positions], self.axis_name)
        for k, (position, differing) in enumerate(zip(positions, differs, strict=True)):
            if position is None and differing:
                raise BatchingError(
                    f"{self.what} with out_axes None for result {k}",
                    "the result differs between the batch elements",
                    "set an axis in out_axes, or reduce it over the batch with lax.psum",
                )
        return computation


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
    along = [array.shape[axis] for _, array, axis in entries] + ([] if axis_size is None else [axis_size])
    sizes = {size_key(size): size for size in along}
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
    return next(iter(sizes.values()))


def _without(array, axis: int) -> ShapeDtypeStruct:
    dims = array.shape
    return ShapeDtypeStruct((*dims[:axis], *dims[axis + 1 :]), array._shape.dtype, weak=array.weak)


def _out_positions(out_axes, out_tree, what: str) -> list[int | None]:
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
