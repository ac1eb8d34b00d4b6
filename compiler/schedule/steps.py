"""The elements of a plan: places and steps."""

from __future__ import annotations

from typing import Any

from hloom.compiler.kernels.launch import Launch
from hloom.ir.module import Instruction
from hloom.ir.records import field, record


@record(frozen=True)
class Place:
    """The location of a value. kind: 'input' or 'output' (index), 'constant' (index), 'arena' (byte offset), 'channel'
    (twice the channel id; plus one for its second buffer, in loops), 'kept' (byte offset in persistent memory). For
    programs on several devices also 'shared' (byte offset in shared memory) and 'device': the partition id (0) or
    replica id (1).

    swap: id of a place exchanged by SwapSteps. By executing device: peer, the device in whose memory the place is;
    offsets, additional bytes.
    """

    kind: str
    number: int
    swap: int | None = None
    peer: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None


class Step:
    """One entry of a plan's list."""


@record
class KernelStep(Step):
    """A launch with its pointers resolved. `instruction` is the one that it computes. devices: those that launch it;
    None: all. extents: bytes behind each pointer, by device if they differ."""

    launch: Launch
    pointers: dict[str, Place]
    instruction: Instruction
    devices: frozenset[int] | None = None
    extents: dict[str, int | list[int]] = field(default_factory=dict)

    def least_extents(self) -> dict[str, Any]:
        """The bytes behind each pointer: the minimum over the launching devices; None if unknown."""
        found: dict[str, Any] = {}
        for name, nbytes in self.extents.items():
            if isinstance(nbytes, list):
                devices = range(len(nbytes)) if self.devices is None else self.devices
                known = [nbytes[device] for device in devices]
                found[name] = min(known) if all([isinstance(one, int) for one in known]) else None
            else:
                found[name] = nbytes
        return found


@record
class CopyStep(Step):
    """Copies bytes between places. devices: those that copy; None: all."""

    target: Place
    source: Place
    bytes: int
    instruction: Instruction
    devices: frozenset[int] | None = None


@record
class HostStep(Step):
    """A custom call or a library op: Python, called by the driver."""

    instruction: Instruction
    inputs: list[Place]
    outputs: list[Place]


@record
class JumpStep(Step):
    """Jumps to the step with this index."""

    target: int


@record
class BranchStep(Step):
    """Jumps to the step with this index if the pred is false."""

    pred: Place
    target: int


@record
class SwitchStep(Step):
    """Jumps to the step selected by the s32; the last one if out of range."""

    index: Place
    targets: list[int]


@record
class SwapStep(Step):
    """Swaps the two buffers, identified by their `swap` ids."""

    first: Place
    second: Place


@record
class SendStep(Step):
    """Sends: the value of a channel is in its buffer. place: that buffer; once: whether this is the only send."""

    channel: int
    place: Place
    once: bool


@record
class ReceiveStep(Step):
    """Waits until the value of a channel is in its buffer."""

    channel: int
    place: Place


@record
class RenewStep(Step):
    """Waits until the buffer of a channel may be overwritten: all but the last `held` values have been read."""

    channel: int
    held: int


@record
class FreeStep(Step):
    """Releases the last value received on a channel."""

    channel: int


@record(frozen=True)
class PlannedMessage:
    """Bytes that a device sends from a place, or receives there. bytes, peer: by device; a device that is its own peer
    does neither."""

    receives: bool
    place: Place
    bytes: tuple[int, ...]
    peer: tuple[int, ...]


@record
class MessagesStep(Step):
    """Messages to and from devices of other processes, all complete at the end of the step. number: index among steps
    of its kind."""

    number: int
    messages: tuple[PlannedMessage, ...]
    instruction: Instruction


@record
class ArriveStep(Step):
    """Arrival at the barrier of a device's group, if it is in one. number: of the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]
    instruction: Instruction


@record
class AwaitStep(Step):
    """Waits until all devices of the group have arrived at the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]
    instruction: Instruction
