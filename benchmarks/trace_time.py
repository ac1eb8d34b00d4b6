"""Tracing time of a function of 1,000 operations, its gradient and its batch.

    python benchmarks/trace_time.py [--operations 1000] [--repeat 20] [--write]

Prints the shortest and the median processor time of each in milliseconds; --write stores them in TRACE_TIME.md. Nothing
is compiled or executed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

import hloom as hl
import hloom.numpy as hnp
from hloom import tree
from hloom.tracing.trace import trace_function


def chain(operations: int):
    """A function of about that many elementwise operations of mixed kinds."""

    def function(x, y):
        for _ in range(operations // 5):
            x = hnp.tanh(x * y)
            x = x + hnp.sin(y)
            y = y * 0.5
        return x.sum() + y.sum()

    return function


def measure(function, repeat: int) -> tuple[float, float]:
    times = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        times.append((time.process_time() - start) * 1e3)
    return min(times), statistics.median(times)


def cases(operations: int):
    """Name -> what is measured."""
    function = chain(operations)
    shapes = [hl.ShapeDtypeStruct((128,), "f32")] * 2
    structure = tree.structure((tuple(shapes), {}))

    def traced(f):
        return lambda: trace_function(f, shapes, structure, "chain")

    batched = [hl.ShapeDtypeStruct((8, 128), "f32")] * 2
    return {
        "trace": traced(function),
        "trace of the gradient": traced(hl.grad(function)),
        "trace of the forward derivative": traced(lambda x, y: hl.jvp(function, (x, y), (x, y))),
        "trace of vmap": lambda: trace_function(hl.vmap(function), batched, structure, "chain"),
        "trace of vmap of the gradient": lambda: trace_function(
            hl.vmap(hl.grad(function)), batched, structure, "chain"
        ),
    }


GOALS = {"trace": 25.0, "trace of the gradient": 60.0}  # milliseconds, for 1,000 operations


def page(operations: int, repeat: int, rows: list[tuple[str, float, float]]) -> str:
    lines = [f"| {name} | {low:.1f} | {mid:.1f} | {GOALS.get(name, '')} |" for name, low, mid in rows]
    return "\n".join(
        [
            "# Tracing",
            "",
            f"Written by `python benchmarks/trace_time.py --write`. Machine: {os.cpu_count()} processors, "
            f"{platform.machine()}.",
            f"A function of {operations:,} element-wise operations on two arguments; {repeat} runs, in milliseconds.",
            "Processor time of the tracing thread; nothing is compiled or executed.",
            "",
            "| | shortest | median | goal |",
            "| --- | ---: | ---: | ---: |",
            *lines,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write benchmarks/TRACE_TIME.md")
    options = parser.parse_args()
    rows = []
    for name, case in cases(options.operations).items():
        case()
        rows.append((name, *measure(case, options.repeat)))
        print(f"{name:34} {rows[-1][1]:8.1f} ms  (median {rows[-1][2]:.1f})")
    if options.write:
        Path(__file__).with_name("TRACE_TIME.md").write_text(page(options.operations, options.repeat, rows))


if __name__ == "__main__":
    main()
