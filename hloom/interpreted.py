"""A base for kinds of devices that compute op by op: give it what computes one instruction.

class CountingKind(InterpretedKind):
    name = "counting"
    def count(self): return 1
    def compute(self, instruction, operands):
        self.computed[instruction.opcode] += 1
        return super().compute(instruction, operands)
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np

from hloom.compiler.analysis import bytes_accessed, computation_flops
from hloom.device_kinds import DeviceKind, LaneRequest
from hloom.ir.interpret import evaluate_instruction
from hloom.ir.module import Computation, Instruction
from hloom.ir.types import Shape

LONG = 1000  # looks at a count after which a waiting lane sleeps between them


class InterpretedKind(DeviceKind):
    """A kind whose devices compute with NumPy, an instruction after the other, in the host's memory."""

    host_memory = True

    def compute(self, instruction: Instruction, operands: list):
        """The value of an instruction: an array, or a tuple of arrays. Operands likewise."""
        return evaluate_instruction(instruction, operands)

    def lane(self, request: LaneRequest) -> InterpretedLane:
        return InterpretedLane(self, request)


class InterpretedLane:
    """A part of a program that its kind computes instruction by instruction."""

    donated: dict[int, int] = {}
    kernels_compiled = 0

    def __init__(self, kind: InterpretedKind, request: LaneRequest):
        self.kind, self.request, self.name, self.module = kind, request, request.device, request.module
        self.timings: dict[str, float] = {}

    def aliases(self) -> dict:
        """None: what it sends is copied to the place of the channel."""
        return {}

    def resolve(self, aliases: dict) -> None:
        self._aliases = aliases

    def places(self) -> set[int]:
        found = set()
        for computation in self.module.computations():
            for i in computation.instructions:
                if i.opcode in ("send", "recv"):
                    found |= {2 * i["channel_id"], 2 * i["channel_id"] + 1}
        return {p for p in found if p not in self._aliases}

    def held(self) -> dict[int, int]:
        bodies = [c for i in self.module.instructions() if i.opcode == "while" for c in (i["body"],)]
        return {i["channel_id"]: 1 for body in bodies for i in body.instructions if i.opcode == "send"}

    def source(self) -> str:
        return "# computed op by op\n"

    def cost_analysis(self) -> dict[str, float]:
        return {"flops": computation_flops(self.module.entry), "bytes accessed": float(bytes_accessed(self.module))}

    def memory_analysis(self) -> dict[str, int]:
        return {"output bytes": sum(o.shape.bytes for o in self.module.entry.outputs())}

    def prepare(self, control: np.ndarray, state: np.ndarray) -> Callable:
        """As `hloom.runtime.lanes.Lane.prepare`."""

        def run(*arguments) -> None:
            _Run(self, self._aliases, control, state, arguments).run()

        return run


class _Ended(Exception):
    """Another lane has failed."""


class _Run:
    """One call."""

    def __init__(self, lane: InterpretedLane, aliases, control, state, arguments):
        self.lane, self.aliases, self.control, self.state = lane, aliases, control, state
        request = lane.request
        inputs, outputs = len(request.inputs), len(request.results)
        self.inputs, self.outputs = arguments[:inputs], arguments[inputs : inputs + outputs]
        self.channels = arguments[inputs + outputs :]
        self.count: dict[int, int] = {}  # messages of a channel that is used in a loop's body

    def run(self) -> None:
        entry = self.lane.module.entry
        try:
            results = self.computation(entry, [np.asarray(x) for x in self.inputs], "straight")
        except _Ended:
            return
        for number, value in zip(self.lane.request.outputs, results, strict=True):
            self.outputs[number][...] = value

    def computation(self, computation: Computation, arguments, where: str):
        """where: 'straight' (runs at most once), 'body' (of a loop), 'branch' (of a loop's step, or its condition)."""
        values: dict[Instruction, object] = dict(zip(computation.parameters, arguments, strict=True))
        received: list[int] = []
        for instruction in computation.instructions:
            if instruction not in values:
                operands = [values[o] for o in instruction.operands]
                values[instruction] = self.instruction(instruction, operands, where, received)
        result = values[computation.root]
        for channel in received:
            self.add(self.ends(channel).words.freed[self.lane.name])
        return result

    def instruction(self, instruction: Instruction, operands, where: str, received: list[int]):
        opcode = instruction.opcode
        if opcode == "send":
            return self.send(instruction["channel_id"], operands[0], where)
        if opcode == "recv":
            if where != "straight":
                received.append(instruction["channel_id"])
            return self.receive(instruction["channel_id"], where)
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            return operands[0][instruction["index"]]
        if opcode == "while":
            state = operands[0]
            while bool(self.computation(instruction["condition"], [state], "branch")):
                state = self.computation(instruction["body"], [state], "body")
            return state
        if opcode == "conditional":
            branches = instruction["branch_computations"]
            index = int(operands[0])
            if operands[0].dtype == bool:
                index = 0 if index else 1
            index = index if 0 <= index < len(branches) else len(branches) - 1
            inner = "straight" if where == "straight" else "branch"
            return self.computation(branches[index], [operands[1 + index]], inner)
        return self.lane.kind.compute(instruction, operands)

    # --- channels ---

    def ends(self, channel: int):
        return self.lane.request.channels[channel]

    def add(self, word: int) -> None:
        self.control[word] += 1  # no other lane writes this word

    def wait(self, first: int, second: int) -> None:
        turns = 0
        while self.control[first] < self.control[second]:
            if not self.state[0]:
                raise _Ended
            turns += 1
            time.sleep(0 if turns < LONG else 50e-6)

    def place(self, channel: int, where: str, shape: Shape) -> np.ndarray:
        number = 2 * channel
        if where == "body":
            number += self.count.get(channel, 0) % 2
            self.count[channel] = self.count.get(channel, 0) + 1
        found = self.aliases.get(number)
        while found is not None and found.kind == "channel":
            number = found.number
            found = self.aliases.get(number)
        if found is not None:
            return (self.outputs if found.kind == "output" else self.inputs)[found.number].reshape(shape.dims)
        if not shape.bytes:
            return np.zeros(shape.dims, shape.dtype)
        memory = np.frombuffer((ctypes.c_uint8 * shape.bytes).from_address(self.channels[number]), np.uint8)
        return memory.view(shape.dtype).reshape(shape.dims)

    def send(self, channel: int, value, where: str) -> tuple:
        ends = self.ends(channel)
        if where != "straight":
            for freed in ends.words.freed.values():
                self.wait(freed, ends.words.allowance)
        self.place(channel, where, ends.shape)[...] = value
        self.add(ends.words.sent)
        if where != "straight":
            self.add(ends.words.allowance)
        return ()

    def receive(self, channel: int, where: str) -> np.ndarray:
        ends = self.ends(channel)
        wanted = ends.words.wanted[self.lane.name]
        self.add(wanted)
        self.wait(ends.words.sent, wanted)
        return self.place(channel, where, ends.shape).copy()
