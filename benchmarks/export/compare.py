"""Measures exported programs and writes EXPORT.md: `python -m hloom.benchmarks.export.compare [--iree PYTHON]`.

Each number is a ratio of times that were taken in turn in one run, with one thread: jitted call to exported call, and
IREE's compilation of the same StableHLO to the exported call. --iree: an interpreter with iree-base-compiler and
iree-base-runtime.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import math
import platform
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hloom as hl
from hloom.benchmarks.export.models import models
from hloom.export.loading import Library, _tensors
from hloom.export.targets import processor_name, target_of

ROUNDS, SECONDS = 60, 0.01
MAIN = """
#include "lenet.h"
#include <stdio.h>
static float x[32 * 28 * 28], y[320];
int main(void) {
  hloom_program *program;
  if (lenet_create(0, &program) || lenet_lenet(program, x, y)) return 1;
  printf("%f\\n", y[0]);
  return 0;
}
"""


def native_call(library: Library, name: str, arrays: list[np.ndarray]) -> Callable[[], Any]:
    """A call of a library's function with arrays that stay where they are, as a C program makes it."""
    function = library.functions[name]
    outputs = [np.empty([int(s) for s in value.shape], value.dtype) for value in function.outputs]
    inputs, kept = _tensors(arrays)
    results, more = _tensors(outputs)
    run, program, number = library._library.run, library._program, ctypes.c_int32(function._number)
    counts = ctypes.c_size_t(len(arrays)), ctypes.c_size_t(len(outputs))

    def call() -> Any:
        run(program, number, inputs, counts[0], results, counts[1])
        return library, kept, more  # which stay as long as the call

    return call


def per_call(call: Callable[[], Any], calls: int) -> float:
    """Seconds of processor time, which other work on the machine changes less than the time that passes."""
    started = time.thread_time()
    for _ in range(calls):
        call()
    return (time.thread_time() - started) / calls


class Iree:
    def __init__(self, python: str, folder: Path):
        command = [python, str(Path(__file__).with_name("iree_worker.py")), str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().strip()
        if answer != "ready":
            raise SystemExit(f"IREE did not compile the programs: {answer!r}")

    def time(self, name: str, calls: int) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{name} {calls}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def start_of_lenet(folder: Path) -> tuple[float, float, float]:
    """Milliseconds from the start of a C process to its end after the first result: the median of LeNet's, that of a
    process which does nothing, and the least processor time of LeNet's."""
    f, args = models()["lenet"]
    made = hl.export(f, *args, folder=folder / "start", kind="static")
    (made.path.parent / "main.c").write_text(MAIN)
    command = ["cc", "-O2", "main.c", made.path.name, "-o", "main", "-lm", "-lpthread"]
    subprocess.run(command, cwd=made.path.parent, check=True)
    times: dict[str, list[float]] = {"main": [], "nothing": []}
    used = []
    (made.path.parent / "nothing.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-O2", "nothing.c", "-o", "nothing", "-lm"], cwd=made.path.parent, check=True)
    for _ in range(ROUNDS):
        for name, found in times.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            started = time.perf_counter()
            subprocess.run([str(made.path.parent / name)], check=True, stdout=subprocess.DEVNULL)
            found.append((time.perf_counter() - started) * 1e3)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if name == "main":
                used.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return statistics.median(times["main"]), statistics.median(times["nothing"]), min(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iree", metavar="PYTHON")
    parser.add_argument("--write", metavar="FILE", default=str(Path(__file__).resolve().parents[1] / "EXPORT.md"))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calls: dict[str, dict[str, Callable[[], Any]]] = {}
        errors: dict[str, float] = {}
        with hl.config(num_threads=1):
            for model, (f, args) in models().items():
                jitted = hl.jit(f)
                wanted = jitted(*args)
                library = hl.export(f, *args, folder=folder, name=model).load()
                got = library.functions[f.__name__](*args)
                pairs = list(zip(hl.tree.leaves(wanted), hl.tree.leaves(got), strict=True))
                assert all(np.asarray(a).tobytes() == b.tobytes() for a, b in pairs), model
                given = [hl.numpy.asarray(a) for a in args]
                calls[model] = {
                    "jitted": functools.partial(jitted, *given),
                    "exported": native_call(library, f.__name__, args),
                }
                text = jitted.lower(*args).as_text("stablehlo")
                (folder / f"{model}.mlir").write_text(text)
                named: dict[str, Any] = {f"in{k}": a for k, a in enumerate(args)}
                np.savez(folder / f"{model}.npz", **named)
            iree = Iree(options.iree, folder) if options.iree else None
            for model, ways in calls.items():
                if iree:
                    with np.load(folder / f"{model}.out.npz") as arrays:
                        f, args = models()[model]
                        results = hl.tree.leaves(hl.jit(f)(*args))
                        pairs = [(np.asarray(r), arrays[k]) for r, k in zip(results, arrays.files, strict=True)]
                        errors[model] = max(float(np.max(np.abs(a - b))) for a, b in pairs)
                        assert errors[model] < 1e-4, (model, errors[model])
                count = max(1, int(SECONDS / per_call(ways["exported"], 3)))
                times: dict[str, list[float]] = {way: [] for way in (*ways, *(["iree"] if iree else []))}
                for _ in range(ROUNDS):
                    for way, call in ways.items():
                        times[way].append(per_call(call, count))
                    if iree:
                        times["iree"].append(iree.time(model, count))
                best = min(times["exported"]) * 1e6
                ratios = {way: min(found) * 1e6 / best for way, found in times.items()}
                rows.append((model, best, ratios["jitted"], ratios.get("iree")))
                print(rows[-1], flush=True)
            if iree:
                iree.close()
        start = start_of_lenet(folder)
    print("start", start)
    file = Path(options.write)
    _, mark, others = (file.read_text() if file.is_file() else "").partition("\n## ")  # sections of other programs
    file.write_text(report(rows, start) + mark + others)


def report(rows: list[tuple], start: tuple[float, float, float]) -> str:
    _, _, machine = target_of(None)
    lines = [
        "# Exported programs",
        "",
        f"Written by `python -m hloom.benchmarks.export.compare` on {platform.machine()} ({processor_name(machine)}),",
        "one thread, in processor time.",
        f"Ratios are of the least times in {ROUNDS} rounds, in which all were timed in turn; above 1",
        "the exported program is faster. The machine had other work meanwhile: times of different runs do not compare.",
        "",
        "| program | exported, us | jitted call / exported | IREE / exported |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {best:.1f} | {jitted:.2f} | {'' if other is None else f'{other:.2f}'} |"
        for name, best, jitted, other in rows
    ]
    others = [row[3] for row in rows if row[3]]
    if others:
        mean = math.exp(statistics.fmean(math.log(x) for x in others))
        lines += ["", f"IREE / exported, geometric mean: {mean:.2f}."]
    lines += [
        "",
        f"A C process with LeNet (batch 32), from its start to its end after the first result: {start[0]:.1f} ms; a",
        f"process that does nothing: {start[1]:.1f} ms (medians, started in turn); processor time of LeNet's:",
        f"{start[2]:.1f} ms.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
