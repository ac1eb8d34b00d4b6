"""Random devices for the instructions of a computation."""

from __future__ import annotations

import random

from hloom.ir.module import Computation
from hloom.ir.source import on_device


def choose(computation: Computation, generator: random.Random, share: float, devices=("cpu:0", "cpu:1", "cpu:2")):
    """Gives a share of all instructions, at any depth, one of the devices."""
    for instruction in computation.instructions:
        if instruction.opcode != "parameter" and generator.random() < share:
            instruction.source = on_device(None, generator.choice(devices))
        for callee in instruction.called():
            choose(callee, generator, share, devices)
