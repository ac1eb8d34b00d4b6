"""A kind of device that evaluates ops one by one with NumPy, and counts them."""

from collections import Counter

from hloom.backends.interpreted import InterpretedKind


class CountingKind(InterpretedKind):
    """One device, `counting:0`, that has everything but sorts."""

    name = "counting"

    def __init__(self):
        self.computed = Counter()

    def count(self):
        return 1

    def has_kernel(self, instruction):
        return instruction.opcode != "sort"

    def compute(self, instruction, operands):
        self.computed[instruction.opcode] += 1
        return super().compute(instruction, operands)
