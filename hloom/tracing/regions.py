"""Regions: traced functions that ops run (loop bodies, branches), recorded in a trace or compiled and run eagerly."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.eager import log_placement
from hloom.config import config
from hloom.errors import TreeError
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.process import forking, memory
from hloom.ir.records import record
from hloom.ir.source import current_source
from hloom.ir.types import Shape, TupleShape
from hloom.sharding.explicit import is_lenient
from hloom.sharding.shardings import NamedSharding
from hloom.tracing.active import TRACES
from hloom.tracing.leaks import check_leaks
from hloom.tracing.signatures import call_of_user
from hloom.tracing.trace import (
    Trace,
    Tracer,
    as_array,
    current_trace,
    eager_device,
    evaluators,
    number_parameters,
    on_several,
    twins_of_results,
    typed_sharding,
)
from hloom.tree import pytrees as tree

if TYPE_CHECKING:
    from optree import PyTreeSpec

_STRICT = ("scan", "while", "conditional")  # whose layouts are checked; their callees were checked when traced
KEPT_PROGRAMS = 512  # compiled programs of eager loops and branches


class RegionTrace(Trace):
    """The trace of a region. Arrays that it closes over become operands, as traced values do, so that one compiled loop
    serves them all; scalars stay constants, which kernels have as literals."""

    def lift(self, operand):
        if isinstance(operand, Array) and operand._shape.size > 1:
            found = self.captures.get(id(operand))
            if found is None:
                found = self.captures[id(operand)] = (operand, self.builder.parameter(operand._shape))
                self.note_layout(found[1], typed_sharding(operand))
            return found[1], None
        return super().lift(operand)


@record
class Region:
    """A traced function: parameters of the computation are its leaves, the twins of those in `wide`, then one for each
    of `captures`. Its results are followed by the twins of those in `twins` (`hloom.tracing.exact`)."""

    computation: Computation
    out_tree: PyTreeSpec
    captures: list  # Arrays and Tracers of outer traces
    weak: tuple[bool, ...]
    wide: tuple[int, ...] = ()
    twins: tuple[int, ...] = ()

    @property
    def outputs(self) -> list[Instruction]:
        return self.computation.outputs()[: len(self.weak)]


def trace_region(function, shapes, weak, in_tree, name: str, hints=None, places=None, carried: int = 0) -> Region:
    """Traces `function(*args)` for leaves of these shapes, weak types and layouts (`typed_sharding`); `in_tree`
    unflattens them to args. carried: as many leaves are a loop's state, which the first results replace."""
    trace = RegionTrace(name)
    trace.carried = carried
    outer = current_trace()
    if outer is not None:
        trace.adopted = outer.adopted
    places = places or [None] * len(shapes)
    region = _traced_region(trace, function, shapes, weak, in_tree, hints or [""] * len(shapes), places)
    if config.check_tracer_leaks:
        check_leaks(trace, Tracer)
    return region


def _traced_region(trace: RegionTrace, function, shapes, weak, in_tree, hints, places) -> Region:
    """The result of `trace_region`; a separate function, so that its tracers are freed when it returns."""
    with trace:
        leaves = [
            trace.parameter(shape, hint, None, flag, place)
            for shape, flag, hint, place in zip(shapes, weak, hints, places, strict=True)
        ]
        trace.weak_arguments = {leaf.instruction: (k, None) for k, leaf in enumerate(leaves) if leaf.weak}
        result = call_of_user(function, trace.name, *tree.unflatten(in_tree, leaves))
        flat, out_tree = tree.flatten(result)
        flat = [as_array(leaf, f"the result of '{trace.name}'") for leaf in flat]
        exact, twins = twins_of_results["find"](flat) if TRACES.twins else ([], ())
        instructions = [trace.lift(leaf)[0] for leaf in [*flat, *exact]]
        for source, instruction in trace.last_of_line.items():
            instruction.hint = instruction.hint or source.variable
        computation = trace.builder.finish(trace.builder.tuple(instructions))
    if trace.wide_parameters:
        number_parameters(computation, len(shapes), trace.wide_parameters)
    captures = [value for value, _ in trace.captures.values()]
    return Region(computation, out_tree, captures, tuple(r.weak for r in flat), tuple(trace.wide_arguments), twins)


def joined_captures(regions: list[Region]) -> list:
    """The values that the regions close over, each once."""
    return list({id(c): c for region in regions for c in region.captures}.values())


def inline_region(builder: Builder, region: Region, arguments, captures, given, wide=None) -> list[Instruction]:
    """Inlines a region. arguments: for its leaves. given: the values of `captures`, which include its own. wide: the
    twins of leaves, by their indices. Returns the results, then their twins."""
    where = {id(c): g for c, g in zip(captures, given, strict=True)}
    given = [*arguments, *(wide[k] for k in region.wide), *(where[id(c)] for c in region.captures)]
    return tuple_elements(builder, builder.inline(region.computation, given))


