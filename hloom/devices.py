"""Devices `cpu:0` ... and moving arrays to them. All CPU devices of a process share its memory and its threads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hloom import pytrees as tree
from hloom.array import Array
from hloom.config import config
from hloom.errors import DeviceError
from hloom.operators import ArrayMethods
from hloom.sharding import NamedSharding, PartitionSpec, Sharding, get_mesh, single_device


@dataclass(frozen=True)
class Device:
    """A device. kind: 'cpu'; index: its number among its kind."""

    kind: str
    index: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"Device({self})"

    @property
    def platform(self) -> str:
        return self.kind

    @property
    def id(self) -> int:
        return self.index

    @property
    def device_kind(self) -> str:
        return self.kind

    process_index = 0

    def memory_stats(self) -> None:
        """None: the host's memory is not counted by device."""
        return None


@lru_cache(maxsize=64)
def _device(kind: str, index: int) -> Device:
    return Device(kind, index)


def devices(kind: str | None = None) -> list[Device]:
    """The devices of this process (of one kind)."""
    if kind not in (None, "cpu"):
        raise DeviceError(f"devices of kind {kind!r} were asked for", "this hloom runs on: cpu", "use 'cpu'")
    return [_device("cpu", k) for k in range(config.num_cpu_devices)]


_chosen: Device | None = None  # by `hl.default_device`


def default_device() -> Device:
    return _chosen or _device("cpu", 0)


def choose_default_device(device: Device | None) -> Device | None:
    """Makes a device that of arrays for which none is chosen (None: the first). Returns what was chosen before."""
    global _chosen
    before, _chosen = _chosen, device
    return before


def find_device(name) -> Device:
    """The device of a name 'cpu:0', 'cpu', or a Device. Raises DeviceError."""
    if name is None:
        return default_device()
    if isinstance(name, PartitionSpec):
        name = NamedSharding(get_mesh(), name)
    if isinstance(name, Sharding):
        name = single_device(name)
    if isinstance(name, Device):
        found = name
    else:
        match = re.fullmatch(r"(\w+?)(?::(\d+))?", str(name))
        found = _device(match[1], int(match[2] or 0)) if match else None
    if found is None or found.kind != "cpu" or found.index >= config.num_cpu_devices:
        raise DeviceError(
            f"device {name!s} was asked for",
            f"this process has {', '.join(map(str, devices()))}",
            "name one of these, or set HLOOM_NUM_CPU_DEVICES for more",
        )
    return found


def device_put(x, device=None, *, src=None, donate: bool = False, may_alias: bool | None = None):
    """The arrays of a tree on a device. NumPy arrays and numbers become Arrays. Raises DeviceError, ArgumentError.

    device: a name such as 'cpu:0', a Device, or a sharding over one device. The other arguments are JAX's and say how
    memory may be shared, which is free here.
    """
    from hloom.tracing import Tracer, as_array

    target = None if device is None else find_device(device)

    def put(leaf):
        array = as_array(leaf)
        if isinstance(array, Tracer):
            return array
        return Array(array._value(), array.weak, target)

    return tree.map(put, x)


def block_until_ready(x):
    """Waits until the arrays of a tree are computed, and returns it."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, Array):
            leaf.block_until_ready()
    return x


def device_get(x):
    """The arrays of a tree as NumPy arrays; everything else as it is. Raises TracerConversionError."""
    return tree.map(lambda leaf: np.array(leaf) if isinstance(leaf, ArrayMethods) else leaf, x)


def local_devices(process_index=None, backend: str | None = None, host_id=None) -> list[Device]:
    """The devices of this process, which are all there are."""
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(devices(backend))


local_device_count = device_count


def default_backend() -> str:
    """The kind of the device on which computations run."""
    return default_device().kind


def process_index(backend: str | None = None) -> int:
    """0: there is one process."""
    return 0


def process_count(backend: str | None = None) -> int:
    """1: there is one process."""
    return 1


def copy_to_host_async(x):
    """x itself: the memory of the CPU is the host's."""
    return x
