"""Programs for many sizes: decisions during compilation are made for sample sizes, and recorded as guards.

The compiler uses sizes like numbers: `n >= 8`, `m == 1`, `int(n)`. In a `GuardedScope` a comparison that bounds and
facts do not decide is answered for the sample and recorded. A program is correct for all sizes that satisfy its guards;
`int(n)` records that n is that number. `typical` returns the sample's number without a guard, for choices that affect
only performance: blocks, chunks, an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloom.ir.sizes.expressions import Comparison, Dim, Scope, SizeExpression, dims_of, scopes_of
from hloom.ir.sizes.terms import Terms

__all__ = ["GuardedScope", "SampledScope", "inner", "size_key", "typical", "decided"]

PROVED = 16  # guards from which others are proved

_OPPOSITE = {"==": "!=", "!=": "==", ">=": "<", "<": ">=", ">": "<=", "<=": ">"}


def inner(name: str) -> str:
    """The name of a dimension in a guarded scope. Kernel sources cannot contain such a name, so a size written into one
    by mistake does not compile."""
    return f"size__{name}"


def size_key(size: Any) -> Any:
    """The dict key of a size, as dicts compare keys by `==`, which would be a decision."""
    return size.terms if isinstance(size, SizeExpression) else size


class GuardedScope(Scope):
    """Dimensions with sample sizes, by name. guards: the decisions made, in order. settled: whether the guards are in
    use, after which a new decision is an UndecidedSizeError.

    A guard implied by others is redundant but harmless. Therefore nothing is proved after a certain number of guards,
    as proofs from many facts would dominate compile time.
    """

    __slots__ = ("_answers", "answers_all", "guards", "sample", "settled")

    def __init__(self, sample: Mapping[str, int]):
        super().__init__()
        self.sample = {inner(name): size for name, size in sample.items()}
        self.guards: list[Comparison] = []
        self._answers: dict[tuple[Terms | int, str, Terms | int], bool] = {}
        self.answers_all = self.settled = False

    def dim(self, dim: Dim, low: int) -> Dim:
        """A dimension of the scope that corresponds to another one, at least `low`, with the name `inner(dim.name)`."""
        return Dim(inner(dim.name), max(dim.min, low), dim.max, multiple_of=dim.multiple_of, scope=self)

    def decide(self, comparison: Comparison) -> bool | None:
        """The answer for the sample, recorded as a guard."""
        if self.settled:
            return None
        asked = size_key(comparison.left), comparison.how, size_key(comparison.right)
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._answers[asked] = comparison.holds(self.sample)
            how = comparison.how if answer else _OPPOSITE[comparison.how]
            guard = Comparison(comparison.left, how, comparison.right)
            self.guards.append(guard)
            if not self.answers_all:
                self.add(repr(guard), guard)
                self.answers_all = len(self.guards) >= PROVED
        return answer

    def number(self, size: SizeExpression) -> int | None:
        """The size of the sample, recorded as a guard."""
        found = size.at(self.sample)
        answer = size == found
        return None if isinstance(answer, Comparison) and self.decide(answer) is None else found


class SampledScope(GuardedScope):
    """Dimensions of a program traced under guards: they keep their names, and the program computes the values of sizes.
    pinned: the names of those whose number the trace used."""

    __slots__ = ("pinned",)

    def __init__(self, sample: Mapping[str, int]):
        super().__init__({})
        self.sample = dict(sample)
        self.pinned: set[str] = set()

    def number(self, size: SizeExpression) -> int | None:
        self.pinned.update(dims_of(size))
        return super().number(size)

    def value(self, size: SizeExpression) -> int | None:
        return None


def typical(size: Any) -> Any:
    """The sample's number for a size of a guarded scope, without a guard, for choices that affect only performance.
    Numbers are unchanged."""
    if not isinstance(size, SizeExpression):
        return size
    for scope in scopes_of(size):
        if isinstance(scope, GuardedScope):
            return size.at(scope.sample)
    return int(size)  # an error that names it


def decided(size: Any) -> int | None:
    """The number of a size, if it is one, its dimensions determine it, or a guard may fix it, which restricts the
    program to that number; None if calls determine it. Compare first, so that only small sizes are fixed."""
    return size.number() if isinstance(size, SizeExpression) else size
