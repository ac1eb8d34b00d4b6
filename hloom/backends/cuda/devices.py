"""The GPUs of this process, opened by their first use."""

from __future__ import annotations

from hloom.config import config
from hloom.runtime.cuda.api import load_api
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.discovery import gpus

_devices: dict[int, Device] = {}


def cuda_device(index: int = 0) -> Device:
    """A GPU of this process. Raises CudaUnavailableError where there is none."""
    found = _devices.get(index)
    if found is None:
        api = load_api()
        found = _devices.setdefault(index, Device(api, gpus(api)[index], stepwise=config.cuda_stepwise))
    return found


def on_gpu(data, index: int, label: str = "an array") -> DeviceArray:
    """The data of an array on a GPU: as they are there, or copied. label: the user's name for it. Raises CudaError."""
    device = cuda_device(index).open()
    return data.to(device) if isinstance(data, DeviceArray) else DeviceArray.put(device, data, label)