def apply(build, operands, name: str) -> list:
    """The elements of the tuple that `build(builder, instructions)` returns for operands (Arrays, Tracers): recorded in
    the current trace, or compiled and run."""
    trace = current_trace()
    if trace is None:
        return _run(build, [as_array(o) for o in operands], name)
    lifted = [trace.lift(o) for o in operands]
    trace.builder.source = current_source()
    count = len(trace.builder.instructions)
    made = build(trace.builder, [i for i, _ in lifted])
    source = trace.builder.source
    if source is not None and source.variable:
        trace.last_of_line[source] = made
    values: list[np.ndarray] | None = None
    if trace.carries_values and all(v is not None for _, v in lifted):
        values = run_compiled(_program(build, [i.shape for i, _ in lifted], name), [v for _, v in lifted])
        if made.opcode != "tuple":
            trace.values[made] = tuple(values)
    elements = tuple_elements(trace.builder, made)
    if trace.layouts is not None:
        for instruction in trace.builder.instructions[count:]:
            trace.layouts.record(instruction, instruction.opcode in _STRICT and not is_lenient())
    return [Tracer(trace, e, None if values is None else values[k], False) for k, e in enumerate(elements)]


def _run(build, operands: list, name: str) -> list[Array]:
    """The result of `apply` outside traces."""
    device = eager_device(operands, name)
    log_placement(name, device)
    program = _program(build, [o._shape for o in operands], name)
    if device.__class__ is NamedSharding:
        return on_several["computation"](program, operands)
    return [Array(r, False, device) for r in run_compiled(program, [o._value() for o in operands])]


def _program(build, shapes, name: str) -> Computation:
    builder = Builder(name)
    parameters = [builder.parameter(shape) for shape in shapes]
    return builder.finish(builder.tuple(tuple_elements(builder, build(builder, parameters))))


# --- compiled programs --------------------------------------------------------------------------------------------


_programs: OrderedDict = OrderedDict()
_lock = forking.lock()


@memory.on_release
def _forget_programs(everything: bool) -> None:
    if everything:
        with _lock:
            _programs.clear()


def run_compiled(computation: Computation, values) -> list[np.ndarray]:
    """The outputs of a computation, compiled (once for all equal computations) and run."""
    # These save start-up time: the compiler is imported in the background (`hloom.backends.preload`).
    from hloom.backends.cpu.compilation import compile_module
    from hloom.compiler.passes.cse import LastingKeys

    key = LastingKeys().computation(computation)
    with _lock:
        program = _programs.get(key)
        if program is not None:
            _programs.move_to_end(key)
    if program is None:
        program = compile_module(Module(computation.name, computation))
        with _lock:
            _programs[key] = program
            while len(_programs) > KEPT_PROGRAMS:
                _programs.popitem(last=False)
    return program([np.ascontiguousarray(v).reshape(np.shape(v)) for v in values])


def _evaluate_control(instruction: Instruction, operands, shape=None):
    """The values of a traced loop or branch where the trace carries values: compiled, as in jit."""
    flat: list = []

    def parameters(builder: Builder, shape, value) -> Instruction:
        if isinstance(shape, TupleShape):
            return builder.tuple([parameters(builder, s, v) for s, v in zip(shape.elements, value, strict=True)])
        flat.append(value)
        return builder.parameter(shape)

    builder = Builder(instruction.opcode)
    given = [parameters(builder, o.shape, v) for o, v in zip(instruction.operands, operands, strict=True)]
    made = builder.add(instruction.with_operands(tuple(given)))
    leaves = _leaves(builder, made)
    results = iter(run_compiled(builder.finish(builder.tuple(leaves)), flat))

    def together(shape):
        return tuple(together(s) for s in shape.elements) if isinstance(shape, TupleShape) else next(results)

    return together(instruction.shape)


def _leaves(builder: Builder, value: Instruction) -> list[Instruction]:
    if isinstance(value.shape, Shape):
        return [value]
    return [leaf for element in tuple_elements(builder, value) for leaf in _leaves(builder, element)]


evaluators["control"] = _evaluate_control


# --- trees of carries ---------------------------------------------------------------------------------------------


def leaf_names(value, base: str) -> list[str]:
    """The name of each leaf of a tree in messages: carry['x'][0]."""
    return [base + "".join(f"[{part!r}]" for part in path) for path in tree.paths(value)]


def same_tree(found, wanted, what: str) -> None:
    """Raises TreeError if a region does not return the required structure."""
    if found != wanted:
        raise TreeError(
            what, f"{tree.written(found)}, expected {tree.written(wanted)}", "return a tree of the same structure"
        )


def described(shape: Shape, weak: bool) -> str:
    """The shape for messages: f32[3,4], with its weakness."""
    return f"{shape!r}{' (weak)' * weak}"
