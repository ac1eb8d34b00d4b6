"""What multiplies the tiles in shared memory: threads with sums in registers, or warps with tensor cores.

Threads: out of every line of p, a thread takes groups of neighbouring elements (16 bytes each), so that a warp reads
whole lines of shared memory, and multiplies each row with each column. Both tiles have lines along their own index.

Tensor cores (PTX's mma.sync): a warp's sums are *fragments* of 16 x 8, of which lane l has the columns 2(l % 4) and the
next of the rows l / 4 and l / 4 + 8. Operands of 16 bits come four 8 x 8 matrices at a time (`load_matrix4`), turned on
the way where shared memory has the other index inside; those of tf32 by single elements. All are tuples of four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.compiler.kernel_ir.builder import ZERO, constant, plus
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.targets.cuda.contractions.kernel import Products, log2, registers, sums_pitch
from hloom.compiler.targets.cuda.contractions.operands import Side
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.ir.types import DTYPES

FRAGMENT_ROWS, FRAGMENT_COLUMNS = 16, 8


def thread_products(tile: Tile, left: Side, right: Side, accumulate: str, room: int) -> Products:
    """Products by threads. room: elements of shared memory that sums may take."""
    width = min(16 // DTYPES[accumulate].itemsize, tile.part_rows, tile.part_columns)
    across, down = tile.columns // tile.part_columns, tile.rows // tile.part_rows
    row_groups, column_groups = tile.part_rows // width, tile.part_columns // width

    def start(block: Block) -> None:
        thread = block.names.index("t_thread")
        block.let("t_y", thread >> log2(across))
        block.let("t_x", thread & (across - 1))
        _begin_sums(block, f"zeros_{accumulate}", width * width, row_groups, column_groups)

    def step(block: Block, stage_left: Expr, stage_right: Expr) -> None:
        a = block.let("t_a", stage_left + block.names["t_y"] * width)
        c = block.let("t_c", stage_right + block.names["t_x"] * width)
        q = block.let("t_q", ZERO)
        line, memory = block.repeat(q < tile.depth), block.names["t_shared"]
        load = f"load{width}_{accumulate}"
        lefts = [line.let(f"a{g}", registers(load, memory, _plus(a, g * down * width))) for g in range(row_groups)]
        rights = [
            line.let(f"b{g}", registers(load, memory, _plus(c, g * across * width))) for g in range(column_groups)
        ]
        for r, x in enumerate(lefts):
            for k, y in enumerate(rights):
                total = f"c{r}_{k}"
                line.let(total, registers(f"outer_{accumulate}", x, y, line.names[total]))
        line.increase(a, left.pitch)
        line.increase(c, right.pitch)
        line.increase(q, 1)

    def stores(block: Block, r: int, to: Var, start: Sequence[Expr], far: int) -> None:
        """A thread's r-th row, from `far` elements after `start` on."""
        for g in range(column_groups):
            place = _plus(plus(*start), far + g * across * width)
            block.do(f"store_row_{accumulate}", to, place, block.names[f"c{r // width}_{g}"], constant(r % width))

    def of_thread(block: Block, pitch: int, height: int) -> list[Expr]:
        return [block.names["t_y"] * (height * pitch), block.names["t_x"] * width]

    pitch = sums_pitch(tile)  # line y of a thread's r-th row in a slab is r * down + t_y
    share = _share(tile.part_rows, down * pitch, room)

    def slab(first: int) -> Callable[[Block], None]:
        def write(block: Block) -> None:
            for r in range(share):
                at = of_thread(block, pitch, 1)
                stores(block, first + r, block.names["t_sums"], at, r * down * pitch)

        return write

    def row(line: Expr, slab: Expr) -> list[Expr]:
        own = slab * share + (line >> log2(down))
        return [(own >> log2(width)) * (down * width), (line & (down - 1)) * width, own & (width - 1)]

    def direct(block: Block, to: Var, first: Expr, pitch: int) -> None:
        for r in range(tile.part_rows):
            below = r // width * down * width + r % width
            stores(block, r, to, [first, *of_thread(block, pitch, width)], below * pitch)

    return Products(start, step, [slab(first) for first in range(0, tile.part_rows, share)], row, share * down, direct)


