"""The variables of a function by their names: as in Python, a name is one variable of the whole function."""

from __future__ import annotations

from hloom.compiler.kernel_ir.functions import Signature
from hloom.compiler.kernel_ir.nodes import Var
from hloom.compiler.kernel_ir.types import TypeMismatch, is_integer, is_pointer

__all__ = ["Names"]


class Names:
    """parts: names of kernels that the function calls."""

    def __init__(self, signature: Signature, parts: frozenset[str] = frozenset()):
        self.signature, self.parts = signature, parts
        self._variables: dict[str, Var] = {}

    def get(self, name: str) -> Var | None:
        return self._variables.get(name)

    def __getitem__(self, name: str) -> Var:
        """Raises KeyError for a name that nothing has declared."""
        return self._variables[name]

    def declare(self, name: str, kind: str) -> Var:
        """The variable of a name that holds values of a type; one that is s64 holds all signed integers. Raises
        TypeMismatch where it holds others."""
        var = self._variables.get(name)
        if var is None:
            var = self._variables[name] = Var(kind, name)
        elif var.type != kind and not (is_pointer(var.type) and is_pointer(kind)):
            if var.type != "s64" or not is_integer(kind) or kind == "u64":
                raise TypeMismatch(f"{name} holds {var.type} and {kind}")
        return var
