"""`cuda:0` ... as a kind of device: which there are, and their parts of programs that run on several devices.

A part is cut into stretches without sends and receives, each a program for the GPU (a graph). Between them values go
through the host's memory: what was received is copied to the GPU, what is sent is copied into the place of its channel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.devices.costs import DeviceModel, Link
from hloom.device_kinds import DeviceKind, LaneRequest, added
from hloom.errors import DeviceError
from hloom.host_channels import Ended, HostChannels
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.transfer import TRANSFERS
from hloom.ir.records import field, record
from hloom.ir.types import Shape


class CudaKind(DeviceKind):
    """NVIDIA GPUs, by the driver's numbers."""

    name = "cuda"
    model = DeviceModel(flops=2e13, bytes=2e12, start=4e-6)
    to_host = Link(seconds=1.5e-5, bytes=2e10)

    def __init__(self):
        self._found: list | None = None
        self._reason = ""

    def _gpus(self) -> list:
        if self._found is None:
            from hloom.runtime.cuda.discovery import gpus
            from hloom.runtime.cuda.errors import CudaError

            try:
                self._found = gpus()
            except CudaError as error:
                self._found, self._reason = [], f"no GPU: {error.found}"
        return self._found

    def count(self) -> int:
        return len(self._gpus())

    def reason(self) -> str:
        self._gpus()
        return self._reason

    def arch(self, index: int) -> str:
        """The architecture of a GPU, such as 'sm_90'."""
        return self._gpus()[index].arch

    def has_kernel(self, instruction: Instruction) -> bool:
        from hloom.compiler.targets.cuda.linear_algebra import has_routine
        from hloom.compiler.targets.cuda.target import has_cuda_kernel

        if has_routine(instruction):
            from hloom.cuda_libraries import has_solver

            return has_solver()
        return instruction.opcode == "custom-call" or has_cuda_kernel(instruction)

    def lane(self, request: LaneRequest) -> CudaLane:
        return CudaLane(request, self.arch(request.index))


@record
class Stretch:
    """Instructions between transfers as a program. given, made: what it takes and what others need of it."""

    given: list[Instruction]
    made: list[Instruction]
    module: Module
    compiled: object = None


@record
class CudaLane:
    """A GPU's part of a program."""

    request: LaneRequest
    arch: str
    donated: dict[int, int] = field(default_factory=dict)
    kernels_compiled: int = 0
    timings: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        self.name, self.module = self.request.device, self.request.module
        _check_transfers(self.module.entry, self.name)
        self.parts = _stretches(self.module)
        self._aliases: dict = {}

    def aliases(self) -> dict:
        """None: what it sends is copied to the place of the channel."""
        return {}

    def held(self) -> dict[int, int]:
        return {}

    def resolve(self, aliases: dict) -> None:
        """Compiles the stretches. aliases: of all lanes."""
        from hloom.cuda_compilation import compile_for_cuda

        self._aliases = aliases
        for part in self.parts:
            if isinstance(part, Stretch):
                part.compiled = compile_for_cuda(part.module, self.arch, fusion=self.request.fusion)
                self.kernels_compiled += part.compiled.kernels_compiled
                self.timings = added([self.timings, part.compiled.timings])

    def places(self) -> set[int]:
        numbers = {2 * i["channel_id"] for i in self.module.entry.instructions if i.opcode in TRANSFERS}
        return numbers - set(self._aliases)

    def prepare(self, control: np.ndarray, state: np.ndarray) -> Callable:
        """As `hloom.runtime.lanes.Lane.prepare`."""
        from hloom.cuda_compilation import cuda_device

        device = cuda_device(self.request.index)
        programs = {id(p): p.compiled.executable.load(device) for p in self.parts if isinstance(p, Stretch)}

        def run(*arguments) -> None:
            channels = HostChannels(self.request, self._aliases, control, state, arguments)
            try:
                self._run(device.open(), programs, channels)
            except Ended:
                return

        return run

    def _run(self, device, programs: dict, channels: HostChannels) -> None:
        buffers: dict[Instruction, object] = {}

        def buffer(value: Instruction):
            if value not in buffers:  # an argument
                buffers[value] = device.put(np.ascontiguousarray(channels.inputs[value["index"]]), value.hint)
            return buffers[value]

        for part in self.parts:
            if isinstance(part, Stretch):
                made = programs[id(part)]([buffer(v) for v in part.given])
                buffers |= dict(zip(part.made, made, strict=True))
            elif part.opcode == "recv":
                received = channels.receive(part["channel_id"])
                buffers[part] = device.put(received, part.hint or "a received value")
            else:
                (value,) = part.operands
                place = channels.to_send(part["channel_id"])
                device.get(buffer(value), place).result()
                channels.sent(part["channel_id"])
        outputs = zip(self.request.outputs, self.module.entry.outputs(), strict=True)
        under_way = [device.get(buffer(value), channels.outputs[number]) for number, value in outputs]
        for download in under_way:
            download.result()

    # --- looking in ---

    def source(self) -> str:
        return "\n\n".join(p.compiled.source() for p in self.parts if isinstance(p, Stretch))

    def cost_analysis(self) -> dict[str, float]:
        return added(p.compiled.cost_analysis() for p in self.parts if isinstance(p, Stretch))

    def memory_analysis(self) -> dict[str, int]:
        return added(p.compiled.memory_analysis() for p in self.parts if isinstance(p, Stretch))


