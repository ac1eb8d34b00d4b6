"""A target: the CPU's, which records every loop nest that it renders."""

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.ir.records import field, record


@record(frozen=True)
class CountingTarget(CpuTarget):
    """The CPU target, with a list of the nests it rendered: kind and number of work items."""

    seen: list = field(default_factory=list)

    def render(self, nest) -> KernelSource:
        """The source of a nest's kernel."""
        self.seen.append((nest.kind, nest.items))
        return super().render(nest)
