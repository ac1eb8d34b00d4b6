"""Arrays over several devices, made of their parts: `make_array_from_callback` and its siblings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.interchange import from_python
from hloom.arrays.sharded import ShardedData, bounds, from_callback
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import Shape
from hloom.platforms.device import process_index
from hloom.sharding.shardings import NamedSharding, as_sharding, device_of, over_several


def make_array_from_callback(shape, sharding, data_callback, dtype=None) -> Array:
    """An array whose part at each index (a tuple of slices) is the result of data_callback for it.

    It is called once for each part that a device of this process holds. Raises ShapeError for a part of another shape
    than its index, or where the mesh does not divide the array.

    >>> mesh = hl.make_mesh((1,), ("data",))
    >>> whole = np.arange(8.0, dtype=np.float32)
    >>> x = hl.make_array_from_callback((8,), hl.NamedSharding(mesh, hl.P("data")), lambda index: whole[index])
    >>> x.shape
    (8,)
    """
    place, dims = as_sharding(sharding), tuple(map(int, shape))
    if over_several(place):
        data = from_callback(dims, place, lambda index: _plain(data_callback(index), dtype))
        return Array(data, False, place, data.shape)
    value = _plain(data_callback(tuple(slice(None) for _ in dims)), dtype)
    if value.shape != dims:
        raise ArgumentError(
            f"make_array_from_callback of shape {dims}",
            f"the callback returned {Shape(value.dtype, value.shape)!r}",
            "match the shapes",
        )
    return Array(value, False, device_of(place))


def make_array_from_single_device_arrays(shape, sharding, arrays, *, dtype=None) -> Array:
    """The array whose parts are these arrays, one on each device of this process, in any order.

    Raises ArgumentError if a device has none or two of them, ShapeError for a part of another shape.
    """
    place, dims = as_sharding(sharding), tuple(map(int, shape))
    if not over_several(place):
        (array,) = arrays if len(arrays) == 1 else (None,)
        if array is None or array.shape != dims:
            raise ArgumentError(
                "an array of the parts on each device", f"{len(arrays)} parts for {dims}", "pass the one whole array"
            )
        return Array(array._value(), array.weak, device_of(place))
    by_device = {array.device: array for array in arrays}
    wanted = [d for d in place.devices if d.process_index == process_index()]
    missing = [d for d in wanted if d not in by_device]
    if missing or len(arrays) != len(wanted):
        raise ArgumentError(
            f"an array of one part on each of the {len(wanted)} devices of {place!r}",
            f"{len(arrays)} arrays" + (f", none on {missing[0]}" if missing else ""),
            "put each part on its device: hl.device_put(part, device)",
        )
    local = place.shard_shape(dims)
    for device, array in by_device.items():
        if array.shape != local:
            raise ShapeError(
                f"the part of an array of shape {dims} on {device} has the shape {local}",
                f"{array._shape!r}",
                "pass the part selected by sharding.devices_indices_map(shape)[device]",
            )
    shape_of = Shape(arrays[0].dtype, dims)
    parts = [_data(by_device[d]) if d in by_device else None for d in place.devices]
    return Array(ShardedData(parts, place, shape_of), arrays[0].weak, place, shape_of)


def _data(array: Array) -> Any:
    """The data of an array on one device, in its memory."""
    held = array._held()
    return held if array._device is not None and array._device.kind_object.keeps_arrays else array._value()


def make_array_from_process_local_data(sharding, local_data, global_shape=None) -> Array:
    """The array of which this process has `local_data`: its devices' parts, side by side.

    global_shape: by default the sizes of local_data times the number of processes along each dimension that is split
    over them; a size of None also means this default. In one process local_data is all of the array. Raises
    ArgumentError for data of another shape than this process's part.
    """
    place = as_sharding(sharding)
    local = from_python(local_data)
    value = local._value()
    if not over_several(place) or place.is_fully_addressable:
        if global_shape is not None and tuple(global_shape) not in (value.shape, (None,) * value.ndim):
            raise ArgumentError(
                "an array of the data of one process", f"{value.shape} of {tuple(global_shape)}", "pass all of it"
            )
        if not over_several(place):
            return Array(value, local.weak, device_of(place))
        return make_array_from_callback(value.shape, place, lambda index: value[index])
    dims, starts = _global_dims(place, value, global_shape)

    def part(index):
        return value[tuple(slice(a - s, b - s) for (a, b), s in zip(bounds(index, dims), starts, strict=True))]

    return make_array_from_callback(dims, place, part)


def _global_dims(place: NamedSharding, value: np.ndarray, global_shape) -> tuple[tuple[int, ...], list[int]]:
    """The shape of the whole array, and where this process's part starts. Raises ArgumentError."""
    layout = place.layout(value.ndim)
    counts = tuple(layout.count(d) for d in range(value.ndim))
    own = [k for k, d in enumerate(place.devices) if d.process_index == process_index()]
    # The indices of this process's parts along each dimension.
    parts = [sorted({place.indices(counts)[k][d].start or 0 for k in own}) for d in range(value.ndim)]
    asked = tuple(global_shape) if global_shape is not None else (None,) * value.ndim
    dims = []
    for d, (count, numbers) in enumerate(zip(counts, parts, strict=True)):
        given = asked[d]
        size = value.shape[d] * count // len(numbers) if given is None else int(given)
        dims.append(size)
        whole = given is not None and value.shape[d] == size  # all processes have all of the dimension
        expected = size if whole else math.ceil(size / count) * len(numbers)
        if value.shape[d] != expected or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise ArgumentError(
                f"this process's part of an array of shape {asked}, {place!r}",
                f"data of shape {value.shape}; dimension {d} has {len(numbers)} of {count} parts here",
                "pass the parts of this process's devices side by side",
            )
    starts = [
        0 if value.shape[d] == dims[d] else numbers[0] * (dims[d] // count)
        for d, (count, numbers) in enumerate(zip(counts, parts, strict=True))
    ]
    return tuple(dims), starts


def _plain(part, dtype) -> np.ndarray:
    return from_python(part if dtype is None else np.asarray(part, dtype))._value()


__all__ = [
    "make_array_from_callback",
    "make_array_from_process_local_data",
    "make_array_from_single_device_arrays",
]
