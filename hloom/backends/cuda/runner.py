"""A CUDA program as a callable: loaded onto a GPU by its first call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.backends.cuda.autotuner import Chooser, undecided
from hloom.backends.cuda.devices import cuda_device
from hloom.backends.donation import is_shared
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.errors import ComputeCapabilityError
from hloom.runtime.cuda.programs.executable import Executable
from hloom.runtime.cuda.programs.program import Alternatives, CudaProgram, all_steps


class CudaRunner:
    """A program that takes NumPy arrays to the GPU and its results back, or leaves both there.

    arch: what it was compiled for. labels: the user's names of the arguments. index: of the GPU on which arguments and
    results stay; None to copy both. choices: the algorithms of the steps that have several, as of the last load.
    """

    def __init__(self, program: CudaProgram, arch: str, labels: Sequence[str] = (), index: int | None = None):
        self.program, self.arch, self.index = program, arch, index
        self.labels = labels or [f"argument {k}" for k in range(len(program.inputs))]
        self._loaded: Executable | None = None
        self.choices = [undecided(step) for step in all_steps(program.steps) if isinstance(step, Alternatives)]

    def load(self, device: Device) -> Executable:
        """The program on a device. Raises ComputeCapabilityError where its code does not run there."""
        needed, found = CudaTarget(self.arch).machine.capability, device.facts.capability
        if found[0] != needed[0] or found < needed:
            raise ComputeCapabilityError(
                f"{self.program.name} was called on {device}",
                f"it was compiled for {self.arch}; {device.facts.name} is sm_{found[0]}{found[1]}",
                f"compile it with target='cuda:sm_{found[0]}{found[1]}'",
            )
        chooser = Chooser(device)
        loaded = Executable(self.program, device, chooser)
        self.choices = chooser.choices
        return loaded

    def __call__(self, arrays: Sequence, begun: Callable[[], None] = lambda: None) -> list:
        """begun: called before the program writes over arguments. Raises CudaUnavailableError where there is no GPU,
        CudaError."""
        if self.index is not None:
            return self._on_device(self.index, arrays, begun)
        begun()
        if self._loaded is None:
            self._loaded = self.load(cuda_device())
        device = self._loaded.device
        device.open()
        results = self._loaded(device.put_all(arrays, self.labels))
        wanted = [np.empty(shape.dims, shape.dtype) for shape in self.program.outputs]
        under_way = [device.get(buffer, array) for buffer, array in zip(results, wanted, strict=True)]
        return [download.result() for download in under_way]

    def _on_device(self, index: int, given: Sequence, begun: Callable[[], None]) -> list[DeviceArray]:
        """Arguments and results stay on the GPU, and the call does not wait for the results.

        given: NumPy arrays or DeviceArrays; of those whose memory results take, others than this list and one `Array`
        keep what they hold. begun: as of `Executable`. Raises CudaError.
        """
        device = cuda_device(index).open()
        if self._loaded is None or self._loaded.device is not device:
            self._loaded = self.load(device)
        of_host = [k for k in range(len(given)) if not isinstance(given[k], DeviceArray)]
        put = device.put_all([given[k] for k in of_host], [self.labels[k] for k in of_host])
        there = dict(zip(of_host, put, strict=True))
        written = set(self.program.donated.values())
        for k in range(len(given)):
            if k not in there:
                shared = k in written and given[k].device is device and is_shared(given, k, 2)
                there[k] = (given[k].copy() if shared else given[k].to(device)).buffer
        made = self._loaded([there[k] for k in range(len(given))], begun)
        return [DeviceArray(device, b, shape) for b, shape in zip(made, self.program.outputs, strict=True)]
