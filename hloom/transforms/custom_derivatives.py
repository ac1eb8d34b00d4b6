"""Functions with custom derivative rules: custom_jvp, custom_vjp, custom_gradient, closure_convert.

Inside a trace such a function is a `call` that holds its rule (`hloom.compiler.transforms.custom`). The functions of
the rule are traced when a derivative is taken. Outside of a trace the function just runs.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.compiler.transforms.custom import CustomJvp, CustomVjp, Rule
from hloom.errors import ArgumentError, DifferentiationError, TreeError
from hloom.ir.records import record
from hloom.ir.types import INEXACT
from hloom.tracing.conversion import with_weakness
from hloom.tracing.custom_rules import (
    Call,
    SymbolicZero,
    matching,
    pair_of,
    reordered,
    same_tree,
    values_outside,
    zero_of,
)
from hloom.tracing.exact import note_lack, note_twin
from hloom.tracing.signatures import function_name, wraps
from hloom.tracing.trace import (
    TRACES,
    RefArgument,
    apply_computation,
    as_array,
    current_trace,
    trace_function,
    twins_of_results,
)
from hloom.tree import pytrees as tree

# --- custom_jvp ---------------------------------------------------------------------------------------------------


class _WithRule(ABC):
    """A function with a derivative rule: the common base of custom_jvp and custom_vjp."""

    _functions: tuple[str, ...]  # attributes that hold the rule's functions; None before it is defined
    _define: str  # the methods that define it

    def __init__(self, fun, nondiff_argnums=()):
        if not callable(fun):
            raise ArgumentError(f"{type(self).__name__} takes a function", f"{type(fun).__name__}", "pass a function")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.symbolic_zeros = False
        for name in self._functions:
            setattr(self, name, None)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args, **kwargs):
        kind, functions = type(self).__name__, [getattr(self, name) for name in self._functions]
        if functions[0] is None:
            raise DifferentiationError(
                f"the {kind} function '{function_name(self.fun)}' was called",
                "it has no rule yet",
                f"define one with {self._define}",
            )
        if current_trace() is None:
            return self.fun(*args, **kwargs)
        call = Call.of(self.fun, args, kwargs, self.nondiff_argnums, kind)
        traced = call.trace()
        call.outside = values_outside(traced, *functions, *call.twins.values())
        return call.emit(traced, self.rule(call, traced))

    @abstractmethod
    def rule(self, call: Call, traced) -> Rule:
        """The rule of a traced call."""


class custom_jvp(_WithRule):
    """A function whose forward-mode derivative is given by a rule; reverse mode follows from it by transposition.

    function: of arrays or trees of them. nondiff_argnums: positions of arguments that are not differentiated; they may
    be any Python values and come first in the rule.

        @hl.custom_jvp
        def log1pexp(x):
            return hnp.log(1.0 + hnp.exp(x))

        @log1pexp.defjvp
        def rule(primals, tangents):
            (x,), (t,) = primals, tangents
            return log1pexp(x), t * (1 - 1 / (1 + hnp.exp(x)))

    A rule must be linear in the tangents. A result of another tree, shape or dtype raises TreeError, ShapeError or
    DTypeError when a derivative is taken; calling the function before its rule is defined raises DifferentiationError.

    >>> @hl.custom_jvp
    ... def log1pexp(x):
    ...     return hnp.log(1 + hnp.exp(x))
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), t * (1 - 1 / (1 + hnp.exp(x)))
    >>> hl.vmap(hl.grad(log1pexp))(hnp.array([0.0, 100.0]))
    Array([0.5, 1. ], dtype=float32)
    """

    _functions, _define = ("jvp",), "defjvp or defjvps"

    def defjvp(self, jvp, symbolic_zeros: bool = False):
        """Defines the rule: jvp(*nondiff arguments, primals, tangents) -> (result, its tangent). Returns it.

        primals, tangents: tuples with an entry for each differentiated argument. symbolic_zeros: passes tangents that
        are known to be zero as SymbolicZero instead of arrays of zeros.
        """
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps):
        """Defines the rule per argument: jvp_k(tangent, result, *primals) -> its part of the tangent; None where
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

    def rule(self, call: Call, traced) -> CustomJvp:
        """The rule of a traced call."""
        out_shapes = [o.shape for o in traced.computation.outputs()]
        made: dict[tuple[bool, ...], Any] = {}

        def make(nonzero):
            if nonzero not in made:
                made[nonzero] = self._trace_rule(call, traced.out_tree, out_shapes, nonzero[: len(call.leaves)])
            return made[nonzero]

        return CustomJvp(call.name, make, len(call.outside))

    def _trace_rule(self, call: Call, out_tree, out_shapes, nonzero):
        rule, what = self.jvp, f"the rule of the custom_jvp function '{call.name}'"
        count = len(call.leaves)
        primal_shapes = [leaf._shape for leaf in call.leaves]
        tangent_shapes = [s for s, n in zip(primal_shapes, nonzero, strict=True) if n]

        def run(*flat):
            leaves, given = call.primals(flat[:count]), iter(flat[count:])
            tangents = []
            for shape, n in zip(primal_shapes, nonzero, strict=True):
                zero = SymbolicZero(shape) if self.symbolic_zeros else None
                tangents.append(next(given) if n else zero if zero is not None else zero_of(shape))
            primals, _ = tree.unflatten(call.structure, leaves)
            tangents, _ = tree.unflatten(call.structure, call.with_weak(tangents))
            result, tangent = pair_of(rule(*call.nondiff, primals, tangents), what)
            results = same_tree(result, out_tree, f"the result of {what}", "return what the function returns")
            found = same_tree(tangent, out_tree, f"the tangent of {what}", "return it with the structure of the result")
            results = _matching(enumerate(zip(results, out_shapes, strict=True)), "result", what)
            pairs = enumerate(zip(found, out_shapes, strict=True))
            wanted = _matching(((k, pair) for k, pair in pairs if pair[1].dtype in INEXACT), "tangent", what)
            return [*results, *wanted]

        traced, order = call.trace_rule(run, [*call.given(), *tangent_shapes], f"{call.name}_jvp")
        return reordered(traced.computation, count, order, call.outside)


