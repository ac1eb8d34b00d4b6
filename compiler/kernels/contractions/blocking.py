"""Sizes to launches: how a contraction is cut into blocks, which operands are packed, what every step is passed."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from hloom.compiler.kernels.contractions import room
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
from hloom.ir.records import record, replace
from hloom.ir.sizes.expressions import greatest, is_known, least
from hloom.ir.sizes.guards import typical

# Products (about 5 microseconds of one core) below which a chunk of work is not worth a thread.
SERIAL_WORK = 1 << 18
PRODUCT_WORK = 0.5  # element operations in whose time a multiply-add of a tile is done
# The time in which a panel comes to one core from the last cache, in tiles: with narrow vectors, and with vectors of a
# cache line, where the tiles of a block share the prefetches of the next panel, so that only the first is waited for.
FETCH, FETCH_WIDE = 0.5, 5.0
# FEW_ROWS of lhs read a rhs in memory in wide blocks of few of its rows at a time, in runs of kilobytes.
WIDE = 16  # panels
SPAN = 512 << 10  # bytes that such a step spans: their pages stay in the processor's table of addresses
PERIOD = 4096  # bytes after which addresses share a set of a first-level cache, on about every machine

_Values = dict[str, int | KernelAddress]


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
    """The launches that compute a contraction of these sizes; none when the result is empty.

    lhs_strides: (sb, si, sp) in elements, of a plain lhs. rhs_strides: (sb, sp, sj) of a plain rhs.
    rhs_stays: whether rhs is loop-invariant in the surrounding loop, so that it is packed once.
    """
    if any([size <= 0 for size in (batch, m, n)]):
        return []
    plan = _Plan(kernels, (batch, m, n, k), lhs_strides, rhs_strides, rhs_stays)
    # Of open sizes it may have no panels, which costs a launch of nothing; whether it has would be a guard.
    packs = plan.k and not is_known(plan.packed == 0)
    steps = [plan.packing()] if packs else []
    steps.append(plan.product())
    if kernels.splits > 1:
        steps.append(plan.joining(batch, m))
    return steps


class _Plan:
    """The blocks of one contraction, and its launches. k: products in a sum, of words; elements: of numbers."""

    def __init__(
        self,
        kernels: ContractionKernels,
        sizes: tuple[int, int, int, int],
        lhs_strides: Sequence[int],
        rhs_strides: Sequence[int],
        rhs_stays: bool,
    ):
        self.kernels, self.rhs_stays = kernels, rhs_stays
        self.spec, self.blocking = kernels.spec, kernels.blocking
        self.lhs_strides, self.rhs_strides = lhs_strides, rhs_strides
        batch, m, self.n, self.elements = sizes
        spec, columns = self.spec, self.blocking.tile.columns
        plain_rhs = isinstance(spec.rhs, PlainOperand)
        self.same_rhs = rhs_strides[0] == 0 if plain_rhs else not spec.rhs_batched
        plain = plain_rhs and isinstance(spec.lhs, PlainOperand) and isinstance(spec.epilogue, PlainStore)
        if plain and self.same_rhs and lhs_strides[0] == m * lhs_strides[1]:
            batch, m = 1, batch * m  # one rhs for rows that follow each other: a single matrix product
        self.batch, self.m, self.k = batch, m, _ceil(self.elements, self.blocking.in_word)
        self.panels, self.full = _ceil(self.n, columns), self.n // columns
        self.in_place = is_same(spec.lhs, spec.accumulate)
        self._choose_steps()
        self._choose_blocks()
        self._check_room()
        names = ("lhs_sb", "lhs_si", "lhs_sp", "rhs_sb", "rhs_sp", "rhs_sj")
        self.values: _Values = {"batch": batch, "m": m, "n": self.n, "k": self.k}
        self.values |= dict(zip(names, (*lhs_strides, *rhs_strides), strict=True))
        rhs_batch = 1 if self.same_rhs else batch
        self.rhs_batch, size = rhs_batch, self.blocking.size
        self.temporaries = {
            "t_packed": rhs_batch * self.packed * self.k * columns * size,
            "t_parts": self.splits * batch * m * self.n * size,
        }

    def _choose_steps(self) -> None:
        """How sums are cut into parts and steps, and whether tiles read rhs where it lies."""
        spec, blocking, m = self.spec, self.blocking, self.m
        _, rhs_sp, rhs_sj = self.rhs_strides
        same = is_same(spec.rhs, spec.accumulate)
        reads = same and rhs_sj == 1
        staged = spec.lhs if isinstance(spec.lhs, StagedOperand) else None
        far = rhs_sp * blocking.size >= FAR_ROWS
        self.streams = reads and not (staged or self.rhs_stays) and far and m <= FEW_ROWS
        given = staged.step if staged else _rows_near(rhs_sp * blocking.size) if self.streams else 0
        self.part, self.step = split_steps(m, self.k, self.kernels.splits, given)
        self.splits = 1 if self.kernels.splits == 1 else max(1, _ceil(self.k, self.part))
        # What only one block of rows uses need not be packed by a step of its own: it is copied in passing, if at all.
        few = m <= blocking.tile.rows
        near = few if self.rhs_stays else _read_in_place(blocking, m, self.step, rhs_sp)
        self.read_in_place = self.streams or (reads and near)
        copies = same and not (self.read_in_place or self.rhs_stays) and 1 in (rhs_sj, rhs_sp)
        self.may_copy = copies and self.step <= room.DEPTH

    def _choose_blocks(self) -> None:
        """Rows and panels of a block, and which operands are packed or copied."""
        spec, blocking, m = self.spec, self.blocking, self.m
        staged = spec.lhs if isinstance(spec.lhs, StagedOperand) else None
        _, lhs_si, lhs_sp = self.lhs_strides
        in_scratch, batch = not isinstance(spec.epilogue, PlainStore), self.batch * self.splits
        if self.streams:
            rows, panels = _wide_block(blocking, in_scratch, batch, m, self.panels)
        else:
            strides = (typical(lhs_si), typical(lhs_sp)) if self.in_place else None
            image = (staged.most_rows, staged.share, staged.by_rows) if staged else None
            rows, panels = _best_block(
                _Block(
                    blocking,
                    in_scratch,
                    typical(batch),
                    typical(m),
                    typical(self.n),
                    typical(self.part),
                    typical(self.step),
                    strides,
                    self.may_copy,
                    image,
                )  # fmt: skip
            )
        if staged:
            rows = _whole_lines(rows, panels, typical(m), staged, blocking)
        one_block = self.streams
        if not (staged or one_block) and rows >= typical(m) and m <= self._most_rows(rows, panels, in_scratch):
            rows, one_block = _ceil(m, blocking.tile.rows) * blocking.tile.rows, True
        self.block_rows, self.block_panels = rows, panels
        self.row_blocks, self.column_blocks = 1 if one_block else _ceil(m, rows), _ceil(self.panels, panels)
        self.copy_rhs = self.may_copy and self.row_blocks == 1
        self.direct = self.full if self.read_in_place or self.copy_rhs else 0
        self.packed = self.panels - self.direct
        if self.in_place:
            far = _is_far(blocking, batch, m, self.part)
            self.pack_lhs = _pack_lhs(blocking, min(typical(rows), typical(m)), panels, self.step, lhs_si, lhs_sp, far)
        else:
            self.pack_lhs = panels > 2  # of what was evaluated along i: it is in the cache

    def _most_rows(self, rows: int, panels: int, in_scratch: bool) -> int:
        """The most rows that are one block, of as many panels, where `rows` are: the next power of 4, or what there is
        room for, so that sizes that are known later need few variants."""
        blocking, rows = self.blocking, typical(rows)
        most = blocking.rows_for(self.step)
        if in_scratch:
            most = min(most, blocking.sums // (panels * blocking.tile.columns))
        tile = blocking.tile.rows
        return max(rows, min(4 ** _ceil((rows - 1).bit_length(), 2), most // tile * tile))

    def _check_room(self) -> None:
        """Compares what the kernels write to scratch memory with its sizes, as `room` says."""
        spec, blocking, tile, rows = self.spec, self.blocking, self.blocking.tile, self.block_rows
        image, sizes = spec.lhs if isinstance(spec.lhs, StagedOperand) else None, blocking.scratch
        used = {"edge": (room.sums(rows, 1, tile.columns), sizes.edge)}
        if not isinstance(spec.epilogue, PlainStore):
            used["sums"] = room.sums(rows, self.block_panels, tile.columns), sizes.sums
        if image is not None:
            aligned = self.row_blocks == 1 or rows % image.line == 0
            lines = (room.aligned_lines if aligned else room.lines_of)(min(rows, self.m), image.line)
            used["image"] = image.elements(lines), sizes.staged
            used["offsets"] = max(lines, room.aligned_lines(image.step, image.run)), sizes.offsets
        elif not self.in_place:
            used["evaluated"] = room.evaluated(rows, self.step), sizes.evaluated
        if self.pack_lhs and image is None:
            used["copied_left"] = room.copied_left(rows, self.step, tile.rows, blocking.size), sizes.copied_left
        if self.copy_rhs:
            copied = room.copied_right(blocking.copied_panels, self.step, tile.columns)
            used["copied_right"] = copied, sizes.copied_right
        if self.kernels.packing != PACK and not is_known(self.packed == 0):
            used["turned"] = room.turned(self.step, tile.columns), sizes.turned
        room.check(spec.name, used)

    def packing(self) -> Step:
        """Packs the panels of rhs that are not read in place."""
        columns = self.blocking.tile.columns
        groups, chunks = _ceil(self.packed, max(1, GROUP_COLUMNS // columns)), _ceil(self.k, self.step)
        grain = max(1, _ceil(1 << 13, typical(least(self.n, GROUP_COLUMNS)) * self.step))
        own: _Values = {"panels": self.panels, "groups": groups, "chunks": chunks, "step": self.step}
        pointers = {}
        if self.kernels.packing == PACK:
            assert isinstance(self.spec.rhs, PlainOperand)
            own["first_panel"] = self.direct
            pointers = {"rhs": self.spec.rhs.pointer, "packed": "t_packed"}
        else:
            own = _own(own) | {"t_k": self.elements, "t_pack": KernelAddress(PACK)}
        items = self.rhs_batch * groups * chunks
        return replace(self._step(self.kernels.packing, items, grain, own, pointers), prepares=self.rhs_stays)

    def product(self) -> Step:
        """Multiplies blocks of rows with panels."""
        spec, columns, full_size = self.spec, self.blocking.tile.columns, self.batch * self.m * self.n
        blocks = self.batch * self.row_blocks * self.column_blocks
        own: _Values = {
            "row_blocks": self.row_blocks, "column_blocks": self.column_blocks, "block_rows": self.block_rows,
            "block_panels": self.block_panels, "panels": self.panels, "full_panels": self.full,
            "pack_lhs": int(self.pack_lhs), "copy_rhs": int(self.copy_rhs), "step": self.step, "part": self.part,
            "part_items": blocks, "out_part": full_size, "packed_sp": self.packed * columns,
            "packed_sb": 0 if self.same_rhs else self.packed * self.k * columns,
        }  # fmt: skip
        pointers = {}
        if self.kernels.fused == PRODUCT:
            assert isinstance(spec.lhs, PlainOperand) and isinstance(spec.epilogue, PlainStore)
            own |= {"out_sb": self.m * self.n, "out_si": self.n, "direct_panels": self.direct, "accumulate": 0}
            own |= dict.fromkeys(("line_rows", "line_start", "run", "soon", "soon_bytes"), 0)
            # Where rhs is not read in place its pointer is not followed; nor are those of offsets without lines, runs.
            rhs = spec.rhs.pointer if is_same(spec.rhs, spec.accumulate) else "t_packed"
            pointers = dict.fromkeys(("packed", "line_offsets", "run_offsets"), "t_packed")
            pointers |= {"lhs": spec.lhs.pointer, "rhs": rhs, "out": spec.epilogue.pointer}
        else:
            own |= {"direct": self.direct, "k": self.elements, "product": KernelAddress(PRODUCT)}
            own = _own(own | {"sums_row": self.block_panels * columns, "columns": columns})
        items = self.splits * blocks
        work = typical(self.block_rows * least(self.n, self.block_panels * columns) * greatest(self.part, 1))
        step = self._step(self.kernels.fused, items, max(1, SERIAL_WORK // work), own, pointers)
        return replace(step, work=typical(items) * work * PRODUCT_WORK)

    def joining(self, batch: int, m: int) -> Step:
        """Adds the parts of sums; batch, m: as the epilogue counts them."""
        out_part = self.batch * self.m * self.n
        own: _Values = {"batch": batch, "m": m, "t_splits": self.splits, "t_out_part": out_part}
        grain = max(1, SERIAL_WORK // 8 // typical(self.n * self.splits))
        return self._step(len(self.kernels.kernels) - 1, batch * m, grain, own, {})

    def _step(self, kernel: int, items: int, grain: int, own: _Values, pointers: Mapping[str, str]) -> Step:
        names, values = self.kernels.parameters[kernel], self.values | own
        used = {*names, *pointers.values()}
        temporaries = {name: size for name, size in self.temporaries.items() if name in used}
        arguments = {name: values[name] for name in names if name in values}
        return Step(kernel, items, grain, arguments, dict(pointers), temporaries)


def _own(values: _Values) -> _Values:
    """Values under the names of a spec's own kernels."""
    return {f"t_{name}": value for name, value in values.items()}


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _rows_near(row_bytes: int) -> int:
    """The rows of rhs in a step for few rows of lhs: their sums are short, so that they are worth more steps."""
    return min(max(SPAN // typical(row_bytes) & -8, 64), 128)


def _wide_block(blocking: Blocking, sums_in_scratch: bool, batch: int, m: int, panels: int) -> tuple[int, int]:
    """(rows, panels) of a block of few rows: the widest that leave no core without one, or that have two for each core
    where they are wide still."""
    each, panels = _ceil(blocking.cores, typical(batch)), typical(panels)
    rows = _ceil(m, blocking.tile.rows) * blocking.tile.rows
    width = _ceil(panels, 2 * each if panels > 2 * each * WIDE else each)
    return rows, max(1, min(width, blocking.sums // (rows * blocking.tile.columns))) if sums_in_scratch else width


def _read_in_place(blocking: Blocking, m: int, depth: int, rhs_sp: int) -> bool:
    """Whether the tiles read a rhs with contiguous rows where it lies. Packing costs a pass over it, as much as some 8
    rows of products, and pays when many rows use a panel, or when its own rows would evict each other from the caches.
    """
    # Rows of a panel fall into the same few sets of a cache when they lie a multiple of a large power of two apart.
    sets = PERIOD // math.gcd(typical(rhs_sp) * blocking.size, PERIOD)
    fits = depth * blocking.tile.columns * blocking.size <= blocking.l1_bytes // 2 and depth <= 8 * sets
    return (fits and typical(m) <= 128) or m <= blocking.tile.rows


def _pack_lhs(blocking: Blocking, rows: int, panels: int, depth: int, lhs_si: int, lhs_sp: int, far: bool) -> bool:
    """Whether a block of lhs is copied before tiles read it. That costs about as much as a panel of products.

    Tiles read the copy much faster than rows that share the sets of a cache or, where lhs is contiguous along i, than a
    cache line of each p. far: whether lhs comes from beyond the second cache: then single lines of many rows are what
    it costs, and two panels are enough, or one that is four lines wide.
    """
    sets = PERIOD // math.gcd(typical(lhs_si if lhs_sp == 1 else lhs_sp) * blocking.size, PERIOD)
    if lhs_sp == 1:
        if blocking.is_wide and _ceil(blocking.tile.rows, sets) + 4 <= blocking.l1_bytes // PERIOD:
            return False
        return rows > 1 and depth > 64 and (panels > 16 or sets <= 2 or (sets <= 4 and panels > 3))
    fewest = 4 if not far else 1 if blocking.is_wide else 2
    return panels > 12 or (panels >= fewest and depth > 8 * sets)


def _is_far(blocking: Blocking, batch: int, m: int, k: int) -> bool:
    """Whether lhs as a whole has no room in the second caches."""
    return typical(batch * m * k) > 2 * blocking.area


@record(frozen=True)
class _Block:
    """What a block of the result is chosen for, and the time that a choice takes.

    lhs_strides: of a lhs that tiles read in place, None for one that is evaluated block by block. may_copy: whether a
    single block of rows saves packing rhs in a step of its own, which costs another trip to the last cache and a wait
    of all cores for each other. image: most_rows, share and by_rows of a `StagedOperand`, None for another lhs.

    Times are in steps of p of one tile. A tile needs some 10 more at the end of a partial sum. A block of lhs is copied
    or evaluated in the time of one panel; read in place it costs 3 % of the products, and half a panel where it is not
    in the cache, two where each element lies in a line of its own. A panel comes from the last cache in the time of
    FETCH tiles, or FETCH_WIDE. Blocks go to whichever core is free, so on average half a block is waited for at the
    end; a quarter where vectors are wide.
    """

    blocking: Blocking
    sums_in_scratch: bool
    batch: int
    m: int
    n: int
    k: int
    step: int
    lhs_strides: tuple[int, int] | None
    may_copy: bool
    image: tuple[int, float, bool] | None

    @cached_property
    def tiles(self) -> int:
        return _ceil(self.m, self.blocking.tile.rows)

    @cached_property
    def panels(self) -> int:
        return _ceil(self.n, self.blocking.tile.columns)

    @cached_property
    def least(self) -> int:
        """The work below which nothing is handed out as a chunk of its own."""
        return SERIAL_WORK // (self.blocking.tile.rows * self.blocking.tile.columns)

    def candidates(self) -> Iterator[tuple[int, int]]:
        """(rows of tiles, panels) of blocks of about equal size."""
        blocking, tiles, panels = self.blocking, self.tiles, self.panels
        tile, most = blocking.tile, self.image[0] if self.image else blocking.rows_for(self.step)
        most = min(most // tile.rows, tiles)
        tried: set[tuple[int, int]] = set()
        for part in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
            width = _ceil(panels, _ceil(panels, max(1, panels // part)))
            for less in (1.0, 0.8, 0.6, 0.45, 0.3, 0.0):
                rows = max(1, int(most * less))
                if self.sums_in_scratch:
                    rows = min(rows, max(1, blocking.sums // (width * tile.columns * tile.rows)))
                    if rows * width * tile.rows * tile.columns > blocking.sums and width > 1:
                        break
                rows = _ceil(tiles, _ceil(tiles, rows))
                if (rows, width) not in tried:
                    tried.add((rows, width))
                    yield rows, width
            many = part * most > 16 * blocking.cores * 8 and tiles * panels * self.k > 64 * self.least * blocking.cores
            if width == 1 or (tried and many):
                break

    def time(self, rows: int, width: int) -> float:
        """The time of all blocks of so many rows of tiles and panels."""
        cores, down, tile = self.blocking.cores, _ceil(self.tiles, rows), self.k + 10 * _ceil(self.k, self.step)
        lhs, fetches = self._time_of_lhs(rows, width), self._time_of_fetches(rows, width)
        one = rows * width * tile + lhs + fetches + 100
        blocks = down * _ceil(self.panels, width)
        time = self.batch * (self.tiles * self.panels * tile + blocks * (lhs + fetches + 100))
        blocks *= self.batch
        if cores > 1 and time > 2 * self.least:
            # When the last round is not full, its blocks may still be the smaller ones of the edges.
            # One block for each core: they end together.
            wait = max(one, self.least) / (4 if blocks == cores else 2) / (2 if self.blocking.is_wide else 1)
            time = max(one, time / cores, min(_ceil(blocks, cores) * one, time / cores + one)) + wait
        if self.may_copy and down > 1:
            time += 0.5 * self.panels * self.k / cores + (2500 if cores > 1 else 0)
        return time

    def _time_of_lhs(self, rows: int, width: int) -> float:
        """The time in which a block of lhs is evaluated, copied or read."""
        if self.image:
            _, share, by_rows = self.image
            return (rows if by_rows else self.tiles) * self.k * share
        height, strides = min(rows * self.blocking.tile.rows, self.m), self.lhs_strides
        far = _is_far(self.blocking, self.batch, self.m, self.k)
        if strides is None or _pack_lhs(self.blocking, height, width, self.step, *strides, far):
            return rows * self.k
        fetch = 0.0 if not far else 0.5 if strides[1] == 1 else 2.0
        return rows * self.k * (fetch + 0.03 * width)

    def _time_of_fetches(self, rows: int, width: int) -> float:
        """The time in which the panels of a block come from the last cache."""
        if self.blocking.is_wide:
            return FETCH_WIDE * self.k * (1 + (width - 1) / rows)
        stays = width * self.blocking.tile.columns * self.k * self.blocking.size <= self.blocking.slab
        return FETCH * self.k * width * (1 if stays else 4)


@functools.lru_cache(4096)
def _best_block(block: _Block) -> tuple[int, int]:
    """(rows, panels) of a block of the result: of the candidates the pair that takes the shortest time."""
    rows, width = min(block.candidates(), key=lambda candidate: block.time(*candidate), default=(1, 1))
    return rows * block.blocking.tile.rows, width


def _whole_lines(rows: int, panels: int, m: int, image: StagedOperand, blocking: Blocking) -> int:
    """Rows of a block, rounded to whole lines where there are enough: two blocks that share a line both stage it.

    Not where the tiles of whole lines have more empty rows than that costs.
    """
    tile, line = blocking.tile.rows, image.line
    if line % tile == 0 or m // line < 8 * blocking.cores or rows < line:
        return rows
    lines = m // line
    whole = _ceil(lines, _ceil(lines, rows // line)) * line
    empty, twice = _ceil(whole, tile) * tile / whole - 1, line / rows * image.share / panels
    return whole if empty <= twice else rows
