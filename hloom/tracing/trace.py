"""Tracing: running a user's function on Tracers, which record the operations on them as a Computation.

Front-end functions apply every op through `bind`: outside of a trace it runs the op's NumPy reference eagerly, inside
it appends an instruction. A trace may carry concrete values along (grad outside of jit), so that Python
control flow on them works.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, cast

import numpy as np

from hloom.arrays import repairs
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.arrays.checks import check_outputs
from hloom.arrays.digits import DOUBLE, with_digits
from hloom.arrays.eager import (
    checks_results,
    eager_device,
    eager_devices,
    eager_result,
    log_placement,
    log_placements,
    owned,
)
from hloom.arrays.interchange import from_python
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.config import config
from hloom.errors import (
    ArgumentError,
    HloomError,
    LeakedTracerError,
    ParticipantsError,
    TracerBoolError,
    TracerConversionError,
    TracerError,
)
from hloom.ir.base_error import no_memory
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.interpret import evaluate, evaluate_instruction
from hloom.ir.module import Assumption, Computation, Instruction, below
from hloom.ir.op_table import No
from hloom.ir.ops import OPS
from hloom.ir.ops.programs.spmd import names_mesh
from hloom.ir.records import field, record
from hloom.ir.source import Source, current_source
from hloom.ir.types import Shape, TupleShape, in_general
from hloom.sharding.explicit import Layouts, explicit_dims, explicit_sizes, is_lenient
from hloom.sharding.shardings import NamedSharding, PartitionSpec
from hloom.tracing.active import TRACES, assumptions_of, check_nesting, restarts, used_arguments
from hloom.tracing.leaks import HoldsTracers, check_leaks
from hloom.tracing.signatures import raise_wrong_call
from hloom.tree import pytrees as tree

# Family of ops -> the function that computes its instructions in a trace with values; others by their reference.
evaluators: dict = {}
# "find", "note": the twins of results of nested functions (`hloom.tracing.exact`).
twins_of_results: dict = {}
# "op", "computation": functions that apply these eagerly to arrays over several devices (`hloom.dispatch.sharded`).
on_several: dict = {}


def evaluated(instruction: Instruction, operands, shape=None):
    family = "control" if _runs_loops(instruction) else OPS[instruction.opcode].family
    found = evaluators.get(family, evaluate_instruction)
    return found(instruction, operands, shape)


def _runs_loops(instruction: Instruction) -> bool:
    """Whether it is a call of a computation with loops in it, at any depth."""
    if instruction.opcode != "call":
        return OPS[instruction.opcode].family == "control"
    return any(OPS[i.opcode].family == "control" for i in below([instruction]))


def known_value(instruction: Instruction, operands):
    """The value of an instruction in a trace that carries values; None for collectives over a named axis."""
    try:
        return evaluated(instruction, operands)
    except ParticipantsError:
        if not TRACES.axes:
            raise
        return None


def current_trace() -> Trace | None:
    """The innermost trace of this thread, or None."""
    traces = TRACES.active
    return cast("Trace | None", traces[-1]) if traces else None  # every running trace is a Trace


class Trace(HoldsTracers):
    """A computation under construction. `carries_values`: instructions carry concrete values along."""

    def __init__(self, name: str, carries_values: bool = False):
        self.builder = Builder(name)
        self.name, self.carries_values = name, carries_values
        self.active = False
        self.captures: dict[int, tuple[Tracer | Array, Instruction]] = {}  # arrays in those of regions alone
        self.constants: dict[int, tuple[Array, Instruction]] = {}
        self.last_of_line: dict[Source, Instruction] = {}
        self.warned: set[type[Warning]] = set()  # warnings issued to the user in this trace
        self.used_keys: dict = {}  # consumed random keys, and their consumers (`hloom.tracing.key_reuse`)
        self.kind = "jit"  # the transformation that messages name
        self.adopted: dict[int, Tracer] = {}  # tracers that may be captured though their trace has ended
        self.values: dict[Instruction, Any] = {}  # of the instructions, where the trace carries values
        # Of `hloom.tracing.exact`: twins of weakly typed values; weakly typed parameters, their indices and arguments;
        # how many parameters are a loop's state; parameters with twins.
        self.exact: dict[Instruction, Tracer] = {}
        self.weak_arguments: dict[Instruction, tuple[int, Any]] = {}
        self.carried = 0
        self.without_twin: set[Instruction] = set()  # parameters whose twins were not passed
        self.wide_arguments: list[int] = []
        self.wide_parameters: list[Instruction] = []
        self.parameter_values: dict[Instruction, Any] = {}
        self.created_by: dict[Instruction, str] = {}  # functions that chose the default dtype for their results
        self.equal_values: Any = None  # of `hloom.dispatch.counted_sizes`, where sizes were computed
        self.layouts: Layouts | None = None  # of values that explicit mesh axes split
        self.assumptions: dict[str, Assumption] | None = {}  # of open sizes (`hl.assume`)

    def __enter__(self) -> Trace:
        check_nesting(self.name)
        self.active = True
        TRACES.active.append(self)
        return self

    def __exit__(self, *exception) -> None:
        self.active = False
        TRACES.active.pop()

    def parameter(self, shape: Shape, hint: str, value: np.ndarray | None, weak: bool, sharding=None) -> Tracer:
        instruction = self.builder.parameter(shape, hint)
        self.note_layout(instruction, sharding)
        if self.carries_values:
            self.parameter_values[instruction] = value
        return Tracer(self, instruction, value if self.carries_values else None, weak)

    def note_layout(self, instruction: Instruction, sharding) -> None:
        """Records the layout of a value that explicit mesh axes split."""
        if sharding.__class__ is not NamedSharding or not explicit_sizes(sharding.mesh):
            return
        if self.layouts is None:
            self.layouts = Layouts(sharding.mesh)
        self.layouts.note(instruction, explicit_dims(sharding, len(instruction.dims)))

    def lift(self, operand) -> tuple[Instruction, np.ndarray | None]:
        """The instruction (and value, if any) that represents an operand in this trace."""
        if isinstance(operand, Tracer):
            if operand.trace is self:
                return operand.instruction, operand.value
            if not operand.trace.active and id(operand) not in self.adopted:
                raise LeakedTracerError(
                    f"use of a traced value of '{operand.trace.name}' after its trace ended",
                    f"{operand!r}, created at {operand.instruction.source or 'a parameter'}",
                    "return the value from the function instead of storing it",
                )
            captured = self.captures.get(id(operand))
            if captured is None:
                parameter = self.builder.parameter(operand._shape, operand.instruction.hint)
                self.note_layout(parameter, typed_sharding(operand))
                captured = self.captures[id(operand)] = (operand, parameter)
            return captured[1], operand.value if self.carries_values else None
        if not isinstance(operand, Array):
            return self.lift(from_python(operand))
        found = self.constants.get(id(operand))
        if found is None:
            found = self.constants[id(operand)] = (operand, self.builder.constant(operand._value()))
            if operand.is_sharded:
                found[1].sharding = operand._device.layout(len(operand.shape))
                self.note_layout(found[1], operand._device)
        return found[1], operand._value()

    def emit(self, opcode: str, operands, shape, attributes) -> Tracer | tuple[Tracer, ...]:
        lifted = [self.lift(o) for o in operands]
        source = current_source(opcode)
        self.builder.source = source
        instruction = self.builder.emit(opcode, *(i for i, _ in lifted), shape=shape, **attributes)
        if self.layouts is not None:
            self.layouts.record(instruction, not is_lenient())
        if source is not None and source.variable:
            self.last_of_line[source] = instruction
        value = None
        if self.carries_values and all(v is not None for _, v in lifted):
            value = known_value(instruction, [v for _, v in lifted])
            if value is not None:
                self.values[instruction] = value
        if not isinstance(instruction.shape, TupleShape):
            return Tracer(self, instruction, value, False)
        elements = []
        for k in range(len(instruction.shape.elements)):
            element = self.builder.emit("get-tuple-element", instruction, index=k)
            if self.layouts is not None:
                self.layouts.record(element, False)
            elements.append(Tracer(self, element, None if value is None else value[k], False))
        return tuple(elements)

    def inline(self, computation: Computation, operands, known: dict[Instruction, Any]) -> list[Tracer]:
        """Copies a computation's instructions in; returns a Tracer for each output. `known` as in `evaluate`."""
        mapped: dict[Instruction, Instruction] = {}
        values: dict[Instruction, Any] = {}
        for parameter, operand in zip(computation.parameters, operands, strict=True):
            mapped[parameter], values[parameter] = self.lift(operand)
        for instruction in computation.instructions:
            if instruction in mapped or (instruction is computation.root and instruction.opcode == "tuple"):
                continue
            copy = instruction.with_operands(tuple([mapped[o] for o in instruction.operands]))
            mapped[instruction] = self.builder.add(copy)
            if self.layouts is not None:
                self.layouts.record(copy, False)
            if self.carries_values:
                value = known.get(instruction)
                if value is None:
                    given = [values[o] for o in instruction.operands]
                    if all(v is not None for v in given):
                        value = known_value(instruction, given)
                values[instruction] = value
                if value is not None:
                    self.values[copy] = value
        root = computation.root
        if root.opcode == "tuple":
            return [Tracer(self, mapped[o], values.get(o), False) for o in root.operands]
        elements = tuple_elements(self.builder, mapped[root])
        found = [values.get(root)] if isinstance(root.shape, Shape) else values.get(root) or [None] * len(elements)
        return [Tracer(self, e, v, False) for e, v in zip(elements, found, strict=True)]

    def finish(self, results) -> Computation:
        """The computation that returns the results (one array, or a tuple of any other number of them)."""
        instructions = [self.lift(r)[0] for r in results]
        for source, instruction in self.last_of_line.items():
            instruction.hint = instruction.hint or source.variable
        if len(instructions) == 1:
            return self.builder.finish(instructions[0])
        return self.builder.finish(self.builder.tuple(instructions))


