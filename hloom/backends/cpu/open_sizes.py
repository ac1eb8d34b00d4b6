"""Programs for arrays of many sizes: one executable, whose variants each serve the sizes for which their guards hold.

A variant is compiled for the sizes of a call that no other serves (`hloom.ir.sizes.guards`), without a new trace. A new
size of a variant costs the evaluation of its plan; kernels are shared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from hloom.backends.compile import optimized_plan, stage_timings
from hloom.backends.cpu.driver import driver
from hloom.backends.cpu.memory_limit import check_memory
from hloom.backends.cpu.program import Layout, program_of
from hloom.backends.dump import kernel_listing
from hloom.backends.text import program_text
from hloom.compiler.compile_timings import collecting
from hloom.compiler.schedule.at_sizes import plan_at
from hloom.compiler.schedule.scheduler import Plan
from hloom.errors import ArgumentError, FallbackWarning, HloomError, ShapeError
from hloom.ir.module import Module
from hloom.ir.ops.specialize import Specialization
from hloom.ir.process import forking
from hloom.ir.process.floats import default_floats
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Comparison, Dim, Size, dims_of
from hloom.ir.sizes.guards import GuardedScope, inner
from hloom.ir.sizes.solving import solved
from hloom.ir.source import current_source, warn_while_compiling
from hloom.platforms.backend import CompileOptions, Executable
from hloom.runtime import program as runtime

__all__ = ["SMALL", "OpenExecutable", "Variant", "variant_for"]

KEPT = 64  # sizes whose programs are kept
SMALL = 2  # smaller sizes are numbers in a variant of their own: axes that broadcast, and empty arrays


@record
class Variant:
    """What serves the sizes for which guards hold. fixed: sizes that are numbers in it."""

    module: Module
    plan: Plan
    fixed: Mapping[str, int]
    guards: Sequence[Comparison]

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for sizes, by name."""
        if any([sizes[name] != size for name, size in self.fixed.items()]):
            return False
        return all([guard.holds(sizes) for guard in self.guards])

    def conditions(self, dims: Mapping[str, Dim]) -> list[Comparison]:
        """What has to hold of the sizes of dimensions, by name."""
        return [*[Comparison(dims[name], "==", size) for name, size in self.fixed.items()], *self.guards]

    def __str__(self) -> str:
        parts = [f"{name} == {size}" for name, size in self.fixed.items()]
        return ", ".join([*parts, *map(repr, self.guards)]) or "all sizes"


def variant_for(
    module: Module,
    dims: Mapping[str, Dim],
    sizes: Mapping[str, int],
    fixed: Mapping[str, int],
    planned: Callable[[Module], tuple[Module, Plan]],
) -> Variant:
    """The variant of a module for sizes of its dimensions, of which those of `fixed` are numbers. planned: returns the
    module after all passes, and its plan."""
    scope = GuardedScope(sizes)
    free: dict[str, Size] = {name: scope.dim(d, SMALL) for name, d in dims.items() if name not in fixed}
    entry = Specialization(free | {**fixed}).computation(module.entry)
    optimized, plan = planned(module.with_entry(entry))
    outer = {inner(name): dims[name] for name in free}
    asked = [dim >= SMALL for dim in outer.values()] + [guard.over(outer) for guard in scope.guards]
    guards = {repr(one): one for one in asked if isinstance(one, Comparison)}
    return Variant(optimized, plan, fixed, [*guards.values()])


