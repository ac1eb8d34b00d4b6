"""The devices that the user chose for parts of a program (`hl.device` scopes): what every compilation asks first."""

from __future__ import annotations

from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS


def chosen_devices(computation: Computation) -> list[str]:
    """The devices that the user chose for instructions, at any depth, in their order."""
    found: dict[str, None] = {}
    for instruction in computation.instructions:
        if instruction.device and instruction.opcode != "parameter":
            found[instruction.device] = None
        if instruction.attributes:
            for callee in instruction.called():
                found |= dict.fromkeys(chosen_devices(callee))
    return list(found)


def chosen_devices_of(instruction: Instruction) -> list[str]:
    """The devices that the user chose inside of what an instruction runs."""
    found: dict[str, None] = {}
    if OPS[instruction.opcode].family == "control":
        for callee in instruction.called():
            found |= dict.fromkeys(chosen_devices(callee))
    return list(found)
