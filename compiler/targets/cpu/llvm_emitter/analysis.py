"""What the LLVM emitter has to know of a kernel's syntax tree."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import NamedTuple

from hloom.compiler.targets.cpu.llvm_emitter.values import LLVM

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
    its body is vector code already, it stores elements that are not adjacent, or it has a few iterations, as many as
    are left of them."""
    match node.iter:
        case ast.Call(args=[ast.Call(func=ast.Name(id="min"), args=bounds)]):
            if any(isinstance(b, ast.Constant) and isinstance(b.value, int) and b.value <= SHORT for b in bounds):
                return True
    return _calls(node, _BLOCKS) or _moves_apart(node)


def _moves_apart(node: ast.For) -> bool:
    """Whether the loop is one assignment of an element to another, whose index is a multiple of the loop's variable:
    such stores are made one by one."""
    match node.body, node.target:
        case [ast.Assign(targets=[ast.Subscript(slice=index)], value=ast.Subscript())], ast.Name(id=variable):
            products = (part for part in ast.walk(index) if isinstance(getattr(part, "op", None), ast.Mult))
            return any(getattr(x, "id", "") == variable for part in products for x in ast.walk(part))
    return False


def _calls(node: ast.AST, names: tuple[str, ...]) -> bool:
    calls = (child.func for child in ast.walk(node) if isinstance(child, ast.Call))
    return any(isinstance(name, ast.Name) and name.id.startswith(names) for name in calls)


def scratch_dtypes(definition: ast.FunctionDef) -> dict[str, str]:
    """HLO dtype of every block of scratch memory, by the name of the variable."""
    found = {}
    for node in ast.walk(definition):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=made))):
                if made.startswith("scratch_"):
                    found[name] = made.removeprefix("scratch_")
    return found


class Run(NamedTuple):
    """A loop over `variable` that fills adjacent elements of scratch memory: with zeros (source: None), or with
    adjacent elements of the same dtype from a parameter."""

    variable: str
    target: ast.Subscript
    source: ast.Subscript | None


def run_of(node: ast.For, scratch: dict[str, str], dtypes: dict[str, str]) -> Run | None:
    """The loop as a run, which is a call of the C library, as LLVM would find out after much else; None for others.

    scratch, dtypes: dtypes of scratch memory and of what parameters point to, by name.
    """

    def adjacent(index: ast.expr) -> bool:
        match index:
            case ast.Name(id=name):
                return name == variable
            case ast.BinOp(left=left, op=ast.Add(), right=ast.Name(id=name)):
                return name == variable and all(getattr(part, "id", "") != variable for part in ast.walk(left))
        return False

    match node:
        case ast.For(
            target=ast.Name(id=variable),
            iter=ast.Call(args=bounds),
            body=[ast.Assign(targets=[ast.Subscript(value=ast.Name(id=target), slice=index) as place], value=value)],
        ) if len(bounds) < 3 and target in scratch and adjacent(index):
            match value:
                case ast.Subscript(value=ast.Name(id=source), slice=index):
                    if dtypes.get(source) == scratch[target] and adjacent(index):
                        return Run(variable, place, value)
                case ast.Call(func=ast.Name(id=dtype), args=[ast.Constant(value=0)]) if dtype == scratch[target]:
                    return Run(variable, place, None)
    return None


def is_explicit(definition: ast.FunctionDef, written: Callable[[ast.For], object]) -> bool:
    """Whether a kernel has vectors that are written out, and no innermost loop that is neither of them nor short.
    written: true for a loop that will be none (a run)."""
    plain = 0
    for loop in ast.walk(definition):
        if isinstance(loop, ast.For | ast.While):
            if any(isinstance(child, ast.For | ast.While) for part in loop.body for child in ast.walk(part)):
                continue
            if isinstance(loop, ast.While):
                return False
            if is_plain(loop) or _calls(loop, _VECTORS) or written(loop):
                plain += 1
            elif not (isinstance(loop.iter, ast.Call) and [type(bound) for bound in loop.iter.args] == [ast.Constant]):
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
