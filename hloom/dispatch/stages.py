"""What `jitted.lower(...)` and `.compile()` return: a function traced, or compiled, to look into."""

from __future__ import annotations

from collections.abc import Callable

from hloom.arrays.base import ArrayMethods
from hloom.backends.text import program_text
from hloom.dispatch.signature import Call, Signature
from hloom.dispatch.specialization import Specialization
from hloom.errors import ArgumentError
from hloom.ir.module import Module
from hloom.tracing.trace import Traced
from hloom.tree import pytrees as tree


class Lowered:
    """A traced function: `as_text()`, `compile()`, and the module itself."""

    def __init__(
        self,
        signature: Signature,
        call: Call,
        traced: Traced,
        specialize: Callable[[Call, Traced], Specialization],
        origin: tuple,
    ):
        """origin: the jitted function, and the arguments and keywords that it was lowered for."""
        self._origin = origin
        self._signature, self._call, self._traced, self._specialize = signature, call, traced, specialize
        self.module = Module(signature.name, traced.computation)

    def as_text(self, dialect: str = "hlo", *, metadata: bool = False) -> str:
        """The graph as traced, as HLO text or, with dialect="stablehlo", as StableHLO. metadata: HLO with the user's
        lines."""
        return program_text(self.module, dialect, metadata=metadata)

    @property
    def out_tree(self):
        return self._traced.out_tree

    def cost_analysis(self) -> dict[str, object]:
        return self.compile().cost_analysis()

    def compile(self) -> Compiled:
        """The compiled version, without running it."""
        return Compiled(self._signature, self._call, self._specialize(self._call, self._traced), self._origin)

    def __reduce__(self):
        return _lowered, _without_data(self._origin)


class Compiled:
    """A compiled function: callable with arguments like those it was lowered for, and open to look into.

    executable: the compiled program (`hloom.platforms.backend.Executable`).
    """

    def __init__(self, signature: Signature, call: Call, specialization: Specialization, origin: tuple):
        self._origin = origin
        self._signature, self._call, self._specialization = signature, call, specialization
        self.executable = specialization.executable

    def __reduce__(self):
        """The function and the shapes: it is compiled anew where it is unpickled, of kernels in the disk cache."""
        return _compiled, _without_data(self._origin)

    def __call__(self, *args, **kwargs):
        """Raises ArgumentError for other shapes, dtypes or static values."""
        call, known = self._signature.bind(args, kwargs, self._call.key.settings), self._call.key
        if call.key != known:
            raise ArgumentError(
                f"a compiled '{self._signature.name}' takes what it was lowered for",
                f"{call.key.structure}, {call.key.leaves}; lowered for {known.structure}, {known.leaves}",
                "call the jitted function itself, which compiles for other shapes",
            )
        return self._specialization(call.leaves)

    @property
    def module(self) -> Module:
        """The optimized, fused module."""
        return self.executable.module

    @property
    def plan(self):
        """Launches and buffers (`hloom.compiler.schedule.scheduler.Plan`)."""
        return self.executable.plan

    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        """The optimized graph as HLO text, with fusions as in XLA's dumps, or as StableHLO (dialect="stablehlo").

        export: calls in place of fusions, and only ops that other compilers have: XLA's backend for CPUs compiles it.
        """
        return self.executable.as_text(dialect, export=export)

    def source(self) -> str:
        """The kernels as Python text."""
        return self.executable.source()

    def ptx(self) -> str:
        """The kernels of a program for a GPU (`jit(target="cuda:sm_90")`) as PTX."""
        return self.executable.assembly("ptx")

    def sass(self) -> str:
        """The kernels of a program for a GPU as machine instructions. Raises CudaNotInstalledError without nvdisasm."""
        return self.executable.assembly("sass")

    def cost_analysis(self) -> dict[str, object]:
        """'flops', 'bytes accessed', 'kernels', 'distinct kernels'; for a GPU also 'by kernel': registers, spills,
        shared memory, occupancy and the like of each."""
        return dict(self.executable.cost_analysis())

    def memory_analysis(self) -> dict[str, int]:
        """Bytes of arguments, outputs, donated outputs, temporaries and constants."""
        return self.executable.memory_analysis()

    def timings(self) -> dict[str, float]:
        """Seconds of trace, passes, plan, source and kernels, and what of the last is front end, llvm and load."""
        return {"trace": self._specialization.traced.seconds, **self.executable.timings}

    @property
    def kernels_compiled(self) -> int:
        """How many kernels had to be compiled; the others were in the process or in the disk cache already."""
        return self.executable.kernels_compiled

    @property
    def kernels_pending(self) -> int:
        """How many kernels are compiled in the background while fallback kernels run
        (`hl.config.background_compilation`)."""
        return self.executable.kernels_pending


def _without_data(origin: tuple) -> tuple:
    """The origin with the shapes of arrays in their place."""
    function, args, kwargs = origin
    return function, *tree.map(lambda leaf: leaf.aval if isinstance(leaf, ArrayMethods) else leaf, (args, kwargs))


def _lowered(function, args, kwargs) -> Lowered:
    return function.lower(*args, **kwargs)


def _compiled(function, args, kwargs) -> Compiled:
    return function.lower(*args, **kwargs).compile()


__all__ = [
    "Compiled",
    "Lowered",
]
