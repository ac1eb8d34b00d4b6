"""Shapes of register tiles: how many sums fit into a machine's vector registers."""

from __future__ import annotations

from hloom.ir.records import record
from hloom.ir.sizes.guards import typical

# Bytes of the dtypes that tiles accumulate in.
ITEMSIZES = {"f32": 4, "f64": 8, "s32": 4, "u32": 4, "s64": 8, "u64": 8}
# The parameters of a tile function, all int64 (`microkernels.fma`).
TILE_ARGUMENTS = (
    "a", "a_row", "a_k", "b", "b_k", "c", "c_row", "k", "rows", "accumulate", "ahead", "ahead_k", "runs", "run_offsets",
    "split", "jump",
)  # fmt: skip


@record(frozen=True)
class TileShape:
    """Rows and columns of a register tile, and `lanes`, the elements of one vector register."""

    rows: int
    columns: int
    lanes: int


# (rows, vectors in a row, time of a column in those of the first, the same for few rows of lhs) of the tiles for 32
# vector registers, and for 16.
_MANY = ((8, 3, 1.0, 1.0), (6, 4, 1.04, 0.9), (12, 2, 1.08, 1.08), (12, 1, 1.2, 1.2))
_FEW = ((6, 2, 1.0, 1.0), (4, 3, 1.03, 1.03), (8, 1, 1.35, 1.35))
# Of lhs, for which reading a rhs in memory takes the time and not the products, where its rows lie so many bytes apart.
FEW_ROWS, FAR_ROWS = 16, 2048
CACHE_LINE = 64  # bytes
MATRIX_TILE = TileShape(32, 32, 16)  # of 8-bit integers or bfloat16, by matrix registers (`microkernels.amx`)
# Kinds of words that matrix registers multiply -> the instruction.
MATRIX_WORDS = {f"quad{signs}32": f"tdpb{signs}d" for signs in ("ss", "su", "us", "uu")} | {"pairbf32": "tdpbf16ps"}
# Kinds of words that vector registers multiply, four u8 by four s8 -> the sums in a register.
QUADS = {"quad32x16": 16, "quad32x8": 8}


def tile_shape(
    dtype: str, vector_bytes: int, registers: int, columns: int | None = None, rows: int | None = None
) -> TileShape:
    """The register tile for an accumulation `dtype` on a machine with `registers` vectors of `vector_bytes` bytes.

    The sums take rows * vectors registers, a row of B `vectors` more and the broadcast element of A one: 6x2 of 16
    registers, 8x3 of 32. That is at least the 8 independent sums which two 4-cycle FMA units need, and more FMAs than
    loads can delay. 64-bit integers have no vector multiply before AVX-512; the sequence that replaces it needs
    registers, hence the smaller tile.

    columns: those of the result, where they are known. Floats whose columns would leave much of a tile empty use one of
    fewer vectors and more rows, or of more and fewer: 4x3 and 8x1 of 16 registers; 6x4, 12x2 and 12x1 of 32. The
    addresses of more rows do not fit into the registers of x86; 12x1 of 16 took twice as long as 8x1 on Zen 3.

    rows: those of lhs, where they are known and rhs lies in memory. For few, tiles with long rows of B read it faster.
    """
    if dtype not in ITEMSIZES:
        raise ValueError(f"no register tile accumulates {dtype!r}; one of {', '.join(ITEMSIZES)} does")
    lanes = vector_bytes // ITEMSIZES[dtype]
    if dtype in ("s64", "u64") and vector_bytes < 64:
        return TileShape(4, lanes, lanes)
    tiles = _MANY if registers >= 32 else _FEW
    tall, vectors, *_ = tiles[0]
    if columns is not None and dtype[0] == "f":
        columns = typical(columns)
        time = 2 if rows is None or rows > FEW_ROWS else 3
        tall, vectors, *_ = min(tiles, key=lambda tile: -(-columns // (tile[1] * lanes)) * tile[1] * tile[time])
    return TileShape(tall, vectors * lanes, lanes)


def tile_shapes(dtype: str, vector_bytes: int, registers: int) -> list[TileShape]:
    """Every shape that `tile_shape` returns for some number of columns, the fastest first."""
    lanes, tiles = vector_bytes // ITEMSIZES[dtype], _MANY if registers >= 32 else _FEW
    shapes = [tile_shape(dtype, vector_bytes, registers, vectors * lanes) for _, vectors, *_ in tiles]
    return list(dict.fromkeys(shapes))


def square_rows(rows: int) -> int:
    """The largest power of two <= rows: the side of the squares in which rows of a tile are transposed."""
    return 1 << (rows.bit_length() - 1)
