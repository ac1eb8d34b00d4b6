"""Derivatives of Python functions: grad, value_and_grad, vjp, jvp, linearize.

A function is traced to a computation, the computation is differentiated (`hloom.compiler.transforms`), and the result
is applied: computed eagerly outside of a trace, inlined in the enclosing trace otherwise. So they nest in any order,
with each other and with `jit`. Outside of `jit` the trace carries values along, and Python control flow on them works.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.compiler.transforms import jvp as forward_mode
from hloom.compiler.transforms import vjp as reverse_mode
from hloom.compiler.transforms.inline import inline_calls
from hloom.dispatch.sharded import as_primal
from hloom.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError, TreeError
from hloom.ir.records import record
from hloom.ir.types import COMPLEX, FLOATS, HLO_NAME, INEXACT, PRED, Shape
from hloom.tracing.active import brings_twins, restarts
from hloom.tracing.conversion import argument_array, convert, with_weakness
from hloom.tracing.custom_rules import zero_of
from hloom.tracing.exact import exact_arguments, narrowed, wide_value
from hloom.tracing.refs import OuterRef, Ref, gradient_keeps_refs
from hloom.tracing.signatures import argument_hints, function_name, with_positions, wraps
from hloom.tracing.trace import (
    RefArgument,
    Traced,
    Tracer,
    apply_computation,
    as_array,
    bind,
    current_trace,
    trace_function,
    typed_sharding,
)
from hloom.transforms.cotangents import DidntWant, DontWant, GradValue
from hloom.tree import pytrees as tree
from hloom.tree import register


def grad(function, argnums=0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False):
    """The function that computes the gradient of `function`, which returns a scalar.

    argnums: the position of the argument to differentiate with respect to, or a tuple; each may be a tree of arrays.
    has_aux: `function` returns (scalar, anything); the gradient function returns (gradient, anything).
    holomorphic: the function is complex and differentiable as such; otherwise its result has to be a real float. For a
        real function of complex z = x + iy the gradient is df/dx - i df/dy, as in JAX.
    allow_int: allows integer arguments; their gradients are False everywhere (JAX: float0).

    The gradient has the argument's tree, shapes and dtypes. Keyword arguments are passed on, and are constants.
    Works as a decorator. Raises DifferentiationError for results that are not a float scalar, for integer arguments and
    for ops without a derivative; ArgumentError for argnums without an argument in the call.

        hl.grad(lambda x: x ** 2)(3.0)    # 6.0

    >>> loss = lambda w, x: hnp.sum((w * x) ** 2)
    >>> hl.grad(loss)(hnp.array([1.0, 2.0]), 3.0)
    Array([18., 36.], dtype=float32)
    >>> hl.grad(loss, argnums=(0, 1))(hnp.array([1.0, 2.0]), 3.0)
    (Array([18., 36.], dtype=float32), Array(30., dtype=float32, weak_type=True))
    """
    both = value_and_grad(function, argnums, has_aux, holomorphic, allow_int, _asked="grad")

    @wraps(function)
    def gradient(*args, **kwargs):
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def value_and_grad(
    function,
    argnums=0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    _asked: str = "value_and_grad",
    _takes_refs: bool = True,
):
    """As `grad`, but the function returns (value, gradient); with `has_aux` ((value, aux), gradient).

    >>> value, gradient = hl.value_and_grad(lambda x: hnp.sum(x**3))(hnp.array([1.0, 2.0]))
    >>> value, gradient
    (Array(9., dtype=float32), Array([ 3., 12.], dtype=float32))
    """
    if not callable(function):
        raise ArgumentError(f"{_asked} of a function", f"{type(function).__name__}", "pass a function")
    argnums = checked_argnums(argnums, _asked)

    @wraps(function)
    def with_gradient(*args, **kwargs):
        try:
            return on_arrays(*args, **kwargs)
        except OuterRef as found:
            if _takes_refs:
                again = functools.partial(
                    value_and_grad, argnums=argnums, holomorphic=holomorphic, allow_int=allow_int, _asked=_asked,
                    _takes_refs=False,
                )  # fmt: skip
                return gradient_keeps_refs(found, function, has_aux, again, args, kwargs)
            raise

    @restarts
    def on_arrays(*args, **kwargs):
        what = f"{_asked} of '{function_name(function)}'"
        call = _Call.of(_with_aux(function) if has_aux else function, argnums, args, kwargs, what)
        for leaf, hint in zip(call.leaves, call.hints, strict=True):
            _check_argument(leaf, hint, what, holomorphic, allow_int)
        traced = call.trace(function_name(function))
        out_tree = traced.out_tree
        if has_aux:
            out_tree = _aux_trees(out_tree, what)[0]
        _check_result(traced, out_tree, what, has_aux, holomorphic)
        # The cotangent is 1; the auxiliary outputs have none.
        computation = inline_calls(traced.computation, traced.known)
        result = traced.exact_output(0)
        one = Array(np.ones((), computation.outputs()[result].dtype))
        computation = reverse_mode.gradient(computation, call.wrt(traced), by=(result,))
        beside = tree.leaves((args, kwargs))
        flat = apply_computation(computation, [*call.operands(traced), one], traced.known, beside)
        count = len(traced.weak) + len(traced.twins)
        return traced.unflatten(flat[:count]), call.by_argument(call.cotangents(flat[count:], traced))

    return with_gradient


@restarts
def vjp(function, *primals, has_aux: bool = False):
    """(function(*primals), vjp_function): reverse mode for any number of outputs.

    vjp_function(cotangent) accepts a tree like the result and returns the tuple of the primals' cotangents. Nothing is
    computed twice: the values that the backward pass needs are kept. It can be called more than once.
    has_aux: `function` returns (result, aux), and (result, vjp_function, aux) is returned.
    Integer results and primals have cotangents that are False everywhere (JAX: float0).
    Raises TreeError, ShapeError or DTypeError for a cotangent that does not match the result.

    >>> value, pullback = hl.vjp(lambda x, y: x * y, hnp.array([3.0]), hnp.array([5.0]))
    >>> pullback(hnp.array([1.0]))
    (Array([5.], dtype=float32), Array([3.], dtype=float32))
    """
    what = f"vjp of '{function_name(function)}'"
    call = _Call.of(_with_aux(function) if has_aux else function, tuple(range(len(primals))), primals, {}, what)
    traced = call.trace(function_name(function))
    computation = inline_calls(traced.computation, traced.known)
    out_tree, aux_tree = _aux_trees(traced.out_tree, what) if has_aux else (traced.out_tree, None)
    count = out_tree.num_leaves
    by = [traced.exact_output(k) for k in range(count)]
    forward, backward = reverse_mode.vjp(computation, call.wrt(traced), by)
    flat = apply_computation(forward, call.operands(traced), traced.known)
    total = len(traced.weak) + len(traced.twins)
    outputs, residuals = traced.weakly_typed(flat[:total]), flat[total:]
    shapes = [o._shape for o in outputs[:count]]

    def pull(residuals, cotangent):
        given = _matched(cotangent, out_tree, shapes, f"the cotangent of {what}")
        given = [wide_value(g) if k in traced.twins else g for k, g in enumerate(given)]
        given = [g for g, s in zip(given, shapes, strict=True) if s.dtype in INEXACT]
        gradients = apply_computation(backward, [*residuals, *given])
        chosen, _ = tree.unflatten(structure, call.cotangents(gradients, traced))
        return chosen

    structure = call.structure
    vjp_function = LinearFunction(pull, residuals)
    result = tree.unflatten(out_tree, outputs[:count])
    if has_aux:
        return result, vjp_function, tree.unflatten(aux_tree, outputs[count:])
    return result, vjp_function


@restarts
def jvp(function, primals, tangents, has_aux: bool = False):
    """(function(*primals), its derivative in the direction `tangents`): forward mode.

    primals, tangents: tuples (or lists) of arguments of one structure, shapes and dtypes; the tangent of an integer is
    an array of False. has_aux: `function` returns (result, aux), and (result, tangent, aux) is returned.
    Raises TreeError, ShapeError or DTypeError for tangents that do not match the primals.

    >>> value, tangent = hl.jvp(lambda x: x**2, (hnp.array([3.0]),), (hnp.array([1.0]),))
    >>> value, tangent
    (Array([9.], dtype=float32), Array([6.], dtype=float32))
    """
    what = f"jvp of '{function_name(function)}'"
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, (tuple, list)):
            raise ArgumentError(
                f"{what} requires tuples of primals and tangents",
                f"{name}: {type(value).__name__}",
                f"write jvp({function_name(function)}, (x,), (t,)) for one argument",
            )
    primals, tangents = tuple(primals), tuple(tangents)
    call = _Call.of(_with_aux(function) if has_aux else function, tuple(range(len(primals))), primals, {}, what)
    given = _matched(tangents, tree.structure(primals), [p._shape for p in call.leaves], f"the tangents of {what}")
    traced = call.trace(function_name(function))
    out_tree, aux_tree = _aux_trees(traced.out_tree, what) if has_aux else (traced.out_tree, None)
    computation = inline_calls(traced.computation, traced.known)
    total, count = len(traced.weak) + len(traced.twins), out_tree.num_leaves
    chosen = set(call.wrt(traced))
    nonzero = [k in chosen for k in range(len(computation.parameters))]
    computation = forward_mode.jvp(computation, nonzero, of=[traced.exact_output(k) for k in range(count)])
    operands = [*call.operands(traced), *call.tangents(given, traced)]
    flat = apply_computation(computation, operands, traced.known)
    outputs = traced.weakly_typed(flat[:total])
    out_tangents = _tangents_of(outputs[:count], iter(flat[total:]), traced)
    result, tangent = tree.unflatten(out_tree, outputs[:count]), tree.unflatten(out_tree, out_tangents)
    return (result, tangent, tree.unflatten(aux_tree, outputs[count:])) if has_aux else (result, tangent)


@restarts
def linearize(function, *primals, has_aux: bool = False):
    """(function(*primals), jvp_function): forward mode at one point, for many tangents.

    jvp_function(*tangents) returns the derivative in their direction without computing the function again.
    has_aux: `function` returns (result, aux), and (result, jvp_function, aux) is returned. Raises as `jvp` does.

    >>> value, push = hl.linearize(lambda x: x**3, hnp.array([2.0]))
    >>> push(hnp.array([1.0])), push(hnp.array([10.0]))
    (Array([12.], dtype=float32), Array([120.], dtype=float32))
    """
    what = f"linearize of '{function_name(function)}'"
    if has_aux:
        pair, both = linearize(_with_aux(function), *primals)
        _aux_trees(tree.structure(pair), what)
        return pair[0], LinearFunction(lambda kept, *tangents: both.apply(kept, *tangents)[0], both.residuals), pair[1]
    call = _Call.of(function, tuple(range(len(primals))), primals, {}, what)
    traced = call.trace(function_name(function))
    computation = inline_calls(traced.computation, traced.known)
    forward, linear = reverse_mode.linearize(computation, call.wrt(traced))
    flat = apply_computation(forward, call.operands(traced), traced.known)
    count = len(traced.weak) + len(traced.twins)
    outputs, residuals = traced.weakly_typed(flat[:count]), flat[count:]
    in_tree, out_tree = tree.structure(primals), traced.out_tree
    shapes = [p._shape for p in call.leaves]
    out_shapes = [o._shape for o in outputs]

    def push(residuals, *tangents):
        given = _matched(tangents, in_tree, shapes, f"the tangents of {what}")
        found = iter(apply_computation(linear, [*residuals, *call.tangents(given, traced)]))
        own = [next(found) if s.dtype in INEXACT else None for s in out_shapes]
        exact = dict(zip(traced.twins, found, strict=True))
        best = iter([exact.get(k, t) for k, t in enumerate(own) if t is not None])
        return tree.unflatten(out_tree, _tangents_of(out_shapes, best, traced))

    return tree.unflatten(out_tree, outputs), LinearFunction(push, residuals)


class LinearFunction:
    """A linear function with the values it needs (`residuals`): the result of `vjp` and `linearize`.

    It is a pytree with the residuals as leaves, so jitted functions can return and accept it.
    """

    __slots__ = ("apply", "residuals")

    def __init__(self, apply, residuals):
        self.apply, self.residuals = apply, list(residuals)

    def __call__(self, *arguments):
        return self.apply(self.residuals, *arguments)

    def with_refs(self, *wanted):
        """The function that adds the cotangents of the arguments of `vjp` to Refs.

        wanted: for each argument a Ref (or a tree of them like the argument), None or `hl.ad.GradValue()` for the
        cotangent as a value, or `hl.ad.DontWant()` for none. The function returns a tuple of these values, None for
        Refs and `DidntWant()`. Raises ArgumentError where the numbers differ.
        """

        def pull(*cotangents):
            found = self(*cotangents)
            if not isinstance(found, tuple) or len(found) != len(wanted):
                raise ArgumentError(
                    "with_refs requires a Ref, None, GradValue or DontWant for each argument of vjp",
                    f"{len(wanted)} for {len(found) if isinstance(found, tuple) else 1}",
                    "name all of them",
                )
            return tuple(_into(ref, value) for ref, value in zip(wanted, found, strict=True))

        return pull


def _into(wanted, cotangent):
    """Adds a cotangent to a Ref or a tree of Refs; returns it where it is wanted as a value."""
    if isinstance(wanted, DontWant):
        return DidntWant()
    if wanted is None or isinstance(wanted, GradValue):
        return cotangent
    refs, structure = tree.flatten(wanted, is_leaf=lambda leaf: isinstance(leaf, Ref))
    for ref, value in zip(refs, structure.flatten_up_to(cotangent), strict=True):
        ref.addupdate(value)
    return None


tree.register(LinearFunction, lambda f: (tuple(f.residuals), f.apply), LinearFunction)


# --- the differentiated call ------------------------------------------------------------------------------


@record
class _Call:
    """A call with the differentiated arguments separated.

    Only they are traced: the others reach the function unchanged, so they may be any Python values.
    """

    function: Any
    argnums: int | tuple[int, ...]
    args: tuple
    kwargs: dict
    leaves: list
    structure: Any
    hints: list[str]

    @classmethod
    def of(cls, function, argnums, args, kwargs, what: str) -> _Call:
        found = argument_positions(argnums, len(args), what)
        chosen = tuple(args[k] for k in found)
        leaves, structure = tree.flatten((chosen, {}))
        hints = argument_hints(function, chosen, {}, found)
        flat = [argument_array(leaf, hint, what) for leaf, hint in zip(leaves, hints, strict=True)]
        argnums = tuple(found) if isinstance(argnums, tuple) else found[0]
        return cls(function, argnums, args, kwargs, flat, structure, hints)

    def trace(self, name: str) -> Traced:
        positions = self.argnums if isinstance(self.argnums, tuple) else (self.argnums,)

        def run(*chosen):
            return self.function(*with_positions(self.args, positions, chosen), **self.kwargs)

        outer = current_trace()
        carries = outer is None or outer.carries_values
        return trace_function(
            run, self.leaves, self.structure, name, carries, self.hints, weak=True, twins=brings_twins()
        )

    def inexact(self) -> list[int]:
        """The leaves that have tangents."""
        return [k for k, leaf in enumerate(self.leaves) if leaf.dtype in INEXACT]

    def wrt(self, traced: Traced) -> list[int]:
        """The parameters of the traced function that have tangents: those of leaves, then the twins of leaves."""
        count = len(self.leaves)
        return [*self.inexact(), *range(count, count + len(traced.wide))]

    def operands(self, traced: Traced) -> list:
        """The values that the traced function's parameters represent."""
        return [*self.leaves, *exact_arguments(self.leaves, traced.wide), *traced.captures]

    def tangents(self, given: list, traced: Traced) -> list:
        """The tangents of the parameters `wrt`, of tangents of the leaves."""
        return [*(given[k] for k in self.inexact()), *exact_arguments(given, traced.wide)]

    def cotangents(self, found: list, traced: Traced) -> list:
        """The cotangents of the leaves, of those of the parameters `wrt`: that of a leaf and that of its twin are
        added. Leaves without one have False everywhere."""
        numbers = self.inexact()
        cotangents = dict(zip(numbers, found, strict=False))
        for k, exact in zip(traced.wide, found[len(numbers) :], strict=True):
            own = bind("convert", cotangents[k], shape=exact._shape)
            cotangents[k] = narrowed(bind("add", own, exact), self.leaves[k]._shape)
        for k, cotangent in cotangents.items():
            cotangents[k] = with_weakness(as_primal(cotangent, typed_sharding(self.leaves[k])), self.leaves[k].weak)
        return [cotangents[k] if k in cotangents else zero_of(leaf._shape) for k, leaf in enumerate(self.leaves)]

    def by_argument(self, leaves):
        """The leaves in the trees of the arguments: a tuple for a tuple of argnums."""
        chosen, _ = tree.unflatten(self.structure, leaves)
        return chosen if isinstance(self.argnums, tuple) else chosen[0]


