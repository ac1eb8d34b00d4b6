"""The contraction nest: matrix products with whatever makes their operands and whatever consumes their result.

out[b, i, j] = epilogue(sum over p of lhs(b, i, p) * rhs(b, p, j)) for b < batch, i < m, j < n, p < k.

Two kernel sources (`shared`) serve every contraction of one accumulation dtype, for all shapes and strides: `pack_T`
copies rhs into *panels* of as many columns as the register tile has, and `product_T` multiplies blocks of rows with
panels. Each `ContractionSpec` adds at most a kernel that evaluates rhs into panels, and one that evaluates a block of
lhs into scratch memory, calls `product_T` on it by its address, and runs the epilogue on the sums in the cache.

- An operand that is a function of its indices is evaluated while it is packed; a plain array is read in place where
  that is as fast (`step_plan` decides). A plain result is summed in place in the output.
- Every element is summed in the order of p, in partial sums of `depth_step(k)` products, or of fewer where few rows
  read a wide rhs in memory: its bits do not depend on the blocks, the threads, the width of the machine's vectors, or
  on which operand was packed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard

from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, Stmt
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.shared import Blocking
from hloom.ir.records import record

PACK, PRODUCT = 0, 1  # indices of the two shared kernels in `ContractionKernels.kernels`

Element = Callable[[Names, str, str, str], tuple[list[Stmt], Expr]]
Epilogue = Callable[[Names, str, str, str, str], list[Stmt]]


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

    fill(names, row) -> the statements that write, for t_i0 <= i < t_i0 + t_rows and t_p0 <= p < t_p0 + t_depth of batch
    t_b, the element (i, p) to `t_left`: at (i - t_i0) * row + p - t_p0 where the spec's `lhs_fast` is "p", at
    (p - t_p0) * row + i - t_i0 where it is "i". `names` has all these, and gets the statements' own.
    """

    fill: Callable[[Names, Expr], list[Stmt]]


@record(frozen=True)
class StagedOperand:
    """A lhs in scratch memory that tiles read in place: its rows are in lines, its products in runs.

    fill:     names -> the statements that write, for a block (as of `FilledOperand`), `t_left` and distances in bytes:
              to `t_lines` those of the lines of the block's rows; to `t_runs` those of each run from the first run of
              the step's products, which is `t_origin` bytes from the beginning of the products.
    row_step, depth_step: names of the elements from a row of a line to the next, and from a product of a run.
    line, run: rows of a line, products of a run. line_name, run_name: names of them.
    step:     products in a partial sum, whole runs.
    most_rows: rows of a block that scratch memory has room for.
    by_rows:  whether a block writes elements for its own rows only; otherwise every block writes those of all rows.
    share:    elements written to scratch memory per element of a block, or per element of all rows (not by_rows).
    elements: those of `t_left` that a block whose rows are in so many lines uses at most.
    """

    fill: Callable[[Names], list[Stmt]]
    row_step: str
    depth_step: str
    line: int
    line_name: str
    run: int
    run_name: str
    step: int
    most_rows: int
    share: float
    by_rows: bool
    elements: Callable[[int], int]


@record(frozen=True)
class PlainStore:
    """The sum is stored unchanged, in the accumulation dtype, at `pointer[(b*m + i)*n + j]`."""

    pointer: str


@record(frozen=True)
class ContractionSpec:
    """What to contract.

    name:         name of the kernels.
    accumulate:   HLO dtype of the sums: f32, f64, s32, s64, u32 or u64 (integers wrap).
    lhs, rhs:     `PlainOperand`, or element(names, b, i, p) / element(names, b, p, j) -> (statements, value): the
                  operand's element, of dtype `accumulate`, at indexes that are variables of these names.
    epilogue:     `PlainStore`, or epilogue(names, value, b, i, j) -> statements that consume the sum named `value`.
    extra_params: (name, type) of every parameter that those statements use; types as in `KernelSource.params`. `batch`,
                  `m`, `n` and `k` need not be listed, the statements may use them.
    lhs_fast:     index along which the lhs element's memory is contiguous, "p" or "i": the loop to vectorize.
    rhs_fast:     the same for rhs, "j" or "p".
    rhs_batched:  False where the rhs element does not depend on b, so that it is packed once.
    epilogue_fast: index along which the epilogue's memory is contiguous, "j" or "i".

    `names` are those of the function that the statements become a part of; what they declare is their own. The kernels'
    variables begin with `t_`; those of operands and epilogues must not.
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
    arguments: Mapping[str, int | KernelAddress]
    pointers: dict[str, str]
    temporaries: dict[str, int]
    work: float = 0.0
    prepares: bool = False


@record(frozen=True)
class ContractionKernels:
    """The kernels of a spec. A plan may use only some of them.

    kernels:    `pack_T` and `product_T`, equal ones for all specs of a dtype, then the spec's own.
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


def is_same(operand: object, accumulate: str) -> TypeGuard[PlainOperand]:
    """Whether an operand is an array of the accumulation dtype, which tiles can read in place."""
    return isinstance(operand, PlainOperand) and operand.dtype == accumulate
