"""Factors of an op: which dimensions of its operands and results go together.

Source: Shardy's sharding rules, openxla.org/shardy/propagation.
"""

from __future__ import annotations

from hloom.ir.records import record


@record(frozen=True)
class FactorRule:
    """Which dimensions of an op's operands and results go together, for propagation and partition.

    A factor is a range that the op walks through; each dimension of an operand or result consists of factors, major to
    minor. In a product f32[i, k] · f32[k, j] the factors are i, j, k; k is a reduction.

    operands, results: for each array, for each dimension, the numbers of its factors. sizes: by factor.
    reduction: factors that the result lacks because the op combines along them; splitting them leaves partial results.
    combiner: the op that combines partial results ('add', 'maximum', ...). whole: factors along which the op must see
    everything, so that no axis may split them when it is computed (the dimension of a sort).
    """

    operands: tuple[tuple[tuple[int, ...], ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]
    sizes: tuple[int, ...]
    reduction: frozenset[int] = frozenset()
    combiner: str = "add"
    whole: frozenset[int] = frozenset()
