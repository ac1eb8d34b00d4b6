"""jax on hloom against jax on its CPU: the benchmark's workloads, calls and transfers, in one process.

    python benchmarks/jax_device.py [--only NAME ...] [--budget SECONDS] [--write]

Both run the same jax functions, jitted. Prints the times of a call; --write replaces the tables in BRIDGES.md. A first
call is that of a new process, which has imported jax and made the inputs; hloom's has an empty cache of kernels.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

os.environ["JAX_PLATFORMS"] = "hloom,cpu"

from hloom.benchmarks.libraries import Jax
from hloom.benchmarks.measure.processes import output_of
from hloom.benchmarks.measure.timing import in_turns
from hloom.benchmarks.workloads import WORKLOADS

PAGE = Path(__file__).with_name("BRIDGES.md")
PLATFORMS = ("hloom", "cpu")


class JaxOn(Jax):
    """jax on one of its platforms."""

    def __init__(self, platform: str):
        super().__init__()
        self.name = platform
        self.device = self.jax.devices(platform)[0]

    def prepare(self, array):
        with self.jax.enable_x64(array.dtype == np.float64):
            return self.jax.device_put(array, self.device)


def first_call(platform: str, name: str) -> float:
    """Seconds of a workload's first call in a new process, tracing and compilation included."""
    code = f"from hloom.benchmarks.jax_device import print_first_call\nprint_first_call({platform!r}, {name!r})"
    with tempfile.TemporaryDirectory() as cache:
        return float(output_of(code, HLOOM_CACHE_DIR=cache).split()[-1])


def print_first_call(platform: str, name: str) -> None:
    """Inside of that process."""
    library, workload = JaxOn(platform), WORKLOADS[name]
    prepared = [library.prepare(a) for a in workload.inputs(np.random.default_rng(0))]
    library.jax.block_until_ready(prepared)
    start = time.perf_counter()
    library.compiled(workload)(*prepared)
    print(time.perf_counter() - start)


def workload_rows(names: Iterable[str], budget: float) -> list[tuple[str, float, float, float, float]]:
    """(name, first call on hloom and on the CPU, a call on hloom and on the CPU), in seconds."""
    libraries, rows = [JaxOn(p) for p in PLATFORMS], []
    for name in names:
        workload = WORKLOADS[name]
        if not workload.runs_on(libraries[0]):
            continue
        arrays = workload.inputs(np.random.default_rng(0))
        calls, found = {}, []
        first, first_on_cpu = (first_call(platform, name) for platform in PLATFORMS)
        for library in libraries:
            calls[library.name] = library.compiled(workload), [library.prepare(a) for a in arrays]
            function, prepared = calls[library.name]
            found.append(library.arrays(function(*prepared)))
        for ours, theirs in zip(*found, strict=True):
            scale = max(float(np.max(np.abs(theirs), initial=0)), 1e-30)
            error = float(np.max(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), initial=0)) / scale
            assert error <= max(10 * workload.tolerance, 1e-4), (name, error)
        seconds = in_turns(calls, budget)
        rows.append((name, first, first_on_cpu, seconds["hloom"], seconds["cpu"]))
        print(f"{name:32s} {ratio(rows[-1][4], rows[-1][3])} first {ratio(first_on_cpu, first)}", flush=True)
    return rows


def overhead_rows(budget: float) -> list[tuple[str, float, float]]:
    """(title, seconds on hloom, on the CPU) of small calls and of transfers of 1 MB."""
    cases: dict[str, dict[str, tuple]] = {}
    megabyte = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    for library in map(JaxOn, PLATFORMS):
        jax, device = library.jax, library.device
        wait = jax.block_until_ready
        one = jax.device_put(np.float32(1), device)
        many = [jax.device_put(np.ones(8, np.float32), device) for _ in range(50)]
        there = jax.device_put(megabyte, device)
        plus = jax.jit(lambda x: x + 1)
        every = jax.jit(lambda xs: [x + 1 for x in xs])
        for what, function, arguments in (
            ("call of x + 1 on a scalar", lambda x, f=plus, w=wait: w(f(x)), [one]),
            ("call with 50 arrays in and out", lambda x, f=every, w=wait: w(f(x)), [many]),
            ("device_put of 1 MB", lambda x, d=device, j=jax, w=wait: w(j.device_put(x, d)), [megabyte]),
            ("np.asarray(x + 1) of 1 MB", lambda x, f=plus: np.asarray(f(x)), [there]),
        ):
            cases.setdefault(what, {})[library.name] = function, arguments
    found = []
    for what, calls in cases.items():
        seconds = in_turns(calls, budget)
        found.append((what, seconds["hloom"], seconds["cpu"]))
        print(f"{what:32s} {ratio(*found[-1][:0:-1])}", flush=True)
    return found


def ratio(theirs: float, ours: float) -> str:
    return f"{ours * 1e6:11.1f} us, jax's CPU {theirs * 1e6:11.1f} us: {theirs / ours:6.2f} x"


def mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


def tables(rows, overheads) -> dict[str, list[str]]:
    """Lines of the tables in BRIDGES.md, by their names."""
    calls = [f"| {what} | {a * 1e6:.1f} | {b * 1e6:.1f} | {a / b:.2f} |" for what, a, b in overheads]
    works = [f"| {n} | {a * 1e3:.3f} | {b * 1e3:.3f} | {b / a:.2f} | {q / p:.2f} |" for n, p, q, a, b in rows]
    faster, first = mean(r[4] / r[3] for r in rows), mean(r[2] / r[1] for r in rows)
    return {
        "calls": ["| | hloom, µs | jax's CPU, µs | hloom / jax |", "| --- | ---: | ---: | ---: |", *calls],
        "workloads": [
            f"{len(rows)} workloads; geometric means: a call {faster:.2f} times as fast as on jax's CPU, a first call "
            f"{first:.2f} times.", "",
            "| workload | hloom, ms | jax's CPU, ms | times as fast | first call, times as fast |",
            "| --- | ---: | ---: | ---: | ---: |", *works,
        ],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names of workloads")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each measurement")
    parser.add_argument("--write", action="store_true", help="replace the tables in BRIDGES.md")
    options = parser.parse_args()
    overheads = overhead_rows(options.budget)
    rows = workload_rows(options.only or WORKLOADS, options.budget)
    made = tables(rows, overheads)
    print("\n".join(made["workloads"][:1]))
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        for name, lines in made.items():
            body = "\n".join([f"<!-- {name} -->", *lines, "<!-- end -->"])
            begin = text.index(f"<!-- {name} -->")
            end = text.index("<!-- end -->", begin) + len("<!-- end -->")
            text = text[:begin] + body + text[end:]
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
