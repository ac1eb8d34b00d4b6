"""How long tracing takes: a function of 1,000 operations, its gradient, its batch.

    python benchmarks/trace_time.py [--operations 1000] [--repeat 20]

Prints the shortest and the median time of each in milliseconds. Nothing is compiled or computed.
"""

from __future__ import annotations

import argparse
import statistics
import time

import hloom as hl
import hloom.numpy as hnp
from hloom import tree
from hloom.tracing import trace_function


def chain(operations: int):
    """A function of about so many element-wise operations, of a mixture of kinds."""

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
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1e3)
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
        "trace of vmap of the gradient": lambda: trace_function(hl.vmap(hl.grad(function)), batched, structure, "chain"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    for name, case in cases(options.operations).items():
        case()
        shortest, median = measure(case, options.repeat)
        print(f"{name:34} {shortest:8.1f} ms  (median {median:.1f})")


if __name__ == "__main__":
    main()
