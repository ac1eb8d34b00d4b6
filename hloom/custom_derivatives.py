"""Functions with derivative rules of their own: custom_jvp, custom_vjp, custom_gradient, closure_convert.

Inside a trace such a function is a `call` that holds its rule (`hloom.compiler.transforms.custom`). The functions of
the rule are traced when a derivative is taken. Outside of a trace the function just runs.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom import tree
from hloom.array import Array
from hloom.compiler.transforms.custom import CustomJvp, CustomVjp
from hloom.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError, TreeError
from hloom.ir.types import HLO_NAME, INEXACT, Shape
from hloom.tracing import (
    TRACES,
    Traced,
    Tracer,
    apply_computation,
    argument_hints,
    as_array,
    current_trace,
    trace_function,
)


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


@dataclass
class Call:
    """A call taken apart: which arguments are differentiated by, their leaves, and the values used from outside."""

    function: Any
    name: str
    args: list
    positions: list[int]
    leaves: list
    structure: Any
    hints: list[str]
    outside: list = field(default_factory=list)
    axes: tuple = ()
    carries_values: bool = False

    @classmethod
    def of(cls, function, args, kwargs, nondiff, what: str) -> Call:
        name = getattr(function, "__name__", None) or type(function).__name__
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
        return cls(function, name, args, positions, leaves, structure, hints, [], TRACES.axes)

    @property
    def nondiff(self) -> list:
        return [a for k, a in enumerate(self.args) if k not in self.positions]

    def with_arguments(self, chosen) -> list:
        args = list(self.args)
        for position, value in zip(self.positions, chosen, strict=True):
            args[position] = value
        return args

    def trace(self) -> Traced:
        """The function itself, traced on the leaves."""
        self.carries_values = current_trace().carries_values
        return trace_function(
            lambda *chosen: self.function(*self.with_arguments(chosen)),
            self.leaves,
            self.structure,
            self.name,
            self.carries_values,
            self.hints,
        )

    def given(self) -> list:
        """What a rule is traced on for the arguments: with their values where there are some, else their shapes."""
        return self.leaves if self.carries_values else [leaf._shape for leaf in self.leaves]

    def trace_rule(self, function, given, name: str):
        """(what a rule's function gives when it is traced, the values from outside that it uses by number).

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
        operands = [*self.leaves, *self.outside]
        used = {id(t) for t in traced.captures}
        computation = (
            _with_parameters(traced.computation, traced.captures, self.outside) if used or self.outside else None
        )
        result = current_trace().emit(
            "call", operands, None, {"to_apply": computation or traced.computation, "rule": rule}
        )
        results = list(result) if isinstance(result, tuple) else [result]
        for value, weak in zip(results, traced.weak, strict=True):
            value.weak = weak
        return tree.unflatten(traced.out_tree, results)


def _with_parameters(computation, captures, outside):
    """The computation with a parameter for each value from outside, also those that it does not use."""
    from hloom.ir.build import Builder

    builder = Builder(computation.name)
    first = len(computation.parameters) - len(captures)
    parameters = [builder.parameter(p.shape, p.hint, p.source) for p in computation.parameters[:first]]
    given = {id(t): builder.parameter(t._shape, t.instruction.hint) for t in outside}
    root = builder.inline(computation, [*parameters, *(given[id(t)] for t in captures)])
    return builder.finish(root)


def reordered(computation, count: int, order: list[int], total: int, outside: list):
    """The computation of a rule, whose last parameters are the values from outside that it uses, with a parameter for
    each value from outside after the first `count`."""
    from hloom.ir.build import Builder

    if not total:
        return computation
    builder = Builder(computation.name)
    own = [
        builder.parameter(p.shape, p.hint, p.source)
        for p in computation.parameters[: len(computation.parameters) - len(order)]
    ]
    extra = [builder.parameter(t._shape) for t in outside]
    # The values from outside stand right after the operands of the call.
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
            f"{what} takes arguments that can be given by position",
            f"keyword-only: {', '.join(bound.kwargs)}",
            "make them positional, or bind them with functools.partial",
        )
    return list(bound.args)


