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

from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.windows.reduce_window import ReduceWindow
from hloom.compiler.targets.cuda.codegen.render import shared_type, through_shared
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

    def joined(self, made: ReduceWindow, before: str, behind: str) -> str:
        """The expression of what comes before and what comes behind, in the order in which they are gone through."""
        arguments = [behind, before] if self.reverse else [before, behind]
        (result,) = made.combined(made.combiner, arguments)
        return result

    def join(self, made: ReduceWindow, into: str, before: str, behind: str) -> None:
        made.text.add(f"{into} = {self.joined(made, before, behind)}")

    def cut(self, made: ReduceWindow) -> None:
        text = made.text
        text.number("extent", self.extent)
        if self.groups > 1:
            groups = text.number("groups", self.groups)
            text.add(f"start = extent * group // {groups}", f"stop = extent * (group + 1) // {groups}")
        else:
            text.add("start = s64(0)", "stop = extent")

    def neutral(self, made: ReduceWindow) -> str:
        dtype = made.arrays[0].dtype
        opcode = combiner_opcode(made.combiner)
        identity = OPS[opcode].identity if opcode else None
        assert identity is not None  # every op that `combiner_opcode` returns has one
        return str(literal(identity(dtype), dtype))


class _Rows(_Scan):
    def __init__(self, extent: int, rows: int, groups: int, lanes: int, reverse: bool, processors: int):
        super().__init__(extent, rows, groups, reverse, processors)
        self.lanes = lanes

    def launch(self, made: ReduceWindow, last: bool) -> CudaLaunch:
        text, (array,) = made.text, made.arrays
        dtype, (kind,) = array.dtype, _registers(made)
        shared: dict[str, str] = {}
        self._begin(made, shared, kind, last)
        text.open("while tile < stop:")
        self._combine_tile(made, last)
        if self.lanes > WARP:
            self._between_warps(made, shared, kind, last)
        if last:
            self._store_tile(made)
        self.join(made, "carry", "carry", "total")
        text.add(f"tile += {EACH * self.lanes}")
        text.depth = 0
        if not last:
            text.open("if lane == 0:")
            text.add(store("part", "item", PRED if kind == "pred" else compute_dtype(dtype), "carry"))
        grain = "warp" if self.lanes == WARP else "block"
        items = self.rows * self.groups
        name = "running" if last else "running_part"
        return self.finished(
            made, name, items, self.extent * 4.0 / self.groups, items, grain=grain, shared=shared,
            threads=128 if grain == "warp" else BLOCK,
        )  # fmt: skip

    def _begin(self, made: ReduceWindow, shared: dict[str, str], kind: str, last: bool) -> None:
        """Where the row and its group begin, and what comes before the group."""
        text = made.text
        if self.groups > 1:
            groups = text.number("groups", self.groups)
            text.add(f"row = item // {groups}", f"group = item - row * {groups}")
        else:
            text.add("row = item")
        self.cut(made)
        text.add("first = row * extent" + (" + extent - 1" if self.reverse else ""))
        if last:
            text.add(f"before = {made.scalar(made.initial[0])}")
            if self.groups > 1:
                shared["parts"] = f"cuda.shared.array({GROUPS}, {shared_type(kind)})"
                self._put_together(made, kind)
        text.add(f"carry = {self.neutral(made)}", "tile = start")

    def _combine_tile(self, made: ReduceWindow, last: bool) -> None:
        """Each lane's elements and those of the lanes of its warp before it; `total` becomes that of the warp."""
        text, (array,), neutral, numbers = made.text, made.arrays, self.neutral(made), range(EACH)
        text.add(f"at = tile + lane * {EACH}")
        for k in numbers:
            text.add(f"e{k} = {neutral}")
            text.open(f"if at + {k} < stop:")
            text.add(f"e{k} = {load(made.request.names[array], self._place(k), array.dtype)}")
            text.depth -= 1
        text.add("s0 = e0")
        for k in numbers[1:]:
            self.join(made, f"s{k}", f"s{k - 1}", f"e{k}")
        text.add(f"total = s{EACH - 1}")
        for distance in (1, 2, 4, 8, 16):
            text.add(f"other = shuffle_xor(total, {distance})")
            text.open(f"if lane & {distance} != 0:")
            for k in numbers if last else ():
                self.join(made, f"s{k}", "other", f"s{k}")
            self.join(made, "total", "other", "total")
            text.depth -= 1
            text.open("else:")
            self.join(made, "total", "total", "other")
            text.depth -= 1

    def _store_tile(self, made: ReduceWindow) -> None:
        """The results of a tile, with what comes before the tile and before the group."""
        text = made.text
        for k in range(EACH):
            text.open(f"if at + {k} < stop:")
            self.join(made, f"s{k}", "carry", f"s{k}")
            self.join(made, f"s{k}", "before", f"s{k}")
            text.add(store(made.request.output_name(0), self._place(k), made.arrays[0].dtype, f"s{k}"))
            text.depth -= 1

    def _place(self, k: int) -> str:
        return f"first - (at + {k})" if self.reverse else f"first + at + {k}"

    def _between_warps(self, made: ReduceWindow, shared, kind: str, last: bool) -> None:
        """Puts the totals of the warps before in front of each element; the total becomes that of the block."""
        text = made.text
        shared["box"] = f"cuda.shared.array({BLOCK // WARP}, {shared_type(kind)})"
        value, read = through_shared(kind)
        text.open("if lane & 31 == 0:")
        text.add(f"box[lane >> 5] = {value.format('total')}")
        text.depth -= 1
        text.add("cuda.syncthreads()", f"total = {read.format('box[0]')}", "warp = 1", "ahead = total")
        text.open(f"while warp < {BLOCK // WARP}:")
        text.open("if warp == lane >> 5:")
        text.add("ahead = total")
        text.depth -= 1
        self.join(made, "total", "total", read.format("box[warp]"))
        text.add("warp += 1")
        text.depth -= 1
        text.add("cuda.syncthreads()")
        if last:
            text.open("if lane >> 5 != 0:")
            for k in range(EACH):
                self.join(made, f"s{k}", "ahead", f"s{k}")
            text.depth -= 1

    def _put_together(self, made: ReduceWindow, kind: str) -> None:
        """before = the initial value and all groups of the row before this one, one after the other."""
        text = made.text
        value, read = through_shared(kind)
        wide = PRED if kind == "pred" else compute_dtype(made.arrays[0].dtype)
        text.open("for p in range(lane, group, lanes):".replace("lanes", str(self.lanes)))
        text.add(f"parts[p] = {value.format(load('part', 'item - group + p', wide))}")
        text.depth -= 1
        text.add("cuda.syncthreads()")
        text.open("for p in range(group):")
        self.join(made, "before", "before", read.format("parts[p]"))
        text.depth -= 1
        text.add("cuda.syncthreads()")


