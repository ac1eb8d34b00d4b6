"""Open sizes against fixed ones: the run time of the benchmark's workloads, and the cost of a new size.

    python -m benchmarks.measure.sizes [--only softmax,matmul] [--write]

Each size of at least 16 of a workload's arguments is a `Dim`, equal sizes the same one. A workload that then depends on
an unknown fact has fewer of them open (all but last axes, the leading ones, the batch), or is refused, as the table
shows. Both programs are called in turn, and the ratio is that of their shortest times. --write writes SIZES.md, and
keeps the text written there by hand.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.benchmarks.libraries import Hloom
from hloom.benchmarks.workloads import WORKLOADS, Workload
from hloom.errors import HloomError, UndecidedSizeError

SMALLEST = 16  # that is open
BY_HAND = "<!-- written by hand from here on -->"
SECONDS, MOST = 0.6, 400  # of calls of both, and calls of each
Row = tuple[str, str, float, float, int]  # name, open sizes, ratio, milliseconds with fixed sizes, variants


def structs(arrays: Sequence[np.ndarray], opens: Callable[[int, int], bool]) -> list[hl.ShapeDtypeStruct]:
    """The arguments with dimensions in place of large sizes. opens: whether one is, by axis and size."""
    dims: dict[int, hl.Dim] = {}

    def size(axis: int, number: int):
        return dims.setdefault(number, hl.Dim(f"n{number}")) if number >= SMALLEST and opens(axis, number) else number

    return [hl.ShapeDtypeStruct([size(k, n) for k, n in enumerate(a.shape)], a.dtype) for a in arrays]


def opened(workload: Workload, arrays: Sequence[np.ndarray]):
    """(the program of open sizes, the open sizes), or (None, the reason)."""
    jitted, reason, batch = Hloom(True).jitted(workload), "", arrays[-1].shape[:1]
    last = {a.shape[-1] for a in arrays if a.ndim}
    choices: dict[str, Callable[[int, int], bool]] = {
        "all": lambda axis, size: True,
        "not features": lambda axis, size: size not in last,  # of no last axis
        "leading": lambda axis, size: axis == 0,
        "batch": lambda axis, size: axis == 0 and (size,) == batch,  # of the last argument
    }
    for what, opens in choices.items():
        given = structs(arrays, opens)
        if not any(isinstance(d, hl.Dim) for one in given for d in one.shape):
            continue
        try:
            return jitted.lower(*given).compile(), what
        except UndecidedSizeError as error:
            reason = str(error).splitlines()[0]
    return None, f"refused: {reason}" if reason else f"no size of {SMALLEST}"


def measured(name: str) -> Row | str:
    """The row of a workload, or why it has none. Raises AssertionError for other results than those of fixed sizes."""
    workload = WORKLOADS[name]
    arrays = workload.inputs(np.random.default_rng(0))
    program, what = opened(workload, arrays)
    if program is None:
        return what
    given = [hl.device_put(a) for a in arrays]
    fixed = Hloom(True).jitted(workload).lower(*given).compile()
    try:
        found = [np.asarray(x, dtype=float) for x in hl.tree.leaves(program(*given))]
    except HloomError as error:
        return f"refused at the call: {str(error).splitlines()[0]}"
    for got, wanted in zip(found, hl.tree.leaves(fixed(*given)), strict=True):
        wanted = np.asarray(wanted, dtype=float)
        bound = 2 * workload.tolerance * max(np.abs(wanted).max(initial=0), 1e-30)
        assert got.shape == wanted.shape and np.abs(got - wanted).max(initial=0) <= bound, name
    best, calls, end = [np.inf, np.inf], 0, time.perf_counter() + SECONDS
    while calls < 5 or (time.perf_counter() < end and calls < MOST):
        for k in (0, 1) if calls % 2 else (1, 0):
            began = time.perf_counter()
            hl.block_until_ready((fixed, program)[k](*given))
            best[k] = min(best[k], time.perf_counter() - began)
        calls += 1
    return name, what, best[1] / best[0], best[0] * 1e3, len(program.executable.variants)


def new_size() -> dict[str, float]:
    """Microseconds of a call of a small program: of fixed sizes, of a known size, of a new one."""

    def layer(x, w):
        return hnp.tanh(x @ w).sum(1)

    weights = np.ones((32, 32), np.float32)
    sizes = [*range(200, 1000)]
    arrays = {n: np.ones((n, 32), np.float32) for n in sizes}
    program = hl.jit(layer).lower(hl.ShapeDtypeStruct((hl.Dim("n"), 32), "float32"), weights).compile()
    fixed = hl.jit(layer).lower(arrays[600], weights).compile()
    for n in (*sizes[::7], *sizes[::11]):  # so that the variants exist
        program(arrays[n], weights)
    executable, seconds = program.executable, {}

    def median(call: Callable[[int], object], over: Sequence[int]) -> float:
        times = []
        for n in over:
            began = time.perf_counter()
            call(n)
            times.append(time.perf_counter() - began)
        return float(np.median(times)) * 1e6

    unseen = [n for k, n in enumerate(sizes) if 595 <= n < 640 and k % 7 and k % 11]
    seconds["a new size"] = median(lambda n: executable([arrays[n], weights]), unseen)
    seconds["the same sizes again"] = median(lambda n: executable([arrays[n], weights]), unseen)
    seconds["fixed sizes"] = median(lambda n: fixed.executable([arrays[600], weights]), unseen)
    return seconds


def lines() -> dict[str, int]:
    """Lines of the mechanism, by file."""
    root = Path(hl.__file__).resolve().parent
    parts = ["ir/sizes", "backends/cpu/open_sizes.py", "runtime/open_program.py", "runtime/numbers_source.py",
             "compiler/schedule/at_sizes.py", "dispatch/open_arguments.py", "export/cover.py", "export/ranges.py",
             "export/nodes.py"]  # fmt: skip
    files = [
        f for part in parts for f in sorted((root / part).glob("*.py") if (root / part).is_dir() else [root / part])
    ]
    return {str(f.relative_to(root)): len(f.read_text().splitlines()) for f in files}


def page(rows: Sequence[Row], others: dict[str, str], seconds: dict[str, float]) -> str:
    ratios = np.array([row[2] for row in rows])
    machine = f"{os.cpu_count()} processors, {platform.machine()}"
    mean, above = np.exp(np.log(ratios).mean()), int((ratios > 1.15).sum())
    table = [f"| {n} | {what} | {ratio:.2f} | {ms:.3f} | {count} |" for n, what, ratio, ms, count in rows]
    counted = lines()
    return "\n".join(
        [
            "# Open sizes",
            "",
            f"Written by `python -m benchmarks.measure.sizes --write`. Machine: {machine}.",
            "",
            "## Run time over fixed sizes",
            "",
            f"{len(rows)} workloads: geometric mean {mean:.3f}, worst {ratios.max():.2f}; {above} above 1.15. "
            f"{len(others)} have no row. Open: all sizes of at least {SMALLEST};",
            "where these lack a fact those of no last axis, the leading ones, or those of the batch. Ratio of the",
            "shortest times, in turn.",
            "",
            "| workload | open | ratio | ms, fixed | variants |",
            "| --- | --- | ---: | ---: | ---: |",
            *table,
            "",
            *[f"- {name}: {why}" for name, why in others.items()],
            "",
            "## A new size",
            "",
            "A small layer in a loop over sizes, medians in microseconds, of the executable alone.",
            "",
            *[f"- {name}: {value:.1f}" for name, value in seconds.items()],
            "",
            "## Lines of the mechanism",
            "",
            f"{sum(counted.values()):,} in {len(counted)} files: "
            + ", ".join(f"`{name}` {count}" for name, count in counted.items())
            + ".",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of workloads, with commas")
    parser.add_argument("--write", action="store_true", help="write benchmarks/SIZES.md")
    options = parser.parse_args()
    rows, others = [], {}
    for name in [n for n in options.only.split(",") if n] or WORKLOADS:
        found = measured(name)
        if isinstance(found, str):
            others[name] = found
            print(f"{name:24} {found}", flush=True)
        else:
            rows.append(found)
            print(f"{name:24} {found[1]:8} {found[2]:5.2f} {found[3]:9.3f} ms {found[4]:3}", flush=True)
    seconds = new_size()
    print(seconds)
    if options.write:
        rows.sort(key=lambda row: -row[2])
        path = Path(__file__).parent.with_name("SIZES.md")
        _, mark, kept = path.read_text().partition(BY_HAND)
        path.write_text(page(rows, others, seconds) + "\n" + mark + kept)


if __name__ == "__main__":
    main()
