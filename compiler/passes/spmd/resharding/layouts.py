"""Layouts over one mesh while a program is partitioned: interned, so that equal ones are one object."""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.build import Builder
from hloom.ir.module import Instruction
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import DTYPES, Shape

S32 = DTYPES["s32"]
Axes = tuple[str, ...]


class Layout:
    """The split of an array: the axes of each dimension, major to minor, and the axes of partial sums.

    counts: the number of parts of each dimension. axes: those of all dimensions.
    """

    __slots__ = ("dims", "unreduced", "counts", "axes", "is_whole")

    def __init__(self, dims: tuple[Axes, ...], unreduced: Axes, counts: tuple[int, ...]):
        self.dims, self.unreduced, self.counts = dims, unreduced, counts
        self.axes: Axes = tuple([a for axes in dims for a in axes])
        self.is_whole = not self.axes and not unreduced

    def local(self, dims) -> tuple[int, ...]:
        """The sizes of a device's part of an array of these dims, padding included."""
        if not self.axes:
            return tuple(dims)
        return tuple([-(-size // count) for size, count in zip(dims, self.counts, strict=True)])

    def __repr__(self) -> str:
        rest = f" unreduced {self.unreduced}" if self.unreduced else ""
        return f"<{self.dims}{rest}>"


class Layouts:
    """The layouts over a mesh, the groups of its axes, and channel ids."""

    def __init__(self, mesh: DeviceMesh, replicas: int = 1):
        self.mesh = mesh
        self.replicas = replicas
        self.sizes = dict(zip(mesh.names, mesh.sizes, strict=True))
        self.order = {name: k for k, name in enumerate(mesh.names)}
        self.channels = 0
        self._known: dict[tuple, Layout] = {}
        self._groups: dict[Axes, tuple[tuple[int, ...], ...]] = {}
        self._shardings: dict[Layout, Sharding] = {}

    def count(self, axes: Axes) -> int:
        """The number of parts of these axes."""
        return math.prod([self.sizes[a] for a in axes])

    def of(self, dims: tuple[Axes, ...], unreduced=()) -> Layout:
        """The layout of these axes, without those of size 1."""
        unreduced = tuple(sorted(unreduced, key=self.order.__getitem__)) if unreduced else ()
        key = (dims, unreduced)
        found = self._known.get(key)
        if found is None:
            if any(self.sizes[a] == 1 for axes in (*dims, unreduced) for a in axes):
                slim = tuple(tuple(a for a in axes if self.sizes[a] > 1) for axes in dims)
                found = self.of(slim, tuple(a for a in unreduced if self.sizes[a] > 1))
            else:
                names = [a for axes in (*dims, unreduced) for a in axes]
                assert len(set(names)) == len(names), f"an axis twice: {dims}, partial sums along {unreduced}"
                found = Layout(dims, unreduced, tuple(self.count(axes) for axes in dims))
            self._known[key] = found
        return found

    def whole(self, rank: int) -> Layout:
        """Every device has the whole array."""
        return self.of(((),) * rank)

    def of_sharding(self, sharding: Sharding) -> Layout:
        """The layout of a sharding over this mesh."""
        return self.of(sharding.dims, sharding.unreduced)

    def sharding(self, layout: Layout) -> Sharding:
        found = self._shardings.get(layout)
        if found is None:
            found = self._shardings[layout] = Sharding(self.mesh, layout.dims, layout.unreduced)
        return found

    def groups(self, axes: Axes) -> tuple[tuple[int, ...], ...]:
        """The groups of device numbers that differ along these axes only, for each replica."""
        found = self._groups.get(axes)
        if found is None:
            groups, count = self.mesh.groups(axes), self.mesh.size
            found = tuple(tuple(r * count + p for p in g) for r in range(self.replicas) for g in groups)
            self._groups[axes] = found
        return found

    def channel(self) -> int:
        """A new channel."""
        self.channels += 1
        return self.channels

    def numbers(self, axes: Axes) -> np.ndarray:
        """The position of each partition along these axes, the last fastest."""
        key = (*axes, "")
        if key not in self._groups:
            found = [0] * self.mesh.size
            for group in self.mesh.groups(axes):
                for k, partition in enumerate(group):
                    found[partition] = k
            self._groups[key] = (tuple(found),)
        return np.array(self._groups[key][0], np.int32)


class Numbers:
    """Scalars of one computation: the partition id, and its positions along axes."""

    def __init__(self, layouts: Layouts, builder: Builder):
        self.layouts, self.builder = layouts, builder
        self._own: Instruction | None = None
        self._along: dict[Axes, Instruction] = {}
        self._starts: dict[tuple[Axes, int], Instruction] = {}

    def own(self) -> Instruction:
        if self._own is None:
            self._own = self.builder.emit("convert", self.builder.emit("partition-id"), shape=Shape(S32))
        return self._own

    def along(self, axes: Axes) -> Instruction:
        """The position of this partition along axes, the last fastest: a scalar s32."""
        found = self._along.get(axes)
        if found is None:
            table = self.layouts.numbers(axes)
            found = self._along[axes] = self._looked_up(table)
        return found

    def _looked_up(self, table: np.ndarray) -> Instruction:
        emit, constant = self.builder.emit, self.builder.constant
        count = len(table)
        size = int(table.max()) + 1
        stride = int(np.argmax(table == 1)) if size > 1 else 1
        if not np.array_equal(table, np.arange(count) // stride % size):
            found = emit("dynamic-slice", constant(table), self.own(), dynamic_slice_sizes=(1,))
            return emit("reshape", found, shape=Shape(S32))
        found = self.own()
        if stride > 1:
            found = emit("divide", found, constant(np.int32(stride)))
        if size * stride < count:
            found = emit("remainder", found, constant(np.int32(size)))
        return found

    def start(self, axes: Axes, step: int) -> Instruction:
        """`along(axes) * step`: the start of this partition's part."""
        key = (axes, step)
        found = self._starts.get(key)
        if found is None:
            if not axes or step == 0:
                found = self.builder.constant(np.int32(0))
            elif step == 1:
                found = self.along(axes)
            else:
                found = self.builder.emit("multiply", self.along(axes), self.builder.splat(step, Shape(S32)))
            self._starts[key] = found
        return found
