"""Products that a library can do too: fused computations that are nothing but a product and what its epilogues have.

    out[b, i, j] = act(alpha * sum over p of lhs(b, i, p) * rhs(b, p, j) + beta * addend[b, i, j] + bias[j])

All are arrays as they are in memory; act is x or max(x, 0). Whether a library takes its place is decided where the
program is loaded (`hloom/backends/cuda/autotuner.py`), by measurement.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.contractions.operands import ContractionParts
from hloom.compiler.kernels.contractions.spec import PlainOperand
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Instruction
from hloom.ir.records import record
from hloom.ir.types import HLO_NAME

# HLO dtype of lhs and rhs -> dtypes that the result may have. Sums are float64 for float64, else float32.
RESULTS = {"f32": ("f32",), "f64": ("f64",), "f16": ("f16", "f32"), "bf16": ("bf16", "f32")}


@record(frozen=True)
class LibraryProduct:
    """A product with an epilogue, as in this module's docstring.

    extents: (batch, m, n, k). factors: HLO dtype of lhs and rhs; result: of out, addend and bias. sums: 'f32', 'f64',
    or 'tf32', float32 whose factors may be rounded to 11 bits. lhs_strides: of (b, i, p), rhs_strides: of (b, p, j), in
    elements; in each one of the last two is 1, or of an extent of 1. lhs, rhs, addend, bias, out: pointers of the
    launches, '' where there is none.
    """

    extents: tuple[int, int, int, int]
    factors: str
    result: str
    sums: str
    lhs_strides: tuple[int, int, int]
    rhs_strides: tuple[int, int, int]
    lhs: str
    rhs: str
    out: str
    alpha: float = 1.0
    beta: float = 0.0
    addend: str = ""
    bias: str = ""
    relu: bool = False

    def pointers(self) -> tuple[str, ...]:
        """Those of lhs, rhs, the addend (or, without one, the result), the result and, where there is one, the bias."""
        return (self.lhs, self.rhs, self.addend or self.out, self.out, *([self.bias] if self.bias else []))


def library_product(
    request: KernelRequest, dot: Instruction, made: ContractionParts, tf32: bool
) -> LibraryProduct | None:
    """What a fused computation with this dot is for a library; None where it is more, or something else."""
    factors, sums = HLO_NAME[dot.operands[0].dtype], made.spec.accumulate
    if dot.opcode != "dot" or dot.operands[1].dtype != dot.operands[0].dtype or len(request.outputs) != 1:
        return None
    (out,) = request.outputs
    lhs, rhs = made.spec.lhs, made.spec.rhs
    if not (isinstance(lhs, PlainOperand) and isinstance(rhs, PlainOperand)):
        return None
    if HLO_NAME[out.dtype] not in RESULTS.get(factors, ()) or made.extents[3] == 0:
        return None
    epilogue = _Epilogue(request, dot, made)
    if not epilogue.reads(out):
        return None
    _, m, n, k = made.extents
    (_, si, sp), (_, tp, tj) = made.lhs_strides, made.rhs_strides
    if not (_has_lines(si, m, sp, k) and _has_lines(tp, k, tj, n)):
        return None
    found = {name: request.names[value] for name, value in epilogue.arrays.items()}
    return LibraryProduct(
        made.extents, factors, HLO_NAME[out.dtype], "tf32" if tf32 and sums == "f32" and factors == "f32" else sums,
        made.lhs_strides, made.rhs_strides, lhs.pointer, rhs.pointer, request.output_name(0),
        epilogue.alpha, epilogue.beta, found.get("addend", ""), found.get("bias", ""), epilogue.relu,
    )  # fmt: skip


def _has_lines(stride: int, extent: int, other_stride: int, other_extent: int) -> bool:
    """Whether elements are contiguous along one of two indexes, which BLAS asks for."""
    return stride == 1 or other_stride == 1 or 1 in (extent, other_extent)


class _Epilogue:
    """What is done to the sums, found from the outside inwards.

    Between operations nothing is rounded to a narrow dtype, in our kernels and in a library's epilogue alike: f16 and
    bf16 are what is stored at the end.
    """

    def __init__(self, request: KernelRequest, dot: Instruction, made: ContractionParts):
        self.request, self.dot, self.sums, self.n = request, dot, made.spec.accumulate, made.extents[2]
        self.size, self.dtype = math.prod(made.extents[:3]), request.outputs[0].dtype
        self.alpha, self.beta, self.relu = 1.0, 0.0, False
        self.arrays: dict[str, Instruction] = {}

    def reads(self, value: Instruction) -> bool:
        """Whether it is one that a library has."""
        inner = _relu_of(value)
        if inner is not None:
            self.relu, value = True, inner
        return self._sum(value)

    def _sum(self, value: Instruction, sign: float = 1.0) -> bool:
        """Takes a sum of which one part is the product; sign: that it is added with."""
        value = _without_shape(value)
        if value.dtype != self.dtype and value is not self.dot:
            return False
        if value.opcode in ("add", "subtract"):
            (first, second), other = value.operands, sign if value.opcode == "add" else -sign
            if self._term(second, other):
                return self._sum(first, sign)
            return self._term(first, sign) and self._sum(second, other)
        factor, value = _scaled(value)
        if value.opcode == "convert" and HLO_NAME[self.dot.dtype] == self.sums:
            if self.arrays or sign * factor != 1.0:  # a convert rounds, and what follows would round once more
                return False
            factor, value = _scaled(value.operands[0])
        self.alpha = sign * factor
        return value is self.dot and factor != 0  # a library would not look at NaNs that are multiplied by 0

    def _term(self, value: Instruction, sign: float) -> bool:
        """Takes an array that is added: the bias, or the addend with its factor."""
        factor, array = _scaled(value)
        if array.opcode == "broadcast" and factor == sign == 1.0 and "bias" not in self.arrays:
            (vector,) = array.operands
            first = len(array.dims) - len(vector.dims)
            along_j = array["dimensions"] == tuple(range(first, len(array.dims))) and vector.shape.size == self.n
            if along_j and vector in self.request.names and vector.dtype == self.dtype:
                self.arrays["bias"] = vector
                return True
        if array in self.request.names and array.dtype == self.dtype and array.shape.size == self.size:
            if "addend" not in self.arrays and factor != 0:
                self.arrays["addend"], self.beta = array, sign * factor
                return True
        return False


def _without_shape(value: Instruction) -> Instruction:
    """What is reshaped: arrays are row-major, so that no element moves."""
    while value.opcode == "reshape":
        (value,) = value.operands
    return value


def _scaled(value: Instruction) -> tuple[float, Instruction]:
    """(factor, array) of an array times a number."""
    value = _without_shape(value)
    if value.opcode == "negate":
        return -1.0, _without_shape(value.operands[0])
    if value.opcode == "multiply":
        for number, array in (value.operands, value.operands[::-1]):
            factor = _number(number)
            if factor is not None:
                return factor, _without_shape(array)
    return 1.0, value


def _number(value: Instruction) -> float | None:
    """The number that every element of a constant is."""
    if value.opcode == "broadcast":
        (value,) = value.operands
    if value.opcode != "constant" or value.shape.size != 1:
        return None
    return float(value["value"].reshape(()))


def _relu_of(value: Instruction) -> Instruction | None:
    """x of max(x, 0), which a NaN goes through."""
    value = _without_shape(value)
    if value.opcode == "maximum":
        for number, array in (value.operands, value.operands[::-1]):
            if _number(number) == 0:
                return array
    if value.opcode == "select":
        compared, yes, no = value.operands
        if compared.opcode == "compare" and compared.operands[0] is no and _number(compared.operands[1]) == 0:
            if compared["direction"] in ("LE", "LT") and _number(yes) == 0:
                return no
    return None
