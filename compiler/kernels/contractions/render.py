"""From a `ContractionSpec` to its kernels on one machine: tile, blocking, the shared kernels and the spec's own."""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.shared import (
    PACK_PARAMS,
    PRODUCT_PARAMS,
    Blocking,
    block_area,
    pack_kernel,
    product_kernel,
    splits_of,
)
from hloom.compiler.kernels.contractions.spec import (
    PACK,
    PRODUCT,
    ContractionKernels,
    ContractionSpec,
    PlainOperand,
    PlainStore,
    is_same,
)
from hloom.compiler.kernels.contractions.tile_shapes import (
    FAR_ROWS,
    ITEMSIZES,
    MATRIX_TILE,
    MATRIX_WORDS,
    QUADS,
    TileShape,
    tile_shape,
    tile_shapes,
)
from hloom.compiler.kernels.contractions.writer import Writer
from hloom.ir.records import replace

NARROW = ("s8", "u8", "s16", "pred")  # dtypes whose values are 16-bit integers with a sign
PAIRED = ("s32", "u32")  # dtypes in which pairs of their products are summed
SUMS_BYTES = 512 << 10  # of the sums of a block, which lie on the stack
SIGNS = {"s8": "s", "u8": "u", "pred": "u"}  # dtypes of which four are multiplied at a time
# Parameters of all kernels of contractions; names of operands' and epilogues' own parameters differ from them.
OWN = frozenset(
    ("batch", "m", "n", "k", "lo", "hi", *(f"{side}_s{role}" for side in ("lhs", "rhs") for role in "bijp"))
)
FEWEST_IN_MATRIX = 1 << 15  # products: to say how large the registers are takes as long as some thousand


def shared_kernels(accumulate: str, machine) -> list[KernelSource]:
    """Every kernel that `render` may return for an accumulation dtype on this machine, whatever else the spec says."""
    kernels = []
    for tile in tile_shapes(accumulate, machine.vector_bytes, machine.vector_registers):
        for word in ("", "pair32", *_quads(machine, tile)) if accumulate in PAIRED else ("",):
            blocking = _blocking(accumulate, tile, machine, word)
            kernels += [pack_kernel(blocking), product_kernel(blocking)]
    return list(dict.fromkeys(kernels))


def _blocking(dtype: str, tile: TileShape, machine, word: str) -> Blocking:
    size = ITEMSIZES[dtype]
    area = block_area(machine, size)
    sums = max(min(machine.l2_bytes // 4, SUMS_BYTES) // size, tile.rows * tile.columns)
    slab = max(machine.l3_bytes // 8, machine.l2_bytes // 2)  # the last cache has other guests
    return Blocking(dtype, size, tile, area, sums, machine.l1_bytes, slab, machine.cores, word)


def render(
    spec: ContractionSpec, machine, extents: tuple[int, int, int, int] | None = None, columns: int | None = None
) -> ContractionKernels:
    """The kernels of `spec` for a machine (`vector_bytes`, `vector_registers`, sizes of the three caches, `cores`).

    extents: (batch, m, n, k) that they are for, so that sums may be cut into parts; None: for all sizes.
    columns: those that the tile is chosen for; None: n, or the widest tile where no sizes are given.
    """
    for name, _ in spec.extra_params:
        if name in OWN or name.startswith("t_"):
            raise ValueError(f"contraction {spec.name}: the kernel has a variable {name!r} of its own")
    rows = None
    if extents:
        columns = columns or extents[2]
        if is_same(spec.rhs, spec.accumulate) and columns * ITEMSIZES[spec.accumulate] >= FAR_ROWS:
            rows = extents[0] * extents[1]
    tile = tile_shape(spec.accumulate, machine.vector_bytes, machine.vector_registers, columns, rows)
    word = _word(spec, machine, tile, extents)
    if word in MATRIX_WORDS:
        tile = MATRIX_TILE
    blocking = _blocking(spec.accumulate, tile, machine, word)
    made = [(pack_kernel(blocking), tuple(PACK_PARAMS)), (product_kernel(blocking), tuple(PRODUCT_PARAMS))]
    fused, packing = PRODUCT, PACK
    splits = splits_of(*extents) if extents else 1
    whole = spec
    if splits > 1:
        spec = replace(spec, epilogue=PlainStore("t_parts"))
    writer = Writer(spec, blocking)
    if not (is_same(spec.lhs, spec.accumulate) and isinstance(spec.epilogue, PlainStore)):
        fused = len(made)
        made.append(writer.fused_kernel())
    if not is_same(spec.rhs, spec.accumulate):
        packing = len(made)
        made.append(writer.rhs_kernel())
    if splits > 1:
        made.append(Writer(whole, blocking).join_kernel())
    kernels, parameters = zip(*made, strict=True)
    return ContractionKernels(kernels, parameters, spec, blocking, fused, packing, splits)


def _quads(machine, tile: TileShape) -> list[str]:
    """The word of four 8-bit integers that the machine's vectors multiply, if they do."""
    has = machine.has("avx512vnni") and tile.lanes in (16, 8) and (tile.lanes == 16 or machine.has("avx512vl"))
    if has or (machine.has("avxvnni") and tile.lanes == 8):
        return [word for word, lanes in QUADS.items() if lanes == tile.lanes]
    return []


def _word(spec: ContractionSpec, machine, tile: TileShape, extents: tuple[int, int, int, int] | None) -> str:
    """What an element of the operands is (`Blocking.word`)."""
    dtypes = [operand.dtype for operand in (spec.lhs, spec.rhs) if isinstance(operand, PlainOperand)]
    if len(dtypes) < 2:
        return ""

    def is_large() -> bool:
        return extents is not None and math.prod(extents) >= FEWEST_IN_MATRIX

    if spec.accumulate == "f32":
        return "pairbf32" if dtypes == ["bf16", "bf16"] and machine.has("amx-bf16") and is_large() else ""
    if spec.accumulate not in PAIRED or any(dtype not in NARROW for dtype in dtypes):
        return ""
    if machine.has("amx-int8") and all(dtype in SIGNS for dtype in dtypes) and is_large():
        return f"quad{''.join(SIGNS[dtype] for dtype in dtypes)}32"
    quads = _quads(machine, tile) if SIGNS.get(dtypes[0]) == "u" and SIGNS.get(dtypes[1]) == "s" else []
    return quads[0] if quads else "pair32"
