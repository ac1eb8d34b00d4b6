"""From a traced module to a program for a GPU. Nothing here needs a GPU until the program is called.

compile_for_cuda(module, "sm_90") -> CudaExecutable
parse_target("cuda:sm_90") -> CudaTarget
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from hloom.backends.compile import PlannedExecutable, optimized_plan, stage_timings
from hloom.backends.cuda.program import cuda_program
from hloom.backends.cuda.runner import CudaRunner
from hloom.compiler.analysis import cost_analysis
from hloom.compiler.cache import default_cache
from hloom.compiler.compile_timings import collecting
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.targets.cuda.codegen.compile import CudaCode
from hloom.compiler.targets.cuda.codegen.cubins import cubins, disassembled
from hloom.compiler.targets.cuda.codegen.source import CudaSource
from hloom.compiler.targets.cuda.launches import CudaLaunch
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.config import config
from hloom.errors import AttributeValueError
from hloom.ir.module import Module
from hloom.ir.process.floats import default_floats
from hloom.ir.records import asdict, field, record


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


@record
class CudaExecutable(PlannedExecutable):
    """A module compiled for a GPU. plan: launches and buffers. codes: machine code by kernel source."""

    module: Module
    plan: Plan
    target: CudaTarget
    codes: Mapping[CudaSource, CudaCode]
    runner: CudaRunner
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.accepts_device_data = self.runner.index is not None

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        """Raises CudaError; arguments are released only if the program begins."""
        return self.runner(arrays, release)

    def source(self) -> str:
        """The kernels as Python text, each with the values that it computes and reads; before them, what
        libraries compute, and why."""
        said = [f"# {choice.title}: {choice.taken}; {choice.why}\n" for choice in self.runner.choices]
        return "".join([*said, "\n" * bool(said), super().source()])

    def assembly(self, form: str) -> str:
        """The kernels as 'ptx', or as machine instructions: 'sass'. Raises CudaNotInstalledError without nvdisasm."""
        return "\n".join(
            f"// {title}\n{code.ptx if form == 'ptx' else disassembled(code)}" for title, code in self._titled()
        )

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
        launched = _launches(self.plan)
        for (title, code), source in zip(self._titled(), self.codes, strict=True):
            launches = [launch for launch in launched if launch.source == source]
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
        choices = [asdict(choice) for choice in self.runner.choices]
        return {**cost_analysis(self.plan), "by kernel": kernels, "choices": choices}


def _launches(plan: Plan) -> list[CudaLaunch]:
    return [step.launch for step in plan.kernels() if isinstance(step.launch, CudaLaunch)]


@default_floats()
def compile_for_cuda(
    module: Module,
    target: CudaTarget | str = "sm_90",
    *,
    fusion: bool | None = None,
    donated: frozenset[int] = frozenset(),
    device: int | None = None,
) -> CudaExecutable:
    """Compiles a module for an architecture ('sm_90'), with or without a GPU. fusion: None means `hl.config.fusion`.
    donated: parameters whose memory may be reused. device: index of the GPU on which arguments and results stay; None
    for a program that is called with NumPy arrays and runs on the first GPU.

    Raises NoCudaKernelError, CudaNotInstalledError (where the extra `cuda` is missing and the cache has not all code).
    """
    target = CudaTarget(target, tf32=config.cuda_tf32) if isinstance(target, str) else target
    with collecting() as stages:
        optimized, plan, times = optimized_plan(module, fusion=fusion, donated=donated, target=target)
        started = time.perf_counter()
        sources = list(dict.fromkeys(launch.source for launch in _launches(plan)))
        codes = dict(zip(sources, cubins(sources, target.arch, default_cache()), strict=True))
        program = cuda_program(plan, codes, module.name)
    timings = stage_timings(stages, times, time.perf_counter() - started)
    compiled = stages.counts.get("kernels compiled", 0)
    labels = [p.hint or f"argument {k}" for k, p in enumerate(module.entry.parameters)]
    runner = CudaRunner(program, target.arch, labels, device)
    return CudaExecutable(optimized, plan, target, codes, runner, timings, compiled)