def _begin_sums(block: Block, zeros: str, count: int, rows: int, columns: int) -> None:
    """The sums of a thread: c0_0, c0_1, ..., several in each."""
    for r in range(rows):
        for c in range(columns):
            block.let(f"c{r}_{c}", registers(zeros, constant(count)))


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
    depth, load, begin = (8, _words, _word_places) if dtype == "tf32" else (16, _matrices, _matrix_places)

    def start(block: Block) -> None:
        thread = block.names.index("t_thread")
        block.let("t_lane", thread & 31)
        block.let("t_y", (thread >> 5) >> log2(across))
        block.let("t_x", (thread >> 5) & (across - 1))
        _begin_sums(block, "zeros_f32", 4, rows, columns)
        begin(block, tile, left, right)

    def step(block: Block, stage_left: Expr, stage_right: Expr) -> None:
        names = block.names
        a, c = block.let("t_a", stage_left + names["t_left"]), block.let("t_c", stage_right + names["t_right"])
        q = block.let("t_q", ZERO)
        part = block.repeat(q < tile.depth)
        load(part, left, right, rows, columns)
        for r in range(rows):
            for k in range(columns):
                given = names[f"a{r}"], names[f"b{k // 2}"], constant(k % 2), names[f"c{r}_{k}"]
                part.let(f"c{r}_{k}", registers(f"mma_{dtype}", *given))
        part.increase(a, depth * (1 if left.inner == "p" else left.pitch))
        part.increase(c, depth * (1 if right.inner == "p" else right.pitch))
        part.increase(q, depth)

    def stores(block: Block, to: Var, put: Var, pitch: int, fragments: Sequence[int], height: int) -> None:
        for number, r in enumerate(fragments):
            for c in range(columns):
                place = _plus(put, number * height * pitch + c * FRAGMENT_COLUMNS)
                block.do("store_sums", to, place, constant(8 * pitch), block.names[f"c{r}_{c}"])

    pitch = sums_pitch(tile)
    share = _share(rows, down * FRAGMENT_ROWS * pitch, room)

    def slab(first: int) -> Callable[[Block], None]:
        def write(block: Block) -> None:
            names, lane = block.names, block.names["t_lane"]
            line = (names["t_y"] * 16 + (lane >> 2)) * pitch
            put = block.let("t_put", line + names["t_x"] * tile.part_columns + (lane & 3) * 2)
            stores(block, names["t_sums"], put, pitch, range(first, first + share), down * FRAGMENT_ROWS)

        return write

    def row(line: Expr, slab: Expr) -> list[Expr]:
        warp = [(line >> 4 & (down - 1)) * tile.part_rows] if down > 1 else []
        return [*warp, (slab * share + (line >> (4 + log2(down)))) * 16, line & 15]

    def direct(block: Block, to: Var, first: Expr, pitch: int) -> None:
        names, lane = block.names, block.names["t_lane"]
        warp = names["t_y"] * (tile.part_rows * pitch), names["t_x"] * tile.part_columns
        put = block.let("t_put", plus(first, *warp, (lane >> 2) * pitch, (lane & 3) * 2))
        stores(block, to, put, pitch, range(rows), FRAGMENT_ROWS)

    return Products(
        start, step, [slab(first) for first in range(0, rows, share)], row, share * down * FRAGMENT_ROWS, direct
    )


def _matrix_places(block: Block, tile: Tile, left: Side, right: Side) -> None:
    """Where a lane's line of the first four matrices begins in a stage of each side."""
    names, lane = block.names, block.names["t_lane"]
    low, middle, high = lane & 7, (lane >> 3 & 1) * 8, (lane >> 4) * 8
    y, x = names["t_y"] * tile.part_rows, names["t_x"] * tile.part_columns
    # Of the left side matrices are in the order of fragments: rows 0 and 8 for p 0, then for p 8.
    at = left.terms(plus(y, low, middle), high) if left.inner == "p" else ((low + high) * left.pitch, y, middle)
    block.let("t_left", plus(*at))
    # Of the right side: p 0 and 8 for columns 0, then for columns 8.
    at = right.terms(plus(x, low, high), middle) if right.inner == "p" else ((low + middle) * right.pitch, x, high)
    block.let("t_right", plus(*at))


def _matrices(block: Block, left: Side, right: Side, rows: int, columns: int) -> None:
    """Fragments of 16-bit operands: one of the left side, two of the right one at a time."""
    memory = block.names["t_shared"]
    for letter, start, side, count, size in (
        ("a", "t_a", left, rows, FRAGMENT_ROWS),
        ("b", "t_c", right, columns // 2, 2 * FRAGMENT_COLUMNS),
    ):
        by_p = side.inner == "p"
        for k in range(count):
            place = _plus(block.names[start], k * size * (side.pitch if by_p else 1))
            block.let(f"{letter}{k}", registers("load_matrix4" if by_p else "load_matrix4_turned", memory, place))


def _word_places(block: Block, tile: Tile, left: Side, right: Side) -> None:
    """As `_matrix_places`: where the first element of a lane's fragments lies."""
    names, lane = block.names, block.names["t_lane"]
    for name, side, line in (("t_left", left, names["t_y"] * tile.part_rows),
                             ("t_right", right, names["t_x"] * tile.part_columns)):  # fmt: skip
        block.let(name, plus(*side.terms(line + (lane >> 2), lane & 3)))


def _words(block: Block, left: Side, right: Side, rows: int, columns: int) -> None:
    """Fragments of float32 operands, each element rounded to tf32: elements at two offsets and at both together."""
    memory = block.names["t_shared"]

    def steps(side: Side) -> tuple[int, int]:
        """How far apart neighbours along the side's own index are, and along p."""
        return (side.pitch, 1) if side.inner == "p" else (1, side.pitch)

    own, p = steps(left)
    for r in range(rows):
        place = _plus(block.names["t_a"], r * FRAGMENT_ROWS * own)
        block.let(f"a{r}", registers("load_tf32", memory, place, constant(8 * own), constant(4 * p)))
    own, p = steps(right)
    for c in range(columns // 2):
        place = _plus(block.names["t_c"], c * 2 * FRAGMENT_COLUMNS * own)
        block.let(f"b{c}", registers("load_tf32", memory, place, constant(4 * p), constant(FRAGMENT_COLUMNS * own)))


def _plus(start: Expr, far: int) -> Expr:
    return start + far if far else start
