"""fft: Stockham transforms of as many rows or columns at a time as a vector has lanes, one launch for each dimension.

A work item is a block of neighbouring transforms (`butterflies` has the passes over blocks). Transforms along the last
dimension are *rows*: their elements are brought into a block, and out of it, by square transposes. Transforms along
another dimension are *columns*: those of neighbouring columns lie side by side in memory already.

One long transform, or a few, would leave lanes empty. Such a transform of length N1 * N2 is done as N2 columns of
length N1, which are multiplied by roots of unity of order N1 * N2, and N1 rows of length N2 whose results are columns
(the four-step algorithm). A real transform of even length is one of half the length, whose elements are pairs.

A kernel depends on how it reads and writes and on the number of passes; passes are kernels of their own, whose
addresses are arguments as lengths, strides and roots are. So another length needs new code only for new radices.
"""

from __future__ import annotations

import itertools
import math

from hloom.compiler.kernels.codegen.affine import variables
from hloom.compiler.kernels.codegen.serial import block_statements
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Argument, Launch, launch_by_work
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.targets.base import KernelGroup
from hloom.compiler.targets.cpu.fft.parts import PARTS, SIZES, part_kernel, pass_kernel
from hloom.compiler.targets.cpu.fft.spectrum import PIECE, spectrum_kernel
from hloom.compiler.targets.cpu.fft.transforms import Epilogue, Form, kernel_of, pass_names
from hloom.compiler.targets.cpu.fft.twiddles import factors_of, radices_of, scale_of, spectrum_twiddles, twiddles_of
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import COMPLEX, HLO_NAME, real_dtype

CAPACITIES = (64, 512, 4096)  # elements of the blocks of kernels, which so serve all lengths
LONGEST = CAPACITIES[-1]  # elements of a block: two of them take a megabyte of the stack where vectors have 64 bytes
WIDEST = 16  # lanes of the widest vectors
NEAR = 2048  # elements of a block that stay in the second-level cache


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


def goes_by_rows(n: int, rows: int, lanes: int) -> bool:
    """Whether complex transforms of rows are done in one step."""
    split = split_of(n)
    return split is None or min(split) < 4 or (n <= NEAR and 2 * rows > lanes)


