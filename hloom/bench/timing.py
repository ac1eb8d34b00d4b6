"""Timing: all libraries run a workload in turns, in one process, so that what else the machine does falls on all.

A turn is a warm-up call (threads of the library before may still be spinning) and then a block of calls; the order
rotates from round to round, and the time of a library is the median over its blocks. Results are checked before
anything is timed.
"""

from __future__ import annotations

import functools
import time
import warnings
from dataclasses import dataclass, field

import numpy as np

import hloom as hl
from hloom.bench.libraries import Hloom, Numpy
from hloom.bench.workloads import WORKLOADS, M, Workload
from hloom.jit import DonationWarning
from hloom.runtime import buffer

BLOCK = 0.02  # seconds of calls in a turn
ROUNDS = (7, 41)  # so many turns at least and at most


@dataclass
class Row:
    """What was measured of one workload. seconds, errors: by library. kernels, bytes: of hloom fused and unfused.

    triad: bytes a second of the triad, which took turns with the workload (0 where it is not bound by memory).
    """

    name: str
    what: str
    bound_by: str
    ideal_bytes: int
    flops: float
    triad: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    kernels: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        """The time of a library over that of hloom fused: above 1, hloom is faster."""
        return self.seconds[name] / self.seconds["hloom"]


class CheckError(AssertionError):
    """A library's result is not the reference's; nothing is timed then."""


def measure(workload: Workload, libraries, budget: float) -> Row:
    """Checks and times a workload, hloom fused among the libraries. budget: seconds for each. Raises CheckError."""
    arrays = workload.inputs(np.random.default_rng(0))
    expected = workload.reference(arrays, Numpy())
    row = Row(
        workload.name, workload.what, workload.bound_by,
        sum(a.nbytes for a in arrays) + sum(e.size * (4 if e.dtype == np.float64 else e.itemsize) for e in expected),
        workload.flops,
    )  # fmt: skip
    calls = {}
    for library in libraries:
        if not workload.runs_on(library):
            continue
        prepared = [library.prepare(a) for a in arrays]
        function = library.compiled(workload)
        results = library.arrays(function(*prepared))
        try:
            row.errors[library.name] = _check(workload, library.title, results, expected)
        except CheckError:
            if isinstance(library, Hloom):
                raise
            continue  # a peer that is less exact than hloom has to be is not timed
        if isinstance(library, Hloom):
            compiled = function.lower(*prepared).compile()
            cost = compiled.cost_analysis()
            row.kernels[library.name], row.bytes[library.name] = int(cost["kernels"]), cost["bytes accessed"]
        calls[library.name] = (function, prepared)
    if row.bound_by == "memory":
        calls["triad"] = triad_call()
    row.seconds = in_turns(calls, budget)
    if row.bound_by == "memory":
        row.triad = TRIAD_BYTES / row.seconds.pop("triad")
    return row


def _check(workload: Workload, title: str, results, expected) -> float:
    """The largest error, relative to the largest element of each result. Raises CheckError above the tolerance."""
    worst = 0.0
    if len(results) != len(expected):
        raise CheckError(f"{workload.name}: {title} gives {len(results)} results, the reference {len(expected)}")
    for result, right in zip(results, expected, strict=True):
        if result.shape != right.shape:
            raise CheckError(f"{workload.name}: {title} gives shape {result.shape}, the reference {right.shape}")
        if right.dtype.kind in "iub":
            error = float(np.mean(result != right))
        else:
            scale = max(float(np.max(np.abs(right))), 1e-30) if right.size else 1.0
            error = float(np.max(np.abs(result - right), initial=0.0)) / scale
        worst = max(worst, error)
    if not worst <= workload.tolerance:
        raise CheckError(f"{workload.name}: {title} is off by {worst:.1e} of the largest element")
    return worst


def in_turns(calls: dict, budget: float) -> dict[str, float]:
    """Seconds of one call of each `name: (function, arguments)`."""
    repeats = {}
    for name, (function, arguments) in calls.items():
        function(*arguments)
        start = time.perf_counter()
        function(*arguments)
        repeats[name] = max(1, int(BLOCK / max(time.perf_counter() - start, 1e-7)))
        if repeats[name] > 100:  # one call is too short to tell
            start = time.perf_counter()
            for _ in range(100):
                function(*arguments)
            repeats[name] = max(1, int(BLOCK * 100 / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + budget * len(calls)
    rounds = 0
    while rounds < ROUNDS[0] or (rounds < ROUNDS[1] and time.perf_counter() < end):
        first = rounds % len(calls)
        order = list(calls.items())
        rounds += 1
        for name, (function, arguments) in order[first:] + order[:first]:
            function(*arguments)
            count = repeats[name]
            start = time.perf_counter()
            for _ in range(count):
                function(*arguments)
            times[name].append((time.perf_counter() - start) / count)
    return {name: float(np.median(values)) for name, values in times.items()}


TRIAD_BYTES = 3 * 4 * 16 * M


@functools.cache
def triad_call():
    """`a + 3 b` on 16M float32, jitted by hloom, all threads: TRIAD_BYTES are read and written."""
    random = np.random.default_rng(0)
    arrays = tuple(hl.device_put(random.random(16 * M, dtype=np.float32)) for _ in range(2))
    return hl.jit(lambda a, b: a + 3.0 * b), arrays


def triad(budget: float) -> float:
    """Bytes a second of the triad alone."""
    return TRIAD_BYTES / in_turns({"triad": triad_call()}, budget)["triad"]


def allocations(steps: int = 100) -> dict[str, int]:
    """What the pool had to allocate in `steps` training steps of example 1's shapes after the first two."""
    workload = WORKLOADS["digits_step"]
    arrays = [hl.device_put(a) for a in workload.inputs(np.random.default_rng(0))]
    function = hl.jit(workload.bound(Hloom(True)), donate_argnums=(0, 1, 2, 3))
    parameters, data = arrays[:4], arrays[4:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DonationWarning)  # outputs that get no donated buffer come from the pool
        for _ in range(2):
            *parameters, _ = function(*parameters, *data)
    before = buffer.statistics()
    for _ in range(steps):
        *parameters, _ = function(*parameters, *data)
    after = buffer.statistics()
    return {
        "steps": steps,
        "bytes": after.bytes_allocated - before.bytes_allocated,
        "blocks": after.misses - before.misses,
    }
