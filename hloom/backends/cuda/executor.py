"""A GPU's part of a program on several devices, driven by the host (`segments.py`).

Segments are programs for the GPU (graphs). Values that a CPU sends or reads go through the buffer of their channel in
the host's memory; values for another GPU are copied there directly, on its stream. In a loop that sends or receives the
host runs segment after segment; it counts the steps, or reads the condition in between. Arguments and results that are
on the GPU stay there, and values that nothing reads any more are overwritten.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.backends.cuda.devices import cuda_device
from hloom.backends.cuda.spmd.messages import GpuLink
from hloom.backends.cuda.walk import Walk, Walking, compile_segments, finished, follow_memory
from hloom.backends.host_channels import STRAIGHT, Ended, HostChannels, held_in_bodies, places_of
from hloom.backends.segments import Transfer, whole
from hloom.ir.module import Instruction
from hloom.ir.ops.programs.transfer import TRANSFERS
from hloom.ir.records import field, record
from hloom.platforms.backend import ExecutorRequest, SendRecvChannel, added
from hloom.platforms.names import parse_device_name
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.peers import receive


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
        self.kept: frozenset[int] | None = frozenset(self.request.outputs)
        self.level = whole(self.module, self.request.donated)
        self.receivers = {number: _receivers(channel) for number, channel in self.request.channels.items()}
        self._segments = list(self.level.segments())
        self._aliases: dict = {}

    def uses(self, channel: int) -> bool:
        """Whether it sends or receives through a channel."""
        return any(
            i.attributes.get("channel_id") == channel for i in self.module.instructions() if i.opcode in TRANSFERS
        )

    def aliases(self) -> dict:
        """None: the values that it sends are copied to the buffers of their channels."""
        return {}

    def held(self) -> dict[int, int]:
        return held_in_bodies(self.module)

    def resolve(self, aliases: dict) -> None:
        """Compiles the segments. aliases: of all executors."""
        self._aliases = aliases
        self.kernels_compiled, timings = compile_segments(self._segments, self.arch, self.request.fusion)
        self.timings = added(timings)
        self.donated = self._donated()

    def _donated(self) -> dict[int, int]:
        """The results that are computed in the memory of arguments, directly or through values in between."""
        origin = {p: p["index"] for p in self.module.entry.parameters if p["index"] in self.request.donated}
        follow_memory(self.level, origin)
        pairs = zip(self.request.outputs, self.level.results, strict=True)
        return {number: origin[key] for number, key in pairs if key in origin}

    def places(self) -> set[int]:
        """The buffers that devices other than GPUs read; receivers list those that they write."""
        sent = {i["channel_id"] for i in self.module.instructions() if i.opcode == "send"}
        remote = {number for number, channel in self.request.channels.items() if channel.remote is not None}
        read = {channel for channel in sent - remote if self.receivers[channel].others}
        return {place for place in places_of(read) if place not in self._aliases}

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """As `hloom.runtime.multi_device.HostExecutor.prepare`."""
        device = cuda_device(self.request.index)
        ends = {number: channel.remote for number, channel in self.request.channels.items()}
        links = {number: GpuLink(end, device) for number, end in ends.items() if end is not None and self.uses(number)}
        programs = {id(part): part.compiled.runner.load(device) for part in self._segments}

        def run(*arguments) -> dict[int, DeviceArray] | None:
            channels = HostChannels(self.request, self._aliases, control, state, arguments)
            try:
                return _Run(self, device.open(), programs, channels, handed, links).made()
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


class _Run(Walk):
    """One call."""

    def __init__(self, executor: CudaExecutor, device, programs: dict, channels: HostChannels, handed: dict, links):
        """links: the channels to and from GPUs of other processes."""
        super().__init__(device, programs)
        self.executor, self.channels, self.handed, self.links = executor, channels, handed, links

    def made(self) -> dict[int, DeviceArray]:
        """The executor's results by their numbers."""
        request, level = self.executor.request, self.executor.level
        found = finished(self.results(level, self.arguments(level, self.channels.inputs, request.donated)))
        return {n: DeviceArray(self.device, b, request.results[n]) for n, b in zip(request.outputs, found, strict=True)}

    # --- to and from other devices ---

    def transfer(self, part: Transfer, values: dict, where: str) -> Walking:
        link = self.links.get(part.instruction["channel_id"])
        if link is not None and part.instruction.opcode == "send":
            link.send(*self.taken(part, values))
        elif link is not None:
            label = part.instruction.hint or "a received value"
            values[part.instruction] = link.receive(part.instruction.shape.bytes, label)
        elif part.instruction.opcode == "send":
            self._send(part, values, where)
        else:
            values[part.instruction] = self._received(part.instruction, where)
        yield from ()  # the channels themselves wait

    def _send(self, part: Transfer, values: dict, where: str) -> None:
        (buffer,) = self.taken(part, values)
        channel = part.instruction["channel_id"]
        place = self.channels.next_place(channel, where)
        self.channels.wait_to_send(channel, where)
        receivers = self.executor.receivers[channel]
        for name, index in receivers.gpus.items():
            self.handed[place, name] = receive(cuda_device(index).open(), buffer, self.device)
        if receivers.others:
            self.on_host(buffer, self.channels.memory(channel, place))
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
