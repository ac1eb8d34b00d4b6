"""Guards: whether an index is inside an operand (pad, concatenate, dynamic-update-slice), decided as early as possible.

What the sizes of the domain decide costs nothing. What the innermost index decides cuts its loop into pieces with one
answer each; a vector loop then has no branches and reads each operand only where it is needed. The rest becomes a
condition in the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.builder import ONE, ZERO, both, compared, constant, operation
from hloom.compiler.kernel_ir.nodes import Expr
from hloom.compiler.kernels.codegen.affine import Affine
from hloom.ir.records import record
from hloom.ir.sizes.guards import decided

PIECES = 8  # a loop is cut into no more; each is a loop to compile
SHORTEST = 16  # smaller sizes are not worth a cut
LITERAL = 8  # cuts so near to an end are written as numbers, so that the loop there has a known length


def span(writer, affine: Affine) -> tuple[float, float]:
    """The least and the largest value of an index expression over the domain, or over the piece being written."""
    low = high = affine.constant
    for variable, coefficient in affine.terms.items():
        if isinstance(variable, str):  # computed from data
            return float("-inf"), float("inf")
        first, last = writer.ranges.get(variable, (0, writer.dims[variable] - 1))
        low += min(first * coefficient, last * coefficient)
        high += max(first * coefficient, last * coefficient)
    return low, high


def conditions(writer, position: Affine, extent: int) -> list[Condition] | None:
    """The run-time conditions for 0 <= position < extent: an empty list where it always holds, None where never."""
    low, high = span(writer, position)
    if high < 0 or low >= extent:
        return None
    if low >= 0 and high < extent:
        return []
    writer.guards.append((position, extent))
    place = writer.position(position, "p")
    asked = [Condition(place)] if low < 0 else []
    return [*asked, Condition(place, writer.integer("p_n", extent))] if high >= extent else asked


@record(frozen=True)
class Condition:
    """0 <= position, or position < below."""

    position: Expr
    below: Expr | None = None

    @property
    def test(self) -> Expr:
        return compared(">=", self.position, ZERO) if self.below is None else compared("<", self.position, self.below)

    @property
    def sign(self) -> Expr:
        """A number that is negative where the condition does not hold."""
        if self.below is None:
            return self.position
        return operation("-", operation("-", self.below, ONE), self.position)


def all_of(asked: Sequence[Condition | Expr]) -> Expr:
    """Whether all of these hold."""
    tests = [each.test if isinstance(each, Condition) else each for each in asked]
    return tests[0] if len(tests) == 1 else both("and", tests)


def bounds(probe, groups: list[list[int]], dims: tuple[int, ...]) -> list[int]:
    """Where the innermost loop is cut, with its ends: where guards that depend on its index alone change."""
    if not groups:
        return [0, 1]
    last, size = groups[-1][-1], 1
    for k in groups[-1]:
        size *= dims[k]
    whole = [0, size]
    if size != dims[last] or size < SHORTEST:
        return whole
    places = set(whole)
    for position, extent in probe.guards:
        if dict(position.terms) == {last: 1}:
            places |= {min(max(place - position.constant, 0), size) for place in (0, extent)}
    return sorted(places) if len(places) <= PIECES + 1 else whole


def bound(writer, place: int, extent: Expr, size: int) -> Expr:
    """A cut as the bound of a loop. One that depends on sizes of the call is an argument."""
    if place <= LITERAL and (first := decided(place)) is not None:
        return constant(first)
    if size - place <= LITERAL and (rest := decided(size - place)) is not None:
        return operation("-", extent, constant(rest)) if rest else extent
    return writer.integer("cut", place)
