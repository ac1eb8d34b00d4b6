"""An array on a device: a buffer with a shape, and the protocols of other libraries."""

from __future__ import annotations

import numpy as np

from hloom.ir.types import Shape
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.dlpack import CUDA
from hloom.runtime.cuda.exports import cuda_array_interface, export_dlpack
from hloom.runtime.cuda.memory import Buffer
from hloom.runtime.cuda.peers import receive
from hloom.runtime.cuda.staging import Download


class DeviceArray:
    """C-contiguous elements in a buffer of a device. They may not be computed yet.

    CuPy, torch, Numba and others read it by DLPack or __cuda_array_interface__, without a copy.
    """

    __slots__ = ("__weakref__", "buffer", "device", "shape_and_dtype")

    def __init__(self, device: Device, buffer: Buffer, shape: Shape):
        self.device, self.buffer, self.shape_and_dtype = device, buffer, shape

    @classmethod
    def put(cls, device: Device, array: np.ndarray, label: str = "an array") -> DeviceArray:
        """A copy of a NumPy array on a device. label: the user's name for it. Raises CudaError."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        return cls(device, device.put(array, label), Shape(array.dtype, array.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shape_and_dtype.dims

    @property
    def dtype(self) -> np.dtype:
        return self.shape_and_dtype.dtype

    @property
    def nbytes(self) -> int:
        return self.shape_and_dtype.bytes

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape_and_dtype} on {self.device})"

    def block_until_ready(self) -> DeviceArray:
        """Waits until the elements are computed. Raises CudaError, also of earlier work on the device."""
        if self.buffer.ready is not None:
            self.device.wait(self.buffer.ready, f"{self.buffer.label} was waited for")
            self.buffer.ready = None
        return self

    def is_ready(self) -> bool:
        """Whether the elements are computed. Raises CudaError, also of earlier work on the device."""
        if self.buffer.ready is not None:
            with self.device.guard() as api:
                if not api.query_event(self.buffer.ready.handle, f"{self.buffer.label} was asked for"):
                    return False
            self.buffer.ready = None
        return True

    def copy_to_host(self) -> Download:
        """Starts a copy to the host; `.result()` waits for it and returns the NumPy array. Raises CudaError."""
        return self.device.get(self.buffer, np.empty(self.shape, self.dtype))

    def numpy(self) -> np.ndarray:
        """The elements on the host. Raises CudaError, also of the work that computed them."""
        return self.copy_to_host().result()

    def copy(self) -> DeviceArray:
        """The same elements in other memory of this device. Raises CudaError."""
        return DeviceArray(self.device, self.device.copy(self.buffer), self.shape_and_dtype)

    def is_lent(self) -> bool:
        """Whether another library owns its memory or may read it, so that it must not be overwritten. Pending copies to
        the host do not count, as programs wait for them."""
        with self.device.guard():  # reclaims tensors that other libraries have released
            pass
        return not self.buffer.owned

    def donate_buffer(self) -> Buffer:
        """Releases its memory to a program that overwrites it; the array is unusable afterwards."""
        buffer = self.buffer
        del self.buffer
        return buffer

    def to(self, device: Device) -> DeviceArray:
        """A copy on another device, or itself."""
        if device is self.device:
            return self
        return DeviceArray(device, receive(device, self.buffer, self.device), self.shape_and_dtype)

    # --- other libraries ---

    @property
    def __cuda_array_interface__(self) -> dict:
        return cuda_array_interface(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.facts.index

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return export_dlpack(self, stream, max_version, dl_device, copy)
