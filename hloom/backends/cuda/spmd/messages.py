"""Values sent from a GPU to a GPU of another process, in programs whose parts the user placed.

Each channel has a separate group of two GPUs, and a stream on each, so programs that both send first do not deadlock,
and values of different channels stay apart. The main stream waits where a value is used.
"""

from __future__ import annotations

from hloom.backends.cuda.spmd.communicators import World, group_members, nccl, until_ready
from hloom.backends.cuda.spmd.watch import watch
from hloom.platforms.backend import RemoteEnd
from hloom.platforms.processes import processes
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.events import Event
from hloom.runtime.cuda.memory import Buffer


class GpuLink:
    """A channel to or from a GPU of another process. end: seen from this one."""

    def __init__(self, end: RemoteEnd, device: Device):
        self.end, self.device = end, device
        self.world = World(end.gpus, end.turn)
        self.rank = 0 if end.gpus[0][0] == processes().index else 1
        self._stream = None

    def _ready(self):
        """The stream, ordered after all work on the main stream. In the device's guard."""
        device = self.device
        if self._stream is None:
            self._stream = device.api.create_stream()
            device.on_close(self._close)
        device.api.wait_event(self._stream, device.record(device.main).handle)
        return self._stream

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self.device.api.synchronize_stream(stream, f"{self.end.asked} was waited for")
            self.device.api.destroy_stream(stream)

    def send(self, buffer: Buffer) -> None:
        """Begins to send a buffer of the device. Raises CudaError, DistributedError."""
        if not buffer.nbytes:
            return
        member = group_members(self.world, ((0, 1),))[self.rank]
        with self.device.guard():
            self.device.use(buffer)
            stream = self._ready()
            nccl().send(member, buffer.address, buffer.nbytes, 1, stream)
            until_ready(self.world, [member], self.end.asked)
            event = self.device.record(stream)
            buffer.readers.append(event)
        self._watch(event)

    def receive(self, nbytes: int, label: str) -> Buffer:
        """A buffer that is being filled with the next value. Raises CudaError, DistributedError."""
        with self.device.guard():
            buffer = self.device.pool.take(nbytes, label)
        if not nbytes:
            return buffer
        member = group_members(self.world, ((0, 1),))[self.rank]
        with self.device.guard():
            stream = self._ready()
            nccl().receive(member, buffer.address, nbytes, 0, stream)
            until_ready(self.world, [member], self.end.asked)
            buffer.pending = event = self.device.record(stream)
            buffer.readers.append(event)
        self._watch(event)
        return buffer

    def _watch(self, event: Event) -> None:
        watch(self.world, self.end.asked, self.end.source, [(self.device, event)])


__all__ = ["GpuLink"]
