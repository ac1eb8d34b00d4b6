"""Programs for many sizes: what is decided while one is compiled is decided for sample sizes, and noted as a guard.

The compiler asks sizes as it asks numbers: `n >= 8`, `m == 1`, `int(n)`. In a `GuardedScope` a comparison that bounds
and facts leave open has the answer of the sample, and the scope notes it. A program is right for all sizes for which
its guards hold; `int(n)` notes that n is that number. `typical` gives the number of the sample without a guard, for
choices of which each is right: blocks, chunks, an order.
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
    """The name of a dimension in a guarded scope. No text of a kernel has such a name, so that a size that is written
    into one by mistake does not compile."""
    return f"size__{name}"


def size_key(size: Any) -> Any:
    """What stands for a size in a dict, which compares keys by `==`: a decision, of sizes."""
    return size.terms if isinstance(size, SizeExpression) else size


class GuardedScope(Scope):
    """Dimensions with sample sizes, by name. guards: what was decided by them, in its order. settled: whether the
    guards are in use, so that no decision may be added: one is an UndecidedSizeError from then on.

    What follows from guards is one more guard at worst, which excludes no sizes. So after some guards nothing is proved
    any more: proofs from many facts take longer than all else.
    """

    __slots__ = ("_answers", "answers_all", "guards", "sample", "settled")

    def __init__(self, sample: Mapping[str, int]):
        super().__init__()
        self.sample = {inner(name): size for name, size in sample.items()}
        self.guards: list[Comparison] = []
        self._answers: dict[tuple[Terms | int, str, Terms | int], bool] = {}
        self.answers_all = self.settled = False

    def dim(self, dim: Dim, low: int) -> Dim:
        """A dimension of the scope like another one, of at least `low`, with the name `inner(dim.name)`."""
        return Dim(inner(dim.name), max(dim.min, low), dim.max, multiple_of=dim.multiple_of, scope=self)

    def decide(self, comparison: Comparison) -> bool | None:
        """The answer for the sample, which is a guard from here on."""
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
        """The size of the sample, which is a guard from here on."""
        found = size.at(self.sample)
        answer = size == found
        return None if isinstance(answer, Comparison) and self.decide(answer) is None else found


class SampledScope(GuardedScope):
    """Dimensions of a program that is traced under guards: they keep their names, and the program computes the values
    of sizes. pinned: the names of those of which the trace asked for the number."""

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
    """The number of the sample for a size of a guarded scope, without a guard: for choices of which each is right.
    A number is itself."""
    if not isinstance(size, SizeExpression):
        return size
    for scope in scopes_of(size):
        if isinstance(scope, GuardedScope):
            return size.at(scope.sample)
    return int(size)  # an error that names it


def decided(size: Any) -> int | None:
    """The number of a size, where it is one, its dimensions say it, or a guard may, by which the program is for that
    number alone; None where calls decide it. Compare first, so that only small sizes are decided."""
    return size.number() if isinstance(size, SizeExpression) else size
