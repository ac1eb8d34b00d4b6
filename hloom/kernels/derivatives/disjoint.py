"""Whether the iterations of a parallel loop access different elements of an array, each its own."""

from __future__ import annotations

from hloom.compiler.kernel_ir.nodes import Assign, Expr, For, Load, Store, Var
from hloom.kernels.derivatives.activity import statements_of
from hloom.kernels.frontend.races import Loops, linear
from hloom.kernels.programs import Body, Draft

__all__ = ["is_disjoint"]


def is_disjoint(draft: Draft, pointer: Var, body: Body) -> bool:
    """Whether no two iterations access one element of the array, as far as can be proved."""
    if draft.item is None or draft.items <= 1 or pointer in [s.var for s in draft.scratches]:
        return True
    digits = draft.digits or (draft.item,)
    statements = [s for one in statements_of(draft) for s in one.walk()]
    loops = Loops(known=dict(body.sizes))
    loops.parallel = dict.fromkeys(digits)
    loops.serial = {s.var for s in statements if isinstance(s, For)}
    loops.definitions = {s.var: s.value for s in statements if isinstance(s, Assign) and not s.var.varies}
    for digit in digits:
        loops.definitions.pop(digit, None)
    indices: list[Expr] = []
    for s in statements:
        if isinstance(s, Store) and s.pointer is pointer:
            indices.append(s.index)
        for e in s.expressions():
            indices += [one.index for one in e.walk() if isinstance(one, Load) and one.pointer is pointer]
    least = most = None
    factors: list[int] | None = None
    for index in dict.fromkeys(indices):
        form = linear(index, loops)
        if form is None:
            return False
        own = [form.get(digit, 0) for digit in digits]
        if factors is not None and own != factors:
            return False
        factors = own
        low = high = form.get(None, 0)
        for var, factor in form.items():
            if var is None or var in digits:
                continue
            span = body.spans.get(var, (None, None))
            if span[0] is None or span[1] is None:
                return False
            ends = (factor * span[0], factor * span[1])
            low, high = low + min(ends), high + max(ends)
        least = low if least is None else min(least, low)
        most = high if most is None else max(most, high)
    if factors is None or least is None or most is None:
        return True
    width = most - least
    for factor, digit in sorted(zip(map(abs, factors), digits, strict=True), key=lambda pair: pair[0]):
        span = body.spans.get(digit, (None, None))
        if span[1] == 0:
            continue
        if factor <= width or span[1] is None:
            return False
        width += factor * span[1]
    return True
