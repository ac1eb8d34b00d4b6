"""The cost model of collectives, for choosing layouts and paths between them.

Time is measured in bytes that a link could transfer meanwhile. With n devices in a group, and a part of L bytes on
each, a device sends:

    all-gather           (n - 1) L            L: the part that it has before
    reduce-scatter       (n - 1) / n L        L: the partial sum that it has before
    all-reduce           2 (n - 1) / n L      a reduce-scatter and an all-gather
    all-to-all           (n - 1) / n L
    collective-permute   L
    collective-broadcast L

as in rings and direct exchanges (Chan, Heimlich, Purkayastha and van de Geijn, Collective communication:
theory, practice, and experience, 2007). Each collective also costs `LATENCY`, and local data movement, such as a slice,
`COPY` times its bytes. Computation counts as well: `FLOPS` operations take the time of a byte.
"""

from __future__ import annotations

LATENCY = 4096.0  # bytes that a link transfers during the latency of a message
COPY = 1e-3  # fraction of the transfer time
FLOPS = 10.0  # operations that a device executes while a link transfers a byte: 100 GFlop/s against 10 GB/s


def sent(opcode: str, count: int, part: float) -> float:
    """The bytes that a device sends in a collective among `count` devices. part: the bytes of its operands."""
    if count <= 1 and opcode != "collective-permute":
        return 0.0
    if opcode == "all-gather":
        return (count - 1) * part
    if opcode in ("reduce-scatter", "all-to-all"):
        return (count - 1) / count * part
    if opcode == "all-reduce":
        return 2 * (count - 1) / count * part
    return part


def cost(opcode: str, count: int, part: float) -> float:
    """The bytes sent, plus the latency of a message."""
    return sent(opcode, count, part) + LATENCY