def _tangents_of(outputs, found, traced: Traced) -> list:
    """The tangents of outputs (arrays, or their shapes): False everywhere for integers, weak where the outputs are.
    found: an iterator over the others, in double width where the output has a twin."""
    tangents = []
    for k, output in enumerate(outputs):
        shape = output if isinstance(output, Shape) else output._shape
        if shape.dtype not in INEXACT:
            tangents.append(zero_of(shape))
        elif k in traced.twins:
            tangents.append(narrowed(next(found), shape))
        else:
            tangents.append(with_weakness(next(found), traced.weak[k]))
    return tangents


# --- checks -------------------------------------------------------------------------------------------------------


def checked_argnums(argnums, what: str):
    """argnums as an integer or a tuple of integers. Raises ArgumentError."""
    single = isinstance(argnums, (int, np.integer)) and not isinstance(argnums, bool)
    if single:
        return int(argnums)
    if isinstance(argnums, (tuple, list)) and all(isinstance(k, (int, np.integer)) for k in argnums):
        return tuple(int(k) for k in argnums)
    raise ArgumentError(f"{what} requires argnums", f"{argnums!r}", "pass an integer or a tuple of integers")


def argument_positions(argnums, count: int, what: str) -> list[int]:
    """The positions that argnums names among `count` arguments, from 0 on. Raises ArgumentError."""
    positions = argnums if isinstance(argnums, tuple) else (argnums,)
    for position in positions:
        if not -count <= position < count:
            raise ArgumentError(
                f"{what} with respect to argument {position}",
                f"{count} positional argument{'s' * (count != 1)}",
                "pass the argument by position, or change argnums",
            )
    found = [position % count for position in positions]
    if len(set(found)) != len(found):
        raise ArgumentError(f"{what} with respect to argnums={argnums}", "an argument twice", "name each once")
    return found


