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

from hloom.compiler.kernel_ir.builder import ZERO, call, cast, compared, constant, element, least, part, plus
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Expr, Load, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.targets.base import KernelGroup
from hloom.compiler.targets.cuda.codegen.source import barrier, shared_array
from hloom.compiler.targets.cuda.launches import CudaLaunch, cuda_source, launch_of_source
from hloom.compiler.targets.cuda.libraries.fft import library_transform
from hloom.ir.module import Instruction
from hloom.ir.records import replace
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, real_dtype

SHARED = 48 * 1024  # bytes of static shared memory, for two copies of a row
WRITTEN_OUT = 7  # factors up to this are a thread's
LONGEST = 1 << 24
Read = Callable[[Block, str, Expr], Var]  # gives a name to the element at an index
Write = Callable[[Block, Expr, Expr], None]  # a value to an index


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

    def _begun(self, pointers: list[tuple[str, str]]) -> Block:
        """The block of a work item."""
        block = Block()
        for name, dtype in (*pointers, ("roots", self.whole.kind)):
            block.names.declare(name, f"*{dtype}")
        return block

    def _complex(self, real: Expr, imag: Expr) -> Expr:
        return call(f"complex_{self.whole.real}", (real, imag), by_name)

    def _times(self, x: Expr, y: Expr) -> Expr:
        return call(f"mul_{self.whole.kind}", (x, y), by_name)

    def _number(self, value: float) -> Expr:
        return cast(self.whole.real, constant(value))

    def _bases(self, block: Block) -> None:
        row, below, count_in, count_out = (_index(block, name) for name in ("row", "below", "count_in", "count_out"))
        if self.below == 1:
            block.let("first_in", row * count_in)
            block.let("first_out", row * count_out)
            return
        across = block.let("across", row // below)
        along = block.let("along", row - across * below)
        block.let("first_in", across * count_in * below + along)
        block.let("first_out", across * count_out * below + along)

    def _far(self, block: Block, first: str, i: Expr) -> Expr:
        """Where element i of a row is."""
        return _index(block, first) + (i if self.below == 1 else i * _index(block, "below"))

    def _read(self, block: Block, name: str, i: Expr) -> Var:
        """Element i of the row, a complex number."""
        source = block.names[self.source]
        if self.how == "to real":
            # The other half of the spectrum is the conjugate of the first.
            place = block.let("place", least(i, _index(block, "n") - i))
            made = block.let(name, element(source, self._far(block, "first_in", place)))
            other = block.branch(compared("!=", place, i))
            other.let(name, self._complex(part(made, "real"), -part(made, "imag")))
            return made
        found = element(source, self._far(block, "first_in", i))
        return block.let(name, self._complex(found, self._number(0.0)) if self.real else found)

    def _write(self, block: Block, value: Expr, i: Expr) -> None:
        """The element i of the result; only the first half of what is from real numbers."""
        made: Expr = block.let("result", value)
        scale = self._number(float(1 / self.n))
        if self.how == "to real":
            made = part(made, "real") * scale
        elif self.whole.inverse:
            made = self._complex(part(made, "real") * scale, part(made, "imag") * scale)
        inside = block.branch(i < _index(block, "count_out")) if self.how == "from real" else block
        inside.store(block.names[self.target], self._far(block, "first_out", i), made)

    # --- passes ---

    def _passes(self) -> list[tuple[int, int]]:
        """(factor, elements that stay together) of each pass."""
        together, result = 1, []
        for factor in factors_of(self.n):
            result.append((factor, together))
            together *= factor
        return result

    def _pass(self, block: Block, factor: int, together: int, read: Read, write: Write) -> None:
        """Item `b` of a pass: a butterfly, or an element of one."""
        n, b = self.n, _index(block, "b")
        apart = n // factor
        last = factor * together == n
        roots, written_out = block.names["roots"], factor <= WRITTEN_OUT
        first = b
        if not written_out:
            u = block.let("u", b // apart)
            first = block.let("c", b - u * apart)
        p = block.let("p", first // together if together > 1 else first)
        q = block.let("q", first - p * together) if together > 1 else None

        def place(u: Expr) -> Expr:
            inside = constant(factor) * p + u
            return inside if q is None else q + constant(together) * inside

        if not written_out:
            total = block.let("total", self._complex(self._number(0.0), self._number(0.0)))
            t, term = block.loop("t", ZERO, constant(factor))
            a = read(term, "a", first + t * apart)
            turn = term.let("turn", element(roots, t * u % factor * apart))
            term.let("total", total + self._times(a, turn))
            if not last:
                block.let("total", self._times(total, element(roots, p * u * together)))
            write(block, total, place(u))
            return
        given = [read(block, f"a{t}", first + t * apart if t else first) for t in range(factor)]
        for k, value in enumerate(self._butterfly(block, given)):
            if k and not last:
                value = block.let(f"y{k}", self._times(value, element(roots, p * (k * together))))
            write(block, value, place(constant(k)))

    def _butterfly(self, block: Block, a: list[Var]) -> list[Var]:
        """The sums of a0, a1, ... with the roots of their order."""
        factor, inverse = len(a), self.whole.inverse
        if factor == 2:
            return [block.let("y0", a[0] + a[1]), block.let("y1", a[0] - a[1])]
        if factor == 4:
            pairs = (a[0] + a[2], a[0] - a[2], a[1] + a[3])
            even, apart, joined = (block.let(f"t{k}", value) for k, value in enumerate(pairs))
            odd = block.let("t3", a[1] - a[3])
            real, imag = part(odd, "real"), part(odd, "imag")
            block.let("t3", self._complex(-imag, real) if inverse else self._complex(imag, -real))
            sums = (even + joined, apart + odd, even - joined, apart - odd)
            return [block.let(f"y{k}", value) for k, value in enumerate(sums)]
        made = [block.let("y0", plus(*a))]
        sign = 1 if inverse else -1
        for u in range(1, factor):
            terms: list[Expr] = [a[0]]
            for t in range(1, factor):
                root = cmath.exp(sign * 2j * cmath.pi * (t * u % factor) / factor)
                terms.append(self._times(a[t], self._complex(self._number(root.real), self._number(root.imag))))
            made.append(block.let(f"y{u}", plus(*terms)))
        return made

    # --- kernels ---

    def _finish(self, title: str, pointers, block: Block, items, work, sizes, **how) -> CudaLaunch:
        name, body = self.whole.request.title(title), block.statements()
        source = cuda_source(name, [*pointers, ("roots", self.whole.kind)], self.integers, body, items=items, **how)
        values = {**self.integers, "items": items}
        kept = {k: v for k, v in sizes.items() if k in source.parameters}
        launch = launch_of_source(source, values, items * work, kept, processors=self.whole.processors)
        launch.tables = {"roots": self.roots} if "roots" in source.parameters else {}
        return launch

    def _in_shared_memory(self) -> CudaLaunch:
        n = self.n
        threads = min(max(-(-n // 4 // 32) * 32, 32), 256)
        shared = [shared_array(name, self.whole.kind, n) for name in ("row0", "row1")]
        here, there = (array.var for array in shared)
        pointers = [(self.source, self.source_dtype), (self.target, self.target_dtype)]
        block = self._begun(pointers)
        lane, step = _index(block, "lane"), constant(threads)
        block.let("row", _index(block, "item"))
        self._bases(block)
        i, inside = block.loop("i", lane, _index(block, "n"), step)
        inside.store(here, i, self._read(inside, "a", i))
        block.body.append(barrier())
        for factor, together in self._passes():
            count = n // factor if factor <= WRITTEN_OUT else n

            def read(block: Block, name: str, i: Expr, here=here) -> Var:
                return block.let(name, element(here, i))

            def write(block: Block, value: Expr, i: Expr, there=there) -> None:
                block.store(there, i, value)

            _, inside = block.loop("b", lane, constant(count), step)
            self._pass(inside, factor, together, read, write)
            block.body.append(barrier())
            here, there = there, here
        i, inside = block.loop("i", lane, _index(block, "count_out"), step)
        self._write(inside, element(here, i), i)
        block.body.append(barrier())
        work = n * 5.0 * max(1, n.bit_length())
        return self._finish(
            "fft", pointers, block, self.rows, work, self.sizes, grain="block", threads=threads, shared=shared
        )

    def _by_passes(self, number: int) -> list[CudaLaunch]:
        n, kind = self.n, self.whole.kind
        passes, result = self._passes(), []
        size = self.rows * n * self.whole.dtype.itemsize
        for k, (factor, together) in enumerate(passes):
            count = n // factor if factor <= WRITTEN_OUT else n
            here, there = f"pass{number}_{k % 2}", f"pass{number}_{1 - k % 2}"
            begins, ends, sizes = k == 0, k == len(passes) - 1, dict(self.sizes)
            pointers = [(self.source, self.source_dtype) if begins else (here, kind)]
            pointers.append((self.target, self.target_dtype) if ends else (there, kind))
            sizes |= {name: size for name, between in ((here, not begins), (there, not ends)) if between}
            block = self._begun(pointers)

            def read(block: Block, name: str, i: Expr, begins=begins, here=here) -> Var:
                return self._read(block, name, i) if begins else block.let(name, _of_row(block, here, i))

            def write(block: Block, value: Expr, i: Expr, ends=ends, there=there) -> None:
                if ends:
                    self._write(block, value, i)
                else:
                    at = _of_row(block, there, i)
                    block.store(at.pointer, at.index, value)

            item = _index(block, "item")
            row = block.let("row", item // count)
            block.let("b", item - row * count)
            self._bases(block)
            self._pass(block, factor, together, read, write)
            title = f"fft_pass{factor}"
            result.append(
                self._finish(title, pointers, block, self.rows * count, 10.0 * factor, sizes, grain="element")
            )
        return result


def _index(block: Block, name: str) -> Var:
    """An integer of the kernel by its name."""
    return block.names.declare(name, "s64")


def _of_row(block: Block, array: str, i: Expr) -> Load:
    """Element i of the row in an array of whole rows."""
    return element(block.names[array], _index(block, "row") * _index(block, "n") + i)


def _bytes(dtype: str) -> int:
    return {"c64": 8, "c128": 16, "f32": 4, "f64": 8}[dtype]
