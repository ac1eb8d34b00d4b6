"""cuFFT without a GPU, and cuBLAS's scaling: what the runtime calls of them, by the types of their headers.

Arrays are in the memory of the fake driver, transforms are NumPy's when the stream gets there. A dead plan, a layout
that is not that of its transforms, work without a stream or without its work area is a violation. A transform from
complex to real numbers leaves rubbish where its operand was, as the library may.
"""

from __future__ import annotations

from ctypes import POINTER, c_double, c_float, c_int, c_int64, c_longlong, c_size_t, c_void_p

import numpy as np
from fake_cuda_model import reads, writes
from fake_library import FakeLibrary, Refused

INVALID_PLAN, INVALID_VALUE, INVALID_SIZE = 1, 4, 8
_P, _I, _L = c_void_p, c_int, c_longlong
# cufftType -> (the letters of its function, dtypes of what it reads and writes)
KINDS = {
    0x29: ("C2C", np.complex64, np.complex64), 0x2A: ("R2C", np.float32, np.complex64),
    0x2C: ("C2R", np.complex64, np.float32), 0x69: ("Z2Z", np.complex128, np.complex128),
    0x6A: ("D2Z", np.float64, np.complex128), 0x6C: ("Z2D", np.complex128, np.float64),
}  # fmt: skip


