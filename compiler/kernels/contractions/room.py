"""Scratch memory of contraction kernels: how large each array is, and how much of it a block uses.

For each array there is one function of rows, panels and products, which is the largest index of the kernel texts plus
one. Its size is that function at the bounds of this module; `check` compares it with the function at the sizes that
were chosen for a contraction. So a bound that is changed, or a choice that forgets one, is an error when the program is
compiled, and never an access behind the array.
"""

from __future__ import annotations

from collections.abc import Mapping

from hloom.compiler.kernels.contractions.tile_shapes import FEW_ROWS
from hloom.ir.records import record

# The most products in a partial sum. After each, a tile is added to the result, which takes as long as 10 products
# more. Longer steps leave fewer rows of lhs in the cache, and sums that are less exact. Runs of a staged operand may be
# longer, where nothing but that operand is in scratch memory.
DEPTH = 640
GAP = 16  # elements between rows of scratch memory, so that the rows of a tile do not share sets of the cache
SKEW = 16  # bytes between the rows of a copied block of lhs, so that they do not evict each other while they are copied
OFFSETS = 128  # of lines in a block, and of runs in a step
MOST_ROWS = 384  # in a block of lhs, where sums are short
EDGE_ROWS = 768  # in any block
# The most bytes in a block of lhs, of which a block takes what its machine's second cache holds (`Blocking.area`): so
# the kernels are the same on all machines.
LEFT_BYTES = 600 << 10
COPIED = 176 << 10  # bytes of the panels that are copied together, in front of the only block of rows that uses them


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def staged_bytes() -> int:
    """The most bytes of a staged image: more than of a block that is evaluated, whose rows are read once for each."""
    return LEFT_BYTES * 3 // 2


def lines_of(rows: int, line: int) -> int:
    """The most lines of so many rows that `rows` rows in a row lie in."""
    return (rows + line - 2) // line + 1


def aligned_lines(rows: int, line: int) -> int:
    """The lines of `rows` rows in a row of which the first is the first of a line."""
    return ceil(rows, line)


def rows_in_lines(lines: int, line: int) -> int:
    """The most rows that never lie in more lines than that."""
    return (lines - 1) * line + 1


def evaluated(rows: int, depth: int) -> int:
    """Elements of a block of lhs that is evaluated: rows of products with a gap, or products of rows without."""
    return rows * (depth + GAP)


def copied_left(rows: int, depth: int, tile_rows: int, size: int) -> int:
    """Elements of a block of lhs that is copied tile by tile."""
    return ceil(rows, tile_rows) * tile_rows * (depth + SKEW // size)


def copied_right(panels: int, depth: int, columns: int) -> int:
    """Elements of panels of rhs that are copied together."""
    return panels * depth * columns


def turned(depth: int, columns: int) -> int:
    """Elements of the columns of a panel that are evaluated before they are transposed."""
    return columns * (depth + GAP)


def sums(rows: int, panels: int, columns: int) -> int:
    """Elements of the sums of a block; of its last panel alone, in a block of rows, where that has fewer columns."""
    return rows * panels * columns


@record(frozen=True)
class Sizes:
    """Elements of the scratch arrays of one blocking."""

    evaluated: int
    staged: int
    copied_left: int
    copied_right: int
    turned: int
    edge: int
    sums: int
    offsets: int


def sizes(area: int, tile_rows: int, columns: int, copied_panels: int, most_sums: int, size: int) -> Sizes:
    """area: the most elements in a block of lhs but for gaps. most_sums: the most elements in a block of sums."""
    largest = max(LEFT_BYTES // size, DEPTH * tile_rows)
    return Sizes(
        evaluated=max(area, DEPTH * tile_rows) + evaluated(max(MOST_ROWS, tile_rows), 0),
        staged=staged_bytes() // size,
        copied_left=largest + copied_left(max(MOST_ROWS, tile_rows), 0, tile_rows, size),
        copied_right=copied_right(copied_panels, DEPTH, columns),
        turned=turned(DEPTH, columns),
        edge=sums(max(EDGE_ROWS, tile_rows), 1, columns),
        sums=max(most_sums, sums(ceil(FEW_ROWS, tile_rows) * tile_rows, 1, columns)),
        offsets=OFFSETS,
    )


class ScratchError(AssertionError):
    """A block was chosen that has no room in scratch memory: a fault of the compiler."""


def check(name: str, arrays: Mapping[str, tuple[int, int]]) -> None:
    """Raises ScratchError where a kernel uses more elements of an array than it has. arrays: (used, available)."""
    for array, (used, available) in arrays.items():
        if used > available:
            raise ScratchError(
                f"the kernel {name} uses {used} elements of its scratch array {array!r}, which has {available}: a "
                "block is too large (a fault of hloom's, please report it)"
            )