_DECIDED = "use hnp.where(condition, x, y), or mark the deciding argument as static (static_argnums)"


class Tracer(ArrayMethods):
    """An array in a trace: knows its shape and dtype, and its value only where the trace carries values."""

    # _link, _views: of views and arrays that have some (`hl.config.item_assignment`).
    __slots__ = ("_shape", "trace", "instruction", "value", "weak", "_link", "_views", "__weakref__")

    def __init__(self, trace: Trace, instruction: Instruction, value=None, weak: bool = False):
        self._shape = instruction.shape
        self.trace = trace
        self.instruction = instruction
        self.value = value
        self.weak = weak

    @property
    def _key(self):
        place = typed_sharding(self) if self.trace.layouts is not None else None
        return (self._shape, self.weak, place) if self.weak or place is not None else self._shape

    @property
    def aval(self):
        """The shape and dtype, a ShapeDtypeStruct; its sharding is the layout over explicit mesh axes."""
        known = self.trace.layouts
        sharding = None if known is None else known.sharding(self.instruction, known.mesh.abstract_mesh)
        return ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak, sharding=sharding)

    def __repr__(self) -> str:
        return f"Tracer({self._shape!r} in '{self.trace.name}')"

    def _concrete(self, what: str, repair: str, error=TracerConversionError) -> np.ndarray:
        if not self.trace.active:
            self.trace_ended()
        if self.value is None:
            raise error(
                f"{what} inside {self.trace.kind} of '{self.trace.name}'",
                f"a traced value {self._shape!r}, which has no concrete value until the compiled function runs",
                repair,
            )
        return self.value

    def trace_ended(self):
        Trace("").lift(self)

    def __bool__(self):
        return bool(
            self._concrete(
                "Python control flow on a traced value",
                _DECIDED if self.value is not None else repairs.of_truth_value(_DECIDED),
                TracerBoolError,
            )
        )

    def _number(self, convert):
        repair = "keep it an array (astype converts), or mark the argument as static (static_argnums)"
        return convert(np.asarray(self._concrete(f"{convert.__name__}() of a traced value", repair)).item())

    def __float__(self):
        return self._number(float)

    def __int__(self):
        return self._number(int)

    def __complex__(self):
        return self._number(complex)

    def __index__(self):
        repair = "use lax.dynamic_slice for a computed start, or mark the argument as static (static_argnums)"
        repair = repair if self.value is not None else repairs.of_index(repair)
        return self._concrete("a Python integer from a traced value", repair).__index__()

    def __array__(self, dtype=None, copy=None):
        repair = "use the function of hloom.numpy instead of numpy's"
        return np.asarray(self._concrete("a NumPy array of a traced value", repair), dtype)


