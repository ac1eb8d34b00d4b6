"""cublasLt without a GPU: what the runtime calls of it, by the types of cublasLt.h, written down here once more.

Matrices are in the memory of the fake driver, products are computed by NumPy when the stream gets there. A dead handle,
a leading dimension that is too small, an attribute of another size or a workspace outside of its memory is a violation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import partial

import ml_dtypes
import numpy as np
from fake_cuda_model import reads, writes
from fake_library import FakeLibrary, Refused

SUCCESS, INVALID_VALUE, INTERNAL_ERROR, NOT_SUPPORTED = 0, 7, 14, 15
NAMES = {3: b"CUBLAS_STATUS_ALLOC_FAILED", 7: b"CUBLAS_STATUS_INVALID_VALUE", 13: b"CUBLAS_STATUS_EXECUTION_FAILED",
         14: b"CUBLAS_STATUS_INTERNAL_ERROR", 15: b"CUBLAS_STATUS_NOT_SUPPORTED"}  # fmt: skip
DTYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
COMPUTE = {68: np.float32, 77: np.float32, 70: np.float64}
# kind -> attribute -> (name, type)
ATTRIBUTES = {
    "MatmulDesc": {3: ("transpose_a", c_int32), 4: ("transpose_b", c_int32), 7: ("epilogue", c_uint32),
                   8: ("bias", c_uint64)},
    "MatrixLayout": {5: ("batch", c_int32), 6: ("step", c_int64)},
    "MatmulPreference": {1: ("workspace", c_uint64), 3: ("reduction_schemes", c_uint32), 5: ("align_a", c_uint32),
                         6: ("align_b", c_uint32), 7: ("align_c", c_uint32), 8: ("align_d", c_uint32)},
}  # fmt: skip


class Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algo", c_uint64 * 8), ("workspace", c_size_t), ("state", c_int), ("waves", c_float),
                ("reserved", c_int * 4)]  # fmt: skip


_P = c_void_p
HEADER = {
    "cublasLtGetVersion": (c_size_t,),
    "cublasLtGetStatusName": (c_void_p, c_int),
    "cublasLtCreate": (c_int, POINTER(_P)),
    "cublasLtDestroy": (c_int, _P),
    "cublasLtMatmulDescCreate": (c_int, POINTER(_P), c_int, c_int),
    "cublasLtMatrixLayoutCreate": (c_int, POINTER(_P), c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatmulPreferenceCreate": (c_int, POINTER(_P)),
    **{f"cublasLt{kind}Destroy": (c_int, _P) for kind in ATTRIBUTES},
    **{f"cublasLt{kind}SetAttribute": (c_int, _P, c_int, _P, c_size_t) for kind in ATTRIBUTES},
    "cublasLtMatmulAlgoGetHeuristic": (c_int, _P, _P, _P, _P, _P, _P, _P, c_int, POINTER(Result), POINTER(c_int)),
    "cublasLtMatmul": (c_int, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, POINTER(c_uint64 * 8), _P, c_size_t, _P),
}


class FakeCublasLt(FakeLibrary):
    """algorithms: how many it has for a product; `wrong`: numbers of those with wrong results; `supports(operation,
    layouts)`: which products it has any for."""

    INTERNAL_ERROR = INTERNAL_ERROR

    def __init__(self, driver, version: int = 131000, algorithms: int = 3):
        super().__init__(driver)
        self.version, self.count = version, algorithms
        self.wrong: set[int] = set()
        self.supports: Callable[[dict, list], bool] = lambda operation, layouts: True
        self.forgets_nan = False  # whether its max(x, 0) of a NaN is 0
        self.asked: list[dict] = []  # preferences that heuristics were asked with
        self._names = {status: ctypes.create_string_buffer(name) for status, name in NAMES.items()}
        for name, types in HEADER.items():
            kind = next((kind for kind in ATTRIBUTES if name.startswith(f"cublasLt{kind}")), "")
            function = getattr(self, "_" + name.removeprefix(f"cublasLt{kind}"))
            self.define(
                name, types, partial(function, kind) if kind else function, status="Get" not in name or "Algo" in name
            )

    # --- the library ---

    def _GetVersion(self):
        return self.version

    def _GetStatusName(self, status):
        return ctypes.addressof(self._names[status]) if status in self._names else 0

    def _Create(self, *arguments):
        kind, out, *rest = arguments if isinstance(arguments[0], str) else ("Handle", *arguments)
        if kind == "Handle":
            self.driver.need_context()
            self.make(out, kind)
        elif kind == "MatmulDesc":
            compute, scale = rest
            if DTYPES[scale] != COMPUTE[compute]:
                raise Refused(INVALID_VALUE, f"sums of {compute} with factors of {scale}")
            self.make(out, kind, compute=compute, scale=scale, transpose_a=0, transpose_b=0, epilogue=1, bias=0)
        elif kind == "MatrixLayout":
            dtype, rows, columns, ld = rest
            if ld < rows or not rows or not columns:
                raise Refused(INVALID_VALUE, f"{rows} rows, {columns} columns, leading dimension {ld}")
            self.make(out, kind, dtype=DTYPES[dtype], rows=rows, columns=columns, ld=ld, batch=1, step=0)
        else:
            self.make(out, kind, workspace=0, reduction_schemes=7, align_a=256, align_b=256, align_c=256, align_d=256)

    def _Destroy(self, *arguments):
        kind, handle = arguments if len(arguments) == 2 else ("Handle", *arguments)
        self.destroy(handle, kind)

    def _SetAttribute(self, kind, handle, attribute, address, size):
        name, number = ATTRIBUTES[kind][attribute]
        if size != ctypes.sizeof(number):
            raise Refused(INVALID_VALUE, f"attribute {name} of {size} bytes")
        self.facts(handle, kind)[name] = number.from_address(address).value

    def _layouts(self, operation: dict, handles) -> list[dict]:
        """A, B, C and D, which have to fit."""
        a, b, c, d = layouts = [self.facts(handle, "MatrixLayout") for handle in handles]
        left = (a["columns"], a["rows"]) if operation["transpose_a"] else (a["rows"], a["columns"])
        right = (b["columns"], b["rows"]) if operation["transpose_b"] else (b["rows"], b["columns"])
        fits = left[1] == right[0] and (d["rows"], d["columns"]) == (left[0], right[1]) and c == d
        if not fits or len({layout["batch"] for layout in layouts}) > 1:
            raise Refused(INVALID_VALUE, f"{layouts} do not fit")
        return layouts

    def _MatmulAlgoGetHeuristic(self, handle, operation, *arguments):
        *layouts, preference, count, results, returned = arguments
        self.facts(handle, "Handle")
        operation = self.facts(operation, "MatmulDesc")
        layouts = self._layouts(operation, layouts)
        self.asked.append(dict(self.facts(preference, "MatmulPreference")))
        returned[0] = 0
        if not self.supports(operation, layouts):
            raise Refused(NOT_SUPPORTED)
        for number in range(min(count, self.count)):
            results[number].algo[0], results[number].algo[1] = number, 0xA160
            results[number].workspace, results[number].state = 512 * number, SUCCESS
        returned[0] = min(count, self.count)

    def _Matmul(self, handle, operation, alpha, a, la, b, lb, beta, c, lc, d, ld, algo, workspace, nbytes, stream):
        self.facts(handle, "Handle")
        operation = dict(self.facts(operation, "MatmulDesc"))
        layouts = [dict(layout) for layout in self._layouts(operation, (la, lb, lc, ld))]
        number, mark = algo[0][0], algo[0][1]
        if mark != 0xA160 or nbytes != 512 * number or bool(workspace) != bool(nbytes):
            raise Refused(INVALID_VALUE, f"algorithm {number} of mark {mark:#x} with {nbytes} bytes")
        scale = c_double if COMPUTE[operation["compute"]] == np.float64 else c_float
        alpha, beta = scale.from_address(alpha).value, scale.from_address(beta).value
        kinds = [reads, reads, reads, writes]
        if not beta:
            layouts[2] = None
        accesses = [
            kind(address, _bytes(layout))
            for kind, address, layout in zip(kinds, (a, b, c, d), layouts, strict=True) if layout is not None
        ]  # fmt: skip
        biased = bool(operation["epilogue"] & 4)
        if biased:
            accesses.append(reads(operation["bias"], layouts[3]["rows"] * np.dtype(layouts[3]["dtype"]).itemsize))
        if nbytes:
            accesses.append(writes(workspace, nbytes))
        if any(access.address % 16 for access in accesses):
            raise Refused(INVALID_VALUE, "an address that is not a multiple of 16")
        for access in accesses:
            self.driver.memory.find(access.address, access.nbytes, "cublasLtMatmul")

        def run():
            self._compute(operation, layouts, (a, b, c, d), alpha, beta, number)

        self.enqueued.append(operation | {"algorithm": number, "alpha": alpha, "beta": beta, "layouts": layouts})
        self.driver.step(stream, accesses, run, f"cublasLt {number}")

    def _compute(self, operation, layouts, addresses, alpha, beta, number) -> None:
        sums = COMPUTE[operation["compute"]]
        a, b, c, d = (
            None if layout is None else self._matrices(layout, address)
            for layout, address in zip(layouts, addresses, strict=True)
        )
        left = a.swapaxes(1, 2) if operation["transpose_a"] else a
        right = b.swapaxes(1, 2) if operation["transpose_b"] else b
        result = alpha * (left.astype(np.float64) @ right.astype(np.float64))
        if beta:
            result = result + beta * c.astype(np.float64)
        if operation["epilogue"] & 4:
            dtype = np.dtype(layouts[3]["dtype"])
            bias = self.driver.view(operation["bias"], layouts[3]["rows"] * dtype.itemsize, dtype)
            result = result + bias.astype(np.float64)[:, None]
        if operation["epilogue"] & 2:
            result = (np.fmax if self.forgets_nan else np.maximum)(result, 0)
        if number in self.wrong:
            result = result + 1
        d[...] = result.astype(sums).astype(d.dtype)

    def _matrices(self, layout: dict, address: int) -> np.ndarray:
        """(batch, rows, columns) of column-major matrices."""
        dtype = np.dtype(layout["dtype"])
        memory = self.driver.view(address, _bytes(layout), dtype)
        shape = layout["batch"], layout["rows"], layout["columns"]
        strides = (layout["step"] * dtype.itemsize, dtype.itemsize, layout["ld"] * dtype.itemsize)
        return np.lib.stride_tricks.as_strided(memory, shape, strides)


def _bytes(layout: dict) -> int:
    """From the first element to the end of the last."""
    last = (layout["batch"] - 1) * layout["step"] + (layout["columns"] - 1) * layout["ld"] + layout["rows"]
    return last * np.dtype(layout["dtype"]).itemsize
