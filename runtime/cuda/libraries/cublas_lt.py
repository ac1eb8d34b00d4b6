"""cublasLt by ctypes: matrix products with epilogues, as work on a stream.

    CublasLt(library)              from load_library("cublasLt"), or an object with the same functions (the tests' fake)
    .algorithms(matmul, count)     algorithms proposed by its heuristics, best first
    .call(matmul, algorithm)       -> LibraryCall
    .close()                       destroys its handle; another is made on the next use

Constants and structs are those of cublasLt.h 13.10 (`test_cublas_lt.py` compares them with the header of the
wheel nvidia-cublas where that is installed). Descriptors are memory of the host only, made for each use and
destroyed after it; the handle has memory on the device that is current when it is made.
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from hloom.ir.records import record
from hloom.runtime.cuda.errors import CudaError, library_error
from hloom.runtime.cuda.programs.choice import OWN_KERNELS, LibraryCall

# cudaDataType_t (library_types.h) and cublasComputeType_t (cublas_api.h), by HLO dtype and by `Matmul.sums`.
DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
COMPUTE_TYPES = {"f32": 68, "tf32": 77, "f64": 70}  # CUBLAS_COMPUTE_32F, _32F_FAST_TF32, _64F
ALLOC_FAILED = 3  # cublasStatus_t
NOT_SUPPORTED = 15
TRANSPOSED = 1  # cublasOperation_t: CUBLAS_OP_T
EPILOGUES = {(False, False): 1, (False, True): 2, (True, False): 4, (True, True): 6}  # by (bias, relu)
# CUBLASLT_MATMUL_DESC_..., CUBLASLT_MATRIX_LAYOUT_..., CUBLASLT_MATMUL_PREF_...
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
LAYOUT_BATCH_COUNT, LAYOUT_STRIDED_BATCH_OFFSET = 5, 6
PREF_MAX_WORKSPACE_BYTES, PREF_REDUCTION_SCHEME_MASK = 1, 3
PREF_MIN_ALIGNMENTS = (5, 6, 7, 8)  # of A, B, C and D
# CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts of sums are added in the dtype of the sums, in a fixed order. The other
# schemes add them in the output, in its dtype; NONE is always allowed.
REDUCTION_SCHEMES = 2
WORKSPACE_BYTES = 32 << 20  # recommended by NVIDIA for sm_90
ALIGNMENT = 16  # bytes: alignment of array addresses


class AlgorithmData(ctypes.Structure):
    """cublasLtMatmulAlgo_t. Its bytes may be kept for the same version of the library."""

    _fields_ = [("data", c_uint64 * 8)]


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", AlgorithmData),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", ctypes.c_float),
        ("reserved", c_int * 4),
    ]


_OUT = POINTER(c_void_p)
SIGNATURES = {
    "cublasLtGetVersion": (c_size_t, ()),
    "cublasLtGetStatusName": (c_char_p, (c_int,)),
    "cublasLtCreate": (c_int, (_OUT,)),
    "cublasLtDestroy": (c_int, (c_void_p,)),
    "cublasLtMatmulDescCreate": (c_int, (_OUT, c_int, c_int)),
    "cublasLtMatmulDescSetAttribute": (c_int, (c_void_p, c_int, c_void_p, c_size_t)),
    "cublasLtMatmulDescDestroy": (c_int, (c_void_p,)),
    "cublasLtMatrixLayoutCreate": (c_int, (_OUT, c_int, c_uint64, c_uint64, c_int64)),
    "cublasLtMatrixLayoutSetAttribute": (c_int, (c_void_p, c_int, c_void_p, c_size_t)),
    "cublasLtMatrixLayoutDestroy": (c_int, (c_void_p,)),
    "cublasLtMatmulPreferenceCreate": (c_int, (_OUT,)),
    "cublasLtMatmulPreferenceSetAttribute": (c_int, (c_void_p, c_int, c_void_p, c_size_t)),
    "cublasLtMatmulPreferenceDestroy": (c_int, (c_void_p,)),
    "cublasLtMatmulAlgoGetHeuristic": (
        c_int, (*(c_void_p,) * 7, c_int, POINTER(HeuristicResult), POINTER(c_int)),
    ),
    # (handle, operation, alpha, A, its layout, B, its layout, beta, C, its layout, D, its layout, algorithm, workspace,
    # its bytes, stream)
    "cublasLtMatmul": (c_int, (*(c_void_p,) * 12, POINTER(AlgorithmData), c_void_p, c_size_t, c_void_p)),
}  # fmt: skip


@record(frozen=True)
class Matrix:
    """Column-major: element (row, column) of batch element b is at b * step + column * ld + row. dtype: HLO's."""

    dtype: str
    rows: int
    columns: int
    ld: int
    step: int


