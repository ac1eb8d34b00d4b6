"""Devices in a grid with named axes: meshes, and the one that is current."""

from __future__ import annotations

import enum
import math
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, DeviceError
from hloom.ir.spmd.sharding import DeviceMesh
from hloom.platforms.device import Device, find_device, process_count, process_index, program_devices


class AxisType(enum.Enum):
    """What determines the layout of arrays along a mesh axis: the compiler, the types, or the program itself."""

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"

    def __repr__(self) -> str:
        return self.name


class _NamedAxes:
    """What a mesh and an abstract mesh derive from the sizes, names and types of their axes."""

    axis_sizes: tuple[int, ...]
    axis_names: tuple[Any, ...]
    axis_types: tuple[AxisType, ...]
    _hash: int

    @property
    def shape(self) -> OrderedDict[Any, int]:
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        """The number of devices; 0 without axes."""
        return math.prod(self.axis_sizes) if self.axis_names else 0

    @property
    def empty(self) -> bool:
        return not self.axis_names

    def _of_type(self, kind: AxisType) -> tuple:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types, strict=True) if t is kind)

    @property
    def auto_axes(self) -> tuple:
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple:
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple:
        return self._of_type(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        return len(self.auto_axes) == len(self.axis_names)

    @property
    def are_all_axes_explicit(self) -> bool:
        return bool(self.axis_names) and len(self.explicit_axes) == len(self.axis_names)

    @property
    def are_all_axes_manual(self) -> bool:
        return bool(self.axis_names) and len(self.manual_axes) == len(self.axis_names)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        sizes = "".join(f"{n!r}: {e}, " for n, e in self.shape_tuple)
        return f"{type(self).__name__}({sizes}axis_types={_shown(self.axis_types)})"


def _shown(types) -> str:
    return f"({', '.join(t.name for t in types)}{',' * (len(types) == 1)})"


def _types(axis_types, count: int, default: AxisType) -> tuple[AxisType, ...]:
    """A type for each axis. Raises ArgumentError."""
    if axis_types is None:
        return (default,) * count
    types = (axis_types,) * count if isinstance(axis_types, AxisType) else tuple(axis_types)
    if len(types) != count or not all(isinstance(t, AxisType) for t in types):
        raise ArgumentError(
            f"axis_types of a mesh of {count} axes", f"{axis_types!r}", "pass an AxisType for each axis, in a tuple"
        )
    return types


def _checked_names(axis_names) -> tuple:
    """Raises ArgumentError for a name that is there twice."""
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    if len(set(names)) != len(names):
        raise ArgumentError("a mesh needs a name of its own for each axis", f"names {names}", "rename one of them")
    return names


class AbstractMesh(_NamedAxes):
    """The sizes, names and types of a mesh's axes without its devices.

    >>> mesh = hl.sharding.AbstractMesh((4, 2), ("data", "model"))
    >>> hl.sharding.NamedSharding(mesh, hl.P("data", "model")).shard_shape((8, 6))
    (2, 3)
    """

    def __init__(self, axis_sizes, axis_names, axis_types=None, *, abstract_device=None):
        self.axis_sizes, self.axis_names = tuple(int(s) for s in axis_sizes), _checked_names(axis_names)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ArgumentError(
                "a mesh needs a size and a name for each axis",
                f"sizes {self.axis_sizes}, names {self.axis_names}",
                "pass as many names as sizes",
            )
        self.axis_types = _types(axis_types, len(self.axis_names), AxisType.Auto)
        self._key = self.axis_sizes, self.axis_names, self.axis_types
        self._hash = hash(self._key)

    def __eq__(self, other) -> bool:
        return self is other or (isinstance(other, AbstractMesh) and self._key == other._key)

    __hash__ = _NamedAxes.__hash__
    __repr__ = _NamedAxes.__str__

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def update(self, axis_sizes=None, axis_names=None, axis_types=None) -> AbstractMesh:
        """The same with other sizes, names or types."""
        return AbstractMesh(axis_sizes or self.axis_sizes, axis_names or self.axis_names, axis_types or self.axis_types)

    def update_axis_types(self, types: dict) -> AbstractMesh:
        """The same with other types of some axes, by name."""
        return self.update(axis_types=_updated(self, types))

    def device_mesh(self) -> DeviceMesh:
        """The axes and their sizes, for partitioning."""
        return DeviceMesh(tuple(map(str, self.axis_names)), self.axis_sizes)

    def __reduce__(self):
        return AbstractMesh, self._key


def _updated(mesh: _NamedAxes, types: dict) -> tuple[AxisType, ...]:
    return tuple(types.get(n, t) for n, t in zip(mesh.axis_names, mesh.axis_types, strict=True))


class Mesh(_NamedAxes):
    """Devices in a grid whose axes have names; `with mesh:` makes it the current one.

    devices: a nested list or an array of devices (or their names). axis_names: one name, or one for each axis.
    axis_types: an AxisType for each axis, by default Auto. Raises ArgumentError, DeviceError.

    >>> mesh = hl.sharding.Mesh(np.array(hl.devices("cpu")[:1]), ("data",))
    >>> dict(mesh.shape)
    {'data': 1}
    """

    def __init__(self, devices, axis_names, axis_types=None):
        given = np.array(devices, dtype=object)
        names = _checked_names(axis_names)
        if given.ndim != len(names):
            raise ArgumentError(
                "a mesh needs one name per axis",
                f"devices of rank {given.ndim}, names {names}",
                "pass as many names as axes",
            )
        grid = np.empty(given.shape, dtype=object)
        for place, device in np.ndenumerate(given):
            grid[place] = device if isinstance(device, Device) else find_device(device)
        flat = tuple(grid.ravel())
        if len(set(flat)) != len(flat):
            twice = next(d for k, d in enumerate(flat) if d in flat[:k])
            raise ArgumentError(
                "a mesh has each device once", f"{twice} is there more than once", "leave out the repetitions"
            )
        grid.flags.writeable = False
        self.devices, self.axis_names, self.axis_sizes = grid, names, tuple(map(int, grid.shape))
        self.axis_types = _types(axis_types, len(names), AxisType.Auto)
        self._flat_devices = flat
        self._key = flat, self.axis_sizes, names, self.axis_types
        self._hash = hash(self._key)

    @property
    def device_ids(self) -> np.ndarray:
        """The numbers of the devices, in the mesh's shape."""
        return np.array([d.id for d in self._flat_devices]).reshape(self.axis_sizes)

    @property
    def is_multi_process(self) -> bool:
        return any(d.process_index != process_index() for d in self._flat_devices)

    @property
    def local_devices(self) -> list:
        return [d for d in self._flat_devices if d.process_index == process_index()]

    @property
    def local_mesh(self) -> Mesh:
        """The part of the mesh on this process's devices. Raises ArgumentError where they are no block of it."""
        if not self.is_multi_process:
            return self
        here = np.vectorize(lambda d: d.process_index == process_index(), otypes=[bool])(self.devices)
        places = np.argwhere(here)
        block = tuple(slice(a, b + 1) for a, b in zip(places.min(0), places.max(0), strict=True))
        if not here[block].all():
            raise ArgumentError(
                "the part of a mesh on the devices of one process",
                "they are no block of the mesh",
                "order the devices by process along one axis",
            )
        return Mesh(self.devices[block], self.axis_names, self.axis_types)

    def __enter__(self) -> Mesh:
        _meshes.active.append(self)
        return self

    def __exit__(self, *exception) -> None:
        _meshes.active.pop()

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The sizes, names and types of the axes without the devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    def update(self, devices=None, axis_names=None, axis_types=None) -> Mesh:
        """The same with other devices, names or types."""
        return Mesh(
            self.devices if devices is None else devices, axis_names or self.axis_names, axis_types or self.axis_types
        )

    def update_axis_types(self, types: dict) -> Mesh:
        """The same with other types of some axes, by name."""
        return self.update(axis_types=_updated(self, types))

    def device_mesh(self) -> DeviceMesh:
        """The mesh as the IR has it: with the numbers of the devices (`device_number`)."""
        return DeviceMesh(tuple(map(str, self.axis_names)), self.axis_sizes, device_numbers(self._flat_devices))

    def __eq__(self, other) -> bool:
        return self is other or (isinstance(other, Mesh) and self._hash == other._hash and self._key == other._key)

    __hash__ = _NamedAxes.__hash__

    def __repr__(self) -> str:
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, axis_types={_shown(self.axis_types)})"

    def __reduce__(self):
        return Mesh, (np.array(self.devices), self.axis_names, self.axis_types)


