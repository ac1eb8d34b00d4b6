"""Arrays between devices and to the host: device_put, device_get, block_until_ready."""

from __future__ import annotations

import numpy as np

from hloom import sharding
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.ir.source import current_source, device_scope
from hloom.platforms.device import scoped_device
from hloom.platforms.kinds import device_kind
from hloom.sharding.shardings import device_of
from hloom.tracing.trace import as_array, bind, current_trace
from hloom.tree import pytrees as tree


def device_put(x, device=None, *, src=None, donate: bool = False, may_alias: bool | None = None):
    """The arrays of a tree on a device. NumPy arrays and numbers become Arrays. Raises DeviceError, ArgumentError.

    device: a name such as 'cpu:0', a Device, or a sharding over one device; None is that of the scope around, and
    outside of scopes arrays stay where they are. In a jitted function the value is computed wherever it is, and sent.
    The other arguments are JAX's and say how memory may be shared, which is free here.
    """
    target = scoped_device() if device is None else device_of(device)
    tracing, label = current_trace() is not None, ""

    def put(leaf):
        nonlocal label
        array = as_array(leaf)
        if tracing or not isinstance(array, Array):
            if device is None:
                return array
            with device_scope(str(target)):
                return bind("copy", array, weak=array.weak)
        if target is None:
            return Array(array._held(), array.weak, array._device, array._shape)
        kind = device_kind(target.kind)
        if not kind.keeps_arrays:
            return Array(array._value(), array.weak, target)
        label = label or _label()
        return Array(kind.put(array._held(), target.index, label), array.weak, target, array._shape)

    return tree.map(put, x)


def reshard(x, sharding):
    """x (an array or a tree of them) laid out as a sharding says: on its one device. Raises DeviceError."""
    return device_put(x, sharding)


def _label() -> str:
    """What a user calls an array that is made now: the variable that it is assigned to, or the line."""
    source = current_source()
    return (source.variable or f"an array of {source}") if source else "an array"


def block_until_ready(x):
    """Waits until the arrays of a tree are computed, and returns it."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, Array):
            leaf.block_until_ready()
    return x


def device_get(x):
    """The arrays of a tree as NumPy arrays; everything else as it is. Raises TracerConversionError."""
    return tree.map(lambda leaf: np.array(leaf) if isinstance(leaf, ArrayMethods) else leaf, x)


def copy_to_host_async(x):
    """x itself: the memory of the CPU is the host's, and what is on a GPU is copied when it is read."""
    return x


sharding.reshard = reshard  # type: ignore[attr-defined]  # where JAX has it; that package knows no ops


__all__ = [
    "block_until_ready",
    "copy_to_host_async",
    "device_get",
    "device_put",
    "reshard",
]
