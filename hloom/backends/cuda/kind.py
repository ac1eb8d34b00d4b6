"""`cuda:0` ... as a kind of device."""

from __future__ import annotations

from hloom.backends.cuda.devices import cuda_device, on_gpu
from hloom.compiler.placement.cost_model import DeviceModel, Link
from hloom.ir.module import Instruction
from hloom.ir.records import asdict
from hloom.platforms.backend import DeviceBackend
from hloom.platforms.kinds import DeviceKind
from hloom.runtime.cuda import dlpack
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.discovery import GpuFacts, bus_address, gpus
from hloom.runtime.cuda.errors import CudaError, NoGpuError
from hloom.runtime.cuda.interop import import_array


class CudaKind(DeviceKind):
    """NVIDIA GPUs, by the driver's numbers."""

    name = "cuda"
    model = DeviceModel(flops=2e13, bytes=2e12, start=4e-6)
    to_host = Link(seconds=1.5e-5, bytes=2e10)
    between = Link(seconds=1e-5, bytes=2e10)  # over PCIe; links between some GPUs have ten times that
    keeps_arrays = True
    dlpack_types = frozenset({dlpack.CUDA, dlpack.CUDA_MANAGED})
    backend_name = "hloom.backends.cuda.backend:CudaBackend"

    def __init__(self):
        self._found: list[GpuFacts] | None = None
        self._reason = ""

    def count(self) -> int:
        if self._found is None:
            try:
                self._found = gpus()
            except CudaError as error:
                self._found, self._reason = [], f"no GPU: {error.found}"
        return len(self._found)

    def reason(self) -> str:
        self.count()
        return self._reason

    def has_kernel(self, instruction: Instruction) -> bool:
        assert isinstance(self.backend, DeviceBackend)
        return self.backend.has_kernel(instruction)

    def memory_stats(self, index: int) -> dict[str, int]:
        """Raises CudaError."""
        return asdict(cuda_device(index).open().memory())

    def description(self, index: int) -> str:
        """Raises CudaError."""
        facts = (self._found or gpus())[index]
        return f"name: {facts.name} ({facts.arch}), pci bus id: {bus_address(facts.index)}"

    def put(self, data, index: int, label: str) -> DeviceArray:
        """Raises CudaError."""
        return on_gpu(data, index, label)

    def borrow(self, other, index: int) -> tuple[DeviceArray, int]:
        """Raises CudaError; CudaInteropError for memory that is not contiguous and dtypes that hloom lacks."""
        self.count()
        for number, facts in enumerate(self._found or ()):
            if facts.index == index:
                return import_array(cuda_device(number).open(), other), number
        raise NoGpuError(
            f"a {type(other).__name__} was taken",
            f"it is on GPU {index}, which hloom does not use",
            "copy it to the host",
        )
