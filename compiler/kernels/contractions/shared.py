"""The two kernels that all contractions of one accumulation dtype share: packing a plain rhs, and the product itself.

Their sources depend only on the dtype and the shape of the register tile, so they are compiled once. Both can be
launched over work items, and the kernels of single contractions call both for one block (`call_kernel`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hloom.compiler.kernel_ir.generic.language import KernelFunction
from hloom.compiler.kernels.codegen.functions import later_source_of
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions import functions, room
from hloom.compiler.kernels.contractions.tile_shapes import CACHE_LINE, MATRIX_WORDS, TileShape, square_rows
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical

if TYPE_CHECKING:
    from hloom.compiler.kernel_ir.generic.specialize import Known

# Columns of rhs packed together: enough for long vector loops in an element's code, and for the prefetchers of the
# processor, which begin anew in each row.
GROUP_COLUMNS = 384


@record(frozen=True)
class Blocking:
    """Sizes that the kernels of a contraction are written for.

    area: the most elements in a block of lhs, of one step of p; sums: the most elements in a block of sums; size: bytes
    of an element. slab: bytes of rhs that all cores use one block of rows after the other and that should stay in the
    last cache. word: what an element of an operand is: '' for one number; 'pair32' for two 16-bit integers, of p and
    p + 1; 'quad32x16' and 'quad32x8' for four 8-bit ones, u8 of lhs and s8 of rhs, for vectors of so many sums;
    'quadss32' and the like for four 8-bit ones, 'pairbf32' for two bfloat16, these for matrix registers.
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


_KINDS = {"Pointer[T]": "*", "Pointer[s64]": "s64*", "s64": "s64"}  # of parameters, by what functions say of them


def _params(function: KernelFunction) -> dict[str, str]:
    """The parameters of a kernel, by name: '*' for a pointer to the dtype, else as in `KernelSource.params`."""
    return {name: _KINDS[said] for name, said in function.__annotations__.items() if said in _KINDS}


PACK_PARAMS, PRODUCT_PARAMS = _params(functions.pack), _params(functions.product)


def _kernel(function: KernelFunction, params: dict[str, str], blocking: Blocking) -> KernelSource:
    tile, size, scratch, dtype = blocking.tile, blocking.size, blocking.scratch, blocking.dtype
    words = f"_{blocking.word}" if blocking.word and function is functions.product else ""
    name = f"contraction_{function.__name__}_{dtype}{words}_{tile.rows}x{tile.columns}"
    rows, columns, lanes = tile.rows, tile.columns, tile.lanes
    square = min(square_rows(rows), lanes) if blocking.by_matrix else square_rows(rows)
    known: dict[str, Known] = {
        "tile_rows": rows, "columns": columns, "lanes": lanes, "square": square, "size": size, "row": columns * size,
        "tile_column": rows * size, "group": max(1, GROUP_COLUMNS // columns), "left_size": scratch.copied_left,
        "right_size": scratch.copied_right, "edge_size": scratch.edge, "skew": room.SKEW // size,
        "copied_panels": blocking.copied_panels, "copy": f"copy_{dtype}_{columns}",
        "copy_first": f"copy_first_{dtype}_{columns}", "zero": f"zero_{dtype}_{columns}",
        "copy_column": f"copy_{dtype}_{rows}", "copy_first_column": f"copy_first_{dtype}_{rows}",
        "transpose": f"transpose_{dtype}_{lanes}x{lanes}", "transpose_square": f"transpose_{dtype}_{square}x{square}",
        "tile": f"tile_{blocking.word or dtype}_{rows}x{columns}",
    }  # fmt: skip
    kinds = {name: dtype + "*" if kind == "*" else kind for name, kind in params.items()}
    return later_source_of(function, name, kinds, known, {"T": dtype})


@functools.lru_cache
def pack_kernel(blocking: Blocking) -> KernelSource:
    """Copies a plain rhs of the accumulation dtype, at any strides, into panels."""
    return _kernel(functions.pack, PACK_PARAMS, blocking)


@functools.lru_cache
def product_kernel(blocking: Blocking) -> KernelSource:
    """Multiplies blocks of a plain lhs with panels of rhs."""
    return _kernel(functions.product, PRODUCT_PARAMS, blocking)
