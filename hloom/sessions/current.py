"""What is added to the current program: that of the surrounding `with program:`, else the default one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hloom.sessions.graph import Node, Operation, Placeholder, Text, Variable
from hloom.sessions.program import current_program, program_of
from hloom.tree import pytrees as tree


def placeholder(name: str, shape: Sequence = (), dtype: Any = "float32") -> Placeholder:
    """`Program.placeholder` of the current program."""
    return current_program().placeholder(name, shape, dtype)


def variable(name: str, initial: Any = None, **options: Any) -> Variable:
    """`Program.variable` of the current program."""
    return current_program().variable(name, initial, **options)


def variables(name: str, values: Any, **options: Any) -> Any:
    """A tree of variables that begin with the arrays of a tree, such as the parameters of a model of `hl.nn`, which can
    be called with them. Their names are the paths below `name`."""
    program = current_program()
    paths, structure = tree.flatten_with_path(values)
    made = [
        program.variable(f"{name}/{tree.keystr(path, simple=True, separator='/')}", leaf, **options)
        for path, leaf in paths
    ]
    return tree.unflatten(structure, made)


def constant(value: Any, name: str = "constant") -> Node | Text:
    """`Program.constant` of the current program: numbers, and texts, which are fetched unchanged."""
    return current_program().constant(value, name)


def target(name: str, value: Any) -> Any:
    """Names a tensor or an operation, by which it is fetched. Returns it."""
    return program_of(value).target(name, value)


def group(*needs: Any, name: str = "group") -> Operation:
    """The operation that runs all of these."""
    return program_of(*needs).group(*needs, name=name)


def control_dependencies(needs: Iterable[Any]):
    """`with control_dependencies([update]):` what is made inside runs after it, and reads variables after it."""
    needs = list(needs)
    return program_of(*needs).control_dependencies(needs)


def initializer(variables: Iterable[Variable] | None = None) -> Operation:
    """The operation that gives all variables (or these) their initial values."""
    return current_program().initializer(variables)


__all__ = [
    "constant", "control_dependencies", "group", "initializer", "placeholder", "target", "variable", "variables",
]  # fmt: skip
