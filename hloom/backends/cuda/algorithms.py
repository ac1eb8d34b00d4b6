"""Candidate algorithms: cublasLt's for products, cuFFT's for Fourier transforms, and the alternative of two sorts.

    algorithms = algorithms_for(step.call)              of an `Alternatives` step that has kernels of ours
    library = algorithms.kind(...)                      of the libraries that `load_library` finds by `.libraries`
    algorithms.candidates(library, count)               the others, as what JSON keeps; the most promising first
    algorithms.chosen(library, candidate, step)         what an `Alternatives` step becomes then

Each class also describes its measurement (`measurement.py`): the arrays and the tolerance of the results.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.compiler.targets.cuda.fft import factors_of
from hloom.compiler.targets.cuda.libraries.fft import LibraryTransform
from hloom.compiler.targets.cuda.libraries.matmul import LibraryProduct
from hloom.compiler.targets.cuda.sorting.choice import SortChoice
from hloom.ir.records import replace
from hloom.ir.types import COMPLEX, HLO_NAME, PRED, Shape
from hloom.runtime.cuda.libraries.cublas_lt import Algorithm, CublasLt, Matmul, Matrix
from hloom.runtime.cuda.libraries.cufft import CuFft, Transform
from hloom.runtime.cuda.programs.choice import LibraryCall
from hloom.runtime.cuda.programs.program import Alternatives, Step

UNIT = {"f32": 2.0**-24, "f64": 2.0**-53, "tf32": 2.0**-11, "f16": 2.0**-11, "bf16": 2.0**-8}  # half an ulp of 1
OWN = "own kernels"
DISTINCT = 1 << 20  # numbers that are drawn; larger arrays repeat them


def counted(shape: Shape) -> int:
    return min(shape.size, DISTINCT)


def uniform(random: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers from -1 to 1, of complex ones both parts."""
    count = counted(shape)
    values = random.uniform(-1, 1, count).astype(np.float32)
    return values + 1j * random.uniform(-1, 1, count) if shape.dtype in COMPLEX else values


