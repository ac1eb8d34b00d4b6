"""One program for a range of sizes: plans for sample sizes, joined to plans for boxes of sizes.

A box is cut where the plans of its corners or of samples inside differ in their kernels or steps, and where a number is
no function of the dimensions that is known (`extents`). What is left are few boxes, each with one plan whose numbers
are expressions. Kernels take sizes as arguments, so a plan that holds at the samples of a box computes the right
numbers at every size inside; `check="all"` plans every size and compares.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.compiler.schedule.scheduler import Plan
from hloom.errors import ExportError
from hloom.export.extents import Extent, Sizes, candidates, difference, fitted
from hloom.export.nodes import value_of
from hloom.export.tables import FIX_ARENA, ROW_KERNEL, USE_ARENA, USE_FIX, USE_ROW, USE_WORD, Shared, Tables, tables_of
from hloom.ir.records import record

__all__ = ["Box", "boxes_of"]

MOST_BOXES, MOST_PLANS = 128, 2000
LARGEST_PART = 1 << 16
# Words of a kernel's row that may have any value: chunks, and hints to the driver about them.
_GRAIN, _SIDE_BY_SIDE, _NANOSECONDS = 4, 5, 6


@record(frozen=True)
class Sample:
    """A plan for sizes: what has to be equal (`structure`), and its numbers with where they stand."""

    plan: Plan
    tables: Tables
    structure: Any
    numbers: tuple[tuple[int, int, int], ...]  # kind of use, index, value


@record(frozen=True)
class Box:
    """Sizes from low to high, and the plan for them with numbers of one sample; uses: numbers that vary."""

    low: Sizes
    high: Sizes
    plan: Plan
    uses: tuple[tuple[int, int, Extent], ...]

    def guards(self, least: Sizes, most: Sizes) -> list[Any]:
        """Expressions that hold inside of the box and nowhere else in the whole range."""
        found: list[Any] = []
        for k in range(len(self.low)):
            if self.low[k] > least[k]:
                found.append(("le", self.low[k], ("dimension", k)))
            if self.high[k] < most[k]:
                found.append(("le", ("dimension", k), self.high[k]))
        return found


def sample_of(plan: Plan) -> Sample:
    """Takes the numbers of a plan apart from its structure."""
    shared = Shared()
    tables = tables_of(plan, shared)
    kernels = list(shared.kernels)
    constants = [(c.dtype.str, c.shape, c.tobytes()) for c in shared.constants]
    fixed = {position for position, _, _ in tables.fixes}
    numbers = [(USE_WORD, k, value) for k, value in enumerate(tables.words) if k not in fixed]
    numbers += [(USE_FIX, k, number) for k, (_, kind, number) in enumerate(tables.fixes) if kind == FIX_ARENA]
    rows = []
    for k, row in enumerate(tables.rows):
        first = 3 if row[0] == ROW_KERNEL else 1
        numbers += [(USE_ROW, 8 * k + j, row[j]) for j in range(first, 8)]
        rows.append((row[0], kernels[row[1]] if row[0] == ROW_KERNEL else None))
    numbers.append((USE_ARENA, 0, tables.arena_bytes))
    fixes = [
        (position, kind, None if kind == FIX_ARENA else _meaning(kind, number, kernels, constants))
        for position, kind, number in tables.fixes
    ]
    structure = tuple(rows), tuple(fixes), len(tables.words), tuple(sorted(plan.donated.items()))
    return Sample(plan, tables, structure, tuple(numbers))


def _meaning(kind: int, number: int, kernels: Sequence[Any], constants: Sequence[Any]) -> Any:
    return {1: constants, 3: kernels}[kind][number] if kind in (1, 3) else number


def _is_free(kind: int, index: int, rows: Sequence[Sequence[int]]) -> bool:
    """Whether a number may have any value that some size has: places in the arena, where those of the largest size
    have room for all; how a kernel's items are divided into chunks."""
    if kind in (USE_FIX, USE_ARENA):
        return True
    if kind != USE_ROW or rows[index // 8][0] != ROW_KERNEL:
        return False
    return index % 8 in (_GRAIN, _SIDE_BY_SIDE, _NANOSECONDS)


class _Search:
    def __init__(self, plan_at: Callable[[Sizes], Plan], names: Sequence[str]):
        self.plan_at, self.names = plan_at, names
        self.known: dict[Sizes, Sample] = {}
        self.differing: list[Sizes] = []  # sizes at which a box that was found had another plan
        self.random = random.Random(0)

    def sample(self, sizes: Sizes) -> Sample:
        if sizes not in self.known:
            if len(self.known) >= MOST_PLANS:
                raise ExportError(
                    f"export for ranges of {', '.join(self.names)}",
                    f"the plans of {MOST_PLANS} sizes differ too much to be joined",
                    "narrow the range of the Dim, or export for fixed sizes",
                    source="",
                )
            self.known[sizes] = sample_of(self.plan_at(sizes))
        return self.known[sizes]

    def boxes(self, low: Sizes, high: Sizes) -> list[Box]:
        pending, found = [(low, high)], []
        while pending:
            box = pending.pop()
            made = self.box(*box)
            if isinstance(made, Box):
                found.append(made)
            else:
                pending += made
            if len(found) + len(pending) > MOST_BOXES:
                raise ExportError(
                    f"export for ranges of {', '.join(self.names)}",
                    f"the program needs more than {MOST_BOXES} plans",
                    "narrow the range of the Dim, or export for fixed sizes",
                    source="",
                )
        return sorted(found, key=lambda one: one.low)

    def points(self, low: Sizes, high: Sizes) -> list[Sizes]:
        """Corners, their neighbours, and some sizes between: small, large, odd, even."""
        corners = list(itertools.product(*[sorted({a, b}) for a, b in zip(low, high, strict=True)]))
        inside = []
        for k in range(len(low)):
            for size in (low[k] + 1, high[k] - 1, (low[k] + high[k]) // 2, int((low[k] * high[k]) ** 0.5)):
                if low[k] < size < high[k]:
                    inside.append(tuple([size if j == k else low[j] for j in range(len(low))]))
        for _ in range(6):
            inside.append(tuple([self.random.randint(a, b) for a, b in zip(low, high, strict=True)]))
        inside += [sizes for sizes in self.differing if _lies_in(sizes, low, high)]
        return list(dict.fromkeys([*corners, *inside]))

    def checked(self, boxes: list[Box]) -> list[Box]:
        """The boxes, each compared with the plans of all its sizes; what differs is a sample of another search."""
        pending, found = list(boxes), []
        while pending:
            box = pending.pop()
            wrong = self.first_difference(box)
            if wrong is None:
                found.append(box)
            else:
                self.differing.append(wrong)
                pending += self.boxes(box.low, box.high)
        return sorted(found, key=lambda one: one.low)

    def first_difference(self, box: Box) -> Sizes | None:
        """The first sizes of a box whose plan is not what the box says; None where there are none."""
        made = sample_of(box.plan)
        for sizes in itertools.product(*[range(a, b + 1) for a, b in zip(box.low, box.high, strict=True)]):
            wanted = self.known.get(sizes) or sample_of(self.plan_at(sizes))
            if made.structure != wanted.structure:
                return sizes
            varying = {(kind, index): value_of(use.expression, sizes) for kind, index, use in box.uses}
            for (kind, index, value), (_, _, other) in zip(made.numbers, wanted.numbers, strict=True):
                if varying.get((kind, index), value) != other and not _is_free(kind, index, made.tables.rows):
                    return sizes
        return None

    def box(self, low: Sizes, high: Sizes) -> Box | list[tuple[Sizes, Sizes]]:
        """The plan of a box, or the boxes that it is cut into."""
        first = self.sample(low)
        points = self.points(low, high)
        samples: dict[Sizes, Sample] = {}
        while True:
            for sizes in points:
                samples[sizes] = self.sample(sizes)
                if samples[sizes].structure != first.structure:
                    return self.cut(low, high, sizes)
            found = self.uses(samples, low, high)
            if found is None:
                return self.halves(low, high)
            uses, points = found
            if not points:
                # Places in the arena are those of the largest size, where every buffer has room.
                return Box(low, high, self.sample(high).plan, tuple(uses))

    def uses(
        self, samples: dict[Sizes, Sample], low: Sizes, high: Sizes
    ) -> tuple[list[tuple[int, int, Extent]], list[Sizes]] | None:
        """The numbers that vary, as expressions, and sizes at which several forms of one differ, which are to be
        planned; None where a number has no form that is known."""
        first = samples[low]
        by_position = [{s: one.numbers[k][2] for s, one in samples.items()} for k in range(len(first.numbers))]
        constants = sorted({v for values in by_position for v in set(values.values()) if 1 < v <= LARGEST_PART})
        counted: list[tuple[Extent, dict[Sizes, int]]] = []
        uses: list[tuple[int, int, Extent]] = []
        asked: dict[Sizes, None] = {}
        known: dict[tuple[int, ...], list[Any]] = {}

        def forms(values: dict[Sizes, int], *more: Any) -> list[Any]:
            key = tuple(values.values())
            if key not in known:
                known[key] = candidates(values, low, high, self.names, *more)
                for other in known[key][1:]:
                    point = difference(known[key][0], other, low, high)
                    if point is not None:
                        asked[point] = None
            return known[key]

        left = []
        for position, values in enumerate(by_position):
            if len(set(values.values())) == 1 or first.numbers[position][0] in (USE_FIX, USE_ARENA):
                continue
            made = candidates(values, low, high, self.names)[:1]
            if made and made[0].is_affine:
                uses.append((*first.numbers[position][:2], made[0]))
                if all(made[0].text != other.text for other, _ in counted):
                    counted.append((made[0], values))
            else:
                left.append(position)
        for position in left:
            kind, index, _ = first.numbers[position]
            made = forms(by_position[position], counted, constants)
            if made:
                uses.append((kind, index, made[0]))
            elif not _is_free(kind, index, first.tables.rows):
                return None
        return uses, list(asked)

    def cut(self, low: Sizes, high: Sizes, other: Sizes) -> list[tuple[Sizes, Sizes]]:
        """Cuts between low and a size with another structure, where the structure changes."""
        first = self.sample(low).structure
        point = list(low)
        for k in range(len(low)):
            point[k] = other[k]
            if self.sample(tuple(point)).structure != first:
                same, changed = low[k], other[k]
                while changed - same > 1:
                    middle = (same + changed) // 2
                    point[k] = middle
                    if self.sample(tuple(point)).structure == first:
                        same = middle
                    else:
                        changed = middle
                return _split(low, high, k, changed)
        raise AssertionError("the structure changes on the way")

    def halves(self, low: Sizes, high: Sizes) -> list[tuple[Sizes, Sizes]]:
        k = max(range(len(low)), key=lambda j: high[j] / low[j])
        return _split(low, high, k, max(low[k] + 1, int((low[k] * high[k]) ** 0.5)))


def _lies_in(sizes: Sizes, low: Sizes, high: Sizes) -> bool:
    return all(a <= s <= b for a, s, b in zip(low, sizes, high, strict=True))


def _split(low: Sizes, high: Sizes, k: int, start: int) -> list[tuple[Sizes, Sizes]]:
    def with_size(sizes: Sizes, size: int) -> Sizes:
        return tuple([size if j == k else s for j, s in enumerate(sizes)])

    return [(low, with_size(high, start - 1)), (with_size(low, start), high)]


def boxes_of(plan_at: Callable[[Sizes], Plan], low: Sizes, high: Sizes, names: Sequence[str], check: str) -> list[Box]:
    """The boxes that cover all sizes from low to high. Raises ExportError where they would be too many.

    plan_at: the plan for sizes. check: "all" compares the plans of all sizes with their boxes, "samples" of some.
    """
    search = _Search(plan_at, names)
    found = search.boxes(low, high)
    return search.checked(found) if check == "all" else found


def scalar_expression(values: dict[Sizes, np.ndarray], low: Sizes, high: Sizes, names: Sequence[str]) -> Any:
    """The expression of a scalar constant that depends on sizes: a size, its reciprocal, or the negative of these, in
    the constant's dtype. None where it is neither. The expression's value is the bits of the scalar."""
    dtype = next(iter(values.values())).dtype
    if dtype.kind in "iu":
        made = fitted({s: int(v) for s, v in values.items()}, low, high, names)
        return None if made is None else getattr(made, "expression", made)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        return None
    exact = {s: float(v) for s, v in values.items()}
    for invert in (False, True):
        sizes: dict[Sizes, int] = {}
        for point, value in exact.items():
            number = (1.0 / value if value else float("inf")) if invert else value
            if abs(number) > 1 << 40:
                break
            sizes[point] = round(number)
            back = dtype.type(1.0) / dtype.type(sizes[point]) if invert and sizes[point] else dtype.type(sizes[point])
            if back != dtype.type(value):
                break
        else:
            made = fitted(sizes, low, high, names)
            if made is None:
                continue
            real: Any = ("real", getattr(made, "expression", made))
            real = ("fdiv", 1.0, real) if invert else real
            return ("single", real) if dtype == np.float32 else real
    return None
