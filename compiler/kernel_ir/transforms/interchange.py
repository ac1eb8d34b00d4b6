"""Interchange: two loops, one directly in the other, in the other order.

It is legal where no iteration depends on one that is later in the outer and earlier in the inner loop, or the other way
around: these two change places. Each element is still computed by the same operations in the same order.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.affine.dependences import EARLIER, LATER, SAME, Distance, Nest
from hloom.compiler.kernel_ir.nodes import For
from hloom.compiler.kernel_ir.rewrite import assigned
from hloom.compiler.kernel_ir.transforms.nests import (
    NESTED,
    Around,
    Path,
    has_fixed_bounds,
    is_straight,
    is_within,
    step_of,
)
from hloom.ir.records import replace

__all__ = ["can_be_interchanged", "interchanged"]


def can_be_interchanged(around: Around, nest: Nest, path: Path) -> bool:
    """Whether the last loop of a path may change places with the one around it."""
    if len(path) < 2:
        return False
    outer, inner = path[-2:]
    if len(outer.body) != 1 or outer.body[0] is not inner or not is_straight(inner.body, *NESTED):
        return False
    own = {outer.var, inner.var, *assigned(inner.body)}
    if not (has_fixed_bounds(outer, own) and has_fixed_bounds(inner, own)):
        return False
    if step_of(outer) is None or step_of(inner) is None or {outer.var, inner.var} & around.varying:
        return False
    if not around.is_private(inner.body):
        return False
    distances: list[Distance] = [*[SAME] * (len(path) - 2), LATER, EARLIER]
    among = [access for access in nest.accesses if is_within(access, path)]
    return not any(nest.may_meet(first, second, distances) for first, second in nest.pairs(among))


def interchanged(outer: For, inner: For) -> For:
    return replace(inner, body=[replace(outer, body=inner.body)])
