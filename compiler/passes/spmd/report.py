"""The collectives of a partitioned module as a table: what they send, how often, for whom and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.compiler.passes.spmd.costs import sent
from hloom.ir.loops import counted_trips
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.programs.collective import COLLECTIVES
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.ir.spmd.groups import device_groups
from hloom.ir.types import Shape


@record(frozen=True)
class CollectiveRow:
    """A collective of a partitioned program.

    kind: its opcode. axes: of the mesh, along which devices exchange; () where only groups are known. group: how many
    devices exchange with each other. bytes: what a device sends each time (`hloom.compiler.passes.spmd.costs`).
    times: how often in one run; None where it stands in a loop whose trips are not known, of which one is counted then.
    source: the user's line. why: what reads the result.
    """

    kind: str
    axes: tuple[str, ...]
    group: int
    bytes: int
    times: int | None
    source: Source | None
    why: str

    @property
    def total(self) -> int:
        """The bytes of all times."""
        return self.bytes * (1 if self.times is None else self.times)

    @property
    def line(self) -> str:
        """The user's line as text; '' where it is not known."""
        return "" if self.source is None else str(self.source)


def collectives(module: Module) -> list[CollectiveRow]:
    """The collectives that each device of a module runs, in the order in which it comes to them; branches of which one
    is chosen count all. One that stands in a fusion or a called computation counts where that is called."""
    return list(_rows(module, module.entry, 1))


def bytes_sent(module: Module) -> int:
    """The bytes that a device sends in a run."""
    return sum(row.total for row in collectives(module))


def table(rows: Sequence[CollectiveRow]) -> str:
    """The rows as text, with a sum."""
    if not rows:
        return "no collectives"
    cells = [("kind", "axes", "devices", "bytes", "times", "why", "line")]
    for row in rows:
        times = "?" if row.times is None else f"{row.times:,}"
        axes = ", ".join(row.axes) or "-"
        cells.append((row.kind, axes, str(row.group), f"{row.bytes:,}", times, row.why or "-", row.line or "-"))
    widths = [max(len(c[k]) for c in cells) for k in range(len(cells[0]))]
    right = (2, 3, 4)
    lines = [
        "  ".join(c[k].rjust(w) if k in right else c[k].ljust(w) for k, w in enumerate(widths)).rstrip() for c in cells
    ]
    lines.append(
        f"{len(rows)} collective{'s' * (len(rows) > 1)}; a device sends {sum(row.total for row in rows):,} bytes"
    )
    return "\n".join(lines)


def _rows(module: Module, computation: Computation, times: int | None) -> Iterator[CollectiveRow]:
    for instruction in computation.instructions:
        if instruction.opcode in COLLECTIVES:
            yield _row(module, instruction, times)
            continue
        for callee in instruction.called() if instruction.attributes else ():
            yield from _rows(module, callee, _times(instruction, callee, times))


def _times(instruction: Instruction, callee: Computation, times: int | None) -> int | None:
    trips: int | None = 1
    if instruction.opcode == "scan":
        trips = instruction["length"]
    elif instruction.opcode == "while":
        trips = counted_trips(instruction)
        if trips is not None and callee is instruction["condition"]:
            trips += 1
    return None if trips is None or times is None else trips * times


def _row(module: Module, instruction: Instruction, times: int | None) -> CollectiveRow:
    attributes, opcode = instruction.attributes, instruction.opcode
    size = sum(o.shape.bytes for o in instruction.operands if isinstance(o.shape, Shape))
    if opcode == "collective-permute":
        group = len({m for pair in attributes["source_target_pairs"] for m in pair})
        bytes_ = size if any(s != t for s, t in attributes["source_target_pairs"]) else 0
    else:
        group = len(device_groups(opcode, attributes, module.replicas, module.partitions)[0])
        bytes_ = round(sent(opcode, group, size))
    return CollectiveRow(
        opcode, attributes.get("axes", ()), group, bytes_, times, instruction.source, attributes.get("why", "")
    )
