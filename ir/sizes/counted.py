"""Sizes computed by the program: the number of elements that a mask selects.

Such a size is a `Dim` from 0 to a bound. An array with it is stored with the bound's shape (StableHLO's bounded
dynamism); `hloom.compiler.transforms.counted` converts a program with such sizes to one with fixed shapes. Values
beyond the size are arbitrary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from hloom.ir.errors import ShapeError, UndecidedSizeError
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Comparison, Dim, Scope, Size, SizeExpression, is_known, scopes_of
from hloom.ir.source import Source

__all__ = ["REPAIR", "Check", "CountedScope", "counted_dim", "counted_scopes", "require_elements"]

REPAIR = "pass size= to hnp.nonzero (or to the function that selects), so that the size is known"


@record(frozen=True)
class Check:
    """A size that must be at least 1 when the program has run, and the error if it is 0."""

    size: SizeExpression
    error: ShapeError


class CountedScope(Scope):
    """The scope of one computed size. asked: the operation that selects the elements; source: its line. checks:
    conditions that must hold."""

    __slots__ = ("asked", "checks", "source")
    in_general = False

    def __init__(self, asked: str, source: Source | None):
        super().__init__()
        self.asked, self.source = asked, source
        self.checks: list[Check] = []

    def decide(self, comparison: Comparison) -> NoReturn:
        raise UndecidedSizeError(f"a decision by {comparison!r}", self.description(), REPAIR)

    def description(self) -> str:
        where = f" at {self.source}" if self.source else ""
        return f"the size is computed by the program: the number of elements that {self.asked}{where} selects"

    def advice(self) -> tuple[str, str]:
        return self.description(), REPAIR


def counted_dim(name: str, bound: int, asked: str, source: Source | None) -> Dim:
    """A new size from 0 to a bound."""
    return Dim(name, 0, bound, scope=CountedScope(asked, source))


def counted_scopes(*sizes: Size) -> list[CountedScope]:
    """The scopes of the computed sizes in some sizes."""
    return [scope for scope in scopes_of(*sizes) if isinstance(scope, CountedScope)]


def require_elements(sizes: Iterable[Size], asked: str, found: str, repair: str) -> None:
    """Raises ShapeError for a size of 0; for a computed size, after the program has run."""
    for size in sizes:
        scopes = counted_scopes(size)
        if not scopes:
            if size == 0:
                raise ShapeError(asked, f"{found}, which has nothing there", repair)
        elif isinstance(size, SizeExpression) and not is_known(size >= 1):
            check = Check(size, ShapeError(asked, f"{found}, where {size} is 0: nothing was selected", repair))
            for scope in scopes:
                scope.checks.append(check)
