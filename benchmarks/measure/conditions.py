"""Conditions: import time, one thread and all threads, concurrent Python callers, peak memory of training steps.

import_seconds()            of `import hloom`, in new processes
threads_against_one(names)  interleaved in this process
callers()                   concurrent Python threads in this process
calls_apart(peers)          calls with pauses between them, in this process
peak_memory(names, peers)   in new processes
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence

import numpy as np

from hloom.backends.cpu.driver import driver
from hloom.benchmarks.libraries import Hloom, installed, load
from hloom.benchmarks.measure.processes import output_of
from hloom.benchmarks.measure.timing import in_turns
from hloom.benchmarks.workloads import WORKLOADS
from hloom.compiler.targets.cpu.machine import available_cores

# Compute-bound, of different kinds; large enough that the cost of distributing chunks is negligible.
COMPUTE = ("matmul_1024", "conv_3x3", "attention", "black_scholes_4m", "power_4m", "random_normal", "orbit_1m")
APART = ("tiny_add", "gelu_16k", "chain_64k", "matmul_64", "digits_step")  # calls of 1 to 30 us, one after the other
PAUSE = 0.001  # seconds between two calls, long enough for idle threads to sleep
STEPS = ("mlp_step", "lenet_step", "resnet_block_step", "lstm_step", "transformer_step")


def _process(code: str, **variables: str) -> str:
    return output_of(code, **variables).splitlines()[-1]


def import_seconds(package: str = "hloom", repeats: int = 5) -> float:
    """Seconds of the import in a new process, the median; the first, which may read the files from disk, apart."""
    code = f"import time; start = time.perf_counter(); import {package}; print(time.perf_counter() - start)"
    return statistics.median([float(_process(code)) for _ in range(repeats + 1)][1:])


def threads_against_one(names: Iterable[str] = COMPUTE, seconds: float = 0.3) -> dict[str, dict[str, float]]:
    """For each workload: seconds with one thread ('one') and with all ('all'), and 'speedup'; interleaved."""
    library, run = Hloom(True), driver()
    count = run.num_threads
    found = {}
    for name in names:
        workload = WORKLOADS[name]
        arrays = [library.prepare(a) for a in workload.inputs(np.random.default_rng(0))]
        function = library.compiled(workload)
        function(*arrays)
        times: dict[int, list[float]] = {1: [], count: []}
        try:
            for turn in range(10):
                threads = (1, count)[turn % 2]
                run.set_num_threads(threads)
                times[threads].append(in_turns({"call": (function, arrays)}, seconds / 10)["call"])
        finally:
            run.set_num_threads(count)
        one, every = (min(times[k]) for k in (1, count))  # other load can only add time
        found[name] = {"one": one, "all": every, "speedup": one / every}
    return found


def callers(count: int = 4, seconds: float = 0.4, names: Sequence[str] = ("chain_64k", "matmul_256")) -> dict:
    """Calls a second of `count` concurrent Python threads ('at once') and of one thread ('alone'), each running all
    workloads in turn; 'ratio' of the two; 'correct': every result has the same bits as with one thread."""
    library = Hloom(True)
    jobs = []
    for name in names:
        workload = WORKLOADS[name]
        arrays = [library.prepare(a) for a in workload.inputs(np.random.default_rng(0))]
        function = library.compiled(workload)
        jobs.append((function, arrays, [a.tobytes() for a in library.arrays(function(*arrays))]))
    wrong = []

    def call_until(end: float, done: list[int]) -> None:
        calls = 0
        while time.perf_counter() < end:
            for function, arrays, _ in jobs:
                result = function(*arrays)
                calls += 1
            if calls % 64 == 0:
                for function, arrays, expected in jobs:
                    result = [a.tobytes() for a in library.arrays(function(*arrays))]
                    if result != expected:
                        wrong.append(function)
        done.append(calls)

    def rate(threads: int) -> float:
        done: list[int] = []
        start = time.perf_counter()
        workers = [threading.Thread(target=call_until, args=(start + seconds, done)) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(done) / (time.perf_counter() - start)

    turns = [(rate(1), rate(count)) for _ in range(7)]
    one, many = (statistics.median(rates) for rates in zip(*turns, strict=True))
    # The machine's pace changes from second to second: of turns that follow each other less.
    ratio = statistics.median(together / alone for alone, together in turns)
    return {"threads": count, "alone": one, "at once": many, "ratio": ratio, "correct": not wrong}


def calls_apart(peers: Sequence[str] = ("jax",), names: Iterable[str] = APART, count: int = 200) -> dict:
    """Seconds of a call PAUSE after the one before, the median of `count`: by workload and library. A library that
    wakes a thread for each call pays for that here, and not where calls follow each other."""
    found: dict[str, dict[str, float]] = {}
    for name in names:
        workload, row = WORKLOADS[name], found.setdefault(name, {})
        for library in load(peers, available_cores()):
            if not workload.runs_on(library):
                continue
            arrays = [library.prepare(a) for a in workload.inputs(np.random.default_rng(0))]
            function = library.compiled(workload)
            function(*arrays)
            times = []
            for _ in range(count):
                pause = time.perf_counter() + PAUSE
                while time.perf_counter() < pause:  # busy waiting: a core that slept is slow at first
                    pass
                start = time.perf_counter()
                function(*arrays)
                times.append(time.perf_counter() - start)
            row[library.name] = statistics.median(times)
    return found


def peak_memory(names: Iterable[str] = STEPS, peers: Sequence[str] = ("jax",)) -> dict[str, dict[str, float]]:
    """Bytes that five training steps take at most beyond what the process held before them, its inputs among that: by
    workload and library. Each step gets the parameters of the step before. The compiled code comes from the library's
    cache on disk, which a process before has filled: memory that a compiler frees and keeps would hide the steps'."""
    found: dict[str, dict[str, float]] = {}
    for name in names:
        for library in ("hloom", *(p for p in peers if installed(p))):
            code = (
                f"from hloom.benchmarks.measure.conditions import measure_memory\nmeasure_memory({library!r}, {name!r})"
            )
            with tempfile.TemporaryDirectory() as folder:
                variables = {
                    "HLOOM_CACHE_DIR": folder,
                    "JAX_COMPILATION_CACHE_DIR": folder,
                    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
                }
                if library in ("hloom", "jax"):
                    _process(code, **variables)
                bytes_taken = json.loads(_process(code, **variables))
            if bytes_taken is not None:
                found.setdefault(name, {})[library] = bytes_taken
    return found


