"""From a traced module to a program for a GPU. Nothing here needs a GPU until the program is called.

compile_for_cuda(module, "sm_90") -> CudaModule
parse_target("cuda:sm_90") -> CudaTarget
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import numpy as np

from hloom.backends.compile import PlannedModule, optimized_plan, stage_timings
from hloom.backends.cuda.autotuner import Chooser, undecided
from hloom.backends.cuda.program import cuda_program
from hloom.compiler.analysis import cost_analysis
from hloom.compiler.cache import default_cache
from hloom.compiler.compile_timings import collecting
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.targets.cuda.codegen.compile import CudaCode
from hloom.compiler.targets.cuda.codegen.cubins import cubins, disassembled
from hloom.compiler.targets.cuda.launches import CudaLaunch, sources_of
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.config import config
from hloom.errors import AttributeValueError
from hloom.ir.module import Module
from hloom.ir.records import asdict, field, record
from hloom.runtime.cuda.array import DeviceArray, is_shared
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.discovery import gpus
from hloom.runtime.cuda.errors import ComputeCapabilityError
from hloom.runtime.cuda.programs.executable import Executable
from hloom.runtime.cuda.programs.program import Alternatives, CudaProgram, all_steps


def parse_target(text: str) -> CudaTarget:
    """The target of 'cuda:sm_90'. Raises AttributeValueError, with the names that there are."""
    kind, _, arch = str(text).partition(":")
    if kind != "cuda" or not arch.startswith("sm_"):
        raise AttributeValueError(
            f"jit(target={text!r})",
            "a target is 'cuda:' and an architecture",
            "pass 'cuda:sm_90', or leave it out to compile for the device that the arguments are on",
        )
    return CudaTarget(arch, tf32=config.cuda_tf32)


@functools.cache
def cuda_device(index: int = 0) -> Device:
    """A GPU of this process, opened by its first use. Raises CudaUnavailableError where there is none."""
    from hloom.runtime.cuda.api import load_api

    api = load_api()
    return Device(api, gpus(api)[index], stepwise=config.cuda_stepwise)


def on_gpu(data, index: int, label: str = "an array") -> DeviceArray:
    """The data of an array on a GPU: as they are there, or copied. label: the user's name for it. Raises CudaError."""
    device = cuda_device(index).open()
    return data.to(device) if isinstance(data, DeviceArray) else DeviceArray.put(device, data, label)


