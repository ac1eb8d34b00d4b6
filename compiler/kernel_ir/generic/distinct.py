"""Names for variables that have the same one: in text a name is one variable, in nodes an object is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hloom.compiler.kernel_ir.nodes import Assign, Expr, For, Kernel, Scratch, Stmt, Together, Var
from hloom.compiler.kernel_ir.rewrite import assigned, with_variables
from hloom.ir.records import replace

__all__ = ["with_distinct_names"]

_Path = tuple[int, ...]  # of a block: in turn a statement's number in a block, and the block's number in the statement


class _Extent:
    """Where a variable is: in the block that has all its uses, from one of its statements to another."""

    def __init__(self, block: _Path, first: int, last: int):
        self.block, self.first, self.last = block, first, last

    def join(self, path: _Path, index: int) -> None:
        common = 0
        for mine, other in zip(self.block, path, strict=False):
            if mine != other:
                break
            common += 1
        common -= common % 2
        first, last = (self.block[common],) * 2 if len(self.block) > common else (self.first, self.last)
        here = path[common] if len(path) > common else index
        self.block, self.first, self.last = path[:common], min(first, here), max(last, here)

    def meets(self, other: _Extent) -> bool:
        outer, inner = sorted((self, other), key=lambda one: len(one.block))
        depth = len(outer.block)
        if inner.block[:depth] != outer.block:
            return False
        if len(inner.block) == depth:
            return inner.first <= outer.last and outer.first <= inner.last
        return outer.first <= inner.block[depth] <= outer.last


def with_distinct_names(kernel: Kernel) -> Kernel:
    """The kernel with another name for a variable where two of one name are needed at the same time. Two that are not,
    but would be one for the reader of the text, become one."""
    own = {*kernel.params, *assigned(kernel.body)}
    if len({var.name for var in own}) == len(own):
        return kernel
    extents: dict[Var, _Extent] = {}
    for var, path, index in _uses(kernel.body, ()):
        if var in extents:
            extents[var].join(path, index)
        else:
            extents[var] = _Extent(path, index, index)
    for param in kernel.params:
        extents[param] = _Extent((), -1, len(kernel.body))
    named: dict[str, list[Var]] = {param.name: [param] for param in kernel.params}
    for var in extents:
        if var not in kernel.params:
            _give(var, var.name, named, extents)
    other: dict[Var, Var] = {}
    for name, variables in list(named.items()):
        first = variables[0]
        if _is_one(variables, extents):
            for var in variables[1:]:
                if var.type == first.type:
                    other[var] = first
                else:
                    fresh = next(fresh for k in itertools.count(1) if (fresh := f"{name}_{k}") not in named)
                    named[fresh] = [var]
    for name, variables in named.items():
        other |= {var: replace(var, name=name) for var in variables if var.name != name and var not in other}
    other = {var: other.get(one, one) for var, one in other.items()}
    return replace(kernel, body=[with_variables(s, other) for s in kernel.body]) if other else kernel


def _give(var: Var, name: str, named: dict[str, list[Var]], extents: dict[Var, _Extent]) -> None:
    """Adds a variable to those of a name, or of one made from it, that are not needed where it is."""
    stem, number = name, 0
    while any(extents[var].meets(extents[one]) for one in named.get(name, ())):
        number += 1
        name = f"{stem}_{number}"
    named.setdefault(name, []).append(var)


def _is_one(variables: list[Var], extents: dict[Var, _Extent]) -> bool:
    """Whether variables of one name are one for the reader: one varies, or a block is within that of another."""
    if len(variables) > 1 and any(var.varies for var in variables):
        return True
    blocks = sorted(extents[var].block for var in variables)
    return any(inner[: len(outer)] == outer for outer, inner in itertools.pairwise(blocks))


def _uses(statements: list[Stmt], path: _Path) -> Iterator[tuple[Var, _Path, int]]:
    """Each use of a variable, with the block and the number of the statement in it."""
    for index, s in enumerate(statements):
        for expression in s.expressions():
            yield from ((var, path, index) for var in _variables(expression))
        match s:
            case Assign() | Scratch():
                yield s.var, path, index
            case Together():
                yield from ((part.var, path, index) for part in s.parts if isinstance(part, Assign))
            case For(var=var):
                yield (var, path, index) if var.varies else (var, (*path, index, 0), 0)
                yield var, (*path, index, 0), len(s.body)
        for number, block in enumerate(s.blocks()):
            yield from _uses(block, (*path, index, number))


def _variables(e: Expr) -> list[Var]:
    """The variables in an expression, in the order in which they are written."""
    found: list[Var] = []
    waiting = [e]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Var):
            found.append(one)
        else:
            for name in reversed(one.PARTS):
                part = getattr(one, name)
                if isinstance(part, tuple):
                    waiting += reversed(part)
                else:
                    waiting.append(part)
    return found
