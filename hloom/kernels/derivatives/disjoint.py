"""Whether the iterations of a parallel loop access disjoint elements of an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.compiler.kernel_ir.affine.sums import Affine
from hloom.compiler.kernel_ir.nodes import Assign, Expr, For, Load, Stmt, Store, Var
from hloom.kernels.derivatives.activity import statements_of
from hloom.kernels.frontend.races import Loops, index_of
from hloom.kernels.programs import Body, Draft

__all__ = ["is_disjoint", "loops_of"]


def is_disjoint(draft: Draft, pointer: Var, body: Body) -> bool:
    """Whether no two iterations access one element of the array, as far as can be proved."""
    if draft.item is None or draft.items <= 1 or pointer in [s.var for s in draft.scratches]:
        return True
    digits = draft.digits or (draft.item,)
    statements = [s for one in statements_of(draft) for s in one.walk()]
    loops = loops_of(statements, digits, body)
    ranges: list[tuple[int, int]] = []  # of the indexes without their digits' terms
    factors: set[tuple[int, ...]] = set()
    for index in dict.fromkeys(_indices(statements, pointer)):
        form = index_of(index, loops)
        found = None if form is None else _range(form, digits, body)
        if form is None or found is None:
            return False
        ranges.append(found)
        factors.add(tuple([form.terms.get(digit, 0) for digit in digits]))
    if not ranges:
        return True
    if len(factors) > 1:
        return False
    width = max(high for _, high in ranges) - min(low for low, _ in ranges)
    return _are_apart(width, dict(zip(digits, map(abs, factors.pop()), strict=True)), body)


def loops_of(statements: list[Stmt], digits: Sequence[Var], body: Body) -> Loops:
    """The loops of a kernel whose iterations have these digits."""
    loops = Loops(known=dict(body.sizes))
    loops.parallel = dict.fromkeys(digits)
    loops.serial = {s.var for s in statements if isinstance(s, For)}
    loops.definitions = {s.var: s.value for s in statements if isinstance(s, Assign) and not s.var.varies}
    for digit in digits:
        loops.definitions.pop(digit, None)
    return loops


def _indices(statements: list[Stmt], pointer: Var) -> list[Expr]:
    """The indexes of all accesses to an array."""
    found: list[Expr] = []
    for s in statements:
        if isinstance(s, Store) and s.pointer is pointer:
            found.append(s.index)
        for e in s.expressions():
            found += [one.index for one in e.walk() if isinstance(one, Load) and one.pointer is pointer]
    return found


def _range(form: Affine, digits: Sequence[Var], body: Body) -> tuple[int, int] | None:
    """The least and the greatest value of an index where all digits are 0; None where they are not known."""
    low = high = form.constant
    for var, factor in form.terms.items():
        if var in digits:
            continue
        first, last = body.spans.get(var, (None, None))
        if first is None or last is None:
            return None
        ends = (factor * first, factor * last)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _are_apart(width: int, factors: Mapping[Var, int], body: Body) -> bool:
    """Whether the ranges, `width` wide, of different digits do not meet: each digit, from the one with the least factor
    on, steps over all that those before it reach."""
    for digit, factor in sorted(factors.items(), key=lambda pair: pair[1]):
        _, last = body.spans.get(digit, (None, None))
        if last == 0:
            continue
        if factor <= width or last is None:
            return False
        width += factor * last
    return True
