"""The devices of a program that runs in several processes: the local ones, and the connections to the others."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hloom import distributed
from hloom.arrays.sharded import RemoteData
from hloom.backends.cpu.driver import load_functions
from hloom.compiler.placement.partition import Channel, Partition
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import MessagesStep
from hloom.errors import DeviceError, DistributedError
from hloom.ir.module import Instruction, Module
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.ir.text import print_module
from hloom.platforms.backend import RemoteEnd
from hloom.platforms.device import Device, find_device
from hloom.platforms.names import parse_device_name
from hloom.platforms.processes import processes
from hloom.runtime.distributed.messages import FUNCTIONS, TAGS, Message, Others, Transport
from hloom.runtime.multi_device import MultiDeviceProgram


@record(frozen=True)
class Placement:
    """Where the devices of a program are. processes: of each device its process. own: the numbers of those of this
    process; indices: of each of these its number among the process's devices."""

    processes: tuple[int, ...]
    own: tuple[int, ...]
    indices: tuple[int, ...]

    @property
    def is_spread(self) -> bool:
        """Whether there are devices of several processes."""
        return len(self.own) < len(self.processes)


def placement_of(devices: Sequence[str]) -> Placement:
    """Of the names of devices."""
    here = processes().index
    names = [parse_device_name(device) for device in devices]
    found = tuple(
        here if name.job is name.task is None else process_of(device)
        for name, device in zip(names, devices, strict=True)
    )
    own = tuple(k for k, process in enumerate(found) if process == here)
    return Placement(found, own, tuple(names[k].index for k in own))


@functools.cache
def _entries() -> dict[str, int]:
    return load_functions(FUNCTIONS)


def others_of(placement: Placement, module: Module) -> Others | None:
    """The connection to the devices of other processes; None if there are none. Every process calls this.

    Raises DistributedError if processes are about to run different programs, or if one is missing.
    """
    if not placement.is_spread:
        return None
    text, group = print_module(module), distributed.group()
    distributed.same_program(module.name, text, sorted(set(placement.processes)))
    base = group.tags(module.name, hashlib.sha256(text.encode()).digest())
    return Others(group.transport(_entries()), placement.processes, base)


def failed_message(plan: Plan, device: int, step: int, failure: Message | int) -> DistributedError:
    """The error for a message of a step that did not come, or that MPI refused."""
    item = plan.steps[step]
    assert isinstance(item, MessagesStep)
    asked = f"{item.instruction.opcode} of device {device} with devices of other processes"
    return _failed(asked, failure, item.instruction.source)


def _failed(asked: str, failure: Message | int, source: Source | None) -> DistributedError:
    group = distributed.group()
    if isinstance(failure, int):
        return DistributedError(
            asked,
            f"MPI's error {failure}: {group.error_text(failure)}",
            "run the same program, with arguments of the same shapes, in all processes",
            source,
        )
    verb = "nothing came from" if failure.receives else "nothing was received by"
    found = f"{verb} process {failure.peer} within the time that hl.config.distributed_timeout allows"
    if (other := group.whereabouts(failure.peer, failure.tag)) is not None:
        return DistributedError(
            asked, f"{found}; it is at {other}", "let all processes call the same functions in one order", source
        )
    return DistributedError(
        asked, found, "look at what that process does (py-spy dump --pid), and whether it runs the same program", source
    )


# --- programs whose parts the user placed -------------------------------------------------------------------------


def process_of(device: str) -> int:
    """The number of the process that has a device."""
    return find_device(device).process_index


def apart(a: str, b: str) -> bool:
    """Whether two devices are in different processes."""
    return processes().count > 1 and process_of(a) != process_of(b)


def is_spread(devices: Sequence[str]) -> bool:
    """Whether one of some devices is in another process."""
    return processes().count > 1 and any(process_of(device) != processes().index for device in devices)


def global_name(device: str) -> str:
    """The name of a device that is the same in all processes."""
    return find_device(device).global_name


def global_names(devices: Mapping[Any, str]) -> dict[Any, str]:
    """The same of the devices in a dictionary."""
    known = {device: global_name(device) for device in set(devices.values())}
    return {key: known[device] for key, device in devices.items()}


