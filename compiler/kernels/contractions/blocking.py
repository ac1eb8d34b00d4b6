"""Shapes to launches: how a contraction is cut into blocks, which operands are packed, what every step gets."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from hloom.compiler.kernels.contractions.shared import GROUP_COLUMNS, Blocking, split_steps
from hloom.compiler.kernels.contractions.spec import (
    PACK,
    PRODUCT,
    ContractionKernels,
    KernelAddress,
    PlainOperand,
    PlainStore,
    StagedOperand,
    Step,
    is_same,
)
from hloom.compiler.kernels.contractions.tile_shapes import FAR_ROWS, FEW_ROWS
from hloom.ir.records import replace

# Products (about 5 microseconds of one core) below which a chunk of work is not worth a thread.
SERIAL_WORK = 1 << 18
PRODUCT_WORK = 0.5  # element operations in whose time a multiply-add of a tile is done
# Tiles in whose time a panel comes to one core from the last cache: on Zen 3, and on a Xeon with vectors of 64 bytes,
# whose tiles of a block share what they ask for of its next panel, so that but the first is waited for.
FETCH, FETCH_WIDE = 0.5, 5.0
# FEW_ROWS of lhs take a rhs in memory in wide blocks of few of its rows at a time, so that it is read in runs of
# kilobytes. On a Xeon 8 x 4096 x 4096 took 1.8 ms, near what reading takes, and 3.7 with the steps of other products,
# which read a line or three of each of 640 pages; 16 rows 2.5 ms instead of 4.5, but 32 rows as long.
WIDE = 16  # panels
SPAN = 512 << 10  # bytes that such a step spans: their pages stay in the processor's table of addresses
PERIOD = 4096  # bytes after which addresses share a set of a first-level cache, on about every machine


def step_plan(
    kernels: ContractionKernels,
    batch: int,
    m: int,
    n: int,
    k: int,
    lhs_strides: Sequence[int] = (0, 0, 0),
    rhs_strides: Sequence[int] = (0, 0, 0),
    rhs_stays: bool = False,
) -> list[Step]:
    """The launches that compute a contraction of this shape; none when the result is empty.

    lhs_strides: (sb, si, sp) in elements, of a plain lhs. rhs_strides: (sb, sp, sj) of a plain rhs.
    rhs_stays: whether rhs is the same in each iteration of the surrounding loop, so that it is packed once.
    """
    if min(batch, m, n) <= 0:
        return []
    spec, blocking = kernels.spec, kernels.blocking
    columns, size = blocking.tile.columns, blocking.size
    lhs_sb, lhs_si, lhs_sp = lhs_strides
    rhs_sb, rhs_sp, rhs_sj = rhs_strides
    same_rhs = rhs_sb == 0 if isinstance(spec.rhs, PlainOperand) else not spec.rhs_batched
    rows_of_join = batch * m, {"batch": batch, "m": m, "n": n}
    plain = isinstance(spec.lhs, PlainOperand) and isinstance(spec.epilogue, PlainStore)
    if plain and same_rhs and lhs_sb == m * lhs_si and isinstance(spec.rhs, PlainOperand):
        batch, m = 1, batch * m  # one rhs for rows that follow each other: a single matrix product

    elements = k
    k = _ceil(k, blocking.in_word)  # from here on words
    panels, full = _ceil(n, columns), n // columns
    staged = spec.lhs if isinstance(spec.lhs, StagedOperand) else None
    reads = is_same(spec, spec.rhs) and rhs_sj == 1
    streams = reads and not (staged or rhs_stays) and m <= FEW_ROWS and rhs_sp * size >= FAR_ROWS
    given = staged.step if staged else _rows_near(rhs_sp * size) if streams else 0
    part, step = split_steps(m, k, kernels.splits, given)
    splits = max(1, _ceil(k, part))
    in_place = is_same(spec, spec.lhs)
    strides = (lhs_si, lhs_sp) if in_place else None
    in_scratch = not isinstance(spec.epilogue, PlainStore)
    # What only one block of rows uses need not be packed by a step of its own: it is copied in passing, if at all.
    read_in_place = streams or (
        reads and (m <= blocking.tile.rows if rhs_stays else _read_in_place(blocking, m, step, rhs_sp))
    )
    may_copy = is_same(spec, spec.rhs) and not (read_in_place or rhs_stays) and 1 in (rhs_sj, rhs_sp)
    if streams:
        block_rows, block_panels = _wide_block(blocking, in_scratch, batch * splits, m, panels)
    else:
        shape_of_block = (batch * splits, m, n, part, step)
        image = (staged.most_rows, staged.share, staged.by_rows) if staged else None
        block_rows, block_panels = _block(blocking, in_scratch, *shape_of_block, strides, may_copy, image)
    if staged:
        block_rows = _whole_lines(block_rows, m, staged.line, blocking)
    row_blocks, column_blocks = _ceil(m, block_rows), _ceil(panels, block_panels)
    copy_rhs = int(may_copy and row_blocks == 1)
    direct = full if read_in_place or copy_rhs else 0
    packed = panels - direct
    rhs_batch = 1 if same_rhs else batch
    temporaries = {"t_packed": rhs_batch * packed * k * columns * size}
    if in_place:
        far = _is_far(blocking, batch * splits, m, part)
        pack_lhs = int(_pack_lhs(blocking, min(block_rows, m), block_panels, step, lhs_si, lhs_sp, far))
    else:
        pack_lhs = int(block_panels > 2)  # of what was evaluated along i: it is in the cache

    names = ("lhs_sb", "lhs_si", "lhs_sp", "rhs_sb", "rhs_sp", "rhs_sj")
    shape = {"batch": batch, "m": m, "n": n, "k": k, **dict(zip(names, (*lhs_strides, *rhs_strides), strict=True))}
    steps = []
    if packed and k:
        groups, chunks = _ceil(packed, max(1, GROUP_COLUMNS // columns)), _ceil(k, step)
        grain = max(1, _ceil(1 << 13, min(n, GROUP_COLUMNS) * step))
        items = rhs_batch * groups * chunks
        if kernels.packing == PACK:
            own = {"first_panel": direct, "panels": panels, "groups": groups, "chunks": chunks, "step": step}
            pointers = {"rhs": spec.rhs.pointer, "packed": "t_packed"}
        else:
            own = {
                "t_panels": panels,
                "t_groups": groups,
                "t_chunks": chunks,
                "t_step": step,
                "t_k": elements,
                "t_pack": KernelAddress(PACK),
            }
            pointers = {}
        packing = _step(kernels, kernels.packing, items, grain, shape | own, pointers, temporaries)
        steps.append(replace(packing, prepares=rhs_stays))

    own = {
        "row_blocks": row_blocks,
        "column_blocks": column_blocks,
        "block_rows": block_rows,
        "block_panels": block_panels,
        "panels": panels,
        "pack_lhs": pack_lhs,
        "copy_rhs": copy_rhs,
        "step": step,
        "part": part,
        "part_items": batch * row_blocks * column_blocks,
        "out_part": batch * m * n,
        "full_panels": full,
        "packed_sb": 0 if same_rhs else packed * k * columns,
        "packed_sp": packed * columns,
    }
    pointers = {}
    if kernels.fused == PRODUCT:
        own |= {
            "out_sb": m * n, "out_si": n, "direct_panels": direct, "accumulate": 0,
            "line_rows": 0, "line_start": 0, "run": 0, "soon": 0, "soon_bytes": 0,
        }  # fmt: skip
        # Where rhs is not read in place its pointer is not followed; nor are those of the offsets without lines, runs.
        rhs = spec.rhs.pointer if is_same(spec, spec.rhs) else "t_packed"
        pointers = {"lhs": spec.lhs.pointer, "rhs": rhs, "packed": "t_packed", "out": spec.epilogue.pointer}
        pointers |= {"line_offsets": "t_packed", "run_offsets": "t_packed"}
    else:
        own = {f"t_{name}": value for name, value in own.items()}
        own |= {
            "t_direct": direct,
            "t_k": elements,
            "t_product": KernelAddress(PRODUCT),
            "t_sums_row": block_panels * columns,
            "t_columns": columns,
        }
    temporaries |= {"t_parts": splits * batch * m * n * size}
    items = splits * batch * row_blocks * column_blocks
    work = block_rows * min(n, block_panels * columns) * max(part, 1)
    grain = max(1, SERIAL_WORK // work)
    product = _step(kernels, kernels.fused, items, grain, shape | own, pointers, temporaries)
    steps.append(replace(product, work=items * work * PRODUCT_WORK))
    if kernels.splits > 1:
        items, own = rows_of_join
        own |= {"t_splits": splits, "t_out_part": batch * m * n}
        grain = max(1, SERIAL_WORK // 8 // (n * splits))
        steps.append(_step(kernels, len(kernels.kernels) - 1, items, grain, shape | own, {}, temporaries))
    return steps


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _rows_near(row_bytes: int) -> int:
    """The rows of rhs in a step that few rows of lhs take: their sums are short, so that they are worth more steps."""
    return min(max(SPAN // row_bytes & -8, 64), 128)


def _wide_block(blocking: Blocking, sums_in_scratch: bool, batch: int, m: int, panels: int) -> tuple[int, int]:
    """(rows, panels) of a block of few rows: the widest that leave no core without one, or that give each two where
    they are wide still."""
    each = _ceil(blocking.cores, batch)
    rows = _ceil(m, blocking.tile.rows) * blocking.tile.rows
    width = _ceil(panels, 2 * each if panels > 2 * each * WIDE else each)
    return rows, max(1, min(width, blocking.sums // (rows * blocking.tile.columns))) if sums_in_scratch else width


def _read_in_place(blocking: Blocking, m: int, depth: int, rhs_sp: int) -> bool:
    """Whether the tiles read a rhs with contiguous rows where it lies. Packing costs a pass over it, as much as some 8
    rows of products, and pays when many rows use a panel, or when its own rows would evict each other from the caches.
    """
    # Rows of a panel fall into the same few sets of a cache when they lie a multiple of a large power of two apart.
    sets = PERIOD // math.gcd(rhs_sp * blocking.size, PERIOD)
    fits = depth * blocking.tile.columns * blocking.size <= blocking.l1_bytes // 2 and depth <= 8 * sets
    return m <= blocking.tile.rows or (m <= 128 and fits)


def _pack_lhs(blocking: Blocking, rows: int, panels: int, depth: int, lhs_si: int, lhs_sp: int, far: bool) -> bool:
    """Whether a block of lhs is copied before tiles read it. That costs about as much as a panel of products.

    Tiles read the copy 3 % faster than rows, and much faster than rows that share the sets of a cache (38 GF/s of 101,
    at 4096 bytes, on Zen 3; a Xeon, whose cache has room for more of a set, was never slower in place: 16384 x 64 x 512
    took 3.0 ms, 4.0 with the copy, 1024 x 1024 x 1024 as long) or, where lhs is contiguous along i, than a cache line
    of each p. far: whether lhs comes from beyond the second cache: then single lines of many rows are what it costs,
    and two panels are enough (32 products of 512 x 64 x 512: 4.4 ms, in place 7), or one that is four lines wide (5.9
    ms, in place 6.7).
    """
    if lhs_sp == 1:
        sets = PERIOD // math.gcd(lhs_si * blocking.size, PERIOD)
        if blocking.is_wide and _ceil(blocking.tile.rows, sets) + 4 <= blocking.l1_bytes // PERIOD:
            return False
        return rows > 1 and depth > 64 and (panels > 16 or sets <= 2 or (sets <= 4 and panels > 3))
    sets = PERIOD // math.gcd(lhs_sp * blocking.size, PERIOD)
    fewest = 4 if not far else 1 if blocking.is_wide else 2
    return panels > 12 or (panels >= fewest and depth > 8 * sets)


def _is_far(blocking: Blocking, batch: int, m: int, k: int) -> bool:
    """Whether lhs as a whole has no room in the second caches."""
    return batch * m * k > 2 * blocking.area


@functools.lru_cache(4096)
def _block(
    blocking: Blocking,
    sums_in_scratch: bool,
    batch: int,
    m: int,
    n: int,
    k: int,
    step: int,
    lhs_strides: tuple[int, int] | None,
    may_copy: bool,
    image: tuple[int, float, bool] | None,
) -> tuple[int, int]:
    """(rows, panels) of a block of the result: of some candidates the pair that takes the shortest time.

    lhs_strides: of a lhs that tiles read in place, None for one that is evaluated block by block. may_copy: whether a
    single block of rows saves packing rhs in a step of its own, which costs another trip to the last cache and a wait
    of all cores for each other. image: most_rows, share and by_rows of a `StagedOperand`,
    None for another lhs.

    Times are in steps of p of one tile (2 ns on Zen 3). A tile needs some 10 more at the end of a partial sum. A block
    of lhs is copied or evaluated in the time of one panel; read in place it costs 3 % of the products, and half a panel
    where it is not in the cache, two where each element lies in a line of its own. A panel comes from the last cache in
    the time of FETCH tiles, or FETCH_WIDE. Blocks are taken by whoever is free, so on average half a block is waited
    for at the end; on the Xeon, a quarter fitted what was measured.
    """
    tile, cores = blocking.tile, blocking.cores
    panels, tiles, steps = _ceil(n, tile.columns), _ceil(m, tile.rows), _ceil(k, step)
    most_rows, share, by_rows = image or (blocking.rows_for(step), 0.0, False)
    most = min(most_rows // tile.rows, tiles)
    least = SERIAL_WORK // (tile.rows * tile.columns)  # less is not handed out as a chunk of its own
    products = tiles * panels * (k + 10 * steps)
    far = _is_far(blocking, batch, m, k)
    fetch_lhs = 0.0 if not far or lhs_strides is None else 0.5 if lhs_strides[1] == 1 else 2.0
    best, best_time = None, math.inf
    tried = set()
    for part in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
        width = _ceil(panels, _ceil(panels, max(1, panels // part)))
        for less in (1.0, 0.8, 0.6, 0.45, 0.3, 0.0):
            rows = max(1, int(most * less))
            if sums_in_scratch:
                # The sums of a block live in scratch memory.
                rows = min(rows, max(1, blocking.sums // (width * tile.columns * tile.rows)))
                if rows * width * tile.rows * tile.columns > blocking.sums and width > 1:
                    break
            down = _ceil(tiles, rows)
            rows = _ceil(tiles, down)  # blocks of about equal size
            if (rows, width) in tried:
                continue
            tried.add((rows, width))
            across = _ceil(panels, width)
            if image:
                for_lhs = (rows if by_rows else tiles) * k * share
            elif lhs_strides is None or _pack_lhs(blocking, min(rows * tile.rows, m), width, step, *lhs_strides, far):
                for_lhs = rows * k
            else:
                for_lhs = rows * k * (fetch_lhs + 0.03 * width)
            if blocking.is_wide:
                fetch = FETCH_WIDE * k * (1 + (width - 1) / rows)
            else:
                stays = width * tile.columns * k * blocking.size <= blocking.slab
                fetch = FETCH * k * width * (1 if stays else 4)
            one = rows * width * (k + 10 * steps) + for_lhs + fetch + 100
            blocks = batch * down * across
            time = batch * (products + down * across * (for_lhs + fetch + 100))
            if cores > 1 and time > 2 * least:
                # When the last round is not full, its blocks may still be the smaller ones of the edges.
                # One block for each core: they end together.
                wait = max(one, least) / (4 if blocks == cores else 2) / (2 if blocking.is_wide else 1)
                time = max(one, time / cores, min(_ceil(blocks, cores) * one, time / cores + one)) + wait
            if may_copy and down > 1:
                time += 0.5 * panels * k / cores + (2500 if cores > 1 else 0)
            if time < best_time:
                best, best_time = (rows * tile.rows, width), time
        if width == 1 or (best and part * most > 16 * cores * 8 and tiles * panels * k > 64 * least * cores):
            break
    return best or (tile.rows, 1)


def _whole_lines(rows: int, m: int, line: int, blocking: Blocking) -> int:
    """Rows of a block, made whole lines where there are enough: of a line that two blocks share both need the image."""
    if line % blocking.tile.rows == 0 or m // line < 8 * blocking.cores or rows < line:
        return rows
    lines = m // line
    return _ceil(lines, _ceil(lines, rows // line)) * line


def _step(kernels: ContractionKernels, kernel: int, items: int, grain: int, values, pointers, temporaries) -> Step:
    names = kernels.parameters[kernel]
    arguments = {name: values[name] for name in names if name in values}
    used = {*names, *pointers.values()}
    return Step(kernel, items, grain, arguments, pointers, {name: x for name, x in temporaries.items() if name in used})
