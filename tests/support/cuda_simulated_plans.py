"""Kernels of a plan as kernels of the fake driver."""

from fake_cuda_model import FakeKernel, reads, writes

from hloom.compiler.targets.cuda.simulator import simulator
from hloom.ir.types import DTYPES


def sizes_of(plan, source) -> dict[str, int]:
    """Bytes behind each pointer of a text: the most that one of its launches has."""
    result: dict[str, int] = {}
    for step in plan.kernels():
        if step.launch.source == source:
            instruction = step.instruction
            operands = list(instruction.operands)
            operands = operands if instruction.opcode == "fusion" else list(dict.fromkeys(operands))
            shapes = getattr(instruction.shape, "elements", (instruction.shape,))
            pointers = len(source.parameters) - len(source.arguments)
            for parameter, name in zip(source.parameters[:pointers], step.launch.arguments, strict=False):
                if name in step.launch.temporaries:
                    size = step.launch.temporaries[name]
                elif name.startswith("in"):
                    size = operands[int(name[2:])].shape.bytes
                else:
                    size = shapes[int(name.lstrip("outi"))].bytes
                result[parameter] = max(size, result.get(parameter, 0))
    return result


def simulated_kernel(plan, source, title: str) -> FakeKernel:
    pointers = source.parameters[: len(source.params) - len(source.arguments)]
    sizes = sizes_of(plan, source)
    (blocks,) = {s.launch.blocks for s in plan.kernels() if s.launch.source == source}

    def run(fake, *values):
        arrays = {}
        for name, kind, address in zip(pointers, source.params, values, strict=False):
            arrays[name] = fake.view(address, sizes[name], DTYPES[kind.removesuffix("*")])
        integers = dict(zip(source.arguments, values[len(pointers) :], strict=True))
        simulator.run(source, arrays, integers, blocks)

    def accesses(*values):
        made = []
        for name, address in zip(pointers, values, strict=False):
            made.append(reads(address, sizes[name]))
            if not name.startswith("in"):
                made.append(writes(address, sizes[name]))
        return made

    return FakeKernel(title, "p" * len(pointers) + "i" * len(source.arguments), run, accesses)
