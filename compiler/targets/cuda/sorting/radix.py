"""sort of long rows by known keys: stable passes over digits, the least significant one first, on an order of places.

A key becomes an unsigned integer with the key's order, which goes along with the place of its element, so that only the
first pass of a key reads operands; elements are moved once at the end. A pass has three kernels: a block counts the
digits of its tile, the counts are added up over tiles, and a block puts its tile in order in shared memory and writes
runs of equal digits, so that neighbouring threads mostly have neighbouring addresses. Lanes of a warp with equal digits
find each other by a ballot for each bit, so ranks follow from places alone and no atomics are needed.

Sources: N. Satish, M. Harris, M. Garland, Designing efficient sorting algorithms for manycore GPUs, IPDPS 2009 (counts
by tile, ordering in shared memory); D. Merrill, A. Grimshaw, High performance and scalable radix sorting, Parallel
Processing Letters 21, 2011 (reduce, scan, scatter); ranks by ballots are those of NVIDIA's CUB.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from hloom.compiler.kernel_ir.builder import (
    ZERO,
    both,
    call,
    cast,
    chosen,
    compared,
    constant,
    element,
    least,
    load,
    part,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Call, Const, Expr, Scratch, Store, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.targets.cuda.codegen.source import WARP, barrier, shared_array, shuffled, warp_barrier
from hloom.compiler.targets.cuda.launches import CudaLaunch
from hloom.compiler.targets.cuda.sorting.bitonic import Sort, index
from hloom.ir.ops.indexing.sort import Key, sort_keys
from hloom.ir.records import record
from hloom.ir.types import COMPLEX, FLOATS, HLO_NAME, PRED

TOGETHER = 5  # blocks on a multiprocessor: 48 registers a thread, and what has room in 227 KiB of shared memory
SCANNED = 4  # counts of a thread in a step of the scan
WARP_SCAN = 512  # tiles of a row up to which a warp adds up the counts of a digit


@record(frozen=True)
class Ordinal:
    """A key as an unsigned integer of `bits` bits; `make` writes it, `key`, of the element at a place of the row."""

    bits: int
    make: Callable[[Block, Var], object]

    @property
    def width(self) -> int:
        return width_of(self.bits)


def width_of(bits: int) -> int:
    """Bits of the dtype that a key of so many bits is kept in: u8, u16, u32 or u64."""
    return max(8, 1 << (bits - 1).bit_length())


class RadixSort(Sort):
    """A sort whose rows go by digits. keys: empty where it cannot: rows that fit a chunk, comparators without keys.

    digit: bits of a digit. Of 8 because a pass moves as many bytes whatever its digits, so 4 bits would take twice the
        time; 256 counts for each of 8 warps are 8 KiB of shared memory, and 8 ballots for 32 elements are little beside
        the 22 bytes that each of them moves. 1 << digit is at most `threads`.
    threads: of a block. kept: bytes of keys of a tile in shared memory: 4096 elements of 32 bits, 2048 of 64 bits, so
        that a digit has runs of 64 bytes on average. With places and counts that is 41 KiB at most.
    """

    digit = 8
    threads = 256
    kept = 16384

    def set_rows(self, count: int, below: int, rows: int) -> None:
        super().set_rows(count, below, rows)
        self.keys = (self.ordinals() or []) if self.width > self.chunk else []
        if not self.keys:
            return
        self.bins, self.warps = 1 << self.digit, self.threads // WARP
        self.key_bytes = max(key.width for key in self.keys) // 8
        self.each = self.kept // (max(self.key_bytes, 4) * self.threads)
        self.tile = self.threads * self.each
        self.tiles = -(-count // self.tile)
        self.width = count
        self.integers |= {"width": count, "tiles": self.tiles}

    def passes_of(self, key: Ordinal) -> int:
        return -(-key.bits // self.digit)

    def passes_launches(self) -> int:
        """How many launches the passes take to find the order."""
        return sum(map(self.passes_of, self.keys)) * (3 if self.tiles > 1 else 2)

    def ordinals(self) -> list[Ordinal] | None:
        """The keys, the most important one first; None where the comparator has none."""
        keys = sort_keys(self.instruction["to_apply"])
        return [self._ordinal(key) for key in keys] if keys else None

    def _ordinal(self, key: Key) -> Ordinal:
        operand = self.instruction.operands[key.operand]
        pointer, dtype = self.request.names[operand], operand.dtype
        is_complex = dtype in COMPLEX
        own = np.dtype(f"f{dtype.itemsize // 2}") if is_complex else dtype

        def make(block: Block, place: Var) -> None:
            value = load(block.names[pointer], self.element(block, place))
            write_ordinal(block, key, part(value, key.part) if is_complex else value, own)

        return Ordinal(1 if own == PRED else 8 * own.itemsize, make)

    def arrays(self) -> dict[str, tuple[str, int, int]]:
        size, tiles = self.rows * self.count, self.rows * self.tiles
        keys = (f"u{8 * self.key_bytes}", self.key_bytes, size)
        return super().arrays() | {
            "order_other": ("s32", 4, size),
            "keys": keys,
            "keys_other": keys,
            "counts": ("u16", 2, tiles * self.warps * self.bins),  # of each warp
            "table": ("s32", 4, tiles * self.bins),
            "totals": ("s32", 4, self.rows * self.bins),
        }

    def order_kernels(self) -> list[CudaLaunch]:
        steps = [(key, shift) for key in reversed(self.keys) for shift in range(0, key.bits, self.digit)]
        made = []
        for number, (key, shift) in enumerate(steps):
            # The last pass writes `order`. Two arrays of each kind are read and written in turn.
            orders = ["order", "order_other"][:: 1 if (len(steps) - number) % 2 == 0 else -1]
            keys = ["keys", "keys_other"][:: 1 if number % 2 == 0 else -1]
            named = dict(zip(("order_in", "order_out", "keys_in", "keys_out"), (*orders, *keys), strict=True))
            made.append(self.count_kernel(key, shift, named, begins=not number))
            if self.tiles > 1:
                made.append(self.scan_kernel())
            made.append(self.scatter_kernel(key, shift, named, begins=not number))
        return made

    # --- pieces of kernels ---

    def _tile(self, block: Block) -> tuple[Var, Var]:
        """The row and the first element of the tile `item`, and the first count of a warp."""
        item, lane = index(block, "item"), index(block, "lane")
        if self.rows > 1 and self.tiles > 1:
            row = block.let("row", item // index(block, "tiles"))
            first = block.let("first", (item - row * index(block, "tiles")) * self.tile)
        elif self.rows > 1:
            row, first = block.let("row", item), block.let("first", _whole(0))
        else:
            row, first = block.let("row", _whole(0)), block.let("first", item * self.tile)
        block.let("mine", (lane >> 5) * self.bins)
        block.let("lower", cast("u32", (_whole(1) << (lane & 31)) - 1))
        return row, first

    def _ranked(
        self, block: Block, key: Ordinal, first: Var, read: Callable[[Block, Var], None],
        ranked: Callable[[Block, _Ranked], None],
    ) -> None:  # fmt: skip
        """The elements of a warp, 32 at a time: `read` makes the key of the element at t, `ranked` uses its digit's
        count, the first of its peers, lanes with equal digits, and how many of them are below this one."""
        lane = index(block, "lane")
        t = block.let("t", first + (lane >> 5) * (WARP * self.each) + (lane & 31))
        _, step = block.loop("step", ZERO, constant(self.each))
        inside = step.let("inside", t < index(step, "n"))
        digit = step.let("digit", _whole(0))
        there = step.branch(inside)
        read(there, t)
        there.let("digit", self._digit(there, key))
        peers = step.let("peers", _ballot(inside))
        bit, voting = step.loop("bit", ZERO, constant(self.digit))
        vote = voting.let("chosen", compared("==", digit >> bit & 1, 1))
        votes = voting.let("votes", _ballot(vote))
        others = votes ^ cast("u32", constant(0xFFFFFFFF))
        voting.let("peers", chosen(vote, cast("u32", peers & votes), cast("u32", peers & others)))
        below = peers & step.names["lower"]
        rank = step.let("rank", cast("s32", _popcnt(cast("u32", below))))
        at = step.let("at", index(step, "mine") + digit)
        ranked(step, _Ranked(inside, rank, at, peers, below))
        step.increase(t, constant(WARP))

    def _digit(self, block: Block, key: Ordinal) -> Expr:
        """The digit of `key`."""
        shift = cast(f"u{key.width}", index(block, "shift"))
        return cast("s64", block.names["key"] >> shift) & (self.bins - 1)

    # --- kernels ---

    def count_kernel(self, key: Ordinal, shift: int, named: dict[str, str], begins: bool) -> CudaLaunch:
        """How many elements of a tile have each digit, by warp and in all. begins: whether places are still in order.

        The first pass of a key makes it."""
        write = functools.partial(self.write_count, key=key, begins=begins, makes=not shift)
        return self._by_tiles("sort_count", write, key, shift, named, (begins, not shift))

    def write_count(self, block: Block, key: Ordinal, begins: bool, makes: bool) -> list[Scratch]:
        bins, counted = self.bins, shared_array("counted", "s32", self.warps * self.bins)
        item, lane, n = (index(block, name) for name in ("item", "lane", "n"))
        row, first = self._tile(block)
        c, inside = block.loop("c", lane, constant(self.warps * bins), constant(self.threads))
        inside.store(counted.var, c, cast("s32", ZERO))
        block.body.append(barrier())
        keys_in = block.names["keys_in"]

        def read(block: Block, t: Var) -> None:
            if not makes:
                block.let("key", cast(f"u{key.width}", element(keys_in, row * n + t)))
                return
            place = block.let("place", self._place(block, row, t, begins))
            self.base(block)
            key.make(block, place)
            block.store(keys_in, row * n + t, block.names["key"])

        def ranked(block: Block, of: _Ranked) -> None:
            first_peer = block.branch(both("and", (of.inside, compared("==", of.rank, ZERO))))
            more = element(counted.var, of.at) + cast("s32", _popcnt(of.peers))
            first_peer.body.append(Store(counted.var, of.at, more, "s32", augmented=True))
            block.body.append(warp_barrier())

        self._ranked(block, key, first, read, ranked)
        block.body.append(barrier())
        of_bin = block.branch(lane < bins)
        total = of_bin.let("total", cast("s32", ZERO))
        w, of_warp = of_bin.loop("w", ZERO, constant(self.warps))
        here = of_warp.let("here", element(counted.var, w * bins + lane))
        of_warp.store(block.names["counts"], (item * self.warps + w) * bins + lane, cast("u16", here))
        of_warp.let("total", cast("s32", total + here))
        if self.tiles > 1:
            of_bin.store(block.names["table"], self._of_tile(block, row), total)
        block.body.append(barrier())
        return [counted]

    def scan_kernel(self) -> CudaLaunch:
        """The counts of a digit in the tiles before each tile, and in all: a warp or block for a digit of a row."""
        threads = WARP if self.tiles <= WARP_SCAN else self.threads
        return self.finish(
            "sort_scan", lambda block: self.write_counts(block, threads), self.rows * self.bins, 8.0 * self.tiles,
            self.integers, self.pointers(False), grain="warp" if threads == WARP else "block",
            threads=None if threads == WARP else threads,
        )  # fmt: skip

    def write_counts(self, block: Block, threads: int) -> list[Scratch]:
        item, lane, tiles = (index(block, name) for name in ("item", "lane", "tiles"))
        table, box = block.names["table"], _box(threads)
        carry, start = block.let("carry", _whole(0)), block.let("start", _whole(0))
        step = block.repeat(start < tiles)
        t, value = step.let("t", start + lane * SCANNED), step.let("value", _whole(0))
        counts = []
        for k in range(SCANNED):
            counts.append(step.let(f"c{k}", _whole(0)))
            step.branch(t + k < tiles).let(f"c{k}", cast("s64", element(table, item * tiles + t + k)))
            step.let("value", value + counts[k])
        before, total = write_scan(step, lane, value, threads, box)
        step.let("before", before + carry)
        for k in range(SCANNED):
            step.branch(t + k < tiles).store(table, item * tiles + t + k, cast("s32", before))
            step.let("before", before + counts[k])
        step.let("carry", carry + total)
        step.increase(start, constant(threads * SCANNED))
        block.branch(compared("==", lane, ZERO)).store(block.names["totals"], item, cast("s32", carry))
        return box

    def scatter_kernel(self, key: Ordinal, shift: int, named: dict[str, str], begins: bool) -> CudaLaunch:
        """The places of a tile, and its keys where they have digits left, to where their digits say.

        Of a digit the elements of the row go behind all of smaller digits and those of the tiles before; `offset` is
        how far that is from where they stand in the tile's own order."""
        ends = shift + self.digit >= key.bits
        write = functools.partial(self.write_scatter, key=key, begins=begins, ends=ends)
        return self._by_tiles("sort_scatter", write, key, shift, named, (begins, ends))

    def write_scatter(self, block: Block, key: Ordinal, begins: bool, ends: bool) -> list[Scratch]:
        bins, both_scans = self.bins, self.tiles > 1
        shared = [
            shared_array("starts", "s32", self.warps * bins),
            shared_array("kept_keys", f"u{key.width}", self.tile),
            shared_array("kept_places", "s32", self.tile),
            *([shared_array("offset", "s32", bins)] if both_scans else []),
        ]
        starts, kept_keys, kept_places = (array.var for array in shared[:3])
        box = _box(self.threads)
        item, lane, n = (index(block, name) for name in ("item", "lane", "n"))
        names = block.names
        row, first = self._tile(block)
        value = block.let("value", _whole(0))
        of_bin = block.branch(lane < bins)
        w, of_warp = of_bin.loop("w", ZERO, constant(self.warps))
        of_warp.store(starts, w * bins + lane, cast("s32", value))
        count = cast("s64", element(names["counts"], (item * self.warps + w) * bins + lane))
        of_warp.let("value", value + count)
        if both_scans:  # in one: counts of the tile in the lower half, of the row in the upper one
            of_bin.let("value", value + (cast("s64", element(names["totals"], row * bins + lane)) << 32))
        before, _ = write_scan(block, lane, value, self.threads, box)
        of_bin = block.branch(lane < bins)
        begin = of_bin.let("begin", before & 0xFFFFFFFF)
        w, of_warp = of_bin.loop("w", ZERO, constant(self.warps))
        of_warp.store(starts, w * bins + lane, cast("s32", element(starts, w * bins + lane) + begin))
        if both_scans:
            counted = cast("s64", element(names["table"], self._of_tile(block, row)))
            of_bin.store(shared[3].var, lane, cast("s32", (before >> 32) + counted - begin))
        block.body.append(barrier())

        def read(block: Block, t: Var) -> None:
            block.let("key", cast(f"u{key.width}", element(names["keys_in"], row * n + t)))
            block.let("place", self._place(block, row, t, begins))

        def ranked(block: Block, of: _Ranked) -> None:
            block.let("rank", cast("s32", of.rank + element(starts, of.at)))
            block.body.append(warp_barrier())
            inside = block.branch(of.inside)
            inside.store(kept_keys, of.rank, names["key"])
            inside.store(kept_places, of.rank, names["place"])
            last = inside.branch(compared("==", of.below, Const("u64", 0)))
            last.store(starts, of.at, cast("s32", of.rank + cast("s32", _popcnt(of.peers))))
            block.body.append(warp_barrier())

        self._ranked(block, key, first, read, ranked)
        block.body.append(barrier())
        stop = block.let("stop", least(n - first, _whole(self.tile)))
        t, moved = block.loop("t", lane, stop, constant(self.threads))
        found = moved.let("key", element(kept_keys, t))
        to: Expr = row * n + t
        if both_scans:
            to = to + cast("s64", element(shared[3].var, self._digit(moved, key)))
        to = moved.let("to", to)
        moved.store(names["order_out"], to, element(kept_places, t))
        if not ends:
            moved.store(names["keys_out"], to, found)
        block.body.append(barrier())
        return [*shared, *box]

    def _place(self, block: Block, row: Var, t: Var, begins: bool) -> Expr:
        """The place of the element at t. begins: whether places are still in order."""
        return cast("s32", t) if begins else element(block.names["order_in"], row * index(block, "n") + t)

    def _of_tile(self, block: Block, row: Var) -> Expr:
        """Where the count of this lane's digit in the tile `item` of a row is."""
        item, lane, tiles = (index(block, name) for name in ("item", "lane", "tiles"))
        return row * self.bins * tiles + lane * tiles + (item - row * tiles)

    def _by_tiles(self, kind, write, key: Ordinal, shift, named, which) -> CudaLaunch:
        carried = f"u{key.width}"
        pointers = [*self.pointers(False), ("order_in", "s32"), ("order_out", "s32")]
        pointers += [("keys_in", carried), ("keys_out", carried)]
        return self.finish(
            kind, write, self.rows * self.tiles, 8.0 * self.tile, self.integers | {"shift": shift}, pointers,
            which=(key, *which), grain="block", threads=self.threads, named=named, together=TOGETHER,
        )  # fmt: skip