@record(frozen=True)
class Matmul:
    """D = act(alpha * op(A) op(B) + beta * C + bias), op(X) is X or X transposed, act(x) is x or max(x, 0).

    C has the layout of D. bias: whether there is one, with an element for each row of D, of D's dtype. sums: 'f32',
    'f64', or 'tf32' for sums of float32 whose factors may be rounded. Addresses: A, B, C, D and, where there is one,
    the bias; without `beta` C is not read.
    """

    batch: int
    a: Matrix
    b: Matrix
    d: Matrix
    transpose_a: bool
    transpose_b: bool
    sums: str
    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    relu: bool = False


@record(frozen=True)
class Algorithm:
    """How the library computes a product. data: its `AlgorithmData`. scratch_bytes: the device memory it needs."""

    data: bytes
    scratch_bytes: int


class CublasLt:
    """The library on the device whose context is current whenever its methods are called."""

    name = "cublasLt"

    def __init__(self, library):
        self._library = library
        for name, (result, parameters) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
        self.version = _version_text(int(library.cublasLtGetVersion()))
        self._handle: int | None = None

    def open(self) -> None:
        """Makes the handle, unless there is one; that may allocate. Raises CudaError."""
        if self._handle is None:
            handle = c_void_p()
            self._do("cublasLtCreate", "cublasLt was started", ctypes.byref(handle))
            self._handle = handle.value

    def close(self) -> None:
        """Raises CudaError."""
        if self._handle is not None:
            self._do("cublasLtDestroy", "cublasLt was ended", self._handle)
            self._handle = None

    def algorithms(self, matmul: Matmul, count: int) -> list[Algorithm]:
        """Up to `count` ways of computing a product whose results have the same bits every time, fastest first by the
        library's estimate; empty where it does not support such a product. Raises CudaError."""
        self.open()
        with ExitStack() as made:
            operation, layouts = self._descriptors(matmul, made)
            preference = self._create("MatmulPreference", made)
            self._set("MatmulPreference", preference, PREF_MAX_WORKSPACE_BYTES, c_uint64(WORKSPACE_BYTES))
            self._set("MatmulPreference", preference, PREF_REDUCTION_SCHEME_MASK, c_uint32(REDUCTION_SCHEMES))
            for attribute in PREF_MIN_ALIGNMENTS:
                self._set("MatmulPreference", preference, attribute, c_uint32(ALIGNMENT))
            if matmul.bias:  # nothing is read there; the address conveys the alignment
                self._set("MatmulDesc", operation, DESC_BIAS_POINTER, c_void_p(ALIGNMENT))
            found, returned = (HeuristicResult * count)(), c_int()
            a, b, d = layouts
            status = self._library.cublasLtMatmulAlgoGetHeuristic(
                self._handle, operation, a, b, d, d, preference, count, found, ctypes.byref(returned)
            )
            if status == NOT_SUPPORTED:
                return []
            self._check(status, f"cublasLt was asked how it computes {_words(matmul)}")
        results = [result for result in found[: returned.value] if result.state == 0]
        return [Algorithm(bytes(result.algorithm), result.workspace_bytes) for result in results]

    def call(self, matmul: Matmul, algorithm: Algorithm) -> LibraryCall:
        """A product as work of a program; its addresses are those of `Matmul`. Raises CudaError when it is enqueued."""
        data = AlgorithmData.from_buffer_copy(algorithm.data)
        scale = ctypes.c_double if matmul.sums == "f64" else ctypes.c_float
        alpha, beta = scale(matmul.alpha), scale(matmul.beta)

        def enqueue(stream: int, a: int, b: int, c: int, d: int, *rest: int) -> None:
            *bias, scratch = rest
            with ExitStack() as made:
                operation, layouts = self._descriptors(matmul, made)
                if bias:
                    self._set("MatmulDesc", operation, DESC_BIAS_POINTER, c_void_p(bias[0]))
                status = self._library.cublasLtMatmul(
                    self._handle, operation, ctypes.byref(alpha), a, layouts[0], b, layouts[1], ctypes.byref(beta),
                    c, layouts[2], d, layouts[2], ctypes.byref(data),
                    scratch if algorithm.scratch_bytes else None, algorithm.scratch_bytes, stream,
                )  # fmt: skip
                self._check(status, f"cublasLt was asked to compute {_words(matmul)}")

        return LibraryCall(self.name, enqueue, algorithm.scratch_bytes, self.open)

    # --- descriptors ---

    def _descriptors(self, matmul: Matmul, made: ExitStack) -> tuple[int | None, list[int | None]]:
        """(operation descriptor, layouts of A, B and D), destroyed when `made` ends."""
        scale = DATA_TYPES["f64" if matmul.sums == "f64" else "f32"]
        operation = self._create("MatmulDesc", made, COMPUTE_TYPES[matmul.sums], scale)
        if matmul.transpose_a:
            self._set("MatmulDesc", operation, DESC_TRANSA, c_int32(TRANSPOSED))
        if matmul.transpose_b:
            self._set("MatmulDesc", operation, DESC_TRANSB, c_int32(TRANSPOSED))
        epilogue = EPILOGUES[matmul.bias, matmul.relu]
        self._set("MatmulDesc", operation, DESC_EPILOGUE, c_uint32(epilogue))
        layouts = []
        for matrix in (matmul.a, matmul.b, matmul.d):
            shape = DATA_TYPES[matrix.dtype], matrix.rows, matrix.columns, matrix.ld
            layout = self._create("MatrixLayout", made, *shape)
            layouts.append(layout)
            if matmul.batch > 1:
                self._set("MatrixLayout", layout, LAYOUT_BATCH_COUNT, c_int32(matmul.batch))
                self._set("MatrixLayout", layout, LAYOUT_STRIDED_BATCH_OFFSET, c_int64(matrix.step))
        return operation, layouts

    def _create(self, kind: str, made: ExitStack, *arguments: int) -> int | None:
        handle = c_void_p()
        self._do(f"cublasLt{kind}Create", f"a {kind} of cublasLt was made", ctypes.byref(handle), *arguments)
        made.callback(getattr(self._library, f"cublasLt{kind}Destroy"), handle.value)  # (it only frees memory)
        return handle.value

    def _set(self, kind: str, handle: int | None, attribute: int, value) -> None:
        asked = f"attribute {attribute} of a {kind} of cublasLt was set"
        self._do(f"cublasLt{kind}SetAttribute", asked, handle, attribute, ctypes.byref(value), ctypes.sizeof(value))

    # --- errors ---

    def _do(self, function: str, asked: str, *arguments) -> None:
        self._check(getattr(self._library, function)(*arguments), asked)

    def _check(self, status: int, asked: str) -> None:
        if status:
            raise self._failure(status, asked)

    def _failure(self, status: int, asked: str) -> CudaError:
        name = (self._library.cublasLtGetStatusName(status) or b"an unknown status").decode()
        found, repair = f"{name} ({status}), version {self.version}", OWN_KERNELS
        return library_error(asked, found, repair, status, name, out_of_memory=status == ALLOC_FAILED)


def _version_text(version: int) -> str:
    """13.1.0 for 130100 of cublasLtGetVersion."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _words(matmul: Matmul) -> str:
    """A product, for people."""
    rows, columns = matmul.d.rows, matmul.d.columns
    depth = matmul.a.rows if matmul.transpose_a else matmul.a.columns
    batch = f"{matmul.batch} products" if matmul.batch > 1 else "a product"
    return f"{batch} of {matmul.a.dtype}, {columns} x {depth} by {depth} x {rows}"
