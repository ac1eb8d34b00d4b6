"""The autotuner: candidates for one task run in turns, and the choice is kept in the disk cache.

    compare(default, factories, agree, ...) -> Comparison     how long each candidate takes whose results agree
    load_choice(key), keep_choice(key, choice)                so that later processes measure nothing

Candidates on the CPU are programs for other machine descriptions (`cpu/autotune.py`), on a GPU other algorithms for a
product, a transform or a sort (`cuda/autotuner.py`). A candidate replaces the default only where it is faster by more
than chance explains.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from hloom.compiler.cache import default_cache
from hloom.ir.records import record

GAIN = 0.97  # of the default's time: a candidate must stay below it, or the difference may be chance


class Candidate(Protocol):
    """One way to do the task."""

    def results(self) -> list:
        """Its results."""

    def seconds(self) -> float:
        """How long it takes, measured once."""


@record(eq=False)
class Comparison:
    """candidates: the default, then those whose results agree with its. samples: seconds, by candidate."""

    candidates: list
    samples: list[list[float]]

    def seconds(self, number: int) -> float:
        """The lower quartile of a candidate's times: whatever else the machine does only adds."""
        return quantile(self.samples[number], 1 / 4)

    @property
    def fastest(self) -> int | None:
        """The number of the fastest candidate but the default; None where nothing was measured."""
        return min((k for k in range(1, len(self.samples)) if self.samples[k]), key=self.seconds, default=None)

    @property
    def best(self) -> int:
        """The fastest candidate if it gains, else 0: the default. It has to gain by the minimum, the lower quartile and
        the median, as other work on the machine may be the difference in one of them."""
        fastest = self.fastest
        if fastest is None:
            return 0
        gains = all(
            quantile(self.samples[fastest], part) <= GAIN * quantile(self.samples[0], part)
            for part in (0, 1 / 4, 1 / 2)
        )
        return fastest if gains else 0


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


def compare(
    default: Candidate,
    factories: Iterable[Callable[[], Candidate | None]],
    agree: Callable[[list, list], bool],
    *,
    limit: float = math.inf,
    rounds: tuple[int, int],
) -> Comparison:
    """Measures the default and the candidates that the factories create (None: the same as another candidate).

    agree(expected, found): whether results may replace the default's. limit: seconds, of which creating candidates may
    take half; the comparison ends after twice that at most. rounds: measurements of each at least and at most.
    """
    started = time.perf_counter()
    expected = default.results()
    candidates = [default]
    half = (time.perf_counter() + max(started + limit, time.perf_counter())) / 2
    for factory in factories:
        if time.perf_counter() > half:
            break
        candidate = factory()
        if candidate is not None and agree(expected, candidate.results()):
            candidates.append(candidate)
    samples: list[list[float]] = [[] for _ in candidates]
    count = len(candidates)
    for turn in range(rounds[1] if count > 1 else 0):
        passed = time.perf_counter() - started
        if (turn >= rounds[0] and passed >= limit) or (turn and passed > 2 * limit):
            break
        for k in range(count):
            number = (turn + k) % count
            samples[number].append(candidates[number].seconds())
    return Comparison(candidates, samples)


def load_choice(key: str) -> dict | None:
    """The choice that is kept under a key."""
    return default_cache().load(key, lambda data: dict(json.loads(data)))


def keep_choice(key: str, choice: dict) -> dict | None:
    """Keeps a choice, and returns the one that all processes get: the first. None where the cache has no folder."""
    kept = default_cache().put_first(key, json.dumps(choice).encode())
    return None if kept is None else json.loads(kept)


def keeps_choices() -> bool:
    """Whether the cache has a folder."""
    return default_cache().folder is not None