def typed_sharding(x) -> NamedSharding | None:
    """The layout over explicit mesh axes in the type of a value; None if they do not split it."""
    if isinstance(x, Tracer):
        layouts = x.trace.layouts
        return layouts.sharding(x.instruction) if layouts is not None and x.instruction in layouts.found else None
    place = getattr(x, "_device", None)
    return place if place.__class__ is NamedSharding else None


def with_weakness(x, weak: bool):
    """The same array, weak or not. Records no instruction.

    Arrays and Tracers may be shared, especially constants: their weakness is never changed in place.
    """
    if x.weak == weak:
        return x
    if isinstance(x, Array):
        result = Array(x._held(), weak, x._device, x._shape)
        if (exact := getattr(x, "_exact", None)) is not None:
            result._exact = exact
        return result
    return Tracer(x.trace, x.instruction, x.value, weak)


def bind(opcode: str, *operands, shape=None, weak: bool = False, **attributes):
    """Applies an op: eagerly by its reference, or recorded in the current trace.

    operands: Arrays, Tracers, NumPy arrays or numbers, of the dtypes that the op accepts (nothing is promoted here).
    Returns an Array or Tracer, a tuple of them for tuple-shaped results. Raises the errors of the op's shape rule.
    """
    trace = current_trace()
    if trace is not None:
        result = trace.emit(opcode, operands, shape, attributes)
        if weak and isinstance(result, Tracer):
            result.weak = True
        return result
    try:
        arrays = [o if isinstance(o, Array) else _concrete_operand(o) for o in operands]
    except _StillTraced as found:  # within ensure_compile_time_eval, of a value that is not known
        with resumed(found.trace):
            return bind(opcode, *operands, shape=shape, weak=weak, **attributes)
    op = OPS[opcode]
    shape = op.infer([a._shape for a in arrays], attributes, shape)
    device = eager_device(arrays, opcode)
    if device.__class__ is NamedSharding:
        log_placement(opcode, device)
        return on_several["op"](opcode, arrays, shape, attributes, weak)
    reference = op.reference
    assert not isinstance(reference, No), reference.reason
    read = Array._in_any_order if _reads_any_order(opcode) else Array._value
    try:
        value = reference(*[read(a) for a in arrays], shape=shape, **attributes)
    except MemoryError as error:
        raise no_memory(error, opcode, [shape]) from None
    if isinstance(value, tuple):
        return tuple([eager_result(v, False, device, opcode, arrays) for v in value])
    if weak and shape.dtype in DOUBLE:
        return with_digits(eager_result(value, weak, device, opcode, arrays), opcode, arrays, attributes)
    return eager_result(value, weak, device, opcode, arrays)


