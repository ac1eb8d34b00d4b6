"""What the attacks of tests/reliability.py have in common: what a batch found, and the attacks by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from hloom.ir.records import field, record


@record
class Row:
    """What one batch of an attack found. A difference that is meant is counted under its reason in `explained`."""

    attempts: int = 0
    wrong: list[str] = field(default_factory=list)
    explained: Counter = field(default_factory=Counter)
    counts: Counter = field(default_factory=Counter)
    note: str = ""

    def expect(self, right: bool, what: str = "") -> None:
        self.attempts += 1
        if not right:
            self.wrong.append(what)

    def explain(self, reason: str) -> None:
        self.attempts += 1
        self.explained[reason] += 1


@record
class Attack:
    """run: a batch of the numbers from `start` on, `count` of them."""

    title: str
    goal: int  # attempts
    batch: int  # numbers
    run: Callable[[int, int], Row]


ATTACKS: dict[str, Attack] = {}


def attack(title: str, goal: int, batch: int):
    def kept(run: Callable[[int, int], Row]) -> Callable[[int, int], Row]:
        ATTACKS[run.__name__] = Attack(title, goal, batch, run)
        return run

    return kept


def each(start: int, count: int, check: Callable[[int], Mapping[str, int]]) -> Row:
    """The row of a check that takes a seed, returns counts by name, and raises where something is wrong."""
    row = Row()
    for seed in range(start, start + count):
        try:
            row.counts.update(check(seed))
            row.expect(True)
        except Exception as error:  # an error of any kind is what an attack looks for, and is noted with its seed
            row.expect(False, f"seed {seed}: {first_line(error)}")
    return row


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
