"""The devices that the user chose for parts of a program (`hl.device` scopes): needed first by every compilation."""

from __future__ import annotations

from hloom.ir.module import Computation, Instruction, below
from hloom.ir.ops import OPS


def chosen_devices(computation: Computation) -> list[str]:
    """The devices that the user chose for instructions, at any depth, in order."""
    instructions = below(computation.instructions)
    return list(dict.fromkeys(i.device for i in instructions if i.device and i.opcode != "parameter"))


def chosen_devices_of(instruction: Instruction) -> list[str]:
    """The devices that the user chose inside of computations run by an instruction."""
    if OPS[instruction.opcode].family != "control":
        return []
    return list(dict.fromkeys(device for callee in instruction.called() for device in chosen_devices(callee)))
