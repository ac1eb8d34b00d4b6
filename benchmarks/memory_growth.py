"""How much memory a process takes that compiles 20,000 shapes of one function, 3,000 functions, and calls one a million
times: `python benchmarks/memory_growth.py shapes|functions|calls [count]`. Linux.

Prints resident megabytes and mappings on the way, and after `hl.clear_caches()`. Ends with 1 where they pass 300 MB, or
where calls take more memory at the end than after the first tenth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np

import hloom as hl
import hloom.numpy as hnp

LIMIT = 300 << 20
SLACK = 2 << 20  # what calls may take more at the end
STEPS = 10


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def mappings() -> int:
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


def shapes(count: int) -> Iterator[None]:
    """One function, each time with another shape."""
    function = hl.jit(lambda x: x * 2.0 + 1.0)
    for size in range(1, count + 1):
        function(np.ones(size, np.float32))
        yield


def functions(count: int) -> Iterator[None]:
    """Another function each time, which is gone after its call; nothing is taken from the disk."""
    hl.config.cache_dir = ""
    x = np.ones(64, np.float32)
    for number in range(count):
        hl.jit(lambda x, number=number: hnp.sin(x * (number + 0.5)) + number / 7)(x)
        yield


def calls(count: int) -> Iterator[None]:
    """One function with one shape."""
    function = hl.jit(lambda x: x * 2.0 + 1.0)
    x, y = hnp.ones(64), np.ones(64, np.float32)
    for _ in range(count // 2):
        function(x)
        yield
        function(y)
        yield


CASES: dict[str, tuple[Callable[[int], Iterator[None]], int]] = {
    "shapes": (shapes, 20_000),
    "functions": (functions, 3_000),
    "calls": (calls, 1_000_000),
}


def main(name: str, count: str | None = None) -> int:
    """Runs a case; the exit code."""
    case, default = CASES[name]
    total = int(count or default)
    sizes = []
    for done, _ in enumerate(case(total), 1):
        if done % (total // STEPS) == 0:
            sizes.append(resident())
            print(f"{name} {done}: {sizes[-1] >> 20} MB, {mappings()} mappings", flush=True)
    hl.clear_caches()
    print(f"after clear_caches(): {resident() >> 20} MB, {mappings()} mappings")
    grew = name == "calls" and sizes[-1] > sizes[0] + SLACK
    return int(max(sizes) > LIMIT or grew)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
