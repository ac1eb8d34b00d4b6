"""Convolutions as products on CUDA: elements of windows are found while a tile is staged; no window is copied.

As on the CPU (`contractions.convolution`), i iterates over window positions and p over the elements of a window. An
index is split by divisions by constants in the text, in 32 bits where it fits.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.kernel_ir.builder import ZERO, constant, plus
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.contractions.convolution_dims import Component, ConvolutionRoles
from hloom.compiler.kernels.contractions.operands import ContractionParts, epilogue_of, extra_params
from hloom.compiler.kernels.contractions.spec import ContractionSpec, PlainOperand, PlainStore
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.compiler.targets.cuda.codegen.source import divided
from hloom.ir.module import Instruction
from hloom.ir.records import record, replace
from hloom.ir.types import HLO_NAME


@record(frozen=True)
class Gathered(PlainOperand):
    """An operand whose elements lie in memory at computed positions, some of them nowhere.

    place(block, b, role, p) -> (conditions, place), whose statements it writes: an element is zero where a condition is
    not met.
    runs(width) -> the index along which `width` elements lie side by side in memory, all of them or none, wherever a
    multiple of `width` begins; None: there is none.
    """

    place: Callable[[Block, Var, Var, Var], tuple[list[Expr], Expr]]
    runs: Callable[[int], str | None]


def convolution_parts(request: KernelRequest, instruction: Instruction) -> ContractionParts:
    """What a fused computation with this convolution, in normal form, contracts."""
    roles = ConvolutionRoles(instruction)
    integers: dict[str, int] = {}
    accumulate = accumulation_dtype(instruction)
    left, right = instruction.operands
    windows = _Windows(roles)
    gathered = Gathered(request.names[left], HLO_NAME[left.dtype], windows.place, windows.runs)
    kernel = PlainOperand(request.names[right], HLO_NAME[right.dtype])
    epilogue = epilogue_of(request, instruction, roles, integers, accumulate)
    parameters = extra_params(request, integers, gathered, kernel, epilogue)
    spec = ContractionSpec(
        request.title("product"), accumulate, gathered, kernel, epilogue, parameters, roles.fast(), "j"
    )
    made = ContractionParts(spec, roles.extents, (0, 0, 0), roles.rhs_strides, integers)
    # Where places are the fast index of the result, they are the columns.
    return swapped(made) if roles.result[-1] == "i" and roles.result[-2:-1] == ["j"] else made


def swapped(made: ContractionParts) -> ContractionParts:
    """The same product with rows and columns in each other's place."""
    spec, (batch, m, n, k) = made.spec, made.extents
    gathered, epilogue = spec.lhs, spec.epilogue
    if isinstance(epilogue, PlainStore):
        return made
    assert isinstance(gathered, Gathered)  # of `convolution_parts`
    epilogue(Names(by_name), "t_sum", "t_b", "t_j", "t_i")  # its integer arguments have names after the indexes
    right = replace(gathered, runs=lambda width: "j" if gathered.runs(width) == "i" else gathered.runs(width))
    turned = replace(
        spec,
        lhs=spec.rhs,
        rhs=right,
        epilogue=lambda names, value, b, i, j: epilogue(names, value, b, j, i),
        rhs_fast="j" if spec.lhs_fast == "i" else "p",
        lhs_fast="i",
    )
    sb, sp, sj = made.rhs_strides
    return ContractionParts(turned, (batch, n, m, k), (sb, sj, sp), (0, 0, 0), made.integers)


class _Windows:
    """Where the elements of windows lie."""

    def __init__(self, roles: ConvolutionRoles):
        self.roles = roles
        self.rows = [c for c in roles.rows if c.extent != 1] or [Component(1, 1)]
        self.depths = [c for c in roles.depths if c.extent != 1] or [Component(1, 1)]

    def place(self, block: Block, b: Var, i: Var, p: Var) -> tuple[list[Expr], Expr]:
        conditions: list[Expr] = []
        rows = self._digits(block, i, self.rows, "w_i")
        depths = self._digits(block, p, self.depths, "w_p")
        parts = [*zip(self.rows, rows, strict=True), *zip(self.depths, depths, strict=True)]
        terms = [_times(b, self.roles.batch_stride)] if self.roles.extents[0] > 1 else []
        terms += [_times(digit, c.step) for c, digit in parts if c.space is None and c.extent != 1]
        for d, space in enumerate(self.roles.spaces):
            inside = [_times(digit, c.step) for c, digit in parts if c.space == d]
            x = block.let(f"w_x{d}", plus(*inside, constant(space.start)))
            if space.checked:
                conditions += [x >= 0, x < space.extent]
            terms.append(_times(x, space.stride))
        return conditions, plus(*terms) if terms else ZERO

    def _digits(self, block: Block, index: Var, components: list[Component], name: str) -> list[Var]:
        """An index's digits, the outermost first; the last component is the fastest."""
        digits: list[Var] = []
        rest = index
        for number in range(len(components) - 1, 0, -1):
            extent = constant(components[number].extent)
            above = block.let(f"{name}_above{number}", divided(rest, extent))
            digits.insert(0, block.let(f"{name}{number}", rest - above * extent))
            rest = above
        return [rest, *digits]

    def runs(self, width: int) -> str | None:
        roles, inner = self.roles, self.depths[-1]
        if inner.extent % width or roles.memory_step(inner) != 1:
            return None
        others = [c for c in (*self.rows, *self.depths) if c is not inner and c.extent != 1]
        strides = [roles.memory_step(c) for c in others] + [roles.batch_stride if roles.extents[0] > 1 else 0]
        strides += [space.start * space.stride for space in roles.spaces]
        if inner.space is not None:  # features joined with the innermost part of the window
            space = roles.spaces[inner.space]
            strides += [space.extent, space.start]
        return None if any(stride % width for stride in strides) else "p"


def _times(value: Var, factor: int) -> Expr:
    return value if factor == 1 else value * factor
