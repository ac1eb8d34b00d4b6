"""Guards: whether an index is inside an operand (pad, concatenate, dynamic-update-slice), decided as early as possible.

What the sizes of the domain decide costs nothing. What the innermost index decides cuts its loop into pieces with one
answer each; a vector loop then has no branches and reads each operand only where it is needed. The rest becomes a
condition in the text.
"""

from __future__ import annotations

from hloom.compiler.kernels.codegen.affine import Affine
from hloom.ir.records import record

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
    text = writer.text(position, "p")
    asked = [Condition(text)] if low < 0 else []
    return [*asked, Condition(text, writer.integer("p_n", extent))] if high >= extent else asked


@record(frozen=True)
class Condition:
    """0 <= position, or position < below."""

    position: str
    below: str = ""

    def __str__(self) -> str:
        return f"{self.position} < {self.below}" if self.below else f"{self.position} >= 0"

    @property
    def sign(self) -> str:
        """A number that is negative where the condition does not hold."""
        return f"{self.below} - 1 - ({self.position})" if self.below else f"({self.position})"


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


def bound_text(writer, place: int, extent: str, size: int) -> str:
    """A cut as the text of a loop's bound."""
    if place <= LITERAL:
        return f"{place}"
    if size - place <= LITERAL:
        return f"{extent} - {size - place}" if place < size else extent
    return writer.integer("cut", place)
