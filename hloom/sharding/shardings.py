"""How arrays are laid out over devices, with the classes of `jax.sharding`. Each hloom array is on one device.

A `NamedSharding` over a mesh of one device is equivalent to a `SingleDeviceSharding`. `hl.device_put` rejects shardings
that split arrays over several devices.
"""

from __future__ import annotations

import enum
import math
import threading
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, DeviceError
from hloom.ir.records import record
from hloom.platforms.device import Device, find_device
from hloom.platforms.device import devices as all_devices


@record(frozen=True)
class Shard:
    """The part of an array that is on one device: the device, its index in the array, a number, the data."""

    device: Any
    index: tuple
    replica_id: int
    data: Any


class Sharding:
    """Base class: how an array is laid out over devices."""

    is_fully_addressable = True  # all devices are in this process

    @property
    def device_set(self) -> set:
        raise AttributeError(f"{type(self).__name__} names no devices")

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return len(self.device_set) == 1

    @property
    def addressable_devices(self) -> set:
        return self.device_set

    @property
    def memory_kind(self) -> str:
        return "device"

    def shard_shape(self, global_shape) -> tuple[int, ...]:
        """The shape of the part on one device."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape) -> dict:
        """The part of an array that each device holds, as slices."""
        return {device: tuple(slice(None) for _ in global_shape) for device in self.device_set}

    def is_equivalent_to(self, other, ndim: int) -> bool:
        """Whether both put arrays of this rank on the same devices in the same way."""
        return self.is_fully_replicated and other.is_fully_replicated and self.device_set == other.device_set


@record(frozen=True)
class SingleDeviceSharding(Sharding):
    """The whole array on one device."""

    device: Any

    @property
    def device_set(self) -> set:
        return {self.device}

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind=device)"


class _Unconstrained:
    """`PartitionSpec.UNCONSTRAINED`: no name of an axis, and one object, copied and pickled too."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self):
        return _unconstrained, ()


def _unconstrained() -> _Unconstrained:
    return PartitionSpec.UNCONSTRAINED


class PartitionSpec(tuple):
    """The names of mesh axes that split each axis of an array; None leaves an axis whole."""

    UNCONSTRAINED = _Unconstrained()  # an axis that the compiler may lay out as it likes

    def __new__(cls, *names):
        return super().__new__(cls, names)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def __getnewargs__(self):
        return tuple(self)


P = PartitionSpec


class AxisType(enum.Enum):
    """What determines the layout of arrays along a mesh axis: the compiler, the types, or the program itself."""

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"


class _NamedAxes:
    """What a mesh and an abstract mesh derive from the sizes and names of their axes."""

    axis_sizes: Any
    axis_names: Any

    @property
    def shape(self) -> dict[str, int]:
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def empty(self) -> bool:
        return not self.axis_names


@record(frozen=True)
class AbstractMesh(_NamedAxes):
    """The axis sizes and names of a mesh without its devices."""

    axis_sizes: tuple[int, ...]
    axis_names: tuple[str, ...]
    axis_types: Any = None

    @property
    def size(self) -> int:
        return math.prod(self.axis_sizes) if self.axis_names else 0


class _Meshes(threading.local):
    """The meshes that are current in this thread, the innermost last."""

    def __init__(self):
        self.active: list[Mesh] = []


_meshes = _Meshes()