def _check_argument(leaf, hint: str, what: str, holomorphic: bool, allow_int: bool) -> None:
    dtype = leaf.dtype
    if holomorphic and dtype not in COMPLEX:
        raise DifferentiationError(
            f"{what} with holomorphic=True with respect to '{hint}'",
            f"{leaf._shape!r}",
            f"pass a complex array, for example {hint}.astype('c64')",
        )
    if dtype not in INEXACT and not allow_int:
        raise DifferentiationError(
            f"{what} with respect to argument '{hint}'",
            f"{leaf._shape!r}: integers and booleans have no derivatives",
            "pass a float array (1.0 instead of 1), choose another argument with argnums, or set allow_int=True",
        )


def _check_result(traced: Traced, out_tree, what: str, has_aux: bool, holomorphic: bool) -> None:
    first = traced.computation.outputs()
    described = ", ".join(repr(o.shape) for o in first) or "nothing"
    if out_tree.num_leaves != 1 or not out_tree.is_leaf():
        hint = "" if has_aux else " (has_aux=True if it returns (scalar, anything))"
        raise DifferentiationError(
            f"{what}: the function returns one scalar",
            f"a result of structure {tree.written(out_tree)}: {described}",
            f"return the scalar to differentiate{hint}",
        )
    shape: Shape = first[0].shape
    if shape.dims != ():
        raise DifferentiationError(
            f"{what}: the function returns one scalar",
            f"an array {shape!r}",
            "reduce it first, for example with .sum() or .mean(); for arrays use hl.vjp",
        )
    wanted = COMPLEX if holomorphic else FLOATS
    if shape.dtype not in wanted:
        name = HLO_NAME[shape.dtype]
        repair = "return a float, for example with .astype('f32')"
        if shape.dtype in COMPLEX:
            repair = "return a real number, such as the absolute value, or set holomorphic=True for analytic functions"
        elif holomorphic:
            repair = "return a complex number, or leave out holomorphic=True"
        raise DifferentiationError(f"{what}: the function returns a float scalar", f"a scalar of {name}", repair)