class Algorithms(ABC):
    """The candidate algorithms of a step.

    title: of the step, for people. kind: the library's class, constructed from the `libraries` and, with `wants_api`,
    the driver's calls; None if the alternative is ours. own: the name of our kernels. without: the reason for having no
    alternative. arrays: by `Alternatives.places`, None for a result's array that nothing reads. results: their indices
    among these. nan: whether the treatment of NaNs matters. tolerance: the allowed difference, relative to the largest
    result; 0: bit for bit equal. draw(random, shape): elements of an operand, at most DISTINCT.
    """

    title: str
    kind: type[CublasLt] | type[CuFft] | None = None
    libraries: tuple[str, ...] = ()
    wants_api = False
    own = OWN
    without: str
    arrays: tuple[Shape | None, ...]
    results: tuple[int, ...]
    nan = False
    tolerance = 0.0

    @abstractmethod
    def candidates(self, library: Any, count: int) -> list[list]:
        """Up to `count` of a library (of `kind`). Raises CudaError."""

    @abstractmethod
    def chosen(self, library: Any, candidate: list, step: Alternatives) -> LibraryCall | tuple[Step, ...]:
        """The step with a candidate chosen."""

    def draw(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return uniform(random, shape)


class ProductAlgorithms(Algorithms):
    """A product. A candidate: [the algorithm's bytes in hexadecimal, its bytes of scratch]."""

    kind, libraries, results = CublasLt, ("cublasLt",), (3,)
    without = "cublasLt has no algorithm for it"

    def __init__(self, product: LibraryProduct):
        self.title = _product_title(product)
        self.matmul = column_major(product)
        batch, m, n, k = product.extents
        lhs = m * k * (batch if product.lhs_strides[0] else 1)
        rhs = k * n * (batch if product.rhs_strides[0] else 1)
        factors = [Shape(product.factors, (size,)) for size in (lhs, rhs)]
        out, bias = Shape(product.result, (batch * m * n,)), Shape(product.result, (n,))
        self.arrays = (*factors, out if product.addend else None, out, *([bias] if product.bias else []))
        self.nan = product.relu  # which keeps NaNs
        self.tolerance = 8 * (UNIT[product.result] + UNIT[product.sums] * math.sqrt(k))

    def candidates(self, library: CublasLt, count: int) -> list[list]:
        return [[found.data.hex(), found.scratch_bytes] for found in library.algorithms(self.matmul, count)]

    def chosen(self, library: CublasLt, candidate: list, step: Alternatives) -> LibraryCall:
        """The lhs of the step is the library's B."""
        data, scratch_bytes = candidate
        call = library.call(self.matmul, Algorithm(bytes.fromhex(data), scratch_bytes))
        return replace(call, enqueue=lambda stream, lhs, rhs, *rest: call.enqueue(stream, rhs, lhs, *rest))


class TransformAlgorithms(Algorithms):
    """A Fourier transform, for which cuFFT has one algorithm: [bytes that its plan works in].

    NaNs say nothing: every element depends on all of its transform.
    """

    kind, libraries, wants_api, results = CuFft, ("cufft", "cublas"), True, (1,)
    without = "cuFFT does not take it"

    def __init__(self, transform: LibraryTransform):
        self.transform = Transform(transform.kind, transform.lengths, transform.batch, transform.parts)
        self.title = str(self.transform)
        # A random input of an IRFFT is not the spectrum of a real signal, which also shows whether the library ignores
        # the same parts of such a spectrum as our kernels.
        self.arrays = (self.transform.operand, self.transform.result)
        # Rounding grows with the passes, and in a pass of factor p, which may be a loop, by the root of p.
        passes = sum(math.sqrt(factor) for n in transform.lengths for factor in factors_of(n))
        self.tolerance = 8 * UNIT[transform.parts] * max(passes, 1.0)

    def candidates(self, library: CuFft, count: int) -> list[list]:
        work_bytes = library.work_bytes(self.transform)
        return [] if work_bytes is None else [[work_bytes]]

    def chosen(self, library: CuFft, candidate: list, step: Alternatives) -> LibraryCall:
        (work_bytes,) = candidate
        return library.call(self.transform, work_bytes)


class SortAlgorithms(Algorithms):
    """A sort, which has one other algorithm: the program's own other steps."""

    without = "there is no other algorithm"

    def __init__(self, sort: SortChoice):
        self.sort, self.own = sort, sort.first
        keys = " and ".join(str(HLO_NAME[shape.dtype]) for _, shape in sort.operands)
        self.title = f"sort of {keys}, {sort.rows} x {sort.count}"
        self.arrays = tuple(shape for _, shape in (*sort.operands, *sort.results))
        self.results = tuple(range(len(sort.operands), len(self.arrays)))

    def candidates(self, library: None, count: int) -> list[list]:
        return [[self.sort.other]]

    def chosen(self, library: None, candidate: list, step: Alternatives) -> tuple[Step, ...]:
        return step.other

    def draw(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        """Integers of all sizes, so that all digits differ."""
        if shape.dtype.kind not in "iu":
            return uniform(random, shape) if shape.dtype != PRED else random.random(counted(shape)) < 0.5
        info = np.iinfo(shape.dtype)
        low, high = self.sort.limits or (info.min, int(info.max) + 1)
        return random.integers(low, high, counted(shape), shape.dtype)


_BY_CALL: dict[type, Callable[[Any], Algorithms]] = {
    LibraryProduct: ProductAlgorithms, LibraryTransform: TransformAlgorithms, SortChoice: SortAlgorithms,
}  # fmt: skip


def algorithms_for(call: object) -> Algorithms:
    """call: a LibraryProduct, a LibraryTransform or a SortChoice."""
    return _BY_CALL[type(call)](call)


# --- products in cublasLt's words ---


def column_major(product: LibraryProduct) -> Matmul:
    """The product as cublasLt computes it: row-major arrays are the transposed ones to it, and out.T = rhs.T lhs.T.

    So the bias, an element for each column of ours, is one for each row of its, as it wants.
    """
    batch, m, n, k = product.extents
    (lb, si, sp), (rb, tp, tj) = product.lhs_strides, product.rhs_strides
    a, transpose_a = _matrix(product.factors, (n, tj), (k, tp), rb)
    b, transpose_b = _matrix(product.factors, (k, sp), (m, si), lb)
    d = Matrix(product.result, n, m, n, m * n)
    return Matmul(
        batch, a, b, d, transpose_a, transpose_b, product.sums, product.alpha, product.beta, bool(product.bias),
        product.relu,
    )  # fmt: skip


def _matrix(dtype: str, rows: tuple[int, int], columns: tuple[int, int], step: int) -> tuple[Matrix, bool]:
    """(an array as a column-major matrix, whether it has to be transposed for these rows and columns). rows, columns:
    (extent, stride)."""
    (height, down), (width, across) = rows, columns
    if height == 1 or down == 1:
        return Matrix(dtype, height, width, across if width > 1 else height, step), False
    return Matrix(dtype, width, height, down, step), True


def _product_title(product: LibraryProduct) -> str:
    """A product, for people."""
    batch, m, n, k = product.extents
    words = [f"product {product.factors} {m} x {k} by {k} x {n}"]
    words += [f"{batch} of them"] if batch > 1 else []
    parts = {"added": product.addend, "bias": product.bias, "relu": product.relu}
    return ", ".join([*words, *(name for name, there in parts.items() if there)])
