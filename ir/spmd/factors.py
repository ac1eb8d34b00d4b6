"""Factors of an op: which dimensions of its operands and results go together.

An op declares them in its table entry: `factors(instruction) -> FactorRule`. Element-wise ops have `pointwise` by
default; the other rules stand beside their ops, built with a `RuleBuilder`.

Source: Shardy's sharding rules, openxla.org/shardy/propagation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hloom.ir.records import record
from hloom.ir.sizes.expressions import Size
from hloom.ir.types import result_shapes

OWN = "to_apply"  # the combiner of a reduction by a computation that is not one op: the instruction's own


@record(frozen=True)
class FactorRule:
    """Which dimensions of an op's operands and results go together, for propagation and partition.

    A factor is a range that the op walks through; each dimension of an operand or result consists of factors, major to
    minor; a dimension of size 1 may have none. In a product f32[i, k] · f32[k, j] the factors are i, j, k; k is a
    reduction. A factor that none of the sets below names passes through: each device computes its part of the result
    from its part of the operands that have it, and operands without it are the same for all parts.

    operands: for each operand, for each dimension, the numbers of its factors; () for a scalar. results: the same for
    the result, or for each element of a tuple. sizes: by factor; of a factor whose dimensions differ in size (in
    `windows`), that of the first dimension that has it, operands first.
    reduction: factors that the result lacks because the op combines along them; splitting them leaves partial results.
    An initial value, or the operand that a scatter starts from, is in the partial result of one device only; the others
    start from the combiner's neutral element. combiner: the op that combines partial results ('add', 'maximum', ...);
    `OWN` where that is no single op: partial results are gathered and combined by the instruction's computation.
    whole: factors along which the op must see everything, so that no axis may split them when it is computed (the
    dimension of a sort). Shardings pass along them nevertheless: sorted numbers are laid out as the numbers are.
    windows: factors whose dimensions pass through but for places that lie on other devices: what a window, a shift, a
    reversal or a running sum needs of neighbours (a halo exchange, a permutation). The dimensions may differ in size.
    masked: factors along which the op finds its elements by indexes. Each device computes with those in its own range:
    indexes are clamped to the whole dimension first and then counted from the start of the range. In `reduction` as
    well (gather, dynamic-slice): what the device does not have is zero in its partial result. Not there (scatter,
    dynamic-update-slice): updates outside of the range are left out.
    local: attributes that have to be divided as the factor is split: factor -> name of the attribute
    (feature_group_count of a convolution).
    """

    operands: tuple[tuple[tuple[int, ...], ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]
    sizes: tuple[Size, ...]
    reduction: frozenset[int] = frozenset()
    combiner: str = "add"
    whole: frozenset[int] = frozenset()
    windows: frozenset[int] = frozenset()
    masked: frozenset[int] = frozenset()
    local: tuple[tuple[int, str], ...] = ()

    @property
    def splittable(self) -> frozenset[int]:
        """The factors along which the op can be computed in parts that need nothing of each other but a sum."""
        return frozenset(range(len(self.sizes))) - self.whole - self.windows


class RuleBuilder:
    """Collects the factors of one op.

    Arrays are named by their numbers, operands and results apart. Dimensions that no factor was given get one of their
    own at the end, in `whole`: nothing else of the op goes with them.
    """

    def __init__(self, instruction, combiner: str = "add"):
        self.operand_dims = [o.shape.dims for o in instruction.operands]
        self.result_dims = [s.dims for s in result_shapes(instruction.shape)]
        self.operands: list[list[tuple[int, ...]]] = [[()] * len(dims) for dims in self.operand_dims]
        self.results: list[list[tuple[int, ...]]] = [[()] * len(dims) for dims in self.result_dims]
        self.sizes: list[Size] = []
        self.sets: dict[str, set[int]] = {name: set() for name in ("reduction", "whole", "windows", "masked")}
        self.local: list[tuple[int, str]] = []
        self.combiner = combiner

    def add(
        self,
        operands: Mapping[int, int] | None = None,
        results: Mapping[int, int] | None = None,
        *kinds: str,
        size: Size | None = None,
        local: str = "",
    ) -> int:
        """A new factor of these dimensions (array -> dimension), in the sets `kinds`, minor to what they have already.

        size: where the factor is not the whole dimension. local: the attribute to divide.
        """
        operands, results = operands or {}, results or {}
        factor = len(self.sizes)
        for array, d in operands.items():
            self.operands[array][d] += (factor,)
        for array, d in results.items():
            self.results[array][d] += (factor,)
        if size is None:
            places = [self.operand_dims[k][d] for k, d in operands.items()]
            size = (places or [self.result_dims[k][d] for k, d in results.items()])[0]
        self.sizes.append(size)
        for kind in kinds:
            self.sets[kind].add(factor)
        if local:
            self.local.append((factor, local))
        return factor

    def finish(self) -> FactorRule:
        for arrays, sizes in ((self.operands, self.operand_dims), (self.results, self.result_dims)):
            for factors, dims in zip(arrays, sizes, strict=True):
                for d, size in enumerate(dims):
                    if not factors[d] and size != 1:
                        factors[d] = (len(self.sizes),)
                        self.sets["whole"].add(len(self.sizes))
                        self.sizes.append(size)
        return FactorRule(
            tuple(tuple(a) for a in self.operands),
            tuple(tuple(a) for a in self.results),
            tuple(self.sizes),
            frozenset(self.sets["reduction"]),
            self.combiner,
            frozenset(self.sets["whole"]),
            frozenset(self.sets["windows"]),
            frozenset(self.sets["masked"]),
            tuple(self.local),
        )


# --- rules that many ops share ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _pointwise(operands: tuple[int, ...], results: tuple[int, ...], dims: tuple[int, ...], whole: frozenset[int]):
    line = tuple((k,) for k in range(len(dims)))
    return FactorRule(tuple(line[:r] for r in operands), tuple(line[:r] for r in results), dims, whole=whole)


def pointwise(instruction) -> FactorRule:
    """Each dimension of the result is a factor, and one of each operand; scalar operands have none."""
    return along(instruction)


def along(instruction, whole=()) -> FactorRule:
    """As `pointwise`, of all results; the dimensions in `whole` have to be seen as a whole."""
    shapes = result_shapes(instruction.shape)
    operands = tuple([len(o.shape.dims) for o in instruction.operands])
    return _pointwise(
        operands, tuple([len(s.dims) for s in shapes]), shapes[0].dims if shapes else (), frozenset(whole)
    )


def leading(instruction, count: int) -> FactorRule:
    """The first `count` dimensions of all operands and results are one batch; the others have to be seen as a whole."""
    rule = RuleBuilder(instruction)
    for d in range(count):
        rule.add(dict.fromkeys(range(len(rule.operands)), d), dict.fromkeys(range(len(rule.results)), d))
    return rule.finish()
