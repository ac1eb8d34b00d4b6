"""Fourier transforms: Stockham's passes, in shared memory for rows that have room there, else a kernel for each pass.

A transform of N elements is a pass for each factor r of N. A butterfly of a pass reads r elements N / r apart, and
writes them side by side in groups, so that after the last pass they are in order. Factors up to 7 are a thread's, with
their roots of unity as numbers in the text; for a larger prime each element of a butterfly is a thread's, which makes a
prime length N cost N * N. Real transforms are complex ones of which half is stored, or is read twice.

Source: the self-sorting transform of T. G. Stockham (1966) as written down by C. Van Loan, Computational Frameworks for
the Fast Fourier Transform, 1992, section 1.7.
"""

from __future__ import annotations

import cmath
import functools
import math
from collections.abc import Callable

import numpy as np

from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.targets.base import KernelGroup
from hloom.compiler.targets.cuda.launches import CudaLaunch, cuda_source, launch_of_source
from hloom.compiler.targets.cuda.libraries.fft import library_transform
from hloom.ir.module import Instruction
from hloom.ir.records import replace
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, real_dtype

SHARED = 48 * 1024  # bytes of static shared memory, for two copies of a row
WRITTEN_OUT = 7  # factors up to this are a thread's
LONGEST = 1 << 24


def has_fft_kernel(fft: Instruction) -> bool:
    return all(1 <= n <= LONGEST for n in fft["fft_length"])


def accepts_transform(group: KernelGroup, instruction: Instruction, users: list[Instruction], output: bool):
    """`KernelKind.accepts`: only a conversion of real numbers, which are converted as they are read."""
    if not output and group.head is not None and users == [group.head] and instruction.opcode == "convert":
        complex_to_complex = group.head["fft_type"] in ("FFT", "IFFT")
        if complex_to_complex and instruction.operands[0].dtype == real_dtype(instruction.dtype):
            return True, "numbers are converted as the transform reads them"
    return False, "a Fourier transform reads its operand from memory and stores its result there"


def factors_of(n: int) -> list[int]:
    """Fours as long as there are, then primes."""
    result = []
    while n % 4 == 0:
        result.append(4)
        n //= 4
    p = 2
    while p * p <= n:
        while n % p == 0:
            result.append(p)
            n //= p
        p += 1
    return [*result, n] if n > 1 else result


@functools.cache
def roots_of(n: int, inverse: bool, dtype: str) -> np.ndarray:
    """exp(-2 pi i k / n) for k below n, conjugated for an inverse transform."""
    angles = 2 * np.pi * np.arange(n) / n
    roots = np.cos(angles) + (1j if inverse else -1j) * np.sin(angles)
    return np.ascontiguousarray(roots.astype(dtype))


def fft_launches(request: KernelRequest, processors: int) -> list[CudaLaunch]:
    """The launches of a fused computation with one fft; none where there is nothing to transform."""
    (fft,) = [i for i in request.computation.instructions if i.opcode == "fft"]
    if not fft.shape.size or not fft.operands[0].shape.size:
        return []
    launches = _Fft(request, fft, processors).launches()
    choice = library_transform(request, fft)
    return [replace(launch, choice=choice) for launch in launches]


class _Fft:
    def __init__(self, request: KernelRequest, fft: Instruction, processors: int):
        self.request, self.fft, self.processors = request, fft, processors
        kind, lengths = fft["fft_type"], tuple(fft["fft_length"])
        self.inverse = kind in ("IFFT", "IRFFT")
        self.dtype = fft.dtype if fft.dtype in COMPLEX else DTYPES["c128" if HLO_NAME[fft.dtype] == "f64" else "c64"]
        self.kind, self.real = HLO_NAME[self.dtype], "f64" if self.dtype.itemsize == 16 else "f32"
        rank = len(fft.operands[0].dims)
        axes = list(range(rank - len(lengths), rank))
        steps = [(axis, n, "complex") for axis, n in zip(axes, lengths, strict=True)]
        if kind == "RFFT":
            steps[-1] = (axes[-1], lengths[-1], "from real")
        if kind == "IRFFT":
            steps[-1] = (axes[-1], lengths[-1], "to real")
        # Real numbers first become complex along the last dimension, and complex ones real there at the end.
        self.steps = steps if kind == "IRFFT" else steps[::-1]

    def launches(self) -> list[CudaLaunch]:
        operand = self.fft.operands[0]
        while operand not in self.request.names:  # numbers are converted as they are read
            (operand,) = operand.operands
        source, dims = self.request.names[operand], list(operand.dims)
        real = operand.dtype not in COMPLEX
        result: list[CudaLaunch] = []
        for number, (axis, n, how) in enumerate(self.steps):
            after = list(dims)
            after[axis] = n // 2 + 1 if how == "from real" else n
            last = number == len(self.steps) - 1
            target = self.request.output_name(0) if last else f"step{number}"
            into = HLO_NAME[self.fft.dtype] if last else self.kind
            made = _Step(self, source, HLO_NAME[operand.dtype] if number == 0 else self.kind, dims, axis, n, how, real)
            result += made.launches(target, into, after, number)
            source, dims, real = target, after, False
        return result


