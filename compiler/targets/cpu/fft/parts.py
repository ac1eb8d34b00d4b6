"""What all transforms do with their blocks, as kernels of their own: those of `transforms` call them by address.

They are compiled once for all lengths, and are part of the prebuilt code. A block has element i of as many transforms
as a vector has lanes at i * 2 * lanes, real parts, then imaginary ones; of the last transforms there may be fewer
(`lanes`). A row of complex numbers has `width` numbers, twice its elements; `step` is from one row to the next. Columns
lie side by side, and `step` is from one element to the next.

These kernels are built, and no kernel functions: what reads those takes longer to import than a first call has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from hloom.compiler.kernel_ir.builder import ZERO, address, cast, compared, constant, element, quotient
from hloom.compiler.kernel_ir.nodes import Expr, Kernel, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.fft.names import parameters

SIZES = {"f32": 4, "f64": 8}


class _Writer:
    """Writes a part for a dtype and vectors of so many lanes."""

    def __init__(self, listed: tuple[str, ...], dtype: str, lanes: int):
        self.dtype, self.lanes, self.size = dtype, lanes, SIZES[dtype]
        self.root = Block()
        kinds = [f"*{dtype}" if name.endswith("*") else "s64" for name in listed]
        self.params = [self.root.names.declare(n.removesuffix("*"), k) for n, k in zip(listed, kinds, strict=True)]

    def variables(self, names: str) -> list[Var]:
        return [self.root.names[name] for name in names.split()]

    # --- rows and columns ---

    def rows(self, array: str, pitch: int) -> None:
        """Rows between an array and the block, in which number k of a row is `pitch` elements behind the one before:
        squares by transposes, and what is left one by one."""
        lanes, size, root = self.lanes, self.size, self.root
        other, block, step, width, count = self.variables(f"{array} block step width lanes")
        whole = root.let("whole", quotient(width, constant(lanes)) * lanes * compared("==", count, lanes))
        k, square = root.loop("k", ZERO, whole, constant(lanes))
        ends = [
            (address(other) + k * size, step * size),
            (address(block) + k * (pitch * size), constant(pitch * size)),
        ]
        source, target = ends if array == "given" else ends[::-1]
        square.do(f"transpose_{self.dtype}_{lanes}x{lanes}", *source, *target)
        k, rest = root.loop("k", whole, width)
        lane, inside = rest.loop("lane", ZERO, count)
        self.copy(inside, array, lane * step + k, k * pitch + lane)

    def copy(self, inside: Block, array: str, far: Expr, place: Expr) -> None:
        """A number between an array and the block."""
        other, block = self.variables(f"{array} block")
        if array == "given":
            inside.store(block, place, element(other, far))
        else:
            inside.store(other, far, element(block, place))

    def complex_rows(self, array: str) -> None:
        self.rows(array, self.lanes)

    def reals(self, array: str) -> None:
        self.rows(array, 2 * self.lanes)
        if array == "given":
            block, width = self.variables("block width")
            k, row = self.root.loop("k", ZERO, width)
            lane, inside = row.loop("lane", ZERO, constant(self.lanes))
            inside.store(block, k * (2 * self.lanes) + self.lanes + lane, cast(self.dtype, ZERO))

    def columns(self, array: str) -> None:
        n, step, count = self.variables("n step lanes")
        i, row = self.root.loop("i", ZERO, n)
        k, inside = row.loop("k", ZERO, 2 * count)
        self.copy(inside, array, i * step + k, i * (2 * self.lanes) + k)

    def real_columns(self, array: str) -> None:
        """Real results, which stand side by side in the block."""
        block, made, n, step, count = self.variables("block made n step lanes")
        i, row = self.root.loop("i", ZERO, n)
        full, few = row.branches(compared("==", count, self.lanes))
        target = address(made) + i * step * self.size
        full.do(f"copy_{self.dtype}_{self.lanes}", address(block) + i * (self.lanes * self.size), target)
        lane, inside = few.loop("lane", ZERO, count)
        inside.store(made, i * step + lane, element(block, i * self.lanes + lane))

    # --- spectra ---

    def mirror(self, _: str) -> None:
        """Completes the spectrum of n real numbers, n odd. The first has no imaginary part, the others come in pairs of
        conjugates."""
        block, n, count = self.variables("block n lanes")
        lanes, pair = self.lanes, 2 * self.lanes
        lane, inside = self.root.loop("lane", ZERO, count)
        inside.store(block, lanes + lane, cast(self.dtype, ZERO))
        k, row = self.root.loop("k", quotient(n + 1, constant(2)), n)
        lane, inside = row.loop("lane", ZERO, count)
        other = inside.let("other", (n - k) * pair + lane)
        inside.store(block, k * pair + lane, element(block, other))
        inside.store(block, k * pair + lanes + lane, -element(block, other + lanes))

    def spectrum(self, which: str) -> None:
        self.root.do(f"fft_{which}_{self.dtype}_{self.lanes}", *self.params)


_READ, _WRITE = "given* step block*", "block* made* step"
# By name: parameters, what writes the body, and what it is told: the array beside the block, or a kind of spectrum.
PARTS: dict[str, tuple[str, Callable[[_Writer, str], None], str]] = {
    "rows_in": (f"{_READ} width lanes", _Writer.complex_rows, "given"),
    "rows_out": (f"{_WRITE} width lanes", _Writer.complex_rows, "made"),
    "reals_in": (f"{_READ} width lanes", _Writer.reals, "given"),
    "reals_out": (f"{_WRITE} width lanes", _Writer.reals, "made"),
    "columns_in": (f"{_READ} n lanes", _Writer.columns, "given"),
    "columns_out": (f"{_WRITE} n lanes", _Writer.columns, "made"),
    "real_columns_out": (f"{_WRITE} n lanes", _Writer.real_columns, "made"),
    "mirror": ("block* n lanes", _Writer.mirror, ""),
    "half": ("block twiddles m", _Writer.spectrum, "half"),
    "whole": ("block twiddles m", _Writer.spectrum, "whole"),
}


@functools.cache
def part_kernel(name: str, dtype: str, lanes: int) -> KernelSource:
    """A part by its name in `PARTS`."""
    listed, write, what = PARTS[name]
    writer = _Writer(tuple(listed.split()), dtype, lanes)
    write(writer, what)
    return _kernel(f"fft_{name}_{dtype}_{lanes}_alone", writer.params, writer.root)


@functools.cache
def pass_kernel(name: str) -> KernelSource:
    """A pass of `butterflies` by its name."""
    root = Block()
    params = [root.names.index(word) for word in parameters(name) or ()]
    root.do(name, *params)
    return _kernel(f"{name}_alone", params, root)


def _kernel(title: str, params: list[Var], root: Block) -> KernelSource:
    items = [root.names.index("lo"), root.names.index("hi")]
    return KernelSource.of(Kernel(title, (*params, *items), root.statements()))
