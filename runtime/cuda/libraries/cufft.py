"""cuFFT by ctypes, with the scaling of cuBLAS: Fourier transforms of row-major arrays, as work on a stream.

    CuFft(fft, blas, api)          from load_library("cufft") and ("cublas"), or objects with the same functions
    .work_bytes(transform)         size of its plan's work area; None if there is no plan for it
    .call(transform, work_bytes)   -> LibraryCall
    .close()                       destroys plans and handle; others are made on the next use

Functions and constants are those of cufft.h 12.5 and cublas_api.h 13.10 (`test_cufft.py` compares them with the
headers of the wheels where these are installed). A plan has tables on the device that is current when it is made,
but no work area: that is part of the program's temporaries. There is one plan for each transform, until the
device is closed. On one machine the results of a plan have the same bits from run to run.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, c_double, c_float, c_int, c_int64, c_longlong, c_size_t, c_void_p

from hloom.ir.records import record
from hloom.ir.types import Shape
from hloom.runtime.cuda.api import Api
from hloom.runtime.cuda.errors import CudaError, CudaLibraryError, library_error
from hloom.runtime.cuda.programs.choice import ALIGNMENT, OWN_KERNELS, LibraryCall

# cufftType_t and the function that executes it, by (kind, dtype of parts).
TYPES = {
    ("FFT", "f32"): (0x29, "cufftExecC2C"), ("FFT", "f64"): (0x69, "cufftExecZ2Z"),
    ("IFFT", "f32"): (0x29, "cufftExecC2C"), ("IFFT", "f64"): (0x69, "cufftExecZ2Z"),
    ("RFFT", "f32"): (0x2A, "cufftExecR2C"), ("RFFT", "f64"): (0x6A, "cufftExecD2Z"),
    ("IRFFT", "f32"): (0x2C, "cufftExecC2R"), ("IRFFT", "f64"): (0x6C, "cufftExecZ2D"),
}  # fmt: skip
DIRECTIONS = {"FFT": (-1,), "IFFT": (1,), "RFFT": (), "IRFFT": ()}  # CUFFT_FORWARD, CUFFT_INVERSE; the last parameter
SCALES = {"f32": (c_float, "cublasSscal_v2_64"), "f64": (c_double, "cublasDscal_v2_64")}
STATUS = {  # cufftResult_t
    1: "CUFFT_INVALID_PLAN", 2: "CUFFT_ALLOC_FAILED", 3: "CUFFT_INVALID_TYPE", 4: "CUFFT_INVALID_VALUE",
    5: "CUFFT_INTERNAL_ERROR", 6: "CUFFT_EXEC_FAILED", 7: "CUFFT_SETUP_FAILED", 8: "CUFFT_INVALID_SIZE",
    9: "CUFFT_UNALIGNED_DATA", 11: "CUFFT_INVALID_DEVICE", 13: "CUFFT_NO_WORKSPACE", 14: "CUFFT_NOT_IMPLEMENTED",
    16: "CUFFT_NOT_SUPPORTED", 17: "CUFFT_MISSING_DEPENDENCY", 18: "CUFFT_NVRTC_FAILURE",
    19: "CUFFT_NVJITLINK_FAILURE", 20: "CUFFT_NVSHMEM_FAILURE",
}  # fmt: skip
NOT_TAKEN = ("CUFFT_INVALID_SIZE", "CUFFT_NOT_IMPLEMENTED", "CUFFT_NOT_SUPPORTED")
ALLOC_FAILED = {"cufft": 2, "cublas": 3}

_LONGS = POINTER(c_longlong)
_EXECUTE = (c_int, c_void_p, c_void_p)
SIGNATURES: dict[str, dict[str, tuple]] = {  # each returns an int
    "cufft": {
        "cufftGetProperty": (c_int, POINTER(c_int)),
        "cufftCreate": (POINTER(c_int),),
        "cufftDestroy": (c_int,),
        "cufftSetAutoAllocation": (c_int, c_int),
        # (plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, bytes of the work area)
        "cufftMakePlanMany64": (
            c_int, c_int, _LONGS, _LONGS, c_longlong, c_longlong, _LONGS, c_longlong, c_longlong, c_int, c_longlong,
            POINTER(c_size_t),
        ),
        "cufftSetStream": (c_int, c_void_p),
        "cufftSetWorkArea": (c_int, c_void_p),
        **dict.fromkeys(("cufftExecC2C", "cufftExecZ2Z"), (*_EXECUTE, c_int)),
        **{f"cufftExec{kind}": _EXECUTE for kind in ("R2C", "D2Z", "C2R", "Z2D")},
    },
    "cublas": {
        "cublasCreate_v2": (POINTER(c_void_p),),
        "cublasDestroy_v2": (c_void_p,),
        "cublasSetStream_v2": (c_void_p, c_void_p),
        # (handle, elements, alpha, x, their stride)
        **{function: (c_void_p, c_int64, POINTER(scale), c_void_p, c_int64) for scale, function in SCALES.values()},
    },
}  # fmt: skip


@record(frozen=True)
class Transform:
    """`batch` consecutive transforms, as `fft` of the IR defines them, inverse ones scaled.

    kind: 'FFT', 'IFFT', 'RFFT' or 'IRFFT'. lengths: transform sizes, one to three, row-major; the spectrum of a real
    transform has n // 2 + 1 elements along the last. parts: 'f32' or 'f64'. Addresses: of the operand, of the result.
    """

    kind: str
    lengths: tuple[int, ...]
    batch: int
    parts: str

    @property
    def operand(self) -> Shape:
        return self._shape(self.kind == "RFFT", self.kind == "IRFFT")

    @property
    def result(self) -> Shape:
        return self._shape(self.kind == "IRFFT", self.kind == "RFFT")

    @property
    def inverse(self) -> bool:
        return self.kind in ("IFFT", "IRFFT")

    @property
    def loses_operand(self) -> bool:
        """Whether cuFFT may overwrite its input: complex-to-real transforms do, even out of place (its documentation,
        as PyTorch's issue 38413 quotes it)."""
        return self.kind == "IRFFT"

    def _shape(self, real: bool, half: bool) -> Shape:
        *others, last = self.lengths
        dtype = self.parts if real else {"f32": "c64", "f64": "c128"}[self.parts]
        return Shape(dtype, (self.batch, *others, last // 2 + 1 if half else last))

    def __str__(self) -> str:
        several = f", {self.batch} of them" if self.batch > 1 else ""
        return f"{self.kind} {self.operand.dtype.name} of {' x '.join(map(str, self.lengths))}{several}"


class CuFft:
    """The libraries on the device whose context is current whenever its methods are called."""

    name = "cuFFT"

    def __init__(self, fft, blas, api: Api):
        self._libraries, self._api = {"cufft": fft, "cublas": blas}, api
        for library, functions in SIGNATURES.items():
            for name, parameters in functions.items():
                function = getattr(self._libraries[library], name)
                function.restype, function.argtypes = c_int, parameters
        self._plans: dict[Transform, tuple[int, int]] = {}  # (plan, bytes that it works in)
        self._blas: int | None = None
        self.version = ".".join(str(self._property(which)) for which in range(3))

    def close(self) -> None:
        """Raises CudaError."""
        while self._plans:
            transform, (plan, _) = next(iter(self._plans.items()))
            self._do("cufft", "cufftDestroy", f"the plan of {transform} was destroyed", plan)
            del self._plans[transform]
        if self._blas is not None:
            self._do("cublas", "cublasDestroy_v2", "cublas was ended", self._blas)
            self._blas = None

    def work_bytes(self, transform: Transform) -> int | None:
        """Makes the plan. Raises CudaError if it could not be made for another reason than the transform."""
        try:
            return self._open(transform)[1]
        except CudaLibraryError as error:
            if error.name in NOT_TAKEN:
                return None
            raise

    def call(self, transform: Transform, work_bytes: int) -> LibraryCall:
        """A transform as work of a program. work_bytes: size of the plan's work area, given so that no plan is made
        before the program is about to run. The work raises CudaError when it is prepared and when it is enqueued."""
        asked = f"cuFFT was asked for {transform}"
        _, execute = TYPES[transform.kind, transform.parts]
        copied = -(-transform.operand.bytes // ALIGNMENT) * ALIGNMENT if transform.loses_operand else 0
        kind, scale = SCALES[transform.parts]
        factor = kind(1 / math.prod(transform.lengths))
        numbers = transform.result.bytes // ctypes.sizeof(kind)

        def prepare() -> None:
            _, needed = self._open(transform)
            if needed > work_bytes:
                raise CudaLibraryError(
                    asked,
                    f"its plan works in {needed:,} bytes, and in {work_bytes:,} when it was measured",
                    "have it measured again: delete the cache, or hl.config.cuda_libraries = 'never'",
                )

        def enqueue(stream: int, operand: int, result: int, scratch: int) -> None:
            plan, _ = self._plans[transform]
            self._do("cufft", "cufftSetStream", asked, plan, stream)
            if copied:
                self._api.copy(scratch, operand, transform.operand.bytes, self._api.stream_of(stream), asked)
                operand, scratch = scratch, scratch + copied
            if work_bytes:
                self._do("cufft", "cufftSetWorkArea", asked, plan, scratch)
            self._do("cufft", execute, asked, plan, operand, result, *DIRECTIONS[transform.kind])
            if transform.inverse:
                self._do("cublas", "cublasSetStream_v2", asked, self._blas, stream)
                self._do("cublas", scale, asked, self._blas, numbers, ctypes.byref(factor), result, 1)

        return LibraryCall(self.name, enqueue, copied + work_bytes, prepare)

    # --- plans ---

    def _open(self, transform: Transform) -> tuple[int, int]:
        """(its plan, bytes that this works in), and the handle for its factor; both are made where they are missing,
        which may allocate."""
        if transform.inverse and self._blas is None:
            handle = c_void_p()
            self._do("cublas", "cublasCreate_v2", "cublas was started", ctypes.byref(handle))
            self._blas = handle.value
        if transform not in self._plans:
            self._plans[transform] = self._plan(transform)
        return self._plans[transform]

    def _plan(self, transform: Transform) -> tuple[int, int]:
        asked = f"a plan of {transform} was made"
        plan, work_bytes = c_int(), c_size_t()
        self._do("cufft", "cufftCreate", asked, ctypes.byref(plan))
        lengths, operand, result = (
            (c_longlong * len(dims))(*dims)
            for dims in (transform.lengths, transform.operand.dims[1:], transform.result.dims[1:])
        )
        steps = (math.prod(shape.dims[1:]) for shape in (transform.operand, transform.result))
        kind, _ = TYPES[transform.kind, transform.parts]
        try:
            self._do("cufft", "cufftSetAutoAllocation", asked, plan.value, 0)
            self._do(
                "cufft", "cufftMakePlanMany64", asked, plan.value, len(lengths), lengths, operand, 1, next(steps),
                result, 1, next(steps), kind, transform.batch, ctypes.byref(work_bytes),
            )  # fmt: skip
        except CudaError:
            self._libraries["cufft"].cufftDestroy(plan.value)  # report the first error
            raise
        return plan.value, work_bytes.value

    # --- calling ---

    def _property(self, which: int) -> int:
        """Of libraryPropertyType: 0 is the major version, 1 the minor, 2 the patch."""
        value = c_int()
        self._do("cufft", "cufftGetProperty", "cuFFT was asked for its version", which, ctypes.byref(value))
        return value.value

    def _do(self, library: str, function: str, asked: str, *arguments) -> None:
        status = getattr(self._libraries[library], function)(*arguments)
        if status:
            name = STATUS.get(status, "an unknown status") if library == "cufft" else "a status of cublas"
            found, exhausted = f"{function}: {name} ({status})", status == ALLOC_FAILED[library]
            raise library_error(asked, found, OWN_KERNELS, status, name, out_of_memory=exhausted)
