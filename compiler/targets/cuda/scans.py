"""Running combinations: cumulative windows in one or two passes, the same bits on every run and for every grid.

A row goes to a block (a short one to a warp) in tiles of four elements a thread. The lanes of a warp combine theirs by
five shuffles, in order; warps pass their totals through shared memory, tiles through registers. Few long rows are cut
into groups: a first kernel combines each group, a second one goes through it again with what comes before. Columns need
no lanes: neighbouring threads have neighbouring columns.

Every step from one part to the next is (all before) + (all of the part), and all of a part is what its last element
has. So running sums of what is not negative never fall, whatever the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    cast,
    compared,
    constant,
    floor_divided,
    load,
    minus,
    operation,
    plus,
    times,
)
from hloom.compiler.kernel_ir.nodes import Expr, Scratch, Var
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.windows.reduce_window import ReduceWindow
from hloom.compiler.targets.cuda.codegen.source import barrier, from_shared, shared_array, shuffled, to_shared
from hloom.compiler.targets.cuda.launches import CudaLaunch, launch_of_windows
from hloom.ir.build import combiner_opcode
from hloom.ir.ops import OPS
from hloom.ir.types import HLO_NAME, PRED, compute_dtype

EACH = 4  # elements of a lane in a tile
WARP, BLOCK = 32, 256
WARP_ROW = 512  # rows up to this length are a warp's
GROUPS = 256  # of a row at most: the thread that puts the parts together reads them one by one
TILES = 4  # that a group has at least
COLUMN_GROUP = 64  # elements of a column that are worth a thread of their own
COLUMN_GROUPS = 64


def running_launches(made: ReduceWindow, dimension: int, reverse: bool, processors: int) -> list[CudaLaunch]:
    """The kernels of a running combination along a dimension of the window, `reverse` from its end."""
    extent = made.middle[dimension].extent
    below = math.prod(d.extent for d in made.middle[dimension + 1 :]) * made.inner
    rows = made.lead * made.plane * made.inner // extent
    known = len(made.arrays) == 1 and combiner_opcode(made.combiner) is not None
    wanted = 4 * processors
    if known and below == 1:
        lanes = WARP if extent <= WARP_ROW else BLOCK
        groups = min(GROUPS, -(-wanted // rows), extent // (TILES * EACH * lanes)) if rows < wanted else 1
        maker: _Rows | _Columns = _Rows(extent, rows, max(groups, 1), lanes, reverse, processors)
    else:
        threads = 128 * wanted
        groups = min(COLUMN_GROUPS, -(-threads // rows), extent // COLUMN_GROUP) if known and rows < threads else 1
        maker = _Columns(extent, rows // below, below, max(groups, 1), reverse, processors)
    if maker.groups == 1:
        return [maker.launch(made, last=True)]
    return [maker.launch(made.another(), last=False), maker.launch(made, last=True)]


def _registers(made: ReduceWindow) -> list[str]:
    return [HLO_NAME[PRED if a.dtype == PRED else compute_dtype(a.dtype)] for a in made.arrays]


class _Scan:
    def __init__(self, extent: int, rows: int, groups: int, reverse: bool, processors: int):
        self.extent, self.rows, self.groups = extent, rows, groups
        self.reverse, self.processors = reverse, processors

    def finished(self, made, kind, items, work, parts, **how) -> CudaLaunch:
        last = "part" not in kind
        arrays = {"part": (_registers(made)[0], parts)} if self.groups > 1 else {}
        return launch_of_windows(made, kind, items, work, self.processors, arrays=arrays, outputs=last, **how)

    def joined(self, made: ReduceWindow, block: Block, before: Expr, behind: Expr) -> Expr:
        """What comes before and what comes behind, combined in the order in which they are gone through."""
        (result,) = made.combined(block, made.combiner, [behind, before] if self.reverse else [before, behind])
        return result

    def join(self, made: ReduceWindow, block: Block, into: str, before: Expr, behind: Expr) -> None:
        block.let(into, self.joined(made, block, before, behind))

    def cut(self, made: ReduceWindow) -> tuple[Var, Var, Var]:
        """(elements of a row, the first, the end) of the group."""
        block = made.root
        extent = made.number("extent", self.extent)
        if self.groups > 1:
            groups, group = made.number("groups", self.groups), made.names["group"]
            start = block.let("start", floor_divided(times(extent, group), groups))
            stop = block.let("stop", floor_divided(times(extent, plus(group, ONE)), groups))
        else:
            start, stop = block.let("start", cast("s64", ZERO)), block.let("stop", extent)
        return extent, start, stop

    def row(self, made: ReduceWindow, item: Var) -> Var:
        """The row of an item, whose group in the row is `group` where there are several."""
        block = made.root
        if self.groups == 1:
            return block.let("row", item)
        groups = made.number("groups", self.groups)
        row = block.let("row", floor_divided(item, groups))
        block.let("group", minus(item, times(row, groups)))
        return row

    def neutral(self, made: ReduceWindow) -> Expr:
        dtype = made.arrays[0].dtype
        opcode = combiner_opcode(made.combiner)
        identity = OPS[opcode].identity if opcode else None
        assert identity is not None  # every op that `combiner_opcode` returns has one
        return literal(identity(dtype), dtype)


def _part(made: ReduceWindow) -> Var:
    """The memory of what each group is, combined."""
    return made.names.declare("part", f"*{_registers(made)[0]}")


class _Rows(_Scan):
    def __init__(self, extent: int, rows: int, groups: int, lanes: int, reverse: bool, processors: int):
        super().__init__(extent, rows, groups, reverse, processors)
        self.lanes = lanes

    def launch(self, made: ReduceWindow, last: bool) -> CudaLaunch:
        root, (kind,) = made.root, _registers(made)
        shared: list[Scratch] = []
        item, lane = made.writer.index("item"), made.writer.index("lane")
        self._begin(made, shared, kind, last)
        tile = made.names["tile"]
        block = root.repeat(compared("<", tile, made.names["stop"]))
        places = self._combine_tile(made, block, last)
        if self.lanes > WARP:
            self._between_warps(made, block, shared, kind, last)
        if last:
            self._store_tile(made, block, places)
        self.join(made, block, "carry", made.names["carry"], made.names["total"])
        block.increase(tile, constant(EACH * self.lanes))
        if not last:
            root.branch(compared("==", lane, ZERO)).store(_part(made), item, made.names["carry"])
        grain = "warp" if self.lanes == WARP else "block"
        items = self.rows * self.groups
        name = "running" if last else "running_part"
        return self.finished(
            made, name, items, self.extent * 4.0 / self.groups, items, grain=grain, shared=shared,
            threads=128 if grain == "warp" else BLOCK,
        )  # fmt: skip

    def _begin(self, made: ReduceWindow, shared: list[Scratch], kind: str, last: bool) -> None:
        """Where the row and its group begin, and what comes before the group."""
        block = made.root
        row = self.row(made, made.names["item"])
        extent, start, _ = self.cut(made)
        first: Expr = times(row, extent)
        block.let("first", minus(plus(first, extent), ONE) if self.reverse else first)
        if last:
            made.begin(block, ["before"])
            if self.groups > 1:
                shared.append(shared_array("parts", kind, GROUPS))
                self._put_together(made, shared[-1].var, kind)
        block.let("carry", self.neutral(made))
        block.let("tile", start)

    def _combine_tile(self, made: ReduceWindow, block: Block, last: bool) -> list[tuple[Expr, Expr]]:
        """Each lane's elements and those of the lanes of its warp before it; `total` becomes that of the warp. Returns
        for each element whether there is one, and its place."""
        (array,), numbers, names = made.arrays, range(EACH), made.names
        at = block.let("at", plus(names["tile"], times(names["lane"], constant(EACH))))
        neutral = self.neutral(made)
        places: list[tuple[Expr, Expr]] = []
        for k in numbers:
            block.let(f"e{k}", neutral)
            inside = compared("<", plus(at, constant(k)), names["stop"])
            first = names["first"]
            place = minus(first, plus(at, constant(k))) if self.reverse else plus(first, at, constant(k))
            block.branch(inside).let(f"e{k}", load(made.operand(array), place))
            places.append((inside, place))
        block.let("s0", names["e0"])
        for k in numbers[1:]:
            self.join(made, block, f"s{k}", names[f"s{k - 1}"], names[f"e{k}"])
        total = block.let("total", names[f"s{EACH - 1}"])
        for distance in (1, 2, 4, 8, 16):
            other = block.let("other", shuffled(total, distance))
            bit = operation("&", names["lane"], constant(distance))
            behind, before = block.branches(compared("!=", bit, ZERO))
            for k in numbers if last else ():
                self.join(made, behind, f"s{k}", other, names[f"s{k}"])
            self.join(made, behind, "total", other, total)
            self.join(made, before, "total", total, other)
        return places

    def _store_tile(self, made: ReduceWindow, block: Block, places: Sequence[tuple[Expr, Expr]]) -> None:
        """The results of a tile, with what comes before the tile and before the group."""
        names = made.names
        for k, (inside, place) in enumerate(places):
            stored = block.branch(inside)
            self.join(made, stored, f"s{k}", names["carry"], names[f"s{k}"])
            self.join(made, stored, f"s{k}", names["before"], names[f"s{k}"])
            made.write(stored, [f"s{k}"], place)

    def _between_warps(self, made: ReduceWindow, block: Block, shared: list[Scratch], kind: str, last: bool) -> None:
        """Puts the totals of the warps before in front of each element; the total becomes that of the block."""
        names = made.names
        lane, total = names["lane"], names["total"]
        shared.append(shared_array("box", kind, BLOCK // WARP))
        box = shared[-1].var
        own = operation(">>", lane, constant(5))
        first = block.branch(compared("==", operation("&", lane, constant(WARP - 1)), ZERO))
        first.store(box, own, to_shared(total))
        block.body.append(barrier())
        block.let("total", from_shared(load(box, ZERO), kind))
        warp, ahead = block.let("warp", ONE), block.let("ahead", total)
        following = block.repeat(compared("<", warp, constant(BLOCK // WARP)))
        following.branch(compared("==", warp, own)).let("ahead", total)
        self.join(made, following, "total", total, from_shared(load(box, warp), kind))
        following.increase(warp, ONE)
        block.body.append(barrier())
        if last:
            others = block.branch(compared("!=", own, ZERO))
            for k in range(EACH):
                self.join(made, others, f"s{k}", ahead, names[f"s{k}"])

    def _put_together(self, made: ReduceWindow, parts: Var, kind: str) -> None:
        """before = the initial value and all groups of the row before this one, one after the other."""
        block, names = made.root, made.names
        group = names["group"]
        p, inside = block.loop("p", names["lane"], group, constant(self.lanes))
        inside.store(parts, p, to_shared(load(_part(made), plus(minus(names["item"], group), p))))
        block.body.append(barrier())
        p, inside = block.loop("p", ZERO, group)
        self.join(made, inside, "before", names["before"], from_shared(load(parts, p), kind))
        block.body.append(barrier())


class _Columns(_Scan):
    """A thread for a column, or a group of its elements; any combiner, several arrays. `below`: columns of a row."""

    def __init__(self, extent: int, rows: int, below: int, groups: int, reverse: bool, processors: int):
        super().__init__(extent, rows, groups, reverse, processors)
        self.below = below

    def launch(self, made: ReduceWindow, last: bool) -> CudaLaunch:
        block, names, accumulators = made.root, made.names, made.accumulators
        item, width = made.writer.index("item"), made.number("below", self.below)
        rest = block.let("rest", floor_divided(item, width))
        column = block.let("column", minus(item, times(rest, width)))
        row = self.row(made, rest)
        extent, start, stop = self.cut(made)
        corner: Expr = times(row, extent)
        corner = minus(plus(corner, extent), ONE) if self.reverse else corner
        first = block.let("first", plus(times(corner, width), column))
        if self.groups > 1:
            block.let("a0", self.neutral(made))
        else:
            made.begin(block, accumulators)
        if last and self.groups > 1:
            made.begin(block, ["before"])
            group = names["group"]
            p, inside = block.loop("p", ZERO, group)
            place = plus(times(plus(minus(rest, group), p), width), column)
            self.join(made, inside, "before", names["before"], inside.let("joined", load(_part(made), place)))
        x, inside = block.loop("x", start, stop)
        at = inside.let("at", operation("-" if self.reverse else "+", first, times(x, width)))
        if self.groups > 1:
            value = inside.let("e0", load(made.operand(made.arrays[0]), at))
            self.join(made, inside, "a0", names["a0"], value)
        else:
            made.take(inside, accumulators, at, self.reverse)
        if last and self.groups > 1:
            inside.store(made.output(0), at, self.joined(made, inside, names["before"], names["a0"]))
        elif last:
            made.write(inside, accumulators, at)
        items = self.rows * self.groups * self.below
        if not last:
            block.store(_part(made), item, names["a0"])
        name = "running_columns" if last else "running_columns_part"
        return self.finished(made, name, items, self.extent * 4.0 / self.groups, items, grain="serial")
