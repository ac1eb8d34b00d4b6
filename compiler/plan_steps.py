"""What a plan is made of: places and steps."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.compiler.kernels.launch import Launch
from hloom.ir.module import Instruction


@dataclass(frozen=True)
class Place:
    """Where a value lives. kind: 'input' or 'output' (number), 'constant' (number), 'arena' (byte offset).

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


Step = KernelStep | CopyStep | HostStep | JumpStep | BranchStep | SwitchStep | SwapStep