@cache
def _reads_any_order(opcode: str) -> bool:
    """Whether an op's results do not depend on the strides of its operands. NumPy has several versions of the
    approximated functions, which differ in the last bits and are chosen by strides; libraries copy as they need."""
    op = OPS[opcode]
    return op.family in ("elementwise", "index", "reduce", "contraction") and not op.ulp


class _StillTraced(TracerError):
    """A traced value among operands where no trace is current."""

    def __init__(self, trace: Trace):
        super().__init__(f"a call with a value of '{trace.name}'", "it is traced", f"call it within {trace.kind}")
        self.trace = trace


@contextmanager
def resumed(trace: Trace | None):
    """Within it, a trace around is the current one again; None: operations run eagerly."""
    TRACES.active.append(trace)
    try:
        yield
    finally:
        TRACES.active.pop()


def beside(x):
    """Inside it, new values are recorded where x is: outside `with program:`, in the program of a node."""
    apart = isinstance(x, Tracer) and x.trace.active and current_trace() is None
    return resumed(x.trace) if apart else nullcontext()


def _concrete_operand(operand) -> Array:
    if isinstance(operand, Tracer):
        if operand.trace.active:
            raise _StillTraced(operand.trace)
        operand.trace_ended()
    return from_python(operand)


@record
class Traced:
    """A traced function: its computation, the tree of its results, and the outer tracers that it uses.

    The computation's parameters are the flat arguments, then one in double width for each argument in `wide`, then one
    for each captured tracer. Its results are those of the function, then one in double width for each in `twins`.
    """

    computation: Computation
    out_tree: Any
    captures: list[Tracer] = field(default_factory=list)
    weak: tuple[bool, ...] = ()
    values: list | None = None
    known: dict[Instruction, Any] | None = None
    seconds: float = 0.0
    used_keys: tuple[int, ...] = ()
    wide: tuple[int, ...] = ()
    twins: tuple[int, ...] = ()
    uses_mesh: bool = False  # whether it depends on the current mesh
    shardings: list | None = None  # layouts of the results over explicit mesh axes, where these are part of types
    assumptions: tuple[Assumption, ...] = ()  # of open sizes

    def unflatten(self, results):
        """The tree of the function's result with these leaves, weak where the function returned Python numbers."""
        return tree.unflatten(self.out_tree, self.weakly_typed(results))

    def weakly_typed(self, results) -> list:
        """The results of the function, weak where it returned Python numbers, and with their twins."""
        count = len(self.weak)
        found = [with_weakness(result, flag) for result, flag in zip(results[:count], self.weak, strict=True)]
        for k, exact in zip(self.twins, results[count:], strict=True):
            found[k] = twins_of_results["note"](found[k], exact)
        return found

    def exact_output(self, number: int) -> int:
        """The number of the output that has all digits of a result: that of its twin, or its own."""
        return len(self.weak) + self.twins.index(number) if number in self.twins else number


