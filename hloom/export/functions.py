"""From users' functions to planned ones: the inputs, the outputs, and the plan of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct, is_open
from hloom.backends.compile import optimized_plan
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import HostStep
from hloom.compiler.targets.cpu.cross import CrossMachine
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.dispatch.counted_programs import refuse_computed_sizes
from hloom.dispatch.jit import jit
from hloom.dispatch.stages import Lowered
from hloom.errors import ArgumentError, ExportError
from hloom.export.names import OWN, checked_name, described_tree, identifiers, output_names
from hloom.export.tables import EXPORTABLE
from hloom.ir.module import Module
from hloom.ir.records import field, record
from hloom.ir.sizes.expressions import Dim, dims_of, single, size_with
from hloom.ir.types import HLO_NAME, HOST_DTYPES, Shape
from hloom.tracing.signatures import function_name
from hloom.tree import pytrees as tree

MOST_DIMENSIONS = 8  # of native/driver.c
MOST = 4096  # of a dimension without a bound: variants are made for ranges

__all__ = ["Request", "TracedFunction", "Value", "plan_of", "requests_of", "traced"]


@record(frozen=True)
class Value:
    """An input, an output or a part of the state: extents are sizes, or expressions of named dimensions."""

    name: str
    dtype: np.dtype
    extents: tuple[Any, ...]


@record
class Request:
    """A function to export, with its arguments by position. state: for each argument the name of the state that it is,
    or None. updates: whether its result begins with the state."""

    name: str
    function: Callable
    arguments: tuple
    keywords: dict[str, Any]
    state: tuple[str | None, ...]
    updates: bool


@record
class TracedFunction:
    """A function traced. slots: for each parameter ("input", number) or ("state", part), for each result ("output",
    number) or ("next", part). argument_tree, result_tree: as `names.described_tree`, of inputs and of outputs."""

    request: Request
    lowered: Lowered
    inputs: list[Value]
    outputs: list[Value]
    parameter_slots: list[tuple[str, int]]
    result_slots: list[tuple[str, int]]
    argument_names: list[str]
    argument_tree: Any
    result_tree: Any
    kept: dict[int, int] = field(default_factory=dict)
    arguments: tuple = ()

    def dimension_names(self) -> set[str]:
        """The named dimensions of its arguments."""
        leaves = tree.leaves((self.request.arguments, self.request.keywords))
        return {name for leaf in leaves if is_open(leaf) for d in leaf.shape for name in dims_of(d)}

    @property
    def reads_state(self) -> bool:
        return any(kind == "state" for kind, _ in self.parameter_slots)


def requests_of(
    functions: Callable | Mapping[str, Callable],
    examples: Sequence,
    named: Mapping[str, Any],
    state: Sequence[str],
    updates: Sequence[str],
) -> list[Request]:
    """The functions to be exported. Raises ExportError, ArgumentError for missing or surplus arguments."""
    if callable(functions):
        if state or updates:
            raise ExportError(
                "export of a function with a state",
                f"one function, and state={tuple(state)!r}",
                "pass the functions by name: hl.export({'init': init, 'step': step}, state=..., updates=...)",
            )
        given = function_name(functions).strip("<>")
        name = checked_name("call" if given == "lambda" or given in OWN else given, "a function")
        return [Request(name, functions, tuple(examples), dict(named), (None,) * len(examples), False)]
    if examples:
        raise ArgumentError(
            "export of several functions",
            f"{len(examples)} arguments by position",
            "pass them by the names of the parameters: hl.export({...}, x=x, y=y)",
        )
    unknown = [name for name in updates if name not in functions]
    if unknown:
        raise ExportError(
            f"updates={tuple(updates)!r}",
            f"there is no function {unknown[0]!r} among {list(functions)}",
            "name one of them",
        )
    if state and not updates:
        raise ExportError(
            f"export with state={tuple(state)!r}",
            "no function that returns it",
            "name those whose results begin with the state: updates=('init', 'step')",
        )
    return [
        _request(checked_name(name, "a function"), function, named, tuple(state), name in updates)
        for name, function in functions.items()
    ]


def _request(name: str, function: Callable, named: Mapping[str, Any], state: tuple[str, ...], updates: bool) -> Request:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ExportError(
            f"export of {name!r}", "its parameters are not known", "wrap it in a function with named parameters"
        ) from None
    arguments: list[Any] = []
    kinds: list[str | None] = []
    for parameter in parameters.values():
        if parameter.name in state:
            arguments.append(None)
            kinds.append(parameter.name)
        elif parameter.name in named:
            arguments.append(named[parameter.name])
            kinds.append(None)
        elif parameter.default is parameter.empty:
            raise ArgumentError(
                f"export of {name!r}, which takes ({', '.join(parameters)})",
                f"no value for {parameter.name!r}",
                f"pass {parameter.name}=hl.ShapeDtypeStruct(shape, dtype), or name it in state=",
            )
        else:
            break  # this one and those after it have their defaults
    return Request(name, function, tuple(arguments), {}, tuple(kinds), updates)


class State:
    """The state that functions share: its trees by name, and its leaves as parts, in the order of the names."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.trees: dict[str, Any] = {}  # of ShapeDtypeStructs
        self.parts: list[Value] = []

    def first_part(self, name: str) -> int:
        before = self.names[: self.names.index(name)]
        return sum(len(tree.leaves(self.trees[one])) for one in before)

    def define(self, result: Any, by: str) -> None:
        """Splits the state's trees from the result of a function."""
        for name, value in zip(self.names, _states(result, self.names, by), strict=True):
            self.trees[name] = value
        names = [
            "_".join([name, *map(str, path)]) if path else name
            for name in self.names
            for path in tree.paths(self.trees[name])
        ]
        leaves = [leaf for name in self.names for leaf in tree.leaves(self.trees[name])]
        self.parts = [Value(n, x.dtype, x.shape) for n, x in zip(identifiers(names), leaves, strict=True)]

    def check(self, result: Any, by: str) -> None:
        for name, value in zip(self.names, _states(result, self.names, by), strict=True):
            known = self.trees[name]
            same = tree.structure(known) == tree.structure(value)
            pairs = zip(tree.leaves(known), tree.leaves(value), strict=False)
            wrong = next(((a, b) for a, b in pairs if (a.shape, a.dtype) != (b.shape, b.dtype)), None)
            if not same or wrong:
                found = f"{wrong[1]!r} in place of {wrong[0]!r}" if wrong else f"{tree.structure(value)}"
                raise ExportError(
                    f"export: {by!r} updates the state", f"{name!r} that it returns has another form: {found}",
                    "return the state with the trees, shapes and dtypes that the first function of updates= returns",
                )  # fmt: skip


