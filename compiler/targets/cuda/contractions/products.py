"""What multiplies the tiles in shared memory: threads with sums in registers, or warps with tensor cores.

Threads: out of every line of p, a thread takes groups of neighbouring elements (16 bytes each), so that a warp reads
whole lines of shared memory, and multiplies each row with each column. Both tiles have lines along their own index.

Tensor cores (PTX's mma.sync): a warp's sums are *fragments* of 16 x 8, of which lane l has the columns 2(l % 4) and the
next of the rows l / 4 and l / 4 + 8. Operands of 16 bits come four 8 x 8 matrices at a time (`load_matrix4`), turned on
the way where shared memory has the other index inside; those of tf32 by single elements. All are tuples of four.
"""

from __future__ import annotations

from hloom.compiler.kernels.codegen.serial import indent
from hloom.compiler.targets.cuda.contractions.operands import Side
from hloom.compiler.targets.cuda.contractions.text import Products, log2, sums_pitch
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.ir.types import DTYPES

FRAGMENT_ROWS, FRAGMENT_COLUMNS = 16, 8


def thread_products(tile: Tile, left: Side, right: Side, accumulate: str, room: int) -> Products:
    """Products by threads. room: elements of shared memory that sums may take."""
    width = min(16 // DTYPES[accumulate].itemsize, tile.part_rows, tile.part_columns)
    across, down = tile.columns // tile.part_columns, tile.rows // tile.part_rows
    row_groups, column_groups = tile.part_rows // width, tile.part_columns // width

    start = [
        f"t_y = t_thread >> {log2(across)}",
        f"t_x = t_thread & {across - 1}",
        *(f"c{r}_{c} = zeros_{accumulate}({width * width})" for r in range(row_groups) for c in range(column_groups)),
    ]

    def loads(letter: str, at: str, groups: int, stride: int) -> list[str]:
        return [f"{letter}{g} = load{width}_{accumulate}(t_shared, {_plus(at, g * stride)})" for g in range(groups)]

    def step(stage_left: str, stage_right: str) -> list[str]:
        return [
            f"t_a = {stage_left} + t_y * {width}",
            f"t_c = {stage_right} + t_x * {width}",
            "t_q = 0",
            f"while t_q < {tile.depth}:",
            *indent([
                *loads("a", "t_a", row_groups, down * width),
                *loads("b", "t_c", column_groups, across * width),
                *(
                    f"c{r}_{c} = outer_{accumulate}(a{r}, b{c}, c{r}_{c})"
                    for r in range(row_groups)
                    for c in range(column_groups)
                ),
                f"t_a += {left.pitch}",
                f"t_c += {right.pitch}",
                "t_q += 1",
            ]),
        ]  # fmt: skip

    def stores(r: int, to: str, start: str, far: int) -> list[str]:
        """A thread's r-th row, from `far` elements after `start` on."""
        at = [_plus(start, far + group * across * width) for group in range(column_groups)]
        return [f"store_row_{accumulate}({to}, {at[g]}, c{r // width}_{g}, {r % width})" for g in range(column_groups)]

    pitch = sums_pitch(tile)  # line y of a thread's r-th row in a slab is r * down + t_y
    share = _share(tile.part_rows, down * pitch, room)
    start_of_thread = f"t_y * {pitch} + t_x * {width}"
    slabs = [
        [line for r in range(share) for line in stores(first + r, "t_sums", start_of_thread, r * down * pitch)]
        for first in range(0, tile.part_rows, share)
    ]

    def row(line: str, slab: str) -> str:
        return (
            f"(({slab} * {share} + ({line} >> {log2(down)})) >> {log2(width)}) * {down * width}"
            f" + ({line} & {down - 1}) * {width} + (({slab} * {share} + ({line} >> {log2(down)})) & {width - 1})"
        )

    def direct(to: str, first: str, pitch: int) -> list[str]:
        start = f"{first} + t_y * {width * pitch} + t_x * {width}"
        below = [r // width * down * width + r % width for r in range(tile.part_rows)]
        return [line for r, line_below in enumerate(below) for line in stores(r, to, start, line_below * pitch)]

    return Products(start, step, slabs, row, share * down, direct)


def _share(parts: int, size: int, room: int) -> int:
    """How many of so many parts, of that size each, have room at a time: a power of two."""
    share = parts
    while share > 1 and share * size > room:
        share //= 2
    return share


def tensor_products(tile: Tile, left: Side, right: Side, dtype: str, room: int) -> Products:
    """Products by warps on tensor cores. dtype: f16, bf16 or tf32. room: elements of float32 that sums may take."""
    across, down = tile.columns // tile.part_columns, tile.rows // tile.part_rows
    rows, columns = tile.part_rows // FRAGMENT_ROWS, tile.part_columns // FRAGMENT_COLUMNS
    start = [
        "t_lane = t_thread & 31",
        f"t_y = (t_thread >> 5) >> {log2(across)}",
        f"t_x = (t_thread >> 5) & {across - 1}",
        *(f"c{r}_{c} = zeros_f32(4)" for r in range(rows) for c in range(columns)),
    ]
    depth, lines_of, begin = (8, _words, _word_places) if dtype == "tf32" else (16, _matrices, _matrix_places)
    places, left_step, right_step = begin(tile, left, right)
    start += places

    def step(stage_left: str, stage_right: str) -> list[str]:
        products = [
            f"c{r}_{c} = mma_{dtype}(a{r}, b{c // 2}, {c % 2}, c{r}_{c})" for r in range(rows) for c in range(columns)
        ]
        return [
            f"t_a = {stage_left} + t_left",
            f"t_c = {stage_right} + t_right",
            "t_q = 0",
            f"while t_q < {tile.depth}:",
            *indent([
                *lines_of(left, right, rows, columns),
                *products,
                f"t_a += {left_step}",
                f"t_c += {right_step}",
                f"t_q += {depth}",
            ]),
        ]  # fmt: skip

    pitch = sums_pitch(tile)
    share = _share(rows, down * FRAGMENT_ROWS * pitch, room)
    slabs = []
    for first in range(0, rows, share):
        lines = [f"t_put = (t_y * 16 + (t_lane >> 2)) * {pitch} + t_x * {tile.part_columns} + (t_lane & 3) * 2"]
        for r in range(share):
            for c in range(columns):
                at = _plus("t_put", r * down * FRAGMENT_ROWS * pitch + c * FRAGMENT_COLUMNS)
                lines.append(f"store_sums(t_sums, {at}, {8 * pitch}, c{first + r}_{c})")
        slabs.append(lines)

    def row(line: str, slab: str) -> str:
        warp = f"(({line} >> 4) & {down - 1}) * {tile.part_rows} + " if down > 1 else ""
        return f"{warp}({slab} * {share} + ({line} >> {4 + log2(down)})) * 16 + ({line} & 15)"

    def direct(to: str, first: str, pitch: int) -> list[str]:
        lane = f"(t_lane >> 2) * {pitch} + (t_lane & 3) * 2"
        lines = [f"t_put = {first} + t_y * {tile.part_rows * pitch} + t_x * {tile.part_columns} + {lane}"]
        for r in range(rows):
            for c in range(columns):
                at = _plus("t_put", r * FRAGMENT_ROWS * pitch + c * FRAGMENT_COLUMNS)
                lines.append(f"store_sums({to}, {at}, {8 * pitch}, c{r}_{c})")
        return lines

    return Products(start, step, slabs, row, share * down * FRAGMENT_ROWS, direct)


def _matrix_places(tile: Tile, left: Side, right: Side):
    """Where a lane's line of the first four matrices begins in a stage of each side, and how far apart steps are."""
    low, middle, high = "(t_lane & 7)", "((t_lane >> 3) & 1) * 8", "(t_lane >> 4) * 8"
    # Of the left side matrices are in the order of fragments: rows 0 and 8 for p 0, then for p 8.
    if left.inner == "p":
        at, step = left.place(f"(t_y * {tile.part_rows} + {low} + {middle})", high), 16
    else:
        at, step = left.place(f"t_y * {tile.part_rows} + {middle}", f"({low} + {high})"), 16 * left.pitch
    lines = [f"t_left = {at}"]
    # Of the right side: p 0 and 8 for columns 0, then for columns 8.
    if right.inner == "p":
        at, other = right.place(f"(t_x * {tile.part_columns} + {low} + {high})", middle), 16
    else:
        at, other = right.place(f"t_x * {tile.part_columns} + {high}", f"({low} + {middle})"), 16 * right.pitch
    return [*lines, f"t_right = {at}"], step, other


def _matrices(left: Side, right: Side, rows: int, columns: int) -> list[str]:
    """Fragments of 16-bit operands: one of the left side, two of the right one at a time."""
    lines = []
    name = "load_matrix4" if left.inner == "p" else "load_matrix4_turned"
    for r in range(rows):
        far = r * FRAGMENT_ROWS * (left.pitch if left.inner == "p" else 1)
        lines.append(f"a{r} = {name}(t_shared, {_plus('t_a', far)})")
    name = "load_matrix4" if right.inner == "p" else "load_matrix4_turned"
    for c in range(columns // 2):
        far = c * 2 * FRAGMENT_COLUMNS * (right.pitch if right.inner == "p" else 1)
        lines.append(f"b{c} = {name}(t_shared, {_plus('t_c', far)})")
    return lines


def _word_places(tile: Tile, left: Side, right: Side):
    """As `_matrix_places`: where the first element of a lane's fragments lies."""
    lines = [
        f"t_left = {left.place(f'(t_y * {tile.part_rows} + (t_lane >> 2))', '(t_lane & 3)')}",
        f"t_right = {right.place(f'(t_x * {tile.part_columns} + (t_lane >> 2))', '(t_lane & 3)')}",
    ]
    return lines, *(8 if side.inner == "p" else 8 * side.pitch for side in (left, right))


def _words(left: Side, right: Side, rows: int, columns: int) -> list[str]:
    """Fragments of float32 operands, each element rounded to tf32: elements at two offsets and at both together."""
    lines = []

    def steps(side: Side) -> tuple[int, int]:
        """How far apart neighbours along the side's own index are, and along p."""
        return (side.pitch, 1) if side.inner == "p" else (1, side.pitch)

    own, p = steps(left)
    for r in range(rows):
        lines.append(f"a{r} = load_tf32(t_shared, {_plus('t_a', r * FRAGMENT_ROWS * own)}, {8 * own}, {4 * p})")
    own, p = steps(right)
    for c in range(columns // 2):
        far = _plus("t_c", c * 2 * FRAGMENT_COLUMNS * own)
        lines.append(f"b{c} = load_tf32(t_shared, {far}, {4 * p}, {FRAGMENT_COLUMNS * own})")
    return lines


def _plus(start: str, far: int) -> str:
    return f"{start} + {far}" if far else start