def tracers_outside(*functions) -> list[Tracer]:
    """The tracers that functions hold in their closures."""
    found: dict[int, Tracer] = {}
    stack, seen = [f for f in functions if f is not None], set()
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


def _outside(traced: Traced, *functions) -> list[Tracer]:
    """The values from outside that the function uses, then those that its rule's functions hold."""
    found = {id(t): t for t in traced.captures}
    for tracer in tracers_outside(*functions):
        if tracer.trace.active:
            found.setdefault(id(tracer), tracer)
    return list(found.values())


def zero_of(shape: Shape):
    """The tangent zero of a value: False everywhere for integers and booleans (JAX: float0)."""
    return Array(np.zeros(shape.dims, shape.dtype if shape.dtype in INEXACT else np.bool_))


def matching(value, shape: Shape, what: str):
    """A leaf of a rule's result as an array of this shape and dtype. Raises ShapeError, DTypeError."""
    if isinstance(value, SymbolicZero):
        return zero_of(shape)
    number = isinstance(value, (bool, int, float, complex))
    leaf = as_array(value, what)
    if leaf._shape.dims != shape.dims:
        raise ShapeError(f"{what} has the shape {shape.dims}", f"{leaf._shape!r}", "return an array of that shape")
    if leaf.dtype != shape.dtype:
        if number or leaf.weak:
            from hloom.operands import convert

            return convert(leaf, shape.dtype)
        raise DTypeError(
            f"{what} has the dtype {HLO_NAME[shape.dtype]}",
            f"{leaf._shape!r}",
            f"convert it with astype('{HLO_NAME[shape.dtype]}')",
        )
    return leaf


def _same_tree(value, structure, what: str, repair: str) -> list:
    leaves, found = tree.flatten(value, is_leaf=lambda v: isinstance(v, SymbolicZero))
    if found != structure:
        raise TreeError(f"{what} has the structure {structure}", f"{found}", repair)
    return leaves


def _pair(value, what: str):
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        found = f"{type(value).__name__}" + (f" of length {len(value)}" if isinstance(value, (tuple, list)) else "")
        raise TreeError(f"{what} returns a pair", found, "return two values")
    return value


# --- custom_jvp ---------------------------------------------------------------------------------------------------