@restarts
def trace_function(
    function,
    arguments,
    in_tree,
    name: str,
    carries_values: bool = False,
    hints=None,
    adopts=(),
    kind: str = "jit",
    weak: bool = False,
    twins: bool = False,
    untyped: tuple[int, ...] = (),
) -> Traced:
    """Traces `function` on flat `arguments` (Arrays, Tracers or Shapes), unflattened by `in_tree`.

    `in_tree` unflattens to (args, kwargs). carries_values: arguments' values, where they have one, go along.
    adopts: tracers that may be used after their trace ended; the caller of the computation passes their values.
    weak: the caller passes the twins of weakly typed arguments that `Traced.wide` names as well. twins: the computation
    returns those of results, which `Traced.twins` names (`hloom.tracing.exact`). untyped: arguments of whole types.
    """
    if carries_values and any([type(a) is Array and a.is_sharded for a in arguments]):
        try:  # few functions need values, and those of arrays over several devices would be computed whole
            return trace_function(function, arguments, in_tree, name, False, hints, adopts, kind, weak, twins, untyped)
        except TracerError:
            pass
    trace = Trace(name, carries_values)
    trace.kind = kind
    trace.adopted = {id(tracer): tracer for tracer in adopts}
    with in_general([a if isinstance(a, Shape) else a._shape for a in arguments]):
        traced = _traced(trace, function, arguments, in_tree, hints or [""] * len(arguments), weak, twins, untyped)
    if config.check_tracer_leaks and not adopts:
        check_leaks(trace, Tracer)
    return traced


def _traced(trace: Trace, function, arguments, in_tree, hints, weak: bool, twins: bool, untyped) -> Traced:
    """The result of `trace_function`; a separate function, so that its tracers are freed when it returns."""
    name, carries_values = trace.name, trace.carries_values
    with trace:
        tracers = []
        for k, (argument, hint) in enumerate(zip(arguments, hints, strict=True)):
            tracers.append(_parameter(trace, argument, hint, k in untyped))
            if weak and not isinstance(argument, Shape) and argument.weak:
                trace.weak_arguments[tracers[-1].instruction] = k, argument
        args, kwargs = tree.unflatten(in_tree, tracers)
        try:
            result = function(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, HloomError):
                raise
            raise_wrong_call(error, function, name, args, kwargs)
            raise
        flat, out_tree = tree.flatten(result)
        flat = [as_array(leaf, f"the result of '{name}'") for leaf in flat]
        exact, with_twins = twins_of_results["find"](flat) if twins else ([], ())
        computation = trace.finish([*flat, *exact])
    captures = [value for value, _ in trace.captures.values() if isinstance(value, Tracer)]
    used = used_arguments(trace, computation.parameters[: len(arguments)]) if trace.used_keys else ()
    values = [r.value if isinstance(r, Tracer) else r._value() for r in flat] if carries_values else None
    if trace.wide_parameters:
        number_parameters(computation, len(arguments), trace.wide_parameters)
    places = None if trace.layouts is None else [trace.layouts.sharding(trace.lift(r)[0]) for r in flat]
    return Traced(
        computation, out_tree, captures, tuple(r.weak for r in flat), values, trace.values, 0.0, used,
        tuple(trace.wide_arguments), with_twins, False, places, assumptions_of(trace, computation),
    )  # fmt: skip


