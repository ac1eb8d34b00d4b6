"""Programs for arrays of many sizes: one executable, whose variants each serve the sizes for which their guards hold.

A variant is compiled for the sizes of a call that no other serves (`hloom.ir.sizes.guards`), without a new trace.
Sizes reach its kernels, launches and arena as numbers that native code evaluates (`hloom.runtime.open_program`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from hloom.backends.compile import optimized_plan, stage_timings
from hloom.backends.cpu.driver import driver, number_functions
from hloom.backends.cpu.memory_limit import check_memory
from hloom.backends.cpu.program import Layout, program_of
from hloom.backends.donation import copy_shared, warn_of_unused
from hloom.backends.listing import kernel_listing
from hloom.backends.text import program_text
from hloom.compiler.compile_timings import collecting
from hloom.compiler.schedule.at_sizes import plan_at, plan_over
from hloom.compiler.schedule.scheduler import Plan
from hloom.config import config
from hloom.errors import ArgumentError, FallbackWarning, HloomError, ShapeError
from hloom.ir.module import Module
from hloom.ir.ops.specialize import Specialization
from hloom.ir.process import forking
from hloom.ir.process.floats import default_floats
from hloom.ir.records import record
from hloom.ir.sizes.evaluation import holds, number_of
from hloom.ir.sizes.expressions import Comparison, Dim, Size, SizeExpression, dims_of, divisors_of, single, size_at
from hloom.ir.sizes.guards import GuardedScope, inner
from hloom.ir.sizes.numbers import Nodes, Number
from hloom.ir.sizes.policy import SMALLEST, USUAL
from hloom.ir.sizes.solving import solved
from hloom.ir.source import current_source, warn_while_compiling
from hloom.ir.types import Shape
from hloom.platforms.backend import CompileOptions, Executable
from hloom.runtime import program as runtime
from hloom.runtime.numbers_source import OVERFLOW
from hloom.runtime.open_program import Evaluator, NativeNumbers, NumberError, OpenProgram

__all__ = ["OpenExecutable", "Variant", "variant_for"]

KEPT = 64  # sizes of a variant with steps in Python whose programs are kept
PREPARED = 1 << 28  # bytes of steady arguments that variants keep; beyond it only the last one does
KNOWN = 1024  # shapes of arguments whose variant is kept


@record
class Variant:
    """The variant for the sizes that satisfy its guards. dims: all sizes, by name; fixed: those that are constants in
    it."""

    module: Module
    plan: Plan
    dims: Sequence[str]
    fixed: Mapping[str, int]
    guards: Sequence[Comparison]

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for sizes, by name."""
        if any([sizes[name] != size for name, size in self.fixed.items()]):
            return False
        return all(guard.holds(sizes) for guard in self.guards)  # in their order: a divisor is compared before its use

    def conditions(self, dims: Mapping[str, Dim]) -> list[Comparison]:
        """The conditions on the sizes of dimensions, by name."""
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
    free: dict[str, Size] = {name: scope.dim(d, SMALLEST) for name, d in dims.items() if name not in fixed}
    for text, fact in facts_of(module, dims).items():  # which calls have checked
        known = fact.over(free | {**fixed})
        if isinstance(known, Comparison):
            scope.add(text, known)
    entry = Specialization(free | {**fixed}).computation(module.entry)
    optimized, plan = planned(module.with_entry(entry))
    outer = {inner(name): dims[name] for name in free}
    asked = [dim >= SMALLEST for dim in outer.values()]
    for guard in [guard.over(outer) for guard in scope.guards]:
        if isinstance(guard, Comparison):
            asked += [by != 0 for side in (guard.left, guard.right) for by in divisors_of(side)]
        asked.append(guard)
    guards = {repr(one): one for one in asked if isinstance(one, Comparison)}
    scope.settled = True
    return Variant(optimized, plan, [*dims], fixed, [*guards.values()])


def facts_of(module: Module, dims: Mapping[str, Dim]) -> dict[str, Comparison]:
    """The known facts about a module's sizes beyond the bounds of its dimensions, by its text."""
    found = {text: one for dim in dims.values() if dim.scope is not None for text, one in dim.scope.comparisons}
    return found | {str(one): one.comparison for one in module.assumptions}


