"""`break`, `continue` and `else` of loops as flags and branches: loops of the program have no jumps."""

from __future__ import annotations

import ast
import copy
from itertools import count

from hloom.njit.liveness import own_jumps

__all__ = ["has_jumps", "without_else", "without_jumps"]

_count = count()


def has_jumps(nodes: list[ast.stmt], kinds: tuple[type, ...] = (ast.Break, ast.Continue)) -> bool:
    """Whether statements leave the loop that they are in, or its iteration."""
    return any(isinstance(one, kinds) for node in nodes for one in own_jumps(node))


def _flag(name: str, value: bool, at: ast.AST) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))
    return ast.fix_missing_locations(ast.copy_location(made, at))


def _if_not(name: str, body: list[ast.stmt], at: ast.AST) -> ast.stmt:
    test = ast.UnaryOp(ast.Not(), ast.Name(name, ast.Load()))
    return ast.fix_missing_locations(ast.copy_location(ast.If(test, body, []), at))


def without_jumps(body: list[ast.stmt], jumped: str, broken: str) -> list[ast.stmt]:
    """The statements of a loop without its jumps. jumped: the flag that the rest of the iteration is left out, False
    at its beginning. broken: that the loop is left."""
    made: list[ast.stmt] = []
    for k, node in enumerate(body):
        if isinstance(node, (ast.Break, ast.Continue)):
            made.append(_flag(jumped, True, node))
            if isinstance(node, ast.Break):
                made.append(_flag(broken, True, node))
            return made
        if not has_jumps([node]):
            made.append(node)
            continue
        rest = body[k + 1 :]
        if isinstance(node, ast.If):
            if _always_jumps(node.body) and rest:
                node.orelse, rest = [*node.orelse, *rest], []
            elif _always_jumps(node.orelse) and rest:
                node.body, rest = [*node.body, *rest], []
            node.body = without_jumps(node.body, jumped, broken)
        assert isinstance(node, (ast.If, ast.For, ast.While))
        node.orelse = without_jumps(node.orelse, jumped, broken)
        made.append(node)
        if rest:
            made.append(_if_not(jumped, without_jumps(rest, jumped, broken), rest[0]))
        return made
    return made


def _always_jumps(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Break, ast.Continue))


def without_else(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements whose loops have no `else`: it follows them, where no `break` left the loop."""
    made: list[ast.stmt] = []
    for node in body:
        found = _WithoutElse().visit(node)
        made += found if isinstance(found, list) else [found]
    return made


class _WithoutElse(ast.NodeTransformer):
    def _loop(self, node: ast.For | ast.While) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        otherwise, node.orelse = node.orelse, []
        if not otherwise:
            return node
        if not has_jumps(node.body, (ast.Break,)):
            return [node, *otherwise]
        flag = f"_njit_left{next(_count)}"
        node.body = _Marked(flag).marked(node.body)
        return [_flag(flag, False, node), node, _if_not(flag, otherwise, otherwise[0])]

    visit_For = visit_While = _loop  # noqa: N815


class _Marked(ast.NodeTransformer):
    """Sets a flag before each `break` of a loop."""

    def __init__(self, flag: str):
        self.flag = flag

    def marked(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for node in body:
            found = self.visit(node)
            made += found if isinstance(found, list) else [found]
        return made

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [_flag(self.flag, True, node), copy.copy(node)]

    def _other(self, node: ast.AST) -> ast.AST:
        return node

    visit_For = visit_While = visit_FunctionDef = visit_Lambda = _other  # noqa: N815
