"""The contraction nest: matrix products with whatever makes their operands and whatever consumes their result.

out[b, i, j] = epilogue(sum over p of lhs(b, i, p) * rhs(b, p, j)) for b < batch, i < m, j < n, p < k.

Two kernel texts (`contraction_shared`) serve every contraction of one accumulation dtype, for all shapes and strides:
`pack_T` copies rhs into *panels* of as many columns as the register tile has, and `product_T` multiplies blocks of
rows with panels. What is special to one `ContractionSpec` is small, because it is compiled for each: a kernel that
evaluates rhs into panels, and one that evaluates a block of lhs into scratch memory, calls `product_T` on it (by its
address, as every kernel can be called) and runs the epilogue over the rows of the sums, which are still in the cache.

- Where an operand is a function of its indices, that runs while the operand is packed; a plain array is read in place
  where that is as fast (`step_plan` decides). A plain result is summed in place in the output.
- Every element is summed in the order of p, in partial sums of `depth_step(k)` products, or of fewer where few rows
  read a wide rhs in memory: its bits do not depend on the blocks, the threads, the width of the machine's vectors, or
  on which operand was packed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.shared import (
    LEFT_BYTES,
    PACK_PARAMS,
    PRODUCT_PARAMS,
    Blocking,
    pack_kernel,
    product_kernel,
    splits_of,
)
from hloom.compiler.kernels.contractions.tile_shapes import (
    FAR_ROWS,
    ITEMSIZES,
    MATRIX_TILE,
    MATRIX_WORDS,
    TileShape,
    tile_shape,
    tile_shapes,
)
from hloom.ir.records import record, replace

Element = Callable[[str, str, str], tuple[list[str], str]]
Epilogue = Callable[[str, str, str, str], list[str]]


@record(frozen=True)
class PlainOperand:
    """An operand that is an array in memory: `pointer` names the kernel's parameter, `dtype` its elements (HLO).

    Its strides, in elements, are arguments of the kernels: `lhs_sb, lhs_si, lhs_sp` or `rhs_sb, rhs_sp, rhs_sj`. They
    may be zero or negative.
    """

    pointer: str
    dtype: str


@record(frozen=True)
class FilledOperand:
    """A lhs that fills a block of scratch memory itself.

    lines(row) -> the statements that write, for t_i0 <= i < t_i0 + t_rows and t_p0 <= p < t_p0 + t_depth of batch t_b,
    the element (i, p) to `t_left`: at (i - t_i0) * row + p - t_p0 where the spec's `lhs_fast` is "p", at
    (p - t_p0) * row + i - t_i0 where it is "i".
    """

    lines: Callable[[str], list[str]]


@record(frozen=True)
class StagedOperand:
    """A lhs that lies in scratch memory such that tiles read it in place: rows of it in lines, products in runs.

    lines:    the statements that write, for a block (as of `FilledOperand`), `t_left` and distances in bytes: those of
              the lines of the block's rows to `t_lines`; from the first run of the step's products, which is `t_origin`
              from where those begin, to each other one to `t_runs`.
    row_step, depth_step: texts of the elements from a row of a line to the next, and from a product of a run.
    line, run: rows of a line, products of a run; line_text, run_text: their texts.
    step:     products in a partial sum, whole runs.
    most_rows: in a block, for which there is room.
    share:    elements written to scratch memory for each element of a block; of a block of all rows, where each writes
              the same whatever its rows are (not by_rows).
    """

    lines: Callable[[], list[str]]
    row_step: str
    depth_step: str
    line: int
    line_text: str
    run_text: str
    step: int
    most_rows: int
    share: float
    by_rows: bool


@record(frozen=True)
class PlainStore:
    """The result goes as it is, in the accumulation dtype, to `pointer[(b*m + i)*n + j]`."""

    pointer: str


@record(frozen=True)
class ContractionSpec:
    """What to contract.

    name:         name of the kernels.
    accumulate:   HLO dtype of the sums: f32, f64, s32, s64, u32 or u64 (integers wrap).
    lhs, rhs:     `PlainOperand`, or element(b, i, p) / element(b, p, j) -> (statements, expression): given the names of
                  index variables, the text of the operand's element, of dtype `accumulate`.
    epilogue:     `PlainStore`, or epilogue(value, b, i, j) -> statements that consume the sum named `value`.
    extra_params: (name, type) of every parameter that those texts use; types as in `KernelSource.params`. `batch`, `m`,
                  `n` and `k` need not be listed, the texts may use them.
    lhs_fast:     index along which the lhs element's memory is contiguous, "p" or "i": the loop to vectorize.
    rhs_fast:     the same for rhs, "j" or "p".
    rhs_batched:  False where the rhs element does not depend on b, so that it is packed once.
    epilogue_fast: index along which the epilogue's memory is contiguous, "j" or "i".

    The kernels' own variables begin with `t_`; the names in texts must not.
    """

    name: str
    accumulate: str
    lhs: Element | PlainOperand | FilledOperand | StagedOperand
    rhs: Element | PlainOperand
    epilogue: Epilogue | PlainStore
    extra_params: tuple[tuple[str, str], ...] = ()
    lhs_fast: str = "p"
    rhs_fast: str = "j"
    rhs_batched: bool = True
    epilogue_fast: str = "j"


@record(frozen=True)
class KernelAddress:
    """As the value of an argument: the native address of `kernels[kernel]`."""

    kernel: int


@record(frozen=True)
class Step:
    """One launch: `items` work items of `kernels[kernel]`, handed out in chunks of `grain`.

    arguments:   value of every s64 parameter that is not in the spec's `extra_params`, by name.
    pointers:    for parameters that are named otherwise than in the spec (those of the shared kernels): the name of the
                 spec's pointer, or of the temporary, that goes there.
    temporaries: bytes of every temporary buffer the kernel gets, by name, 64-byte aligned. The same name in another
                 step of the plan is the same buffer. 0 bytes: never touched, any address will do.
    work, prepares: as of a `Launch`; work 0: of chunks that are just worth handing out.
    """

    kernel: int
    items: int
    grain: int
    arguments: dict[str, int | KernelAddress]
    pointers: dict[str, str]
    temporaries: dict[str, int]
    work: float = 0.0
    prepares: bool = False


@record(frozen=True)
class ContractionKernels:
    """The kernel texts of a spec. A plan may use only some of them.

    kernels:    `pack_T` and `product_T`, equal texts for all specs of a dtype, then the spec's own.
    parameters: the parameter names of each, in the order of its `params`.
    fused:      index of the kernel with the spec's lhs and epilogue; `product_T` itself where both are plain.
    packing:    index of the kernel that packs rhs.
    splits:     parts that sums are cut into (`splits_of`). Where there are several, `fused` leaves the sums of each,
                and the last kernel adds them and runs the epilogue.
    """

    kernels: tuple[KernelSource, ...]
    parameters: tuple[tuple[str, ...], ...]
    spec: ContractionSpec
    blocking: Blocking
    fused: int
    packing: int
    splits: int = 1

    def step_plan(
        self,
        batch: int,
        m: int,
        n: int,
        k: int,
        lhs_strides: Sequence[int] = (0, 0, 0),
        rhs_strides: Sequence[int] = (0, 0, 0),
        rhs_stays: bool = False,
    ) -> list[Step]:
        """The launches that do a contraction of this shape; none when the result is empty.

        lhs_strides: (sb, si, sp) in elements, of a plain lhs. rhs_strides: (sb, sp, sj) of a plain rhs.
        rhs_stays: whether rhs is the same each time that a loop does this contraction, so that it is packed once.
        """
        from hloom.compiler.kernels.contractions.blocking import step_plan

        return step_plan(self, batch, m, n, k, tuple(lhs_strides), tuple(rhs_strides), rhs_stays)


PACK, PRODUCT = 0, 1
NARROW = ("s8", "u8", "s16", "pred")  # dtypes whose values are 16-bit integers with a sign
PAIRED = ("s32", "u32")  # dtypes in which pairs of their products are summed
SUMS_BYTES = 512 << 10  # of the sums of a block, which lie on the stack
SIGNS = {"s8": "s", "u8": "u", "pred": "u"}  # dtypes that matrix registers multiply
FEWEST_IN_MATRIX = 1 << 15  # products: to say how large the registers are takes as long as some thousand


def shared_kernels(accumulate: str, machine) -> list[KernelSource]:
    """Every kernel that `render` may give for an accumulation dtype on this machine, whatever else the spec says."""
    kernels = []
    for tile in tile_shapes(accumulate, machine.vector_bytes, machine.vector_registers):
        for word in ("", "pair32") if accumulate in PAIRED else ("",):
            blocking = _blocking(accumulate, tile, machine, word)
            kernels += [pack_kernel(blocking), product_kernel(blocking)]
    return list(dict.fromkeys(kernels))


def block_area(machine, size: int) -> int:
    """The most elements, of so many bytes, in a block of lhs: less than a third of the second-level cache.

    Larger ones were slower even where they fitted: the same rows of the result have to stay there too, from one partial
    sum to the next. So were smaller ones, where the last cache is far: 1024 x 1024 x 1024 ran at 63 % of the FMA peak
    with 144 KB, at 72 % with 400 to 700 (Xeon with 2 MB for each core; two cores).
    """
    return min(machine.l2_bytes * 2 // 7, LEFT_BYTES) // size


def _blocking(dtype: str, tile: TileShape, machine, word: str) -> Blocking:
    size = ITEMSIZES[dtype]
    area = block_area(machine, size)
    sums = max(min(machine.l2_bytes // 4, SUMS_BYTES) // size, tile.rows * tile.columns)
    # The last cache has other guests. 2048 x 2048 x 2048 ran at 149 GF/s with all of rhs in turn, 16 MB; at 161 in
    # slabs of 8 MB, at 177 of 4 or 2, at 165 of 1 (Zen 3 with 32 MB).
    slab = max(machine.l3_bytes // 8, machine.l2_bytes // 2)
    return Blocking(dtype, size, tile, area, sums, machine.l1_bytes, slab, machine.cores, word)


def render(
    spec: ContractionSpec, machine, extents: tuple[int, int, int, int] | None = None, columns: int | None = None
) -> ContractionKernels:
    """The kernels of `spec` for a machine (`vector_bytes`, `vector_registers`, sizes of the three caches, `cores`).

    extents: (batch, m, n, k) that they are for, where sums may be cut into parts for it; None: for all extents.
    columns: those that the tile is chosen for; None: n, or the widest tile where no extents are given.
    """
    for name, _ in spec.extra_params:
        if re.match(r"t_|(lhs|rhs)_s[bijp]$|(batch|m|n|k|lo|hi)$", name):
            raise ValueError(f"contraction {spec.name}: the kernel has a variable {name!r} of its own")
    from hloom.compiler.kernels.contractions.writer import Writer

    columns = columns or (extents and extents[2])
    far = extents and is_same(spec, spec.rhs) and columns * ITEMSIZES[spec.accumulate] >= FAR_ROWS
    rows = extents[0] * extents[1] if far else None
    tile = tile_shape(spec.accumulate, machine.vector_bytes, machine.vector_registers, columns, rows)
    word = _word(spec, machine, extents)
    if word in MATRIX_WORDS:
        tile = MATRIX_TILE
    blocking = _blocking(spec.accumulate, tile, machine, word)
    kernels = [pack_kernel(blocking), product_kernel(blocking)]
    parameters = [tuple(PACK_PARAMS), tuple(PRODUCT_PARAMS)]
    fused, packing = PRODUCT, PACK
    splits = splits_of(*extents) if extents else 1
    whole = spec
    if splits > 1:
        spec = replace(spec, epilogue=PlainStore("t_parts"))
    writer = Writer(spec, blocking)
    if not (is_same(spec, spec.lhs) and isinstance(spec.epilogue, PlainStore)):
        fused = len(kernels)
        kernel, names = writer.fused_kernel()
        kernels.append(kernel)
        parameters.append(names)
    if not is_same(spec, spec.rhs):
        packing = len(kernels)
        kernel, names = writer.rhs_kernel()
        kernels.append(kernel)
        parameters.append(names)
    if splits > 1:
        kernel, names = Writer(whole, blocking).join_kernel()
        kernels.append(kernel)
        parameters.append(names)
    return ContractionKernels(tuple(kernels), tuple(parameters), spec, blocking, fused, packing, splits)


def _word(spec: ContractionSpec, machine, extents: tuple[int, int, int, int] | None) -> str:
    """What an element of the operands is (`Blocking.word`)."""
    operands = spec.lhs, spec.rhs
    if not all(isinstance(operand, PlainOperand) for operand in operands):
        return ""
    dtypes = [operand.dtype for operand in operands]
    large = extents is not None and math.prod(extents) >= FEWEST_IN_MATRIX
    if spec.accumulate == "f32":
        return "pairbf32" if large and dtypes == ["bf16", "bf16"] and machine.has("amx-bf16") else ""
    if spec.accumulate not in PAIRED or any(dtype not in NARROW for dtype in dtypes):
        return ""
    if large and machine.has("amx-int8") and all(dtype in SIGNS for dtype in dtypes):
        return f"quad{''.join(SIGNS[dtype] for dtype in dtypes)}32"
    return "pair32"


def is_same(spec: ContractionSpec, operand: Element | PlainOperand) -> bool:
    """Whether an operand is an array of the accumulation dtype, which tiles can read in place."""
    return isinstance(operand, PlainOperand) and operand.dtype == spec.accumulate