class CudaExecutable:
    """A program called with NumPy arrays: they are copied to the GPU, and its results back.

    choices: what became of the steps that could be done in several ways, where the program was loaded last.
    """

    def __init__(self, program: CudaProgram, arch: str):
        self.program, self.arch = program, arch
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

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Raises CudaUnavailableError where there is no GPU, CudaError."""
        if self._loaded is None:
            self._loaded = self.load(cuda_device())
        device = self._loaded.device
        device.open()
        given = device.put_all(arrays, [f"argument {k}" for k in range(len(arrays))])
        results = self._loaded(given)
        wanted = [np.empty(shape.dims, shape.dtype) for shape in self.program.outputs]
        under_way = [device.get(buffer, array) for buffer, array in zip(results, wanted, strict=True)]
        return [download.result() for download in under_way]

    def on_device(
        self, index: int, given: list, labels: Sequence[str], begun: Callable[[], None] = lambda: None
    ) -> list[DeviceArray]:
        """Runs on a GPU; arguments and results stay there, and the call does not wait for the results.

        given: NumPy arrays or DeviceArrays; of those whose memory results take, others than this list and one `Array`
        keep what they hold. labels: the user's names of the arguments. begun: as of `Executable`. Raises CudaError.
        """
        device = cuda_device(index).open()
        if self._loaded is None or self._loaded.device is not device:
            self._loaded = self.load(device)
        of_host = [k for k in range(len(given)) if not isinstance(given[k], DeviceArray)]
        put = device.put_all([given[k] for k in of_host], [labels[k] for k in of_host])
        there = dict(zip(of_host, put, strict=True))
        written = set(self.program.donated.values())
        for k in range(len(given)):
            if k not in there:
                shared = k in written and given[k].device is device and is_shared(given, k, 2)
                there[k] = (given[k].copy() if shared else given[k].to(device)).buffer
        made = self._loaded([there[k] for k in range(len(given))], begun)
        return [DeviceArray(device, b, shape) for b, shape in zip(made, self.program.outputs, strict=True)]

    def for_one_output(self) -> None:
        """There is no shorter way of calling it."""
        return


@record
class CudaModule(PlannedModule):
    """A module compiled for a GPU; as `CompiledModule` for the CPU.

    codes: machine code by text. timings: seconds by stage. kernels_compiled: how many cubins were not in the cache.
    """

    module: Module
    plan: Plan
    target: CudaTarget
    codes: dict[KernelSource, CudaCode]
    executable: CudaExecutable
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0

    def source(self) -> str:
        """The kernels as Python text, each with the values that it computes and reads; before them, what
        libraries compute, and why."""
        said = [f"# {choice.title}: {choice.taken}; {choice.why}\n" for choice in self.executable.choices]
        return "".join([*said, "\n" * bool(said), super().source()])

    def ptx(self) -> str:
        """The kernels as PTX, one behind the other."""
        return "\n".join(f"// {title}\n{code.ptx}" for title, code in self._titled())

    def sass(self) -> str:
        """The kernels as machine instructions. Raises CudaNotInstalledError where nvdisasm is not installed."""
        return "\n".join(f"// {title}\n{disassembled(code)}" for title, code in self._titled())

    def _titled(self) -> list[tuple[str, CudaCode]]:
        """The distinct kernels; of those with one name the further ones are numbered."""
        count: dict[str, int] = {}
        result = []
        for code in self.codes.values():
            count[code.name] = count.get(code.name, 0) + 1
            result.append((code.name if count[code.name] == 1 else f"{code.name} {count[code.name]}", code))
        return result

    def cost_analysis(self) -> dict[str, object]:
        """As for the CPU, and by kernel what its code and launches take: 'by kernel' -> its title -> 'registers' (a
        thread), 'spills' and 'stack' (bytes a thread), 'shared bytes' (a block), 'threads' (a block), 'blocks' (of its
        largest launch), 'launches', 'occupancy' (0 to 1: the warps of a multiprocessor that are there at once).

        'choices': of each step that could be done in several ways, the fields of its `Choice`."""
        machine, kernels = self.target.machine, {}
        for (title, code), source in zip(self._titled(), self.codes, strict=True):
            launches: list[CudaLaunch] = [s.launch for s in self.plan.kernels() if s.launch.source is source]
            launches = launches or [s.launch for s in self.plan.kernels() if s.launch.source == source]
            shared = code.shared + max(launch.shared_bytes for launch in launches)
            kernels[title] = {
                "registers": code.registers,
                "spills": code.spills,
                "stack": code.stack,
                "shared bytes": shared,
                "threads": launches[0].threads,
                "blocks": max(launch.blocks for launch in launches),
                "launches": len(launches),
                "occupancy": machine.occupancy(launches[0].threads, code.registers, shared),
            }
        choices = [asdict(choice) for choice in self.executable.choices]
        return {**cost_analysis(self.plan), "by kernel": kernels, "choices": choices}


def compile_for_cuda(
    module: Module,
    target: CudaTarget | str = "sm_90",
    *,
    fusion: bool | None = None,
    donated: frozenset[int] = frozenset(),
) -> CudaModule:
    """Compiles a module for an architecture ('sm_90'), with or without a GPU. fusion: None takes `hl.config.fusion`.
    donated: parameters whose memory may be reused.

    Raises NoCudaKernelError, CudaNotInstalledError (where the extra `cuda` is missing and the cache has not all code).
    """
    target = CudaTarget(target, tf32=config.cuda_tf32) if isinstance(target, str) else target
    with collecting() as stages:
        optimized, plan, times = optimized_plan(module, fusion=fusion, donated=donated, target=target)
        started = time.perf_counter()
        sources = list(dict.fromkeys(source for step in plan.kernels() for source in sources_of(step.launch)))
        codes = dict(zip(sources, cubins(sources, target.arch, default_cache()), strict=True))
        program = cuda_program(plan, codes, module.name)
    timings = stage_timings(stages, times, time.perf_counter() - started)
    compiled = stages.counts.get("kernels compiled", 0)
    return CudaModule(optimized, plan, target, codes, CudaExecutable(program, target.arch), timings, compiled)
