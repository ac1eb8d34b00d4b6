"""cuSOLVER and cuBLAS by ctypes: routines of linear algebra, as work on a stream.

    CuSolver(solver, blas, api)    from load_library("cusolver") and ("cublas"), or objects with the same functions
    .call(routine)                 -> LibraryCall
    .close()                       destroys its handles; others are made on the next use

Functions and constants are those of cusolverDn.h 12.4 and cublas_api.h 13.10. Some routines synchronize with the device
midway (eigenvalues, singular values), so none is captured into a graph. Both libraries' results are bitwise
reproducible unless a program opts out (cusolverDnSetDeterministicMode, cublasSetAtomicsMode).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import c_int, c_void_p

from hloom.ir.records import record
from hloom.ir.types import HLO_NAME, Shape
from hloom.runtime.cuda.api import Api
from hloom.runtime.cuda.errors import library_error
from hloom.runtime.cuda.programs.choice import LibraryCall

_PREFIXES = {"f32": "S", "f64": "D", "c64": "C", "c128": "Z"}
_COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd"}
_KINDS = {"h": c_void_p, "p": c_void_p, "i": c_int, "c": ctypes.c_byte}
# Parameters of the functions of a dtype: h handle, p pointer, i int, c signed char. Of cublas: trsm.
_PARAMETERS = {
    "potrf_bufferSize": "hiipip", "potrf": "hiipipip",
    "getrf_bufferSize": "hiipip", "getrf": "hiipippp", "getrs": "hiiipippip", "laswp": "hipiiipi",
    "geqrf_bufferSize": "hiipip", "geqrf": "hiipippip",
    "orgqr_bufferSize": "hiiipipp", "orgqr": "hiiipippip",
    "syevd_bufferSize": "hiiipipp", "syevd": "hiiipippip",
    "gesvd_bufferSize": "hiip", "gesvd": "hcciipippipipipp",
    "trsm": "hiiiiiippipi",
}  # fmt: skip
_FILL = {"L": 0, "U": 1}  # cublasFillMode_t
_SIDE = {"L": 0, "R": 1}
_OPERATION = {"N": 0, "T": 1, "C": 2}
_DIAGONAL = {"N": 0, "U": 1}
_VECTORS = 1  # cusolverEigMode_t
_ALLOC_FAILED = {"cusolver": 2, "cublas": 3}
_OVERWRITTEN = {"trsm": 1, "getrs": 2}  # the index of the operand that a routine overwrites, if not 0
_ALIGNMENT = 256


@record(frozen=True)
class RoutineCall:
    """A routine of `compiler/targets/cuda/libraries/linear_algebra.py` on arrays of these shapes.

    Addresses: of the operands, then of the results.
    """

    name: str
    options: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]

    @property
    def batch(self) -> int:
        first = self.operands[0].dims
        return math.prod(first[: -1 if self.name == "laswp" else -2])

    def __str__(self) -> str:
        return f"{self.name} {self.operands[0]!r}"


@record(frozen=True)
class _Way:
    """How a routine is done.

    one(scratch, *addresses of one problem) calls the library, which needs `scratch_bytes`. In its first result it
    finds a copy of the operand that it overwrites; or, where it `overwrites` that itself, the operand is a copy.
    """

    one: Callable[..., None]
    scratch_bytes: int = 0
    overwrites: bool = False


class CuSolver:
    """The libraries on the device whose context is current whenever its methods are called."""

    name = "cuSOLVER"

    def __init__(self, solver, blas, api: Api):
        self._libraries, self._api = {"cusolver": solver, "cublas": blas}, api
        self._handles: dict[str, int | None] = {}
        major, minor, patch = (self._property(which) for which in range(3))
        self.version = f"{major}.{minor}.{patch}"

    def open(self) -> None:
        """Makes the handles, unless they are there; that may allocate. Raises CudaError."""
        for library, function in (("cusolver", "cusolverDnCreate"), ("cublas", "cublasCreate_v2")):
            if library not in self._handles:
                handle = c_void_p()
                self._do(library, function, "p", f"{library} was started", ctypes.byref(handle))
                self._handles[library] = handle.value

    def close(self) -> None:
        """Raises CudaError."""
        for library, function in (("cusolver", "cusolverDnDestroy"), ("cublas", "cublasDestroy_v2")):
            if library in self._handles:
                self._do(library, function, "h", f"{library} was ended", self._handles[library])
                del self._handles[library]

    def call(self, routine: RoutineCall) -> LibraryCall:
        """A routine as work of a program. Raises CudaError, and so does the work when it is enqueued."""
        self.open()
        way: _Way = getattr(self, f"_{routine.name}")(routine)
        steps = [shape.bytes // max(routine.batch, 1) for shape in (*routine.operands, *routine.results)]
        given = len(routine.operands)
        source = _OVERWRITTEN.get(routine.name, 0)
        copied = routine.operands[source].bytes

        def enqueue(stream: int, *addresses: int) -> None:
            *places, scratch = addresses
            asked = f"the stream of {self.name} was chosen"
            self._do("cusolver", "cusolverDnSetStream", "hp", asked, self._handles["cusolver"], stream)
            self._do("cublas", "cublasSetStream_v2", "hp", asked, self._handles["cublas"], stream)
            target = scratch if way.overwrites else places[given]
            asked = f"the operand of {routine} was copied"
            self._api.copy(target, places[source], copied, self._api.stream_of(stream), asked)
            if way.overwrites:
                places[source], scratch = scratch, scratch + _rounded(copied)
            for k in range(routine.batch):
                way.one(scratch, *(place + k * step for place, step in zip(places, steps, strict=True)))

        scratch_bytes = way.scratch_bytes + (_rounded(copied) if way.overwrites else 0)
        return LibraryCall(self.name, enqueue, scratch_bytes, self.open, recorded=False)

    # --- routines: (scratch, operands, results) of one problem ---

    def _potrf(self, routine: RoutineCall) -> _Way:
        n, fill = routine.operands[0].dims[-1], _FILL[routine.options]
        size, nbytes = self._work(routine, fill, n, None, n)
        return _Way(lambda s, a, f, info: self._run(routine, fill, n, f, n, s, size, info), nbytes)

    def _trsm(self, routine: RoutineCall) -> _Way:
        side, triangle, how, diagonal = tuple(routine.options)
        n, m = routine.results[0].dims[-2:]
        lda = routine.operands[0].dims[-1]
        words = _SIDE[side], _FILL[triangle], _OPERATION[how], _DIAGONAL[diagonal]
        one = (ctypes.c_double if routine.results[0].dtype.name in ("float64", "complex128") else ctypes.c_float) * 2
        alpha = one(1.0, 0.0)
        return _Way(
            lambda s, a, b, x: self._run(routine, *words, m, n, ctypes.addressof(alpha), a, lda, x, m, library="cublas")
        )

    def _getrf(self, routine: RoutineCall) -> _Way:
        n, m = routine.operands[0].dims[-2:]
        _, nbytes = self._work(routine, m, n, None, m)
        return _Way(lambda s, x, f, pivots, info: self._run(routine, m, n, f, m, s, pivots, info), nbytes)

    def _getrs(self, routine: RoutineCall) -> _Way:
        k, n = routine.results[0].dims[-2:]
        how = _OPERATION[routine.options]
        return _Way(lambda s, lu, pivots, b, x, info: self._run(routine, how, n, k, lu, n, pivots, x, n, info))

    def _laswp(self, routine: RoutineCall) -> _Way:
        m, k = routine.operands[0].dims[-1], routine.operands[1].dims[-1]
        return _Way(lambda s, v, pivots, x: self._run(routine, 1, x, m, 1, k, pivots, 1))

    def _geqrf(self, routine: RoutineCall) -> _Way:
        n, m = routine.operands[0].dims[-2:]
        size, nbytes = self._work(routine, m, n, None, m)
        return _Way(lambda s, x, f, tau, info: self._run(routine, m, n, f, m, tau, s, size, info), nbytes)

    def _orgqr(self, routine: RoutineCall) -> _Way:
        n, m = routine.operands[0].dims[-2:]
        k = routine.operands[1].dims[-1]
        size, nbytes = self._work(routine, m, n, k, None, m, None)
        return _Way(lambda s, x, tau, q, info: self._run(routine, m, n, k, q, m, tau, s, size, info), nbytes)

    def _syevd(self, routine: RoutineCall) -> _Way:
        n, fill = routine.operands[0].dims[-1], _FILL[routine.options]
        size, nbytes = self._work(routine, _VECTORS, fill, n, None, n, None)
        return _Way(
            lambda s, a, v, w, info: self._run(routine, _VECTORS, fill, n, v, n, w, s, size, info), nbytes
        )  # fmt: skip

    def _gesvd(self, routine: RoutineCall) -> _Way:
        n, m = routine.operands[0].dims[-2:]
        job = ord(routine.options)
        size, nbytes = self._work(routine, m, n)
        unconverged = _rounded(nbytes)

        def one(s, x, *results):
            u, values, vh, info = results if routine.options != "N" else (None, results[0], None, results[1])
            self._run(routine, job, job, m, n, x, m, values, u, m, vh, n, s, size, s + unconverged, info)

        return _Way(one, unconverged + 8 * n, overwrites=True)

    # --- calling ---

    def _function(self, routine: RoutineCall, library: str) -> str:
        shape = routine.operands[0]
        name = routine.name
        if HLO_NAME[shape.dtype].startswith("c"):
            name = _COMPLEX_NAMES.get(name, name)
        prefix = _PREFIXES[HLO_NAME[shape.dtype]]
        return f"cusolverDn{prefix}{name}" if library == "cusolver" else f"cublas{prefix}{name}_v2"

    def _work(self, routine: RoutineCall, *arguments) -> tuple[int, int]:
        """(elements, bytes) of the memory that a routine works in."""
        size = c_int()
        asked = f"cuSOLVER was asked what memory {routine} needs"
        function, parameters = f"{self._function(routine, 'cusolver')}_bufferSize", f"{routine.name}_bufferSize"
        handle = self._handles["cusolver"]
        self._do("cusolver", function, _PARAMETERS[parameters], asked, handle, *arguments, ctypes.byref(size))
        return size.value, size.value * routine.operands[0].dtype.itemsize

    def _run(self, routine: RoutineCall, *arguments, library: str = "cusolver") -> None:
        function, asked = self._function(routine, library), f"{library} was asked to compute {routine}"
        self._do(library, function, _PARAMETERS[routine.name], asked, self._handles[library], *arguments)

    def _property(self, which: int) -> int:
        """Of libraryPropertyType: 0 is the major version, 1 the minor, 2 the patch."""
        value = c_int()
        self._do(
            "cusolver", "cusolverGetProperty", "ip", "cuSOLVER was asked for its version", which, ctypes.byref(value)
        )
        return value.value

    def _do(self, library: str, name: str, parameters: str, asked: str, *arguments) -> None:
        function = getattr(self._libraries[library], name)
        function.restype, function.argtypes = c_int, [_KINDS[kind] for kind in parameters]
        status = function(*arguments)
        if status:
            found, repair = f"{name} returned status {status}", "compute this part on the CPU: with hl.device('cpu:0')"
            exhausted = status == _ALLOC_FAILED[library]
            raise library_error(asked, found, repair, status, f"status {status} of {library}", out_of_memory=exhausted)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
