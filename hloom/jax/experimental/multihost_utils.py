"""`jax.experimental.multihost_utils`: values between the processes of a program."""

from __future__ import annotations

import numpy as np

from hloom import distributed
from hloom.arrays.array import Array
from hloom.arrays.from_parts import make_array_from_process_local_data
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError
from hloom.platforms.device import process_count, process_index
from hloom.sharding import NamedSharding, PartitionSpec
from hloom.tree import pytrees as tree


def process_allgather(in_tree, tiled: bool = False):
    """The values of all processes as NumPy arrays, on each of them.

    An array over the devices of several processes, or on the device of one of them, is put together. Others are
    stacked along a new first dimension, one row for each process, or joined along their first one with tiled=True.
    """

    def gather(leaf):
        if isinstance(leaf, Array) and leaf.is_sharded and not leaf.is_fully_addressable:
            whole = jit(lambda x: x, out_shardings=NamedSharding(leaf.sharding.mesh, PartitionSpec()))(leaf)
            return np.asarray(whole.addressable_data(0))
        if process_count() > 1:
            # An array that a program left on a device of one process.
            away = isinstance(leaf, Array) and not leaf.is_fully_addressable
            owner = int(distributed.all_gather(leaf.device.process_index if away else -1).max())
            if owner >= 0:
                return distributed.broadcast(None if process_index() != owner else leaf, owner)
        value = np.asarray(leaf)
        if process_count() == 1:
            return value if tiled else value[None]
        stacked = distributed.all_gather(value)
        return np.concatenate(list(stacked)) if tiled else stacked

    return tree.map(gather, in_tree)


def broadcast_one_to_all(in_tree, is_source: bool | None = None):
    """The values of process 0 (or of the one where is_source is True) as NumPy arrays, on each process."""
    if process_count() == 1:
        return tree.map(np.asarray, in_tree)
    mine = process_index() == 0 if is_source is None else bool(is_source)
    sources = distributed.all_gather(np.asarray(mine))
    source = int(np.argmax(sources))
    return tree.map(lambda leaf: distributed.broadcast(leaf, source), in_tree)


def assert_equal(in_tree, fail_message: str = "") -> None:
    """Raises ArgumentError where a value is not the same on all processes."""
    for leaf in tree.leaves(in_tree):
        rows = process_allgather(np.asarray(leaf))
        if not all(np.array_equal(row, rows[0]) for row in rows):
            raise ArgumentError(
                fail_message or "a value that is equal on all processes",
                f"{rows!r:.200}",
                "compute it alike everywhere, or send it with broadcast_one_to_all",
            )


def sync_global_devices(name: str) -> None:
    """Waits until all processes are here. Raises ArgumentError where another one waits at another name."""
    if process_count() > 1:
        assert_equal(np.frombuffer(name.encode().ljust(256)[:256], np.uint8), f"sync_global_devices({name!r})")


def host_local_array_to_global_array(local_inputs, global_mesh, pspecs):
    """Arrays over a mesh of which each process has its part."""
    return tree.map(
        lambda x, spec: make_array_from_process_local_data(NamedSharding(global_mesh, spec), x), local_inputs,
        tree.broadcast(pspecs, local_inputs, is_leaf=lambda s: isinstance(s, PartitionSpec)),
    )  # fmt: skip


def global_array_to_host_local_array(global_inputs, global_mesh, pspecs):
    """The part of arrays that this process has, as NumPy arrays."""

    def local(x):
        if x.is_fully_addressable:
            return np.asarray(x)
        parts = {repr(s.index): s for s in x.addressable_shards}
        starts = [min(s.index[d].start or 0 for s in parts.values()) for d in range(x.ndim)]
        ends = [
            max(x.shape[d] if s.index[d].stop is None else s.index[d].stop for s in parts.values())
            for d in range(x.ndim)
        ]
        found = np.empty([b - a for a, b in zip(starts, ends, strict=True)], x.dtype)
        for s in parts.values():
            place = tuple(
                slice((i.start or 0) - a, (n if i.stop is None else i.stop) - a)
                for i, a, n in zip(s.index, starts, x.shape, strict=True)
            )
            found[place] = s.data
        return found

    return tree.map(local, global_inputs)


__all__ = [
    "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array", "host_local_array_to_global_array",
    "process_allgather", "sync_global_devices",
]  # fmt: skip
__dir__ = __all__.copy
