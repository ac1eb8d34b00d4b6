"""Calls of functions that have a rule for a transform: flattened, traced, and emitted in the current trace."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.compiler.transforms.custom import OtherTangent
from hloom.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError, TreeError
from hloom.ir.build import Builder
from hloom.ir.records import field, record
from hloom.ir.types import HLO_NAME, INEXACT, Shape, kind
from hloom.tracing.conversion import convert, with_weakness
from hloom.tracing.exact import has_digits, note_lack, note_twin, wide_value
from hloom.tracing.leaks import HoldsTracers
from hloom.tracing.signatures import argument_hints, function_name, with_positions
from hloom.tracing.trace import (
    TRACES,
    Traced,
    Tracer,
    apply_computation,
    as_array,
    bind,
    call_computation,
    current_trace,
    trace_function,
)
from hloom.tree import pytrees as tree


class SymbolicZero:
    """A tangent that is known to be zero (`defjvp(..., symbolic_zeros=True)`): it has shape and dtype and no data."""

    __slots__ = ("_shape",)

    def __init__(self, shape: Shape):
        self._shape = shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape.dims

    @property
    def dtype(self):
        return self._shape.dtype

    def __repr__(self) -> str:
        return f"SymbolicZero({self._shape!r})"


# --- the call of a function with a rule ---------------------------------------------------------------------------


@record
class Call(HoldsTracers):
    """A flattened call: which arguments are differentiated, their leaves, and the values used from outside."""

    function: Any
    name: str
    args: list
    positions: list[int]
    leaves: list
    structure: Any
    hints: list[str]
    outside: list = field(default_factory=list)
    twins: dict[int, Tracer] = field(default_factory=dict)  # of weakly typed leaves, by number; they are outside too
    axes: tuple = ()
    carries_values: bool = False

    @classmethod
    def of(cls, function, args, kwargs, nondiff, what: str) -> Call:
        name = function_name(function)
        args = _positional(function, args, kwargs, f"{what} '{name}'")
        excluded = set()
        for k in nondiff:
            if not -len(args) <= k < len(args):
                raise ArgumentError(
                    f"{what} '{name}' has nondiff_argnums={tuple(nondiff)}",
                    f"{len(args)} arguments",
                    "name arguments that the function has",
                )
            excluded.add(k % len(args))
        positions = [k for k in range(len(args)) if k not in excluded]
        chosen = tuple(args[k] for k in positions)
        leaves, structure = tree.flatten((chosen, {}))
        hints = argument_hints(function, chosen, {}, positions)
        leaves = [
            as_array(v, f"argument '{h}' of the {what} function '{name}'") for v, h in zip(leaves, hints, strict=True)
        ]
        return cls(function, name, args, positions, leaves, structure, hints, [], {}, TRACES.axes)

    @property
    def nondiff(self) -> list:
        return [a for k, a in enumerate(self.args) if k not in self.positions]

    def with_arguments(self, chosen) -> list:
        return with_positions(self.args, self.positions, chosen)

    def trace(self) -> Traced:
        """The function itself, traced on the leaves."""
        trace = current_trace()
        assert trace is not None
        self.carries_values = trace.carries_values
        traced = self._traced(False)
        numbers = dict.fromkeys(traced.wide)
        if TRACES.twins:
            numbers |= dict.fromkeys(k for k, leaf in enumerate(self.leaves) if leaf.weak and has_digits(leaf))
        # Rules take the leaves alone: their twins are values from outside, which have no derivative.
        self.twins = {k: _constant_twin(self.leaves[k]) for k in numbers}
        traced.captures = [*(self.twins[k] for k in traced.wide), *traced.captures]
        traced.wide = ()
        return traced

    def _traced(self, twins: bool) -> Traced:
        function = self.function
        return trace_function(
            lambda *chosen: function(*self.with_arguments(chosen)),
            self.leaves,
            self.structure,
            self.name,
            self.carries_values,
            self.hints,
            weak=True,
            twins=twins,
        )

    def given(self) -> list:
        """The inputs for tracing a rule: the arguments with their values where known, else their shapes."""
        return self.leaves if self.carries_values else [leaf._shape for leaf in self.leaves]

    def with_weak(self, values) -> list:
        """The values that a rule gets for the leaves, or their tangents, weak where the leaves are."""
        return [
            value
            if isinstance(value, SymbolicZero) or value._shape.dtype != leaf._shape.dtype
            else with_weakness(value, leaf.weak)
            for value, leaf in zip(values, self.leaves, strict=True)
        ]

    def primals(self, values) -> list:
        """The values that a rule gets for the leaves, weak where the leaves are, and with their twins."""
        found, trace = self.with_weak(values), current_trace()
        assert trace is not None
        for k, exact in self.twins.items():
            note_twin(found[k], Tracer(trace, *trace.lift(exact)))
        note_lack([value for k, value in enumerate(found) if k not in self.twins])
        return found

    def trace_rule(self, function, given, name: str):
        """(the traced function of a rule, the indices of the values from outside that it uses).

        given: shapes or arrays; the parameters are these, then the values from outside.
        """
        structure = tree.structure((tuple(given), {}))
        before, TRACES.axes = TRACES.axes, self.axes  # a rule is traced late: the axes are those of the call
        try:
            traced = trace_function(function, given, structure, name, self.carries_values, adopts=self.outside)
        finally:
            TRACES.axes = before
        known = {id(tracer): k for k, tracer in enumerate(self.outside)}
        order = []
        for tracer in traced.captures:
            if id(tracer) not in known:
                tracer.trace_ended()
                raise DifferentiationError(
                    f"the rule '{name}' uses a traced value from outside that its function does not use",
                    f"{tracer!r}",
                    "pass it as an argument, or through the residuals",
                )
            order.append(known[id(tracer)])
        return traced, order

    def emit(self, traced: Traced, rule):
        """The call in the current trace; returns the tree of its results."""
        computation = traced.computation
        if traced.captures or self.outside:
            computation = with_parameters(computation, traced.captures, self.outside)
        results = call_computation(computation, [*self.leaves, *self.outside], rule=rule)
        results = [with_weakness(r, flag) for r, flag in zip(results, traced.weak, strict=True)]
        if TRACES.twins and any([r.weak and has_digits(r) for r in results]):
            self._note_twins(results)
        return tree.unflatten(traced.out_tree, results)

    def _note_twins(self, results: list) -> None:
        """The twins of weakly typed results, which the function recomputes; their derivatives are those of the
        rule."""
        traced = self._traced(True)
        exact = [self.twins[k] if k in self.twins else _constant_twin(self.leaves[k]) for k in traced.wide]
        operands = [*self.leaves, *exact, *traced.captures]
        exact = apply_computation(traced.computation, operands)[len(results) :]
        for k, value in zip(traced.twins, exact, strict=True):
            note_twin(results[k], with_derivative_of(results[k], value))


def _constant_twin(leaf):
    return bind("copy", wide_value(leaf), stop_gradient=True)


def with_parameters(computation, captures, outside):
    """The computation with a parameter for each value from outside, including those that it does not use."""
    builder = Builder(computation.name)
    first = len(computation.parameters) - len(captures)
    parameters = [builder.parameter(p.shape, p.hint, p.source) for p in computation.parameters[:first]]
    given = {id(t): builder.parameter(t._shape, t.instruction.hint) for t in outside}
    root = builder.inline(computation, [*parameters, *(given[id(t)] for t in captures)])
    return builder.finish(root)


def reordered(computation, count: int, order: list[int], outside: list):
    """The computation of a rule, whose last parameters are the values from outside that it uses, with a parameter for
    each value from outside after the first `count`."""
    if not outside:
        return computation
    builder = Builder(computation.name)
    last = len(computation.parameters) - len(order)
    own = [builder.parameter(p.shape, p.hint, p.source) for p in computation.parameters[:last]]
    extra = [builder.parameter(t._shape) for t in outside]
    # The captured values come right after the operands of the call.
    parameters = [*own[:count], *extra, *own[count:]]
    for index, parameter in enumerate(parameters):
        parameter.attributes["index"] = index
    builder.parameters = parameters
    root = builder.inline(computation, [*own, *(extra[k] for k in order)])
    return builder.finish(root)


def _positional(function, args, kwargs, what: str) -> list:
    """All arguments by position, defaults filled in."""
    if not kwargs:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return list(args)
        if len(args) >= sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
            return list(args)
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise ArgumentError(
            f"{what} requires arguments that can be passed by position",
            f"keyword-only: {', '.join(bound.kwargs)}",
            "pass them by position, or bind them with functools.partial",
        )
    return list(bound.args)


def tracers_outside(*functions) -> list[Tracer]:
    """The tracers that functions hold in their closures."""
    found: dict[int, Tracer] = {}
    stack: list[Any] = [f for f in functions if f is not None]
    seen: set[int] = set()
    while stack:
        value = stack.pop()
        if id(value) in seen or len(seen) > 200:
            continue
        seen.add(id(value))
        if isinstance(value, Tracer):
            found[id(value)] = value
        elif isinstance(value, functools.partial):
            stack += [value.func, *value.args, *value.keywords.values()]
        elif inspect.isfunction(value):
            for cell in value.__closure__ or ():
                try:
                    stack.append(cell.cell_contents)
                except ValueError:
                    continue  # not bound yet
        elif isinstance(value, (list, tuple)):
            stack += value
        elif isinstance(value, dict):
            stack += value.values()
    return list(found.values())


def values_outside(traced: Traced, *functions) -> list[Tracer]:
    """The values from outside that the function uses, then those that its rule's functions hold."""
    found = {id(t): t for t in traced.captures}
    for tracer in tracers_outside(*functions):
        if tracer.trace.active:
            found.setdefault(id(tracer), tracer)
    if TRACES.twins:
        for tracer in [t for t in found.values() if t.weak and has_digits(t)]:
            exact = wide_value(tracer)
            found.setdefault(id(exact), exact)
    return list(found.values())