@record
class Links:
    """The connections to the parts of a program in other processes. base: the first of its messages' tags. channels: by
    number."""

    transport: Transport
    base: int
    channels: Mapping[int, Channel]

    def remote(self, channel: Channel) -> RemoteEnd | None:
        """The other end of a channel, seen from this process; None where both ends are here, or none is."""
        here, (sender, receiver) = processes().index, (process_of(channel.sender), process_of(channel.receivers[0]))
        if sender == receiver or here not in (sender, receiver):
            return None
        peer, tag = receiver if here == sender else sender, self.base + channel.number
        ends = [parse_device_name(device) for device in (channel.sender, channel.receivers[0])]
        if any(end.kind == "cpu" for end in ends):
            return RemoteEnd(peer, tag)
        return RemoteEnd(
            peer, tag, ((sender, ends[0].index), (receiver, ends[1].index)), channel.number,
            f"{channel.shape!r} from {channel.sender} to {channel.receivers[0]}", channel.maker.source,
        )  # fmt: skip

    def require_pairs(self, device: str) -> None:
        """Raises DeviceError where a device that is not a CPU exchanges values with a CPU of another process."""
        for channel in self.channels.values():
            end = self.remote(channel) if device in (channel.sender, *channel.receivers) else None
            if end is not None and not end.gpus:
                raise DeviceError(
                    f"{channel.shape!r} from {channel.sender} to {channel.receivers[0]}",
                    "values go between processes from CPU to CPU, and from GPU to GPU",
                    "move it to the CPU of its process first: hl.device_put(x, '/job:worker/task:0/cpu:0')",
                    channel.maker.source,
                )

    def failed(self, number: int, failure: Message | int) -> DistributedError:
        """The error for a message of a channel that did not come, or that MPI refused."""
        channel = self.channels[number]
        asked = f"{channel.shape!r} from {channel.sender} to {channel.receivers[0]}"
        return _failed(asked, failure, channel.maker.source)


def links_of(parts: Partition, whole: Module, device_of: Mapping[Instruction, str]) -> Links:
    """The connections to the parts of other processes. Every process that has a part calls this.

    Raises DistributedError if processes are about to run different programs, or if one is missing.
    """
    members = {process_of(device) for device in parts.modules}
    places = [f"{i.opcode} {i.shape!r} on {device_of[i]}" for c in whole.computations() for i in c.instructions
              if i in device_of]  # fmt: skip
    # As text an instruction names its device from the view of its process.
    text = re.sub(r'(?<=device=")[^"]*(?=")', lambda found: global_name(found[0]), print_module(whole))
    text = "\n".join([text, *places])
    if processes().index in members and len(members) > 1:
        distributed.same_program(whole.name, text, sorted(members))
    group = distributed.group()
    base = group.tags(whole.name, hashlib.sha256(text.encode()).digest())
    if len(parts.channels) > TAGS:
        raise DistributedError(
            f"'{whole.name}' over {len(members)} processes",
            f"{len(parts.channels)} values go between devices, more than {TAGS}",
            "name devices for larger parts of it",
        )
    return Links(group.transport(_entries()), base, {c.number: c for c in parts.channels})


class SpreadProgram:
    """A program of which this process runs a part: other arguments and results stay elsewhere.

    away: the devices of the results that are in other processes, by number.
    """

    def __init__(self, program: MultiDeviceProgram, away: Mapping[int, Device]):
        self.program, self.away = program, away
        self.channel_bytes = program.channel_bytes

    def __call__(self, inputs: Sequence) -> list:
        """As of MultiDeviceProgram, with RemoteData for values elsewhere."""
        outputs = self.program([0 if isinstance(x, RemoteData) else x for x in inputs])
        for k, device in self.away.items():
            outputs[k] = RemoteData(self.program.outputs[k], device)
        return outputs


__all__ = [
    "Links",
    "Placement",
    "SpreadProgram",
    "apart",
    "failed_message",
    "global_name",
    "global_names",
    "is_spread",
    "links_of",
    "others_of",
    "placement_of",
]
