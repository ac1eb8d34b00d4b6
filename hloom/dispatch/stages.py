"""What `jitted.lower(...)` and `.compile()` give: a function traced, or compiled, to look into."""

from __future__ import annotations

from hloom.errors import ArgumentError, UnsupportedError
from hloom.ir.module import Module


class Lowered:
    """A traced function: `as_text()`, `compile()`, and the module itself."""

    def __init__(self, owner, call, traced):
        self._owner, self._call, self._traced = owner, call, traced
        self.module = Module(owner._name, traced.computation)

    def as_text(self, dialect: str = "hlo", *, metadata: bool = False) -> str:
        """The graph as traced, as HLO text or, with dialect="stablehlo", as StableHLO. metadata: HLO with the user's
        lines."""
        from hloom.backends.dump import program_text

        return program_text(self.module, dialect, metadata=metadata)

    @property
    def out_tree(self):
        return self._traced.out_tree

    def cost_analysis(self) -> dict[str, float]:
        return self.compile().cost_analysis()

    def compile(self) -> Compiled:
        """The compiled version, without running it."""
        return Compiled(self._owner.entry(self._call, self._traced), self._call)


class Compiled:
    """A compiled function: callable with arguments like those it was lowered for, and open to look into."""

    def __init__(self, entry, call):
        self._entry, self._call = entry, call

    def __call__(self, *args, **kwargs):
        call = self._entry.owner._take_apart(args, kwargs)
        if call.key != self._call.key:
            raise ArgumentError(
                f"a compiled '{self._entry.owner._name}' takes what it was lowered for",
                f"{call.structure}, {call.key[1]}; lowered for {self._call.structure}, {self._call.key[1]}",
                "call the jitted function itself, which compiles for other shapes",
            )
        return self._entry.run(call.leaves)

    @property
    def module(self) -> Module:
        """The optimized, fused module."""
        return self._entry.compiled.module

    @property
    def plan(self):
        """Launches and buffers (`hloom.compiler.schedule.scheduler.Plan`)."""
        return self._entry.compiled.plan

    def as_text(self, dialect: str = "hlo") -> str:
        """The optimized, fused graph as HLO text or, with dialect="stablehlo", as StableHLO."""
        return self._entry.compiled.as_text(dialect)

    def source(self) -> str:
        """The kernels as Python text."""
        return self._entry.compiled.source()

    def ptx(self) -> str:
        """The kernels of a program for a GPU (`jit(target="cuda:sm_90")`) as PTX."""
        return self._of_gpu("ptx")

    def sass(self) -> str:
        """The kernels of a program for a GPU as machine instructions. Raises CudaNotInstalledError without nvdisasm."""
        return self._of_gpu("sass")

    def _of_gpu(self, what: str) -> str:
        shown = getattr(self._entry.compiled, what, None)
        if shown is None:
            raise UnsupportedError(
                f"the {what.upper()} of a compiled '{self._entry.owner._name}'",
                "it was compiled for another device than a GPU",
                "compile it with hl.jit(f, target='cuda:sm_90')",
            )
        return shown()

    def cost_analysis(self) -> dict[str, object]:
        """'flops', 'bytes accessed', 'kernels', 'distinct kernels'; for a GPU also 'by kernel': registers, spills,
        shared memory, occupancy and the like of each."""
        return self._entry.compiled.cost_analysis()

    def memory_analysis(self) -> dict[str, int]:
        """Bytes of arguments, outputs, donated outputs, temporaries and constants."""
        return self._entry.compiled.memory_analysis()

    def timings(self) -> dict[str, float]:
        """Seconds of trace, passes, plan, source and kernels, and what of the last is front end, llvm and load."""
        return {"trace": self._entry.traced.seconds, **self._entry.compiled.timings}

    @property
    def kernels_compiled(self) -> int:
        """How many kernels had to be compiled; the others were in the process or in the disk cache already."""
        return self._entry.compiled.kernels_compiled

    @property
    def kernels_behind(self) -> int:
        """How many kernels are compiled while others stand in for them (`hl.config.compile_behind`)."""
        return getattr(self._entry.compiled, "kernels_behind", 0)