def _states(result: Any, names: tuple[str, ...], by: str) -> list:
    """The state that a result begins with: the result itself where it is the only name."""
    found = list(result[: len(names)]) if isinstance(result, tuple) and len(result) >= len(names) else [result]
    if len(found) == len(names):
        if wrong := next((leaf for leaf in tree.leaves(found) if is_open(leaf)), None):
            raise ExportError(
                f"export of {by!r}", f"a part of the state is {wrong!r}, whose size is not the same in all calls",
                "keep the state at one size, and pass varying arrays as arguments",
            )  # fmt: skip
        return found
    raise ExportError(
        f"export: {by!r} updates the state {names}",
        f"it returns {tree.structure(result)}",
        f"return a tuple that begins with {', '.join(names)}",
    )


def traced(request: Request, state: State) -> TracedFunction:
    """Traces a function. The first one that updates the state defines it."""
    if unknown := next((s for s in request.state if s is not None and s not in state.trees), None):
        raise ExportError(
            f"export: {request.name!r} takes the state {unknown!r}",
            "no function before it returns the state without taking it",
            "begin with the one that makes it: hl.export({'init': init, ...}, updates=('init', ...))",
        )
    arguments = [
        value if name is None else state.trees[name]
        for name, value in zip(request.state, request.arguments, strict=True)
    ]
    lowered = _lowered(request, arguments)
    _refuse(lowered, request)
    if request.updates:
        if not state.trees:
            state.define(lowered.out_info, request.name)
        state.check(lowered.out_info, request.name)
    made = _described(request, lowered, state)
    made.arguments = tuple(arguments)
    return made


