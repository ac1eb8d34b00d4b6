"""Which names of a function are read after a statement: those that a loop has to hand on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

__all__ = ["assigned", "live_after", "own_jumps", "read", "rebound", "surely_assigned"]


def read(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are read somewhere within statements; `x += 1` and `x[i] = 1` read x."""
    found = set()
    for node in nodes:
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                found.add(one.id)
            elif isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
                found.add(one.target.id)
    return found


def assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements assign, those within loops and branches too, and not those of functions inside."""
    found: set[str] = set()
    for node in nodes:
        _assigned(node, found)
    return found


def _assigned(node: ast.AST, found: set[str]) -> None:
    if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        found.add(node.id)
    for child in ast.iter_child_nodes(node):
        _assigned(child, found)


def surely_assigned(body: Iterable[ast.stmt]) -> set[str]:
    """Names that statements of a loop assign before anything may leave it."""
    found: set[str] = set()
    for node in body:
        if any(isinstance(one, (ast.Break, ast.Continue)) for one in own_jumps(node)):
            break
        if isinstance(node, ast.If):
            found |= surely_assigned(node.body) & surely_assigned(node.orelse)
        elif isinstance(node, ast.For) and _has_elements(node.iter):
            found |= assigned([node.target]) | surely_assigned(node.body)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            found |= assigned([node])
    return found


def _has_elements(items: ast.expr) -> bool:
    """Whether a loop goes over `range` of constants that is not empty."""
    match items:
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]):
            bounds = [a.value if isinstance(a, ast.Constant) else None for a in args]
            return all(isinstance(b, int) for b in bounds) and 0 not in bounds[2:] and len(range(*bounds)) > 0  # type: ignore[arg-type]
    return False


def rebound(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements assign otherwise than by `x += y`."""
    found = set()
    for node in nodes:
        changed = {id(one.target) for one in ast.walk(node) if isinstance(one, ast.AugAssign)}
        found |= {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and id(one) not in changed
        }
    return found


def live_after(body: list[ast.stmt], after: set[str] | None = None) -> dict[ast.stmt, set[str]]:
    """For each loop and branch in statements: the names that are read after it before they are assigned again."""
    found: dict[ast.stmt, set[str]] = {}
    _block(body, set(after or ()), found, set(), set())
    return found


def _block(body: list[ast.stmt], live: set[str], found: dict, at_break: set[str], at_continue: set[str]) -> set[str]:
    """The names that are live before statements. at_break, at_continue: where these go on."""
    for node in reversed(body):
        live = _before(node, live, found, at_break, at_continue)
    return live


def _before(node: ast.stmt, live: set[str], found: dict, at_break: set[str], at_continue: set[str]) -> set[str]:
    match node:
        case ast.If(test=test, body=body, orelse=orelse):
            found[node] = set(live)
            yes = _block(body, live, found, at_break, at_continue)
            no = _block(orelse, live, found, at_break, at_continue)
            return yes | no | read([test])
        case ast.For(target=target, iter=items, body=body, orelse=orelse):
            found[node] = set(live)
            after = _block(orelse, live, found, at_break, at_continue)
            around = set(after)
            for _ in range(2):
                around |= _block(body, around, found, live, around) - assigned([target])
            return around | read([items])
        case ast.While(test=test, body=body, orelse=orelse):
            found[node] = set(live)
            around = _block(orelse, live, found, at_break, at_continue) | read([test])
            for _ in range(2):
                around |= _block(body, around, found, live, around)
            return around
        case ast.Return():
            return read([node])
        case ast.Break():
            return set(at_break)
        case ast.Continue():
            return set(at_continue)
        case ast.Raise():
            return read([node])
    stored = assigned([node])
    if isinstance(node, ast.AugAssign):
        stored = set()
    return (live - stored) | read([node])


def own_jumps(node: ast.AST) -> Iterator[ast.AST]:
    """Jumps that leave a statement: not those of loops within it."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        return
    if isinstance(node, (ast.For, ast.While)):
        for statement in node.orelse:
            yield from own_jumps(statement)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from own_jumps(child)