def _parameter(trace: Trace, argument, hint: str, untyped: bool) -> Tracer:
    """The tracer of an argument: a Shape, an Array or a Tracer. untyped: without its layout over mesh axes."""
    if isinstance(argument, Shape):
        return trace.parameter(argument, hint, None, False)
    if isinstance(argument, Tracer):
        value = argument.value
    else:
        argument._held()  # raises for a donated one; data on a GPU stays there
        value = argument._value() if trace.carries_values else None
    place = typed_sharding(argument)
    place = place.update(spec=PartitionSpec()) if place is not None and untyped else place
    return trace.parameter(argument._shape, hint, value, argument.weak, place)


def number_parameters(computation: Computation, count: int, wide: list[Instruction]) -> None:
    """Puts the parameters of exact values after those of the arguments."""
    captured = [p for p in computation.parameters[count:] if p not in wide]
    computation.parameters[count:] = [*wide, *captured]
    for k, parameter in enumerate(computation.parameters):
        parameter.attributes["index"] = k


def apply_computation(
    computation: Computation, operands, known: dict[Instruction, Any] | None = None, beside=()
) -> list:
    """The outputs of a computation: computed eagerly by the interpreter, or inlined in the current trace.

    operands: Arrays or Tracers, one for each parameter. known: values of instructions that need not be recomputed;
    used where values are computed. beside: further arguments of the call, constants of the computation that affect the
    choice of the device. Returns Arrays, or Tracers of the current trace.
    """
    trace = current_trace()
    if trace is not None:
        return trace.inline(computation, operands, known or {})
    arrays = [o if isinstance(o, Array) else _concrete_operand(o) for o in operands]
    device_of = eager_devices(computation, arrays, beside)
    devices = [device_of[output] for output in computation.outputs()]
    log_placements(device_of)
    if any([d.__class__ is NamedSharding for d in devices]) or any(map(names_mesh, computation.instructions)):
        return on_several["computation"](computation, arrays)
    try:
        result = evaluate(computation, [a._value() for a in arrays], known=known, each=evaluated)
    except MemoryError as error:
        raise no_memory(error, f"'{computation.name}'", [o.shape for o in computation.outputs()]) from None
    results = result if isinstance(result, tuple) else (result,)
    if checks_results():
        check_outputs(results, computation, [a._value() for a in arrays])
    return [Array(owned(r), False, device) for r, device in zip(results, devices, strict=True)]


def call_computation(computation: Computation, operands, inline: bool = False, rule=None) -> list:
    """The outputs of a computation as a `call` in the current trace, with a rule for transforms, or inlined."""
    if inline:
        return apply_computation(computation, operands)
    attributes = {"to_apply": computation} if rule is None else {"to_apply": computation, "rule": rule}
    trace = current_trace()
    assert trace is not None
    result = trace.emit("call", operands, None, attributes)
    return list(result) if isinstance(result, tuple) else [result]


class RefArgument(ArgumentError):
    """A Ref (`hloom.tracing.refs`) was passed where an array is required."""


def as_array(value, what: str = "an argument"):
    """Converts a value to an Array or Tracer. Raises ArgumentError, which names `what`."""
    if isinstance(value, (Array, Tracer)):
        return value
    try:
        return from_python(value)
    except ArgumentError as error:
        if hasattr(type(value), "addupdate"):
            raise RefArgument(f"{what} must be an array", f"a {value.description}", "read it: ref[...]") from None
        raise ArgumentError(f"{what} must be an array", error.found, error.repair) from None
