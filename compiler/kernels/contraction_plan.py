"""Shapes to launches: how a contraction is cut into blocks, which operands are packed, what every step gets."""

from __future__ import annotations

import math

from .contraction import PACK, PRODUCT, ContractionKernels, KernelAddress, PlainOperand, PlainStore, Step, is_same
from .contraction_shared import DEPTH, GROUP_COLUMNS, Blocking

# Products (about 5 microseconds of one core) below which a chunk of work is not worth a thread.
SERIAL_WORK = 1 << 18
PERIOD = 4096  # bytes after which addresses share a set of a first-level cache, on about every machine


def step_plan(
    kernels: ContractionKernels,
    batch: int,
    m: int,
    n: int,
    k: int,
    lhs_strides: tuple[int, ...],
    rhs_strides: tuple[int, ...],
) -> list[Step]:
    """See `ContractionKernels.step_plan`."""
    if min(batch, m, n) <= 0:
        return []
    spec, blocking = kernels.spec, kernels.blocking
    columns, size = blocking.tile.columns, blocking.size
    lhs_sb, lhs_si, lhs_sp = lhs_strides
    rhs_sb, rhs_sp, rhs_sj = rhs_strides
    same_rhs = rhs_sb == 0 if isinstance(spec.rhs, PlainOperand) else not spec.rhs_batched
    plain = isinstance(spec.lhs, PlainOperand) and isinstance(spec.epilogue, PlainStore)
    if plain and same_rhs and lhs_sb == m * lhs_si and isinstance(spec.rhs, PlainOperand):
        batch, m = 1, batch * m  # one rhs for rows that follow each other: a single matrix product

    panels, full = _ceil(n, columns), n // columns
    block_rows, block_panels = _block(kernels, batch, m, n, k)
    row_blocks, column_blocks = _ceil(m, block_rows), _ceil(panels, block_panels)
    direct = full if is_same(spec, spec.rhs) and _read_in_place(blocking, m, n, k, rhs_sp, rhs_sj) else 0
    packed = panels - direct
    rhs_batch = 1 if same_rhs else batch
    temporaries = {"t_packed": rhs_batch * packed * k * columns * size}
    pack_lhs = int(is_same(spec, spec.lhs) and _pack_lhs(blocking, min(block_rows, m), block_panels, k, lhs_si, lhs_sp))

    names = ("lhs_sb", "lhs_si", "lhs_sp", "rhs_sb", "rhs_sp", "rhs_sj")
    shape = {"batch": batch, "m": m, "n": n, "k": k, **dict(zip(names, (*lhs_strides, *rhs_strides), strict=True))}
    steps = []
    if packed and k:
        groups, chunks = _ceil(packed, max(1, GROUP_COLUMNS // columns)), _ceil(k, DEPTH)
        grain = max(1, _ceil(1 << 15, min(n, GROUP_COLUMNS) * min(k, DEPTH)))
        items = rhs_batch * groups * chunks
        if kernels.packing == PACK:
            own = {"first_panel": direct, "panels": panels, "groups": groups, "chunks": chunks}
            pointers = {"rhs": spec.rhs.pointer, "packed": "t_packed"}
        else:
            own = {"t_panels": panels, "t_groups": groups, "t_chunks": chunks, "t_pack": KernelAddress(PACK)}
            pointers = {}
        steps.append(_step(kernels, kernels.packing, items, grain, shape | own, pointers, temporaries))

    own = {
        "row_blocks": row_blocks,
        "column_blocks": column_blocks,
        "block_rows": block_rows,
        "block_panels": block_panels,
        "panels": panels,
        "pack_lhs": pack_lhs,
        "packed_sb": 0 if same_rhs else packed * k * columns,
        "packed_sp": packed * columns,
    }
    pointers = {}
    if kernels.fused == PRODUCT:
        own |= {
            "out_sb": m * n, "out_si": n, "full_panels": full, "direct_panels": direct, "accumulate": 0,
        }  # fmt: skip
        # Where rhs is not read in place its pointer is not followed.
        rhs = spec.rhs.pointer if is_same(spec, spec.rhs) else "t_packed"
        pointers = {"lhs": spec.lhs.pointer, "rhs": rhs, "packed": "t_packed", "out": spec.epilogue.pointer}
    else:
        own = {f"t_{name}": value for name, value in own.items()}
        own |= {"t_direct": direct, "t_product": KernelAddress(PRODUCT), "t_sums_row": block_panels * columns}
    items = batch * row_blocks * column_blocks
    work = block_rows * min(n, block_panels * columns) * max(k, 1)
    grain = max(1, SERIAL_WORK // work)
    steps.append(_step(kernels, kernels.fused, items, grain, shape | own, pointers, temporaries))
    return steps


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _read_in_place(blocking: Blocking, m: int, n: int, k: int, rhs_sp: int, rhs_sj: int) -> bool:
    """Whether the tiles read rhs where it lies. Packing costs a pass over it, as much as some 8 rows of products, and
    pays when many rows use a panel, or when rows of rhs would evict each other from the caches."""
    if rhs_sj != 1:
        return False
    depth = min(k, DEPTH)
    # Rows of a panel fall into the same few sets of a cache when they lie a multiple of a large power of two apart.
    sets = PERIOD // math.gcd(rhs_sp * blocking.size, PERIOD)
    fits = depth * blocking.tile.columns * blocking.size <= blocking.l1_bytes // 2 and depth <= 8 * sets
    return m <= blocking.tile.rows or (m <= 128 and fits)


def _pack_lhs(blocking: Blocking, rows: int, panels: int, k: int, lhs_si: int, lhs_sp: int) -> bool:
    """Whether a block of lhs is copied before tiles read it. That costs about as much as a panel of products.

    Tiles read the copy 3 % faster than rows, and much faster than rows that share the sets of a cache (38 GF/s of 101,
    at 4096 bytes) or, where lhs is contiguous along i, than a cache line of each p.
    """
    depth = min(k, DEPTH)
    if lhs_sp == 1:
        sets = PERIOD // math.gcd(lhs_si * blocking.size, PERIOD)
        return rows > 1 and depth > 64 and (panels > 16 or sets <= 2 or (sets <= 4 and panels > 3))
    sets = PERIOD // math.gcd(lhs_sp * blocking.size, PERIOD)
    return panels > 12 or (panels > 3 and depth > 8 * sets)


def _block(kernels: ContractionKernels, batch: int, m: int, n: int, k: int) -> tuple[int, int]:
    """(rows, panels) of a block of the result."""
    blocking = kernels.blocking
    tile = blocking.tile
    panels = _ceil(n, tile.columns)
    rows, width = min(blocking.rows, _ceil(m, tile.rows) * tile.rows), panels
    if kernels.fused != PRODUCT:
        # The sums of a block live in scratch memory.
        width = min(panels, max(1, blocking.sums // (rows * tile.columns)))
        rows = max(tile.rows, min(rows, blocking.sums // (width * tile.columns) // tile.rows * tile.rows))

    # Smaller blocks until every core has some, as long as a block is worth a thread.
    wanted = 4 * blocking.cores if blocking.cores > 1 else 1
    while batch * _ceil(m, rows) * _ceil(panels, width) < wanted:
        if rows * width * tile.columns * max(k, 1) < 2 * SERIAL_WORK:
            break
        # A block of few rows uses its panels too little, so panels are divided first then.
        if rows > 4 * tile.rows or (rows > tile.rows and width == 1):
            rows = _ceil(rows // tile.rows, 2) * tile.rows
        elif width > 1:
            width = _ceil(width, 2)
        else:
            break
    # Blocks of about equal size.
    rows = _ceil(_ceil(m, _ceil(m, rows)), tile.rows) * tile.rows
    return rows, _ceil(panels, _ceil(panels, width))


def _step(kernels: ContractionKernels, kernel: int, items: int, grain: int, values, pointers, temporaries) -> Step:
    names = kernels.parameters[kernel]
    arguments = {name: values[name] for name in names if name in values}
    used = {*names, *pointers.values()}
    return Step(kernel, items, grain, arguments, pointers, {name: x for name, x in temporaries.items() if name in used})
