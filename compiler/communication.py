"""Communication of a program's devices: its collectives, their bytes, and how often they run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from hloom.compiler.placement.partition import Channel
from hloom.ir.loops import counted_trips
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.programs.collective import COLLECTIVES
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.ir.spmd.groups import device_groups, device_pairs
from hloom.ir.spmd.sharding import DeviceMesh

SEND = "send"
MOST_AXES = 10  # maximum number of mesh axes whose subsets are searched for the axes of a collective


@record(frozen=True)
class CollectiveUse:
    """A collective of a program.

    axes: the mesh axes along which devices exchange values; None if the groups do not correspond to axes. groups: the
    devices. For a `send`, a value sent from one device to others in a program with placed parts, the only group
    contains the names of the sender and the receivers. bytes: sent per device and execution, by the algorithm that
    sends least. times: executions per call; None in a loop with unknown trip count. source: the user's line. why: the
    reason for its creation; '' if the user wrote it.
    """

    kind: str
    axes: tuple[str, ...] | None
    groups: tuple[tuple[int | str, ...], ...]
    bytes: int
    times: int | None
    source: Source | None
    why: str

    @property
    def among(self) -> str:
        """The axes or the devices, as shown in tables."""
        if self.kind == SEND:
            sender, *receivers = map(str, self.groups[0])
            return f"{sender} -> {', '.join(receivers)}"
        if self.axes is not None:
            return ", ".join(self.axes)
        return " ".join(str(list(g)) for g in self.groups[:2]) + (" ..." if len(self.groups) > 2 else "")


def sends(modules: Iterable[Module], channels: Sequence[Channel]) -> list[CollectiveUse]:
    """The values sent between devices, in channel order. modules: those of the known devices; a channel without an end
    in one of them is omitted."""
    times: dict[int, int | None] = {}
    for module in modules:
        for instruction, count in _with_counts(module.entry, 1):
            if instruction.opcode in ("send", "recv"):
                times.setdefault(instruction["channel_id"], count)
    found = []
    for channel in channels:
        if channel.number in times:
            group = (channel.sender, *channel.receivers)
            sent, maker = channel.shape.bytes * len(channel.receivers), channel.maker
            why = f"argument {maker.hint}" if maker.opcode == "parameter" else ""
            found.append(CollectiveUse(SEND, None, (group,), sent, times[channel.number], maker.source, why))
    return found


def collective_uses(module: Module, mesh: DeviceMesh | None = None) -> list[CollectiveUse]:
    """The collectives of a module in program order, without those among one device. mesh: of the module's shardings."""
    found: list[CollectiveUse] = []
    axes = _Axes(mesh)
    for instruction, times in _with_counts(module.entry, 1):
        if instruction.opcode not in COLLECTIVES:
            continue
        groups = device_groups(instruction.opcode, instruction.attributes, module.replicas, module.partitions)
        size = max(map(len, groups), default=1)
        if size > 1:
            why = instruction.attributes.get("why") or ", ".join(instruction.made_by)
            sent = _bytes(module, instruction, size)
            found.append(
                CollectiveUse(instruction.opcode, axes.of(groups), groups, sent, times, instruction.source, why)
            )
    return found


def bytes_sent(uses: Sequence[CollectiveUse]) -> float:
    """The bytes that a device sends per call; loops of unknown length count once."""
    return float(sum(use.bytes * (1 if use.times is None else use.times) for use in uses))


def _with_counts(computation: Computation, times: int | None) -> Iterator[tuple[Instruction, int | None]]:
    """The instructions of a computation and of those that it runs, with how often each runs; None: unknown."""
    for instruction in computation.instructions:
        yield instruction, times
        if instruction.opcode == "while":
            trips = counted_trips(instruction)
            inner = None if trips is None or times is None else times * trips
            for callee in instruction.called():
                yield from _with_counts(callee, inner)
        elif instruction.opcode == "scan":
            yield from _with_counts(instruction["body"], None if times is None else times * instruction["length"])
        elif instruction.opcode in ("conditional", "call"):
            for callee in instruction.called():
                yield from _with_counts(callee, times)


def _bytes(module: Module, instruction: Instruction, size: int) -> int:
    given = sum(o.shape.bytes for o in instruction.operands)
    if instruction.opcode == "all-reduce":
        return math.ceil(2 * given * (size - 1) / size)
    if instruction.opcode == "all-gather":
        return given * (size - 1)
    if instruction.opcode in ("reduce-scatter", "all-to-all"):
        return math.ceil(given * (size - 1) / size)
    if instruction.opcode == "collective-permute":
        pairs = device_pairs(instruction.attributes, module.replicas, module.partitions)
        return given if any(s != t for s, t in pairs) else 0
    return given


class _Axes:
    """Finds the mesh axes that groups of devices correspond to."""

    def __init__(self, mesh: DeviceMesh | None):
        self.known: dict[frozenset, tuple[str, ...]] = {}
        names = mesh.names if mesh else ()
        if mesh and len(names) <= MOST_AXES:
            for count in range(len(names) + 1):
                for axes in itertools.combinations(names, count):
                    self.known.setdefault(frozenset(map(frozenset, mesh.groups(axes))), axes)

    def of(self, groups) -> tuple[str, ...] | None:
        return self.known.get(frozenset(map(frozenset, groups)))


def table(uses: Sequence[CollectiveUse]) -> str:
    """The collectives as lines of text."""
    head = ("kind", "axes", "bytes a device", "times", "line", "why")
    rows = [head]
    for use in uses:
        times = "?" if use.times is None else f"{use.times:,}"
        rows.append((use.kind, use.among, f"{use.bytes:,}", times, str(use.source or ""), use.why))
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if k in (2, 3) else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
