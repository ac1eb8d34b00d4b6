"""What a plan is made of: places and steps."""

from __future__ import annotations

from typing import Any

from hloom.compiler.kernels.launch import Launch
from hloom.ir.module import Instruction
from hloom.ir.records import field, record


@record(frozen=True)
class Place:
    """Where a value lives. kind: 'input' or 'output' (number), 'constant' (number), 'arena' (byte offset), 'channel'
    (twice the number of the channel; one more for its second place, which a loop needs), 'kept' (byte offset in memory
    that stays as it is between calls). In a program that several
    devices run also 'shared' (byte offset in memory that all share) and 'device': the number of the partition (0) or of
    the replica (1) that runs it.

    swap: number of a place that SwapSteps exchange with others. By the number of the device that runs the program, of
    several: peer, the device in whose memory the place is; offsets, bytes that are added.
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
    """A launch with its pointers resolved. `instruction` is what it computes. devices: those of several that launch it;
    None: all. extents: bytes that each pointer leads to, by the number of the device where they differ."""

    launch: Launch
    pointers: dict[str, Place]
    instruction: Instruction
    devices: frozenset[int] | None = None
    extents: dict[str, int | list[int]] = field(default_factory=dict)

    def least_extents(self) -> dict[str, Any]:
        """The bytes behind each pointer: the least of the devices that make the launch; None where it is not known."""
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
    """Bytes copied from one place to another. devices: those that do so, of several; None: all."""

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
    """To the step of this number."""

    target: int


@record
class BranchStep(Step):
    """To the step of this number where the pred is false, else to the next."""

    pred: Place
    target: int


@record
class SwitchStep(Step):
    """To the step of the number that the s32 chooses; the last where it chooses none."""

    index: Place
    targets: list[int]


@record
class SwapStep(Step):
    """From here on the two places, which have `swap` numbers, stand for each other."""

    first: Place
    second: Place


@record
class SendStep(Step):
    """The value of a channel is in its place. place: where that is; once: whether nothing will be sent after it."""

    channel: int
    place: Place
    once: bool


@record
class ReceiveStep(Step):
    """Waits until the value of a channel is in its place."""

    channel: int
    place: Place


@record
class RenewStep(Step):
    """Waits until the place of a channel may be written again: all but the last `held` values have been read."""

    channel: int
    held: int


@record
class FreeStep(Step):
    """The value that was received last on a channel is not needed any more."""

    channel: int


@record(frozen=True)
class PlannedMessage:
    """Bytes that a device sends from a place, or receives there. bytes, peer: by the number of the device; a device
    that is its own peer does neither."""

    receives: bool
    place: Place
    bytes: tuple[int, ...]
    peer: tuple[int, ...]


@record
class MessagesStep(Step):
    """Messages to and from devices of other processes, all complete at its end. number: of the step among its kind."""

    number: int
    messages: tuple[PlannedMessage, ...]
    instruction: Instruction


@record
class ArriveStep(Step):
    """A device has come to a barrier of its group, if it is in one. number: of the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]
    instruction: Instruction


@record
class AwaitStep(Step):
    """Waits until all devices of the group have come to the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]
    instruction: Instruction
