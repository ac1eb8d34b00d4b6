"""Layouts of values over the devices of a mesh: the sharding of an instruction.

A program for N devices is one module, whose partition k runs on the k-th device of a mesh. A mesh has named axes;
partition ids enumerate it with the last axis fastest. A sharding lists for each dimension of a value the axes that
split it, from major to minor; the value is replicated along all other axes. Along `unreduced` axes the devices hold
partial sums of the value.

Source: Shardy, openxla.org/shardy/sharding_representation. Sub-axes, as in Shardy, do not exist here:
`DeviceMesh.atomic` is the same mesh with one axis per prime factor, over which every sub-axis is a tuple of whole axes.
"""

from __future__ import annotations

import functools
import math

from hloom.ir.records import record


@record(frozen=True)
class DeviceMesh:
    """Axes of a mesh: names and sizes.

    device_ids: the partition ids in the mesh's row-major order; () means 0, 1, 2, ....
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    device_ids: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.sizes)

    def axis_size(self, *names: str) -> int:
        """The product of the sizes of these axes; 1 for none."""
        return math.prod(self.sizes[self.names.index(name)] for name in names)

    def in_order(self, names) -> tuple[str, ...]:
        """Axes in the mesh's order."""
        return tuple(n for n in self.names if n in names)

    def coordinates(self, partition: int) -> dict[str, int]:
        """The position of a partition along each axis."""
        position = self.device_ids.index(partition) if self.device_ids else partition
        found = {}
        for name, size in zip(reversed(self.names), reversed(self.sizes), strict=True):
            found[name] = position % size
            position //= size
        return found

    def groups(self, axes) -> tuple[tuple[int, ...], ...]:
        """The groups of partitions that differ only along `axes`, each in the order of the given axes, the last
        fastest."""
        axes = tuple(axes)
        rest = [n for n in self.names if n not in axes]
        found: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
        for partition in range(self.size):
            at = self.coordinates(partition)
            key = tuple(at[n] for n in rest)
            found.setdefault(key, []).append((tuple(at[n] for n in axes), partition))
        return tuple(tuple(p for _, p in sorted(members)) for _, members in sorted(found.items()))

    def atomic(self) -> DeviceMesh:
        """The same mesh with one axis per prime factor: 'x' of size 4 becomes 'x.0', 'x.1' of size 2."""
        names: list[str] = []
        sizes: list[int] = []
        for name, size in zip(self.names, self.sizes, strict=True):
            names += self.atoms(name)
            sizes += _primes(size)
        return DeviceMesh(tuple(names), tuple(sizes), self.device_ids)

    def atoms(self, name: str) -> tuple[str, ...]:
        """The axes of `atomic()` that an axis of this mesh consists of, from major to minor."""
        count = len(_primes(self.axis_size(name)))
        return (name,) if count == 1 else tuple(f"{name}.{k}" for k in range(count))

    def parts(self, name: str) -> tuple[str, ...]:
        """The axes of this mesh that form the axis `name`, major to minor: itself, or in an atomic mesh its atoms."""
        if name in self.names:
            return (name,)
        return tuple(n for n in self.names if n.rpartition(".")[0] == name)


@record(frozen=True)
class Sharding:
    """The layout of one array over a mesh.

    dims: for each dimension the axes that split it, major to minor. unreduced: axes along which devices hold partial
    sums. A dimension whose size is not divisible by its axes is padded to the next multiple. open: for an annotation,
    the dimensions that propagation may split along further axes, minor to the existing ones (Shardy's `{"x", ?}`); all
    others are fixed. After propagation there are none. replicated_axes: axes that it must not use for those.
    priorities: the propagation order of each dimension, 0 first; () is 0 for all.

    A value on one device only (`on_device`) has a mesh without axes, whose only device id is that device.
    """

    mesh: DeviceMesh
    dims: tuple[tuple[str, ...], ...]
    unreduced: tuple[str, ...] = ()
    open: tuple[int, ...] = ()
    replicated_axes: tuple[str, ...] = ()
    priorities: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds the whole value."""
        return not self.unreduced and all(self.count(d) == 1 for d in range(self.rank))

    @property
    def device(self) -> int | None:
        """The only device that has the value; None if the mesh has axes."""
        return self.mesh.device_ids[0] if self.mesh.device_ids and not self.mesh.names else None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that split dimensions, in dimension order."""
        return tuple(n for axes in self.dims for n in axes)

    def count(self, dimension: int) -> int:
        """The number of parts of a dimension."""
        return self.mesh.axis_size(*self.dims[dimension])

    def local_dims(self, dims) -> tuple[int, ...]:
        """The sizes of a device's part, padding included."""
        return tuple(-(-size // self.count(d)) for d, size in enumerate(dims))

    def part(self, partition: int, dimension: int) -> int:
        """The index of the part of a dimension held by a partition."""
        at, number = self.mesh.coordinates(partition), 0
        for name in self.dims[dimension]:
            number = number * self.mesh.axis_size(name) + at[name]
        return number

    def region(self, partition: int, dims) -> tuple[slice, ...]:
        """The part of an array of these dims held by a partition, without padding; empty if all of it is padding."""
        found = []
        for d, (size, local) in enumerate(zip(dims, self.local_dims(dims), strict=True)):
            start = min(self.part(partition, d) * local, size)
            found.append(slice(start, min(start + local, size)))
        return tuple(found)

    def with_dims(self, dims) -> Sharding:
        return Sharding(self.mesh, tuple(dims), self.unreduced, self.open)

    def atomic(self) -> Sharding:
        """The same layout over `mesh.atomic()`."""

        def split(axes):
            return tuple(atom for name in axes for atom in self.mesh.atoms(name))

        return Sharding(
            self.mesh.atomic(), tuple(split(axes) for axes in self.dims), split(self.unreduced), self.open,
            split(self.replicated_axes), self.priorities,
        )  # fmt: skip


def on_device(device: int, rank: int) -> Sharding:
    """One device has the whole value, the others have none (HLO: maximal)."""
    return Sharding(DeviceMesh((), (), (device,)), ((),) * rank)


def replicated(mesh: DeviceMesh, rank: int) -> Sharding:
    """Every device holds the whole value."""
    return Sharding(mesh, ((),) * rank)


@functools.cache
def _primes(number: int) -> tuple[int, ...]:
    """The prime factors in ascending order; (1,) for 1."""
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return tuple(found) or (1,)
