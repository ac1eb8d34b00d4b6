"""A task's part of a program: compiled where it runs, executed between its sends and receives."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from hloom.backends.segments import Choice, Count, Level, Loop, Segment, Transfer, counted, whole
from hloom.compiler.placement.partition import Key
from hloom.compiler.placement.user_devices import chosen_devices
from hloom.config import config
from hloom.errors import ArgumentError
from hloom.ir.module import Instruction, Module, below
from hloom.ir.source import on_device
from hloom.ir.text import parse_module
from hloom.ir.types import Shape
from hloom.ir.verify import verify
from hloom.platforms.backend import CompileOptions, Executable
from hloom.platforms.device import default_device, find_device
from hloom.platforms.kinds import MULTI_DEVICE, load_backend
from hloom.platforms.names import DeviceName, parse_device_name


def part_handle(text: bytes, channels: Mapping[str, Mapping]) -> str:
    """The key of a part on a server. Parts with the same text differ in the receivers of their messages."""
    ends = json.dumps(channels, sort_keys=True).encode()
    return hashlib.sha256(hashlib.sha256(text).digest() + ends).hexdigest()


class Transport(Protocol):
    """How a part sends and receives. step: in a loop, the number of the value of this channel."""

    def send(self, channel: int, step: int, value: np.ndarray) -> None: ...

    def receive(self, channel: int, step: int) -> np.ndarray: ...


class NoTransfers:
    """The transport of programs that run on one server: the updates of its variables."""

    def send(self, channel: int, step: int, value: np.ndarray) -> None:
        raise ArgumentError("the update of variables", "it sends to other tasks", "let it compute on one device")

    def receive(self, channel: int, step: int) -> np.ndarray:
        raise ArgumentError("the update of variables", "it receives from others", "let it compute on one device")


def read_part(text: str) -> Module:
    """The module of a part's text, for the devices of this process. Raises ParseError, VerifyError, DeviceError."""
    module = parse_module(text, "<a part of a program>")
    verify(module)
    for instruction in below(module.entry.instructions):
        if instruction.device:
            name = parse_device_name(instruction.device)
            # The task's own, whatever other names this process knows: the partition put the instruction here.
            found = find_device(str(DeviceName(name.kind, name.index)))
            instruction.source = on_device(instruction.source, str(found))
    return module


class Part:
    """A part of a program, compiled."""

    def __init__(self, module: Module):
        self.level = whole(module, frozenset())
        self.parameters = [p.shape for p in module.entry.parameters]
        self.results = [o.shape for o in module.entry.outputs()]
        self.name = module.name
        self._lock = threading.Lock()
        self._runners: dict[int, Callable[[Sequence], list]] = {}
        for segment in self.level.segments():
            segment.compiled = _compiled(segment.module)

    def segment(self, segment: Segment, values: list[np.ndarray]) -> list[np.ndarray]:
        with self._lock:  # a program has one arena: calls of several clients go one after the other
            found = segment.compiled(values)
        return [value if isinstance(value, np.ndarray) else value.numpy() for value in found]

    def check(self, number: int, value: np.ndarray) -> None:
        """Raises ArgumentError if an argument does not match the compiled part."""
        want = self.parameters[number]
        if tuple(value.shape) != tuple(want.dims) or value.dtype != want.dtype:
            raise ArgumentError(
                f"argument {number} of '{self.name}' is {want!r}",
                f"{value.dtype}{list(value.shape)}",
                "send arguments that the program was compiled for",
            )

    def run(self, arguments: Sequence[np.ndarray | None], transport: Transport) -> list[np.ndarray]:
        """The results. Raises the errors of the transport."""
        for number, value in enumerate(arguments):
            if value is not None:
                self.check(number, value)
        return _Run(self, transport).level(self.level, arguments)  # type: ignore[arg-type]  # None is never read


def _compiled(module: Module) -> Executable:
    """One segment compiled for the devices that it names."""
    named = chosen_devices(module.entry)
    home = find_device(named[0]) if len(named) == 1 else default_device()
    backend = home.kind_object.backend if len(named) <= 1 else load_backend(MULTI_DEVICE)
    with config(log_device_placement=False):  # the client has printed it
        return backend.compile(module, CompileOptions(str(home)))


class _Run:
    """One call of a part."""

    def __init__(self, part: Part, transport: Transport):
        self.part, self.transport = part, transport
        self.steps: dict[int, int] = {}  # values of a channel so far

    def level(self, level: Level, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        values: dict[Key, np.ndarray] = dict(zip(level.parameters, arguments, strict=True))
        for part in level.parts:
            if isinstance(part, Segment):
                made = self.part.segment(part, [values[key] for key in part.given])
                values.update(zip(part.made, made, strict=True))
            elif isinstance(part, Transfer):
                self._transfer(part, values)
            elif isinstance(part, Loop):
                self._loop(part, values)
            else:
                self._choice(part, values)
        return [values[key] for key in level.results]

    def _transfer(self, part: Transfer, values: dict) -> None:
        instruction = part.instruction
        channel = instruction["channel_id"]
        step = self.steps[channel] = self.steps.get(channel, -1) + 1
        if instruction.opcode == "send":
            self.transport.send(channel, step, values[part.given[0]])
        else:
            values[instruction] = self.transport.receive(channel, step)

    def _loop(self, part: Loop, values: dict) -> None:
        condition = part.condition
        state = [values[key] for key in part.given]
        steps: Iterator[bool] | None = None
        if isinstance(condition, Count):
            steps = counted(condition, [_number(part.given[k], state[k]) for k in condition.numbers])
        while next(steps) if steps is not None else self._holds(condition, state):
            state = self.level(part.body, state)
        values.update(((part.instruction, k), value) for k, value in enumerate(state))

    def _holds(self, condition: Level | Count, state: list[np.ndarray]) -> bool:
        assert isinstance(condition, Level)
        return bool(self.level(condition, state)[0])

    def _choice(self, part: Choice, values: dict) -> None:
        selector, *given = (values[key] for key in part.given)
        last = len(part.branches) - 1
        number = (0 if selector else 1) if selector.dtype == np.bool_ else int(selector)
        number = number if 0 <= number <= last else last
        before = sum(len(other.parameters) for other in part.branches[:number])
        branch = part.branches[number]
        made = self.level(branch, given[before : before + len(branch.parameters)])
        if isinstance(part.instruction.shape, Shape):
            values[part.instruction] = made[0]
        else:
            values.update(((part.instruction, k), value) for k, value in enumerate(made))


def _number(key: Key, value: np.ndarray) -> np.ndarray:
    return key["value"] if isinstance(key, Instruction) and key.opcode == "constant" else np.asarray(value)


__all__ = ["NoTransfers", "Part", "Transport", "part_handle", "read_part"]
