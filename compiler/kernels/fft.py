"""fft: Stockham transforms of as many rows or columns at a time as a vector has lanes, one launch for each dimension.

A work item is a block of neighbouring transforms (`tiles_fft` has the passes over blocks). Transforms along the last
dimension are *rows*: their elements are brought into a block, and out of it, by square transposes. Transforms along
another dimension are *columns*: those of neighbouring columns lie side by side in memory already.

One long transform, or a few, would leave lanes empty. Such a transform of length N1 * N2 is done as N2 columns of
length N1, which are multiplied by roots of unity of order N1 * N2, and N1 rows of length N2 whose results are columns
(the four-step algorithm). A real transform of even length is one of half the length, whose elements are pairs.

Radices and the way of reading and writing are in the kernel's text; lengths, strides and roots are arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from hloom.compiler.kernels.fft_tables import factors_of, radices_of, scale_of, spectrum_turns, turns_of
from hloom.compiler.kernels.fft_text import PIECE, SIZES, Form, kernel_of, spectrum_kernel
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.source import KernelSource
from hloom.ir.module import Instruction
from hloom.ir.types import HLO_NAME, real_dtype

LONGEST = 4096  # elements of a block: two of them take a megabyte of the stack where vectors have 64 bytes
NEAR = 2048  # elements of a block that stay in the second-level cache


@dataclass(frozen=True)
class FftLaunch:
    """A kernel, its arguments, work items and flops of each; bytes of temporaries and tables of numbers by name."""

    source: KernelSource
    arguments: list
    items: int
    work: float
    temporaries: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)


def split_of(n: int) -> tuple[int, int] | None:
    """(N1, N2) with N1 * N2 = n, both near the root of n and not longer than a block; None where there are none."""
    best = None
    for first in range(2, min(math.isqrt(n), LONGEST) + 1):
        if n % first == 0 and n // first <= LONGEST:
            best = (n // first, first)
    return best


def has_fft_kernel(instruction: Instruction) -> bool:
    """Whether an fft is kernels: lengths of small prime factors, each dimension short enough for its way."""
    (operand,) = instruction.operands
    shape, which, lengths = instruction.shape, instruction["fft_type"], tuple(instruction["fft_length"])
    if not shape.size or not operand.shape.size or any(n < 2 or radices_of(n) is None for n in lengths):
        return False
    if any(n > LONGEST for n in lengths[:-1]):
        return False
    last = lengths[-1]
    if which in ("RFFT", "IRFFT"):
        if last % 2:
            return last <= LONGEST
        last //= 2
        if last == 1:
            return False
    return last <= LONGEST or split_of(last) is not None


# --- the launches of an instruction -----------------------------------------------------------------------------------


def fft_launches(request: KernelRequest, machine) -> list[FftLaunch]:
    """The launches of a computation of one fft (`has_fft_kernel`)."""
    (instruction,) = [i for i in request.computation.instructions if i.opcode == "fft"]
    return _Maker(request, instruction, machine).launches()


class _Maker:
    def __init__(self, request: KernelRequest, instruction: Instruction, machine):
        (operand,) = instruction.operands
        self.given, self.made = request.names[operand], request.output_name(0)
        self.operand, self.shape = operand.shape, instruction.shape
        self.which, self.lengths = instruction["fft_type"], tuple(instruction["fft_length"])
        self.dtype = HLO_NAME[real_dtype(operand.dtype)]
        self.size = SIZES[self.dtype]
        self.lanes = machine.vector_bytes // self.size
        self.inverse = self.which in ("IFFT", "IRFFT")
        self.sign = 1.0 if self.inverse else -1.0
        self.result: list[FftLaunch] = []

    def launches(self) -> list[FftLaunch]:
        rank = len(self.shape.dims)
        last = rank - 1
        others = range(rank - len(self.lengths), last)
        total = math.prod(self.lengths) if self.inverse else 0
        if self.which == "IRFFT":
            source = self.given
            for axis in others:
                self.columns(self.operand.dims, axis, source, "spectrum", 0)
                source = "spectrum"
            self.real_rows(source, total)
            return self.result
        if self.which == "RFFT":
            self.real_rows(self.given, 0)
        else:
            self.rows(self.given, self.made, self.shape.size // self.lengths[-1], self.lengths[-1],
                      0 if len(others) else total)  # fmt: skip
        for axis in others:
            self.columns(self.shape.dims, axis, self.made, self.made, total if axis == others[-1] else 0)
        return self.result

    def columns(self, dims, axis: int, source: str, target: str, total: int) -> None:
        """Transforms along a dimension that is not the last."""
        n, inner = dims[axis], math.prod(dims[axis + 1 :])
        strides = {"outer": 2 * n * inner, "lane": 2, "step": 2 * inner}
        self.launch(n, math.prod(dims[:axis]), inner, source, target, strides, strides, "columns", "columns", total)

    def rows(self, source: str, target: str, rows: int, n: int, total: int) -> None:
        """Complex transforms of rows of n elements."""
        split = split_of(n)
        if split is None or min(split) < 4 or (n <= NEAR and 2 * rows > self.lanes):
            strides = {"outer": 0, "lane": 2 * n, "width": 2 * n}
            self.launch(n, 1, rows, source, target, strides, strides, "rows", "rows", total)
            return
        n1, n2 = split
        steps = {"outer": 2 * n, "lane": 2, "step": 2 * n2}
        self.launch(n1, rows, n2, source, "steps", steps, steps, "columns", "columns", 0, turned=(n1, n2))
        lines = {"outer": 2 * n, "lane": 2 * n2, "width": 2 * n2}
        steps = {"outer": 2 * n, "lane": 2, "step": 2 * n1}
        self.launch(n2, rows, n1, "steps", target, lines, steps, "rows", "columns", total)

    def real_rows(self, source: str, total: int) -> None:
        """RFFT or IRFFT of rows."""
        n = self.lengths[-1]
        rows = (self.shape if self.inverse else self.operand).size // n
        half = n // 2 + 1
        if n % 2:
            real, spectrum = {"outer": 0, "lane": n, "width": n}, {"outer": 0, "lane": 2 * half, "width": 2 * half}
            if self.inverse:
                self.launch(n, 1, rows, source, self.made, spectrum, real, "rows", "reals", total, spectrum="mirror")
            else:
                self.launch(n, 1, rows, source, self.made, real, spectrum, "reals", "rows", total)
            return
        m = n // 2
        which = "whole" if self.inverse else "half"
        if split_of(m) is None or (m <= NEAR and 2 * rows > self.lanes):
            real, spectrum = {"outer": 0, "lane": n, "width": n}, {"outer": 0, "lane": 2 * half, "width": 2 * half}
            given, made = (spectrum, real) if self.inverse else (real, spectrum)
            self.launch(m, 1, rows, source, self.made, given, made, "rows", "rows", total, spectrum=which)
            return
        if self.inverse:
            self.spectrum(which, source, "pairs", rows, m)
            self.rows("pairs", self.made, rows, m, total)
        else:
            self.rows(source, "pairs", rows, m, 0)
            self.spectrum(which, "pairs", self.made, rows, m)

    def spectrum(self, which: str, source: str, target: str, rows: int, m: int) -> None:
        pieces = -(-(m // 2 + 1) // PIECE)
        tables = {"turns": spectrum_turns(m, self.dtype, which)}
        arguments = [source, target, "turns", m, pieces]
        work = 20.0 * min(PIECE, m // 2 + 1)
        self.finish(spectrum_kernel(which, self.dtype), arguments, rows * pieces, work, tables)

    def launch(
        self, n, outer, count, source, target, given, made, read, write, total, turned=None, spectrum=""
    ) -> None:  # fmt: skip
        """One launch: outer * count transforms of n elements. given, made: strides of source and target, in numbers."""
        radices = radices_of(n)
        # Texts for a few sizes of the blocks serve all lengths. A real transform has an element more in its spectrum.
        capacity = max(64, 1 << (n - 1).bit_length()) + (spectrum in ("half", "whole"))
        form = Form(
            self.dtype, self.lanes, radices, self.inverse, read, write, source == target, spectrum,
            turned is not None, bool(total), capacity,
        )  # fmt: skip
        factors, passes = factors_of(n, self.dtype, self.sign)
        tables = {"factors": factors}
        if spectrum in ("half", "whole"):
            tables["turns"] = spectrum_turns(n, self.dtype, spectrum)
        if turned:
            tables["turns"], tables["laneturns"] = turns_of(*turned, self.lanes, self.dtype, self.sign)
        if total:
            tables["scale"] = scale_of(total, self.dtype)
        blocks = -(-count // self.lanes)
        values: dict[str, object] = {"n": n, "blocks": blocks, "count": count}
        for side, strides in (("given", given), ("made", made)):
            values |= {f"{side}_{name}": stride for name, stride in strides.items()}
        for number, (place, m, s) in enumerate(passes):
            values |= {f"factors{number}": place, f"m{number}": m, f"s{number}": s}
        values |= {"given": source, "data": source, "made": target}
        source_text = kernel_of(form)
        names = source_text.text[source_text.text.index("(") + 1 : source_text.text.index(")")].split(", ")[:-2]
        arguments = [values.get(name, name) for name in names]
        work = 5.0 * n * math.log2(n) * self.lanes / 4
        self.finish(source_text, arguments, outer * blocks, work, tables)

    def finish(self, source: KernelSource, arguments: list, items: int, work: float, tables) -> None:
        bytes_of = {
            "spectrum": self.operand.bytes,
            "pairs": self.pairs_bytes(),
            "steps": self.pairs_bytes(),
        }
        temporaries = {name: size for name, size in bytes_of.items() if name in arguments}
        # The names of tables are those of temporaries and buffers too: each launch has its own.
        self.result.append(FftLaunch(source, arguments, items, work, temporaries, tables))

    def pairs_bytes(self) -> int:
        """Bytes of the complex numbers that the passes along the last dimension work on."""
        if self.which == "RFFT":
            return self.operand.bytes
        return self.shape.bytes


__all__ = ["FftLaunch", "Form", "fft_launches", "has_fft_kernel", "kernel_of", "radices_of"]
