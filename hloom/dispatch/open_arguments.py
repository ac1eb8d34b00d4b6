"""Arguments by their dimensions, so that one program serves all sizes: `hl.jit(f, dims={"x": ("n", 128)})`, and
`hl.jit(f, abstracted_axes=({0: "n"},))` as in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.dispatch.signature import Signature
from hloom.dispatch.spmd import sharding_of
from hloom.errors import ArgumentError, ShapeError, TreeError
from hloom.ir.module import Computation
from hloom.ir.ops.specialize import Specialization
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Dim, Size, SizeExpression, dims_of
from hloom.ir.sizes.solving import solved
from hloom.tracing.signatures import with_names
from hloom.tracing.trace import apply_computation
from hloom.tree import pytrees as tree

__all__ = ["AbstractedAxes", "OpenArguments", "open_arguments", "open_function"]


def open_arguments(signature: Signature) -> OpenArguments | AbstractedAxes | None:
    """Those of the options `dims` or `abstracted_axes`; None if neither is given. Raises ArgumentError."""
    dims, axes = signature.options.dims, signature.options.abstracted_axes
    if dims is not None and axes is not None:
        raise ArgumentError(
            f"jit of '{signature.name}'", "dims and abstracted_axes both name dimensions", "leave out one of them"
        )
    if axes is not None:
        return AbstractedAxes(signature, axes)
    return None if dims is None else OpenArguments(signature, dims)


def open_function(
    computation: Computation, names: Sequence[str], results: Callable[[Any], Any], alone: Sequence[Dim] = ()
) -> tuple[Callable, dict[str, tuple[Size, ...]]]:
    """A computation whose parameters have open sizes as a function for `jit(dims=...)`, when it comes from a graph or a
    text: (a function of the operands, the dimensions of those of open sizes by their names).

    names: of the operands. results: converts the computation's results. alone: dimensions that occur in no operand's
    shape: the function takes an array of shape (size, 0) for each of them, after the operands.
    """
    count = len(computation.parameters)
    wanted = [*[p.shape.dims for p in computation.parameters], *[(dim, 0) for dim in alone]]
    named = [*names, *[f"size_of_{dim.name}" for dim in alone]]

    def run(*operands: Any) -> Any:
        given, chosen = [operand.shape for operand in operands], computation
        if not any(isinstance(size, SizeExpression) for shape in given for size in shape):
            sizes = solved(list(zip(wanted, given, strict=True)))  # it is computed eagerly, or checked
            assert sizes is not None, (wanted, given)  # the caller has compared them
            chosen = Specialization(sizes).computation(computation)
        return results(apply_computation(chosen, list(operands[:count])))

    with_names(run, named)
    dims = {n: w for n, w in zip(named, wanted, strict=True) if any(isinstance(size, SizeExpression) for size in w)}
    return run, dims


class _Named:
    """Dimensions by their names. A text is a `Dim` of at least 1. what: the option that names them, for messages."""

    def __init__(self, what: str):
        self.what = what
        self.dims: dict[str, Dim] = {}

    def size(self, axis: str | SizeExpression) -> Size:
        """Raises ArgumentError for two dimensions of one name, and for an invalid name of a `Dim`."""
        if isinstance(axis, str):
            return self.dims.setdefault(axis, Dim(axis))
        for dim in dims_of(axis).values():
            if (known := self.dims.setdefault(dim.name, dim)).terms != dim.terms:
                raise ArgumentError(
                    f"{self.what} with two dimensions {dim.name!r}",
                    f"{known.declaration()} and {dim.declaration()}", "use one of them throughout",
                )  # fmt: skip
        return axis


class _Placed(ShapeDtypeStruct):
    """The shape and dtype of an array that was put on a device: the program runs there."""

    __slots__ = ("_place",)

    def __init__(self, shape: Sequence[Size], dtype: Any, weak: bool, device: Any):
        super().__init__(shape, dtype, weak)
        self._place = device

    @property
    def _device(self) -> Any:
        return self._place


def _struct(shape: Sequence[Size], array: Any) -> ShapeDtypeStruct:
    """The structure of an array with another shape."""
    sharding, device = sharding_of(array), array._device
    if sharding is not None or device is None:
        return ShapeDtypeStruct(shape, array.dtype, array.weak, sharding=sharding)
    return _Placed(shape, array.dtype, array.weak, device)


class OpenArguments:
    """The dimensions of arguments, by name. A text is a `Dim` of at least 1, and None the size that a call has."""

    def __init__(self, signature: Signature, dims: Mapping[str, Sequence]):
        """Raises ArgumentError for arguments that the function does not have, and for values that are not
        dimensions."""
        if not isinstance(dims, Mapping):
            raise ArgumentError(
                f"dims of '{signature.name}'", f"{type(dims).__name__} {dims!r:.60}", 'pass dims={"x": ("n", 128)}'
            )
        self._signature = signature
        self._named = _Named(f"dims of '{signature.name}'")
        self._dims: dict[str, tuple[Size | None, ...]] = {}
        for name, given in dims.items():
            if name not in signature.parameters:
                raise ArgumentError(
                    f"dims of the argument {name!r} of '{signature.name}'",
                    f"it takes ({', '.join(signature.parameters)})", "name one of these",
                )  # fmt: skip
            axes = given if isinstance(given, (tuple, list)) else (given,)
            self._dims[name] = tuple([self._size(name, axis) for axis in axes])

    def _size(self, name: str, axis: Any) -> Size | None:
        if isinstance(axis, (str, SizeExpression)):
            return self._named.size(axis)
        if axis is None or (isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0):
            return axis
        raise ArgumentError(
            f"dims of the argument {name!r} of '{self._signature.name}'", f"{axis!r} is not a dimension",
            "pass a name, a Dim, an integer, or None for the size that a call has",
        )  # fmt: skip

    def shapes(self, args: Sequence, kwargs: Mapping[str, Any]) -> tuple[list, dict[str, Any]]:
        """The arguments with shapes in place of arrays whose sizes are open. Raises ShapeError for other dimensions."""
        named = zip(self._signature.parameters, args, strict=False)
        positional = [self._argument(name, value) for name, value in named]
        positional += args[len(positional) :]
        return positional, {name: self._argument(name, value) for name, value in kwargs.items()}

    def _argument(self, name: str, value: Any) -> Any:
        dims = self._dims.get(name)
        return value if dims is None else tree.map(lambda leaf: self._shape(name, dims, leaf), value)

    def _shape(self, name: str, dims: tuple[Size | None, ...], leaf: Any) -> Any:
        array = self._signature.leaf(leaf)
        given = array.shape
        fits = len(given) == len(dims) and all(
            [not isinstance(d, int) or d == g for d, g in zip(dims, given, strict=False)]
        )
        if not fits:
            raise ShapeError(
                f"the argument {name!r} of '{self._signature.name}' with dimensions {tuple(given)}",
                f"it is declared as ({', '.join(map(str, dims))})", "pass such an array, or change `dims`",
            )  # fmt: skip
        return _struct([g if d is None else d for d, g in zip(dims, given, strict=True)], array)


class AbstractedAxes:
    """JAX's `abstracted_axes`: a prefix of the tree of positional arguments, whose leaves name dimensions of arrays:
    {0: "n"}, ("n", None), or None. Other dimensions, and arguments by keyword, have the sizes of each call."""

    def __init__(self, signature: Signature, axes: Any):
        """Raises ArgumentError for a value that does not name dimensions."""
        self._signature = signature
        self._named = _Named(f"abstracted_axes of '{signature.name}'")
        self._axes = tree.map(self._checked, axes, is_leaf=_names_axes)

    def _checked(self, axes: Any) -> _Axes:
        found: dict[int, Size] = {}
        for axis, name in axes.items() if isinstance(axes, dict) else enumerate(axes if axes is not None else ()):
            if name is None:
                continue
            if not isinstance(name, (str, SizeExpression)) or type(axis) is not int or axis < 0:
                raise ArgumentError(
                    self._named.what, f"{axis!r}: {name!r} in {axes!r:.60}",
                    'name dimensions by index, {0: "n"}, or in their order, ("n", None)',
                )  # fmt: skip
            found[axis] = self._named.size(name)
        return _Axes(found, axes if isinstance(axes, tuple) else None)

    def shapes(self, args: Sequence, kwargs: Mapping[str, Any]) -> tuple[list, dict[str, Any]]:
        """The arguments with shapes in place of arrays whose sizes are open. Raises ArgumentError for a tree that is
        not a prefix of theirs, ShapeError for an array with more dimensions than were named in their order."""
        static, _ = self._signature.statics(len(args))
        try:
            axes = tree.broadcast(self._axes, tuple(args))
        except TreeError as error:
            raise ArgumentError(self._named.what, error.found, error.repair) from None
        pairs = enumerate(zip(axes, args, strict=True))
        return [arg if k in static else tree.map(self._shape, one, arg) for k, (one, arg) in pairs], dict(kwargs)

    def _shape(self, axes: _Axes, leaf: Any) -> Any:
        array = self._signature.leaf(leaf)
        given = array.shape
        if axes.ordered is not None and len(axes.ordered) < len(given):
            raise ShapeError(
                f"an argument of '{self._signature.name}' with dimensions {tuple(given)}",
                f"abstracted_axes names {axes.ordered}", "name all of its dimensions, with None for those of a call",
            )  # fmt: skip
        if not any([axis < len(given) for axis in axes.named]):
            return leaf
        return _struct([axes.named.get(k, size) for k, size in enumerate(given)], array)


@record(frozen=True)
class _Axes:
    """The named dimensions of an array. ordered: as they were given, where that is in their order."""

    named: Mapping[int, Size]
    ordered: tuple | None


def _names_axes(axes: Any) -> bool:
    """Whether a part of `abstracted_axes` is for one array, or each of several, and no tree of such."""
    if isinstance(axes, dict):
        return all([not isinstance(key, str) for key in axes]) and not any(map(_is_tree, axes.values()))
    return axes is None or (isinstance(axes, tuple) and not any(map(_is_tree, axes)))


def _is_tree(part: Any) -> bool:
    return isinstance(part, (dict, list, tuple))
