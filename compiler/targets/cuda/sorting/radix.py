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

import numpy as np

from hloom.compiler.kernels.codegen.elements import load
from hloom.compiler.targets.cuda.codegen.render import WARP
from hloom.compiler.targets.cuda.launches import CudaLaunch
from hloom.compiler.targets.cuda.sorting.bitonic import Sort
from hloom.ir.ops.indexing.sort import Key, sort_keys
from hloom.ir.records import record
from hloom.ir.types import COMPLEX, FLOATS, HLO_NAME, PRED

TOGETHER = 5  # blocks on a multiprocessor: 48 registers a thread, and what has room in 227 KiB of shared memory
SCANNED = 4  # counts of a thread in a step of the scan
WARP_SCAN = 512  # tiles of a row up to which a warp adds up the counts of a digit


@record(frozen=True)
class Ordinal:
    """A key as an unsigned integer of `bits` bits; `lines` make it, `key`, of the element at `place` of the row."""

    bits: int
    lines: tuple[str, ...]

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
        value, dtype = load(self.request.names[operand], self._element("place"), operand.dtype), operand.dtype
        if dtype in COMPLEX:
            value, dtype = f"{value}.{key.part}", np.dtype(f"f{dtype.itemsize // 2}")
        return Ordinal(1 if dtype == PRED else 8 * dtype.itemsize, tuple(ordinal_lines(key, value, dtype)))

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

    # --- pieces of text ---

    def _tile(self) -> list[str]:
        """The row and the first element of the tile `item`; the first count of a warp, the lanes below a lane."""
        where = ["row = s64(0)", f"first = item * {self.tile}"]
        if self.rows > 1 and self.tiles > 1:
            where = ["row = item // tiles", f"first = (item - row * tiles) * {self.tile}"]
        elif self.rows > 1:
            where = ["row = item", "first = s64(0)"]
        return [*where, f"mine = (lane >> 5) * {self.bins}", "lower = u32((s64(1) << (lane & 31)) - 1)"]

    def _ranked(self, key: Ordinal, read: list[str], ranked: list[str]) -> list[str]:
        """The elements of a warp, 32 at a time: `read` makes `key` of the element at t, `ranked` uses its digit's count
        `at`, and `rank`, how many of the `peers`, lanes with equal digits, are below this one."""
        return [
            f"t = first + (lane >> 5) * {WARP * self.each} + (lane & 31)",
            f"for step in range({self.each}):",
            "    inside = t < n",
            "    digit = s64(0)",
            "    if inside:",
            *("        " + line for line in read),
            f"        digit = {self._digit(key)}",
            "    peers = ballot(inside)",
            f"    for bit in range({self.digit}):",
            "        chosen = digit >> bit & 1 == 1",
            "        votes = ballot(chosen)",
            "        peers = u32(peers & votes) if chosen else u32(peers & (votes ^ u32(4294967295)))",
            "    rank = s32(popcnt_u32(u32(peers & lower)))",
            "    at = mine + digit",
            *("    " + line for line in ranked),
            f"    t += {WARP}",
        ]

    def _digit(self, key: Ordinal) -> str:
        return f"s64(key >> u{key.width}(shift)) & {self.bins - 1}"

    # --- kernels ---

    def count_kernel(self, key: Ordinal, shift: int, named: dict[str, str], begins: bool) -> CudaLaunch:
        """How many elements of a tile have each digit, by warp and in all. begins: whether places are still in order.

        The first pass of a key makes it."""
        if shift:
            read = [f"key = u{key.width}(keys_in[row * n + t])"]
        else:
            read = ["place = s32(t)" if begins else "place = order_in[row * n + t]", *self._base(), *key.lines]
            read.append("keys_in[row * n + t] = key")
        lines = [
            *self._tile(),
            f"for c in range(lane, {self.warps * self.bins}, {self.threads}):",
            "    counted[c] = s32(0)",
            "cuda.syncthreads()",
            *self._ranked(key, read, [
                "if inside and rank == 0:",
                "    counted[at] += s32(popcnt_u32(peers))",
                "cuda.syncwarp()",
            ]),
            "cuda.syncthreads()",
            f"if lane < {self.bins}:",
            "    total = s32(0)",
            f"    for w in range({self.warps}):",
            f"        here = counted[w * {self.bins} + lane]",
            f"        counts[(item * {self.warps} + w) * {self.bins} + lane] = u16(here)",
            "        total = s32(total + here)",
        ]  # fmt: skip
        if self.tiles > 1:
            lines.append(f"    table[row * {self.bins} * tiles + lane * tiles + (item - row * tiles)] = total")
        lines.append("cuda.syncthreads()")
        shared = {"counted": f"cuda.shared.array({self.warps * self.bins}, s32)"}
        return self._by_tiles("sort_count", lines, key, shift, named, shared)

    def scan_kernel(self) -> CudaLaunch:
        """The counts of a digit in the tiles before each tile, and in all: a warp or block for a digit of a row."""
        threads = WARP if self.tiles <= WARP_SCAN else self.threads
        numbers = range(SCANNED)
        lines = [
            "carry = s64(0)",
            "start = s64(0)",
            "while start < tiles:",
            f"    t = start + lane * {SCANNED}",
            "    value = s64(0)",
        ]
        for k in numbers:
            lines += [
                f"    c{k} = s64(0)",
                f"    if t + {k} < tiles:",
                f"        c{k} = s64(table[item * tiles + t + {k}])",
                f"    value = value + c{k}",
            ]
        lines += ["    " + line for line in scan_lines(threads)]
        lines.append("    before = before + carry")
        for k in numbers:
            lines += [
                f"    if t + {k} < tiles:",
                f"        table[item * tiles + t + {k}] = s32(before)",
                f"    before = before + c{k}",
            ]
        lines += [
            "    carry = carry + total",
            f"    start += {threads * SCANNED}",
            "if lane == 0:",
            "    totals[item] = s32(carry)",
        ]
        how = {"grain": "warp"} if threads == WARP else {"grain": "block", "threads": threads, "shared": _box(threads)}
        items = self.rows * self.bins
        return self.finish("sort_scan", lines, items, 8.0 * self.tiles, self.integers, self.pointers(False), **how)

    def scatter_kernel(self, key: Ordinal, shift: int, named: dict[str, str], begins: bool) -> CudaLaunch:
        """The places of a tile, and its keys where they have digits left, to where their digits say.

        Of a digit the elements of the row go behind all of smaller digits and those of the tiles before; `offset` is
        how far that is from where they stand in the tile's own order."""
        ends, bins = shift + self.digit >= key.bits, self.bins
        read = [
            f"key = u{key.width}(keys_in[row * n + t])",
            "place = s32(t)" if begins else "place = order_in[row * n + t]",
        ]
        both = self.tiles > 1
        lines = [
            *self._tile(),
            "value = s64(0)",
            f"if lane < {bins}:",
            f"    for w in range({self.warps}):",
            f"        starts[w * {bins} + lane] = s32(value)",
            f"        value = value + s64(counts[(item * {self.warps} + w) * {bins} + lane])",
            # Both scans in one: counts of the tile in the lower half, of the row in the upper one.
            *([f"    value = value + (s64(totals[row * {bins} + lane]) << 32)"] if both else []),
            *scan_lines(self.threads),
            f"if lane < {bins}:",
            "    begin = before & 4294967295",
            f"    for w in range({self.warps}):",
            f"        starts[w * {bins} + lane] = s32(starts[w * {bins} + lane] + begin)",
        ]
        if both:
            counted = f"s64(table[row * {bins} * tiles + lane * tiles + (item - row * tiles)])"
            lines.append(f"    offset[lane] = s32((before >> 32) + {counted} - begin)")
        lines += [
            "cuda.syncthreads()",
            *self._ranked(key, read, [
                "rank = s32(rank + starts[at])",
                "cuda.syncwarp()",
                "if inside:",
                "    kept_keys[rank] = key",
                "    kept_places[rank] = place",
                "    if peers & lower == 0:",
                "        starts[at] = s32(rank + s32(popcnt_u32(peers)))",
                "cuda.syncwarp()",
            ]),
            "cuda.syncthreads()",
            f"stop = min(n - first, s64({self.tile}))",
            f"for t in range(lane, stop, {self.threads}):",
            "    key = kept_keys[t]",
            "    to = row * n + t" + (f" + s64(offset[{self._digit(key)}])" if both else ""),
            "    order_out[to] = kept_places[t]",
            *([] if ends else ["    keys_out[to] = key"]),
            "cuda.syncthreads()",
        ]  # fmt: skip
        shared = {
            "starts": f"cuda.shared.array({self.warps * bins}, s32)",
            "kept_keys": f"cuda.shared.array({self.tile}, u{key.width})",
            "kept_places": f"cuda.shared.array({self.tile}, s32)",
            **({"offset": f"cuda.shared.array({bins}, s32)"} if both else {}),
            **_box(self.threads),
        }
        return self._by_tiles("sort_scatter", lines, key, shift, named, shared)

    def _by_tiles(self, kind, lines, key: Ordinal, shift, named, shared) -> CudaLaunch:
        carried = f"u{key.width}"
        pointers = [*self.pointers(False), ("order_in", "s32"), ("order_out", "s32")]
        pointers += [("keys_in", carried), ("keys_out", carried)]
        return self.finish(
            kind, lines, self.rows * self.tiles, 8.0 * self.tile, self.integers | {"shift": shift}, pointers,
            grain="block", threads=self.threads, shared=shared, named=named,
            together=TOGETHER,
        )  # fmt: skip


