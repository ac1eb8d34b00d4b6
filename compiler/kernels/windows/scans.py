"""Scans: cumulative windows, with as many steps as the array has elements.

A few long rows are cut into groups, and a group into dependence chains that are combined side by side, as a single one
would wait for its last addition. The first kernel combines each chain alone; the second walks them again, starting with
what comes before: before[k + 1] = before[k] + (all of chain k), in the chain's own order. So the step from one chain to
the next is one more element, and prefix sums of non-negative numbers never fall. How rows are cut depends on their
length only, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.windows.reduce_window import ReduceWindow
from hloom.ir.build import combiner_opcode
from hloom.ir.sizes.guards import typical
from hloom.ir.types import HLO_NAME, PRED, compute_dtype

ROWS = 16  # so many rows keep every core busy; fewer long rows are cut
GROUP = 16384  # elements at least that are worth a work item of their own
GROUPS = 64  # at most so many of a row: each puts the parts before its own together
CHAINS = 8  # additions in flight: the latency of one, 4 cycles, times two per cycle
TOGETHER = 4  # rows side by side, for the same reason; their lines fit in the ways of a set of the first cache
COLUMNS = 256  # of a chunk at least: a memory page is touched for so many of its elements
BLOCK = 512  # columns whose accumulators are kept beside each other
STEPS = 4  # rows of columns that are read, and written, at a time: so many streams keep memory busy


def running_launches(made: ReduceWindow, dimension: int, reverse: bool) -> list[Launch]:
    """The kernels of a scan along a dimension of the window, `reverse` from its end."""
    extent = made.middle[dimension].extent
    below = math.prod(d.extent for d in made.middle[dimension + 1 :]) * made.inner
    rows = made.lead * made.plane * made.inner // extent
    if below > 1:
        return [_columns(made, extent, below, reverse)]
    if rows < ROWS and extent >= 2 * GROUP and len(made.arrays) == 1 and combiner_opcode(made.combiner):
        groups = min(GROUPS, extent // GROUP)
        return [
            _chains(each, extent, rows, groups, reverse, last) for each, last in ((made.another(), False), (made, True))
        ]
    return [_rows(made, extent, reverse)]


def _rows(made: ReduceWindow, extent: int, reverse: bool) -> Launch:
    """An item is a row along the dimension, whose accumulators run through all of it. Several rows go side by side; the
    last one again where fewer are left, so that a row's bits do not depend on the chunk it is in."""
    text = made.text
    text.number("extent", extent)
    rows = range(TOGETHER)
    text.open(f"for item in range(lo, hi, {TOGETHER}):")
    names = [[f"a{k}_{r}" for k in range(len(made.arrays))] for r in rows]
    for r in rows:
        text.add(f"first{r} = min(item + {r}, hi - 1) * extent")
        for name, start in zip(names[r], made.initial, strict=True):
            text.add(f"{name} = {made.scalar(start)}")
    text.open("for x in range(extent):")
    text.add(f"at = {'extent - 1 - x' if reverse else 'x'}")
    for r in rows:
        made.take(names[r], f"first{r} + at", reverse)
    for r in rows:
        _write(made, names[r], f"first{r} + at")
    return made.finished("running", made.lead * made.plane * made.inner // extent, typical(extent) * 4.0, TOGETHER)


def _columns(made: ReduceWindow, extent: int, below: int, reverse: bool) -> Launch:
    """An item is a column, but the columns of a chunk go side by side along their rows, some rows at a time: the
    accumulators of a block of columns stay in the first cache."""
    text, sign = made.text, "-" if reverse else "+"
    text.number("extent", extent)
    text.number("below", below)
    kept = [f"kept{k}" for k in range(len(made.arrays))]
    for name, array in zip(kept, made.arrays, strict=True):
        text.add(f"{name} = scratch_{HLO_NAME[array.dtype]}({BLOCK})")
    text.open("for row in range(lo // below, (hi - 1) // below + 1):")
    text.add("left = max(lo - row * below, 0)", "right = min(hi - row * below, below)")
    text.add(f"first = row * extent * below{' + (extent - 1) * below' if reverse else ''}")
    text.open(f"for begin in range(left, right, {BLOCK}):")
    text.add(f"end = min(begin + {BLOCK}, right)")

    def rows(count: int, accumulators: list[str]) -> None:
        """The loop over the columns of `count` rows from row x on."""
        text.add(*[f"at{r} = first {sign} (x + {r}) * below" for r in range(count)])
        text.open("for c in range(begin, end):")
        text.add(*[f"{name} = {start}" for name, start in zip(made.names, accumulators, strict=True)])
        for r in range(count):
            made.take(made.names, f"at{r} + c", reverse)
            _write(made, made.names, f"at{r} + c", streamed=True)
        for name, scratch, array in zip(made.names, kept, made.arrays, strict=True):
            text.add(store(scratch, "c - begin", array.dtype, name))
        text.depth -= 1

    before = [load(name, "c - begin", array.dtype) for name, array in zip(kept, made.arrays, strict=True)]
    text.add("x = 0")
    rows(1, [made.scalar(start) for start in made.initial])
    text.add(f"whole = 1 + (extent - 1) // {STEPS} * {STEPS}")
    for header, count in ((f"for x in range(1, whole, {STEPS}):", STEPS), ("for x in range(whole, extent):", 1)):
        text.open(header)
        rows(count, before)
        text.depth -= 1
    items = made.lead * made.plane * made.inner // extent
    return made.finished("running_rows", items, typical(extent) * 1.0, min(COLUMNS, below))


def _write(made: ReduceWindow, names: list[str], at: str, streamed: bool = False) -> None:
    """Stores the accumulators. streamed: by non-temporal stores, if the kernel has them."""
    request = made.request
    for k, (name, array) in enumerate(zip(names, made.arrays, strict=True)):
        made.text.add(store(request.output_name(k), at, array.dtype, name, streamed and request.streamed(k)))


def _chains(made: ReduceWindow, extent: int, rows: int, groups: int, reverse: bool, last: bool) -> Launch:
    """An item is a group of a row. `last`: the second kernel, which writes the result, else the first."""
    text, (array,) = made.text, made.arrays
    dtype = array.dtype
    wide = PRED if dtype == PRED else compute_dtype(dtype)
    source, out = made.request.names[array], made.request.output_name(0)
    numbers = range(CHAINS)

    def combine(into: str, before: str, behind: str) -> None:
        made.combine([into], [behind, before] if reverse else [before, behind])

    def element(chain: int, at: str) -> None:
        text.add(f"e{chain} = {load(source, at, dtype)}")
        combine(f"a{chain}", f"a{chain}", f"e{chain}")
        write(chain, at)

    def write(chain: int, at: str) -> None:
        if last:
            combine(f"v{chain}", f"before{chain}", f"a{chain}")
            text.add(store(out, at, dtype, f"v{chain}"))

    text.number("extent", extent)
    text.number("groups", groups)
    text.open("for item in range(lo, hi):")
    text.add("row = item // groups", "group = item - row * groups")
    text.add("start = extent * group // groups", "count = extent * (group + 1) // groups - start")
    text.add(f"length = count // {CHAINS}")
    sign = "-" if reverse else "+"
    text.add(f"first = row * extent + {'extent - 1 - start' if reverse else 'start'}")
    if last:
        text.add(f"before0 = {made.scalar(made.initial[0])}")
        text.open(f"for p in range(row * groups * {CHAINS}, item * {CHAINS}):")
        text.add(f"joined = {load('part', 'p', wide)}")
        combine("before0", "before0", "joined")
        text.depth -= 1
        for k in numbers[1:]:
            text.add(f"joined = {load('part', f'item * {CHAINS} + {k - 1}', wide)}")
            combine(f"before{k}", f"before{k - 1}", "joined")
    for k in numbers:
        text.add(f"at{k} = first {sign} {k} * length")
        text.add(f"a{k} = {load(source, f'at{k}', dtype)}")
        write(k, f"at{k}")
    text.open("for x in range(1, length):")
    for k in numbers:
        element(k, f"at{k} {sign} x")
    text.depth -= 1
    end = CHAINS - 1  # the last chain has what does not divide by the number of them
    text.open(f"for x in range(length * {CHAINS}, count):")
    element(end, f"first {sign} x")
    text.depth -= 1
    if not last:
        for k in numbers:
            text.add(store("part", f"item * {CHAINS} + {k}", wide, f"a{k}"))
    parts = {"part": (wide, rows * groups * CHAINS)}
    kind = "running_chains" if last else "running_parts"
    return made.finished(kind, rows * groups, extent * 4.0 / groups, parts=parts, outputs=last)
