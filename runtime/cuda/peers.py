"""Copies from one GPU to another, without the host.

A copy runs on the receiver's main stream, after the event at which the sender's buffer is filled; the sender does not
reuse the memory before the copy is done (`Buffer.readers`). Where a GPU can access the other's memory (NVLink, PCIe
below one switch) the driver copies directly once access is enabled, which happens once per pair. Memory of a pool
follows the access of the pool and not that of contexts (CUDA programming guide, "Stream-Ordered Memory Allocator"),
other libraries' memory that of contexts, so both are enabled. Everywhere else the driver copies through host memory.
"""

from __future__ import annotations

from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.memory import Buffer


def receive(device: Device, buffer: Buffer, sender: Device) -> Buffer:
    """A copy on a device of a buffer of another; the host does not wait. Raises CudaError."""
    with sender.guard():
        ready = buffer.ready or buffer.pending
        if ready is None:  # borrowed from another library, or computed long ago
            ready = sender.record(sender.main)
    with device.guard() as api:
        reach(device, sender)
        target = device.pool.take(buffer.nbytes, buffer.label)
        api.wait_event(device.main, ready.handle)
        try:
            if buffer.nbytes:
                asked = f"{buffer.nbytes:,} bytes of {buffer.label} were copied from {sender} to {device}"
                addresses = (target.address, device.context, buffer.address, sender.context)
                api.copy_peer(*addresses, buffer.nbytes, device.main, asked)
            target.ready = device.record(device.main)
            buffer.readers.append(target.ready)
        except BaseException:
            device.drain(device.main)  # the copy may still run, and reads memory that the sender may reuse
            raise
    return target


def reach(device: Device, sender: Device) -> None:
    """Enables direct copies from a GPU to this one, where possible. In the device's guard. Raises CudaError."""
    if device.reached.get(sender) is sender.pool_handle:
        return
    api = device.api
    if api.can_access_peer(device.handle, sender.handle):
        api.share_pool(sender.pool_handle, device.facts.index)
        api.enable_peer_access(sender.context)
    device.reached[sender] = sender.pool_handle
