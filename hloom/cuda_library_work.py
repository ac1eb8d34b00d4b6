"""What a library is asked for in place of our kernels: products in cublasLt's words, Fourier transforms in cuFFT's.

    work = work_of(step.call)                       of a `Library` step that has kernels of ours
    library = work.kind(...)                        of the libraries that `load_library` finds by `work.libraries`
    work.ways(library, count)                       how it can do the work, as what JSON keeps; the best first
    work.call(library, way)                         -> LibraryCall

Each kind of work says beside this what a trial of it has to know (`cuda_trial.py`): its arrays and how far results may
differ.
"""

from __future__ import annotations

import math

from hloom.compiler.targets.cuda.fft import factors_of
from hloom.compiler.targets.cuda.library_products import LibraryProduct
from hloom.compiler.targets.cuda.library_transforms import LibraryTransform
from hloom.ir.records import replace
from hloom.ir.types import Shape
from hloom.runtime.cuda.choice import LibraryCall
from hloom.runtime.cuda.cublas_lt import Algorithm, CublasLt, Matmul, Matrix
from hloom.runtime.cuda.cufft import CuFft, Transform

UNIT = {"f32": 2.0**-24, "f64": 2.0**-53, "tf32": 2.0**-11, "f16": 2.0**-11, "bf16": 2.0**-8}  # half an ulp of 1


class ProductWork:
    """A product. A way: [the algorithm's bytes in hexadecimal, its bytes of scratch].

    kind: the library's class, made of what `libraries` names and, with `wants_api`, of the driver's calls. without:
    what is said where there is no way. arrays: by `Library.places`, None where it is the result's and nothing reads it.
    output: the number of the result in these. nan: whether it matters what becomes of a NaN. tolerance: what results
    may differ by, as a part of the largest.
    """

    kind, libraries, wants_api = CublasLt, ("cublasLt",), False
    output = 3
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

    def ways(self, library: CublasLt, count: int) -> list[list]:
        """Up to `count`. Raises CudaError."""
        return [[found.data.hex(), found.scratch_bytes] for found in library.algorithms(self.matmul, count)]

    def call(self, library: CublasLt, way: list) -> LibraryCall:
        """The work of a `Library` step, whose lhs is the library's B."""
        data, scratch_bytes = way
        call = library.call(self.matmul, Algorithm(bytes.fromhex(data), scratch_bytes))
        return replace(call, enqueue=lambda stream, lhs, rhs, *rest: call.enqueue(stream, rhs, lhs, *rest))


class TransformWork:
    """A Fourier transform, for which cuFFT has one way: [bytes that its plan works in]. Fields as of `ProductWork`."""

    kind, libraries, wants_api = CuFft, ("cufft", "cublas"), True
    output = 1
    nan = False  # every element depends on all of its transform
    without = "cuFFT does not take it"

    def __init__(self, transform: LibraryTransform):
        self.transform = Transform(transform.kind, transform.lengths, transform.batch, transform.parts)
        self.title = str(self.transform)
        # Made up at random, what an IRFFT reads is the spectrum of no real numbers, so that it shows as well whether
        # the library leaves out what we leave out of such a spectrum.
        self.arrays = (self.transform.operand, self.transform.result)
        # Rounding grows with the passes, and in a pass of factor p, which may be a loop, by the root of p.
        passes = sum(math.sqrt(factor) for n in transform.lengths for factor in factors_of(n))
        self.tolerance = 8 * UNIT[transform.parts] * max(passes, 1.0)

    def ways(self, library: CuFft, count: int) -> list[list]:
        """Raises CudaError."""
        work_bytes = library.work_bytes(self.transform)
        return [] if work_bytes is None else [[work_bytes]]

    def call(self, library: CuFft, way: list) -> LibraryCall:
        (work_bytes,) = way
        return library.call(self.transform, work_bytes)


Work = ProductWork | TransformWork
_WORKS = {LibraryProduct: ProductWork, LibraryTransform: TransformWork}


def work_of(call: LibraryProduct | LibraryTransform) -> Work:
    return _WORKS[type(call)](call)


# --- products in cublasLt's words ---


def column_major(product: LibraryProduct) -> Matmul:
    """The product that cublasLt is asked for: row-major arrays are the transposed ones to it, and out.T = rhs.T lhs.T.

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
