"""Collectives and training steps over processes: `python -m hloom.benchmarks.sharding.processes`.

Collectives of two processes with a device each are timed against MPI's (mpi4py's Allreduce, Allgather, Alltoall) in the
same run, alternately, and those of one process with two devices in a run before it. A training step whose gradients
have 25 MB is timed in two processes and in one, in turns. The fastest twentieth of a call's times counts, and the best
of the rounds of collectives: on a machine with other load, those are the uninterrupted ones.

Options: --sizes 4,1K,1M, --seconds S of each, --rounds N of runs, --plot FILE.png (matplotlib, extra `bench`).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import hloom as hl
from hloom import numpy as hnp
from hloom.backends.spmd.backend import SpmdBackend
from hloom.benchmarks.collectives import KINDS, duration, elements_of, module, parsed
from hloom.distributed.mpi import library
from hloom.platforms.backend import CompileOptions

SIZES = "4,1K,16K,256K,1M,4M,25M,100M"
LAYERS, WIDTH, BATCH = 4, 1250, 256  # 25 MB of f32


# --- what runs in each process ------------------------------------------------------------------------------------


def _times(calls: list[Callable], seconds: float) -> list[list[float]]:
    """The times of calls that all processes make together, in turns."""
    for call in calls:
        call()
    started = time.perf_counter()
    for call in calls:
        call()
    once = time.perf_counter() - started
    count = int(hl.distributed.broadcast(np.int64(max(seconds / once, 3))))
    found: list[list[float]] = [[] for _ in calls]
    turns = min(count, 10)
    for _ in range(turns):
        for call, times in zip(calls, found, strict=True):
            hl.distributed.barrier()
            for _ in range(count // turns):
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
    return found


def typical(times: list[float]) -> float:
    return sorted(times)[len(times) // 20]


def _of_mpi(kind: str, elements: int) -> Callable:
    """MPI's own collective of all processes."""
    world = library().COMM_WORLD
    x = np.ones(elements, np.float32)
    result = np.empty(elements * (world.size if kind == "all-gather" else 1), np.float32)
    call = {"all-reduce": world.Allreduce, "all-gather": world.Allgather, "all-to-all": world.Alltoall}[kind]
    return lambda: call(x, result)


def collectives(sizes: list[str], seconds: float) -> list[tuple[str, str, list[float]]]:
    """(kind, size, seconds of hloom's and, in several processes, of MPI's) for all."""
    devices, own = tuple(str(d) for d in hl.devices()), hl.local_device_count()
    found = []
    for kind in KINDS:
        for size in sizes:
            elements = elements_of(kind, len(devices), parsed(size))
            options = CompileOptions(devices=devices)
            executable = SpmdBackend().compile(module(kind, len(devices), elements), options)
            shards = [[np.ones(elements, np.float32) for _ in range(own)]]
            calls: list[Callable] = [lambda e=executable, s=shards: e(s)]
            if hl.process_count() > 1:
                calls.append(_of_mpi(kind, elements))
            found.append((kind, size, [typical(times) for times in _times(calls, seconds)]))
    return found


def step_times(seconds: float) -> list[float]:
    """Of a data-parallel training step over all devices."""
    mesh = hl.make_mesh((hl.device_count(),), ("data",), axis_types=(hl.sharding.AxisType.Auto,))
    rows, whole = hl.NamedSharding(mesh, hl.P("data")), hl.NamedSharding(mesh, hl.P())
    rng = np.random.default_rng(0)
    x = hl.device_put(rng.standard_normal((BATCH, WIDTH), np.float32), rows)
    scale = np.float32(1 / math.sqrt(WIDTH))
    weights = [hl.device_put(rng.standard_normal((WIDTH, WIDTH), np.float32) * scale, whole) for _ in range(LAYERS)]

    def loss(weights, x):
        for w in weights:
            x = hnp.tanh(x @ w)
        return hnp.mean(x**2)

    @hl.jit(donate_argnums=0)
    def step(weights, x):
        return [w - 0.1 * g for w, g in zip(weights, hl.grad(loss)(weights, x), strict=True)]

    def call() -> None:
        nonlocal weights
        weights = step(weights, x)

    return _times([call], seconds)[0]


