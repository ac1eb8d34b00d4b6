"""A fused computation with a dot or a convolution as a contraction, and its launches."""

from __future__ import annotations

from hloom.compiler.kernels.contractions.blocking import step_plan
from hloom.compiler.kernels.contractions.convolution import convolution_parts
from hloom.compiler.kernels.contractions.operands import ContractionParts, Roles, epilogue_of, extra_params, operand_of
from hloom.compiler.kernels.contractions.render import render
from hloom.compiler.kernels.contractions.spec import ContractionKernels, ContractionSpec, KernelAddress, Step
from hloom.compiler.kernels.launch import Argument, Launch, launch_by_grain
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.ir.module import Instruction


def dot_parts(request: KernelRequest, dot: Instruction) -> ContractionParts:
    """What a fused computation with this dot contracts."""
    roles = Roles(dot)
    integers: dict[str, int] = {}
    accumulate = accumulation_dtype(dot)
    left = operand_of(request, dot.operands[0], roles.left, integers, accumulate, ("p", "i"))
    right = operand_of(request, dot.operands[1], roles.right, integers, accumulate, ("j", "p"))
    epilogue = epilogue_of(request, dot, roles, integers, accumulate)
    params = extra_params(request, integers, left.code, right.code, epilogue)
    batched = roles.batch > 1 or not roles.right_has_no_batch
    spec = ContractionSpec(
        request.title("product"), accumulate, left.code, right.code, epilogue, params, left.fast, right.fast, batched
    )
    return ContractionParts(spec, roles.extents, left.strides, right.strides, integers)


def product_launches(request: KernelRequest, machine) -> list[Launch]:
    """The launches of a fused computation with one contraction in normal form: packing, products, and what joins parts
    of sums."""
    (dot,) = [i for i in request.computation.instructions if i.opcode in ("dot", "convolution")]
    if dot.opcode == "dot":
        parts = dot_parts(request, dot)
    else:
        parts = convolution_parts(request, dot, machine)
    kernels = render(parts.spec, machine, parts.extents)
    stays = request.stays(dot.operands[1])
    steps = step_plan(kernels, *parts.extents, parts.lhs_strides, parts.rhs_strides, stays)
    return [launch_of_step(kernels, step, parts.integers) for step in steps]


def launch_of_step(kernels: ContractionKernels, step: Step, integers: dict[str, int], rename=str) -> Launch:
    """The launch of one step. integers: values of the texts' own parameters. rename(temporary) -> its name."""
    arguments: list[Argument] = []
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
