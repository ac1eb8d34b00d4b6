"""Sizes that are unknown while a program is built: the None in `placeholder("x", [None, 32])`.

Each is a dimension (`hloom.ir.sizes`) of the program: shapes and integers that depend on it are expressions of it, and
a run substitutes the sizes of the feeds (`hloom.ir.ops.specialize`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir.sizes.expressions import Comparison, Dim, Scope, SizeExpression, dims_of, single
from hloom.ir.sizes.solving import solved
from hloom.tracing.signatures import identifiers

__all__ = ["Sizes"]


class Sizes:
    """The unknown sizes of a program. dims: by name; "?0" is that of a None on axis 0.

    Decisions made while the program is built assume sizes of at least 2; a run may have smaller ones.
    """

    def __init__(self, trace: Any = None, names: Mapping[str, str] | None = None):
        """names: of the dimensions in texts, by the names of sizes."""
        self.dims: dict[str, Dim] = {}
        self._scope = Scope(trace)
        for name, identifier in (names or {}).items():
            self._add(name, identifier)

    def _add(self, name: str, identifier: str) -> Dim:
        dim = self.dims[name] = Dim(identifier, 1, scope=self._scope)
        self._scope.add(f"{identifier} >= 2", Comparison(dim, ">=", 2))
        return dim

    def dim(self, name: str) -> Dim:
        """The dimension of a name, which is added where it is new."""
        if name in self.dims:
            return self.dims[name]
        found = f"axis{name[1:]}" if name.startswith("?") else name
        return self._add(name, identifiers([*self.identifiers().values(), found])[-1])

    def adopt(self, size: SizeExpression) -> SizeExpression:
        """A size of the user's own dimensions, which become the program's. Raises ArgumentError if another has the
        name of one."""
        for name, dim in dims_of(size).items():
            if self.dims.setdefault(name, dim).terms != dim.terms:
                raise ArgumentError(
                    f"the size {size} of a placeholder",
                    f"the program has another dimension of the name: {self.dims[name].declaration()}",
                    "use one Dim, or another name",
                )
        return size

    def solved(self, shapes: Sequence[tuple[Sequence, Sequence[int]]]) -> dict[str, int] | None:
        """The sizes, by name, for which shapes (wanted, given) agree; None if there are none."""
        found = solved(shapes)
        names = {dim.name: name for name, dim in self.dims.items()}
        return None if found is None else {names[identifier]: size for identifier, size in found.items()}

    def identifiers(self) -> dict[str, str]:
        """The names of the dimensions in texts, by the names of sizes."""
        return {name: dim.name for name, dim in self.dims.items()}

    def name_of(self, size: Any) -> str | None:
        """The name of the unknown size that a dimension is; None of others."""
        dim = single(size)
        return None if dim is None else next((name for name, own in self.dims.items() if own.name == dim.name), None)

    def given(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the names of dimensions in texts."""
        return {self.dims[name].name: size for name, size in sizes.items()}

    def shown(self, dims: Iterable[Any]) -> tuple:
        """Dimensions for people: None for those that the user did not name, and expressions of such as texts."""
        return tuple([self._shown(n) if isinstance(n, SizeExpression) else n for n in dims])

    def _shown(self, size: SizeExpression) -> str | None:
        name = self.name_of(size)
        return str(size) if name is None else (None if name.startswith("?") else name)
