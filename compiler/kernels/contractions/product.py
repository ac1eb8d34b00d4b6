"""A fused computation with a dot or a convolution as a contraction, and its launches."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.blocking import step_plan
from hloom.compiler.kernels.contractions.convolution import convolution_product
from hloom.compiler.kernels.contractions.operands import Product, Roles, epilogue_of, operand_of
from hloom.compiler.kernels.contractions.render import render
from hloom.compiler.kernels.contractions.spec import (
    ContractionKernels,
    ContractionSpec,
    KernelAddress,
    PlainOperand,
    PlainStore,
    Step,
)
from hloom.compiler.kernels.launch import Launch, launch_by_grain
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.ir.module import Instruction
from hloom.ir.records import record
from hloom.ir.types import HLO_NAME


def product(request: KernelRequest, machine) -> Product:
    """The contraction of a fused computation with one dot or convolution in normal form.

    A normal dot has at most one batch, row, column and depth.
    """
    (dot,) = [i for i in request.computation.instructions if i.opcode in ("dot", "convolution")]
    if dot.opcode == "convolution":
        return convolution_product(request, dot, machine)
    made = dot_parts(request, dot)
    kernels, stays = render(made.spec, machine, made.extents), request.stays(dot.operands[1])
    return Product(kernels, made.extents, made.lhs_strides, made.rhs_strides, made.integers, stays)


@record
class DotParts:
    """A dot in normal form with what surrounds it, before any target: extents (batch, m, n, k), strides of plain
    operands, and the values of the integers in its texts."""

    spec: ContractionSpec
    extents: tuple[int, int, int, int]
    lhs_strides: tuple[int, int, int]
    rhs_strides: tuple[int, int, int]
    integers: dict[str, int]


def dot_parts(request: KernelRequest, dot: Instruction) -> DotParts:
    """What a fused computation with this dot contracts."""
    roles = Roles(dot)
    integers: dict[str, int] = {}
    accumulate = accumulation_dtype(dot)
    left = operand_of(request, dot.operands[0], roles.left, integers, accumulate, ("p", "i"))
    right = operand_of(request, dot.operands[1], roles.right, integers, accumulate, ("j", "p"))
    epilogue = epilogue_of(request, dot, roles, integers, accumulate)
    pointers = [(request.names[p], f"{HLO_NAME[p.dtype]}*") for p in request.computation.parameters]
    pointers = [p for p in pointers if p[0].startswith("in")]
    pointers += [(request.output_name(k), f"{HLO_NAME[o.dtype]}*") for k, o in enumerate(request.outputs)]
    plain = {x.pointer for x in (left.code, right.code, epilogue) if isinstance(x, (PlainOperand, PlainStore))}
    spec = ContractionSpec(
        request.title("product"),
        accumulate,
        left.code,
        right.code,
        epilogue,
        tuple(p for p in pointers if p[0] not in plain) + tuple((name, "s64") for name in integers),
        left.fast,
        right.fast,
        roles.batch > 1 or not roles.right_has_no_batch,
    )
    return DotParts(spec, roles.extents, left.strides, right.strides, integers)


def product_launches(request: KernelRequest, machine) -> list[Launch]:
    """The launches of a fused computation with one contraction: packing, products, and what joins parts of sums."""
    made = product(request, machine)
    steps = step_plan(made.kernels, *made.extents, made.lhs_strides, made.rhs_strides, made.rhs_stays)
    return [launch_of_step(made.kernels, step, made.integers) for step in steps]


def launch_of_step(kernels: ContractionKernels, step: Step, integers: dict[str, int], rename=str) -> Launch:
    """The launch of one step. integers: values of the texts' own parameters. rename(temporary) -> its name."""
    arguments: list[str | int | KernelSource] = []
    for name in kernels.parameters[step.kernel][:-2]:
        if name in step.arguments:
            value = step.arguments[name]
            arguments.append(kernels.kernels[value.kernel] if isinstance(value, KernelAddress) else value)
        elif name in integers:
            arguments.append(integers[name])
        else:
            arguments.append(rename(step.pointers.get(name, name)))
    temporaries = {rename(name): size for name, size in step.temporaries.items()}
    launch = launch_by_grain(kernels.kernels[step.kernel], arguments, step.items, step.grain, temporaries, step.work)
    launch.prepares = step.prepares
    return launch
