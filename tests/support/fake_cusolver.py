"""cuSOLVER and cuBLAS without a GPU: what the runtime calls of them, by the types of their headers.

Matrices are column-major in the memory of the fake driver; LAPACK factorizes them when the stream gets there. A stream
that records is a violation: routines may wait for it. So is memory to work in that is smaller than what was asked for.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_byte, c_int, c_void_p

import numpy as np
import scipy.linalg.blas
import scipy.linalg.lapack
from fake_cuda_model import Stream, reads, writes
from fake_library import FakeLibrary, Refused

INVALID_VALUE = 3
DTYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
_P, _I, _OUT = c_void_p, c_int, POINTER(c_int)
# Types of the parameters behind the handle.
HEADER = {
    "potrf_bufferSize": (_I, _I, _P, _I, _OUT),
    "potrf": (_I, _I, _P, _I, _P, _I, _P),
    "getrf_bufferSize": (_I, _I, _P, _I, _OUT),
    "getrf": (_I, _I, _P, _I, _P, _P, _P),
    "getrs": (_I, _I, _I, _P, _I, _P, _P, _I, _P),
    "laswp": (_I, _P, _I, _I, _I, _P, _I),
    "geqrf_bufferSize": (_I, _I, _P, _I, _OUT),
    "geqrf": (_I, _I, _P, _I, _P, _P, _I, _P),
    "orgqr_bufferSize": (_I, _I, _I, _P, _I, _P, _OUT),
    "orgqr": (_I, _I, _I, _P, _I, _P, _P, _I, _P),
    "syevd_bufferSize": (_I, _I, _I, _P, _I, _P, _OUT),
    "syevd": (_I, _I, _I, _P, _I, _P, _P, _I, _P),
    "gesvd_bufferSize": (_I, _I, _OUT),
    "gesvd": (c_byte, c_byte, _I, _I, _P, _I, _P, _P, _I, _P, _I, _P, _I, _P, _P),
    "trsm": (_I, _I, _I, _I, _I, _I, _P, _P, _I, _P, _I),
}
COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}


class FakeSolver(FakeLibrary):
    """Both libraries, each function by its own name."""

    INVALID_VALUE = INVALID_VALUE

    def __init__(self, driver):
        super().__init__(driver)
        self.stream: dict[str, int] = {}
        self.sizes: dict[str, int] = {}  # elements that a routine was told it needs
        self.info = 0  # added to every info
        for library, make, end, stream in (
            ("solver", "cusolverDnCreate", "cusolverDnDestroy", "cusolverDnSetStream"),
            ("blas", "cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2"),
        ):
            self.define(make, (_I, POINTER(_P)), lambda out, library=library: self._create(out, library))
            self.define(end, (_I, _P), lambda handle, library=library: self.destroy(handle, library))
            self.define(stream, (_I, _P, _P), lambda h, s, library=library: self._set_stream(h, s, library))
        self.define("cusolverGetProperty", (_I, _I, _OUT), lambda which, out: out.__setitem__(0, (12, 4, 1)[which]))
        for routine, types in HEADER.items():
            base = routine.removesuffix("_bufferSize")
            for prefix in DTYPES:
                name = COMPLEX.get(base, base) if prefix in "CZ" else base
                name = f"{prefix}{name}{routine.removeprefix(base)}"
                name = f"cublas{name}_v2" if base == "trsm" else f"cusolverDn{name}"
                self.define(name, (_I, _P, *types), self._routine(routine, prefix))

    def _create(self, out, library: str) -> None:
        self.driver.need_context()
        self.make(out, library)

    def _set_stream(self, handle, stream, library: str) -> None:
        self.facts(handle, library)
        self.stream[library] = stream

    def _routine(self, routine: str, prefix: str):
        dtype = np.dtype(DTYPES[prefix])
        library = "blas" if routine == "trsm" else "solver"

        def function(handle, *arguments):
            self.facts(handle, library)
            getattr(self, f"_{routine}")(dtype, *arguments)

        return function

    # --- memory ---

    def _matrix(self, address: int, rows: int, columns: int, ld: int, dtype) -> np.ndarray:
        if ld < rows:
            raise Refused(INVALID_VALUE, f"{rows} rows with a leading dimension of {ld}")
        memory = self.driver.view(address, ((columns - 1) * ld + rows) * dtype.itemsize, dtype)
        return np.lib.stride_tricks.as_strided(memory, (rows, columns), (dtype.itemsize, ld * dtype.itemsize))

    def _vector(self, address: int, count: int, dtype) -> np.ndarray:
        return self.driver.view(address, count * np.dtype(dtype).itemsize, dtype)

    def _enqueue(self, what: str, read: list, written: list, run) -> None:
        """read, written: (address, bytes)."""
        stream = self.stream["blas" if what == "trsm" else "solver"]
        if self.driver.thing(stream, Stream).recording is not None:
            raise Refused(INVALID_VALUE, "the stream records")
        accesses = [reads(*item) for item in read] + [writes(*item) for item in written if item[0]]
        for access in accesses:
            self.driver.memory.find(access.address, access.nbytes, what)
        self.driver.step(stream, accesses, run, what)

    def _needs(self, routine: str, size: int, out) -> None:
        self.sizes[routine] = size
        out[0] = size

    def _work(self, routine: str, address: int, size: int, dtype) -> tuple[int, int]:
        if size != self.sizes[routine]:
            raise Refused(INVALID_VALUE, f"{routine} was given {size} elements and wants {self.sizes[routine]}")
        return address, size * dtype.itemsize

    @staticmethod
    def _lapack(name: str, dtype):
        (function,) = scipy.linalg.lapack.get_lapack_funcs((name,), dtype=dtype)
        return function

    def _say(self, address: int, info: int) -> None:
        self._vector(address, 1, np.int32)[0] = info + self.info

    # --- routines ---

    def _potrf_bufferSize(self, dtype, fill, n, a, lda, out):
        self._needs("potrf", 3 * n + 1, out)

    def _potrf(self, dtype, fill, n, a, lda, work, size, info):
        def run():
            m = self._matrix(a, n, n, lda, dtype)
            m[...], status = self._lapack("potrf", dtype)(m.copy(), lower=fill == 0, clean=0)
            self._say(info, status)

        nbytes = n * lda * dtype.itemsize
        self._enqueue("potrf", [], [(a, nbytes), self._work("potrf", work, size, dtype), (info, 4)], run)

    def _getrf_bufferSize(self, dtype, m, n, a, lda, out):
        self._needs("getrf", m + n, out)

    def _getrf(self, dtype, m, n, a, lda, work, pivots, info):
        def run():
            matrix = self._matrix(a, m, n, lda, dtype)
            matrix[...], found, status = self._lapack("getrf", dtype)(matrix.copy())
            self._vector(pivots, min(m, n), np.int32)[...] = found + 1
            self._say(info, status)

        written = [(a, n * lda * dtype.itemsize), (work, self.sizes["getrf"] * dtype.itemsize)]
        self._enqueue("getrf", [], [*written, (pivots, 4 * min(m, n)), (info, 4)], run)

    def _getrs(self, dtype, how, n, k, a, lda, pivots, b, ldb, info):
        def run():
            right = self._matrix(b, n, k, ldb, dtype)
            exchanged = self._vector(pivots, n, np.int32) - 1
            factors = self._matrix(a, n, n, lda, dtype)
            right[...], status = self._lapack("getrs", dtype)(factors, exchanged, right.copy(), trans=how)
            self._say(info, status)

        read = [(a, n * lda * dtype.itemsize), (pivots, 4 * n)]
        self._enqueue("getrs", read, [(b, k * ldb * dtype.itemsize), (info, 4)], run)

    def _laswp(self, dtype, n, a, lda, first, last, pivots, step):
        def run():
            matrix = self._matrix(a, lda, n, lda, dtype)
            for k, pivot in enumerate(self._vector(pivots, last, np.int32)[first - 1 :: step], first - 1):
                matrix[[k, pivot - 1]] = matrix[[pivot - 1, k]]

        self._enqueue("laswp", [(pivots, 4 * last)], [(a, n * lda * dtype.itemsize)], run)

    def _geqrf_bufferSize(self, dtype, m, n, a, lda, out):
        self._needs("geqrf", n * 2, out)

    def _geqrf(self, dtype, m, n, a, lda, tau, work, size, info):
        def run():
            matrix = self._matrix(a, m, n, lda, dtype)
            matrix[...], found, _, status = self._lapack("geqrf", dtype)(matrix.copy())
            self._vector(tau, min(m, n), dtype)[...] = found
            self._say(info, status)

        written = [(a, n * lda * dtype.itemsize), (tau, min(m, n) * dtype.itemsize), (info, 4)]
        self._enqueue("geqrf", [], [*written, self._work("geqrf", work, size, dtype)], run)

    def _orgqr_bufferSize(self, dtype, m, n, k, a, lda, tau, out):
        self._needs("orgqr", n + 5, out)

    def _orgqr(self, dtype, m, n, k, a, lda, tau, work, size, info):
        if not m >= n >= k:
            raise Refused(INVALID_VALUE, f"{k} reflectors, {n} columns, {m} rows")

        def run():
            matrix = self._matrix(a, m, n, lda, dtype)
            name = "ungqr" if dtype.kind == "c" else "orgqr"
            factors = self._vector(tau, k, dtype).copy()
            matrix[...], _, status = self._lapack(name, dtype)(np.asfortranarray(matrix), factors)
            self._say(info, status)

        written = [(a, n * lda * dtype.itemsize), self._work("orgqr", work, size, dtype), (info, 4)]
        self._enqueue("orgqr", [(tau, k * dtype.itemsize)], written, run)

    def _syevd_bufferSize(self, dtype, vectors, fill, n, a, lda, w, out):
        self._needs("syevd", 2 * n * n + 7, out)

    def _syevd(self, dtype, vectors, fill, n, a, lda, w, work, size, info):
        real = np.dtype(dtype.char.lower())

        def run():
            matrix = self._matrix(a, n, n, lda, dtype)
            values, found = np.linalg.eigh(matrix, "UL"[fill == 0])
            matrix[...] = found
            self._vector(w, n, real)[...] = values
            self._say(info, 0)

        written = [(a, n * lda * dtype.itemsize), (w, n * real.itemsize), (info, 4)]
        self._enqueue("syevd", [], [*written, self._work("syevd", work, size, dtype)], run)

    def _gesvd_bufferSize(self, dtype, m, n, out):
        if m < n:
            raise Refused(INVALID_VALUE, f"{m} rows and {n} columns")
        self._needs("gesvd", 4 * m + n, out)

    def _gesvd(self, dtype, job, job_v, m, n, a, lda, s, u, ldu, vt, ldvt, work, size, unconverged, info):
        real = np.dtype(dtype.char.lower())
        job = chr(job)
        columns = m if job == "A" else n

        def run():
            matrix = self._matrix(a, m, n, lda, dtype)
            left, values, right = np.linalg.svd(matrix, full_matrices=job == "A")
            matrix[...] = -77  # it is destroyed
            self._vector(s, n, real)[...] = values
            if job != "N":
                self._matrix(u, m, columns, ldu, dtype)[...] = left
                self._matrix(vt, n, n, ldvt, dtype)[...] = right
            self._say(info, 0)

        written = [(a, n * lda * dtype.itemsize), (s, n * real.itemsize), (unconverged, n * real.itemsize), (info, 4)]
        if job != "N":
            written += [(u, columns * ldu * dtype.itemsize), (vt, n * ldvt * dtype.itemsize)]
        self._enqueue("gesvd", [], [*written, self._work("gesvd", work, size, dtype)], run)

    def _trsm(self, dtype, side, fill, how, diagonal, m, n, alpha, a, lda, b, ldb):
        scale = np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(alpha), dtype)[0]
        order = m if side == 0 else n

        def run():
            right = self._matrix(b, m, n, ldb, dtype)
            (function,) = scipy.linalg.blas.get_blas_funcs(("trsm",), dtype=dtype)
            triangle = self._matrix(a, order, order, lda, dtype)
            right[...] = function(
                scale, triangle, right.copy(), side=side, lower=int(fill == 0), trans_a=how, diag=diagonal
            )

        self._enqueue("trsm", [(a, order * lda * dtype.itemsize)], [(b, n * ldb * dtype.itemsize)], run)
