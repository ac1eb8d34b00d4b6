"""How arrays are laid out over devices, with the classes of `jax.sharding`."""

from __future__ import annotations

import difflib
import functools
import math
from typing import Any, TypeGuard

from hloom.errors import ArgumentError, DeviceError, ShapeError
from hloom.ir.records import record, replace
from hloom.ir.spmd import sharding as ir_sharding
from hloom.ir.types import Shape
from hloom.platforms.device import Device, find_device, process_index
from hloom.sharding.meshes import AbstractMesh, Mesh, current_mesh, get_mesh


@record(frozen=True)
class Shard:
    """The part of an array that is on one device: the device, its index in the array, a number, the data.

    replica_id: how many devices before it hold the same part. data: None where the device is another process's.
    """

    device: Any
    index: tuple
    replica_id: int
    data: Any


class Sharding:
    """Base class: how an array is laid out over devices."""

    @property
    def device_set(self) -> set:
        raise AttributeError(f"{type(self).__name__} names no devices")

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return len(self.device_set) == 1

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are in this process."""
        return all(d.process_index == process_index() for d in self.device_set)

    @property
    def addressable_devices(self) -> set:
        return {d for d in self.device_set if d.process_index == process_index()}

    @property
    def has_addressable_devices(self) -> bool:
        return bool(self.addressable_devices)

    @property
    def memory_kind(self) -> str:
        return "device"

    def with_memory_kind(self, kind: str) -> Sharding:
        """The sharding itself: each device has one kind of memory."""
        return self

    def shard_shape(self, global_shape) -> tuple[int, ...]:
        """The shape of the part on one device."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape) -> dict:
        """The part of an array that each device holds, as slices."""
        return {device: tuple(slice(None) for _ in global_shape) for device in self.device_set}

    def addressable_devices_indices_map(self, global_shape) -> dict:
        """The same for the devices of this process."""
        here = self.addressable_devices
        return {d: index for d, index in self.devices_indices_map(global_shape).items() if d in here}

    def is_equivalent_to(self, other, ndim: int) -> bool:
        """Whether both put arrays of this rank on the same devices in the same way."""
        if self.device_set != other.device_set:
            return False
        if isinstance(self, NamedSharding) and isinstance(other, NamedSharding):
            # Each dimension a multiple of all axes, so that no part is empty.
            dims = (2 * len(self.devices),) * ndim
            where = dict(zip(self.devices, self.indices(dims), strict=True))
            return all(where[d] == index for d, index in zip(other.devices, other.indices(dims), strict=True))
        return self.is_fully_replicated and other.is_fully_replicated


@record(frozen=True)
class SingleDeviceSharding(Sharding):
    """The whole array on one device."""

    device: Any

    def __post_init__(self):
        if not isinstance(self.device, Device):
            object.__setattr__(self, "device", find_device(self.device))

    @property
    def device_set(self) -> set:
        return {self.device}

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind=device)"


def make_single_device_sharding(device, *, memory_kind=None) -> SingleDeviceSharding:
    """The whole array on one device."""
    return SingleDeviceSharding(device)