class FakeCuFft(FakeLibrary):
    """Both libraries, each function by its own name. work_bytes: what a plan works in; `wrong`: whether results are;
    `supports(lengths)`: what it has plans for; `reads_imaginary`: whether the imaginary part of a spectrum's constant
    term goes into real results."""

    INVALID_VALUE = INVALID_PLAN
    INTERNAL_ERROR = 5

    def __init__(self, driver, version: tuple[int, int, int] = (12, 5, 0), work_bytes: int = 512):
        super().__init__(driver)
        self.version, self.work_bytes, self.wrong = version, work_bytes, False
        self.supports = lambda lengths: True
        self.reads_imaginary = False
        self.define("cufftGetProperty", (_I, _I, POINTER(_I)), lambda which, out: out.__setitem__(0, version[which]))
        self.define("cufftCreate", (_I, POINTER(_I)), self._create)
        self.define("cufftDestroy", (_I, _I), lambda plan: self.destroy(plan, "plan"))
        self.define("cufftSetAutoAllocation", (_I, _I, _I), self._set_auto_allocation)
        types = (_I, _I, _I, *(POINTER(_L),) * 2, _L, _L, POINTER(_L), _L, _L, _I, _L, POINTER(c_size_t))
        self.define("cufftMakePlanMany64", types, self._make_plan)
        self.define("cufftSetStream", (_I, _I, _P), lambda plan, s: self.facts(plan, "plan").update(stream=s))
        self.define("cufftSetWorkArea", (_I, _I, _P), lambda plan, a: self.facts(plan, "plan").update(work=a))
        for kind, (letters, _, _) in KINDS.items():
            direction = (_I,) if letters in ("C2C", "Z2Z") else ()
            function = lambda *arguments, kind=kind: self._execute(kind, *arguments)  # noqa: E731
            self.define(f"cufftExec{letters}", (_I, _I, _P, _P, *direction), function)
        self.define("cublasCreate_v2", (_I, POINTER(_P)), lambda out: self.make(out, "cublas", stream=None))
        self.define("cublasDestroy_v2", (_I, _P), lambda handle: self.destroy(handle, "cublas"))
        self.define("cublasSetStream_v2", (_I, _P, _P), lambda h, s: self.facts(h, "cublas").update(stream=s))
        for name, number in (("S", c_float), ("D", c_double)):
            function = lambda *arguments, number=number: self._scale(np.dtype(number), *arguments)  # noqa: E731
            types = (_I, _P, c_int64, POINTER(number), _P, c_int64)
            self.define(f"cublas{name}scal_v2_64", types, function)

    # --- plans ---

    def _create(self, out) -> None:
        self.driver.need_context()
        self.make(out, "plan", made=False, allocates=True, stream=None, work=None)

    def _set_auto_allocation(self, plan, automatic) -> None:
        self.facts(plan, "plan")["allocates"] = bool(automatic)

    def _make_plan(self, plan, rank, n, inembed, istride, idist, onembed, ostride, odist, kind, batch, nbytes) -> None:
        facts = self.facts(plan, "plan")
        if facts["allocates"] or facts["made"]:
            raise Refused(INVALID_PLAN, "a plan that takes memory for itself, or is made again")
        lengths = tuple(n[:rank])
        if not self.supports(lengths):
            raise Refused(INVALID_SIZE)
        half = (*lengths[:-1], lengths[-1] // 2 + 1)
        letters, read, written = KINDS[kind]
        given, result = (half if letters[i] in "CZ" and letters[2 - i] in "RD" else lengths for i in (0, 2))
        for dims, embed, stride, dist in ((given, inembed, istride, idist), (result, onembed, ostride, odist)):
            if (tuple(embed[:rank]), stride, dist) != (dims, 1, int(np.prod(dims))):
                raise Refused(INVALID_VALUE, f"{letters} {lengths}: {tuple(embed[:rank])}, {stride}, {dist}")
        facts.update(made=True, kind=kind, lengths=lengths, dims=((batch, *given), (batch, *result)))
        nbytes[0] = self.work_bytes

    # --- work ---

    def _array(self, address: int, dims: tuple[int, ...], dtype) -> np.ndarray:
        return self.driver.view(address, int(np.prod(dims)) * np.dtype(dtype).itemsize, dtype).reshape(dims)

    def _enqueue(self, stream, accesses, run, what: str) -> None:
        if stream is None:
            raise Refused(INVALID_VALUE, f"{what} without a stream")
        for access in accesses:
            self.driver.memory.find(access.address, access.nbytes, what)
        self.driver.step(stream, accesses, run, what)

    def _execute(self, kind: int, plan: int, source: int, target: int, *direction: int) -> None:
        facts = self.facts(plan, "plan")
        if not facts["made"] or facts["kind"] != kind or (self.work_bytes and not facts["work"]):
            raise Refused(INVALID_PLAN, f"executed as {kind:#x}: {facts}")
        letters, read, written = KINDS[kind]
        lengths, (given, result) = facts["lengths"], facts["dims"]
        destroys = letters in ("C2R", "Z2D")
        axes = tuple(range(1, 1 + len(lengths)))

        def run():
            x = self._array(source, given, read)
            if letters in ("R2C", "D2Z"):
                found = np.fft.rfftn(x, axes=axes)
            elif letters in ("C2R", "Z2D"):
                found = np.fft.irfftn(x, s=lengths, axes=axes) * np.prod(lengths)
                if self.reads_imaginary:
                    found = found + x.imag.ravel()[0]
            elif direction == (-1,):
                found = np.fft.fftn(x, axes=axes)
            else:
                found = np.fft.ifftn(x, axes=axes) * np.prod(lengths)
            if destroys:
                x[...] = np.nan
            self._array(target, result, written)[...] = found + self.wrong

        sizes = (int(np.prod(dims)) * np.dtype(dtype).itemsize for dims, dtype in ((given, read), (result, written)))
        accesses = [(writes if destroys else reads)(source, next(sizes)), writes(target, next(sizes))]
        if self.work_bytes:
            accesses.append(writes(facts["work"], self.work_bytes))
        if direction not in ((), (-1,), (1,)):
            raise Refused(INVALID_VALUE, f"direction {direction}")
        self.enqueued.append({"letters": letters, "lengths": lengths, "batch": given[0], "direction": direction})
        self._enqueue(facts["stream"], accesses, run, f"cufft {letters}")

    def _scale(self, dtype: np.dtype, handle, count, alpha, x, step) -> None:
        factor = dtype.type(alpha[0])
        if step != 1:
            raise Refused(INVALID_VALUE, f"a stride of {step}")

        def run():
            self._array(x, (count,), dtype)[...] *= factor

        stream = self.facts(handle, "cublas")["stream"]
        self._enqueue(stream, [writes(x, count * dtype.itemsize)], run, "cublas scal")