def ordinal_lines(key: Key, value: str, dtype: np.dtype) -> list[str]:
    """Statements that make `key`, an unsigned integer in the order of a value of a dtype, as `ir.ops.sort.ordinal`.

    A register of f16 or bf16 has quiet NaNs only, so in the total order signalling ones come where those come."""
    bits = 8 * dtype.itemsize
    name, kind, top, ones = HLO_NAME[dtype], f"u{bits}", 1 << (bits - 1), (1 << bits) - 1
    if dtype == PRED:
        ones = 1
        lines = [f"key = u8(1) if {value} else u8(0)"]
    elif dtype in FLOATS:
        zero, plain = ("f64(0.0)" if bits == 64 else "f32(0.0)"), not key.total
        lines = [
            f"x = {value}",
            f"key = bitcast_{name}_{kind}(x)",
            f"key = {kind}(key ^ {kind}({ones})) if key >= {kind}({top}) else {kind}(key | {kind}({top}))",
            *([f"if x == {zero}:", f"    key = {kind}({top})", "if x != x:", f"    key = {kind}({ones})"] * plain),
        ]
    elif dtype.kind == "i":
        lines = [f"key = {kind}({kind}({value}) ^ {kind}({top}))"]
    else:
        lines = [f"key = {value}"]
    return [*lines, *([f"key = {kind}(key ^ {kind}({ones}))"] if key.descending else [])]


def scan_lines(threads: int) -> list[str]:
    """Statements that make, of the integer `value` of each thread of a warp or block, `before`, the sum over those of
    the threads below it, and `total`, that over all."""
    lines = ["before = s64(0)", "total = value"]
    for distance in (1, 2, 4, 8, 16):
        lines += [
            f"other = shuffle_xor(total, {distance})",
            f"if lane & {distance} != 0:",
            "    before = before + other",
            "total = total + other",
        ]
    if threads == WARP:
        return lines
    return [
        *lines,
        "if lane & 31 == 0:",
        "    box[lane >> 5] = total",
        "cuda.syncthreads()",
        "total = s64(0)",
        f"for w in range({threads // WARP}):",
        "    if w == lane >> 5:",
        "        before = before + total",
        "    total = total + box[w]",
        "cuda.syncthreads()",
    ]


def _box(threads: int) -> dict[str, str]:
    """The shared array of `scan_lines`."""
    return {"box": f"cuda.shared.array({threads // WARP}, s64)"} if threads > WARP else {}
