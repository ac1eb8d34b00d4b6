"""Two-level collectives among devices of several processes: between processes, and within each.

Devices of one process read each other's memory; between processes values are sent. A group of P processes with L
devices each therefore reduce-scatters its values within each process first, exchanges the parts among corresponding
devices of the processes, and gathers them again: 1 / L of the bytes is sent between processes. Gathering is the
reverse. Sums preserve the order of a single process (`hloom.ir.spmd.groups.in_pairs`) if L is a power of two; other
groups are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.compiler.passes.registry import Team, module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.ir.build import Builder, Value
from hloom.ir.module import Instruction, Module
from hloom.ir.records import record
from hloom.ir.spmd.groups import device_groups

SMALL = 1 << 14  # bytes below which a single exchange among all is faster than two additional steps
OPCODES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")

Groups = tuple[tuple[int, ...], ...]


@record(frozen=True)
class _Levels:
    """The groups of a collective within processes, and those across them, of equal sizes."""

    within: Groups
    across: Groups

    @property
    def devices(self) -> int:
        """Devices per process."""
        return len(self.within[0])

    @property
    def processes(self) -> int:
        return len(self.across[0])


def _levels(groups: Groups, processes: Sequence[int]) -> _Levels | None:
    """The two levels of groups whose members are ordered by process, equally many of each; None for others."""
    within: list[tuple[int, ...]] = []
    across: list[tuple[int, ...]] = []
    counts = set()
    for group in groups:
        blocks: dict[int, list[int]] = {}
        for device in group:
            blocks.setdefault(processes[device], []).append(device)
        if [device for block in blocks.values() for device in block] != list(group):
            return None
        counts |= {len(block) for block in blocks.values()}
        within += [tuple(block) for block in blocks.values()]
        across += [tuple(column) for column in zip(*blocks.values(), strict=False)]
    if len(counts) != 1 or len({len(g) for g in across}) != 1:
        return None
    found = _Levels(tuple(within), tuple(across))
    count = found.devices
    return found if count > 1 and found.processes > 1 and count & (count - 1) == 0 else None


@module_pass("split-by-process", *OPCODES)
def split_by_process(module: Module, *, team: Team) -> Module:
    """Splits collectives among several processes into steps within and between them, if that sends less."""
    processes = team.processes
    if not processes:
        return module

    def make(builder: Builder, instruction: Instruction, original: Instruction):
        groups = device_groups(instruction.opcode, instruction.attributes, module.replicas, module.partitions)
        levels = _levels(groups, processes)
        if levels is None or ("dimensions" not in instruction.attributes and instruction.opcode != "all-reduce"):
            return None
        if max(o.shape.bytes for o in instruction.operands) < SMALL:
            return None
        values = [_Collective(instruction, levels, Value(builder, o)).made() for o in instruction.operands]
        return values[0] if len(values) == 1 else values

    return change_computations(
        module, lambda c: replaced(c, "split_by_process", lambda i: i.opcode in OPCODES and bool(i.operands), make)
    )


class _Collective:
    """One operand of a collective, in steps."""

    def __init__(self, instruction: Instruction, levels: _Levels, value: Value):
        self.instruction, self.levels, self.value = instruction, levels, value
        dimensions = instruction.attributes.get("dimensions")
        self.dimension = dimensions[0] if dimensions else 0

    def made(self) -> Instruction:
        found: Value = getattr(self, "_" + self.instruction.opcode.replace("-", "_"))()
        return found.instruction

    def _step(self, value: Value, opcode: str, groups: Groups, dimension: int | None = None) -> Value:
        """One of the collectives that replace this one."""
        given = self.instruction.attributes
        attributes: dict[str, Any] = {k: given[k] for k in ("axes", "why") if k in given}
        attributes |= {
            "replica_groups": groups,
            "use_global_device_ids": True,
            "channel_id": given.get("channel_id") or 1,
        }
        if opcode in ("all-reduce", "reduce-scatter"):
            attributes["to_apply"] = given["to_apply"]
        if dimension is not None:
            attributes["dimensions"] = (dimension,)
        return value.op(opcode, **attributes)

    def _all_reduce(self) -> Value:
        value, count = self.value, self.levels.devices
        size = value.shape.size
        flat, padded = value.reshape((size,)), -(-size // count) * count
        if padded > size:
            flat = flat.op("pad", flat.scalar(0), padding=((0, padded - size, 0),))
        part = self._step(flat, "reduce-scatter", self.levels.within, 0)
        total = self._step(part, "all-reduce", self.levels.across)
        whole = self._step(total, "all-gather", self.levels.within, 0)
        if padded > size:
            whole = whole.op("slice", slice=((0, size, 1),))
        return whole.reshape(value.dims)

    def _all_gather(self) -> Value:
        d, levels = self.dimension, self.levels
        dims = self.value.dims
        found = self._step(self._step(self.value, "all-gather", levels.across, d), "all-gather", levels.within, d)
        # [device, process, part] -> [process, device, part]
        return _exchanged(found, d, (levels.devices, levels.processes, dims[d]))

    def _reduce_scatter(self) -> Value:
        d, levels = self.dimension, self.levels
        part = self.value.dims[d] // (levels.devices * levels.processes)
        value = _exchanged(self.value, d, (levels.processes, levels.devices, part))
        return self._step(self._step(value, "reduce-scatter", levels.within, d), "reduce-scatter", levels.across, d)

    def _all_to_all(self) -> Value:
        d, levels = self.dimension, self.levels
        count, devices = levels.processes, levels.devices
        part = self.value.dims[d] // (count * devices)
        found = self._step(self.value, "all-to-all", levels.across, d)
        # [process, device, part]: what goes to which device is a dimension of its own.
        found = _exchanged(found, d, (count, devices, part))
        found = self._step(found, "all-to-all", levels.within, d)
        return _exchanged(found, d, (devices, count, part))


def _exchanged(value: Value, d: int, parts: tuple[int, int, int]) -> Value:
    """Dimension d, which consists of three dimensions, with the first two exchanged."""
    dims = value.dims
    order = list(range(len(dims) + 2))
    order[d], order[d + 1] = d + 1, d
    return value.reshape((*dims[:d], *parts, *dims[d + 1 :])).transpose(order).reshape(dims)


__all__ = ["split_by_process"]
