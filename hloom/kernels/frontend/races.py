"""Races of parallel loops that can be proved: accesses as sums of loop variables.

The iterations of a parallel loop run in any order. They race if two write the same element, or if one reads an element
that another writes. Offsets that depend on data, and accesses under conditions, prove nothing.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.affine.sums import Affine, linear, multiple
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.errors import ArgumentError
from hloom.ir.records import field, record
from hloom.ir.source import Source

__all__ = ["Access", "Loops", "index_of", "race"]


@record(frozen=True, eq=False)
class Access:
    """A load or a store of an array that a kernel makes. conditions: how many branches are around it."""

    pointer: Var
    at: Expr
    written: bool
    conditions: int
    source: Source
    name: str


@record(eq=False)
class Loops:
    """The variables of loops.

    parallel: with their trip counts. serial: of loops in an iteration; ragged: of those whose bounds depend on the
    parallel ones. definitions: of other variables. known: those that are compile-time constants.
    """

    parallel: dict[Var, int | None] = field(default_factory=dict)
    serial: set[Var] = field(default_factory=set)
    definitions: dict[Var, Expr] = field(default_factory=dict)
    known: dict[Var, int] = field(default_factory=dict)
    ragged: set[Var] = field(default_factory=set)

    def meaning(self, var: Var) -> Affine | Expr | None:
        """A variable as a sum of loop variables."""
        if var in self.known:
            return Affine(self.known[var])
        if var in self.definitions:
            return self.definitions[var]
        return multiple(var) if var in self.parallel or var in self.serial else None


def index_of(value: Expr, loops: Loops) -> Affine | None:
    """An index as a sum of the variables of loops; None where it is something else."""
    return linear(value, loops.meaning)


def race(access: Access, other: Access, loops: Loops) -> tuple | None:
    """The arguments of `refuse` for two accesses that race for certain; None for others."""
    many = {var: count for var, count in loops.parallel.items() if count is None or count > 1}
    if not many or access.pointer is not other.pointer or not (access.written or other.written):
        return None
    if access.conditions or other.conditions:
        return None
    first, second = index_of(access.at, loops), index_of(other.at, loops)
    if first is None or second is None or not loops.ragged.isdisjoint(first.terms):
        return None
    if access is other:
        return _same_element(access) if access.written and not first.terms.keys() >= many.keys() else None
    distance = (first - second).number
    if distance is None:
        return None
    if any(_apart(abs(distance), abs(first.terms.get(var, 0)), count) for var, count in many.items()):
        return _neighbour(access if access.written else other, access, other)
    return None


def _apart(distance: int, factor: int, count: int | None) -> bool:
    """Whether two iterations of a loop are so far apart that one accesses the element of the other."""
    return bool(distance and factor) and not distance % factor and (count is None or distance // factor < count)


def _same_element(access: Access) -> tuple:
    return (
        ArgumentError,
        f"every iteration of a parallel loop writes the same element of '{access.name}'",
        "a race: the result would depend on the order in which the iterations run",
        "use hl.atomic_add (or atomic_max, atomic_min) to combine what they write, or range in place of hl.parallel",
    )


def _neighbour(written: Access, access: Access, other: Access) -> tuple:
    what = "writes" if access.written and other.written else "reads"
    return (
        ArgumentError,
        f"an iteration of a parallel loop {what} an element of '{written.name}' that another one writes",
        "a race: the result would depend on the order in which the iterations run",
        "write into another array, or use range in place of hl.parallel",
    )
