"""Programs on NVIDIA GPUs: devices, memory, and executables that are CUDA graphs.

    available() -> None or why not          gpus() -> [GpuFacts]          Device(load_api(), facts)
    Executable(program, device)(buffers) -> buffers                       program: a CudaProgram (`program.py`)
    DeviceArray.put(device, array)          .numpy(), .block_until_ready(), DLPack, __cuda_array_interface__

Nothing of CUDA is imported before `load_api`, `available` or `gpus` is called, and a `Device` takes nothing of its GPU
before its first use. docs/reference/cuda_runtime.md describes it.
"""

from hloom.runtime.cuda.api import Api, load_api
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.discovery import GpuFacts, available, gpus
from hloom.runtime.cuda.errors import CudaError, CudaUnavailableError
from hloom.runtime.cuda.interop import import_array
from hloom.runtime.cuda.programs.executable import Executable
from hloom.runtime.cuda.programs.program import CudaProgram

__all__ = [
    "Api",
    "CudaError",
    "CudaProgram",
    "CudaUnavailableError",
    "Device",
    "DeviceArray",
    "Executable",
    "GpuFacts",
    "available",
    "gpus",
    "import_array",
    "load_api",
]
