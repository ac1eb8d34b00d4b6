"""Names for variables that have the same one: in text a name is one variable, in nodes an object is."""

from __future__ import annotations

from collections.abc import Iterator

from hloom.compiler.kernel_ir.nodes import Assign, Expr, For, Kernel, Scratch, Stmt, Together, Var
from hloom.compiler.kernel_ir.rewrite import with_variables
from hloom.ir.records import record, replace

__all__ = ["with_distinct_names"]

_Path = tuple[int, ...]  # of a block: in turn a statement's number in a block, and the block's number in the statement


@record
class _Extent:
    """Where a variable is: in the block that has all its uses, from one of its statements to another."""

    block: _Path
    first: int
    last: int

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
    """The kernel with another name for a variable where two of one name are needed at the same time, or would become
    one of two types."""
    extents: dict[Var, _Extent] = {}
    for var, path, index in _uses(kernel.body, ()):
        if var in extents:
            extents[var].join(path, index)
        else:
            extents[var] = _Extent(path, index, index)
    named: dict[str, list[Var]] = {param.name: [param] for param in kernel.params}
    for param in kernel.params:
        extents[param] = _Extent((), -1, len(kernel.body))
    renamed: dict[Var, Var] = {}
    for var in extents:
        name, number = var.name, 0
        while any(var is not one and _clash(extents, var, one) for one in named.get(name, ())):
            number += 1
            name = f"{var.name}_{number}"
        if var not in named.setdefault(name, []):
            named[name].append(var)
        if name != var.name:
            renamed[var] = replace(var, name=name)
    return replace(kernel, body=[with_variables(s, renamed) for s in kernel.body]) if renamed else kernel


def _clash(extents: dict[Var, _Extent], var: Var, other: Var) -> bool:
    one, two = extents[var], extents[other]
    if one.meets(two):
        return True
    if var.type == other.type:
        return False
    nested = one.block[: len(two.block)] == two.block or two.block[: len(one.block)] == one.block
    return nested or var.varies or other.varies


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
        for number, block in enumerate(s.blocks()):
            yield from _uses(block, (*path, index, number))


def _variables(e: Expr) -> Iterator[Var]:
    return (one for one in e.walk() if isinstance(one, Var))
