"""Factors of an op: the correspondence between dimensions of its operands and results.

An op declares them in its table entry: `factors(instruction) -> FactorRule`. Element-wise ops have `pointwise` by
default; the other rules are next to their ops, built with a `RuleBuilder`.

Source: Shardy's sharding rules, openxla.org/shardy/propagation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hloom.ir.records import record
from hloom.ir.sizes.expressions import Size
from hloom.ir.types import result_shapes

OWN = "to_apply"  # the combiner of a reduction by a general computation: the instruction's own


@record(frozen=True)
class FactorRule:
    """The correspondence between dimensions of an op's operands and results, for propagation and partitioning.

    A factor is an index range of the op; each dimension of an operand or result consists of factors, major to minor; a
    dimension of size 1 may have none. In a product f32[i, k] · f32[k, j] the factors are i, j, k; k is a reduction. A
    factor in none of the sets below passes through: each device computes its part of the result from its part of the
    operands with the factor, and operands without it are replicated.

    operands: for each operand, for each dimension, the indices of its factors; () for a scalar. results: the same for
    the result, or for each element of a tuple. sizes: by factor; for a factor whose dimensions differ in size (in
    `windows`), that of the first dimension with it, operands first.
    reduction: factors that the op reduces; splitting them yields partial results. An initial value, or the operand that
    a scatter starts from, is included in the partial result of one device only; the others start from the combiner's
    neutral element. combiner: the op that combines partial results ('add', 'maximum', ...); `OWN` if it is not a single
    op: partial results are gathered and combined by the instruction's computation.
    whole: factors that the op needs as a whole, so that no axis may split them during its computation (the dimension of
    a sort). Shardings propagate along them nevertheless: sorted values have the layout of the operand.
    windows: factors that pass through except for remote elements: those that a window, a shift, a reversal or a running
    sum needs from neighbours (a halo exchange, a permutation). The dimensions may differ in size.
    masked: factors along which the op accesses elements by index. Each device handles those in its range: indices are
    clamped to the whole dimension first and then made relative to the start of the range. If also in `reduction`
    (gather, dynamic-slice), remote elements are zero in the partial result; otherwise (scatter, dynamic-update-slice),
    updates out of the range are dropped.
    local: attributes that must be divided when the factor is split: factor -> name of the attribute
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
        """The factors along which the op can be computed in parts that are independent except for a sum."""
        return frozenset(range(len(self.sizes))) - self.whole - self.windows


class RuleBuilder:
    """Collects the factors of one op.

    Arrays are identified by index, operands and results separately. Dimensions without a factor finally get a separate
    one in `whole`, as they correspond to no other.
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
        """A new factor of these dimensions (array -> dimension), in the sets `kinds`, minor to their existing ones.

        size: if the factor is not the whole dimension. local: the attribute to divide.
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


# --- common rules -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _pointwise(operands: tuple[int, ...], results: tuple[int, ...], dims: tuple[int, ...], whole: frozenset[int]):
    line = tuple((k,) for k in range(len(dims)))
    return FactorRule(tuple(line[:r] for r in operands), tuple(line[:r] for r in results), dims, whole=whole)


def pointwise(instruction) -> FactorRule:
    """Each dimension is a factor of the result and of all operands; scalar operands have none."""
    return along(instruction)


def along(instruction, whole=()) -> FactorRule:
    """As `pointwise`, for all results; the dimensions in `whole` are needed as a whole."""
    shapes = result_shapes(instruction.shape)
    operands = tuple([len(o.shape.dims) for o in instruction.operands])
    return _pointwise(
        operands, tuple([len(s.dims) for s in shapes]), shapes[0].dims if shapes else (), frozenset(whole)
    )


def leading(instruction, count: int) -> FactorRule:
    """The first `count` dimensions of all operands and results are a batch; the others are needed as a whole."""
    rule = RuleBuilder(instruction)
    for d in range(count):
        rule.add(dict.fromkeys(range(len(rule.operands)), d), dict.fromkeys(range(len(rule.results)), d))
    return rule.finish()
