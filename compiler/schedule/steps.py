"""What a plan is made of: places and steps."""

from __future__ import annotations

from hloom.compiler.kernels.launch import Launch
from hloom.ir.module import Instruction
from hloom.ir.records import record


@record(frozen=True)
class Place:
    """Where a value lives. kind: 'input' or 'output' (number), 'constant' (number), 'arena' (byte offset), 'channel'
    (twice the number of the channel; one more for its second place, which a loop needs).

    swap: number of a place that SwapSteps exchange with others.
    """

    kind: str
    number: int
    swap: int | None = None


class Step:
    """One entry of a plan's list."""


@record
class KernelStep(Step):
    """A launch with its pointers resolved. `instruction` is what it computes."""

    launch: Launch
    pointers: dict[str, Place]
    instruction: Instruction


@record
class CopyStep(Step):
    """Bytes copied from one place to another."""

    target: Place
    source: Place
    bytes: int
    instruction: Instruction


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


@record
class RenewStep(Step):
    """Waits until the place of a channel may be written again: all but the last `held` values have been read."""

    channel: int
    held: int


@record
class FreeStep(Step):
    """The value that was received last on a channel is not needed any more."""

    channel: int
