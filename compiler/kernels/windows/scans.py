"""Scans: cumulative windows, with as many steps as the array has elements.

A few long rows are cut into groups, and a group into dependence chains that are combined side by side, as a single one
would wait for its last addition. The first kernel combines each chain alone; the second walks them again, starting with
what comes before: before[k + 1] = before[k] + (all of chain k), in the chain's own order. So the step from one chain to
the next is one more element, and prefix sums of non-negative numbers never fall. How rows are cut depends on their
length only, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import math

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    constant,
    floor_divided,
    greatest,
    least,
    load,
    minus,
    operation,
    plus,
    times,
)
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernels.codegen.description import Block
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
    length, end = made.number("extent", extent), made.writer.index("hi")
    item, block = made.items(constant(TOGETHER))
    names = [[f"a{k}_{r}" for k in range(len(made.arrays))] for r in range(TOGETHER)]
    firsts = []
    for r, accumulators in enumerate(names):
        row = least(plus(item, constant(r)), minus(end, ONE))
        firsts.append(block.let(f"first{r}", times(row, length)))
        made.begin(block, accumulators)
    x, block = block.loop("x", ZERO, length)
    at = block.let("at", minus(minus(length, ONE), x) if reverse else x)
    for first, accumulators in zip(firsts, names, strict=True):
        made.take(block, accumulators, plus(first, at), reverse)
    for first, accumulators in zip(firsts, names, strict=True):
        made.write(block, accumulators, plus(first, at))
    return made.finished("running", made.lead * made.plane * made.inner // extent, typical(extent) * 4.0, TOGETHER)


def _columns(made: ReduceWindow, extent: int, below: int, reverse: bool) -> Launch:
    """An item is a column, but the columns of a chunk go side by side along their rows, some rows at a time: the
    accumulators of a block of columns stay in the first cache."""
    root, length, width = made.root, made.number("extent", extent), made.number("below", below)
    lo, hi = made.writer.index("lo"), made.writer.index("hi")
    kept = [root.scratch(f"kept{k}", HLO_NAME[array.dtype], BLOCK) for k, array in enumerate(made.arrays)]
    row, block = root.loop("row", floor_divided(lo, width), plus(floor_divided(minus(hi, ONE), width), ONE))
    left = block.let("left", greatest(minus(lo, times(row, width)), ZERO))
    right = block.let("right", least(minus(hi, times(row, width)), width))
    corner: Expr = times(times(row, length), width)
    first = block.let("first", plus(corner, times(minus(length, ONE), width)) if reverse else corner)
    begin, block = block.loop("begin", left, right, constant(BLOCK))
    end = block.let("end", least(plus(begin, constant(BLOCK)), right))

    def rows(block: Block, x: Var, count: int, started: bool) -> None:
        """The loop over the columns of `count` rows from row x on. started: whether there are rows before."""
        places = []
        for r in range(count):
            down = times(plus(x, constant(r)), width)
            places.append(block.let(f"at{r}", operation("-" if reverse else "+", first, down)))
        column, inside = block.loop("c", begin, end)
        place = minus(column, begin)
        if started:
            for name, memory in zip(made.accumulators, kept, strict=True):
                inside.let(name, load(memory, place))
        else:
            made.begin(inside, made.accumulators)
        for at in places:
            made.take(inside, made.accumulators, plus(at, column), reverse)
            made.write(inside, made.accumulators, plus(at, column), streamed=True)
        for name, memory in zip(made.accumulators, kept, strict=True):
            inside.store(memory, place, made.names[name])

    rows(block, block.let("x", ZERO), 1, started=False)
    steps = constant(STEPS)
    whole = block.let("whole", plus(ONE, times(floor_divided(minus(length, ONE), steps), steps)))
    x, inside = block.loop("x", ONE, whole, steps)
    rows(inside, x, STEPS, started=True)
    x, inside = block.loop("x", whole, length)
    rows(inside, x, 1, started=True)
    items = made.lead * made.plane * made.inner // extent
    return made.finished("running_rows", items, typical(extent) * 1.0, min(COLUMNS, below))


def _chains(made: ReduceWindow, extent: int, rows: int, groups: int, reverse: bool, last: bool) -> Launch:
    """An item is a group of a row. `last`: the second kernel, which writes the result, else the first."""
    (array,) = made.arrays
    source, names = made.operand(array), made.names
    wide = PRED if array.dtype == PRED else compute_dtype(array.dtype)
    numbers = range(CHAINS)
    chains, away = constant(CHAINS), "-" if reverse else "+"

    def combine(block: Block, into: str, before: str, behind: str) -> None:
        made.combine(block, [into], [names[name] for name in ((behind, before) if reverse else (before, behind))])

    def element(block: Block, chain: int, at: Expr) -> None:
        block.let(f"e{chain}", load(source, at))
        combine(block, f"a{chain}", f"a{chain}", f"e{chain}")
        write(block, chain, at)

    def write(block: Block, chain: int, at: Expr) -> None:
        if last:
            combine(block, f"v{chain}", f"before{chain}", f"a{chain}")
            made.write(block, [f"v{chain}"], at)

    length, count_of = made.number("extent", extent), made.number("groups", groups)
    item, block = made.items()
    row = block.let("row", floor_divided(item, count_of))
    group = block.let("group", minus(item, times(row, count_of)))
    start = block.let("start", floor_divided(times(length, group), count_of))
    stop = floor_divided(times(length, plus(group, ONE)), count_of)
    count = block.let("count", minus(stop, start))
    part_length = block.let("length", floor_divided(count, chains))
    corner = times(row, length)
    first = block.let("first", minus(minus(plus(corner, length), ONE), start) if reverse else plus(corner, start))
    if last:
        made.begin(block, ["before0"])
        part = made.writer.pointer("part", wide)
        p, inside = block.loop("p", times(times(row, count_of), chains), times(item, chains))
        inside.let("joined", load(part, p))
        combine(inside, "before0", "before0", "joined")
        for k in numbers[1:]:
            block.let("joined", load(part, plus(times(item, chains), constant(k - 1))))
            combine(block, f"before{k}", f"before{k - 1}", "joined")
    places = []
    for k in numbers:
        at = block.let(f"at{k}", operation(away, first, times(constant(k), part_length)))
        places.append(at)
        block.let(f"a{k}", load(source, at))
        write(block, k, at)
    x, inside = block.loop("x", ONE, part_length)
    for k in numbers:
        element(inside, k, operation(away, places[k], x))
    # The last chain has what does not divide by the number of them.
    x, inside = block.loop("x", times(part_length, chains), count)
    element(inside, CHAINS - 1, operation(away, first, x))
    if not last:
        part = made.writer.pointer("part", wide)
        for k in numbers:
            block.store(part, plus(times(item, chains), constant(k)), names[f"a{k}"])
    parts = {"part": (wide, rows * groups * CHAINS)}
    kind = "running_chains" if last else "running_parts"
    return made.finished(kind, rows * groups, extent * 4.0 / groups, parts=parts, outputs=last)
