"""Which tile a block of threads does, by what it should cost: from the shape and the machine, for any shape.

A tile never changes a result: every sum is taken in the order of p whatever the tile, and into how many parts sums are
cut (`parts_of`) depends on the shape alone. So the same shape has the same bits on every machine of an architecture.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hloom.compiler.targets.cuda.codegen.source import WARP
from hloom.compiler.targets.cuda.machine import CudaMachine
from hloom.ir.records import record, replace

PART_STEP = 64  # products in a part of a sum are a multiple of it, and it is one of every tile's depth
LEAST_PART = 512  # products worth a part of their own: its sums are written, read and added
ENOUGH_TILES = 96  # tiles of 64 x 64 from which on a GPU has enough to do
MOST_PARTS = 32
MOST_STAGES = 4
# Cycles from asking for a line of memory to having it, as published micro-benchmarks of sm_80 and sm_90 have them.
LATENCY = 600
BLOCK_CYCLES = 1500  # of a block before its first product and after its last


@record(frozen=True)
class Tile:
    """What a block of threads does of a product, and how.

    kind: 'thread' (each thread multiplies `part_rows` x `part_columns` elements) or 'tensor' (each warp does, on tensor
        cores).
    rows, columns, depth: extents of the block's tile along i, j and p; powers of two.
    stages: how many steps of p have room in shared memory at a time.
    """

    kind: str
    rows: int
    columns: int
    part_rows: int
    part_columns: int
    depth: int
    stages: int = 2

    @property
    def threads(self) -> int:
        parts = self.rows // self.part_rows * (self.columns // self.part_columns)
        return parts * WARP if self.kind == "tensor" else parts


# (rows, columns, rows of a part, columns of a part)
_NARROW = (
    (128, 128, 8, 8), (128, 64, 8, 8), (64, 128, 8, 8), (64, 64, 8, 4), (64, 64, 4, 4), (128, 32, 8, 4),
    (32, 128, 4, 8), (64, 32, 4, 4), (32, 64, 4, 4), (32, 32, 4, 4), (16, 64, 4, 4), (64, 16, 4, 4), (16, 128, 4, 4),
    (128, 16, 4, 4), (8, 128, 4, 4), (128, 8, 4, 4), (4, 128, 4, 4), (128, 4, 4, 4), (4, 256, 4, 4), (256, 4, 4, 4),
)  # fmt: skip
_WIDE = (
    (64, 64, 4, 4), (64, 32, 4, 4), (32, 64, 4, 4), (32, 32, 4, 4), (32, 32, 4, 2), (16, 64, 4, 4), (64, 16, 4, 4),
    (16, 32, 2, 4), (32, 16, 4, 2), (8, 64, 2, 4), (64, 8, 4, 2), (2, 128, 2, 2), (128, 2, 2, 2),
)  # fmt: skip
_TENSOR = (
    (128, 256, 64, 64), (256, 128, 64, 64),
    (128, 128, 64, 32), (128, 64, 32, 32), (64, 128, 32, 32), (64, 64, 32, 32), (128, 32, 32, 16), (32, 128, 16, 32),
    (64, 32, 32, 16), (32, 64, 16, 32), (32, 32, 16, 16), (16, 64, 16, 16), (64, 16, 16, 16), (16, 128, 16, 32),
    (128, 16, 32, 16), (16, 32, 16, 16),
)  # fmt: skip


def candidates(kind: str, itemsize: int) -> list[Tile]:
    """The tiles there are, for elements of so many bytes in shared memory."""
    table = _TENSOR if kind == "tensor" else _WIDE if itemsize == 8 else _NARROW
    return [Tile(kind, *entry, 32 if itemsize == 2 else 16) for entry in table]


def parts_of(batch: int, m: int, n: int, k: int) -> tuple[int, int]:
    """(how many parts sums of k products are cut into, products in each but the last): by the shape alone. The sums of
    parts are added in their order."""
    tiles = batch * -(-m // 64) * -(-n // 64)
    if tiles >= ENOUGH_TILES or k < 2 * LEAST_PART:
        return 1, k
    wanted = min(-(-ENOUGH_TILES // tiles), k // LEAST_PART, MOST_PARTS)
    part = math.ceil(k / wanted / PART_STEP) * PART_STEP
    return -(-k // part), part


def choose(
    extents: tuple[int, int, int, int],
    parts: tuple[int, int],
    kind: str,
    products: str,
    itemsize: int,
    machine: CudaMachine,
    stage_bytes: Callable[[Tile], int],
    ahead: bool,
) -> Tile:
    """The tile that should take least time.

    extents: (batch, m, n, k). parts: as of `parts_of`. products: the dtype that `machine.products` has. itemsize: bytes
    of an element in shared memory. stage_bytes(tile): shared memory of one step. ahead: whether operands are copied by
    instructions that do not wait, so that more than one step can be under way.
    """
    best, least = None, math.inf
    for tile in candidates(kind, itemsize):
        size = stage_bytes(tile)
        stages = min(machine.dynamic_bytes // size, MOST_STAGES if ahead else 2)
        if stages < 2:
            continue
        tile = replace(tile, stages=stages)
        cycles = cycles_of(tile, extents, parts, machine, products, size, itemsize)
        if cycles < least:
            best, least = tile, cycles
    if best is None:
        raise ValueError(f"no tile of {products} has room in {machine.dynamic_bytes} bytes of shared memory")
    return best


def blocks_together(tile: Tile, machine: CudaMachine, size: int, itemsize: int) -> int:
    """Blocks that a multiprocessor has room for; so many that a thread can have 128 registers at least, or what its
    sums need. size: bytes of a step in shared memory; itemsize: of an element there."""
    # Sums and fragments of a thread, and what is left for addresses.
    sums = tile.rows * tile.columns // tile.threads
    if tile.kind == "tensor":
        registers = sums + (tile.part_rows + tile.part_columns) // 4 + 40
    else:
        registers = (sums + tile.part_rows + tile.part_columns) * max(1, itemsize // 4) + 40
    room = machine.blocks_together(tile.threads, registers, size * tile.stages)
    return max(1, min(room, machine.registers // 128 // tile.threads))


def cycles_of(tile: Tile, extents, parts, machine: CudaMachine, products: str, size: int, itemsize: int) -> float:
    """About how many cycles a product takes. size: bytes of a step in shared memory."""
    batch, m, n, _ = extents
    rate = machine.products[products]
    blocks = batch * parts[0] * -(-m // tile.rows) * -(-n // tile.columns)
    steps = max(1, -(-parts[1] // tile.depth))
    busiest = -(-blocks // machine.multiprocessors)
    together = min(blocks_together(tile, machine, size, itemsize), busiest)
    # Operands go from shared memory into registers: the more products an element has there, the less that takes.
    reuse = tile.part_rows * tile.part_columns / (tile.part_rows + tile.part_columns)
    efficiency = reuse / (reuse + (8 if tile.kind == "tensor" else 1))
    # Fewer than eight warps do not keep the four schedulers of a multiprocessor busy.
    efficiency *= min(1.0, together * tile.threads / WARP / 8)
    multiplying = tile.rows * tile.columns * tile.depth / (rate * efficiency)
    # Memory is read in lines: fewer than 64 bytes side by side cost as much.
    lines = max(tile.rows, 64 // itemsize) + max(tile.columns, 64 // itemsize)
    copying = lines * tile.depth * itemsize / machine.cache_rate
    step = max(together * multiplying, together * copying, LATENCY / (tile.stages - 1))
    storing = tile.rows * tile.columns * 4 * together / machine.cache_rate
    return -(-busiest // together) * (steps * step + BLOCK_CYCLES + storing)
