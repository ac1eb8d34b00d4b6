"""Measurements in new processes: time to the first result, first calls, new shapes.

first_calls(names, peers) -> list[FirstCall]     hloom with a cold and a warm disk cache, and the peers
new_shapes(names, peers) -> list[NewShape]       other shapes for a function that has been called
warm_start(), cold_gelu(with_driver)             single numbers
"""

from __future__ import annotations

import functools
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hloom.benchmarks.libraries import installed, load
from hloom.benchmarks.measure.processes import output_of
from hloom.benchmarks.workloads import WORKLOADS
from hloom.compiler.targets.cpu.machine import available_cores

_FIRST_RESULT = """
import hloom as hl, hloom.numpy as hnp
import numpy, time
f = hl.jit(lambda x: hnp.tanh(x) * 2 + 1)
float(f(numpy.ones(4, numpy.float32))[0])
print(time.time())
"""

_FIRST_GELU = """
import hloom as hl, numpy, time
if {driver}:
    from hloom.backends.cpu.driver import driver
    driver()
x = numpy.ones(1 << 22, numpy.float32)
start = time.perf_counter()
hl.jit(hl.nn.gelu)(x).block_until_ready()
print(time.perf_counter() - start)
"""


def _run(code: str, cache: str) -> float:
    return float(output_of(code, HLOOM_CACHE_DIR=cache).split()[-1])


def warm_start(repeats: int = 5) -> float:
    """Seconds from the start of a process to the first result of a small function, all kernels in the disk cache."""
    with tempfile.TemporaryDirectory() as cache:
        _run(_FIRST_RESULT, cache)
        times = []
        for _ in range(repeats):
            start = time.time()
            times.append(_run(_FIRST_RESULT, cache) - start)
    return statistics.median(times)


def cold_gelu(with_driver: bool, repeats: int = 3) -> float:
    """Seconds of the first call of gelu (4M float32) in a process that has imported hloom, with an empty disk cache.

    with_driver: the runtime's driver, which is compiled once for a machine and kept, is there already.
    """
    times = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            times.append(_run(_FIRST_GELU.format(driver=with_driver), cache))
    return statistics.median(times)


@dataclass(frozen=True)
class FirstCall:
    """The first call of a workload, in processes that have imported the library and made its inputs; in seconds.

    cold: hloom with an empty disk cache. warm: hloom in a new process, with the disk cache of the cold one.
    peers: by name, without a persistent cache. imports: seconds of the import, by name (hloom among them).
    stages: the time of the cold call by stage (`compile().timings()`).
    """

    name: str
    family: str
    cold: float
    warm: float
    peers: dict[str, float]
    imports: dict[str, float]
    stages: dict[str, float]

    def ratio(self, peer: str, warm: bool = False) -> float:
        """The peer's time over hloom's: above 1, hloom is faster."""
        return self.peers[peer] / (self.warm if warm else self.cold)


@dataclass(frozen=True)
class NewShape:
    """The first call with other shapes of a function that has been called, nothing on disk; in seconds.

    kernels: of hloom's program for the new shapes. compiled: how many of them were not there already. pending: how many
    others were compiled in the background while fallback kernels ran.
    """

    name: str
    family: str
    seconds: float
    peers: dict[str, float]
    kernels: int
    compiled: int
    pending: int = 0

    def ratio(self, peer: str) -> float:
        """The peer's time over hloom's: above 1, hloom is faster."""
        return self.peers[peer] / self.seconds


def first_calls(names: Sequence[str] | None = None, peers: Sequence[str] = ("jax",)) -> list[FirstCall]:
    """First calls of workloads (None: all). Three processes for each workload, some five seconds."""
    rows = []
    for name in WORKLOADS if names is None else names:
        cold, warm = _hlooms(name)
        others = {peer: facts for peer in peers if (facts := _peer(name, peer))}
        rows.append(
            FirstCall(
                name, WORKLOADS[name].family, cold["first"], warm["first"],
                {peer: facts["first"] for peer, facts in others.items()},
                {"hloom": cold["import"]} | {peer: facts["import"] for peer, facts in others.items()},
                cold["stages"],
            )
        )  # fmt: skip
    return rows


def new_shapes(names: Sequence[str] | None = None, peers: Sequence[str] = ("jax",)) -> list[NewShape]:
    """Times of calls with inputs of half the size, after calls with the usual ones, in the processes of `first_calls`.

    Workloads without other inputs, or whose functions contain their sizes, are omitted.
    """
    rows = []
    for name in WORKLOADS if names is None else names:
        cold, _ = _hlooms(name)
        if cold["other"] is None:
            continue
        others = {peer: facts for peer in peers if (facts := _peer(name, peer)) and facts["other"] is not None}
        rows.append(
            NewShape(
                name, WORKLOADS[name].family, cold["other"], {peer: facts["other"] for peer, facts in others.items()},
                cold["kernels"], cold["compiled"] + cold["pending"], cold["pending"],
            )
        )  # fmt: skip
    return rows


@functools.cache
def _hlooms(name: str) -> tuple[dict, dict]:
    """The measurements of a process with an empty cache, and of the next one."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = _facts("hloom", name, cache), _facts("hloom", name, cache)
    assert cold is not None and warm is not None  # hloom runs every workload
    return cold, warm


@functools.cache
def _peer(name: str, peer: str) -> dict | None:
    """None where the peer is not installed, or does not run the workload."""
    return _facts(peer, name, "") if installed(peer) else None


def _facts(library: str, name: str, cache: str) -> dict | None:
    package = library.partition(".")[0]
    code = (
        f"import time; start = time.perf_counter(); import {package}; seconds = time.perf_counter() - start\n"
        f"from hloom.benchmarks.measure.startup import measure_calls\nmeasure_calls({library!r}, {name!r}, seconds)"
    )
    return json.loads(output_of(code, HLOOM_CACHE_DIR=cache).splitlines()[-1])


def measure_calls(library: str, name: str, import_seconds: float) -> None:
    """Inside a timed process: prints the facts of one library's calls of a workload as JSON (null: it cannot)."""
    workload, lib = WORKLOADS[name], load((library,), available_cores())[-1]
    if not workload.runs_on(lib):
        print("null")
        return
    arrays = workload.inputs(np.random.default_rng(0))
    others = workload.inputs(np.random.default_rng(0), divide=2)
    prepared = [lib.prepare(a) for a in arrays]
    function = lib.compiled(workload)
    start = time.perf_counter()
    function(*prepared)
    facts = {"import": import_seconds, "first": time.perf_counter() - start, "stages": {}, "other": None}
    if library == "hloom":
        facts["stages"] = function.lower(*prepared).compile().timings()
    if [a.shape for a in arrays] != [a.shape for a in others]:
        prepared = [lib.prepare(a) for a in others]
        start = time.perf_counter()
        try:
            function(*prepared)
        except Exception as error:  # the function contains its sizes: not every workload has other shapes
            facts["refused"] = f"{type(error).__name__}: {error}"
        else:
            facts["other"] = time.perf_counter() - start
            if library == "hloom":
                compiled = function.lower(*prepared).compile()
                facts |= {
                    "kernels": int(compiled.cost_analysis()["distinct kernels"]),
                    "compiled": compiled.kernels_compiled,
                    "pending": compiled.kernels_pending,
                }
    print(json.dumps(facts))