class OpenExecutable(Executable):
    """A module whose parameters have open sizes, for one CPU device. variants: in the order in which they were made."""

    def __init__(self, module: Module, options: CompileOptions, device: int = 0):
        self.module, self._options, self._device = module, options, device
        self.donated, self.output_shapes = {}, [o.shape for o in module.entry.outputs()]
        self.runner, self.timings = self._run, {}
        self.variants: list[Variant] = []
        self._takes_numbers = False
        self._inputs = [p.shape for p in module.entry.parameters]
        self.dims: dict[str, Dim] = {}
        for shape in self._inputs:
            for size in shape.dims:
                self.dims |= dims_of(size)
        self._programs: OrderedDict[tuple[tuple[int, ...], ...], runtime.Executable] = OrderedDict()
        self._lock = forking.rlock()

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The sizes of the dimensions, by name, for the dimensions of arguments. Raises ShapeError where none fit, or
        they are out of bounds or against what is known of them."""
        ranks = [len(s) for s in shapes] == [len(s.dims) for s in self._inputs]
        found = solved([(w.dims, g) for w, g in zip(self._inputs, shapes, strict=True)]) if ranks else None
        if found is None:
            wanted = "; ".join([", ".join(map(repr, self._inputs)), *[d.declaration() for d in self.dims.values()]])
            raise ShapeError(
                f"'{self.module.name}' called with arrays of the sizes {', '.join(map(str, shapes))}",
                f"it takes {wanted}",
                "pass arrays whose sizes agree, within the bounds",
            )
        for name, dim in self.dims.items():
            size = found[name]
            if not dim.takes(size):
                raise ShapeError(
                    f"'{self.module.name}' called with {name} = {size}", f"it is {dim.declaration()}",
                    "pass arrays of such sizes, or change the Dim",
                )  # fmt: skip
            for text, comparison in dim.scope.comparisons if dim.scope is not None else ():
                if not comparison.holds(found):
                    raise ShapeError(
                        f"'{self.module.name}' called with {name} = {size}", f"{text} does not hold",
                        "pass arrays of such sizes",
                    )  # fmt: skip
        return found

    def variant(self, sizes: Mapping[str, int]) -> Variant:
        """The variant for sizes, compiled now where there is none."""
        with self._lock:
            found = next((v for v in self.variants if v.serves(sizes)), None)
            if found is None:
                found = self._compiled(sizes)
                self.variants.append(found)
        return found

    def _compiled(self, sizes: Mapping[str, int]) -> Variant:
        if not self._takes_numbers:
            try:
                return self._variant(sizes, {name: size for name, size in sizes.items() if size < SMALL})
            except HloomError:  # the user's, of which some are TypeErrors
                raise
            except (TypeError, AttributeError) as error:  # by a part of the compiler that computes with integers alone
                self._takes_numbers = True
                warn_while_compiling(
                    f"'{self.module.name}' is compiled for each size by itself: a kernel of it takes numbers ({error})",
                    FallbackWarning,
                    current_source(),
                )
        return self._variant(sizes, sizes)

    def _variant(self, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> Variant:
        """The variant for sizes of which those of `fixed` are numbers."""
        with collecting() as stages:
            fusion, times = self._options.fusion, dict[str, float]()

            def planned(module: Module) -> tuple[Module, Plan]:
                module, plan, seconds = optimized_plan(module, fusion=fusion)
                times.update(seconds)
                return module, plan

            made = variant_for(self.module, self.dims, sizes, fixed, planned)
        self.timings = {name: self.timings.get(name, 0.0) + s for name, s in stage_timings(stages, times, 0.0).items()}
        return made

    def at(self, shapes: tuple[tuple[int, ...], ...]) -> runtime.Executable:
        """The program for the dimensions of arguments. Raises ShapeError for sizes that it does not take."""
        found = self._programs.get(shapes)
        if found is None:
            found = self._program(self.sizes(shapes))
            with self._lock:
                self._programs[shapes] = found
                if len(self._programs) > KEPT:
                    self._programs.popitem(last=False)
        return found

    @default_floats()
    def _program(self, sizes: Mapping[str, int]) -> runtime.Executable:
        plan = plan_at(self.variant(sizes).plan, {inner(name): size for name, size in sizes.items()})
        check_memory(plan, f"cpu:{self._device}")
        return runtime.Executable(program_of(plan, Layout()), driver(self._device))

    def _run(self, arrays: Sequence) -> list:
        """The results for NumPy arrays. Raises ShapeError for sizes that it does not take."""
        return self.at(tuple([a.shape for a in arrays]))(arrays)

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        release()
        return self._run(arrays)

    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        """The module as traced, with its sizes."""
        return program_text(self.module, dialect, export=export)

    def source(self) -> str:
        """The kernels of each variant, below the guards under which it runs."""
        return "\n".join([f"# {variant}\n{kernel_listing(variant.plan)}" for variant in self.variants])

    @property
    def plan(self) -> Plan:
        raise self._refused("plan")

    def cost_analysis(self) -> Mapping[str, object]:
        raise self._refused("cost")

    def memory_analysis(self) -> dict[str, int]:
        raise self._refused("memory")

    def _refused(self, what: str) -> ArgumentError:
        return ArgumentError(
            f"the {what} of '{self.module.name}'", "it depends on sizes", "lower it for arrays of the sizes"
        )
