"""Functions that add to the current program: that of the surrounding `with program:`, else the default one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hloom.errors import ArgumentError
from hloom.sessions.graph import Node, Operation, Placeholder, Text, Update, Variable
from hloom.sessions.program import current_program, program_of
from hloom.tree import pytrees as tree


def placeholder(*given: Any, dtype: Any = None, shape: Sequence | None = None, name: str | None = None) -> Placeholder:
    """`Program.placeholder` of the current program: `placeholder("x", [None, 32])`, or in TensorFlow's order
    `placeholder("float32", [None, 32], "x")`."""
    return current_program().placeholder(*given, dtype=dtype, shape=shape, name=name)


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


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Node | Text:
    """`Program.constant` of the current program: numbers, and texts, which are fetched unchanged.

    constant(-1.0, shape=[2, 3])                  # filled
    """
    return current_program().constant(value, dtype, shape, name)


def assign(variable: Variable, value: Any, name: str = "assign") -> Update:
    """`Variable.assign` as a function: the operation that sets a variable; as a tensor it is the new value."""
    return _variable(variable, "assign").assign(value, name)


def assign_add(variable: Variable, value: Any, name: str = "assign_add") -> Update:
    """`Variable.assign_add` as a function."""
    return _variable(variable, "assign_add").assign_add(value, name)


def assign_sub(variable: Variable, value: Any, name: str = "assign_sub") -> Update:
    """`Variable.assign_sub` as a function."""
    return _variable(variable, "assign_sub").assign_sub(value, name)


def scatter_update(variable: Variable, indices: Any, values: Any, name: str = "scatter_update") -> Update:
    """`Variable.scatter_update` as a function: sets rows."""
    return _variable(variable, "scatter_update").scatter_update(indices, values, name)


def scatter_add(variable: Variable, indices: Any, values: Any, name: str = "scatter_add") -> Update:
    """`Variable.scatter_add` as a function: adds to rows; a row that is named twice gets both."""
    return _variable(variable, "scatter_add").scatter_add(indices, values, name)


def scatter_sub(variable: Variable, indices: Any, values: Any, name: str = "scatter_sub") -> Update:
    """`Variable.scatter_sub` as a function."""
    return _variable(variable, "scatter_sub").scatter_sub(indices, values, name)


def _variable(given: Any, what: str) -> Variable:
    if not isinstance(given, Variable):
        raise ArgumentError(
            f"{what}(variable, value)",
            f"{given!r:.80} is not a variable",
            "pass the result of variable()",
        )
    return given


def target(name: str, value: Any) -> Any:
    """Names a tensor or an operation, by which it is fetched. Returns it."""
    return program_of(value).target(name, value)


def group(*needs: Any, name: str = "group") -> Operation:
    """The operation that runs all of these."""
    return program_of(*needs).group(*needs, name=name)


def control_dependencies(needs: Iterable[Any]):
    """`with control_dependencies([update]):` operations made inside run after it, and read variables after it."""
    needs = list(needs)
    return program_of(*needs).control_dependencies(needs)


def initializer(variables: Iterable[Variable] | None = None) -> Operation:
    """The operation that sets all variables (or these) to their initial values."""
    return current_program().initializer(variables)


__all__ = [
    "assign", "assign_add", "assign_sub", "constant", "control_dependencies", "group", "initializer", "placeholder",
    "scatter_add", "scatter_sub", "scatter_update", "target", "variable", "variables",
]  # fmt: skip