def device_numbers(devices) -> tuple[int, ...]:
    """The numbers of devices among all that the program has. Raises DeviceError for one that it does not have."""
    there = {device: number for number, device in enumerate(program_devices())}
    missing = next((d for d in devices if d not in there), None)
    if missing is not None:
        raise DeviceError(
            f"a mesh with device {missing}", f"there are {len(there)} devices", "set HLOOM_NUM_CPU_DEVICES for more"
        )
    return tuple(there[d] for d in devices)


def numbered_devices(numbers) -> list[Device]:
    """The devices of these numbers. Raises DeviceError."""
    there = program_devices()
    if max(numbers, default=0) >= len(there):
        raise DeviceError(f"device {max(numbers)}", f"there are {len(there)}", "set HLOOM_NUM_CPU_DEVICES for more")
    return [there[number] for number in numbers]


# --- the current mesh ---------------------------------------------------------------------------------------------


class _Meshes(threading.local):
    """The meshes that are current in this thread, the innermost last."""

    def __init__(self):
        self.active: list[Mesh | AbstractMesh] = []
        self.read = 0  # how often the current mesh was asked for: what a trace depends on


_meshes = _Meshes()


def current_mesh() -> Mesh | AbstractMesh | None:
    """The innermost mesh that is current; None where there is none. Not noted as a use."""
    return _meshes.active[-1] if _meshes.active else None


