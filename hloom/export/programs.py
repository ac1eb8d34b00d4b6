"""Programs of `hl.sessions` as functions to export: each run is one, and the variables are the library's state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.errors import ArgumentError, ExportError, FeedError
from hloom.export.names import identifiers
from hloom.ir.ops.specialize import Specialization
from hloom.ir.records import record
from hloom.ir.types import HLO_NAME
from hloom.sessions.files import Saved
from hloom.sessions.graph import Node, Operation, PlaceholderRecord, Text
from hloom.sessions.lowering import Plan, make_plan, needed
from hloom.sessions.program import Program
from hloom.tracing.trace import apply_computation

STATE = "variables"  # the state's name in the library
INITIAL = "init"  # the function that sets the variables to their initial values


@record(eq=False)
class ProgramFunctions:
    """The arguments of `hl.export` for a program.

    name: the program's. functions: by name. updates: those that return the variables. named: examples of the feeds, by
    the parameters' names.
    """

    name: str
    functions: dict[str, Callable]
    updates: tuple[str, ...]
    named: dict[str, Any]


def functions_of(source: Program | Saved, fetches: Any, feeds: Any, variables: Mapping[str, Any] | None):
    """The functions of a program's runs.

    fetches: the fetches of each function: {"train": ["train", "cost"], "predict": "out"}; a list or a name is a
    function `run`. feeds: placeholders and other tensors that are fed, by name or handle, with an array, a
    `ShapeDtypeStruct` or a shape; one whose sizes are known need not be named. variables: their initial values, by
    name; by default those of a saved file, else of the program's initializer. Raises ExportError, FetchError,
    FeedError.
    """
    if isinstance(source, Saved):
        if source.program is None:
            raise ExportError("export of a saved file", "it holds no program", "save(path, program, ...)")
        variables = source.state if variables is None and isinstance(source.state, Mapping) else variables
        source = source.program
    if not fetches:
        known = ", ".join([*source.targets][:12]) or "no named targets"
        raise ExportError(
            f"export of '{source.name}'", "no fetches", f"pass fetches={{'step': ['train']}}; it has {known}"
        )
    chosen = dict(fetches) if isinstance(fetches, Mapping) else {"run": fetches}
    fed = {_fed(source, feed).instruction: feed for feed in (feeds or {})}
    examples = {instruction: feeds[feed] for instruction, feed in fed.items()} if isinstance(feeds, Mapping) else {}
    functions: dict[str, Callable] = {}
    updates, named = [], {}
    if source.variables:
        functions[INITIAL] = _initializer(source, variables or {})
        updates.append(INITIAL)
    for name, found in chosen.items():
        if name in functions:
            raise ExportError(f"export of '{source.name}'", f"a second function {name!r}", "choose another name")
        function, updated, given = _run_of(source, found, fed, examples)
        functions[name] = function
        named.update(given)
        if updated:
            updates.append(name)
    return ProgramFunctions(source.name, functions, tuple(updates), named)


def _fed(program: Program, feed: Any) -> Node:
    node = program.find(feed, "feed")
    if not isinstance(node, Node):
        raise FeedError(f"feed {feed!r}", f"{node!r} is not a tensor", "feed placeholders and other tensors")
    return node


def _with_signature(function: Callable, names: Sequence[str]) -> Callable:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _initializer(program: Program, values: Mapping[str, Any]) -> Callable:
    unknown = [name for name in values if name not in program.variables]
    if unknown:
        raise ExportError(
            f"export of '{program.name}'", f"a value for {unknown[0]!r}, which is not a variable", "leave it out"
        )
    others = [v for name, v in program.variables.items() if name not in values]
    without = [v.name for v in others if v.record.initial is None]
    if without:
        raise ExportError(
            f"export of '{program.name}'", f"the variable {without[0]!r} has no initial value",
            "pass variables=session.state()",
        )  # fmt: skip
    for name, value in values.items():
        want = program.variables[name]._shape
        if tuple(np.shape(value)) != want.dims or np.asarray(value).dtype != want.dtype:
            raise ExportError(
                f"export of '{program.name}'", f"the value of {name!r} is not {want!r}", "pass session.state()"
            )
    starts = [v.record.initial for v in others]
    nodes: list[Any] = [Node(program.trace, i) for i in starts if i is not None]
    plan = make_plan(program, nodes, [])

    def init():
        found = dict(zip([v.name for v in others], apply_computation(plan.computation, []), strict=True))
        return {name: found[name] if name in found else np.asarray(values[name]) for name in program.variables}

    return _with_signature(init, [])


def _run_of(program: Program, fetches: Any, fed: Mapping, examples: Mapping) -> tuple[Callable, bool, dict[str, Any]]:
    """(a run as a function of the variables and its feeds, whether it updates variables, examples of the feeds)."""
    leaves = [fetches] if isinstance(fetches, (str, Node, Operation, Text)) else list(fetches)
    targets = [program.find(leaf) for leaf in leaves]
    if text := next((t for t in targets if isinstance(t, Text)), None):
        raise ExportError(f"export of '{program.name}'", f"{text.name!r} is a text", "fetch tensors and operations")
    need = needed(program, targets, fed, complete=False)
    if need.host_values or need.hosts:
        taken = need.host_values[0].name if need.host_values else need.hosts[0].name
        raise ExportError(
            f"export of '{program.name}'", f"{taken!r} comes from Python: a queue, a dataset or a callback",
            f"feed its result: feeds={{{taken!r}: ...}}",
        )  # fmt: skip
    inputs = [i for i in program.instructions if i in need.instructions and i in fed]
    inputs += [p.instruction for p in need.placeholders if p.instruction not in fed]
    inputs.sort(key=program.index)
    nodes = [Node(program.trace, instruction) for instruction in inputs]
    plan = make_plan(program, targets, nodes)
    parameters = identifiers([program.name_of(i) for i in inputs], [STATE])
    named = {p: _example(program, i, examples.get(i)) for p, i in zip(parameters, inputs, strict=True)}
    names = [STATE, *parameters] if program.variables else parameters
    results = identifiers([program.name_of(t.instruction) for t in targets if isinstance(t, Node)])
    return _with_signature(_function(program, plan, inputs, results), names), bool(plan.updated), named


def _function(program: Program, plan: Plan, inputs: Sequence, results: Sequence[str]) -> Callable:
    sizes = program.sizes

    def run(*arguments):
        state, given = (arguments[0], arguments[1:]) if program.variables else ({}, arguments)
        known: dict[str, int] = {}
        for instruction, value in zip(inputs, given, strict=True):
            for n, probe in zip(value.shape, instruction.dims, strict=True):
                if (name := sizes.name_of(probe)) is not None:
                    known[name] = n
        computation = Specialization(sizes.given(known)).computation(plan.computation) if known else plan.computation
        outputs = apply_computation(computation, [*(state[name] for name in plan.variables), *given])
        numbers = [f for f in plan.fetches if isinstance(f, int)]
        made = {name: outputs[k] for name, k in zip(results, numbers, strict=True)}
        found = next(iter(made.values())) if len(made) == 1 else made
        if not plan.updated:
            return found
        new = {**state, **dict(zip(plan.updated, outputs[plan.count :], strict=True))}
        return (new, found) if made else (new,)

    return run


def _example(program: Program, instruction: Any, given: Any) -> Any:
    """The type of a feed: as given, or that of its placeholder. Raises ExportError for an unknown size."""
    name, dims, dtype = program.name_of(instruction), instruction.dims, instruction.dtype
    shown = program.sizes.shown(dims)
    if given is None:
        if any(not isinstance(n, int) for n in shown):
            source = program.sources.get(instruction)
            what = "the placeholder" if isinstance(source, PlaceholderRecord) else "the tensor"
            raise ExportError(
                f"export of '{program.name}'",
                f"{what} {name!r} has sizes that are not known: {HLO_NAME[dtype]}{list(shown)}",
                f"specify them: feeds={{{name!r}: (100, ...)}}, or a range: (hl.Dim('batch', 1, 64), ...)",
            )
        return ShapeDtypeStruct(dims, dtype)
    shape = tuple(given) if isinstance(given, (tuple, list)) else tuple(given.shape)
    fits = len(shape) == len(dims) and all(
        not isinstance(want, int) or n == want for n, want in zip(shape, shown, strict=True)
    )
    if not fits or (hasattr(given, "dtype") and given.dtype != dtype):
        raise ArgumentError(
            f"feed {name!r} of '{program.name}'", f"{given!r:.60}", f"pass {HLO_NAME[dtype]}{list(shown)}"
        )
    return ShapeDtypeStruct(shape, dtype)


__all__ = ["INITIAL", "STATE", "ProgramFunctions", "functions_of"]
