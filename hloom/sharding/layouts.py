"""Between the shardings of users and those of the IR: the devices of a program, numbered by partition.

A program for N devices has one list of devices. The shardings in it may be of several meshes over them, in any order
and of any axes: all are translated to the axes of the first one.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, DeviceError
from hloom.ir.records import replace
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.platforms.device import Device, process_index
from hloom.sharding.meshes import Mesh, device_numbers, numbered_devices
from hloom.sharding.shardings import NamedSharding, PartitionSpec


class Assignment:
    """The devices of a program by partition number, and the mesh over them whose axes its shardings are written in."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self.devices: tuple[Device, ...] = mesh._flat_devices
        here = [k for k, d in enumerate(self.devices) if d.process_index == process_index()]
        self.own = here if len(here) < len(self.devices) else None  # partitions of this process; None: all
        self._numbers = {number: k for k, number in enumerate(device_numbers(self.devices))}
        self.device_mesh = DeviceMesh(tuple(map(str, mesh.axis_names)), mesh.axis_sizes)

    @classmethod
    def of_sharding(cls, sharding: NamedSharding) -> Assignment:
        """The devices of a sharding. Raises ArgumentError for one over an AbstractMesh."""
        if not isinstance(sharding.mesh, Mesh):
            raise ArgumentError(
                f"an array laid out as {sharding!r}",
                "its mesh names no devices",
                "use a Mesh in place of an AbstractMesh",
            )
        return cls(sharding.mesh)

    @classmethod
    def of_layout(cls, layout: Sharding) -> Assignment:
        """The devices that a sharding in the IR numbers."""
        mesh = layout.mesh
        numbers = mesh.device_ids or range(mesh.size)
        grid = np.empty(mesh.size, dtype=object)
        grid[:] = numbered_devices(numbers)
        return cls(Mesh(grid.reshape(mesh.sizes), mesh.names))

    @property
    def size(self) -> int:
        return len(self.devices)

    def partition_layout(self, layout: Sharding, what: str) -> Sharding:
        """A sharding with numbers of devices as one with numbers of partitions, over the axes of this mesh.

        A mesh without devices (an AbstractMesh) is over these. Raises DeviceError for a mesh over other devices,
        ArgumentError for one whose axes cut them otherwise.
        """
        mesh = layout.mesh
        if mesh.device_ids and set(mesh.device_ids) != set(self._numbers):
            theirs = ", ".join(map(str, numbered_devices(mesh.device_ids)))
            raise DeviceError(
                f"{what} is over the mesh {_shown(mesh)} of the devices {theirs}",
                f"the program runs on {', '.join(map(str, self.devices))} (mesh {_shown(self.device_mesh)})",
                "use one mesh in a program, or move the arrays with hl.device_put(x, NamedSharding(mesh, spec))",
            )
        if mesh.size != self.size:
            raise DeviceError(
                f"{what} is over the mesh {_shown(mesh)}",
                f"the program runs on {self.size} devices (mesh {_shown(self.device_mesh)})",
                "use one mesh in a program",
            )
        ids = tuple(self._numbers[k] for k in mesh.device_ids)
        ids = () if ids == tuple(range(len(ids))) else ids
        if (mesh.names, mesh.sizes, ids) == (self.device_mesh.names, self.device_mesh.sizes, ()):
            return replace(layout, mesh=self.device_mesh)
        return self._translated(replace(layout, mesh=DeviceMesh(mesh.names, mesh.sizes, ids)), what)

    def expresses(self, sharding: NamedSharding, what: str) -> bool:
        """Whether the axes of this mesh can express a sharding over its devices. Raises DeviceError for others."""
        layout = sharding.layout(len(sharding.spec))
        try:
            self.partition_layout(layout, f"an argument of {what}")
        except ArgumentError:
            return False
        return True

    def _translated(self, layout: Sharding, what: str) -> Sharding:
        theirs, own = layout.mesh.atomic(), self.device_mesh.atomic()
        names = {}
        known = {_positions(own, name): name for name in own.names if own.axis_size(name) > 1}
        for name in theirs.names:
            found = known.get(_positions(theirs, name))
            if found is not None:
                names[name] = found
        atomic = layout.atomic()
        for name in (*atomic.axes, *atomic.unreduced):
            if name not in names and theirs.axis_size(name) > 1:
                raise ArgumentError(
                    f"{what} is over the axis {name.split('.')[0]!r} of the mesh {_shown(layout.mesh)}",
                    f"the program's mesh {_shown(self.device_mesh)} cuts the same devices in another order",
                    "use one mesh in a program, or move the arrays with hl.device_put",
                )

        def renamed(axes):
            return tuple(names[n] for n in axes if n in names)

        dims = tuple(map(renamed, atomic.dims))
        return replace(layout, mesh=own, dims=dims, unreduced=renamed(atomic.unreduced))

    def named(self, layout: Sharding | None, rank: int) -> NamedSharding:
        """The NamedSharding of a result; None: every device holds all of it."""
        if layout is None:
            return NamedSharding(self.mesh, PartitionSpec())
        return _named(self.mesh, layout)


@functools.lru_cache(maxsize=4096)
def _named(mesh: Mesh, layout: Sharding) -> NamedSharding:
    device_mesh = DeviceMesh(tuple(map(str, mesh.axis_names)), mesh.axis_sizes)
    atoms = {device_mesh.atoms(str(name)): name for name in mesh.axis_names}
    entries = [_whole_axes(layout.mesh, axes, atoms) for axes in layout.dims]
    if any(e is None for e in entries):  # split over a part of an axis: a mesh that has this part as an axis
        atomic = device_mesh.atomic()
        mesh = Mesh(mesh.devices.reshape(atomic.sizes), atomic.names)
        entries = [tuple(a for name in axes for a in layout.mesh.atoms(name)) for axes in layout.dims]
    while entries and not entries[-1]:
        entries.pop()
    return NamedSharding(mesh, PartitionSpec(*(e or None for e in entries)))


def _whole_axes(mesh: DeviceMesh, axes: tuple[str, ...], atoms: dict[tuple[str, ...], Any]) -> tuple | None:
    """The axes of a mesh that these atoms of it are; None where they are a part of one."""
    rest = tuple(a for name in axes for a in (mesh.atoms(name) if mesh.axis_size(name) > 1 else (name,)))
    found: list = []
    while rest:
        name, count = next(((n, len(a)) for a, n in atoms.items() if rest[: len(a)] == a), (None, 0))
        if not count:
            return None
        found.append(name)
        rest = rest[count:]
    return tuple(found)


def _positions(mesh: DeviceMesh, name: str) -> tuple[int, ...]:
    """Where each partition is along an axis."""
    return tuple(mesh.coordinates(k)[name] for k in range(mesh.size))


def _shown(mesh: DeviceMesh) -> str:
    return f"({', '.join(f'{n!r}: {s}' for n, s in zip(mesh.names, mesh.sizes, strict=True))})"


__all__ = ["Assignment"]