class _Step:
    """A transform along one dimension of an array."""

    def __init__(self, whole: _Fft, source: str, dtype: str, dims, axis: int, n: int, how: str, real: bool):
        self.whole, self.source, self.source_dtype = whole, source, dtype
        self.n, self.how, self.real = n, how, real
        self.count_in = dims[axis]
        self.below = math.prod(dims[axis + 1 :])
        self.rows = math.prod(dims) // self.count_in
        self.roots = roots_of(n, whole.inverse, whole.dtype.name)

    def launches(self, target: str, dtype: str, after, number: int) -> list[CudaLaunch]:
        self.target, self.target_dtype = target, dtype
        self.count_out = math.prod(after) // self.rows
        self.integers = {"n": self.n, "below": self.below, "count_in": self.count_in, "count_out": self.count_out}
        self.sizes = {target: math.prod(after) * _bytes(dtype)} if target.startswith("step") else {}
        if self.source.startswith("step"):
            self.sizes[self.source] = self.rows * self.count_in * _bytes(self.source_dtype)
        if 2 * self.n * self.whole.dtype.itemsize <= SHARED:
            return [self._in_shared_memory()]
        return self._by_passes(number)

    # --- reading and writing ---

    def _bases(self) -> list[str]:
        if self.below == 1:
            return ["first_in = row * count_in", "first_out = row * count_out"]
        return [
            "across = row // below",
            "along = row - across * below",
            "first_in = across * count_in * below + along",
            "first_out = across * count_out * below + along",
        ]

    def _read(self, name: str, i: str) -> list[str]:
        """name = element i of the row, a complex number."""
        step = "" if self.below == 1 else " * below"
        part = self.whole.real
        if self.how == "to real":
            # The other half of the spectrum is the conjugate of the first.
            return [
                f"place = min({i}, n - ({i}))",
                f"{name} = {self.source}[first_in + place{step}]",
                f"if place != {i}:",
                f"    {name} = complex_{part}({name}.real, -{name}.imag)",
            ]
        at = f"first_in + ({i}){step}"
        if self.real:
            return [f"{name} = complex_{part}({self.source}[{at}], {part}(0.0))"]
        return [f"{name} = {self.source}[{at}]"]

    def _write(self, value: str, i: str) -> list[str]:
        """The element i of the result; only the first half of what is from real numbers."""
        part, step = self.whole.real, "" if self.below == 1 else " * below"
        lines, scale = [f"result = {value}"], f"{part}({float(1 / self.n)!r})" if self.whole.inverse else ""
        if self.how == "to real":
            result = f"result.real * {scale}"
        elif self.whole.inverse:
            result = f"complex_{part}(result.real * {scale}, result.imag * {scale})"
        else:
            result = "result"
        stored = f"{self.target}[first_out + ({i}){step}] = {result}"
        if self.how == "from real":
            return [*lines, f"if {i} < count_out:", f"    {stored}"]
        return [*lines, stored]

    # --- passes ---

    def _passes(self) -> list[tuple[int, int]]:
        """(factor, elements that stay together) of each pass."""
        together, result = 1, []
        for factor in factors_of(self.n):
            result.append((factor, together))
            together *= factor
        return result

    def _pass(self, factor: int, together: int, read: Callable, write: Callable) -> list[str]:
        """The statements of item `b` of a pass: a butterfly, or an element of one. read(name, index), write(value,
        index) -> statements."""
        n, kind = self.n, self.whole.kind
        apart = n // factor
        last = factor * together == n
        part = "b" if factor <= WRITTEN_OUT else "c"
        lines = [] if factor <= WRITTEN_OUT else [f"u = b // {apart}", f"c = b - u * {apart}"]
        lines += [f"p = {part} // {together}", f"q = {part} - p * {together}"] if together > 1 else [f"p = {part}"]
        place = f"q + {together} * ({factor} * p + {{}})" if together > 1 else f"{factor} * p + {{}}"
        if factor > WRITTEN_OUT:
            inside = [
                *read("a", f"c + t * {apart}"),
                f"turn = roots[(t * u) % {factor} * {apart}]",
                f"total = total + mul_{kind}(a, turn)",
            ]
            zero = f"{self.whole.real}(0.0)"
            lines += [
                f"total = complex_{self.whole.real}({zero}, {zero})",
                f"for t in range({factor}):",
                *("    " + line for line in inside),
            ]
            if not last:
                lines.append(f"total = mul_{kind}(total, roots[p * u * {together}])")
            return lines + write("total", place.format("u"))
        for t in range(factor):
            lines += read(f"a{t}", f"{part} + {t * apart}" if t else part)
        values, more = self._butterfly(factor)
        lines += more
        for u, value in enumerate(values):
            if u and not last:
                lines.append(f"y{u} = mul_{kind}({value}, roots[p * {u * together}])")
                value = f"y{u}"
            lines += write(value, place.format(u))
        return lines

    def _butterfly(self, factor: int) -> tuple[list[str], list[str]]:
        """(the names of the sums of a0, a1, ... with the roots of order `factor`, statements)."""
        part, kind = self.whole.real, self.whole.kind
        if factor == 2:
            return ["y0", "y1"], ["y0 = a0 + a1", "y1 = a0 - a1"]
        if factor == 4:
            turned = "complex_{0}(-t3.imag, t3.real)" if self.whole.inverse else "complex_{0}(t3.imag, -t3.real)"
            return ["y0", "y1", "y2", "y3"], [
                "t0 = a0 + a2", "t1 = a0 - a2", "t2 = a1 + a3", "t3 = a1 - a3", f"t3 = {turned.format(part)}",
                "y0 = t0 + t2", "y1 = t1 + t3", "y2 = t0 - t2", "y3 = t1 - t3",
            ]  # fmt: skip
        lines = [f"y0 = {' + '.join(f'a{t}' for t in range(factor))}"]
        sign = 1 if self.whole.inverse else -1
        for u in range(1, factor):
            terms = ["a0"]
            for t in range(1, factor):
                root = cmath.exp(sign * 2j * cmath.pi * (t * u % factor) / factor)
                terms.append(f"mul_{kind}(a{t}, complex_{part}({part}({root.real!r}), {part}({root.imag!r})))")
            lines.append(f"y{u} = {' + '.join(terms)}")
        return [f"y{u}" for u in range(factor)], lines

    # --- kernels ---

    def _finish(self, title: str, pointers, lines, items, work, sizes, **how) -> CudaLaunch:
        name = self.whole.request.title(title)
        source = cuda_source(name, [*pointers, ("roots", self.whole.kind)], self.integers, lines, items=items, **how)
        values = {**self.integers, "items": items}
        kept = {k: v for k, v in sizes.items() if k in source.parameters}
        launch = launch_of_source(source, values, items * work, kept, processors=self.whole.processors)
        launch.tables = {"roots": self.roots} if "roots" in source.parameters else {}
        return launch

    def _in_shared_memory(self) -> CudaLaunch:
        n, kind = self.n, self.whole.kind
        threads = min(max(-(-n // 4 // 32) * 32, 32), 256)
        lines = ["row = item", *self._bases(), f"for i in range(lane, n, {threads}):"]
        lines += ["    " + line for line in [*self._read("a", "i"), "row0[i] = a"]]
        lines.append("cuda.syncthreads()")
        here, there = "row0", "row1"
        for factor, together in self._passes():
            count = n // factor if factor <= WRITTEN_OUT else n
            body = self._pass(
                factor, together,
                lambda name, i, here=here: [f"{name} = {here}[{i}]"],
                lambda value, i, there=there: [f"{there}[{i}] = {value}"],
            )  # fmt: skip
            lines += [f"for b in range(lane, {count}, {threads}):", *("    " + line for line in body)]
            lines.append("cuda.syncthreads()")
            here, there = there, here
        lines += [f"for i in range(lane, count_out, {threads}):"]
        lines += ["    " + line for line in self._write(f"{here}[i]", "i")]
        lines.append("cuda.syncthreads()")
        shared = dict.fromkeys(("row0", "row1"), f"cuda.shared.array({n}, {kind})")
        pointers = [(self.source, self.source_dtype), (self.target, self.target_dtype)]
        work = n * 5.0 * max(1, n.bit_length())
        return self._finish(
            "fft", pointers, lines, self.rows, work, self.sizes, grain="block", threads=threads, shared=shared
        )

    def _by_passes(self, number: int) -> list[CudaLaunch]:
        n, kind = self.n, self.whole.kind
        passes, result = self._passes(), []
        size = self.rows * n * self.whole.dtype.itemsize
        for k, (factor, together) in enumerate(passes):
            count = n // factor if factor <= WRITTEN_OUT else n
            lines = [f"row = item // {count}", f"b = item - row * {count}", *self._bases()]
            here, there = f"pass{number}_{k % 2}", f"pass{number}_{1 - k % 2}"
            pointers, sizes = [], dict(self.sizes)

            def read(name, i, k=k, here=here):
                return self._read(name, i) if k == 0 else [f"{name} = {here}[row * n + ({i})]"]

            def write(value, i, k=k, there=there):
                return self._write(value, i) if k == len(passes) - 1 else [f"{there}[row * n + ({i})] = {value}"]

            lines += self._pass(factor, together, read, write)
            if k == 0:
                pointers.append((self.source, self.source_dtype))
            else:
                pointers.append((here, kind))
                sizes[here] = size
            if k == len(passes) - 1:
                pointers.append((self.target, self.target_dtype))
            else:
                pointers.append((there, kind))
                sizes[there] = size
            title = f"fft_pass{factor}"
            result.append(
                self._finish(title, pointers, lines, self.rows * count, 10.0 * factor, sizes, grain="element")
            )
        return result


def _bytes(dtype: str) -> int:
    return {"c64": 8, "c128": 16, "f32": 4, "f64": 8}[dtype]