class _Columns(_Scan):
    """A thread for a column, or a group of its elements; any combiner, several arrays. `below`: columns of a row."""

    def __init__(self, extent: int, rows: int, below: int, groups: int, reverse: bool, processors: int):
        super().__init__(extent, rows, groups, reverse, processors)
        self.below = below

    def launch(self, made: ReduceWindow, last: bool) -> CudaLaunch:
        text, arrays = made.text, made.arrays
        kinds = _registers(made)
        names = [f"a{k}" for k in range(len(arrays))]
        below = text.number("below", self.below)
        text.add(f"rest = item // {below}", f"column = item - rest * {below}")
        if self.groups > 1:
            groups = text.number("groups", self.groups)
            text.add(f"row = rest // {groups}", f"group = rest - row * {groups}")
        else:
            text.add("row = rest")
        self.cut(made)
        text.add("first = (row * extent" + (" + extent - 1" if self.reverse else "") + f") * {below} + column")
        if self.groups > 1:
            text.add(f"a0 = {self.neutral(made)}")
        else:
            for name, start in zip(names, made.initial, strict=True):
                text.add(f"{name} = {made.scalar(start)}")
        if last and self.groups > 1:
            wide = PRED if kinds[0] == "pred" else compute_dtype(arrays[0].dtype)
            text.add(f"before = {made.scalar(made.initial[0])}")
            text.open("for p in range(group):")
            text.add(f"joined = {load('part', f'(rest - group + p) * {below} + column', wide)}")
            self.join(made, "before", "before", "joined")
            text.depth -= 1
        text.open("for x in range(start, stop):")
        text.add(f"at = first {'-' if self.reverse else '+'} x * {below}")
        values = [f"e{k}" for k in range(len(arrays))]
        for value, array in zip(values, arrays, strict=True):
            text.add(f"{value} = {load(made.request.names[array], 'at', array.dtype)}")
        if self.groups > 1:
            self.join(made, "a0", "a0", "e0")
        else:
            made.combine(names, [*values, *names] if self.reverse else [*names, *values])
        for k, array in enumerate(arrays):
            if last:
                result = self.joined(made, "before", names[k]) if self.groups > 1 else names[k]
                text.add(store(made.request.output_name(k), "at", array.dtype, result))
        text.depth -= 1
        items = self.rows * self.groups * self.below
        if not last:
            wide = PRED if kinds[0] == "pred" else compute_dtype(arrays[0].dtype)
            text.add(store("part", "item", wide, "a0"))
        name = "running_columns" if last else "running_columns_part"
        return self.finished(made, name, items, self.extent * 4.0 / self.groups, items, grain="serial")