class OpenExecutable(Executable):
    """A module whose parameters have open sizes, for one CPU device. variants: in the order in which they were made.

    dims: the dimensions, by name, of a module that is run by `program`; None: those of the parameters. updates: output
    -> the parameter in whose memory it is computed where it can be, which `program` says.
    """

    warns_of_donations = True

    def __init__(
        self, module: Module, options: CompileOptions, device: int = 0, *, dims: Mapping[str, Dim] | None = None,
        updates: Mapping[int, int] | None = None,
    ):  # fmt: skip
        self.module, self._options, self._device = module, options, device
        self._updates = dict(updates or {})
        self.donated, self.output_shapes = {}, [o.shape for o in module.entry.outputs()]  # donated: a variant says it
        self.runner, self.timings = self._run, {}
        self.variants: list[Variant] = []
        self._takes_numbers, self._asked = False, 0  # asked: how many times `ready_for` was asked for sizes
        self._inputs = [p.shape for p in module.entry.parameters]
        self.dims: dict[str, Dim] = dict(dims or {})
        for shape in self._inputs if dims is None else ():
            for size in shape.dims:
                self.dims |= dims_of(size)
        self._facts = facts_of(module, self.dims)
        self._choice = self._chooser()
        self._named: set[int] = set()  # the donated parameters that a warning has named
        self._served: dict[tuple[tuple[int, ...], ...], _Serving] = {}
        self._programs: dict[int, _Programs] = {}  # by the number of a variant
        self._prepared_by: list[runtime.Preparation] = []  # those that keep memory, the last one first
        self._lock = forking.rlock()

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The sizes of the dimensions, by name, for the dimensions of arguments. Raises ShapeError where none fit, or
        they are out of bounds or against what is known of them."""
        if [len(s) for s in shapes] == [len(s.dims) for s in self._inputs]:
            for parameter, given in zip(self.module.entry.parameters, shapes, strict=True):
                for axis, (size, number) in enumerate(zip(parameter.shape.dims, given, strict=True)):
                    if (dim := single(size)) is not None and not dim.takes(number):
                        where = f"the size of axis {axis} of {parameter.hint or parameter['index']!r}"
                        self._refuse(dim, number, f", {where}")
            found = solved([(w.dims, g) for w, g in zip(self._inputs, shapes, strict=True)])
        else:
            found = None
        if found is None:
            wanted = "; ".join([", ".join(map(repr, self._inputs)), *[d.declaration() for d in self.dims.values()]])
            raise ShapeError(
                f"'{self.module.name}' called with arrays of the sizes {', '.join(map(str, shapes))}",
                f"it takes {wanted}",
                "pass arrays whose sizes agree, within the bounds",
            )
        for name, dim in self.dims.items():
            if not dim.takes(found[name]):
                self._refuse(dim, found[name])
        for text, fact in self._facts.items():
            if not fact.holds(found):
                about = ", ".join([f"{name} = {found[name]}" for name in {**dims_of(fact.left), **dims_of(fact.right)}])
                said = next((one.source for one in self.module.assumptions if one.comparison is fact), None)
                raise ShapeError(
                    f"'{self.module.name}' called with {about}",
                    f"{text} does not hold" + (f", which is assumed at {said}" if said is not None else ""),
                    "pass arrays of such sizes",
                )
        return found

    def _refuse(self, dim: Dim, size: int, where: str = "") -> NoReturn:
        raise ShapeError(
            f"'{self.module.name}' called with {dim.name} = {size}{where}",
            f"it is {dim.declaration()}",
            "pass arrays of such sizes, or change the Dim",
        )

    def variant(self, sizes: Mapping[str, int]) -> Variant:
        """The variant for sizes, compiled now where there is none."""
        with self._lock:
            found = next((v for v in self.variants if v.serves(sizes)), None)
            if found is None:
                found = self._compiled(sizes)
                sides = [size_at(side, sizes) for guard in found.guards for side in (guard.left, guard.right)]
                if any([not -(1 << 63) <= side < 1 << 63 for side in sides]):  # native code compares them
                    called = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                    error = NumberError(OVERFLOW)
                    raise ShapeError(f"'{self.module.name}' called with {called}", str(error), "pass smaller arrays")
                self.variants.append(found)
                unused = self._options.donated.difference(found.plan.donated.values(), self._named)
                self._named |= unused
                warn_of_unused(self.module.name, self.module.entry.parameters, unused)
        return found

    def _compiled(self, sizes: Mapping[str, int]) -> Variant:
        if not self._takes_numbers:
            try:
                return self._variant(sizes, {name: size for name, size in sizes.items() if size < SMALLEST})
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
            times: dict[str, float] = {}

            def planned(module: Module) -> tuple[Module, Plan]:
                module, plan, seconds = self._planned(module)
                times.update(seconds)
                return module, plan

            made = variant_for(self.module, self.dims, sizes, fixed, planned)
        self.timings = {name: self.timings.get(name, 0.0) + s for name, s in stage_timings(stages, times, 0.0).items()}
        return made

    def _planned(self, module: Module) -> tuple[Module, Plan, dict[str, float]]:
        """A variant's module after all passes, its plan, and the seconds of both."""
        donated = self._options.donated.union(self._updates.values())
        return optimized_plan(
            module, fusion=self._options.fusion, donated=donated, updates=self._updates, steady=self._options.steady
        )

    def _note(self, made: runtime.Preparation) -> None:
        """Keeps what variants prepared of steady arguments, for the last ones that fit into PREPARED bytes."""
        with self._lock:
            self._prepared_by = [made, *[one for one in self._prepared_by if one is not made]]
            room = PREPARED - made.bytes
            for one in self._prepared_by[1:]:
                room -= one.bytes
                if room < 0:
                    one.forget()
                    self._prepared_by.remove(one)

    def _chooser(self) -> _Choice | None:
        return _Choice.of(self._inputs, self.dims, [*self._facts.values()], self.variants)

    def _serving(self, shapes: tuple[tuple[int, ...], ...]) -> _Serving:
        """The runner of the program for arguments of these dimensions. Raises ShapeError for sizes it does not take."""
        found = None if self._choice is None else self._choice(shapes)
        if found is None:
            sizes = self.sizes(shapes)
            number = self._number(sizes)
        else:
            number, sizes = found
        serves = self._programs_of(number, sizes).at(sizes)
        with self._lock:
            if len(self._served) >= KNOWN:
                self._served.clear()
            self._served[shapes] = serves
        return serves

    def _number(self, sizes: Mapping[str, int]) -> int:
        """The number of the variant for sizes, whose programs there are then."""
        variant = self.variant(sizes)
        with self._lock:
            number = next(k for k, one in enumerate(self.variants) if one is variant)
            if number not in self._programs:
                self._programs[number] = _Programs(variant, self._device, self._note)
                self._choice = self._chooser()
        return number

    def _programs_of(self, number: int, sizes: Mapping[str, int]) -> _Programs:
        if config.cpu_memory:
            check_memory(plan_at(self.variants[number].plan, _inner(sizes)), f"cpu:{self._device}")
        return self._programs[number]

    def program(self, sizes: Mapping[str, int]) -> tuple[Callable[[Sequence[int]], None], Mapping[int, int]]:
        """(the runner of the program for these sizes at addresses, as `runtime.Executable.run_at` does; output -> the
        parameter in whose memory it is computed)."""
        number = self._number(sizes)
        runs = self._programs_of(number, sizes).at_addresses(sizes)

        def run_at(addresses: Sequence[int]) -> None:
            try:
                runs(addresses)
            except NumberError as error:
                called = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                raise ShapeError(
                    f"'{self.module.name}' called with {called}", str(error), "pass arrays of other sizes"
                ) from None

        return run_at, self.variants[number].plan.donated

    def _run(self, arrays: Sequence) -> list:
        """The results for NumPy arrays. Raises ShapeError for sizes that it does not take."""
        shapes = tuple([a.shape for a in arrays])
        serves = self._served.get(shapes)
        if serves is None:
            serves = self._serving(shapes)
        try:
            return serves.run(arrays)
        except NumberError as error:
            raise self._without_room(shapes, error) from None

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        """Sizes that it does not take are refused before the arguments are given away."""
        serves = self._prepared(tuple([a.shape for a in arrays]))
        release()
        copy_shared(arrays, serves.donated.values())
        return serves.run(arrays)

    def ready_for(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        shapes = tuple(shapes)
        self._asked += shapes not in self._served
        self._prepared(shapes)
        return not self._takes_numbers and len(self.variants) <= max(USUAL, self._asked // 2)

    def _prepared(self, shapes: tuple[tuple[int, ...], ...]) -> _Serving:
        """The runner of the program for arguments of these dimensions. Raises ShapeError for everything it may
        refuse."""
        serves = self._served.get(shapes)
        if serves is None:
            serves = self._serving(shapes)
        try:
            serves.prepare()
        except NumberError as error:
            raise self._without_room(shapes, error) from None
        return serves

    def _without_room(self, shapes: Sequence[tuple[int, ...]], error: NumberError) -> ShapeError:
        return ShapeError(
            f"'{self.module.name}' called with arrays of the sizes {', '.join(map(str, shapes))}", str(error),
            "pass arrays of other sizes",
        )  # fmt: skip

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


class _Serving:
    """The runner of a program for given sizes. donated: result -> the argument in whose memory it is computed. prepare:
    performs the steps that may fail before the run. Raises NumberError."""

    __slots__ = ("donated", "prepare", "run")

    def __init__(
        self, run: Callable[[Sequence], list], donated: Mapping[int, int], prepare: Callable[[], None] = lambda: None
    ):
        self.run, self.donated, self.prepare = run, donated, prepare


class _Choice:
    """Finds the variant for the dimensions of arguments, of those that are compiled: natively, as each new size asks.

    where: of each Dim, by name, the position of a dimension that is this Dim itself, among those of all arguments.
    """

    def __init__(
        self, inputs: Sequence[Shape], dims: Mapping[str, Dim], facts: Sequence[Comparison],
        variants: Sequence[Variant], where: Mapping[str, int],
    ):  # fmt: skip
        self._ranks, self._where = [s.rank for s in inputs], where
        wanted = [d for s in inputs for d in s.dims]
        nodes = Nodes([f"{k}" for k in range(len(wanted))])
        for name, place in where.items():
            nodes.define(name, nodes.given(f"{place}"))
        takes: Number = 1
        for place, size in enumerate(wanted):
            takes = takes * nodes.equal(nodes.given(f"{place}"), number_of(nodes, size))
        for name, dim in dims.items():
            given = nodes.given(name)
            bounds = nodes.at_most(dim.min, given) * nodes.at_most(given, dim.most)
            takes = takes * bounds * nodes.equal(given // dim.multiple_of * dim.multiple_of, given)
        for fact in facts:
            takes = takes * holds(nodes, fact)
        answers = [nodes.node(takes)]
        for variant in variants:
            serves: Number = 1
            for name, fixed in variant.fixed.items():
                serves = serves * nodes.equal(nodes.given(name), fixed)
            for guard in variant.guards:
                serves = serves * holds(nodes, guard)
            answers.append(nodes.node(serves))
        self._answers = np.array([node.index for node in answers])
        self._evaluator = Evaluator(nodes, NativeNumbers(number_functions()))

    @classmethod
    def of(
        cls, inputs: Sequence[Shape], dims: Mapping[str, Dim], facts: Sequence[Comparison], variants: Sequence[Variant]
    ) -> _Choice | None:
        """None if a Dim occurs only inside expressions, which have to be solved for it."""
        where: dict[str, int] = {}
        for place, size in enumerate([d for s in inputs for d in s.dims]):
            for name, dim in dims_of(size).items():
                if size is dim or (isinstance(size, SizeExpression) and size.terms == dim.terms):
                    where.setdefault(name, place)
        return cls(inputs, dims, facts, variants, where) if len(where) == len(dims) else None

    def __call__(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, dict[str, int]] | None:
        """The number of the variant, and the sizes by name; None where none serves them."""
        given = [size for shape in shapes for size in shape]
        if [len(shape) for shape in shapes] != self._ranks:
            return None
        try:
            values = self._evaluator.values(given)
        except NumberError:
            return None
        takes, *serves = values[self._answers].tolist()
        if not takes or 1 not in serves:
            return None
        return serves.index(1), {name: given[place] for name, place in self._where.items()}


def _inner(sizes: Mapping[str, int]) -> dict[str, int]:
    return {inner(name): size for name, size in sizes.items()}


class _Programs:
    """The programs of a variant: one for all sizes, or where steps of it are in Python one for each."""

    @default_floats()
    def __init__(self, variant: Variant, device: int, note: Callable[[runtime.Preparation], None]):
        self._plan, self._device = variant.plan, device
        self._names = [name for name in variant.dims if name not in variant.fixed]
        nodes = Nodes([*map(inner, self._names), runtime.ARENA])
        plan = plan_over(variant.plan, nodes)
        self._open: OpenProgram | None = None
        self._fixed: dict[tuple[int, ...], runtime.Executable] = {}
        if plan is not None:
            results = [([number_of(nodes, d) for d in s.dims], s.dtype) for s in plan.output_shapes]
            program = program_of(plan, Layout())
            self._open = OpenProgram(program, driver(device), NativeNumbers(number_functions()), results, note)

    def at(self, sizes: Mapping[str, int]) -> _Serving:
        """The runner for sizes, by name."""
        given, program, donated = self._given(sizes), self._open, self._plan.donated
        if program is not None:
            return _Serving(lambda arrays: program(given, arrays), donated, lambda: program.prepare(given))
        return _Serving(self._fixed_for(given, sizes), donated)

    def at_addresses(self, sizes: Mapping[str, int]) -> Callable[[Sequence[int]], None]:
        """The runner for sizes, by name, in the caller's memory."""
        given, program = self._given(sizes), self._open
        if program is None:
            return self._fixed_for(given, sizes).run_at
        return lambda addresses: program.run_at(given, addresses)

    def _given(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple([sizes[name] for name in self._names])

    def _fixed_for(self, given: tuple[int, ...], sizes: Mapping[str, int]) -> runtime.Executable:
        found = self._fixed.get(given)
        if found is None:
            found = self._fixed[given] = self._program(sizes)
            if len(self._fixed) > KEPT:
                del self._fixed[next(iter(self._fixed))]
        return found

    @default_floats()
    def _program(self, sizes: Mapping[str, int]) -> runtime.Executable:
        return runtime.Executable(program_of(plan_at(self._plan, _inner(sizes)), Layout()), driver(self._device))
