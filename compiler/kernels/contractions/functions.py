"""The two kernels that all contractions of a dtype share, as kernel functions: packing a plain rhs, and the product.

What depends on the register tile is given when they are made: `tile_rows`, `columns` and `lanes` of it; `size`, the
bytes of an element; `row` and `tile_column`, those of a row of a panel and of a column of the tile; and the names of
what moves and multiplies them (`microkernels.names`).
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import (
    Block,
    Pointer,
    T,
    address,
    kernel_function,
    prefetch,
    quotient,
    s64,
    scratch,
)
from hloom.compiler.kernels.contractions.tile_shapes import CACHE_LINE


@kernel_function
def pack(
    rhs: Pointer[T], packed: Pointer[T], n: s64, k: s64, rhs_sb: s64, rhs_sp: s64, rhs_sj: s64, first_panel: s64,
    panels: s64, groups: s64, chunks: s64, step: s64, lo: s64, hi: s64,
    columns: int, lanes: int, size: int, row: int, group: int,
    copy: Block, copy_first: Block, zero: Block, transpose: Block,
) -> None:  # fmt: skip
    """packed[b, step of p, panel, p, column] = rhs[b, p, panel * columns + column], and 0 where that column does not
    exist, for first_panel <= panel < panels and steps of `step`; an item is (b, a group of `group` panels, a step)."""
    for item in range(lo, hi):
        strip = quotient(item, chunks)
        b = quotient(strip, groups)
        q0 = first_panel + (strip - b * groups) * group
        q1 = min(q0 + group, panels)
        p0 = (item - strip * chunks) * step
        p1 = min(p0 + step, k)
        depth = p1 - p0
        # Row p of panel q is row first_row + q * depth + p of all that is packed.
        first_row = (b * k + p0) * (panels - first_panel) - first_panel * depth - p0
        base = address(packed) + first_row * row
        source = address(rhs) + b * rhs_sb * size
        if rhs_sj == 1:
            full = min(q1, quotient(n, columns))
            for p in range(p0, p1):
                line = source + p * rhs_sp * size
                for q in range(q0, full):
                    copy(line + q * row, base + (q * depth + p) * row)
                if full < q1:
                    zero(base + (full * depth + p) * row)
                    copy_first(line + full * row, base + (full * depth + p) * row, n - full * columns)
        else:
            # Square blocks go through registers where rhs is contiguous along p; all else by single elements.
            squares = quotient(n, lanes) * lanes * (rhs_sp == 1)
            for j in range(q0 * columns, q1 * columns, lanes):
                q = quotient(j, columns)
                target = base + (q * depth * columns + j - q * columns) * size
                p = p0
                if j < squares:
                    for p in range(p0, p1 - (lanes - 1), lanes):
                        transpose(source + (j * rhs_sj + p) * size, rhs_sj * size, target + p * row, row)
                    p = p0 + quotient(p1 - p0, lanes) * lanes
                for p in range(p, p1):  # noqa: B020
                    at = (first_row + q * depth + p - q) * columns + j
                    for x in range(lanes):
                        packed[at + x] = T(0)
                    for x in range(min(lanes, n - j)):
                        packed[at + x] = rhs[b * rhs_sb + p * rhs_sp + (j + x) * rhs_sj]


@kernel_function
def product(
    lhs: Pointer[T], rhs: Pointer[T], packed: Pointer[T], out: Pointer[T], m: s64, n: s64, k: s64,
    lhs_sb: s64, lhs_si: s64, lhs_sp: s64, rhs_sb: s64, rhs_sp: s64, rhs_sj: s64,
    packed_sb: s64, packed_sp: s64, out_sb: s64, out_si: s64,
    row_blocks: s64, column_blocks: s64, block_rows: s64, block_panels: s64,
    panels: s64, full_panels: s64, direct_panels: s64, pack_lhs: s64, copy_rhs: s64,
    step: s64, part: s64, part_items: s64, out_part: s64, accumulate: s64,
    line_rows: s64, line_start: s64, line_offsets: Pointer[s64], run: s64, run_offsets: Pointer[s64],
    soon: s64, soon_bytes: s64, lo: s64, hi: s64,
    tile_rows: int, columns: int, lanes: int, square: int, size: int, row: int, tile_column: int,
    left_size: int, right_size: int, edge_size: int, skew: int, copied_panels: int,
    copy: Block, copy_first: Block, copy_column: Block, copy_first_column: Block,
    transpose: Block, transpose_square: Block, tile: Block,
) -> None:  # fmt: skip
    """out[b, i, j] (+)= sum over p of lhs[b, i, p] * rhs[b, p, j]; an item is (part, b, block of rows, block of
    panels), where a part is a stretch of p that has a result of its own.

    The first direct_panels panels of rhs are read in place, or copied here first (copy_rhs), the others were packed;
    columns from full_panels on do not fill a panel.

    line_rows != 0: row i of a block is number line_start + i of rows that lie in lines of so many, whose distances from
    lhs, in bytes, are in line_offsets. run != 0: so do products in runs of so many, in run_offsets. soon_bytes != 0: so
    many bytes from the address soon on are read after this.
    """
    left_block = scratch(T, left_size)
    right_block = scratch(T, right_size)
    edge = scratch(T, edge_size)
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
        target = address(out) + (number * out_part + b * out_sb + i0 * out_si) * size
        if q1 > full_panels and accumulate != 0:
            for i in range(rows):
                copy_first(
                    target + i * out_si * size + full_panels * row, address(edge) + i * row, n - full_panels * columns
                )
        for p0 in range(p_first, max(p_last, p_first + 1), step):
            depth = min(step, p_last - p0)
            runs = 1
            tile_depth = depth
            if run != 0:
                runs = quotient(depth, run)
                tile_depth = run
            left = address(lhs) + (b * lhs_sb + i0 * lhs_si + p0 * lhs_sp) * size
            left_step = lhs_si * size
            left_row = left_step
            left_p = lhs_sp * size
            if pack_lhs != 0:
                column = pack_left(
                    lhs, left_block, left, left_row, left_p, b, i0, p0, rows, depth, lhs_sb, lhs_si, lhs_sp,
                    tile_rows, square, size, tile_column, skew, copy_column, copy_first_column, transpose_square,
                )  # fmt: skip
                left = address(left_block)
                left_step = column
                left_row = size
                left_p = tile_column
            for q in range(q0, q1):
                right = address(rhs) + (b * rhs_sb + p0 * rhs_sp + q * columns * rhs_sj) * size
                right_p = rhs_sp * size
                if q >= direct_panels:
                    panel = b * packed_sb + p0 * packed_sp + (q - direct_panels) * depth * columns
                    right = address(packed) + panel * size
                    right_p = row
                elif copy_rhs != 0:
                    copied = (q - q0) & (copied_panels - 1)
                    if copied == 0:
                        copy_panels(
                            rhs, right_block, right, right_p, b, p0, q, q1, depth, direct_panels, rhs_sb, rhs_sj,
                            columns, lanes, size, row, copied_panels, copy, transpose,
                        )  # fmt: skip
                    right = address(right_block) + copied * depth * row
                    right_p = row
                sums = target + q * row
                sums_row = out_si * size
                if q >= full_panels:
                    sums = address(edge)
                    sums_row = row
                multiply_panel(
                    q, q0, q1, direct_panels, soon, soon_bytes, left, left_step, left_row, left_p, right, right_p, sums,
                    sums_row, rows, tile_depth, depth, accumulate, p0, p_first, runs, run_offsets, line_rows,
                    line_start, line_offsets, tile_rows, columns, size, row, tile,
                )  # fmt: skip
        if q1 > full_panels:
            for i in range(rows):
                copy_first(
                    address(edge) + i * row, target + i * out_si * size + full_panels * row, n - full_panels * columns
                )


@kernel_function
def pack_left(
    lhs: Pointer[T], left_block: Pointer[T], left: s64, left_row: s64, left_p: s64, b: s64, i0: s64, p0: s64, rows: s64,
    depth: s64, lhs_sb: s64, lhs_si: s64, lhs_sp: s64, tile_rows: int, square: int, size: int, tile_column: int,
    skew: int, copy_column: Block, copy_first_column: Block, transpose_square: Block,
) -> s64:  # fmt: skip
    """Copies a block of lhs tile by tile, for each p the rows of the tile side by side. Returns the bytes from a row of
    the block to the next."""
    whole = quotient(rows, tile_rows) * tile_rows
    length = depth + skew
    column = length * size
    if lhs_si == 1:
        for p in range(depth):
            for i in range(0, whole, tile_rows):
                # As with rhs below: rows may lie pages apart.
                prefetch(left + (p + 12) * left_p + i * size)
                copy_column(left + p * left_p + i * size, address(left_block) + i * column + p * tile_column)
            if whole < rows:
                copy_first_column(
                    left + p * left_p + whole * size, address(left_block) + whole * column + p * tile_column,
                    rows - whole,
                )  # fmt: skip
    else:
        squares = quotient(depth, square) * square * (lhs_sp == 1)
        for i in range(0, rows, tile_rows):
            done = squares * (i < whole)
            for p in range(0, done, square):
                source = left + i * left_row + p * size
                place = address(left_block) + i * column + p * tile_column
                transpose_square(source, left_row, place, tile_column)
                # Two squares cover the rows of a tile (6 as 0..3 and 2..5); one where they are as many as its rows.
                if square < tile_rows:
                    transpose_square(
                        source + (tile_rows - square) * left_row, left_row, place + (tile_rows - square) * size,
                        tile_column,
                    )  # fmt: skip
            for p in range(done, depth):
                at = b * lhs_sb + (i0 + i) * lhs_si + (p0 + p) * lhs_sp
                for x in range(min(tile_rows, rows - i)):
                    left_block[i * length + p * tile_rows + x] = lhs[at + x * lhs_si]
    return column


@kernel_function
def copy_panels(
    rhs: Pointer[T], right_block: Pointer[T], right: s64, right_p: s64, b: s64, p0: s64, q: s64, q1: s64, depth: s64,
    direct_panels: s64, rhs_sb: s64, rhs_sj: s64, columns: int, lanes: int, size: int, row: int, copied_panels: int,
    copy: Block, transpose: Block,
) -> None:  # fmt: skip
    """Copies the panels from q on that are used together, of rows or of columns that lie in memory."""
    together = min(copied_panels, min(q1, direct_panels) - q)
    squares = quotient(depth, lanes) * lanes * (rhs_sj != 1)
    for x in range(0, together * columns * (rhs_sj != 1), lanes):
        panel = quotient(x, columns)
        place = address(right_block) + (panel * (depth - 1) * columns + x) * size
        for p in range(0, squares, lanes):
            transpose(right + (x * rhs_sj + p) * size, rhs_sj * size, place + p * row, row)
        for p in range(squares, depth):
            at = b * rhs_sb + p0 + p + (q * columns + x) * rhs_sj
            for y in range(lanes):
                right_block[(panel * (depth - 1) + p) * columns + x + y] = rhs[at + y * rhs_sj]
    for p in range(depth * (rhs_sj == 1)):
        for x in range(together):
            # Rows may lie pages apart, where no prefetcher of the processor looks.
            prefetch(right + (p + 12) * right_p + x * row)
            copy(right + p * right_p + x * row, address(right_block) + (x * depth + p) * row)


@kernel_function
def next_read(
    q: s64, q0: s64, q1: s64, direct_panels: s64, soon: s64, soon_bytes: s64, left: s64, left_step: s64, left_p: s64,
    right: s64, depth: s64, rows: s64, tile_rows: int, columns: int, size: int, row: int,
) -> tuple[s64, s64]:  # fmt: skip
    """(the address, the bytes for each p) of what a tile asks for ahead: its share of the next panel. Two cores of a
    Xeon ran 1024 x 1024 x 1024 at 76 % of the FMA peak without, at 79 % with that: what lies beyond the second cache
    comes at 30 GB/s."""
    ahead = right
    ahead_p = 0
    if q >= direct_panels and q + 1 < q1:
        ahead = right + depth * row
        ahead_p = min(CACHE_LINE, quotient(tile_rows * columns * size + rows - 1, rows))
    elif q + 1 == q1 and soon_bytes != 0:
        ahead = soon
        ahead_p = quotient(soon_bytes, depth * quotient(rows + tile_rows - 1, tile_rows)) + 1
    elif q + 1 == q1 and q == q0 and left_p == size and tile_rows * left_step <= CACHE_LINE * depth:
        # Of a block that is one panel wide each row is used once: that of the next tile.
        ahead = left + tile_rows * left_step
        ahead_p = quotient(tile_rows * left_step + depth - 1, depth)
    return ahead, ahead_p


@kernel_function
def multiply_panel(
    q: s64, q0: s64, q1: s64, direct_panels: s64, soon: s64, soon_bytes: s64, left: s64, left_step: s64, left_row: s64,
    left_p: s64, right: s64, right_p: s64, sums: s64, sums_row: s64, rows: s64, tile_depth: s64, depth: s64,
    accumulate: s64, p0: s64, p_first: s64, runs: s64, run_offsets: Pointer[s64], line_rows: s64, line_start: s64,
    line_offsets: Pointer[s64], tile_rows: int, columns: int, size: int, row: int, tile: Block,
) -> None:  # fmt: skip
    """Adds the products of a block of rows and a panel to the sums, tile by tile."""
    ahead, ahead_p = next_read(
        q, q0, q1, direct_panels, soon, soon_bytes, left, left_step, left_p, right, depth, rows,
        tile_rows, columns, size, row,
    )  # fmt: skip
    i = 0
    place = left
    split = tile_rows
    jump = 0
    while i < rows:
        count = min(tile_rows, rows - i)
        if line_rows != 0:
            of_line = quotient(line_start + i, line_rows)
            inside = line_start + i - of_line * line_rows
            split = line_rows - inside
            place = left + line_offsets[of_line] + inside * left_step
            if count > split:
                # The tile goes on in the next line.
                count = min(count, split + line_rows)
                jump = line_offsets[of_line + 1] - line_offsets[of_line] - line_rows * left_step
        tile(
            place, left_row, left_p, right, right_p, sums + i * sums_row, sums_row, tile_depth, count,
            accumulate + p0 - p_first, ahead, ahead_p, runs, address(run_offsets) + 8, split, jump,
        )  # fmt: skip
        place = place + count * left_step
        ahead = ahead + depth * ahead_p
        i += count
