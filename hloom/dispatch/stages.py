"""The results of `jitted.lower(...)` and `.compile()`: a function traced, or compiled, and inspectable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hloom.arrays.base import ArrayMethods
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.backends.text import program_text
from hloom.dispatch.collectives import Collectives, with_whole_axes
from hloom.dispatch.signature import Call, Key, Signature
from hloom.dispatch.specialization import Specialization
from hloom.dispatch.spmd import SpmdProgram
from hloom.errors import ArgumentError, DeviceError
from hloom.ir.module import Module
from hloom.ir.records import record
from hloom.tracing.signatures import function_name
from hloom.tracing.trace import Traced, as_array
from hloom.tree import pytrees as tree

KEPT = 1024  # keys of arguments of open sizes that were compared


class ProgramText(str):
    """A program as text, which `as_hlo_text` returns too, as that of XLA's computations does."""

    __slots__ = ()

    def as_hlo_text(self) -> str:
        return str(self)


@record(frozen=True)
class ArgumentInfo:
    """The shape and dtype of an argument, and whether it is donated."""

    aval: ShapeDtypeStruct
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self):
        return self.aval.dtype


class TracedFunction(Module):
    """The result of `jitted.trace(...)`: the module as traced, with the attributes of JAX's `Traced`."""

    __slots__ = ("_lowered",)

    def __init__(self, lowered: Lowered):
        super().__init__(lowered.module.name, lowered.module.entry, lowered.module.aliases)
        self._lowered = lowered

    def lower(self, **options) -> Lowered:
        """The function for these arguments, to look into and to compile. options: accepted, no effect."""
        return self._lowered

    @property
    def fun_name(self) -> str:
        return function_name(self._lowered._signature.function)

    @property
    def out_info(self):
        """The tree of results as ShapeDtypeStructs."""
        return self._lowered.out_info

    @property
    def out_avals(self):
        return self._lowered.out_info

    @property
    def args_info(self):
        return self._lowered.args_info

    @property
    def in_avals(self):
        return self._lowered.in_avals

    @property
    def in_tree(self):
        return self._lowered.in_tree

    @property
    def out_tree(self):
        return self._lowered.out_tree

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of the donated leaves."""
        return self._lowered.donate_argnums


class Lowered:
    """A traced function: `as_text()`, `compile()`, and the module itself."""

    def __init__(
        self,
        signature: Signature,
        call: Call,
        traced: Traced,
        specialize: Callable[[Call, Traced], Specialization],
        program: Callable[[Call, Traced], SpmdProgram | None],
        origin: tuple,
    ):
        """program: returns the program over several devices, if the call is one. origin: the jitted function, and the
        arguments and keywords that it was lowered for."""
        self._origin = origin
        self._signature, self._call, self._traced, self._specialize = signature, call, traced, specialize
        self._program = program(call, traced)
        alone = Module(signature.name, traced.computation, assumptions=traced.assumptions)
        self.module = alone if self._program is None else self._program.module

    def as_text(self, dialect: str = "hlo", *, metadata: bool = False) -> str:
        """The graph as traced, as HLO text or, with dialect="stablehlo", as StableHLO. metadata: HLO with the user's
        lines."""
        return program_text(self.module, dialect, metadata=metadata)

    def compiler_ir(self, dialect: str | None = None) -> ProgramText:
        """The graph as traced, as StableHLO (the default) or, with dialect="hlo", as HLO: see `ProgramText`."""
        return ProgramText(self.as_text(dialect or "stablehlo"))

    @property
    def in_tree(self):
        return tree.structure(self.in_avals)

    @property
    def in_avals(self):
        """(args, kwargs) as ShapeDtypeStructs, static arguments left out."""
        avals = [ShapeDtypeStruct(x._shape.dims, x._shape.dtype, x.weak) for x in self._call.leaves]
        return tree.unflatten(self._call.key.structure, avals)

    @property
    def args_info(self):
        """(args, kwargs) as `ArgumentInfo`s."""
        donated = iter(range(len(self._call.leaves)))
        return tree.map(lambda aval: ArgumentInfo(aval, next(donated) in self._call.donated), self.in_avals)

    @property
    def out_tree(self):
        return self._traced.out_tree

    @property
    def out_info(self):
        """The tree of results as ShapeDtypeStructs."""
        outputs = self._traced.computation.outputs()
        shapes = [
            ShapeDtypeStruct(o.shape.dims, o.shape.dtype, weak)
            for o, weak in zip(outputs, self._traced.weak, strict=False)
        ]
        return tree.unflatten(self._traced.out_tree, shapes)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of the donated leaves."""
        return tuple(sorted(self._call.donated))

    def cost_analysis(self) -> dict[str, object]:
        """As that of the result of `compile()`: kernels, bytes, operations."""
        return self.compile().cost_analysis()

    def compile(self, compiler_options: dict | None = None) -> Compiled:
        """The compiled version, without running it. compiler_options: names of XLA's options (`xla_...`), which mean
        nothing here. Raises ArgumentError for others."""
        unknown = [name for name in compiler_options or () if not str(name).startswith("xla_")]
        if unknown:
            raise ArgumentError(
                f"compiler_options of '{self._signature.name}'", f"{unknown[0]!r}", "name an option of XLA: 'xla_...'"
            )
        return Compiled(self, self._specialize(self._call, self._traced))

    def compile_in_place(self, updates: Mapping[int, int]) -> Compiled:
        """Compiles results in the memory of arguments: (result -> argument), by number, where the backend can; its
        executable's `donated` says where it does."""
        return Compiled(self, self._specialize(self._call.in_place(tuple(updates.items())), self._traced))

    def __reduce__(self):
        return _lowered, _without_data(self._origin)


