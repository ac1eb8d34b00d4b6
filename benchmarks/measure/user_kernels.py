"""Kernels that users write: `hl.kernel`, Numba with `parallel=True`, and the array form under `hl.jit`.

    python -m benchmarks.measure.user_kernels [--rounds 20] [--first] [--write MACHINE]

Interleaved minima in ms. --first: the first call of each kernel, in a separate process with an empty cache, after a
call of another function. --write: stores them in `benchmarks/user_kernels.json`, with a description of the machine, for
Numba's bar in the README's chart.

First calls take 32 (top-k) to 72 ms (histogram) of processor time on two cores of an AMD EPYC.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import parallel


def saxpy(a, x, y):
    out = np.empty_like(x)
    for i in parallel(x.shape[0]):
        out[i] = a * x[i] + y[i]
    return out


def softmax(x):
    out = np.empty_like(x)
    for i in parallel(x.shape[0]):
        e = np.exp(x[i] - x[i].max())
        out[i] = e / e.sum()
    return out


def histogram(x):
    counts = np.zeros(256, np.int32)
    for i in parallel(x.shape[0]):
        hl.atomic_add(counts, int(x[i] * 256), 1)
    return counts


def histogram_in_order(x):
    counts = np.zeros(256, np.int32)
    for i in range(x.shape[0]):
        counts[int(x[i] * 256)] += 1
    return counts


def stencil(x):
    n, m = x.shape
    out = x.copy()
    for i in parallel(n - 2):
        column = np.empty(m, x.dtype)
        for j in range(m):
            column[j] = x[i, j] + 2 * x[i + 1, j] + x[i + 2, j]
        for j in range(1, m - 1):
            out[i + 1, j] = (column[j - 1] + 2 * column[j] + column[j + 1]) / 16
    return out


def top_k(x):
    k = 8
    values = np.empty((x.shape[0], k), x.dtype)
    for i in parallel(x.shape[0]):
        best = np.full(k, -np.inf, x.dtype)
        for j in range(x.shape[1]):
            v = x[i, j]
            if v > best[k - 1]:
                p = k - 1
                while p > 0 and best[p - 1] < v:
                    best[p] = best[p - 1]
                    p -= 1
                best[p] = v
        values[i] = best
    return values


def stencil_of_arrays(x):
    column = x[:-2] + 2 * x[1:-1] + x[2:]
    return x.at[1:-1, 1:-1].set((column[:, :-2] + 2 * column[:, 1:-1] + column[:, 2:]) / 16)


def programs() -> dict:
    """{name: (kernel, function for Numba, function of arrays, arguments)}."""
    g = np.random.default_rng(0)
    line, image = g.random(4_000_000, np.float32), g.random((2000, 1000), np.float32)
    counted = lambda x: hnp.zeros(256, np.int32).at[(x * 256).astype(np.int32)].add(1)  # noqa: E731
    return {
        "saxpy": (saxpy, saxpy, lambda a, x, y: a * x + y, (np.float32(2), line, line)),
        "softmax": (softmax, softmax, lambda x: hl.nn.softmax(x, axis=1), (image,)),
        "histogram": (histogram, histogram_in_order, counted, (line,)),
        "stencil": (stencil, stencil, stencil_of_arrays, (image,)),
        "top-k": (top_k, top_k, lambda x: hl.lax.top_k(x, 8)[0], (image,)),
    }


def with_numba(function):
    """The function as Numba compiles it: its parallel loops are Numba's."""
    import numba

    numba.set_num_threads(len(os.sched_getaffinity(0)))
    scope = {**function.__globals__, "parallel": numba.prange}
    made = type(function)(function.__code__, scope, function.__name__)
    return numba.njit(parallel=True)(made)


def seconds(call) -> float:
    start = time.perf_counter()
    hl.block_until_ready(call())
    return time.perf_counter() - start


def compared(rounds: int) -> list[dict]:
    rows = []
    print(f"{'':10} {'hl.kernel':>10} {'Numba':>10} {'hl.jit':>10}   ms")
    for name, (function, plain, arrays, given) in programs().items():
        kernel, loops, jitted = hl.kernel(function), with_numba(plain), hl.jit(arrays)
        ways = [lambda: kernel(*given), lambda: loops(*given), lambda: jitted(*given)]  # noqa: B023
        results = [np.asarray(hl.block_until_ready(way())) for way in ways]
        for other in results[1:]:
            np.testing.assert_allclose(results[0], other, rtol=1e-4, atol=1e-6)
        least = [min(times) for times in zip(*[[seconds(way) for way in ways] for _ in range(rounds)], strict=True)]
        print(f"{name:10} {least[0] * 1e3:10.3f} {least[1] * 1e3:10.3f} {least[2] * 1e3:10.3f}", flush=True)
        named = zip(("hl.kernel", "Numba", "hl.jit"), least, strict=True)
        rows.append({"name": name} | {library: round(time * 1e3, 3) for library, time in named})
    return rows


def written(machine: str, rows: list[dict]) -> None:
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    text = f'{{\n  "machine": {json.dumps(machine)},\n  "unit": "ms",\n  "rows": [\n{lines}\n  ]\n}}\n'
    (Path(__file__).parents[1] / "user_kernels.json").write_text(text, encoding="utf-8")


def first_call(name: str) -> None:
    """Prints the seconds of a kernel's first call in this process, after one of another kernel."""
    hl.block_until_ready(hl.jit(lambda x: x + 1)(np.ones(3, np.float32)))
    function, _, _, given = programs()[name]
    print(seconds(lambda: hl.kernel(function)(*given)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--write", metavar="MACHINE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        first_call(options.one)
    elif options.first:
        for name in programs():
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "benchmarks.measure.user_kernels", "--one", name]
                done = subprocess.run(
                    command, env=os.environ | {"HLOOM_CACHE_DIR": folder}, capture_output=True, text=True
                )
                print(f"{name:10} {float(done.stdout) * 1e3:8.0f} ms", flush=True)
    else:
        rows = compared(options.rounds)
        if options.write:
            written(options.write, rows)


if __name__ == "__main__":
    main()
