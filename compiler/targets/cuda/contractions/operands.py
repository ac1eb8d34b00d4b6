"""The operands of a contraction on CUDA: how their tiles come into shared memory, and how they lie there."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.nodes import Expr
from hloom.compiler.kernels.contractions.spec import Element, FilledOperand, PlainOperand, StagedOperand
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.compiler.targets.cuda.contractions.windows import Gathered
from hloom.ir.records import record
from hloom.ir.types import DTYPES

TENSOR_INPUTS = ("f16", "bf16")


@record(frozen=True)
class Side:
    """An operand of a contraction, and how its tiles come into shared memory.

    name: 'lhs' or 'rhs'. role: its index besides b and p. extent: of the tile along it. depth: of the tile along p.
    dtype: of the elements in shared memory.
    how: 'ahead' (16 bytes at a time by instructions that do not wait for them), 'wide' (16 bytes at a time into
        registers, from there transposed into shared memory), or 'element' (evaluated one by one).
    fast: the index along which memory is contiguous; inner: the one along which shared memory is.
    pitch: elements of shared memory from one line to the next. first: where its first stage lies.
    whole_role, whole_depth: whether no tile reaches beyond the operand's end along the role, and along p.
    count: the name of the operand's extent along the role, m or n if not given.
    """

    name: str
    role: str
    code: Element | PlainOperand | FilledOperand | StagedOperand
    dtype: str
    how: str
    fast: str
    inner: str
    extent: int
    depth: int
    pitch: int
    first: int
    whole_role: bool
    whole_depth: bool
    count: str = ""

    @property
    def width(self) -> int:
        """Elements in 16 bytes."""
        return 16 // DTYPES[self.dtype].itemsize

    @property
    def pointer(self) -> str:
        """Of an operand that lies in memory."""
        assert isinstance(self.code, PlainOperand)
        return self.code.pointer

    @property
    def area(self) -> int:
        """Elements of a stage."""
        return self.pitch * (self.depth if self.inner == self.role else self.extent)

    def sizes(self) -> tuple[int, int]:
        """Extents of the tile along the index that is fast in memory, and along the other."""
        return (self.depth, self.extent) if self.fast == "p" else (self.extent, self.depth)

    def terms(self, role: Expr, p: Expr) -> tuple[Expr, Expr]:
        """The terms of the place that an element has in its stage, from its offsets in the tile."""
        line, element = (p, role) if self.inner == self.role else (role, p)
        return line * self.pitch, element


def make_side(
    name: str, role: str, code, strides: Sequence[int], fast: str, count: int, first: int, *, tile: Tile, dtype: str,
    batch: int, deep: int, whole_depth: bool, vectors: bool,
) -> Side:  # fmt: skip
    """The best way for an operand.

    strides: of a plain one, along b, its role and p. fast: where it is not plain, the index along which its memory is
    contiguous. count, deep: its extents along its role and p. vectors: whether 16 bytes may be moved at a time.
    """
    of_batch, step, along = strides
    wide = 16 // DTYPES[dtype].itemsize
    how = "element"
    if isinstance(code, Gathered):
        run = code.runs(wide) if code.dtype == dtype and vectors else None
        fast, how = (run, "ahead") if run else (fast, how)
    elif isinstance(code, PlainOperand):
        if (along == 1 and deep > 1) != (step == 1 and count > 1):
            fast = "p" if along == 1 and deep > 1 else role
        own, other, extent, others = (along, step, deep, count) if fast == "p" else (step, along, count, deep)
        aligned = (other % wide == 0 or others == 1) and (of_batch % wide == 0 or batch == 1)
        if code.dtype == dtype and vectors and own == 1 and extent % wide == 0 and aligned:
            how = "ahead"
    threads = tile.kind == "thread"
    # Threads read lines along their own index, tensor cores read both.
    inner = role if threads else fast
    if threads and how == "ahead" and fast == "p":
        how = "wide"
    extent = tile.rows if role == "i" else tile.columns
    # Elements beyond those of a line, so that what threads read at a time lies in different banks.
    gap = wide if threads or dtype in TENSOR_INPUTS else 4 if inner == "p" else 8
    pitch = (extent if inner == role else tile.depth) + gap
    return Side(
        name, role, code, dtype, how, fast, inner, extent, tile.depth, pitch, first, count % extent == 0, whole_depth
    )
