"""Resharding: the instructions that convert an array between layouts, along the path of `paths`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.compiler.passes.spmd.resharding.layouts import S32, Axes, Layout, Layouts, Numbers
from hloom.compiler.passes.spmd.resharding.paths import Step
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.module import Instruction
from hloom.ir.types import PRED, Shape


class Mover:
    """Emits slices and collectives into one computation. why: the purpose of the next ones."""

    def __init__(self, layouts: Layouts, builder: Builder, numbers: Numbers):
        self.layouts, self.builder, self.numbers = layouts, builder, numbers
        self.why = ""

    def step(self, value: Instruction, layout: Layout, step: Step, dims: tuple[int, ...]) -> Instruction:
        """The value in the layout after a step. dims: of the whole array."""
        made = getattr(self, "_" + step.kind.replace("-", "_"))(value, layout, step, dims)
        local = step.target.local(dims)
        assert made.dims == local, f"{step}: {made.dims}, expected {local}"
        return made

    # --- parts of arrays ---

    def padded(self, value: Instruction, d: int, size: int) -> Instruction:
        """Zero-padded at the end of dimension d, up to a size."""
        if value.dims[d] == size:
            return value
        zero = self.builder.constant(np.zeros((), value.dtype))
        padding = tuple((0, size - n if k == d else 0, 0) for k, n in enumerate(value.dims))
        return self.builder.emit("pad", value, zero, padding=padding)

    def trimmed(self, value: Instruction, d: int, size: int) -> Instruction:
        """The first `size` elements of dimension d."""
        return self.cut(value, d, 0, size)

    def cut(self, value: Instruction, d: int, start: int, limit: int) -> Instruction:
        """Elements start to limit of dimension d."""
        if (start, limit) == (0, value.dims[d]):
            return value
        bounds = tuple((start, limit, 1) if k == d else (0, n, 1) for k, n in enumerate(value.dims))
        return self.builder.emit("slice", value, slice=bounds)

    def at(self, value: Instruction, d: int, start: Instruction, size: int) -> Instruction:
        """`size` elements of dimension d from a computed start."""
        zero = self.builder.constant(np.int32(0))
        starts = [start if k == d else zero for k in range(len(value.dims))]
        sizes = tuple(size if k == d else n for k, n in enumerate(value.dims))
        return self.builder.emit("dynamic-slice", value, *starts, dynamic_slice_sizes=sizes)

    def reshaped(self, value: Instruction, dims) -> Instruction:
        dims = tuple(dims)
        return value if value.dims == dims else self.builder.emit("reshape", value, shape=value.shape.with_dims(dims))

    def masked(self, value: Instruction, d: int, axes: Axes, size: int, number) -> Instruction:
        """The padding of dimension d beyond this size replaced by a number."""
        emit, local = self.builder.emit, value.dims[d]
        place = emit("iota", shape=Shape(np.int32, value.dims), iota_dimension=d)
        behind = emit("subtract", self.builder.splat(size, Shape(S32)), self.numbers.start(axes, local))
        inside = emit("compare", place, self.spread(behind, value.dims), direction="LT")
        return emit("select", inside, value, self.builder.splat(number, value.shape))

    def spread(self, scalar: Instruction, dims) -> Instruction:
        return (
            self.builder.emit("broadcast", scalar, shape=scalar.shape.with_dims(dims), dimensions=())
            if dims
            else scalar
        )

    def only_first(self, value: Instruction, axes: Axes, number) -> Instruction:
        """The value on the first device along axes, a number on the others."""
        here = self.builder.emit(
            "compare", self.numbers.along(axes), self.builder.constant(np.int32(0)), direction="EQ"
        )
        return self.builder.emit("select", here, value, self.builder.splat(number, value.shape))

    # --- collectives ---

    def collective(self, opcode: str, *values: Instruction, axes: Axes, **attributes) -> Instruction:
        """A collective among the devices along axes."""
        known: dict[str, Any] = {} if opcode == "all-to-all" else {"use_global_device_ids": True}
        groups = self.layouts.mesh.groups(axes) if opcode == "all-to-all" else self.layouts.groups(axes)
        return self.builder.emit(
            opcode, *values, replica_groups=groups, channel_id=self.layouts.channel(), **known, **attributes,
            why=self.why,
        )  # fmt: skip

    def permuted(self, value: Instruction, pairs) -> Instruction:
        """Values of other partitions, by (source, target) pairs."""
        return self.builder.emit(
            "collective-permute", value, source_target_pairs=tuple(pairs), channel_id=self.layouts.channel(),
            why=self.why,
        )  # fmt: skip

    def reduced(self, value: Instruction, axes: Axes, opcode: str = "add") -> Instruction:
        """Combined over the devices along axes."""
        return self.collective("all-reduce", value, axes=axes, to_apply=scalar_computation(opcode, value.dtype))

    def gathered(self, value: Instruction, d: int, axes: Axes) -> Instruction:
        return self.collective("all-gather", value, axes=axes, dimensions=(d,))

    def sent(self, value: Instruction, partition: int) -> Instruction:
        """The value of one partition, broadcast to all."""
        count, replicas = self.layouts.mesh.size, self.layouts.replicas
        rest = [k for k in range(count) if k != partition]
        groups = tuple(tuple(r * count + k for k in (partition, *rest)) for r in range(replicas))
        if replicas == 1:
            return self.builder.emit(
                "collective-broadcast", value, replica_groups=groups, channel_id=self.layouts.channel(), why=self.why
            )
        return self.builder.emit("collective-broadcast", value, replica_groups=groups, why=self.why)

    # --- steps ---

    def _slice(self, value, layout: Layout, step: Step, dims):
        local = step.target.local(dims)[step.d]
        value = self.padded(value, step.d, local * self.layouts.count(step.axes))
        return self.at(value, step.d, self.numbers.start(step.axes, local), local)

    def _all_gather(self, value, layout: Layout, step: Step, dims):
        return self.trimmed(self.gathered(value, step.d, step.axes), step.d, step.target.local(dims)[step.d])

    def _all_to_all(self, value, layout: Layout, step: Step, dims):
        n, d, source = self.layouts.count(step.axes), step.d, step.source
        local = step.target.local(dims)
        value = self.padded(value, d, local[d] * n)
        # [.., n * part of d, ..] -> [n, .., part of d, ..]: one row per destination
        opened = self.reshaped(value, (*value.dims[:d], n, local[d], *value.dims[d + 1 :]))
        rank = len(value.dims)
        first = (d, *(k for k in range(rank + 1) if k != d))
        sent = self.builder.emit("transpose", opened, dimensions=first) if d else opened
        found = self.collective("all-to-all", sent, axes=step.axes, dimensions=(0,))
        # [n, .., part of source, ..] -> [.., n * part of source, ..]: one row per sender
        back = (*range(1, source + 1), 0, *range(source + 1, rank + 1))
        placed = self.builder.emit("transpose", found, dimensions=back) if source else found
        sizes = list(placed.dims)
        joined = self.reshaped(placed, (*sizes[:source], sizes[source] * sizes[source + 1], *sizes[source + 2 :]))
        return self.trimmed(joined, source, local[source])

    def _reduce_scatter(self, value, layout: Layout, step: Step, dims):
        local = step.target.local(dims)[step.d]
        value = self.padded(value, step.d, local * self.layouts.count(step.axes))
        return self.collective(
            "reduce-scatter", value, axes=step.axes, dimensions=(step.d,),
            to_apply=scalar_computation("add", value.dtype),
        )  # fmt: skip

    def _all_reduce(self, value, layout: Layout, step: Step, dims):
        return self.reduced(value, step.axes)

    def _keep(self, value, layout: Layout, step: Step, dims):
        return self.only_first(value, step.axes, False if value.dtype == PRED else 0)

    def _widen(self, value, layout: Layout, step: Step, dims):
        """The part of each device padded with zeros, so that the whole is their sum."""
        size = value.dims[step.d]
        shape = value.shape.with_dims(step.target.local(dims))
        zero = self.builder.constant(np.int32(0))
        starts = [self.numbers.start(step.axes, size) if k == step.d else zero for k in range(len(value.dims))]
        empty = self.builder.splat(False if value.dtype == PRED else 0, shape)
        return self.builder.emit("dynamic-update-slice", empty, value, *starts)

    def _permute(self, value, layout: Layout, step: Step, dims):
        return self.permuted(value, permutation(self.layouts, layout, step.target))


def permutation(layouts: Layouts, old: Layout, new: Layout) -> list[tuple[int, int]]:
    """The (source, target) partitions by which each gets its part of the new layout; nearby sources are preferred, and
    partitions that already have their part are omitted if all of them do."""
    parts = [tuple(layouts.numbers(axes) for axes in layout.dims if axes) for layout in (old, new)]
    sums = [layouts.numbers(old.unreduced)] if old.unreduced else []
    count = layouts.mesh.size
    owners: dict[tuple, list[int]] = {}
    for p in range(count):
        key = tuple(int(n[p]) for n in (*parts[0], *sums))
        owners.setdefault(key, []).append(p)
    wanted = [tuple(int(n[p]) for n in (*parts[1], *sums)) for p in range(count)]
    pairs = []
    for p in range(count):  # partitions that already have their part keep it
        if p in owners[wanted[p]]:
            owners[wanted[p]].remove(p)
            pairs.append((p, p))
    kept = {p for p, _ in pairs}
    pairs += [(owners[wanted[p]].pop(0), p) for p in range(count) if p not in kept]
    return sorted(pairs)
