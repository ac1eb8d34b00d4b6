"""The data of an array that several devices hold, a part on each; and of one that a device of another process holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, ShapeError
from hloom.ir.spmd.sharding import Sharding as Layout
from hloom.ir.types import HLO_NAME, Shape
from hloom.platforms.device import Device, process_index
from hloom.sharding.shardings import NamedSharding


class ShardedData:
    """The parts of an array, by the partition number of its sharding.

    parts: row-major NumPy arrays, or data in the memory of devices that keep arrays, of the sizes `layout.local_dims`:
    where the mesh does not divide a dimension, the last parts end with padding of any value. None for devices of other
    processes.
    """

    __slots__ = ("_whole", "parts", "shape", "sharding")

    def __init__(self, parts: Sequence[Any], sharding: NamedSharding, shape: Shape):
        self.parts, self.sharding, self.shape = list(parts), sharding, shape
        self._whole: np.ndarray | None = None

    @property
    def dtype(self) -> np.dtype:
        return self.shape.dtype

    @property
    def layout(self) -> Layout:
        return self.sharding.layout(len(self.shape.dims))

    def numpy(self) -> np.ndarray:
        """The whole array, put together once. Raises ArgumentError if parts are in other processes."""
        if self._whole is None:
            first = next((p for p in self.parts if p is not None), None)
            if self.sharding.is_fully_replicated and first is not None:
                self._whole = on_host(first)
            else:
                self._whole = self._assembled()
        return self._whole

    def _assembled(self) -> np.ndarray:
        dims = self.shape.dims
        whole = np.empty(dims, self.shape.dtype)
        missing = {bounds(index, dims) for index in self.sharding.indices(dims)}
        for part, index in zip(self.parts, self.sharding.indices(dims), strict=True):
            limits = bounds(index, dims)
            if limits in missing and part is not None:
                missing.discard(limits)
                whole[index] = _valid(on_host(part), limits)
        if missing:
            raise ArgumentError(
                f"the elements of {self.shape!r}, which is {self.sharding!r}",
                f"{len(missing)} of its parts are in other processes",
                "read x.addressable_shards, or gather it with multihost_utils.process_allgather(x)",
            )
        return whole

    def part(self, number: int) -> Any:
        """A partition's part of the array, without padding: a NumPy array, or data on its device."""
        part = self.parts[number]
        if part is None:
            return None
        limits = bounds(self.sharding.indices(self.shape.dims)[number], self.shape.dims)
        if part.shape == tuple(b - a for a, b in limits):
            return part
        return _valid(on_host(part), limits)

    def block_until_ready(self) -> None:
        """Waits for computations on devices with separate memory; other programs are finished when a call returns."""
        for part in self.parts:
            if part is not None and not isinstance(part, np.ndarray):
                part.block_until_ready()

    def is_ready(self) -> bool:
        return all(part is None or isinstance(part, np.ndarray) or part.is_ready() for part in self.parts)

    def is_on_host(self) -> bool:
        """Whether all parts that are here are NumPy arrays."""
        return all(part is None or isinstance(part, np.ndarray) for part in self.parts)

    def copy(self) -> ShardedData:
        return ShardedData([None if p is None else p.copy() for p in self.parts], self.sharding, self.shape)


class RemoteData:
    """An array on a device of another process. This process can pass it to compiled functions, and cannot read it."""

    __slots__ = ("device", "shape")

    def __init__(self, shape: Shape, device: Device):
        self.shape, self.device = shape, device

    @property
    def dtype(self) -> np.dtype:
        return self.shape.dtype

    def numpy(self) -> np.ndarray:
        """Raises ArgumentError."""
        raise ArgumentError(
            f"the elements of {self.shape!r} on {self.device}",
            f"this is process {process_index()}, which has no part of it",
            "compute with it in a compiled function, or fetch it, in all processes, with "
            "multihost_utils.process_allgather(x)",
        )

    def copy(self) -> RemoteData:
        return self

    def is_lent(self) -> bool:
        return False

    def block_until_ready(self) -> None:
        """Nothing: the process that has the array waits for it."""

    def is_ready(self) -> bool:
        return True


