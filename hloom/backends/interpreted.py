"""A base for kinds of devices that compute op by op: override what computes one instruction.

class CountingKind(InterpretedKind):
    name = "counting"
    def count(self): return 1
    def compute(self, instruction, operands):
        self.computed[instruction.opcode] += 1
        return super().compute(instruction, operands)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.backends.host_channels import BODY, BRANCH, STRAIGHT, Ended, HostChannels, held_in_bodies, places_of
from hloom.compiler.analysis import bytes_accessed, computation_flops, transcendentals
from hloom.ir.interpret import evaluate_instruction
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops.programs.transfer import TRANSFERS
from hloom.platforms.backend import ExecutorRequest
from hloom.platforms.kinds import DeviceKind


class InterpretedKind(DeviceKind):
    """A kind whose devices compute with NumPy, one instruction after another, in the host's memory."""

    host_memory = True

    def compute(self, instruction: Instruction, operands: list):
        """The value of an instruction: an array, or a tuple of arrays. Operands likewise."""
        return evaluate_instruction(instruction, operands)

    def executor(self, request: ExecutorRequest) -> InterpretedExecutor:
        return InterpretedExecutor(self, request)


class InterpretedExecutor:
    """A part of a program that its kind computes one instruction after another."""

    donated: dict[int, int] = {}
    kept: frozenset[int] | None = None
    kernels_compiled = 0

    def __init__(self, kind: InterpretedKind, request: ExecutorRequest):
        self.kind, self.request, self.name, self.module = kind, request, request.device, request.module
        self.timings: dict[str, float] = {}

    def aliases(self) -> dict:
        """None: the values that it sends are copied to the buffers of their channels."""
        return {}

    def resolve(self, aliases: dict) -> None:
        self._aliases = aliases

    def places(self) -> set[int]:
        used = {i["channel_id"] for i in self.module.instructions() if i.opcode in TRANSFERS}
        return {place for place in places_of(used) if place not in self._aliases}

    def held(self) -> dict[int, int]:
        return held_in_bodies(self.module)

    def source(self) -> str:
        return "# computed op by op\n"

    def cost_analysis(self) -> dict[str, float]:
        entry = self.module.entry
        found = {"flops": computation_flops(entry), "transcendentals": transcendentals(entry)}
        return found | {"bytes accessed": float(bytes_accessed(self.module))}

    def memory_analysis(self) -> dict[str, int]:
        return {"output bytes": sum(o.shape.bytes for o in self.module.entry.outputs())}

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """As `hloom.runtime.multi_device.HostExecutor.prepare`."""

        def run(*arguments) -> None:
            _Run(self, self._aliases, control, state, arguments).run()

        return run


class _Run:
    """One call."""

    def __init__(self, executor: InterpretedExecutor, aliases, control, state, arguments):
        self.executor = executor
        self.channels = HostChannels(executor.request, aliases, control, state, arguments)

    def run(self) -> None:
        entry = self.executor.module.entry
        try:
            results = self.computation(entry, [np.asarray(x) for x in self.channels.inputs], STRAIGHT)
        except Ended:
            return
        for number, value in zip(self.executor.request.outputs, results, strict=True):
            self.channels.outputs[number][...] = value

    def computation(self, computation: Computation, arguments, where: str):
        """where: as of HostChannels."""
        values: dict[Instruction, object] = dict(zip(computation.parameters, arguments, strict=True))
        received: list[int] = []
        for instruction in computation.instructions:
            if instruction not in values:
                operands = [values[o] for o in instruction.operands]
                values[instruction] = self.instruction(instruction, operands, where, received)
        result = values[computation.root]
        for channel in received:
            self.channels.free(channel)
        return result

    def instruction(self, instruction: Instruction, operands, where: str, received: list[int]):
        opcode = instruction.opcode
        if opcode == "send":
            self.channels.send(instruction["channel_id"], operands[0], where)
            return ()
        if opcode == "recv":
            if where != STRAIGHT:
                received.append(instruction["channel_id"])
            return self.channels.receive(instruction["channel_id"], where).copy()
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            return operands[0][instruction["index"]]
        if opcode == "while":
            state = operands[0]
            while bool(self.computation(instruction["condition"], [state], BRANCH)):
                state = self.computation(instruction["body"], [state], BODY)
            return state
        if opcode == "conditional":
            branches = instruction["branch_computations"]
            index = int(operands[0])
            if operands[0].dtype == bool:
                index = 0 if index else 1
            index = index if 0 <= index < len(branches) else len(branches) - 1
            inner = STRAIGHT if where == STRAIGHT else BRANCH
            return self.computation(branches[index], [operands[1 + index]], inner)
        return self.executor.kind.compute(instruction, operands)
