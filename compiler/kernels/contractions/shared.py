"""The two kernels that all contractions of one accumulation dtype share: packing a plain rhs, and the product itself.

Their sources depend only on the dtype and the shape of the register tile, so they are compiled once. Both can be
launched over work items, and the kernels of single contractions call both for one block (`call_kernel`).
"""

from __future__ import annotations

import functools
import re
import textwrap

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions import room
from hloom.compiler.kernels.contractions.tile_shapes import CACHE_LINE, MATRIX_WORDS, TileShape, square_rows
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical

# Columns of rhs packed together: enough for long vector loops in an element's code, and for the prefetchers of the
# processor, which begin anew in each row.
GROUP_COLUMNS = 384


@record(frozen=True)
class Blocking:
    """Sizes that the kernels of a contraction are written for.

    area: the most elements in a block of lhs, of one step of p; sums: the most elements in a block of sums; size: bytes
    of an element. slab: bytes of rhs that all cores use one block of rows after the other and that should stay in the
    last cache. word: what an element of an operand is: '' for one number; 'pair32' for two 16-bit integers, of p and
    p + 1; 'quadss32' and the like for four 8-bit ones, 'pairbf32' for two bfloat16, these for matrix registers.
    """

    dtype: str
    size: int
    tile: TileShape
    area: int
    sums: int
    l1_bytes: int
    slab: int
    cores: int
    word: str = ""

    @property
    def in_word(self) -> int:
        """Numbers in an element of an operand."""
        return {"": 1, "pair": 2, "quad": 4}[self.word[:4]]

    @property
    def by_matrix(self) -> bool:
        """Whether matrix registers multiply, for which a row of lhs has its words side by side."""
        return self.word in MATRIX_WORDS

    @property
    def is_wide(self) -> bool:
        """Whether a vector of a tile is a cache line."""
        return self.tile.lanes * self.size >= CACHE_LINE

    @property
    def copied_panels(self) -> int:
        """Panels that are copied together: a power of two."""
        most = room.COPIED // (self.tile.columns * room.DEPTH * self.size)
        return 1 << (max(1, min(most, 4)).bit_length() - 1)

    @property
    def scratch(self) -> room.Sizes:
        """The sizes of the scratch arrays of the kernels."""
        tile = self.tile
        return room.sizes(self.area, tile.rows, tile.columns, self.copied_panels, self.sums, self.size)

    def rows_for(self, step: int) -> int:
        """The most rows in a block of lhs where a step of p is that long."""
        tiles = min(max(1, self.area // (max(step, 1) * self.tile.rows)), max(room.MOST_ROWS // self.tile.rows, 1))
        return tiles * self.tile.rows


def depth_step(k: int, most: int | None = None) -> int:
    """Products in a partial sum, of sums of k: steps of about equal length, all but the last a multiple of 8."""
    k = typical(k)  # longer sums have more steps, shorter ones a short step
    steps = max(1, -(-k // (most or room.DEPTH)))
    return max(1, min(k, -(-k // steps) + 7 & -8))


def splits_of(batch: int, m: int, n: int, k: int) -> int:
    """Into how many parts sums of k products are cut, so that every core has some and each operand is read once: where
    the result is small and the sums are long. Each part has its own copy of the result; they are added in order."""
    return min(16, k // 2048) if k >= 4096 and batch * m * n <= 8192 else 1


def split_steps(m: int, k: int, splits: int, given: int = 0) -> tuple[int, int]:
    """(products in a part, products in a partial sum) of sums in so many parts. given: the latter, where it is."""
    part = -(-k // splits)
    # Shorter steps of more rows, so that all rows of lhs are one block.
    step = given or depth_step(part, room.DEPTH if splits == 1 or m <= 48 else min(256, room.DEPTH))
    return max(1, -(-part // step) * step), step


def block_area(machine, size: int) -> int:
    """The most elements, of `size` bytes, in a block of lhs: less than a third of the second-level cache.

    The same rows of the result have to stay there too, from one partial sum to the next.
    """
    return min(machine.l2_bytes * 2 // 7, room.LEFT_BYTES) // size


PACK_PARAMS = {
    "rhs": "*", "packed": "*", "n": "s64", "k": "s64", "rhs_sb": "s64", "rhs_sp": "s64", "rhs_sj": "s64",
    "first_panel": "s64", "panels": "s64", "groups": "s64", "chunks": "s64", "step": "s64", "lo": "s64", "hi": "s64",
}  # fmt: skip

_PACK = """
    # packed[b, step of p, panel, p, column] = rhs[b, p, panel * {columns} + column], and 0 where that column does not
    # exist, for first_panel <= panel < panels and steps of `step`; an item is (b, a group of {group} panels, a step).
    for item in range(lo, hi):
        strip = quotient(item, chunks)
        b = quotient(strip, groups)
        q0 = first_panel + (strip - b * groups) * {group}
        q1 = min(q0 + {group}, panels)
        p0 = (item - strip * chunks) * step
        p1 = min(p0 + step, k)
        depth = p1 - p0
        # Row p of panel q is row first_row + q * depth + p of all that is packed.
        first_row = (b * k + p0) * (panels - first_panel) - first_panel * depth - p0
        base = address(packed) + first_row * {row}
        source = address(rhs) + b * rhs_sb * {size}
        if rhs_sj == 1:
            full = min(q1, quotient(n, {columns}))
            for p in range(p0, p1):
                line = source + p * rhs_sp * {size}
                for q in range(q0, full):
                    copy_{T}_{columns}(line + q * {row}, base + (q * depth + p) * {row})
                if full < q1:
                    zero_{T}_{columns}(base + (full * depth + p) * {row})
                    copy_first_{T}_{columns}(line + full * {row}, base + (full * depth + p) * {row},
                                             n - full * {columns})
        else:
            # Square blocks go through registers where rhs is contiguous along p; all else by single elements.
            squares = quotient(n, {lanes}) * {lanes} * (rhs_sp == 1)
            for j in range(q0 * {columns}, q1 * {columns}, {lanes}):
                q = quotient(j, {columns})
                target = base + (q * depth * {columns} + j - q * {columns}) * {size}
                p = p0
                if j < squares:
                    for p in range(p0, p1 - {lanes_1}, {lanes}):
                        transpose_{T}_{lanes}x{lanes}(source + (j * rhs_sj + p) * {size}, rhs_sj * {size},
                                                      target + p * {row}, {row})
                    p = p0 + quotient(p1 - p0, {lanes}) * {lanes}
                for p in range(p, p1):
                    at = (first_row + q * depth + p - q) * {columns} + j
                    for x in range({lanes}):
                        packed[at + x] = {T}(0)
                    for x in range(min({lanes}, n - j)):
                        packed[at + x] = rhs[b * rhs_sb + p * rhs_sp + (j + x) * rhs_sj]
"""

PRODUCT_PARAMS = {
    "lhs": "*", "rhs": "*", "packed": "*", "out": "*", "m": "s64", "n": "s64", "k": "s64",
    "lhs_sb": "s64", "lhs_si": "s64", "lhs_sp": "s64", "rhs_sb": "s64", "rhs_sp": "s64", "rhs_sj": "s64",
    "packed_sb": "s64", "packed_sp": "s64", "out_sb": "s64", "out_si": "s64",
    "row_blocks": "s64", "column_blocks": "s64", "block_rows": "s64", "block_panels": "s64",
    "panels": "s64", "full_panels": "s64", "direct_panels": "s64", "pack_lhs": "s64", "copy_rhs": "s64",
    "step": "s64", "part": "s64", "part_items": "s64", "out_part": "s64", "accumulate": "s64",
    "line_rows": "s64", "line_start": "s64", "line_offsets": "s64*", "run": "s64", "run_offsets": "s64*",
    "soon": "s64", "soon_bytes": "s64",
    "lo": "s64", "hi": "s64",
}  # fmt: skip

_PRODUCT = """
    # out[b, i, j] (+)= sum over p of lhs[b, i, p] * rhs[b, p, j]; an item is (part, b, block of rows, block of panels),
    # where a part is a stretch of p that has a result of its own.
    # The first direct_panels panels of rhs are read in place, or copied here first (copy_rhs), the others were packed;
    # columns from full_panels on do not fill a panel.
    # line_rows != 0: row i of a block is number line_start + i of rows that lie in lines of so many, whose distances
    # from lhs, in bytes, stand in line_offsets. run != 0: so do products in runs of so many, in run_offsets.
    # soon_bytes != 0: so many bytes from the address soon on are read after this.
    left_block = scratch_{T}({block})
    right_block = scratch_{T}({copied})
    edge = scratch_{T}({edge})
    for item in range(lo, hi):
        number = quotient(item, part_items)
        p_first = number * part
        p_last = min(p_first + part, k)
        block = item - number * part_items
        line = quotient(block, row_blocks)
        b = quotient(line, column_blocks)
        i0 = (block - line * row_blocks) * block_rows
        rows = min(block_rows, m - i0)
        q0 = (line - b * column_blocks) * block_panels
        q1 = min(q0 + block_panels, panels)
        target = address(out) + (number * out_part + b * out_sb + i0 * out_si) * {size}
        if q1 > full_panels and accumulate != 0:
            for i in range(rows):
                copy_first_{T}_{columns}(target + i * out_si * {size} + full_panels * {row}, address(edge) + i * {row},
                                         n - full_panels * {columns})
        for p0 in range(p_first, max(p_last, p_first + 1), step):
            depth = min(step, p_last - p0)
            runs = 1
            tile_depth = depth
            if run != 0:
                runs = quotient(depth, run)
                tile_depth = run
            left = address(lhs) + (b * lhs_sb + i0 * lhs_si + p0 * lhs_sp) * {size}
            left_step = lhs_si * {size}
            left_row = left_step
            left_p = lhs_sp * {size}
            if pack_lhs != 0:
                # Tile by tile, for each p the rows of the tile side by side.
                whole = quotient(rows, {rows}) * {rows}
                length = depth + {skew}
                column = length * {size}
                if lhs_si == 1:
                    for p in range(depth):
                        for i in range(0, whole, {rows}):
                            # As with rhs below: rows may lie pages apart.
                            prefetch(left + (p + 12) * left_p + i * {size})
                            copy_{T}_{rows}(left + p * left_p + i * {size},
                                            address(left_block) + i * column + p * {tile_column})
                        if whole < rows:
                            copy_first_{T}_{rows}(left + p * left_p + whole * {size},
                                                  address(left_block) + whole * column + p * {tile_column},
                                                  rows - whole)
                else:
                    squares = quotient(depth, {square}) * {square} * (lhs_sp == 1)
                    for i in range(0, rows, {rows}):
                        done = squares * (i < whole)
                        for p in range(0, done, {square}):
                            source = left + i * left_row + p * {size}
                            place = address(left_block) + i * column + p * {tile_column}
                            transpose_{T}_{square}x{square}(source, left_row, place, {tile_column})
                            transpose_{T}_{square}x{square}(source + {second} * left_row, left_row,
                                                            place + {second} * {size}, {tile_column})
                        for p in range(done, depth):
                            at = b * lhs_sb + (i0 + i) * lhs_si + (p0 + p) * lhs_sp
                            for x in range(min({rows}, rows - i)):
                                left_block[i * length + p * {rows} + x] = lhs[at + x * lhs_si]
                left = address(left_block)
                left_step = column
                left_row = {size}
                left_p = {tile_column}
            for q in range(q0, q1):
                right = address(rhs) + (b * rhs_sb + p0 * rhs_sp + q * {columns} * rhs_sj) * {size}
                right_p = rhs_sp * {size}
                if q >= direct_panels:
                    panel = b * packed_sb + p0 * packed_sp + (q - direct_panels) * depth * {columns}
                    right = address(packed) + panel * {size}
                    right_p = {row}
                elif copy_rhs != 0:
                    copied = (q - q0) & {copied_1}
                    if copied == 0:
                        together = min({copied_panels}, min(q1, direct_panels) - q)
                        squares = quotient(depth, {lanes}) * {lanes} * (rhs_sj != 1)
                        for x in range(0, together * {columns} * (rhs_sj != 1), {lanes}):
                            panel = quotient(x, {columns})
                            place = address(right_block) + (panel * (depth - 1) * {columns} + x) * {size}
                            for p in range(0, squares, {lanes}):
                                transpose_{T}_{lanes}x{lanes}(right + (x * rhs_sj + p) * {size}, rhs_sj * {size},
                                                              place + p * {row}, {row})
                            for p in range(squares, depth):
                                at = b * rhs_sb + p0 + p + (q * {columns} + x) * rhs_sj
                                for y in range({lanes}):
                                    right_block[(panel * (depth - 1) + p) * {columns} + x + y] = rhs[at + y * rhs_sj]
                        for p in range(depth * (rhs_sj == 1)):
                            for x in range(together):
                                # Rows may lie pages apart, where no prefetcher of the processor looks.
                                prefetch(right + (p + 12) * right_p + x * {row})
                                copy_{T}_{columns}(right + p * right_p + x * {row},
                                                   address(right_block) + (x * depth + p) * {row})
                    right = address(right_block) + copied * depth * {row}
                    right_p = {row}
                sums = target + q * {row}
                sums_row = out_si * {size}
                if q >= full_panels:
                    sums = address(edge)
                    sums_row = {row}
                # Each tile asks for its share of the next panel. Two cores of a Xeon ran 1024 x 1024 x 1024 at 76 % of
                # the FMA peak without, at 79 % with that: what lies beyond the second cache comes at 30 GB/s.
                ahead = right
                ahead_p = 0
                if q >= direct_panels and q + 1 < q1:
                    ahead = right + depth * {row}
                    ahead_p = min({line}, quotient({tile_bytes} + rows - 1, rows))
                elif q + 1 == q1 and soon_bytes != 0:
                    ahead = soon
                    ahead_p = quotient(soon_bytes, depth * quotient(rows + {rows} - 1, {rows})) + 1
                elif q + 1 == q1 and q == q0 and left_p == {size} and {rows} * left_step <= {line} * depth:
                    # Of a block that is one panel wide each row is used once: that of the next tile.
                    ahead = left + {rows} * left_step
                    ahead_p = quotient({rows} * left_step + depth - 1, depth)
                i = 0
                place = left
                split = {rows}
                jump = 0
                while i < rows:
                    count = min({rows}, rows - i)
                    if line_rows != 0:
                        of_line = quotient(line_start + i, line_rows)
                        inside = line_start + i - of_line * line_rows
                        split = line_rows - inside
                        place = left + line_offsets[of_line] + inside * left_step
                        if count > split:
                            # The tile goes on in the next line.
                            count = min(count, split + line_rows)
                            jump = line_offsets[of_line + 1] - line_offsets[of_line] - line_rows * left_step
                    tile_{K}_{rows}x{columns}(place, left_row, left_p, right, right_p, sums + i * sums_row, sums_row,
                                              tile_depth, count, accumulate + p0 - p_first, ahead, ahead_p,
                                              runs, address(run_offsets) + 8, split, jump)
                    place = place + count * left_step
                    ahead = ahead + depth * ahead_p
                    i += count
        if q1 > full_panels:
            for i in range(rows):
                copy_first_{T}_{columns}(address(edge) + i * {row}, target + i * out_si * {size} + full_panels * {row},
                                         n - full_panels * {columns})
"""


def _kernel(kind: str, params: dict[str, str], body: str, blocking: Blocking) -> KernelSource:
    tile, size, scratch = blocking.tile, blocking.size, blocking.scratch
    words = f"_{blocking.word}" if blocking.word and kind == "product" else ""
    name = f"contraction_{kind}_{blocking.dtype}{words}_{tile.rows}x{tile.columns}"
    # Two squares cover the rows of a tile (6 as 0..3 and 2..5); where one does, nothing is left for the second.
    square = min(square_rows(tile.rows), tile.lanes) if blocking.by_matrix else square_rows(tile.rows)
    if tile.rows == square:
        second = re.compile(r" +transpose_{T}_{square}x{square}\(source \+.*\n.*\n")
        body = second.sub("", body)
    body = textwrap.dedent(body).strip("\n").format(
        T=blocking.dtype, K=blocking.word or blocking.dtype, size=size,
        rows=tile.rows, columns=tile.columns, lanes=tile.lanes, lanes_1=tile.lanes - 1,
        row=tile.columns * size, tile_column=tile.rows * size,
        tile_bytes=tile.rows * tile.columns * size, line=CACHE_LINE,
        square=square, second=tile.rows - square,
        group=max(1, GROUP_COLUMNS // tile.columns),
        block=scratch.copied_left, skew=room.SKEW // size, edge=scratch.edge, copied=scratch.copied_right,
        copied_panels=blocking.copied_panels, copied_1=blocking.copied_panels - 1,
    )  # fmt: skip
    text = f"def {name}({', '.join(params)}):\n{textwrap.indent(body, '    ')}\n"
    return KernelSource(name, text, tuple(blocking.dtype + "*" if kind == "*" else kind for kind in params.values()))


@functools.lru_cache
def pack_kernel(blocking: Blocking) -> KernelSource:
    """Copies a plain rhs of the accumulation dtype, at any strides, into panels."""
    return _kernel("pack", PACK_PARAMS, _PACK, blocking)


@functools.lru_cache
def product_kernel(blocking: Blocking) -> KernelSource:
    """Multiplies blocks of a plain lhs with panels of rhs."""
    return _kernel("product", PRODUCT_PARAMS, _PRODUCT, blocking)