def get_mesh() -> Mesh:
    """The current mesh (`with mesh:`, `set_mesh`); one without axes where there is none."""
    return _meshes.active[-1] if _meshes.active else Mesh(np.empty((), object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The axis sizes and names of the current mesh."""
    return get_mesh().abstract_mesh


class set_mesh:
    """Makes a mesh the current one; as a context manager until the end of the block."""

    def __init__(self, mesh: Mesh):
        self._mesh = mesh
        _meshes.active.append(mesh)

    def __enter__(self) -> Mesh:
        return self._mesh

    def __exit__(self, *exception) -> None:
        _meshes.active.pop()


use_mesh = set_mesh


class Mesh(_NamedAxes):
    """Devices in a grid whose axes have names; `with mesh:` makes it the current one.

    devices: a nested list or an array of devices. axis_names: one name, or one for each axis. Raises ArgumentError.
    """

    def __init__(self, devices, axis_names):
        grid = np.empty(np.shape(devices), dtype=object)
        grid[...] = devices
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if grid.ndim != len(names):
            raise ArgumentError(
                "a mesh needs one name per axis",
                f"devices of rank {grid.ndim}, names {names}",
                "pass as many names as axes",
            )
        self.devices, self.axis_names, self.axis_sizes = grid, names, grid.shape

    @property
    def size(self) -> int:
        return self.devices.size

    def __enter__(self) -> Mesh:
        _meshes.active.append(self)
        return self

    def __exit__(self, *exception) -> None:
        _meshes.active.pop()

    @property
    def axis_types(self) -> tuple[AxisType, ...]:
        return (AxisType.Auto,) * len(self.axis_names)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The axis sizes and names without the devices."""
        return AbstractMesh(self.devices.shape, self.axis_names)

    def _key(self):
        return tuple(self.devices.ravel()), self.devices.shape, self.axis_names

    def __eq__(self, other):
        return isinstance(other, Mesh) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{n!r}: {e}' for n, e in self.shape.items())})"


@record(frozen=True)
class NamedSharding(Sharding):
    """Arrays split over the axes of a mesh as a PartitionSpec says. Raises ArgumentError for an unknown axis."""

    mesh: Mesh
    spec: PartitionSpec

    def __post_init__(self):
        unknown = [n for n in self._names() if n not in self.mesh.axis_names]
        if unknown:
            raise ArgumentError(
                f"a sharding over mesh axis {unknown[0]!r}", f"the mesh has {self.mesh.axis_names}", "name one of these"
            )

    def _names(self) -> list[str]:
        entries = [e if isinstance(e, tuple) else (e,) for e in self.spec if e is not None]
        return [name for entry in entries for name in entry]

    @property
    def device_set(self) -> set:
        return set(self.mesh.devices.ravel())

    @property
    def is_fully_replicated(self) -> bool:
        return all(self.mesh.shape[name] == 1 for name in self._names())

    def shard_shape(self, global_shape) -> tuple[int, ...]:
        entries = [*self.spec, *[None] * (len(global_shape) - len(self.spec))]
        parts = [
            math.prod(self.mesh.shape[n] for n in (e if isinstance(e, tuple) else (e,)) if n is not None)
            for e in entries
        ]
        if any(size % count for size, count in zip(global_shape, parts, strict=True)):
            raise ArgumentError(
                f"{self.spec!r} splits an array", f"shape {tuple(global_shape)} in {parts} parts", "pad the array"
            )
        return tuple(size // count for size, count in zip(global_shape, parts, strict=True))

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh!r}, spec={self.spec!r}, memory_kind=device)"


def device_of(place) -> Device:
    """The device of a name, a Device, a sharding over one device or a PartitionSpec for the current mesh.

    None means the default device. Raises DeviceError, as `find_device` does, and where a sharding has several devices.
    """
    if isinstance(place, PartitionSpec):
        place = NamedSharding(get_mesh(), place)
    return find_device(single_device(place) if isinstance(place, Sharding) else place)


def single_device(sharding: Sharding):
    """The one device of a sharding. Raises DeviceError where it has several."""
    found = sharding.device_set
    if len(found) != 1:
        raise DeviceError(
            "an array over several devices",
            f"{sharding!r}",
            "each hloom array is on one device: name one, such as hl.devices()[0]",
        )
    return next(iter(found))


def make_mesh(axis_shapes, axis_names, *, devices=None, axis_types=None) -> Mesh:
    """A mesh of this process's devices with these axis sizes. Raises DeviceError where there are too few devices."""
    available = list(all_devices() if devices is None else devices)
    count = math.prod(axis_shapes)
    if count > len(available):
        raise DeviceError(
            f"a mesh of {count} devices", f"this process has {len(available)}", "set HLOOM_NUM_CPU_DEVICES for more"
        )
    grid = np.empty(count, dtype=object)
    grid[:] = available[:count]
    return Mesh(grid.reshape(axis_shapes), axis_names)


__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "P",
    "PartitionSpec",
    "Shard",
    "Sharding",
    "SingleDeviceSharding",
    "device_of",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "set_mesh",
    "single_device",
    "use_mesh",
]