@record(frozen=True)
class _Ranked:
    """What is known of an element of a tile. inside: whether it exists. rank: how many of its peers are below it. at:
    where its digit's count is. peers, below: the lanes of its warp with its digit, and those of them below."""

    inside: Var
    rank: Var
    at: Var
    peers: Var
    below: Expr


def _whole(value: int) -> Expr:
    return cast("s64", constant(value))


def _ballot(condition: Expr) -> Call:
    """A word whose bit k is the condition of lane k of the warp."""
    return Call("u32", "ballot", (condition,))


def _popcnt(word: Expr) -> Expr:
    return call("popcnt_u32", (word,), by_name)


def write_ordinal(block: Block, key: Key, value: Expr, dtype: np.dtype) -> None:
    """Makes `key`, an unsigned integer in the order of a value of a dtype, as `ir.ops.sort.ordinal`.

    A register of f16 or bf16 has quiet NaNs only, so in the total order signalling ones come where those come."""
    bits = 8 * dtype.itemsize
    name, kind, top, ones = HLO_NAME[dtype], f"u{bits}", 1 << (bits - 1), (1 << bits) - 1

    def number(value: int) -> Expr:
        return cast(kind, constant(value))

    if dtype == PRED:
        ones = 1
        made = block.let("key", chosen(value, number(1), number(0)))
    elif dtype in FLOATS:
        x = block.let("x", value)
        made = block.let("key", call(f"bitcast_{name}_{kind}", (x,), by_name))
        turned, raised = cast(kind, made ^ number(ones)), cast(kind, made | number(top))
        block.let("key", chosen(made >= number(top), turned, raised))
        if not key.total:
            zero = cast("f64" if bits == 64 else "f32", constant(0.0))
            block.branch(compared("==", x, zero)).let("key", number(top))
            block.branch(compared("!=", x, x)).let("key", number(ones))
    elif dtype.kind == "i":
        made = block.let("key", cast(kind, cast(kind, value) ^ number(top)))
    else:
        made = block.let("key", value)
    if key.descending:
        block.let("key", cast(kind, made ^ number(ones)))


def write_scan(block: Block, lane: Var, value: Var, threads: int, box: Sequence[Scratch]) -> tuple[Var, Var]:
    """(the sum of the integer of each thread of a warp or block over the threads below it, that over all)."""
    before, total = block.let("before", _whole(0)), block.let("total", value)
    for distance in (1, 2, 4, 8, 16):
        other = block.let("other", shuffled(total, distance))
        block.branch(compared("!=", lane & distance, ZERO)).let("before", before + other)
        block.let("total", total + other)
    for array in box:
        block.branch(compared("==", lane & 31, ZERO)).store(array.var, lane >> 5, total)
        block.body.append(barrier())
        block.let("total", _whole(0))
        w, of_warp = block.loop("w", ZERO, constant(threads // WARP))
        of_warp.branch(compared("==", w, lane >> 5)).let("before", before + total)
        of_warp.let("total", total + element(array.var, w))
        block.body.append(barrier())
    return before, total


def _box(threads: int) -> list[Scratch]:
    """The shared array of `write_scan`."""
    return [shared_array("box", "s64", threads // WARP)] if threads > WARP else []