# --- custom_vjp ---------------------------------------------------------------------------------------------------


@record(frozen=True)
class CustomVJPPrimal:
    """An argument of the forward rule of a custom_vjp with symbolic_zeros=True: the array, and whether it may be
    differentiated."""

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(primals):
    """A tree in which each `CustomVJPPrimal` is replaced by its value."""
    return tree.map(lambda leaf: leaf.value if isinstance(leaf, CustomVJPPrimal) else leaf, primals)


def zero_from_primal(val, symbolic_zeros: bool = False):
    """The zero tangents of a tree of arrays: arrays of zeros, or with symbolic_zeros `SymbolicZero`s, without data."""

    def zero(leaf):
        shape = as_array(leaf)._shape
        return SymbolicZero(shape) if symbolic_zeros else zero_of(shape)

    return tree.map(zero, val)


class custom_vjp(_WithRule):
    """A function whose reverse-mode derivative is given by two functions.

    function: of arrays or trees of them. nondiff_argnums: positions of arguments that are not differentiated.

        @hl.custom_vjp
        def clipped(x):
            return x

        clipped.defvjp(lambda x: (x, None), lambda residuals, g: (hnp.clip(g, -1.0, 1.0),))

    Forward mode (jvp, jacfwd) raises DifferentiationError. A result of the rule with another tree, shape or dtype
    raises TreeError, ShapeError or DTypeError, which name the argument, when a derivative is taken.

    >>> @hl.custom_vjp
    ... def clip_gradient(x, low, high):
    ...     return x
    >>> forward = lambda x, low, high: (x, (low, high))
    >>> backward = lambda bounds, g: (hnp.clip(g, *bounds), None, None)
    >>> clip_gradient.defvjp(forward, backward)
    >>> hl.grad(lambda x: 100 * clip_gradient(x, -1.0, 1.0))(2.0)
    Array(1., dtype=float32, weak_type=True)
    """

    _functions, _define = ("fwd", "bwd"), "defvjp"

    def defvjp(self, fwd, bwd, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Defines the rule: fwd(*arguments) -> (result, residuals); bwd(*nondiff arguments, residuals, cotangent) -> a
        tuple with the cotangent of each differentiated argument, None where it is zero.

        symbolic_zeros: passes fwd a `CustomVJPPrimal` for each leaf of the differentiated arguments, with the array as
        its `value`, and bwd a `SymbolicZero` in place of each cotangent that is known to be zero. optimize_remat:
        accepted, no effect.
        """
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def rule(self, call: Call, traced) -> CustomVjp:
        """The rule of a traced call."""
        made = self._rule(call, traced, None)
        if self.symbolic_zeros:
            made.specialize = lambda flags: self._rule(call, traced, flags)
        return made

    def _rule(self, call: Call, traced, perturbed) -> CustomVjp:
        """The rule; perturbed: which leaves are differentiated, where the forward rule needs to know."""
        out_shapes = [o.shape for o in traced.computation.outputs()]
        state: dict[Any, Any] = {}

        def forward():
            if "forward" not in state:
                found = self._trace_forward(call, traced.out_tree, out_shapes, perturbed)
                state["forward"], state["residuals"] = found
            return state["forward"]

        def backward(zeros=None):
            """zeros: which of the cotangents that have a tangent's dtype are zero, for a rule that asks."""
            if zeros not in state:
                forward()
                state[zeros] = self._trace_backward(call, traced.out_tree, out_shapes, zeros, state["residuals"])
            return state[zeros]

        made = CustomVjp(call.name, forward, backward, len(call.outside))
        made.asks_zeros = self.symbolic_zeros
        return made

    def _trace_forward(self, call: Call, out_tree, out_shapes, perturbed):
        """(the computation operands -> outputs and residuals, (tree and shapes of the residuals)). The values from
        outside are residuals too."""
        what = f"the forward rule of the custom_vjp function '{call.name}'"
        found: dict[str, Any] = {}

        def run(*flat):
            given = call.primals(flat)
            if self.symbolic_zeros:
                flags = perturbed or [True] * len(given)
                given = [CustomVJPPrimal(v, flags[k] and v.dtype in INEXACT) for k, v in enumerate(given)]
            primals, _ = tree.unflatten(call.structure, given)
            result, residuals = pair_of(self.fwd(*call.with_arguments(primals)), what)
            results = same_tree(result, out_tree, f"the result of {what}", "return (result, residuals)")
            results = _matching(enumerate(zip(results, out_shapes, strict=True)), "result", what)
            leaves, found["tree"] = tree.flatten(residuals)
            # Python numbers, and objects other than arrays, stay as they are: the backward rule may branch on them.
            found["numbers"] = {k: leaf for k, leaf in enumerate(leaves) if _is_python(leaf)}
            leaves = [leaf for k, leaf in enumerate(leaves) if k not in found["numbers"]]
            leaves = [as_array(leaf, f"a residual of {what}") for leaf in leaves]
            found["shapes"] = [leaf._shape for leaf in leaves]
            found["weak"] = [leaf.weak for leaf in leaves]
            exact, found["twins"] = twins_of_results["find"](leaves) if TRACES.twins else ([], ())
            leaves += exact
            found["shapes"] += [leaf._shape for leaf in exact]
            return [*results, *leaves, *call.outside]

        traced, order = call.trace_rule(run, call.given(), f"{call.name}_fwd")
        computation = reordered(traced.computation, len(call.leaves), order, call.outside)
        values = traced.values or []
        found["values"] = values[len(out_shapes) : len(out_shapes) + len(found["shapes"])]
        kept = [found[key] for key in ("tree", "shapes", "weak", "twins", "values", "numbers")]
        return computation, kept

    def _trace_backward(self, call: Call, out_tree, out_shapes, zeros, residuals):
        residual_tree, residual_shapes, weak, twins, values, numbers = residuals
        what = f"the backward rule of the custom_vjp function '{call.name}'"
        count = len(residual_shapes)
        cotangent_shapes = [s for s in out_shapes if s.dtype in INEXACT]
        arguments = call.structure.children()[0].children()

        def run(*flat):
            kept = [*map(with_weakness, flat[: len(weak)], weak)]
            for k, exact in zip(twins, flat[len(weak) : count], strict=True):
                note_twin(kept[k], exact)
            note_lack([leaf for k, leaf in enumerate(kept) if k not in twins])
            for k in sorted(numbers):
                kept.insert(k, numbers[k])
            given = iter(flat[count:])
            cotangents = [next(given) if s.dtype in INEXACT else self._zero(s) for s in out_shapes]
            if zeros is not None:
                flags = iter(zeros)
                cotangents = [
                    SymbolicZero(s) if s.dtype in INEXACT and next(flags) else c
                    for c, s in zip(cotangents, out_shapes, strict=True)
                ]
            result = self.bwd(*call.nondiff, tree.unflatten(residual_tree, kept), tree.unflatten(out_tree, cotangents))
            if isinstance(result, list):
                result = tuple(result)
            if not isinstance(result, tuple) or len(result) != len(call.positions):
                found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
                raise TreeError(
                    f"{what} returns a tuple with a cotangent for each of the {len(call.positions)} differentiated "
                    "arguments",
                    found,
                    "return a tuple, with None for a cotangent that is zero",
                )
            return self._flat(call, result, arguments, what)

        given = list(residual_shapes)
        for k, value in enumerate(values):
            if value is not None:
                given[k] = Array(np.asarray(value))
        traced, order = call.trace_rule(run, [*given, *cotangent_shapes], f"{call.name}_bwd")
        return reordered(traced.computation, count, order, call.outside)

    def _zero(self, shape):
        return SymbolicZero(shape) if self.symbolic_zeros else zero_of(shape)

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
                    if one is None or isinstance(one, SymbolicZero):
                        found.append(zero_of(leaf._shape))
                    else:
                        what_for = f"the cotangent of '{hint}' from {what}"
                        found.append(matching(one, leaf._shape, what_for, leaf.weak))
        return found


def _is_python(leaf) -> bool:
    if type(leaf) in (bool, int, float, complex):
        return True
    if isinstance(leaf, (ArrayMethods, np.ndarray, np.generic)):
        return False
    try:
        as_array(leaf)
    except RefArgument:
        raise
    except ArgumentError:
        return True
    return False


def _matching(pairs, role: str, what: str) -> list:
    """The leaves of a rule's result as arrays. pairs: (position, (leaf, expected shape))."""
    return [matching(leaf, shape, f"{role} {k} of {what}") for k, (leaf, shape) in pairs]


def _up_to(value, structure, what: str) -> list:
    """The leaves of a tree of cotangents; None represents a leaf or a subtree of zeros."""
    if structure.is_leaf():
        if tree.structure(value).is_leaf() or isinstance(value, SymbolicZero):
            return [value]
        raise TreeError(
            f"{what} is an array", tree.written(tree.structure(value)), "return it with the argument's structure"
        )
    try:
        children = structure.flatten_up_to(value)
    except ValueError:
        raise TreeError(
            f"{what} has the argument's structure {tree.written(structure)}",
            tree.written(tree.structure(value)),
            "return a tree like the argument, or None for zeros",
        ) from None
    return list(children)


# --- closures and gradients as functions --------------------------------------------------------------------------


def closure_convert(fun, *example_args):
    """(converted, values): the function with the traced values that it uses from outside as explicit arguments.

    fun: a function of arrays. example_args: arguments of the shapes of later calls. converted(*args, *values) is
    fun(*args); values is a list of arrays. For passing functions to custom_vjp functions: derivatives with respect to
    what they close over then exist.

    >>> scale = hnp.array(3.0)
    >>> converted, values = hl.closure_convert(lambda x: x * scale, hnp.zeros(2))
    >>> converted(hnp.array([1.0, 2.0]), *values)
    Array([3., 6.], dtype=float32)
    """
    leaves, structure = tree.flatten((example_args, {}))
    arrays = [as_array(leaf, "an example argument of closure_convert") for leaf in leaves]
    name = function_name(fun)

    def run(*args, **kwargs):
        given, found = tree.flatten((args, kwargs))
        weak = [with_weakness(g, array.weak) for g, array in zip(given, arrays, strict=True)]
        args, kwargs = tree.unflatten(found, weak)
        return fun(*args, **kwargs)

    traced = trace_function(run, [array._shape for array in arrays], structure, name)

    def converted(*args):
        count = len(args) - len(traced.captures)
        flat, found = tree.flatten((tuple(args[:count]), {}))
        if found != structure:
            raise TreeError(
                f"the converted '{name}' takes the arguments that it was converted for",
                f"{tree.written(found)}, expected {tree.written(structure)}",
                "pass them, then the values that closure_convert returned",
            )
        flat = [as_array(leaf, f"an argument of '{name}'") for leaf in flat]
        results = apply_computation(traced.computation, [*flat, *args[count:]])
        return traced.unflatten(results)

    return converted, list(traced.captures)


def custom_gradient(fun):
    """A function that returns its value and its gradient function: fun(*args) -> (result, vjp).

    vjp(cotangent) returns the cotangent of the argument, or a tuple of them for several. Works as a decorator.

        @hl.custom_gradient
        def f(x):
            return x ** 2, lambda g: (g * x,)

    >>> @hl.custom_gradient
    ... def twice(x):
    ...     return 2 * x, lambda g: -g
    >>> hl.grad(twice)(3.0)
    Array(-1., dtype=float32, weak_type=True)
    """

    @wraps(fun)
    def wrapped(*args, **kwargs):
        state: dict[Any, Any] = {}

        @wraps(fun)
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
    """A function that hides its signature."""

    def __init__(self, function):
        self.function = function
        self.__name__ = function_name(function)
        self.__signature__ = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])

    def __call__(self, *args):
        return self.function(*args)
