"""Doubling a linear program at most doubles its cost: families of `support/linear_programs.py`, through native doors.

    python tests/complexity.py [--count 60] [--doors native hlo stablehlo] [--write] [FAMILY ...]

For each family, forward and gradient, at `count` and twice that: processor time of the first call (less the best of the
further calls), the largest kernel's lines, and processor time of a call. A row is marked where doubling costs more than
LIMIT times as much. --write puts the table of the run into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:1] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

import linear_programs  # noqa: E402  after the paths
import numpy as np  # noqa: E402

import hloom as hl  # noqa: E402

LIMIT = 2.2
NOISE = 0.1  # seconds that are not compared
CALLS = 5
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
SECTION = re.compile(r"\n<!-- complexity -->.*<!-- end of complexity -->\n", re.DOTALL)


def native(function, arguments) -> Callable[[], object]:
    compiled = hl.jit(function)
    return lambda: compiled(*arguments)


def hlo(function, arguments) -> Callable[[], object]:
    """The program as text, read again."""
    text = hl.jit(function).lower(*arguments).as_text()
    compiled, leaves = hl.jit(hl.from_hlo(text)), hl.tree.leaves(arguments)
    return lambda: compiled(*leaves)


def stablehlo(function, arguments) -> Callable[[], object]:
    """The program as StableHLO, the form in which jax hands over programs."""
    text = str(hl.jit(function).lower(*arguments).as_text("stablehlo"))
    compiled, leaves = hl.jit(hl.from_stablehlo(text)), hl.tree.leaves(arguments)
    return lambda: compiled(*leaves)


DOORS = {"native": native, "hlo": hlo, "stablehlo": stablehlo}


def measured(door, function, arguments) -> tuple[float, float]:
    """Processor seconds of the first call beyond those of another, and of another."""
    gc.collect()
    start = time.process_time()
    call = door(function, arguments)
    call()
    first, others = time.process_time() - start, []
    for _ in range(CALLS):
        start = time.process_time()
        call()
        others.append(time.process_time() - start)
    return max(0.0, first - min(others)), min(others)


def rows(names: list[str], doors: list[str], count: int) -> Iterator[tuple]:
    for name in names:
        for gradient in (False, True) if name in linear_programs.SMOOTH else (False,):
            for door in doors:
                measured(DOORS[door], *linear_programs.program(name, 16, gradient))
                once, twice = (
                    measured(DOORS[door], *linear_programs.program(name, n, gradient)) for n in (count, 2 * count)
                )
                yield name, gradient, door, once, twice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--doors", nargs="*", default=["native"], choices=DOORS)
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    options = parser.parse_args()
    lines = [
        "| family | door | compile, s | twice | call, ms | twice | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    print(*lines, sep="\n")
    worse = 0
    with hl.config(cache_dir=""):
        for name, gradient, door, once, twice in rows(
            options.families or [*linear_programs.FAMILIES], options.doors, options.count
        ):
            over = any(b > LIMIT * a + NOISE for a, b in zip(once, twice, strict=True))
            worse += over
            title = f"gradient of {name}" if gradient else name
            cells = f"{once[0]:.2f} | {twice[0]:.2f} | {once[1] * 1e3:.3f} | {twice[1] * 1e3:.3f}"
            lines.append(f"| {title} | {door} | {cells} | {'over' if over else ''} |")
            print(lines[-1], flush=True)
    print(f"\n{worse} over {LIMIT} times", file=sys.stderr)
    if options.write:
        write(lines, options.count, worse)


def write(lines: list[str], count: int, worse: int) -> None:
    text = "\n".join(
        [
            "",
            "<!-- complexity -->",
            "## Doubled programs",
            "",
            f"Made by `python tests/complexity.py --write` on {datetime.date.today()}: families of programs of {count} "
            f"and {2 * count} parts, forward and gradient, in processor time. {worse} of {len(lines) - 2} cost more "
            f"than {LIMIT} times as much when doubled; differences below {NOISE} s do not count.",
            "",
            *lines,
            "<!-- end of complexity -->",
            "",
        ]
    )
    page = SECTION.sub("", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page.rstrip("\n") + "\n" + text, encoding="utf-8")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