def _work(options: argparse.Namespace) -> None:
    hl.distributed.initialize()
    if options.work == "steps":
        found: list = step_times(options.seconds)
    else:
        found = collectives(options.sizes.split(","), options.seconds)
    if hl.process_index() == 0:
        Path(options.out).write_text(json.dumps(found))


# --- the command --------------------------------------------------------------------------------------------------


def _launched(work: str, processes: int, seconds: float, out: Path, sizes: str) -> list:
    subprocess.run(
        [
            sys.executable, "-m", "hloom", "launch", "-n", str(processes), "--devices-per-process", str(2 // processes),
            "-m", "hloom.benchmarks.sharding.processes", "--work", work, "--seconds", str(seconds), "--out", str(out),
            "--sizes", sizes,
        ],
        check=True,
    )  # fmt: skip
    return json.loads(out.read_text())


def plotted(rows: list[tuple[str, str, float, float, float]], path: str) -> None:
    """A picture of the times by size. Raises ImportError without matplotlib."""
    # A heavy library that only this needs.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6))
    axes = figure.subplots(1, len(KINDS), sharey=True)
    for axis, kind in zip(axes, KINDS, strict=True):
        own = [row for row in rows if row[0] == kind]
        sizes = [parsed(row[1]) for row in own]
        for column, label in ((2, "hloom, 1 process"), (3, "hloom, 2 processes"), (4, "MPI, 2 processes")):
            axis.loglog(sizes, [float(row[column]) * 1e6 for row in own], marker="o", markersize=3, label=label)
        axis.set_title(kind)
        axis.set_xlabel("bytes")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("microseconds of a call")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def measured(sizes: str, seconds: float, rounds: int, plot: str | None, out: Path) -> dict:
    """{rows: (collective, bytes, seconds of one process, of two, of MPI), steps: by number of processes}."""
    best: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        alone = _launched("collectives", 1, seconds, out, sizes)
        together = _launched("collectives", 2, seconds, out, sizes)
        for (kind, size, one), (_, _, both) in zip(alone, together, strict=True):
            found = [*one, *both]
            best[kind, size] = [min(pair) for pair in zip(best.get((kind, size), found), found, strict=True)]
    rows = [(kind, size, one, two, peer) for (kind, size), (one, two, peer) in best.items()]
    if plot:
        plotted(rows, plot)
    steps: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for processes, times in steps.items():
            times += _launched("steps", processes, 2 * seconds, out, sizes)
    out.unlink()
    return {"rows": rows, "steps": [typical(steps[1]), typical(steps[2])]}


def table(found: dict) -> list[str]:
    """The measurements, as lines of Markdown."""
    lines = [
        "| collective | bytes | 1 process | 2 processes | MPI | MPI / hloom |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind, size, one, two, peer in found["rows"]:
        lines.append(f"| {kind} | {size} | {' | '.join(map(duration, (one, two, peer)))} | {peer / two:.2f} |")
    ratios = [peer / two for *_, two, peer in found["rows"]]
    below = [f"{kind} of {size} ({peer / two:.2f})" for kind, size, _, two, peer in found["rows"] if peer < two]
    one, two = found["steps"]
    return [
        *lines, "",
        f"MPI's time over hloom's: geometric mean {statistics.geometric_mean(ratios):.2f} (wanted: at least 1 "
        f"everywhere; least {min(ratios):.2f}). Below 1: {', '.join(below) or 'none'}.", "",
        f"A data-parallel training step ({LAYERS} layers, 25 MB of gradients, batch {BATCH}): 1 process with 2 devices "
        f"{duration(one)}, 2 processes with one each {duration(two)}: {one / two:.2f} (wanted: at least 0.85).",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--work", choices=("collectives", "steps"), help=argparse.SUPPRESS)
    parser.add_argument("--out", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        _work(options)
        return
    out = Path(options.plot or "processes").with_suffix(".json")
    print("\n".join(table(measured(options.sizes, options.seconds, options.rounds, options.plot, out))))


if __name__ == "__main__":
    main()