class custom_jvp:  # noqa: N801  (JAX's name)
    """A function whose forward-mode derivative is given by a rule; reverse mode follows from it by transposition.

    function: of arrays or trees of them. nondiff_argnums: positions of arguments that are not differentiated by; they
    may be anything and come first in the rule.

        @hl.custom_jvp
        def log1pexp(x):
            return hnp.log(1.0 + hnp.exp(x))

        @log1pexp.defjvp
        def rule(primals, tangents):
            (x,), (t,) = primals, tangents
            return log1pexp(x), t * (1 - 1 / (1 + hnp.exp(x)))

    A rule has to be linear in the tangents. A result of another tree, shape or dtype raises TreeError, ShapeError or
    DTypeError when a derivative is taken; calling the function before its rule is there raises DifferentiationError.
    """

    def __init__(self, fun, nondiff_argnums=()):
        if not callable(fun):
            raise ArgumentError("custom_jvp takes a function", f"{type(fun).__name__}", "pass a function")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.jvp = None
        self.symbolic_zeros = False

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def defjvp(self, jvp, symbolic_zeros: bool = False):
        """Gives the rule: jvp(*nondiff arguments, primals, tangents) -> (result, its tangent). Returns it.

        primals, tangents: tuples with an entry for each argument that is differentiated by. symbolic_zeros: tangents
        that are known to be zero come as SymbolicZero and not as arrays of zeros.
        """
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps):
        """Gives the rule argument by argument: jvp_k(tangent, result, *primals) -> its part of the tangent; None where
        it is zero. Not for functions with nondiff_argnums."""
        if self.nondiff_argnums:
            raise ArgumentError(
                f"defjvps of '{self.fun.__name__}', which has nondiff_argnums", f"{self.nondiff_argnums}", "use defjvp"
            )

        def jvp(primals, tangents):
            result = self(*primals)
            parts = [f(t, result, *primals) for f, t in zip(jvps, tangents, strict=True) if f is not None]
            if not parts:
                return result, tree.map(lambda leaf: zero_of(as_array(leaf)._shape), result)
            total = parts[0]
            for part in parts[1:]:
                total = tree.map(lambda a, b: a + b, total, part)
            return result, total

        self.jvp = jvp

    def __call__(self, *args, **kwargs):
        if self.jvp is None:
            raise DifferentiationError(
                f"the custom_jvp function '{getattr(self.fun, '__name__', self.fun)}' was called",
                "it has no rule yet",
                "give it one with defjvp or defjvps",
            )
        if current_trace() is None:
            return self.fun(*args, **kwargs)
        call = Call.of(self.fun, args, kwargs, self.nondiff_argnums, "custom_jvp")
        traced = call.trace()
        call.outside = _outside(traced, self.jvp)
        out_shapes = [o.shape for o in traced.computation.outputs()]
        made: dict[tuple[bool, ...], Any] = {}

        def make(nonzero):
            if nonzero not in made:
                made[nonzero] = self._trace_rule(call, traced.out_tree, out_shapes, nonzero[: len(call.leaves)])
            return made[nonzero]

        return call.emit(traced, CustomJvp(call.name, make, len(call.outside)))

    def _trace_rule(self, call: Call, out_tree, out_shapes, nonzero):
        rule, what = self.jvp, f"the rule of the custom_jvp function '{call.name}'"
        count = len(call.leaves)
        primal_shapes = [leaf._shape for leaf in call.leaves]
        tangent_shapes = [s for s, n in zip(primal_shapes, nonzero, strict=True) if n]

        def run(*flat):
            given = iter(flat[count:])
            tangents = []
            for shape, n in zip(primal_shapes, nonzero, strict=True):
                zero = SymbolicZero(shape) if self.symbolic_zeros else None
                tangents.append(next(given) if n else zero if zero is not None else zero_of(shape))
            primals, _ = tree.unflatten(call.structure, flat[:count])
            tangents, _ = tree.unflatten(call.structure, tangents)
            result, tangent = _pair(rule(*call.nondiff, primals, tangents), what)
            results = _same_tree(result, out_tree, f"the result of {what}", "return what the function returns")
            found = _same_tree(tangent, out_tree, f"the tangent of {what}", "give it the structure of the result")
            results = [
                matching(v, s, f"result {k} of {what}")
                for k, (v, s) in enumerate(zip(results, out_shapes, strict=True))
            ]
            wanted = [
                matching(v, s, f"tangent {k} of {what}")
                for k, (v, s) in enumerate(zip(found, out_shapes, strict=True))
                if s.dtype in INEXACT
            ]
            return [*results, *wanted]

        traced, order = call.trace_rule(run, [*call.given(), *tangent_shapes], f"{call.name}_jvp")
        return reordered(traced.computation, count, order, len(call.outside), call.outside)


# --- custom_vjp ---------------------------------------------------------------------------------------------------


