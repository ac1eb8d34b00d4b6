"""Copies from one GPU to another, without the host.

A copy is on the receiver's main stream, behind the event after which the sender's buffer is filled; the sender does not
use the memory again before it is done (`Buffer.readers`). Where a GPU can reach the other's memory (NVLink, PCIe below
one switch) the driver copies directly as soon as it may: it is told once for each pair. Memory of a pool follows the
pool's own access and not that of contexts (CUDA programming guide, "Stream-Ordered Memory Allocator"), other libraries'
memory that of contexts, so both are enabled. Everywhere else the driver goes through memory of the host by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.runtime.cuda.memory import Buffer

if TYPE_CHECKING:
    from hloom.runtime.cuda.device import Device


def receive(device: Device, buffer: Buffer, sender: Device) -> Buffer:
    """A copy on a device of a buffer of another, made without the host waiting. Raises CudaError."""
    with sender.guard():
        ready = buffer.ready or buffer.pending
        if ready is None:  # what another library has lent, or long there
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
            device.settle(device.main)  # the copy may run all the same, and reads what the sender may use again
            raise
    return target


def reach(device: Device, sender: Device) -> None:
    """Has the driver copy directly from a GPU to this one, where it can. In the device's guard. Raises CudaError."""
    if device.reached.get(sender) is sender.pool_handle:
        return
    api = device.api
    if api.can_access_peer(device.handle, sender.handle):
        api.share_pool(sender.pool_handle, device.facts.index)
        api.enable_peer_access(sender.context)
    device.reached[sender] = sender.pool_handle