class Compiled:
    """A compiled function: callable with arguments like those it was lowered for, and open to look into.

    executable: the compiled program (`hloom.platforms.backend.Executable`).
    """

    def __init__(self, lowered: Lowered, specialization: Specialization):
        self._origin = lowered._origin
        self.in_tree, self.out_tree = lowered.in_tree, lowered.out_tree
        self.in_avals, self.args_info, self.out_info = lowered.in_avals, lowered.args_info, lowered.out_info
        self._signature, self._call, self._specialization = lowered._signature, lowered._call, specialization
        self.executable = specialization.executable
        self._fitting: set[Key] = set()  # of open sizes, that were compared

    def __reduce__(self):
        """The function and the shapes: it is recompiled where it is unpickled, from kernels in the disk cache."""
        return _compiled, _without_data(self._origin)

    def __call__(self, *args, **kwargs):
        """Static arguments may be left out. Raises ArgumentError for other shapes, dtypes or static values."""
        known = self._call.key
        if self._call.statics:
            leaves, structure = tree.flatten((args, kwargs))
            if structure == known.structure:
                leaves = [self._signature.leaf(leaf) for leaf in leaves]
                if tuple([leaf._key for leaf in leaves]) == known.leaves:
                    return self._specialization([as_array(leaf) for leaf in leaves])
        call = self._signature.bind(args, kwargs, known.settings)
        if not self._call.twins:
            call = call.without_twins()
        if call.key != known and not self._is_open_for(call.key):
            raise ArgumentError(
                f"a compiled '{self._signature.name}' takes the arguments it was lowered for",
                f"{call.key.structure}, {call.key.leaves}; lowered for {known.structure}, {known.leaves}",
                "call the jitted function itself, which compiles for other shapes",
            )
        return self._specialization([as_array(leaf) for leaf in call.leaves])

    def _is_open_for(self, key: Key) -> bool:
        """Whether a key differs in open sizes only, which the executable compares with its arguments."""
        if key in self._fitting:
            return True
        known = self._call.key
        if len(known.leaves) != len(key.leaves) or known._replace(leaves=()) != key._replace(leaves=()):
            return False
        fits = all(map(_fits, known.leaves, key.leaves))
        if fits and len(self._fitting) < KEPT:
            self._fitting.add(key)
        return fits

    @property
    def module(self) -> Module:
        """The optimized, fused module; of open sizes as traced."""
        return self.executable.module

    @property
    def input_shardings(self):
        """(args, kwargs) with the sharding of each argument."""
        found = self._specialization.input_shardings
        return tree.unflatten(self._call.key.structure, found)

    @property
    def output_shardings(self):
        """The tree of results with the sharding of each."""
        return tree.unflatten(self.out_tree, self._specialization.output_shardings)

    def collectives(self) -> Collectives:
        """The communication between the program's devices: a row for each collective, with its kind, the mesh's axes,
        the bytes that a device sends, how often it runs, the user's line, and the reason. It prints as a table, in
        colour with rich."""
        found = getattr(self.executable, "collectives", None)
        return with_whole_axes(found()) if found is not None else Collectives()

    @property
    def plan(self):
        """Launches and buffers (`hloom.compiler.schedule.scheduler.Plan`). Raises DeviceError for a program on several
        devices, and for one of open sizes."""
        found = getattr(self.executable, "plan", None)
        if found is None:
            raise DeviceError(
                "the plan of a compiled function",
                "it runs on several devices, with a plan for each",
                "use as_text(), source() or cost_analysis(), which show all of them",
            )
        return found

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
        """'flops', 'transcendentals', 'bytes accessed', 'kernels', 'distinct kernels'; for a GPU also 'by kernel':
        registers, spills, shared memory, occupancy and the like of each."""
        return dict(self.executable.cost_analysis())

    def memory_analysis(self) -> dict[str, int]:
        """Bytes of arguments, outputs, donated outputs, temporaries and constants."""
        return self.executable.memory_analysis()

    def timings(self) -> dict[str, float]:
        """Seconds spent in trace, passes, plan, source and kernels, the last split into front end, llvm and load."""
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


def _fits(known: Any, leaf: Any) -> bool:
    """Whether a leaf of a key is one that was lowered, or that with sizes in the place of open ones."""
    if known == leaf:
        return True
    (shape, *rest), (given, *others) = [one if isinstance(one, tuple) else (one,) for one in (known, leaf)]
    return shape.is_open and shape.dtype == given.dtype and shape.rank == given.rank and rest == others


def _without_data(origin: tuple) -> tuple:
    """The origin, with arrays replaced by their shapes."""
    function, args, kwargs = origin
    return function, *tree.map(lambda leaf: leaf.aval if isinstance(leaf, ArrayMethods) else leaf, (args, kwargs))


def _lowered(function, args, kwargs) -> Lowered:
    return function.lower(*args, **kwargs)


def _compiled(function, args, kwargs) -> Compiled:
    return function.lower(*args, **kwargs).compile()


__all__ = [
    "ArgumentInfo",
    "Compiled",
    "Lowered",
    "ProgramText",
    "TracedFunction",
]