def _check_transfers(entry: Computation, device: str) -> None:
    """Raises DeviceError for a loop or branch that sends or receives in its steps."""
    for instruction in entry.instructions:
        if _transfers_inside(instruction):
            raise DeviceError(
                f"a {instruction.opcode} has work on {device} and on other devices",
                "a GPU exchanges values with other devices before and after loops and branches, not in them",
                "put all of its body on one device, or write the steps out",
                instruction.source,
            )


def _transfers_inside(instruction: Instruction) -> bool:
    return any(i.opcode in TRANSFERS or _transfers_inside(i) for c in instruction.called() for i in c.instructions)


def _stretches(module: Module) -> list[Stretch | Instruction]:
    """The work in order: stretches, sends and receives. (A partition takes tuples apart where they are made.)"""
    entry = module.entry
    parts: list[list[Instruction] | Instruction] = []
    current: list[Instruction] = []
    for instruction in entry.instructions:
        if instruction.opcode == "parameter" or instruction is entry.root:
            continue
        if instruction.opcode in TRANSFERS:
            if current:
                parts.append(current)
                current = []
            parts.append(instruction)
        else:
            current.append(instruction)
    if current:
        parts.append(current)
    needed: dict[Instruction, int] = {o: len(parts) for o in entry.outputs()}
    for number, part in enumerate(parts):
        for instruction in part if isinstance(part, list) else [part]:
            for operand in instruction.operands:
                needed[operand] = max(needed.get(operand, 0), number)
    result: list[Stretch | Instruction] = []
    for number, part in enumerate(parts):
        if isinstance(part, Instruction):
            result.append(part)
            continue
        inside = set(part)
        given = list(dict.fromkeys(o for i in part for o in i.operands if o not in inside))
        made = [i for i in part if needed.get(i, -1) > number and isinstance(i.shape, Shape)]
        if made:
            result.append(Stretch(given, made, Module(f"{module.name}_{number}", _computation(given, part, made))))
    return result


def _computation(given: list[Instruction], part: list[Instruction], made: list[Instruction]) -> Computation:
    builder = Builder("stretch")
    mapped = {value: builder.parameter(value.shape, value.hint, value.source) for value in given}
    for instruction in part:
        operands = tuple(mapped[o] for o in instruction.operands)
        mapped[instruction] = builder.add(instruction.with_operands(operands))
    return builder.finish(builder.tuple([mapped[v] for v in made]))