class _Unconstrained:
    """`PartitionSpec.UNCONSTRAINED`: no name of an axis, and one object, copied and pickled too."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self):
        return _unconstrained, ()


def _unconstrained() -> _Unconstrained:
    return PartitionSpec.UNCONSTRAINED


class PartitionSpec(tuple):
    """The names of mesh axes that split each axis of an array; None leaves an axis whole.

    >>> hl.sharding.PartitionSpec("data", None)
    PartitionSpec('data', None)
    """

    UNCONSTRAINED = _Unconstrained()  # an axis that the compiler may lay out as it likes

    def __new__(cls, *names, unreduced=(), reduced=()):
        if unreduced or reduced:
            raise ArgumentError(
                "a PartitionSpec with unreduced or reduced axes",
                f"{', '.join(map(repr, (*unreduced, *reduced)))}; arrays of hloom hold sums, not their parts",
                "leave it out: within jit, sums stay unreduced until they are read",
            )
        return super().__new__(cls, (n[0] if type(n) is tuple and len(n) == 1 else n or None for n in names))

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def __getnewargs__(self):
        return tuple(self)

    @property
    def partitions(self) -> tuple:
        return tuple(self)

    @property
    def unreduced(self) -> frozenset:
        """The axes along which values are sums that are not formed yet: none, as results are always sums."""
        return frozenset()

    reduced = unreduced

    def axes(self) -> tuple[tuple, ...]:
        """For each entry the names of the axes."""
        return tuple(
            () if e is None or e is PartitionSpec.UNCONSTRAINED else e if isinstance(e, tuple) else (e,) for e in self
        )

    def without_end(self) -> PartitionSpec:
        """The same without the entries at the end that are None: of an array of any rank the same layout."""
        count = len(self)
        while count and self[count - 1] is None:
            count -= 1
        return self if count == len(self) else PartitionSpec(*self[:count])

    def names(self) -> list:
        """The names of all axes that split something."""
        return [name for entry in self.axes() for name in entry]


P = PartitionSpec


class NamedSharding(Sharding):
    """Arrays split over the axes of a mesh as a PartitionSpec says. Raises ArgumentError for an axis that the mesh does
    not have, and for one that is named twice.

    >>> mesh = hl.make_mesh((1,), ("data",))
    >>> sharding = hl.NamedSharding(mesh, hl.P("data"))
    >>> sharding.shard_shape((8, 2))
    (8, 2)
    """

    def __init__(self, mesh: Mesh | AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None):
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise ArgumentError("a NamedSharding over a mesh", f"{type(mesh).__name__} {mesh!r:.60}", "pass a Mesh")
        if not isinstance(spec, PartitionSpec):
            if isinstance(spec, tuple) or spec is None:
                spec = PartitionSpec(*(spec or ()))
            else:
                raise ArgumentError("a NamedSharding with a PartitionSpec", f"{spec!r:.60}", "write P('axis', None)")
        self.mesh, self.spec = mesh, spec
        names = spec.names()
        for name in names:
            if name not in mesh.axis_names:
                near = difflib.get_close_matches(str(name), map(str, mesh.axis_names), 1)
                raise ArgumentError(
                    f"a sharding over mesh axis {name!r}",
                    f"the mesh has {mesh.axis_names}",
                    f"did you mean {near[0]!r}?" if near else "name one of these",
                )
            if names.count(name) > 1:
                raise ArgumentError(
                    f"a sharding splits one dimension at most over mesh axis {name!r}",
                    f"{spec!r} names it {names.count(name)} times",
                    "split each dimension over axes of its own",
                )
        self._hash = hash((mesh, spec.without_end()))
        self._layouts: dict[int, ir_sharding.Sharding] = {}

    def __eq__(self, other) -> bool:
        return self is other or (
            isinstance(other, NamedSharding)
            and self._hash == other._hash
            and self.spec.without_end() == other.spec.without_end()
            and self.mesh == other.mesh
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self):
        return NamedSharding, (self.mesh, self.spec)

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec!r}, memory_kind=device)"

    def update(self, mesh=None, spec=None, memory_kind=None) -> NamedSharding:
        """The same with another mesh or spec."""
        return NamedSharding(mesh or self.mesh, self.spec if spec is None else spec)

    @property
    def devices(self) -> tuple:
        """The devices by partition number."""
        if not isinstance(self.mesh, Mesh):
            raise ArgumentError(
                "the devices of a sharding", f"its mesh {self.mesh} has none", "use a Mesh in place of an AbstractMesh"
            )
        return self.mesh._flat_devices

    @functools.cached_property
    def device_set(self) -> set:
        return set(self.devices)

    @property
    def num_devices(self) -> int:
        return self.mesh.size or 1

    @property
    def replicated_axes(self) -> frozenset:
        return frozenset(self.mesh.axis_names) - set(self.spec.names())

    @functools.cached_property
    def is_fully_replicated(self) -> bool:
        return all(self.mesh.shape[name] == 1 for name in self.spec.names())

    @functools.cached_property
    def is_fully_addressable(self) -> bool:
        return all(d.process_index == process_index() for d in self.devices)

    def layout(self, rank: int) -> ir_sharding.Sharding:
        """The sharding of an array of this rank as the IR has it, with the numbers of the devices
        (`meshes.device_number`). Raises ShapeError where the spec has more entries than the array dimensions."""
        found = self._layouts.get(rank)
        if found is None:
            self.check_rank(rank, f"an array of rank {rank}")
            dims = tuple(tuple(map(str, axes)) for axes in self.spec.axes())
            dims += ((),) * (rank - len(dims))
            found = self._layouts[rank] = ir_sharding.Sharding(self.mesh.device_mesh(), dims)
        return found

    @property
    def open_dims(self) -> tuple[int, ...]:
        """The dimensions that the compiler may lay out as it likes."""
        return tuple(k for k, e in enumerate(self.spec) if e is PartitionSpec.UNCONSTRAINED)

    def annotation(self, rank: int) -> ir_sharding.Sharding:
        """The same as what a user asks of a value: with dimensions that are open."""
        found = self.layout(rank)
        return replace(found, open=self.open_dims) if self.open_dims else found

    def check_rank(self, rank: int, what: str) -> None:
        """Raises ShapeError where the spec has more entries than dimensions. what: names the array in the error."""
        if len(self.spec) > rank:
            raise ShapeError(
                f"{self.spec!r} for {what}",
                f"the spec has {len(self.spec)} entries, the array {rank} dimension{'s' * (rank != 1)}",
                "pass at most one entry per dimension",
            )

    def check_shape(self, shape: Shape, what: str) -> None:
        """Raises ShapeError where the mesh's axes do not divide the dimensions that they split. what: for people."""
        self.check_rank(len(shape.dims), f"{what} {shape!r}")
        for d, axes in enumerate(self.spec.axes()):
            count = math.prod(self.mesh.shape[n] for n in axes)
            if shape.dims[d] % count:
                raise ShapeError(
                    f"{self.spec!r} splits dimension {d} of {what} in {count} parts",
                    f"{shape!r}, whose size {shape.dims[d]} is no multiple of {count}",
                    f"pad the dimension to {-(-shape.dims[d] // count) * count}, or leave it whole (None)",
                )

    def shard_shape(self, global_shape) -> tuple[int, ...]:
        layout, dims = self.layout(len(global_shape)), tuple(global_shape)
        if any(size % layout.count(d) for d, size in enumerate(dims)):
            parts = [layout.count(d) for d in range(len(dims))]
            raise ArgumentError(f"{self.spec!r} splits an array", f"shape {dims} in {parts} parts", "pad the array")
        return layout.local_dims(dims)

    def check_compatible_aval(self, aval_shape) -> None:
        """Raises ShapeError where the spec has more entries than the shape."""
        self.check_rank(len(aval_shape), "an array")

    def devices_indices_map(self, global_shape) -> dict:
        self.shard_shape(global_shape)
        return dict(zip(self.devices, self.indices(tuple(global_shape)), strict=True))

    def indices(self, dims: tuple[int, ...]) -> list[tuple[slice, ...]]:
        """The part of an array that each device holds, by partition number."""
        return _indices(self.layout(len(dims)), dims)


