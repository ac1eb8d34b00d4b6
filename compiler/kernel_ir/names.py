"""The variables of a function by their names: as in Python, a name is one variable of the whole function."""

from __future__ import annotations

from collections.abc import Iterable

from hloom.compiler.kernel_ir.builder import assign
from hloom.compiler.kernel_ir.functions import Signature
from hloom.compiler.kernel_ir.nodes import Assign, Expr, Var
from hloom.compiler.kernel_ir.types import TypeMismatch, is_integer, is_pointer

__all__ = ["Names"]


class Names:
    """parts: names of kernels that the function calls. outer: names that are known here too, of the function that these
    are a part of."""

    def __init__(self, signature: Signature, parts: frozenset[str] = frozenset(), outer: Names | None = None):
        self.signature, self.parts = signature, parts
        self._variables: dict[str, Var] = {}
        self._outer = outer

    def part(self) -> Names:
        """Names of a part of the function: it knows these, and what it declares besides is its own."""
        return Names(self.signature, self.parts, self)

    @classmethod
    def of(cls, signature: Signature, variables: Iterable[Var]) -> Names:
        """The names of these variables alone."""
        names = cls(signature)
        names._variables = {var.name: var for var in variables}
        return names

    def get(self, name: str) -> Var | None:
        var = self._variables.get(name)
        return var if var is not None or self._outer is None else self._outer.get(name)

    def __getitem__(self, name: str) -> Var:
        """Raises KeyError for a name that nothing has declared."""
        var = self._variables.get(name)
        if var is not None:
            return var
        if self._outer is None:
            raise KeyError(name)
        return self._outer[name]

    def declare(self, name: str, kind: str) -> Var:
        """The variable of a name that holds values of a type; one that is s64 holds all signed integers. Raises
        TypeMismatch where it holds others."""
        var = self._variables.get(name)
        if var is None and self._outer is not None:
            var = self._outer.get(name)
        if var is None:
            var = self._variables[name] = Var(kind, name)
        elif var.type != kind and not (is_pointer(var.type) and is_pointer(kind)):
            if var.type != "s64" or not is_integer(kind) or kind == "u64":
                raise TypeMismatch(f"{name} holds {var.type} and {kind}")
        return var

    def index(self, name: str) -> Var:
        """The integer variable of a name."""
        return self.declare(name, "s64")

    def let(self, name: str, value: Expr) -> Assign:
        """`name = value`."""
        return assign(self.declare(name, value.type), value)