def uses_of_mesh() -> int:
    """How often this thread asked for the current mesh: a trace in which the count grew depends on it."""
    return _meshes.read


def note_use_of_mesh() -> None:
    """Counts a use of the current mesh by this thread, as of what was traced before."""
    _meshes.read += 1


def get_mesh() -> Mesh:
    """The current mesh (`with mesh:`, `set_mesh`); one without axes where there is none."""
    _meshes.read += 1
    return next((m for m in reversed(_meshes.active) if isinstance(m, Mesh)), _no_mesh())


def get_abstract_mesh() -> AbstractMesh:
    """The sizes, names and types of the axes of the current mesh."""
    _meshes.read += 1
    return _meshes.active[-1].abstract_mesh if _meshes.active else AbstractMesh((), ())


def _no_mesh() -> Mesh:
    mesh = Mesh.__new__(Mesh)
    mesh.devices, mesh.axis_names, mesh.axis_sizes, mesh.axis_types = np.empty((), object), (), (), ()
    mesh._flat_devices, mesh._key, mesh._hash = (), ((), (), (), ()), hash(())
    return mesh


class set_mesh:
    """Makes a mesh the current one; as a context manager until the end of the block. None: no mesh is current."""

    def __init__(self, mesh: Mesh | None):
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ArgumentError("set_mesh of a mesh", f"{type(mesh).__name__} {mesh!r:.60}", "pass a Mesh")
        self._mesh, self._before = mesh, list(_meshes.active)
        _meshes.active[:] = [*self._before, mesh] if mesh is not None else []

    def __enter__(self) -> Mesh | None:
        return self._mesh

    def __exit__(self, *exception) -> None:
        _meshes.active[:] = self._before


use_mesh = set_mesh


class use_abstract_mesh:
    """Makes a mesh without devices the current one until the end of the block."""

    def __init__(self, mesh: AbstractMesh):
        self._mesh = mesh

    def __enter__(self) -> AbstractMesh:
        _meshes.active.append(self._mesh)
        return self._mesh

    def __exit__(self, *exception) -> None:
        _meshes.active.pop()


def make_mesh(axis_shapes, axis_names, axis_types=None, *, devices=None) -> Mesh:
    """A mesh of this process's devices with these axis sizes. Raises DeviceError where there are too few devices.

    axis_types: an AxisType for each axis, by default Explicit, as in JAX.

    >>> mesh = hl.make_mesh((1,), ("data",))
    >>> mesh.shape["data"]
    1
    """
    available = list(program_devices() if devices is None else devices)
    sizes = tuple(int(s) for s in axis_shapes)
    count = math.prod(sizes)
    if count > len(available):
        raise DeviceError(
            f"a mesh of {count} devices",
            f"devices= has {len(available)}"
            if devices is not None
            else f"this process has {len(available)}"
            if process_count() == 1
            else f"{process_count()} processes have {len(available)}",
            "set HLOOM_NUM_CPU_DEVICES for more"
            + ("" if process_count() == 1 else ", or hloom launch --devices-per-process"),
        )
    grid = np.empty(count, dtype=object)
    grid[:] = available[:count]
    names = _checked_names(axis_names)
    if len(names) != len(sizes):
        raise ArgumentError(
            "a mesh needs one name per axis", f"sizes {sizes}, names {names}", "pass as many names as sizes"
        )
    return Mesh(grid.reshape(sizes), names, _types(axis_types, len(names), AxisType.Explicit))


__all__ = [
    "AbstractMesh", "AxisType", "Mesh", "current_mesh", "device_numbers", "get_abstract_mesh", "get_mesh", "make_mesh",
    "note_use_of_mesh", "numbered_devices", "set_mesh", "use_abstract_mesh", "use_mesh", "uses_of_mesh",
]  # fmt: skip