@functools.lru_cache(maxsize=1024)
def _indices(layout: ir_sharding.Sharding, dims: tuple[int, ...]) -> list[tuple[slice, ...]]:
    own = ir_sharding.Sharding(ir_sharding.DeviceMesh(layout.mesh.names, layout.mesh.sizes), layout.dims)
    whole = [layout.count(d) == 1 for d in range(len(dims))]
    return [
        tuple(slice(None) if full else part for full, part in zip(whole, own.region(k, dims), strict=True))
        for k in range(layout.mesh.size)
    ]


def as_sharding(place) -> Sharding | None:
    """The sharding of a place that a user names: a sharding, a PartitionSpec for the current mesh, a device or its
    name. None stays None. Raises ArgumentError, DeviceError."""
    if place is None or isinstance(place, Sharding):
        return place
    if isinstance(place, PartitionSpec):
        mesh: Mesh | AbstractMesh = get_mesh()
        if mesh.empty:  # in the body of a shard_map the mesh that it was passed
            mesh = current_mesh() or mesh
        if mesh.empty:
            raise ArgumentError(
                f"a sharding {place!r} of the current mesh",
                "no mesh is current",
                "call it within `with hl.set_mesh(mesh):`, or pass a NamedSharding",
            )
        return NamedSharding(mesh, place)
    return SingleDeviceSharding(find_device(place))


def over_several(place) -> TypeGuard[NamedSharding]:
    """Whether a sharding has more than one device."""
    return isinstance(place, NamedSharding) and place.mesh.size > 1


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
            "a value on one device", f"{sharding!r} has {len(found)}", "name one device, such as hl.devices()[0]"
        )
    return next(iter(found))


__all__ = [
    "NamedSharding", "P", "PartitionSpec", "Shard", "Sharding", "SingleDeviceSharding", "as_sharding", "device_of",
    "make_single_device_sharding", "over_several", "single_device",
]  # fmt: skip