def _lowered(request: Request, arguments: Sequence) -> Lowered:
    """A function traced once for all sizes of the named dimensions."""
    arguments, keywords = tree.map(_traceable, (tuple(arguments), request.keywords))
    function = request.function if hasattr(request.function, "lower") else jit(request.function)
    lowered = function.lower(*arguments, **keywords)
    refuse_computed_sizes(lowered.module.entry, "in an exported library")
    return lowered


def _traceable(leaf: Any) -> Any:
    """An argument, of which dimensions of 0 or 1 alone count as larger ones: sizes that are traced are at least 2."""
    if not is_open(leaf):
        return leaf
    wider = {n: Dim(n, d.min, 2, scope=d.scope) for one in leaf.shape for n, d in dims_of(one).items() if d.most < 2}
    return ShapeDtypeStruct(tuple([size_with(one, wider) for one in leaf.shape]), leaf.dtype, leaf.weak)


def dimensions_of(requests: Sequence[Request]) -> list[Dim]:
    """The named dimensions of all arguments, each once, those without a bound up to MOST. Raises ExportError if a
    name has two ranges, and where one is in expressions only, so that arrays do not tell its size."""
    found: dict[str, Dim] = {}
    for request in requests:
        leaves = tree.leaves((request.arguments, request.keywords))
        shapes = [leaf.shape for leaf in leaves if is_open(leaf)]
        alone = {dim.name for shape in shapes for size in shape if (dim := single(size)) is not None}
        for size in [size for shape in shapes for size in shape]:
            for name, dim in dims_of(size).items():
                if dim.max is None and dim.min <= MOST:
                    dim = Dim(name, dim.min, MOST, multiple_of=dim.multiple_of, scope=dim.scope)
                if found.setdefault(name, dim).terms != dim.terms:
                    raise ExportError(
                        f"export with {dim.declaration()}",
                        f"the same name has another range: {found[name].declaration()}",
                        "use one range",
                    )
                if name not in alone:
                    raise ExportError(
                        f"export of {request.name!r} with the size {size}",
                        f"no argument has a dimension that is {name} alone, so arrays do not tell its size",
                        f"let a Dim stand for {size}, or pass an argument with the dimension {name}",
                    )
    if len(found) > MOST_DIMENSIONS:
        raise ExportError("export", f"{len(found)} named dimensions", f"a library has at most {MOST_DIMENSIONS}")
    return list(found.values())


def _refuse(lowered: Lowered, request: Request) -> None:
    if lowered._program is not None:
        raise ExportError(
            f"export of {request.name!r}", "it runs on several devices", "export the function of one device"
        )
    if lowered._traced.wide:
        hint = lowered._call.hints()[lowered._traced.wide[0]]
        raise ExportError(
            f"export of {request.name!r}",
            f"{hint!r} is a Python number that is used in double and in single precision",
            f"pass it as an array: {hint}=np.float32(...)",
        )