class _Opaque:
    """A leaf of aux that is not an array, as a tree without leaves: unflattened it is the value itself."""

    def __init__(self, value):
        self.value = value


register(_Opaque, lambda opaque: ((), _Opaque(opaque.value)), lambda opaque, _: opaque.value)


def _with_aux(function):
    """A function that returns (result, aux), where leaves of aux may be any objects."""

    def leaf(value):
        try:
            return as_array(value)
        except RefArgument:
            raise
        except ArgumentError:
            return _Opaque(value)

    @wraps(function)
    def call(*args, **kwargs):
        pair = function(*args, **kwargs)
        if type(pair) is not tuple or len(pair) != 2:
            return pair
        return pair[0], tree.map(leaf, pair[1])

    return call


def _aux_trees(out_tree, what: str):
    """(structure of the result, structure of aux) of a function that returns the pair."""
    children = out_tree.children() if out_tree.type is tuple else ()
    if len(children) != 2:
        raise TreeError(
            f"{what} with has_aux=True requires a function that returns (result, aux)",
            f"a result of structure {tree.written(out_tree)}",
            "return a pair",
        )
    return children


def _matched(value, structure, shapes, what: str) -> list[Array | Tracer]:
    """The leaves of a tree of tangents or cotangents, checked against the expected structure and shapes."""
    leaves, found = tree.flatten(value)
    if found != structure:
        raise TreeError(
            f"{what} {'have' if what.startswith('the tangents') else 'has'} the structure of the corresponding values",
            f"{tree.written(found)}, expected {tree.written(structure)}",
            "build it with hl.tree.map over those values",
        )
    results = []
    for k, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True)):
        number = isinstance(leaf, (bool, int, float, complex))
        leaf = as_array(leaf, what)
        if leaf._shape.dims != shape.dims:
            raise ShapeError(
                f"{what}: leaf {k} has the shape of {shape!r}", f"{leaf._shape!r}", "pass an array of that shape"
            )
        wanted = shape.dtype if shape.dtype in INEXACT else PRED
        if leaf.dtype == shape.dtype != wanted and what.startswith("the cotangent"):  # as JAX takes it: of no effect
            leaf = zero_of(shape)
        if leaf.dtype != wanted:
            if isinstance(leaf, Array) and (number or leaf.weak):
                leaf = convert(with_weakness(leaf, False), wanted)
            else:
                reason = "" if shape.dtype in INEXACT else f" (values of {HLO_NAME[shape.dtype]} have no tangents)"
                raise DTypeError(
                    f"{what}: leaf {k} has the dtype {HLO_NAME[wanted]}{reason}",
                    f"{leaf._shape!r}",
                    f"convert it with astype('{HLO_NAME[wanted]}')",
                )
        results.append(leaf)
    return results
