"""Timing: all libraries run a workload interleaved in one process, so that other load affects all of them.

A turn is a pause in which the threads of the previous library stop spinning, a warm-up call, and a block of calls. Each
round has a different order, so that no library always follows the same other one. A library's time is the median over
its blocks. Results are checked before anything is timed.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import warnings
from dataclasses import dataclass, field

import numpy as np

import hloom as hl
from hloom.benchmarks.expressions import NotCovered
from hloom.benchmarks.libraries import Hloom, Numpy
from hloom.benchmarks.measure.limits import TRIAD_BYTES, peak_call, triad_call
from hloom.benchmarks.workloads import WORKLOADS, Workload
from hloom.errors import DonationWarning
from hloom.profiler import Part, profile
from hloom.runtime import buffer

BLOCK = 0.02  # seconds of calls in a turn
# Seconds before a turn: at least, of one look at the other threads, and at most. OpenBLAS's idle threads spin for 2^26
# or 2^28 cycles, OpenMP's for some milliseconds; who had a turn after OpenBLAS took 1.5 times as long after 0.04 s.
PAUSE, LOOK, LONGEST = 0.04, 0.01, 0.4
ROUNDS = (7, 41)  # so many turns at least and at most
PATIENCE = 90.0  # seconds for a peer's first call: torch.compile needs hours for a chain of values used twice
SLOW = 0.15  # seconds of a call from which on three turns have to do


@dataclass
class Row:
    """The measurements of one workload. seconds, errors: by library. kernels, bytes: of hloom fused and unfused.

    triad: bytes per second of the triad, interleaved with the workload (0 where it is not memory-bound).
    peak: likewise flops per second of multiply-adds of its dtype (0 where its flops are not known).
    operations: flops of the optimized module, roughly (0 where it has loops). left_out: why a peer was not timed.
    """

    name: str
    what: str
    family: str
    bound_by: str
    dtype: str
    ideal_bytes: int
    flops: float
    triad: float = 0.0
    peak: float = 0.0
    operations: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    kernels: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)

    def ratio(self, name: str) -> float:
        """The time of a library over that of hloom fused: above 1, hloom is faster."""
        return self.seconds[name] / self.seconds["hloom"]


class CheckError(AssertionError):
    """A library's result is not the reference's; nothing is timed then."""


PEAK_OF = {"float64": "f64", "float32": "f32", "bfloat16": "f32"}  # in which numbers a dtype is multiplied


def measure(workload: Workload, libraries, budget: float, profiled: bool = True) -> Row:
    """Checks and times a workload, hloom fused among the libraries. budget: seconds for each. Raises CheckError.

    A peer that raises or returns a wrong result is omitted, with the reason.
    """
    arrays = workload.inputs(np.random.default_rng(0))
    with np.errstate(all="ignore"):
        expected = workload.reference(arrays, Numpy())
    dtypes = [PEAK_OF.get(a.dtype.name, "") for a in arrays]
    row = Row(
        workload.name, workload.what, workload.family, workload.bound_by, max(dtypes), 0, workload.flops
    )  # fmt: skip
    calls, compiled = {}, None
    for library in libraries:
        if not workload.runs_on(library):
            continue
        own = isinstance(library, Hloom)
        try:
            with np.errstate(all="ignore"), no_longer_than(None if own else PATIENCE):
                prepared = [library.prepare(a) for a in arrays]
                function = library.compiled(workload)
                results = library.arrays(function(*prepared))
            row.errors[library.name] = check(workload, library.title, results, expected)
        except CheckError as error:
            if own:
                raise
            row.left_out[library.name] = str(error)
            continue
        except NotCovered:
            continue
        except Exception as error:
            if own:
                raise
            row.left_out[library.name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            continue
        if own:
            program = function.lower(*prepared).compile()
            cost = program.cost_analysis()
            row.kernels[library.name], row.bytes[library.name] = int(cost["kernels"]), cost["bytes accessed"]
            if library.fusion:
                row.ideal_bytes = sum(a.nbytes for a in (*arrays, *results))
                compiled = program, prepared
                loops = any(i.opcode in ("while", "conditional") for i in program.module.entry.instructions)
                row.operations = workload.flops or (0.0 if loops else cost["flops"])
        calls[library.name] = (function, prepared)
    if row.bound_by == "memory":
        calls["triad"] = triad_call()
    flops = 0.0
    if row.flops and row.dtype:
        call, flops = peak_call(row.dtype)
        calls["peak"] = call, []
    with np.errstate(all="ignore"):
        row.seconds = in_turns(calls, budget)
    if row.bound_by == "memory":
        row.triad = TRIAD_BYTES / row.seconds.pop("triad")
    if flops:
        row.peak = flops / row.seconds.pop("peak")
    if profiled and compiled:
        row.parts = profile(*compiled, seconds=min(budget, 0.2))
    return row


@contextlib.contextmanager
def no_longer_than(seconds: float | None):
    """Raises TimeoutError inside after so many seconds; where signals cannot interrupt (another thread), never."""
    if seconds is None or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_):
        raise TimeoutError(f"no result after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check(workload: Workload, title: str, results, expected) -> float:
    """The largest error, relative to the largest element of each result. Raises CheckError above the tolerance."""
    worst = 0.0
    if len(results) != len(expected):
        raise CheckError(f"{workload.name}: {title} returns {len(results)} results, the reference {len(expected)}")
    for result, right in zip(results, expected, strict=True):
        if result.shape != right.shape:
            raise CheckError(f"{workload.name}: {title} returns shape {result.shape}, the reference {right.shape}")
        if right.dtype.kind in "iub":
            error = float(np.mean(result != right))
        else:
            scale = max(float(np.max(np.abs(right))), 1e-30) if right.size else 1.0
            error = float(np.max(np.abs(result - right), initial=0.0)) / scale
        worst = max(worst, error)
    if not worst <= workload.tolerance:
        raise CheckError(f"{workload.name}: {title} is off by {worst:.1e} of the largest element")
    return worst


def pause() -> None:
    """Busy-waits until the threads of the previous library sleep: a core that slept itself is slow at first."""
    start = time.perf_counter()
    while time.perf_counter() < start + LONGEST:
        look, others = time.perf_counter() + LOOK, _seconds_of_others()
        while time.perf_counter() < look:
            pass
        if look > start + PAUSE and _seconds_of_others() - others < LOOK / 10:
            break


def _seconds_of_others() -> float:
    """Processor time of all other threads of this process."""
    return time.process_time() - time.thread_time()


def in_turns(calls: dict, budget: float) -> dict[str, float]:
    """Seconds of one call of each `name: (function, arguments)`."""
    repeats, slow = {}, set()
    for name, (function, arguments) in calls.items():
        pause()
        function(*arguments)
        start = time.perf_counter()
        function(*arguments)
        took = time.perf_counter() - start
        slow |= {name} if took > SLOW else set()
        repeats[name] = max(1, int(BLOCK / max(took, 1e-7)))
        if repeats[name] > 100:  # one call is too short to tell
            start = time.perf_counter()
            for _ in range(100):
                function(*arguments)
            repeats[name] = max(1, int(BLOCK * 100 / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + budget * len(calls)
    rounds, orders = 0, np.random.default_rng(0)
    while rounds < ROUNDS[0] or (rounds < ROUNDS[1] and time.perf_counter() < end):
        rounds += 1
        for name in orders.permutation(list(calls)):
            if name in slow and len(times[name]) >= 3:
                continue
            function, arguments = calls[name]
            pause()
            if name not in slow:
                function(*arguments)
            count = repeats[name]
            start = time.perf_counter()
            for _ in range(count):
                function(*arguments)
            times[name].append((time.perf_counter() - start) / count)
    return {name: float(np.median(values)) for name, values in times.items()}


def allocations(steps: int = 100) -> dict[str, int]:
    """The pool's allocations in `steps` training steps with the shapes of example 1, after the first two."""
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
