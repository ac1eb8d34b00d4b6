"""What `direct` asks of a kernel's syntax tree before and while it writes it."""

from __future__ import annotations

import ast
import functools

from .direct_values import LLVM

_HARMLESS = (ast.Name, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Attribute)


@functools.cache
def _casts() -> frozenset[str]:
    return frozenset(LLVM) - {"*"}


def is_harmless(node: ast.expr) -> bool:
    """Whether it may be computed where Python would not: no memory is read, no function but a cast is called."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _casts() and all(map(is_harmless, node.args))
    if not isinstance(node, _HARMLESS):
        return False
    return all(is_harmless(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


EXPLICIT = "; vectors are written out"  # the first line of a module that LLVM's vectorizer has nothing to do for
_BLOCKS = ("tile_", "transpose_", "fft")
_VECTORS = (*_BLOCKS, "copy_", "zero_")
SHORT = 8


def is_plain(node: ast.For) -> bool:
    """Whether a loop gains nothing from LLVM's vectorizer and unroller, which take most of its time for contractions:
    its body is vector code already, or it has a few turns, as many as are left of them."""
    match node.iter.args:
        case [ast.Call(func=ast.Name(id="min"), args=bounds)]:
            if any(isinstance(b, ast.Constant) and isinstance(b.value, int) and b.value <= SHORT for b in bounds):
                return True
    return _calls(node, _BLOCKS)


def _calls(node: ast.AST, names: tuple[str, ...]) -> bool:
    calls = (child.func for child in ast.walk(node) if isinstance(child, ast.Call))
    return any(isinstance(name, ast.Name) and name.id.startswith(names) for name in calls)


def is_explicit(definition: ast.FunctionDef) -> bool:
    """Whether a kernel has vectors that are written out, and no innermost loop that is neither of them nor short."""
    plain = 0
    for loop in ast.walk(definition):
        if isinstance(loop, ast.For | ast.While):
            if any(isinstance(child, ast.For | ast.While) for part in loop.body for child in ast.walk(part)):
                continue
            if isinstance(loop, ast.While):
                return False
            if is_plain(loop) or _calls(loop, _VECTORS):
                plain += 1
            elif not (len(loop.iter.args) == 1 and isinstance(loop.iter.args[0], ast.Constant)):
                return False
    return plain > 0


def in_slots(definition: ast.FunctionDef) -> frozenset[str]:
    """The variables that are not one value on the way from their assignment to their uses."""
    found: set[str] = set()
    scopes: list[set[str]] = [{argument.arg for argument in definition.args.args}]

    def reads(node: ast.AST) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                if child.id in assigned and not any(child.id in scope for scope in scopes):
                    found.add(child.id)

    def writes(target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if any(target.id in scope for scope in scopes):
                found.add(target.id)
            scopes[-1].add(target.id)
        elif isinstance(target, ast.Tuple):
            for part in target.elts:
                writes(part)
        else:
            reads(target)

    def visit(statements: list[ast.stmt], bound: ast.expr | None = None) -> None:
        scopes.append(set())
        if bound is not None:
            writes(bound)
        for node in statements:
            if isinstance(node, ast.Assign):
                reads(node.value)
                for target in node.targets:
                    writes(target)
            elif isinstance(node, ast.AugAssign):
                reads(node.value)
                if isinstance(node.target, ast.Name):
                    found.add(node.target.id)
                writes(node.target)
            elif isinstance(node, ast.For):
                reads(node.iter)
                visit(node.body, node.target)
            elif isinstance(node, ast.While | ast.If):
                reads(node.test)
                visit(node.body)
                visit(node.orelse)
            else:
                reads(node)
        scopes.pop()

    assigned = {
        child.id for child in ast.walk(definition) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
    }
    visit(definition.body)
    return frozenset(found)
