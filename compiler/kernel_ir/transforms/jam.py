"""Unroll and jam: several iterations of a loop at once, their inner loops as one.

    for i in range(n):                      for i in range(0, n // 4 * 4, 4):
        for j in range(m):                      for j in range(m):
            x[i, j] = f(x[i, j - 1])                x[i, j] = f(x[i, j - 1])
                                                    x[i + 1, j] = f(x[i + 1, j - 1])  and two more
                                            for i in range(n // 4 * 4, n): as before

An inner loop whose iterations wait for each other computes one element in the latency of its operations; four such
loops together compute four. It is legal where no iteration of the inner loop depends on a later one of an earlier outer
iteration: the order of these two is what changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hloom.compiler.kernel_ir.affine.dependences import EARLIER, SAME, Distance, Nest
from hloom.compiler.kernel_ir.builder import ONE, ZERO, assign, call, constant, minus, operation, plus, times
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import For, Stmt, Var
from hloom.compiler.kernel_ir.rewrite import assigned, with_variables
from hloom.compiler.kernel_ir.transforms.nests import (
    NESTED,
    Around,
    Path,
    has_fixed_bounds,
    is_straight,
    step_of,
)
from hloom.ir.records import replace

__all__ = ["can_be_jammed", "jammed"]


def can_be_jammed(around: Around, nest: Nest, path: Path, factor: int) -> bool:
    """Whether so many iterations of the last loop of a path may be done at once, each of its inner loops as one."""
    loop = path[-1]
    inner = [s for s in loop.body if isinstance(s, For)]
    if not inner or step_of(loop) != 1 or not is_straight(loop.body, *NESTED):
        return False
    own = {loop.var, *assigned(loop.body)}
    if not all(has_fixed_bounds(one, own) for one in (loop, *inner)):
        return False
    if loop.var in around.varying or not around.is_private(loop.body):
        return False
    sections = {id(s): k for k, part in enumerate(_sections(loop)) for one in part for s in one.walk()}
    outside: list[Distance] = [SAME] * (len(path) - 1)
    soon: Distance = (1, factor - 1)
    for first, second in nest.pairs([a for a in nest.accesses if id(a.statement) in sections]):
        section, other = sections[id(first.statement)], sections[id(second.statement)]
        # Whether an access may be of the element of one that was before it, and comes before that one now.
        if section > other and nest.may_meet(first, second, [*outside, soon]):
            return False
        looped = section == other and len(first.loops) > len(path) and len(second.loops) > len(path)
        if looped and nest.may_meet(first, second, [*outside, soon, EARLIER]):
            return False
    return True


def _sections(loop: For) -> list[list[Stmt]]:
    """The statements of a loop, each loop in it apart."""
    return [list(found) for _, found in itertools.groupby(loop.body, lambda s: id(s) if isinstance(s, For) else 0)]


def jammed(around: Around, loop: For, factor: int) -> list[Stmt]:
    """The loop with so many iterations at once, and the loop of those that are left. It `can_be_jammed`."""
    inner = {s.var for s in loop.body if isinstance(s, For)}
    own = [loop.var, *(var for var in assigned(loop.body) if var not in inner)]
    copies = [{var: Var(var.type, around.renamed(var.name), var.varies) for var in own} if k else {}
              for k in range(factor)]  # fmt: skip
    last = around.fresh("s64", f"{loop.var.name}_last")
    count = call("max", [minus(loop.stop, loop.start), ZERO], by_name)
    whole = times(operation("//", count, constant(factor)), constant(factor))
    body: list[Stmt] = [assign(one[loop.var], plus(loop.var, constant(k))) for k, one in enumerate(copies) if k]
    for part in _sections(loop):
        first = part[0]
        if isinstance(first, For):
            body.append(replace(first, body=_of_all(first.body, copies)))
        else:
            body += _of_all(part, copies)
    rest = {var: Var(var.type, around.renamed(var.name), var.varies) for var in (loop.var, *assigned(loop.body))}
    return [
        assign(last, plus(loop.start, whole) if loop.start != ZERO else whole),
        For(loop.var, loop.start, last, constant(factor), body),
        For(rest[loop.var], last, loop.stop, ONE, [with_variables(s, rest) for s in loop.body]),
    ]


def _of_all(statements: Sequence[Stmt], copies: Sequence[dict[Var, Var]]) -> list[Stmt]:
    """The statements of one iteration after those of the other."""
    return [with_variables(statement, own) for own in copies for statement in statements]
