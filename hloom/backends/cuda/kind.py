"""`cuda:0` ... as a kind of device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.compiler.placement.cost_model import DeviceModel, Link
from hloom.ir.module import Instruction
from hloom.platforms.kinds import DeviceKind, LaneRequest

if TYPE_CHECKING:
    from hloom.backends.cuda.executor import CudaLane


class CudaKind(DeviceKind):
    """NVIDIA GPUs, by the driver's numbers."""

    name = "cuda"
    model = DeviceModel(flops=2e13, bytes=2e12, start=4e-6)
    to_host = Link(seconds=1.5e-5, bytes=2e10)
    between = Link(seconds=1e-5, bytes=2e10)  # over PCIe; links between some GPUs have ten times that

    def __init__(self):
        self._found: list | None = None
        self._reason = ""

    def _gpus(self) -> list:
        if self._found is None:
            from hloom.runtime.cuda.discovery import gpus
            from hloom.runtime.cuda.errors import CudaError

            try:
                self._found = gpus()
            except CudaError as error:
                self._found, self._reason = [], f"no GPU: {error.found}"
        return self._found

    def count(self) -> int:
        return len(self._gpus())

    def reason(self) -> str:
        self._gpus()
        return self._reason

    def arch(self, index: int) -> str:
        """The architecture of a GPU, such as 'sm_90'."""
        return self._gpus()[index].arch

    def has_kernel(self, instruction: Instruction) -> bool:
        from hloom.compiler.targets.cuda.libraries.linear_algebra import has_routine
        from hloom.compiler.targets.cuda.target import has_cuda_kernel

        if has_routine(instruction):
            from hloom.backends.cuda.autotuner import has_solver

            return has_solver()
        return instruction.opcode == "custom-call" or has_cuda_kernel(instruction)

    def lane(self, request: LaneRequest) -> CudaLane:
        from hloom.backends.cuda.executor import CudaLane

        return CudaLane(request, self.arch(request.index))