def _described(request: Request, lowered: Lowered, state: State) -> TracedFunction:
    avals, named = lowered.in_avals
    hints, leaves = lowered._call.hints(), lowered._call.leaves
    parameters = _names_of(request)
    states = list(request.state) + [None] * (len(avals) - len(request.state))
    given = [
        (parameters[k] if k < len(parameters) else f"arg{k}", kind, argument)
        for k, (kind, argument) in enumerate(zip(states, avals, strict=True))
    ]
    given += [(key, None, named[key]) for key in sorted(named)]
    slots: list[tuple[str, int]] = []
    inputs: list[str] = []
    taken: list[Shape] = []
    marked: list[Any] = []
    names: list[str] = []
    number = 0
    for name, kind, argument in given:
        count = len(tree.leaves(argument))
        if kind is not None:
            first = state.first_part(kind)
            slots += [("state", first + k) for k in range(count)]
        else:
            own = range(len(inputs), len(inputs) + count)
            marked.append(described_tree(tree.unflatten(tree.structure(argument), own)))
            names.append(name)
            slots += [("input", k) for k in own]
            inputs += hints[number : number + count]
            taken += [leaf._shape for leaf in leaves[number : number + count]]
        number += count
    values = [Value(n, s.dtype, s.dims) for n, s in zip(identifiers(inputs), taken, strict=True)]
    outputs, info = _outputs(request, lowered, state, [v.name for v in values])
    parts = len(state.parts) if request.updates else 0
    result_slots = [("next", k) for k in range(parts)] + [("output", k) for k in range(len(outputs))]
    for value in (*values, *outputs):
        if value.dtype in HOST_DTYPES:
            raise ExportError(
                f"export of {request.name!r}",
                f"{value.name!r} has dtype {HLO_NAME[value.dtype]}, which has no type in C",
                "convert it in the function: x.astype(...)",
            )
    return TracedFunction(
        request, lowered, values, outputs, slots, result_slots, names, marked, described_tree(info)
    )  # fmt: skip


def _outputs(request: Request, lowered: Lowered, state: State, taken: list[str]) -> tuple[list[Value], Any]:
    """(the results without the new state, which precedes them; their tree, of indices). taken: names of inputs."""
    results = [o.shape for o in lowered._traced.computation.outputs()]
    parts = len(state.parts) if request.updates else 0
    info = tree.unflatten(lowered.out_tree, list(range(len(results))))
    if parts:
        alone = not isinstance(info, tuple) or (len(state.names) == 1 and parts == len(results))
        rest: tuple[Any, ...] = () if alone else info[len(state.names) :]
        info = rest[0] if len(rest) == 1 else rest or None
        info = tree.map(lambda k: k - parts, info)
    count = len(results) - parts
    names = identifiers(output_names(tree.structure(info), count) if count else [], taken)
    return [Value(n, s.dtype, s.dims) for n, s in zip(names, results[parts:], strict=True)], info


def _names_of(request: Request) -> list[str]:
    try:
        return list(inspect.signature(request.function).parameters)
    except (TypeError, ValueError):
        return []


def plan_of(function: TracedFunction, machine: CrossMachine, module: Module) -> Plan:
    """The plan of a function for a machine; the state is computed in place where it can be."""
    parts = {part: k for k, (kind, part) in enumerate(function.parameter_slots) if kind == "state"}
    updates = {
        k: parts[part] for k, (kind, part) in enumerate(function.result_slots) if kind == "next" and part in parts
    }
    _, plan, _ = optimized_plan(
        module, target=CpuTarget(machine, self_contained=True), donated=frozenset(updates.values()), updates=updates
    )
    return plan


def keep(function: TracedFunction, plan: Plan) -> None:
    """Records which parts of the state a plan computes in place."""
    function.kept = {
        part: k for k, (kind, part) in enumerate(function.result_slots) if kind == "next" and k in plan.donated
    }


def refuse_python(plans: Mapping[str, Plan]) -> None:
    """Raises ExportError with every step of the plans that only Python can run."""
    found = []
    for name, plan in plans.items():
        for step in plan.steps:
            if isinstance(step, EXPORTABLE):
                continue
            instruction = getattr(step, "instruction", None)
            if not isinstance(step, HostStep) or instruction is None:
                found.append(f"{name}: {type(step).__name__}")
                continue
            what = instruction.opcode
            if what == "custom-call":
                what = f"custom-call {str(instruction['custom_call_target'])!r}"
            place = f" at {instruction.source}" if instruction.source else ""
            found.append(f"{name}: {what} of {', '.join(repr(o.shape) for o in instruction.operands)}{place}")
    if found:
        lines = list(dict.fromkeys(found))
        raise ExportError(
            f"export of a program with {len(lines)} step{'s' * (len(lines) > 1)} that only Python can run",
            "\n          ".join(lines),
            "compute these outside of the exported function, and pass their results as arguments",
            source="",
        )
