"""Functions that a loop of a NumPy program calls: several returns become one at the end, which kernels inline."""

from __future__ import annotations

import ast
import copy
import functools
from typing import Any

from hloom.errors import UnsupportedError
from hloom.ir.source import Source
from hloom.kernels.frontend.syntax import definition_of
from hloom.njit.rewriting import has_return, without_returns_inside

__all__ = ["one_return", "values_of_returns"]


@functools.lru_cache(256)  # the names are the same each time: kernels are lowered again until their dtypes agree
def one_return(function: Any) -> tuple[ast.FunctionDef, str, int]:
    """(syntax tree, file, the line before its first one) of a function, whose only return is at its end."""
    definition, file, above = definition_of(function)
    *before, last = definition.body
    if not has_return(before) and (isinstance(last, ast.Return) or not has_return([last])):
        return definition, file, above
    made = copy.deepcopy(definition)
    body, names, is_tuple = values_of_returns(made.body, file, made.name, above)
    values: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
    result = ast.Tuple(values, ast.Load()) if is_tuple else values[0] if values else ast.Constant(None)
    made.body = [*body, ast.copy_location(ast.Return(result), last)]
    return ast.fix_missing_locations(made), file, above


def values_of_returns(
    body: list[ast.stmt], file: str, name: str, above: int = 0
) -> tuple[list[ast.stmt], list[str], bool]:
    """(statements that assign instead of returning, the names that they assign, whether these are a tuple)."""
    body = without_returns_inside(body, file, name)
    returns = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Return)]
    given = [r.value for r in returns]
    widths = {len(v.elts) if isinstance(v, ast.Tuple) else 0 if _is_none(v) else -1 for v in given}
    if len(widths) > 1:
        error = UnsupportedError(f"returns of different kinds in '{name}'", "kernels need one kind of result",
                                 "return the same number of values on all paths")  # fmt: skip
        error.source = Source(file, above + returns[-1].lineno, name)
        raise error
    width = widths.pop() if widths else 0
    names = [f"_njit_result{k}" for k in range(abs(width))]

    class Assigns(ast.NodeTransformer):
        def visit_Return(self, node: ast.Return):
            values = [] if not width else node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            pairs = zip(names, values, strict=True)
            found: list[ast.stmt] = [ast.Assign([ast.Name(n, ast.Store())], v) for n, v in pairs]  # type: ignore[arg-type]
            return [ast.copy_location(f, node) for f in found or [ast.Pass()]]

        def visit_FunctionDef(self, node: ast.FunctionDef):
            return node

    # A truth value takes the dtype of whatever number is returned.
    first = [ast.copy_location(ast.Assign([ast.Name(n, ast.Store())], ast.Constant(False)), body[0]) for n in names]
    made = [*first, *[Assigns().visit(statement) for statement in body]]
    flat = [one for part in made for one in (part if isinstance(part, list) else [part])]
    return [ast.fix_missing_locations(one) for one in flat], names, width > 0


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