def _first_by_rows(fft: Instruction) -> bool:
    """Whether the last dimension is transformed in one step on every machine."""
    n = fft["fft_length"][-1]
    rows = fft.operands[0].shape.size // fft.operands[0].dims[-1]
    real = fft["fft_type"] in ("RFFT", "IRFFT") and n % 2 == 0
    return goes_by_rows(n // 2 if real else n, rows, WIDEST)


def accepts_transform(group: KernelGroup, instruction: Instruction, users: list[Instruction], output: bool):
    """`KernelKind.accepts`: element-wise work after a transform, a conversion of real numbers before it."""
    if instruction.opcode == "fft":
        if not group.is_loop or output or len(group.outputs) > 1:
            return False, "a Fourier transform has one result, or what is computed from it alone"
        if not _accepts_epilogue(instruction, group.members, group.outputs[0]):
            return False, "what is computed from the transform needs more than its elements"
        return True, "epilogue of the Fourier transform"
    if not output and _is_constant(instruction) and group.head not in users:
        return True, "a constant"
    if not output and group.head and users == [group.head] and _accepts_conversion(group.head, instruction):
        return True, "numbers are converted as the transform reads them"
    return False, "a Fourier transform reads its operand from memory"


def _accepts_conversion(fft: Instruction, operand: Instruction) -> bool:
    """Whether the kernel can convert the operand, real numbers of its own precision, itself."""
    if operand.opcode != "convert" or fft["fft_type"] not in ("FFT", "IFFT"):
        return False
    return operand.operands[0].dtype == real_dtype(operand.dtype) and _first_by_rows(fft)


def _accepts_epilogue(fft: Instruction, members, output: Instruction) -> bool:
    """Whether the kernel can compute the output from its own result: by element-wise ops of that and of constants."""
    if fft["fft_type"] == "IRFFT" or output.dims != fft.dims:
        return False
    real = real_dtype(fft.dtype)
    if output.dtype != real and (output.dtype != fft.dtype or len(fft["fft_length"]) > 1):
        return False
    if len(fft["fft_length"]) == 1 and not _first_by_rows(fft):
        return False
    for member in members:
        if _is_constant(member):
            continue
        if OPS[member.opcode].family != "elementwise" or member.dims != fft.dims:
            return False
        if not all(o is fft or o in members or _is_constant(o) for o in member.operands):
            return False
    return True


def _is_constant(instruction: Instruction) -> bool:
    """Whether an instruction is a scalar constant, or one in every place."""
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "constant" and instruction.dims == ()


# --- the launches of an instruction -----------------------------------------------------------------------------------


def fft_launches(request: KernelRequest, machine) -> list[Launch]:
    """The launches of a computation of one fft (`has_fft_kernel`), and what the others allow."""
    instruction = request.instruction("fft")
    return _Launches(request, instruction, machine).launches()


def _epilogue(request: KernelRequest, fft: Instruction) -> Epilogue:
    """The element-wise ops behind a transform."""
    output = request.outputs[0]
    writer = request.writer(output.dims)
    z = writer.names.declare("z", HLO_NAME[fft.dtype])
    writer.overrides[fft] = (z, writer.root)
    value = writer.value(output, variables(output.dims), writer.root)
    title = request.title("").split("_fft_")[-1].strip("_")
    statements, real = block_statements(writer.root), output.dtype not in COMPLEX
    return Epilogue(writer.names, z, statements, value, writer.integers, real, title)


def shared_kernels(dtype: str, machine) -> list[KernelSource]:
    """What transforms of lengths that are powers of two have in common, whatever comes before and after them."""
    lanes = machine.vector_bytes // SIZES[dtype]
    names: dict[str, None] = {}
    for inverse, read, write, twiddled, scaled in itertools.product(
        (False, True), ("rows", "columns"), ("rows", "columns"), (False, True), (False, True)
    ):
        if scaled > inverse or (twiddled and (scaled or write == "rows")):
            continue
        form = Form(dtype, lanes, 3, inverse, read, write, twiddled=twiddled, scaled=scaled)
        for radix in (2, 4, 8):
            names |= dict.fromkeys(pass_names(form, (radix,) * 3))
    return [pass_kernel(name) for name in names] + [part_kernel(name, dtype, lanes) for name in PARTS]


def _rows_of(numbers: int) -> dict[str, int]:
    """The strides of rows of so many numbers, one after the other."""
    return {"outer": 0, "lane": numbers, "width": numbers}


class _Launches:
    def __init__(self, request: KernelRequest, instruction: Instruction, machine):
        (operand,) = instruction.operands
        self.reals = operand.opcode == "convert"
        self.given = request.names[operand.operands[0] if self.reals else operand]
        self.made = request.output_name(0)
        self.epilogue = None if request.outputs[0] is instruction else _epilogue(request, instruction)
        self.operand, self.shape = operand.shape, instruction.shape
        self.which, self.lengths = instruction["fft_type"], tuple(instruction["fft_length"])
        self.dtype = HLO_NAME[real_dtype(operand.dtype)]
        self.size = SIZES[self.dtype]
        self.lanes = machine.vector_bytes // self.size
        self.inverse = self.which in ("IFFT", "IRFFT")
        self.sign = 1.0 if self.inverse else -1.0
        self.result: list[Launch] = []

    def launches(self) -> list[Launch]:
        rank = len(self.shape.dims)
        others = range(rank - len(self.lengths), rank - 1)
        total = math.prod(self.lengths) if self.inverse else 0
        if self.which == "IRFFT":
            for axis in others:
                source = self.given if axis == others[0] else "spectrum"
                self.columns(self.operand.dims, axis, source, "spectrum", 0)
            self.real_rows("spectrum" if others else self.given, total)
            return self.result
        between = "spectrum" if self.epilogue and others else self.made
        if self.which == "RFFT":
            self.real_rows(self.given, 0, between)
        else:
            n = self.lengths[-1]
            self.rows(self.given, between, self.shape.size // n, n, 0 if others else total)
        for axis in others:
            final = axis == others[-1]
            self.columns(self.shape.dims, axis, between, self.made if final else between, total if final else 0)
        return self.result

    def columns(self, dims, axis: int, source: str, target: str, total: int) -> None:
        """Transforms along a dimension that is not the last."""
        n, inner = dims[axis], math.prod(dims[axis + 1 :])
        strides = {"outer": 2 * n * inner, "lane": 2, "step": 2 * inner}
        self.launch(n, math.prod(dims[:axis]), inner, source, target, strides, strides, "columns", "columns", total)

    def rows(self, source: str, target: str, rows: int, n: int, total: int) -> None:
        """Complex transforms of rows of n elements."""
        split = split_of(n)
        if split is None or goes_by_rows(n, rows, self.lanes):
            reals = self.reals and source == self.given
            given, read = (_rows_of(n), "reals") if reals else (_rows_of(2 * n), "rows")
            self.launch(n, 1, rows, source, target, given, _rows_of(2 * n), read, "rows", total)
            return
        n1, n2 = split
        steps = {"outer": 2 * n, "lane": 2, "step": 2 * n2}
        self.launch(n1, rows, n2, source, "steps", steps, steps, "columns", "columns", 0, twiddled=(n1, n2))
        lines = {"outer": 2 * n, "lane": 2 * n2, "width": 2 * n2}
        steps = {"outer": 2 * n, "lane": 2, "step": 2 * n1}
        self.launch(n2, rows, n1, "steps", target, lines, steps, "rows", "columns", total)

    def real_rows(self, source: str, total: int, made: str = "") -> None:
        """RFFT or IRFFT of rows."""
        made = made or self.made
        n = self.lengths[-1]
        rows = (self.shape if self.inverse else self.operand).size // n
        m = n // 2
        real, spectrum = _rows_of(n), _rows_of(2 * (m + 1))
        strides = (spectrum, real) if self.inverse else (real, spectrum)
        if n % 2:
            ways, mirror = (("rows", "reals"), "mirror") if self.inverse else (("reals", "rows"), "")
            self.launch(n, 1, rows, source, made, *strides, *ways, total, spectrum=mirror)
            return
        which = "whole" if self.inverse else "half"
        if goes_by_rows(m, rows, self.lanes):
            self.launch(m, 1, rows, source, made, *strides, "rows", "rows", total, spectrum=which)
            return
        if self.inverse:
            self.spectrum(which, source, "pairs", rows, m)
            self.rows("pairs", made, rows, m, total)
        else:
            self.rows(source, "pairs", rows, m, 0)
            self.spectrum(which, "pairs", made, rows, m)

    def spectrum(self, which: str, source: str, target: str, rows: int, m: int) -> None:
        pieces = -(-(m // 2 + 1) // PIECE)
        tables = {"twiddles": spectrum_twiddles(m, self.dtype, which)}
        arguments = [source, target, "twiddles", m, pieces]
        work = 20.0 * min(PIECE, m // 2 + 1)
        self.finish(spectrum_kernel(which, self.dtype), arguments, rows * pieces, work, tables)

    def launch(
        self, n, outer, count, source, target, given, made, read, write, total, twiddled=None, spectrum=""
    ) -> None:  # fmt: skip
        """One launch: outer * count transforms of n elements. given, made: strides of source and target, in numbers."""
        radices = radices_of(n) or ()
        capacity = next(size for size in CAPACITIES if size >= n) + 8  # the spectrum of real numbers has one more
        results = made.get("width", 2 * n) // 2
        epilogue = self.epilogue if target == self.made else None
        if epilogue is not None and epilogue.real:
            made = {name: stride // 2 for name, stride in made.items()}
        form = Form(
            self.dtype, self.lanes, len(radices), self.inverse, read, write, source == target, spectrum,
            twiddled is not None, bool(total), capacity, epilogue,
        )  # fmt: skip
        factors, passes = factors_of(n, self.dtype, self.sign)
        tables = {"factors": factors}
        if spectrum in ("half", "whole"):
            tables["twiddles"] = spectrum_twiddles(n, self.dtype, spectrum)
        if twiddled:
            tables["twiddles"], tables["lane_twiddles"] = twiddles_of(*twiddled, self.lanes, self.dtype, self.sign)
        if total:
            tables["scale"] = scale_of(total, self.dtype)
        blocks = -(-count // self.lanes)
        values: dict[str, Argument] = {"n": n, "blocks": blocks, "count": count, "results": results}
        for side, strides in (("given", given), ("made", made)):
            values |= {f"{side}_{name}": stride for name, stride in strides.items()}
        for number, (place, m, s) in enumerate(passes):
            values |= {f"factors{number}": place, f"m{number}": m, f"s{number}": s}
        values |= {f"pass{number}": pass_kernel(name) for number, name in enumerate(pass_names(form, radices))}
        values |= {"given": source, "data": source, "made": target}
        if epilogue is not None:
            values |= epilogue.integers
        kernel = kernel_of(form)
        names = [param.name for param in kernel.unsettled.params[:-2]]
        values |= {name: part_kernel(name, self.dtype, self.lanes) for name in PARTS if name in names}
        arguments = [values.get(name, name) for name in names]
        work = 5.0 * n * math.log2(n) * self.lanes / 4
        self.finish(kernel, arguments, outer * blocks, work, tables)

    def finish(self, source: KernelSource, arguments: list, items: int, work: float, tables) -> None:
        # The complex numbers that the passes along the last dimension work on.
        pairs = self.operand.bytes if self.which == "RFFT" else self.shape.bytes
        spectrum = self.operand.bytes if self.which == "IRFFT" else self.shape.bytes
        bytes_of = {"spectrum": spectrum, "pairs": pairs, "steps": pairs}
        temporaries = {name: size for name, size in bytes_of.items() if name in arguments}
        # The names of tables are those of temporaries and buffers too: each launch has its own.
        self.result.append(launch_by_work(source, arguments, items, work, temporaries, tables))