def zero_of(shape: Shape):
    """The tangent zero of a value: False everywhere for integers and booleans (JAX: float0)."""
    dtype = shape.dtype if shape.dtype in INEXACT else np.dtype(np.bool_)
    if shape.is_open:
        return bind("broadcast", np.zeros((), dtype), shape=shape.with_dtype(dtype), dimensions=())
    return Array(np.zeros(shape.dims, dtype))


def matching(value, shape: Shape, what: str, weak: bool = False):
    """A leaf of a rule's result as an array of this shape and dtype. Raises ShapeError, DTypeError.

    weak: it belongs to a Python number, so it is converted where only the width differs.
    """
    if isinstance(value, SymbolicZero):
        return zero_of(shape)
    number = isinstance(value, (bool, int, float, complex))
    leaf = as_array(value, what)
    if leaf._shape.dims != shape.dims:
        raise ShapeError(f"{what} has the shape of {shape!r}", f"{leaf._shape!r}", "return an array of that shape")
    if leaf.dtype != shape.dtype:
        if number or leaf.weak or (weak and kind(leaf.dtype) == kind(shape.dtype)):
            return convert(leaf, shape.dtype)
        raise DTypeError(
            f"{what} has the dtype {HLO_NAME[shape.dtype]}",
            f"{leaf._shape!r}",
            f"convert it with astype('{HLO_NAME[shape.dtype]}')",
        )
    return leaf


def same_tree(value, structure, what: str, repair: str) -> list:
    leaves, found = tree.flatten(value, is_leaf=lambda v: isinstance(v, SymbolicZero))
    if found != structure:
        raise TreeError(f"{what} has the structure {tree.written(structure)}", tree.written(found), repair)
    return leaves


def pair_of(value, what: str):
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        found = f"{type(value).__name__}" + (f" of length {len(value)}" if isinstance(value, (tuple, list)) else "")
        raise TreeError(f"{what} returns a pair", found, "return two values")
    return value


def with_derivative_of(x: Tracer, exact) -> Tracer:
    """The twin of x with the derivative of x. Where single precision overflows, the twin is still finite."""
    builder = Builder("exact")
    _, value = builder.parameter(x._shape), builder.parameter(exact._shape)
    second = builder.finish(builder.emit("copy", value))
    return bind("call", x, exact, to_apply=second, rule=OtherTangent())