def measure_memory(library: str, name: str) -> None:
    """In a separate process: prints the bytes as JSON; null where the library cannot run the workload."""
    workload, lib = WORKLOADS[name], load((library,), available_cores())[-1]
    if not workload.runs_on(lib):
        print("null")
        return
    # A small workload of another kind allocates the library's own memory (threads, modules) first.
    tiny = WORKLOADS["digits_step"]
    lib.compiled(tiny)(*(lib.prepare(a) for a in tiny.inputs(np.random.default_rng(0))))
    arrays = [lib.prepare(a) for a in workload.inputs(np.random.default_rng(0))]
    function = lib.compiled(workload)
    before = _peak_from_here()
    for _ in range(5):
        results = function(*arrays)  # a flat list
        kept = len(results) - 1  # the parameters, followed by the loss
        arrays = [*results[:kept], *arrays[kept:]]
    print(json.dumps(max(_peak() - before, 0)))


def _peak_from_here() -> int:
    """Bytes resident now; the peak counts from here where the system can forget the old one (Linux)."""
    try:
        # Returns freed memory to the system; otherwise the steps would seem to need none.
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return _status("VmRSS")
    except (OSError, AttributeError):
        return _peak()


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))


def _peak() -> int:
    """Bytes resident at most so far."""
    try:
        return _status("VmHWM")
    except OSError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most << 10
