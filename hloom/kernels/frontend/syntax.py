"""The syntax tree of a user's kernel, and questions about it that need no types."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from hloom.errors import UnsupportedError

__all__ = ["assigned_names", "carried_names", "definition_of", "direction", "jumps", "outside_names"]


def definition_of(function) -> tuple[ast.FunctionDef, str, int]:
    """(syntax tree, file, the line before its first one) of a Python function. Raises UnsupportedError."""
    try:
        lines, first = inspect.getsourcelines(function)
        (found,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        found = None
    if not isinstance(found, ast.FunctionDef):
        raise UnsupportedError(
            f"the kernel '{getattr(function, '__name__', function)}'", "there is no source of a function `def ...`",
            "define it in a file or a notebook with def",
        )  # fmt: skip
    return found, inspect.getsourcefile(function) or "", first - 1


def outside_names(function) -> Mapping[str, Any]:
    """The names around a function: those of its module, and its closure."""
    closed = inspect.getclosurevars(function).nonlocals
    return {**function.__globals__, **closed}


def jumps(node: ast.For | ast.While) -> bool:
    """Whether a loop may be left, or an iteration ended, in its middle."""
    return any(isinstance(one, (ast.Break, ast.Continue, ast.Return)) for one in ast.walk(node))


def direction(node: ast.For | ast.While, name: str) -> int:
    """1 where a loop only adds numbers that are not negative to a name, -1 where it only subtracts such, else 0."""
    found = set()
    for one in ast.walk(node):
        match one:
            case ast.AugAssign(target=ast.Name(id=target), op=op, value=ast.Constant(value=int(step))) if (
                target == name
            ):
                found.add({ast.Add: 1, ast.Sub: -1}.get(type(op), 0) if step >= 0 else 0)
            case ast.AugAssign(ast.Name(id=target)) if target == name:
                found.add(0)
            case ast.AnnAssign(target=target) if _assigns(target, name):
                found.add(0)
            case ast.Assign(targets=targets) if any(_assigns(target, name) for target in targets):
                found.add(0)
            case ast.For(target=target) if _assigns(target, name):
                found.add(0)
    return found.pop() if len(found) == 1 else 0


def _assigns(target: ast.expr, name: str) -> bool:
    return any(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store) for part in ast.walk(target)
    )


def assigned_names(statements: Iterable[ast.AST]) -> set[str]:
    """The names that statements assign."""
    return {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def carried_names(statements: Iterable[ast.stmt], arguments: Iterable[str] = ()) -> set[str]:
    """Names that are assigned several times, at least once in a loop or a branch.

    A loop's own variable is new in each iteration, unless something else assigns it as well: another statement, or a
    loop within the loop.
    """
    count: dict[str, int] = dict.fromkeys(arguments, 1)
    inner: set[str] = set()
    targets: set[str] = set()

    def visit(nodes: Iterable[ast.AST], inside: bool, loops: frozenset[str]) -> None:
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                count[node.id] = count.get(node.id, 0) + 1
                if inside:
                    inner.add(node.id)
            deeper = inside or isinstance(node, (ast.While, ast.If))
            if isinstance(node, ast.For):
                own = frozenset(assigned_names([node.target]))
                targets.update(own)
                inner.update(own & loops)
                count.update(dict.fromkeys(own & loops, 2))
                visit(node.body, True, loops | own)
                continue
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and inside:
                count[node.target.id] = count.get(node.target.id, 0) + 1
            visit(ast.iter_child_nodes(node), deeper, loops)

    visit(statements, False, frozenset())
    for name in targets & set(count):
        count[name] += 1
        inner.add(name)
    return {name for name in inner if count[name] > 1}
