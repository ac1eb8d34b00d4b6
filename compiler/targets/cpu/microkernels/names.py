"""Names of block functions in kernel sources: register tiles, square transposes, passes of Fourier transforms.

Each is a C function `void hloom_NAME(int64_t...)` of its own, which the kernels that call it are linked with.
"""

from __future__ import annotations

import re

from hloom.compiler.kernels.contractions.tile_shapes import (
    ITEMSIZES,
    MATRIX_TILE,
    MATRIX_WORDS,
    TILE_ARGUMENTS,
    square_rows,
    tile_shapes,
)
from hloom.compiler.targets.cpu.fft.names import parameters

__all__ = ["BLOCK", "MOVE", "PAIR", "argument_count", "prebuilt_blocks"]

PAIR = "pair32"  # two 16-bit integers in a word; their products are summed in 32 bits
BLOCK = re.compile(r"(tile|transpose)_([a-z]+\d+)_(\d+)x(\d+)")
MOVE = re.compile(r"(copy|copy_first|zero)_([a-z]+\d+)_(\d+)")


def argument_count(name: str) -> int | None:
    """How many int64 arguments the block function of a name has; None where there is none of that name."""
    if given := parameters(name):
        return len(given)
    match = BLOCK.fullmatch(name)
    if match is None:
        return None
    kind, dtype, rows, columns = match.groups()
    if kind == "tile":
        return len(TILE_ARGUMENTS) if dtype in (*ITEMSIZES, PAIR, *MATRIX_WORDS) else None
    return 4 if dtype in ITEMSIZES and rows == columns and int(rows).bit_count() == 1 else None


def prebuilt_blocks() -> list[str]:
    """The tiles and transposes of all register files: 16 registers of 16 and 32 bytes, 32 of 16 and 64."""
    names = set()
    for dtype in ITEMSIZES:
        for vector_bytes, registers in ((16, 16), (16, 32), (32, 16), (64, 32)):
            for shape in tile_shapes(dtype, vector_bytes, registers):
                words = (dtype, PAIR) if dtype == "s32" else (dtype,)
                names |= {f"tile_{word}_{shape.rows}x{shape.columns}" for word in words}
                names |= {f"transpose_{dtype}_{side}x{side}" for side in (shape.lanes, square_rows(shape.rows))}
    names |= {f"tile_{words}_{MATRIX_TILE.rows}x{MATRIX_TILE.columns}" for words in MATRIX_WORDS}
    return sorted(names)
