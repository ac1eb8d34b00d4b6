"""`hl.jit(f, dims={"x": ("n", 128)})`: arguments by their dimensions, so that one program serves all sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.dispatch.signature import Signature
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.sizes.expressions import Dim, Size, SizeExpression, dims_of
from hloom.tree import pytrees as tree

__all__ = ["OpenArguments"]


class OpenArguments:
    """The dimensions of arguments, by name. A text is a `Dim` of at least 1, and None the size that a call has."""

    def __init__(self, signature: Signature, dims: Mapping[str, Sequence]):
        """Raises ArgumentError for arguments that the function does not have, and for what is no dimension."""
        if not isinstance(dims, Mapping):
            raise ArgumentError(
                f"dims of '{signature.name}'", f"{type(dims).__name__} {dims!r:.60}", 'pass dims={"x": ("n", 128)}'
            )
        self._signature = signature
        self._named: dict[str, Dim] = {}
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
        if isinstance(axis, str):
            return self._named.setdefault(axis, Dim(axis))
        if isinstance(axis, SizeExpression):
            for dim in dims_of(axis).values():
                if (known := self._named.setdefault(dim.name, dim)).terms != dim.terms:
                    raise ArgumentError(
                        f"dims of '{self._signature.name}' with two dimensions {dim.name!r}",
                        f"{known.declaration()} and {dim.declaration()}", "use one of them throughout",
                    )  # fmt: skip
            return axis
        if axis is None or (isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0):
            return axis
        raise ArgumentError(
            f"dims of the argument {name!r} of '{self._signature.name}'", f"{axis!r} is no dimension",
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
        return ShapeDtypeStruct([g if d is None else d for d, g in zip(dims, given, strict=True)], array.dtype)
