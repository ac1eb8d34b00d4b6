"""The choice of axes along which an op is computed: the axes that split each factor of its rule.

Candidates derive from the operands' layouts and the requested layout of the result, each having priority in one of
them; the cost model selects the cheapest, including the resharding of operands and result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from hloom.compiler.passes.spmd.resharding.costs import COPY
from hloom.compiler.passes.spmd.resharding.layouts import Axes, Layout, Layouts
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Size
from hloom.ir.sizes.guards import typical
from hloom.ir.spmd.factors import FactorRule

Dims = tuple[tuple[int, ...], ...]  # the factor indices of each dimension


@record(frozen=True)
class Choice:
    """axes: by factor. operands, results: the resulting layouts. unreduced: axes of partial sums that are not
    reduced."""

    axes: tuple[Axes, ...]
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]
    unreduced: Axes = ()

    def split(self, factors: Iterable[int]) -> Axes:
        """The axes that split these factors."""
        return tuple(a for f in sorted(factors) for a in self.axes[f])


def factor_axes(layouts: Layouts, sizes: Sequence[Size], dims: Dims, layout: Layout) -> list[tuple[int, Axes]]:
    """(factor, axes) for each factor that an array's layout splits; axes that match no factor are omitted."""
    found = []
    for factors, axes in zip(dims, layout.dims, strict=True):
        if not axes or not factors:
            continue
        if len(factors) == 1:
            found.append((factors[0], axes))
            continue
        rest = list(axes)
        for f in factors:
            taken, count = [], 1
            while rest and sizes[f] % (count * layouts.sizes[rest[0]]) == 0:
                count *= layouts.sizes[rest[0]]
                taken.append(rest.pop(0))
            if taken:
                found.append((f, tuple(taken)))
            if count != sizes[f]:
                break
    return found


def array_layout(layouts: Layouts, dims: Dims, axes: Sequence[Axes], unreduced: Axes = ()) -> Layout:
    """The layout of an array with its factors split along these axes."""
    return layouts.of(
        tuple([axes[f[0]] if len(f) == 1 else tuple([a for k in f for a in axes[k]]) for f in dims]), unreduced
    )


def _compound(rule: FactorRule) -> list[Dims]:
    """The arrays with dimensions that consist of several factors."""
    return [dims for dims in (*rule.operands, *rule.results) if any(len(f) > 1 for f in dims)]


