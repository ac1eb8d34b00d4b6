"""Names of block functions in kernel sources: register tiles, square transposes, passes of Fourier transforms.

Each is a C function `void hloom_NAME(int64_t...)` of its own, which the kernels that call it are linked with.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from hloom.compiler.kernels.contractions.tile_shapes import (
    ITEMSIZES,
    MATRIX_TILE,
    MATRIX_WORDS,
    QUADS,
    TILE_ARGUMENTS,
    square_rows,
    tile_shapes,
)
from hloom.compiler.targets.cpu.fft.names import parameters

__all__ = [
    "PAIR",
    "Block",
    "Move",
    "argument_count",
    "block_of",
    "is_block_symbol",
    "move_of",
    "prebuilt_blocks",
    "symbol_of",
]

PAIR = "pair32"  # two 16-bit integers in a word; their products are summed in 32 bits
_ROWS = range(1, 13)  # of a tile of vector registers
_LANES = (2, 4, 8, 16)
_VECTORS = (1, 2, 3, 4)  # in a row of a tile
_SIDES = (1, 2, 4, 8, 16, 32)  # of a transpose
_MOST_MOVED = 128  # elements that are copied or cleared without a loop


class Block(NamedTuple):
    """A register tile or a square transpose. kind: "tile" or "transpose"; dtype: of its elements or words."""

    kind: str
    dtype: str
    rows: int
    columns: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.dtype}_{self.rows}x{self.columns}"


class Move(NamedTuple):
    """A copy of so many elements or less, or zeros. kind: "copy", "copy_first" or "zero"."""

    kind: str
    dtype: str
    elements: int


@functools.cache
def _blocks() -> dict[str, Block]:
    """Every tile and transpose by its name."""
    columns = {lanes * vectors for lanes in _LANES for vectors in _VECTORS}
    found = [Block("tile", dtype, rows, c) for dtype in (*ITEMSIZES, PAIR, *QUADS) for rows in _ROWS for c in columns]
    found += [Block("tile", words, MATRIX_TILE.rows, MATRIX_TILE.columns) for words in MATRIX_WORDS]
    found += [Block("transpose", dtype, side, side) for dtype in ITEMSIZES for side in _SIDES]
    return {block.name: block for block in found}


@functools.cache
def _moves() -> dict[str, Move]:
    """Every move by its name."""
    kinds, counts = ("copy", "copy_first", "zero"), range(1, _MOST_MOVED + 1)
    pairs = [(kind, dtype) for kind in kinds for dtype in ITEMSIZES]
    return {f"{kind}_{dtype}_{count}": Move(kind, dtype, count) for kind, dtype in pairs for count in counts}


def block_of(name: str) -> Block | None:
    """The tile or transpose of a name; None where there is none of that name."""
    return _blocks().get(name) if name.startswith(("tile_", "transpose_")) else None


def move_of(name: str) -> Move | None:
    """The move of a name; None where there is none of that name."""
    return _moves().get(name) if name.startswith(("copy_", "zero_")) else None


def symbol_of(name: str) -> str:
    """The C name of a block function."""
    return f"hloom_{name}"


def is_block_symbol(symbol: str) -> bool:
    """Whether a C name is one of a block function."""
    return argument_count(symbol.removeprefix("hloom_")) is not None


def argument_count(name: str) -> int | None:
    """How many int64 arguments the block function of a name has; None where there is none of that name."""
    if given := parameters(name):
        return len(given)
    block = block_of(name)
    if block is None:
        return None
    return len(TILE_ARGUMENTS) if block.kind == "tile" else 4


def prebuilt_blocks() -> list[str]:
    """The tiles and transposes of all register files: 16 registers of 16 and 32 bytes, 32 of 16 and 64."""
    names = set()
    for dtype in ITEMSIZES:
        for vector_bytes, registers in ((16, 16), (16, 32), (32, 16), (64, 32)):
            for shape in tile_shapes(dtype, vector_bytes, registers):
                quads = [word for word, lanes in QUADS.items() if lanes == shape.lanes]
                words = (dtype, PAIR, *quads) if dtype == "s32" else (dtype,)
                names |= {Block("tile", word, shape.rows, shape.columns).name for word in words}
                sides = (shape.lanes, square_rows(shape.rows))
                names |= {Block("transpose", dtype, side, side).name for side in sides}
    names |= {Block("tile", words, MATRIX_TILE.rows, MATRIX_TILE.columns).name for words in MATRIX_WORDS}
    return sorted(names)