def on_host(part) -> np.ndarray:
    """A part as a NumPy array. Raises CudaError."""
    return part if isinstance(part, np.ndarray) else part.numpy()


def on_devices(parts: Sequence, sharding: NamedSharding, label: str = "a part of an array") -> list:
    """The parts in the memory of the sharding's devices, for devices that have separate memory. Raises CudaError."""
    return [
        part
        if part is None or not device.kind_object.keeps_arrays
        else device.kind_object.put(part, device.index, label)
        for part, device in zip(parts, sharding.devices, strict=True)
    ]


def bounds(index: tuple[slice, ...], dims: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The start and end of a part along each dimension."""
    return tuple((s.start or 0, d if s.stop is None else s.stop) for s, d in zip(index, dims, strict=True))


def _valid(part: np.ndarray, limits) -> np.ndarray:
    sizes = tuple(b - a for a, b in limits)
    return part if part.shape == sizes else part[tuple(slice(0, s) for s in sizes)]


def split(value: np.ndarray, sharding: NamedSharding, shape: Shape | None = None) -> ShardedData:
    """An array laid out by a sharding. Devices that hold the same part share its memory."""
    dims = value.shape
    parts = parts_of(value, sharding.layout(len(dims)), sharding.indices(dims))
    here = [d.process_index == process_index() for d in sharding.devices] if not sharding.is_fully_addressable else ()
    found = [p if own else None for p, own in zip(parts, here, strict=True)] if here else parts
    made = ShardedData(on_devices(found, sharding), sharding, shape or Shape(value.dtype, dims))
    if all(layout == 1 for layout in map(made.layout.count, range(len(dims)))):
        made._whole = parts[0]
    return made


def parts_of(value: np.ndarray, layout: Layout, indices: list[tuple[slice, ...]]) -> list[np.ndarray]:
    """The parts of a NumPy array, padded with zeros; `indices` as of `NamedSharding.indices`."""
    dims = value.shape
    local = layout.local_dims(dims)
    made: dict[tuple, np.ndarray] = {}
    found = []
    for index in indices:
        limits = bounds(index, dims)
        part = made.get(limits)
        if part is None:
            taken = value[index]
            if taken.shape == local:
                part = np.ascontiguousarray(taken).reshape(local)
            else:
                part = np.zeros(local, value.dtype)
                part[tuple(slice(0, n) for n in taken.shape)] = taken
            made[limits] = part
        found.append(part)
    return found


def from_callback(shape: Shape | tuple, sharding: NamedSharding, part_of: Callable, dtype=None) -> ShardedData:
    """The data whose part at each index is the result of `part_of(index)`; called once for each part of this process.

    Raises ShapeError for a part of another shape, and ArgumentError for one of another dtype.
    """
    dims = tuple(shape.dims if isinstance(shape, Shape) else map(int, shape))
    local = sharding.shard_shape(dims)
    made: dict[tuple, np.ndarray] = {}
    parts: list[np.ndarray | None] = []
    for device, index in zip(sharding.devices, sharding.indices(dims), strict=True):
        if device.process_index != process_index():
            parts.append(None)
            continue
        limits = bounds(index, dims)
        if limits not in made:
            made[limits] = _checked_part(part_of(index), local, dims, index, dtype)
        parts.append(made[limits])
    first = next(p for p in parts if p is not None)
    for part in parts:
        if part is not None and part.dtype != first.dtype:
            raise ArgumentError(
                f"parts of one array of shape {dims}",
                f"dtypes {HLO_NAME[first.dtype]} and {HLO_NAME[part.dtype]}",
                "return parts of one dtype, or pass dtype=",
            )
    return ShardedData(on_devices(parts, sharding), sharding, Shape(first.dtype, dims))


def _checked_part(part, local: tuple[int, ...], dims: tuple[int, ...], index, dtype) -> np.ndarray:
    found = np.asarray(part, dtype)
    if found.shape != local:
        raise ShapeError(
            f"the part of an array of shape {dims} at {index} has the shape {local}",
            f"{found.shape}",
            "return the part selected by the index: data[index]",
        )
    return np.ascontiguousarray(found).reshape(local)


__all__ = ["RemoteData", "ShardedData", "bounds", "from_callback", "on_devices", "on_host", "parts_of", "split"]