class Chooser:
    """Chooses axes for the instructions of one mesh. price(layout, layout, dims, itemsize): the cost of resharding."""

    def __init__(self, layouts: Layouts, price: Callable[..., float]):
        self.layouts, self.price = layouts, price

    def candidates(
        self,
        rule: FactorRule,
        allowed: Iterable[int],
        given: list[Layout],
        wanted: list[Layout],
        reserved: Axes,
        weights: list[int],
    ) -> list[tuple[Axes, ...]]:
        """The axes by factor of each candidate, without repetition.

        allowed: the factors that may be split. reserved: axes already in use. weights: the bytes of the operands.
        """  # fmt: skip
        allowed = frozenset(allowed)
        results = [(dims, layout) for dims, layout in zip(rule.results, wanted, strict=True)]
        order = sorted(range(len(given)), key=lambda k: -weights[k])
        operands = [(rule.operands[k], given[k]) for k in order]
        orders = [results + operands]
        orders += [[o, *results, *(other for other in operands if other is not o)] for o in operands]
        # The factors of each array are computed once.
        said = {id(a): factor_axes(self.layouts, rule.sizes, *a) for a in (*results, *operands) if a[1].axes}
        if not said:
            return [((),) * len(rule.sizes)]
        found = []
        for arrays in orders:
            found.append(self._assigned(rule, allowed, reserved, [said[id(a)] for a in arrays if id(a) in said]))
        found += self._moved(rule, allowed, given, found[0], reserved)
        if rule.reduction:
            found.append(
                self._assigned(
                    rule, allowed - rule.reduction, reserved, [said[id(a)] for a in orders[0] if id(a) in said]
                )
            )
        return list(dict.fromkeys(found))

    def _moved(
        self, rule: FactorRule, allowed: frozenset[int], given: list[Layout], first: tuple[Axes, ...], reserved: Axes
    ):
        """If a dimension that is needed as a whole is split, the variants with its axes on another dimension."""
        used = {*reserved, *(a for axes in first for a in axes)}
        count, compound = self.layouts.count, _compound(rule)
        for dims, layout in zip(rule.operands, given, strict=True):
            axes = tuple(
                a for factors, axes in zip(dims, layout.dims, strict=True) if not allowed.intersection(factors)
                for a in axes if a not in used
            )  # fmt: skip
            if not axes:
                continue
            alone = [
                f[0] for f in dims if len(f) == 1 and f[0] in allowed - rule.reduction - rule.windows - rule.masked
            ]
            even = [f for f in alone if rule.sizes[f] % count((*first[f], *axes)) == 0]
            for best in sorted(even, key=lambda f: typical(rule.sizes[f]) / count(first[f]), reverse=True):
                moved = tuple((*own, *axes) if f == best else own for f, own in enumerate(first))
                # In another array the factor may be a minor one of a dimension, whose parts are not parts of the
                # factor.
                if not compound or tuple(self._consistent(rule, list(moved), compound)) == moved:
                    yield moved
                    break

    def _assigned(self, rule: FactorRule, allowed: frozenset[int], reserved: Axes, said) -> tuple[Axes, ...]:
        assigned: list[Axes] = [()] * len(rule.sizes)
        used = set(reserved)
        for pairs in said:
            for f, axes in pairs:
                if f not in allowed:
                    continue
                have = assigned[f]
                if axes[: len(have)] != have:
                    continue
                more = []
                for a in axes[len(have) :]:
                    if a in used:
                        break
                    more.append(a)
                if more:
                    assigned[f] = (*have, *more)
                    used.update(more)
        compound = _compound(rule)
        return tuple(self._consistent(rule, assigned, compound) if compound else assigned)

    def _consistent(self, rule: FactorRule, assigned: list[Axes], compound: list[Dims]) -> list[Axes]:
        """Removes splits that a dimension of several factors cannot have: of a minor factor unless the major ones are
        fully split, and with padding."""
        count = self.layouts.count
        changed = True
        while changed:
            changed = False
            for factors in [f for dims in compound for f in dims if len(f) > 1]:
                inner = False  # whether a previous factor has more than one index on a device
                for f in factors:
                    while assigned[f] and (inner or rule.sizes[f] % count(assigned[f])):
                        assigned[f] = assigned[f][:-1]
                        changed = True
                    inner = inner or count(assigned[f]) != rule.sizes[f]
        return assigned

    def choice(self, rule: FactorRule, axes: tuple[Axes, ...], linear: Iterable[int], unreduced: Axes) -> Choice:
        """The layouts that follow from the axes of factors. linear: operands that remain partial sums, along
        `unreduced`."""
        linear = set(linear)
        operands = tuple(
            [
                array_layout(self.layouts, dims, axes, unreduced if k in linear else ())
                for k, dims in enumerate(rule.operands)
            ]
        )
        sums = list(unreduced)
        if rule.combiner == "add":
            sums += [a for f in sorted(rule.reduction) for a in axes[f]]
        results = tuple([array_layout(self.layouts, dims, axes, tuple(sums)) for dims in rule.results])
        return Choice(axes, operands, results, unreduced)

    def work(self, rule: FactorRule, choice: Choice) -> float:
        """The number of elements that a device processes."""
        pairs = zip(rule.sizes, choice.axes, strict=True)
        return float(math.prod([-(-typical(size) // self.layouts.count(axes)) for size, axes in pairs]))

    def total(self, choice: Choice, given, wanted: list[Layout], shapes, results) -> float:
        """The cost of a choice besides its computation. given: the available layouts of each operand. shapes, results:
        of whole arrays."""
        total = 0.0
        for needed, have, shape in zip(choice.operands, given, shapes, strict=True):
            if needed not in have:
                total += min([self.price(layout, needed, shape.dims, shape.dtype.itemsize) for layout in have])
        for made, target, shape in zip(choice.results, wanted, results, strict=True):
            if made is not target:
                total += self.price(made, target, shape.dims, shape.dtype.itemsize)
            total += COPY * typical(math.prod(made.local(shape.dims))) * shape.dtype.itemsize
        return total