class custom_vjp:  # noqa: N801  (JAX's name)
    """A function whose reverse-mode derivative is given by two functions.

    function: of arrays or trees of them. nondiff_argnums: positions of arguments that are not differentiated by.

        @hl.custom_vjp
        def clipped(x):
            return x

        clipped.defvjp(lambda x: (x, None), lambda residuals, g: (hnp.clip(g, -1.0, 1.0),))

    Forward mode (jvp, jacfwd) raises DifferentiationError. A result of the rule with another tree, shape or dtype
    raises TreeError, ShapeError or DTypeError, which name the argument, when a derivative is taken.
    """

    def __init__(self, fun, nondiff_argnums=()):
        if not callable(fun):
            raise ArgumentError("custom_vjp takes a function", f"{type(fun).__name__}", "pass a function")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.fwd = self.bwd = None

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def defvjp(self, fwd, bwd, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Gives the rule: fwd(*arguments) -> (result, residuals); bwd(*nondiff arguments, residuals, cotangent) -> a
        tuple with the cotangent of each argument that is differentiated by, None where it is zero.

        symbolic_zeros, optimize_remat: accepted; zeros are arrays, and nothing else changes.
        """
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args, **kwargs):
        if self.fwd is None:
            raise DifferentiationError(
                f"the custom_vjp function '{getattr(self.fun, '__name__', self.fun)}' was called",
                "it has no rule yet",
                "give it one with defvjp",
            )
        if current_trace() is None:
            return self.fun(*args, **kwargs)
        call = Call.of(self.fun, args, kwargs, self.nondiff_argnums, "custom_vjp")
        traced = call.trace()
        call.outside = _outside(traced, self.fwd, self.bwd)
        out_shapes = [o.shape for o in traced.computation.outputs()]
        state: dict[str, Any] = {}

        def forward():
            if "forward" not in state:
                state["forward"], state["residuals"] = self._trace_forward(call, traced.out_tree, out_shapes)
            return state["forward"]

        def backward():
            if "backward" not in state:
                forward()
                state["backward"] = self._trace_backward(call, traced.out_tree, out_shapes, *state["residuals"])
            return state["backward"]

        return call.emit(traced, CustomVjp(call.name, forward, backward, len(call.outside)))

    def _trace_forward(self, call: Call, out_tree, out_shapes):
        """(the computation operands -> outputs and residuals, (tree and shapes of the residuals)). The values from
        outside are residuals too."""
        what = f"the forward rule of the custom_vjp function '{call.name}'"
        found: dict[str, Any] = {}

        def run(*flat):
            primals, _ = tree.unflatten(call.structure, flat)
            result, residuals = _pair(self.fwd(*call.with_arguments(primals)), what)
            results = _same_tree(result, out_tree, f"the result of {what}", "return (result, residuals)")
            results = [
                matching(v, s, f"result {k} of {what}")
                for k, (v, s) in enumerate(zip(results, out_shapes, strict=True))
            ]
            leaves, found["tree"] = tree.flatten(residuals)
            leaves = [as_array(leaf, f"a residual of {what}") for leaf in leaves]
            found["shapes"] = [leaf._shape for leaf in leaves]
            found["weak"] = [leaf.weak for leaf in leaves]
            return [*results, *leaves, *call.outside]

        traced, order = call.trace_rule(run, call.given(), f"{call.name}_fwd")
        computation = reordered(traced.computation, len(call.leaves), order, len(call.outside), call.outside)
        values = traced.values or []
        found["values"] = values[len(out_shapes) : len(out_shapes) + len(found["shapes"])]
        return computation, (found["tree"], found["shapes"], found["weak"], found["values"])

    def _trace_backward(self, call: Call, out_tree, out_shapes, residual_tree, residual_shapes, weak, values):
        what = f"the backward rule of the custom_vjp function '{call.name}'"
        count = len(residual_shapes)
        cotangent_shapes = [s for s in out_shapes if s.dtype in INEXACT]
        arguments = call.structure.children()[0].children()

        def run(*flat):
            residuals = list(flat[:count])
            for value, flag in zip(residuals, weak, strict=True):
                value.weak = flag
            given = iter(flat[count:])
            cotangents = [next(given) if s.dtype in INEXACT else zero_of(s) for s in out_shapes]
            result = self.bwd(
                *call.nondiff, tree.unflatten(residual_tree, residuals), tree.unflatten(out_tree, cotangents)
            )
            if isinstance(result, list):
                result = tuple(result)
            if not isinstance(result, tuple) or len(result) != len(call.positions):
                found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
                raise TreeError(
                    f"{what} returns a tuple with a cotangent for each of the {len(call.positions)} arguments that are "
                    "differentiated by",
                    found,
                    "return a tuple, with None for a cotangent that is zero",
                )
            return self._flat(call, result, arguments, what)

        given = list(residual_shapes)
        for k, value in enumerate(values):
            if value is not None:
                given[k] = Array(np.asarray(value))
        traced, order = call.trace_rule(run, [*given, *cotangent_shapes], f"{call.name}_bwd")
        return reordered(traced.computation, count, order, len(call.outside), call.outside)

    def _flat(self, call: Call, result, arguments, what: str) -> list:
        """The cotangents of the leaves with an inexact dtype."""
        found, position = [], 0
        for value, structure in zip(result, arguments, strict=True):
            leaves = call.leaves[position : position + structure.num_leaves]
            hints = call.hints[position : position + structure.num_leaves]
            position += structure.num_leaves
            if value is None:
                given = [None] * len(leaves)
            else:
                name = hints[0] if hints else "argument"
                given = _up_to(value, structure, f"the cotangent of '{name}' from {what}")
            for one, leaf, hint in zip(given, leaves, hints, strict=True):
                if leaf.dtype in INEXACT:
                    if one is None:
                        found.append(zero_of(leaf._shape))
                    else:
                        found.append(matching(one, leaf._shape, f"the cotangent of '{hint}' from {what}"))
        return found


def _up_to(value, structure, what: str) -> list:
    """The leaves of a tree of cotangents; None stands for a leaf or a subtree of zeros."""
    if structure.is_leaf():
        if tree.structure(value).is_leaf() or isinstance(value, SymbolicZero):
            return [value]
        raise TreeError(f"{what} is an array", f"{tree.structure(value)}", "return it with the argument's structure")
    try:
        children = structure.flatten_up_to(value)
    except ValueError:
        raise TreeError(
            f"{what} has the argument's structure {structure}",
            f"{tree.structure(value)}",
            "return a tree like the argument, or None for zeros",
        ) from None
    return list(children)


# --- closures and gradients as functions --------------------------------------------------------------------------


def closure_convert(fun, *example_args):
    """(converted, values): the function with the traced values that it uses from outside as explicit arguments.

    fun: a function of arrays. example_args: arguments of the shapes that it will get. converted(*args, *values) is
    fun(*args); values is a list of arrays. For handing functions to custom_vjp functions: derivatives by what they
    close over then exist.
    """
    leaves, structure = tree.flatten((example_args, {}))
    shapes = [as_array(leaf, "an example argument of closure_convert")._shape for leaf in leaves]
    name = getattr(fun, "__name__", "function")
    traced = trace_function(fun, shapes, structure, name)

    def converted(*args):
        count = len(args) - len(traced.captures)
        flat, found = tree.flatten((tuple(args[:count]), {}))
        if found != structure:
            raise TreeError(
                f"the converted '{name}' takes the arguments that it was converted for",
                f"{found}, expected {structure}",
                "pass them, then the values that closure_convert returned",
            )
        flat = [as_array(leaf, f"an argument of '{name}'") for leaf in flat]
        results = apply_computation(traced.computation, [*flat, *args[count:]])
        return tree.unflatten(traced.out_tree, results)

    return converted, list(traced.captures)


def custom_gradient(fun):
    """A function that returns its value and its gradient function: fun(*args) -> (result, vjp).

    vjp(cotangent) returns the cotangent of the argument, or a tuple of them for several. Works as a decorator.

        @hl.custom_gradient
        def f(x):
            return x ** 2, lambda g: (g * x,)
    """

    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        state: dict[str, Any] = {}

        @functools.wraps(fun)
        def value(*args):
            return fun(*args, **kwargs)[0]

        def fwd(*args):
            result, rule = fun(*args, **kwargs)
            state["rule"], residuals = closure_convert(rule, result)
            return result, residuals

        def bwd(residuals, cotangent):
            found = state["rule"](cotangent, *residuals)
            return tuple(found) if isinstance(found, (tuple, list)) else (found,)

        function = custom_vjp(_AnyPositions(value))
        function.defvjp(fwd, bwd)
        return function(*args)

    return wrapped


class _AnyPositions:
    """A function whose signature is not looked at."""

    def __init__(self, function):
        self.function = function
        self.__name__ = getattr(function, "__name__", "function")
        self.__signature__ = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])

    def __call__(self, *args):
        return self.function(*args)
