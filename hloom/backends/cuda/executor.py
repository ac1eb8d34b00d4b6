"""A GPU's part of a program on several devices, driven by the host (`segments.py`).

Segments are programs for the GPU (graphs). Values that a CPU sends or reads go through the buffer of their channel in
the host's memory; values for another GPU are copied there directly, on its stream. In a loop that sends or receives the
host runs segment after segment; it counts the steps, or reads the condition in between. Arguments and results that are
on the GPU stay there, and values that nothing reads any more are overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from hloom.backends.cuda.compilation import compile_for_cuda
from hloom.backends.cuda.devices import cuda_device
from hloom.backends.host_channels import BODY, BRANCH, STRAIGHT, Ended, HostChannels, held_in_bodies, places_of
from hloom.backends.segments import Choice, Count, Level, Loop, Segment, Transfer, counted, whole
from hloom.ir.module import Instruction
from hloom.ir.records import field, record
from hloom.platforms.backend import ExecutorRequest, SendRecvChannel, added
from hloom.platforms.names import parse_device_name
from hloom.runtime.buffer import references
from hloom.runtime.cuda.array import DeviceArray


@record(frozen=True)
class Receivers:
    """The devices that read a channel. gpus: indices by name. others: whether there are other devices, too."""

    gpus: dict[str, int]
    others: bool


def _receivers(channel: SendRecvChannel) -> Receivers:
    names = {name: parse_device_name(name) for name in channel.words.freed}
    gpus = {name: parsed.index for name, parsed in names.items() if parsed.kind == "cuda"}
    return Receivers(gpus, len(gpus) < len(names))


@record
class CudaExecutor:
    """The executor of a GPU. kept: the numbers of its results, which stay there."""

    request: ExecutorRequest
    arch: str
    donated: dict[int, int] = field(default_factory=dict)
    kernels_compiled: int = 0
    timings: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        self.name, self.module = self.request.device, self.request.module
        self.kept = frozenset(self.request.outputs)
        self.level = whole(self.module, self.request.donated)
        self.receivers = {number: _receivers(channel) for number, channel in self.request.channels.items()}
        self._segments = list(self.level.segments())
        self._aliases: dict = {}

    def aliases(self) -> dict:
        """None: the values that it sends are copied to the buffers of their channels."""
        return {}

    def held(self) -> dict[int, int]:
        return held_in_bodies(self.module)

    def resolve(self, aliases: dict) -> None:
        """Compiles the segments. aliases: of all executors."""
        self._aliases = aliases
        for part in self._segments:
            part.compiled = compile_for_cuda(part.module, self.arch, fusion=self.request.fusion, donated=part.dying)
            self.kernels_compiled += part.compiled.kernels_compiled
            self.timings = added([self.timings, part.compiled.timings])
        self.donated = self._donated()

    def _donated(self) -> dict[int, int]:
        """The results that are computed in the memory of arguments, directly or through values in between."""
        origin = {p: p["index"] for p in self.module.entry.parameters if p["index"] in self.request.donated}
        _follow_memory(self.level, origin)
        pairs = zip(self.request.outputs, self.level.results, strict=True)
        return {number: origin[key] for number, key in pairs if key in origin}

    def places(self) -> set[int]:
        """The buffers that devices other than GPUs read; receivers list those that they write."""
        sent = {i["channel_id"] for i in self.module.instructions() if i.opcode == "send"}
        read = {channel for channel in sent if self.receivers[channel].others}
        return {place for place in places_of(read) if place not in self._aliases}

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """As `hloom.runtime.multi_device.HostExecutor.prepare`."""
        device = cuda_device(self.request.index)
        programs = {id(part): part.compiled.runner.load(device) for part in self._segments}

        def run(*arguments) -> dict[int, DeviceArray] | None:
            channels = HostChannels(self.request, self._aliases, control, state, arguments)
            try:
                return _Run(self, device.open(), programs, channels, handed).results()
            except Ended:
                return None

        return run

    # --- introspection ---

    def source(self) -> str:
        return "\n\n".join(part.compiled.source() for part in self._segments)

    def cost_analysis(self) -> dict[str, float]:
        return added(part.compiled.cost_analysis() for part in self._segments)

    def memory_analysis(self) -> dict[str, int]:
        return added(part.compiled.memory_analysis() for part in self._segments)


def _follow_memory(level: Level, origin: dict) -> None:
    """Adds the values of a level that reuse the memory of others. origin: whose memory a value has."""
    for part in level.parts:
        if isinstance(part, Segment):
            for number, argument in part.compiled.donated.items():
                if part.given[argument] in origin:
                    origin[part.made[number]] = origin[part.given[argument]]
        elif isinstance(part, Loop):
            inner = {key: k for k, key in enumerate(part.body.parameters)}
            _follow_memory(part.body, inner)
            for k, (given, result) in enumerate(zip(part.given, part.body.results, strict=True)):
                if inner.get(result) == k and given in part.last and given in origin:
                    origin[part.instruction, k] = origin[given]


class _Run:
    """One call.

    A value is the buffer of its key. Dying values are removed from the `values` of their level first, so that nothing
    else refers to a buffer that a segment may overwrite.
    """

    def __init__(self, executor: CudaExecutor, device, programs: dict, channels: HostChannels, handed: dict):
        self.executor, self.device, self.programs = executor, device, programs
        self.channels, self.handed = channels, handed

    def results(self) -> dict[int, DeviceArray]:
        """The executor's results by their numbers."""
        request = self.executor.request
        made = self._level(self.executor.level, self._arguments(), STRAIGHT)
        found = {}
        for position, number in enumerate(request.outputs):
            if references(made, position) > 1:  # an argument as it is, or one result twice
                made[position] = self.device.copy(made[position])
            found[number] = DeviceArray(self.device, made[position], request.results[number])
        return found

    def _arguments(self) -> dict:
        """The arguments that are used, on the GPU."""
        values, waiting = {}, []
        level, inputs = self.executor.level, self.channels.inputs
        used = {key for part in level.parts for key in part.given} | set(level.results)
        for parameter in level.parameters:
            given = inputs[parameter["index"]]
            if parameter not in used:
                continue
            if isinstance(given, DeviceArray):
                donated = parameter["index"] in self.executor.request.donated
                values[parameter] = given.donate_buffer() if donated else given.buffer
            else:
                waiting.append(parameter)
        labels = [p.hint or "an argument" for p in waiting]
        return values | dict(
            zip(waiting, self.device.put_all([inputs[p["index"]] for p in waiting], labels), strict=True)
        )

    def _level(self, level: Level, values: dict, where: str) -> list:
        """The results of a computation. values: its parameters' buffers."""
        for part in level.parts:
            if isinstance(part, Segment):
                self._segment(part, values)
            elif isinstance(part, Loop):
                self._loop(part, values)
            elif isinstance(part, Choice):
                self._choice(part, values, where)
            elif part.instruction.opcode == "send":
                self._send(part, values, where)
            else:
                values[part.instruction] = self._received(part.instruction, where)
        return [values[key] for key in level.results]

    def _segment(self, part: Segment, values: dict) -> None:
        given = [values[key] for key in part.given]
        for position in part.dying:
            del values[part.given[position]]
        for position in part.compiled.donated.values():
            if references(given, position) > 1 or not given[position].owned:
                given[position] = self.device.copy(given[position])
        values.update(zip(part.made, self.programs[id(part)](given), strict=True))

    def _loop(self, part: Loop, values: dict) -> None:
        condition = part.condition
        goes_on: Callable[[list], bool]
        if isinstance(condition, Count):
            steps = counted(condition, [self._first(part.given[k], values) for k in condition.numbers])
            goes_on = lambda state: next(steps)  # noqa: E731
        else:
            goes_on = partial(self._holds, condition)
        state = self._taken(part, values)
        while goes_on(state):
            inner = dict(zip(part.body.parameters, state, strict=True))
            state.clear()
            state = self._level(part.body, inner, BODY)
            inner.clear()
        values.update(((part.instruction, k), buffer) for k, buffer in enumerate(state))

    def _holds(self, condition: Level, state: list) -> bool:
        (pred,) = self._level(condition, dict(zip(condition.parameters, state, strict=True)), BRANCH)
        return bool(self._on_host(pred, np.empty((), np.bool_)))

    def _first(self, key, values: dict) -> np.ndarray:
        """The initial value of an integer of a loop's state, on the host."""
        if isinstance(key, Instruction) and key.opcode == "constant":
            return key["value"]
        shape = key[0].shape.elements[key[1]] if isinstance(key, tuple) else key.shape
        return self._on_host(values[key], np.empty((), shape.dtype))

    def _choice(self, part: Choice, values: dict, where: str) -> None:
        selector, *given = self._taken(part, values)
        number = self._chosen(selector, part)
        branch = part.branches[number]
        before = sum(len(other.parameters) for other in part.branches[:number])
        inner = dict(zip(branch.parameters, given[before:], strict=False))
        made = self._level(branch, inner, STRAIGHT if where == STRAIGHT else BRANCH)
        values.update(((part.instruction, k), buffer) for k, buffer in enumerate(made))

    def _chosen(self, selector, part: Choice) -> int:
        """The index of the branch that a selector names."""
        last = len(part.branches) - 1
        if not last:
            return 0
        chosen = self._on_host(selector, np.empty((), part.instruction.operands[0].shape.dtype))
        if chosen.dtype == np.bool_:
            return 0 if chosen else 1
        return int(chosen) if 0 <= chosen <= last else last

    def _taken(self, part: Loop | Choice | Transfer, values: dict) -> list:
        taken = [values[key] for key in part.given]
        for key in part.last:
            del values[key]
        return taken

    def _on_host(self, buffer, array: np.ndarray) -> np.ndarray:
        return self.device.get(buffer, array).result()

    # --- to and from other devices ---

    def _send(self, part: Transfer, values: dict, where: str) -> None:
        (buffer,) = self._taken(part, values)
        channel = part.instruction["channel_id"]
        place = self.channels.next_place(channel, where)
        self.channels.wait_to_send(channel, where)
        receivers = self.executor.receivers[channel]
        for name, index in receivers.gpus.items():
            self.handed[place, name] = cuda_device(index).open().receive(buffer, self.device)
        if receivers.others:
            self._on_host(buffer, self.channels.memory(channel, place))
        self.channels.sent(channel, where)

    def _received(self, instruction: Instruction, where: str):
        channel = instruction["channel_id"]
        place = self.channels.next_place(channel, where)
        self.channels.wait_to_receive(channel)
        found = self.handed.pop((place, self.executor.name), None)
        if found is None:
            found = self.device.put(self.channels.memory(channel, place), instruction.hint or "a received value")
        if where != STRAIGHT:
            self.channels.free(channel)  # what was received has been copied
        return found
