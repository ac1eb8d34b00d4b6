"""The data of an array on a device of another process: what this process knows of it."""

from __future__ import annotations

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir.types import Shape
from hloom.platforms.device import Device, process_index


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


__all__ = ["RemoteData"]
