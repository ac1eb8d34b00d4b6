"""CUDA devices of this machine. Nothing here is called at import, and nothing allocates GPU memory.

available(api=None) -> CudaUnavailableError | None    why CUDA cannot be used, or None: it can
gpus(api=None) -> [GpuFacts]                          those that can be used; raises the same errors
bus_address(index, api=None) -> str                   where one is on the PCI bus
"""

from __future__ import annotations

from hloom.ir.records import record
from hloom.runtime.cuda.api import Api, load_api
from hloom.runtime.cuda.errors import (
    ComputeCapabilityError,
    CudaError,
    CudaUnavailableError,
    DriverTooOldError,
    NoDriverError,
    NoGpuError,
)

DRIVER_NEEDED = 13000  # machine code of CUDA 13's assembler loads with a driver of any CUDA 13, and with no older one
OLDEST_CAPABILITY = (8, 0)
WHILE_NODES = 12040  # the first drivers with loops and branches in graphs
SWITCH_NODES = 12080  # ... and with two-way branches and switches


@record(frozen=True)
class GpuFacts:
    """A GPU. index: its number for the driver. capability: (9, 0) for sm_90. driver: 13000 for CUDA 13.0.

    memory: bytes. multiprocessors: that blocks are spread over. shared_bytes: of a block at most, on request.
    """

    index: int
    name: str
    capability: tuple[int, int]
    driver: int
    memory: int
    multiprocessors: int
    shared_bytes: int

    @property
    def arch(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def while_nodes(self) -> bool:
        """Whether graphs have loops and one-way branches."""
        return self.driver >= WHILE_NODES

    @property
    def switch_nodes(self) -> bool:
        """Whether graphs have branches of two and more ways."""
        return self.driver >= SWITCH_NODES


def version_text(version: int) -> str:
    """13.0 for 13000."""
    return f"{version // 1000}.{version % 1000 // 10}"


def available(api: Api | None = None, needed: int = DRIVER_NEEDED) -> CudaUnavailableError | None:
    """None if there is a usable GPU, else the error that says why not. Raises nothing.

    needed: the driver version that machine code requires, 13000 for CUDA 13.0.
    """
    try:
        gpus(api, needed)
    except CudaUnavailableError as error:
        return error
    except CudaError as error:  # a driver that answers something unexpected
        found = NoDriverError(error.asked, error.found, error.repair, "", error.code, error.name)
        found.__cause__ = error
        return found
    return None


def gpus(api: Api | None = None, needed: int = DRIVER_NEEDED) -> list[GpuFacts]:
    """The GPUs that programs run on. Raises CudaUnavailableError if there is none, CudaError."""
    api = api or load_api()
    version = api.start()
    if version < needed:
        raise DriverTooOldError(
            "a GPU was asked for",
            f"the driver is of CUDA {version_text(version)}; CUDA {version_text(needed)} is needed",
            f"install a driver of CUDA {version_text(needed)} or newer"
            + (" (580 or newer)" if needed == DRIVER_NEEDED else ""),
        )
    count = api.device_count()
    if not count:
        raise NoGpuError(
            "a GPU was asked for",
            "the driver shows none",
            "make one visible: CUDA_VISIBLE_DEVICES, or the container's --gpus",
        )
    found = [_facts(api, index, version) for index in range(count)]
    usable = [gpu for gpu in found if gpu.capability >= OLDEST_CAPABILITY]
    if not usable:
        seen = ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in found)
        raise ComputeCapabilityError(
            "a GPU was asked for",
            f"{seen}; kernels are compiled for sm_{OLDEST_CAPABILITY[0]}{OLDEST_CAPABILITY[1]} and newer",
            "use a GPU of the Ampere generation or newer, or the CPU",
        )
    return usable


def bus_address(index: int, api: Api | None = None) -> str:
    """Where a GPU is on the PCI bus: domain, bus and device, as in 0000:05:00.0. Raises CudaError."""
    api = api or load_api()
    device = api.device(index)
    domain, bus, slot = (api.attribute(device, f"PCI_{part}_ID") for part in ("DOMAIN", "BUS", "DEVICE"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.0"


def _facts(api: Api, index: int, version: int) -> GpuFacts:
    device = api.device(index)
    major, minor = (api.attribute(device, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    return GpuFacts(
        index,
        api.device_name(device),
        (major, minor),
        version,
        api.device_memory(device),
        api.attribute(device, "MULTIPROCESSOR_COUNT"),
        api.attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )
