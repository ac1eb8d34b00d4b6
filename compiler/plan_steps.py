"""What a plan is made of: places and steps."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.compiler.kernels.launch import Launch
from hloom.ir.module import Instruction


@dataclass(frozen=True)
class Place:
    """Where a value lives. kind: 'input' or 'output' (number), 'constant' (number), 'arena' (byte offset), 'channel'
    (twice the number of the channel; one more for its second place, which a loop needs).

    swap: number of a place that SwapSteps exchange with others.
    """

    kind: str
    number: int
    swap: int | None = None


@dataclass
class KernelStep:
    """A launch with its pointers resolved. `instruction` is what it computes."""

    launch: Launch
    pointers: dict[str, Place]
    instruction: Instruction


@dataclass
class CopyStep:
    """Bytes copied from one place to another."""

    target: Place
    source: Place
    bytes: int
    instruction: Instruction


@dataclass
class HostStep:
    """A custom call or a library op: Python, called by the driver."""

    instruction: Instruction
    inputs: list[Place]
    outputs: list[Place]


@dataclass
class JumpStep:
    """To the step of this number."""

    target: int


@dataclass
class BranchStep:
    """To the step of this number where the pred is false, else to the next."""

    pred: Place
    target: int


@dataclass
class SwitchStep:
    """To the step of the number that the s32 chooses; the last where it chooses none."""

    index: Place
    targets: list[int]


@dataclass
class SwapStep:
    """From here on the two places, which have `swap` numbers, stand for each other."""

    first: Place
    second: Place


@dataclass
class SendStep:
    """The value of a channel is in its place. place: where that is; once: whether nothing will be sent after it."""

    channel: int
    place: Place
    once: bool


@dataclass
class ReceiveStep:
    """Waits until the value of a channel is in its place."""

    channel: int


@dataclass
class RenewStep:
    """Waits until the place of a channel may be written again: all but the last `held` values have been read."""

    channel: int
    held: int


@dataclass
class FreeStep:
    """The value that was received last on a channel is not needed any more."""

    channel: int


Step = (
    KernelStep
    | CopyStep
    | HostStep
    | JumpStep
    | BranchStep
    | SwitchStep
    | SwapStep
    | SendStep
    | ReceiveStep
    | RenewStep
    | FreeStep
)
