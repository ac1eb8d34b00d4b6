"""Primitive: an operation that a library defines, with rules for each transformation."""

from __future__ import annotations

from collections.abc import Callable

from hloom import numpy as hnp
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.custom import CustomModes, Rule
from hloom.errors import ArgumentError, DifferentiationError, TracerError
from hloom.ir.types import INEXACT
from hloom.jax.experimental.hijax import AxisData, Zero, instantiate_zeros
from hloom.jax.interpreters.ad import UndefinedPrimal, primitive_jvps, primitive_transposes
from hloom.jax.interpreters.batching import axis_primitive_batchers, fancy_primitive_batchers, primitive_batchers
from hloom.jax.interpreters.mlir import lowerings
from hloom.tracing.callback import pure_callback
from hloom.tracing.custom_rules import Call, SymbolicZero, values_outside
from hloom.tracing.trace import Tracer, as_array, current_trace, resumed, trace_function
from hloom.transforms.custom_batching import custom_vmap
from hloom.transforms.custom_derivatives import custom_jvp
from hloom.tree import pytrees as tree


class Primitive:
    """An operation by name. `bind(*arrays, **params)` applies it: outside of traces its implementation (`def_impl`)
    runs; in traces the function of its lowering, or the implementation, is traced. An implementation that needs NumPy
    arrays becomes a call of a Python function, whose result has the shape from `def_abstract_eval`.

    Rules are found in `interpreters.ad.primitive_jvps` and `interpreters.batching.primitive_batchers`; without them the
    traced function is differentiated and vectorized. multiple_results: it returns a sequence.
    """

    def __init__(self, name: str):
        self.name = name
        self.multiple_results = False
        self.impl: Callable | None = None
        self.abstract_eval: Callable | None = None

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def def_impl(self, impl):
        """Defines the implementation: impl(*arrays, **params)."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval):
        """Defines the shapes of results: abstract_eval(*shapes, **params) -> a ShapedArray, or a sequence of them."""
        self.abstract_eval = abstract_eval
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval):
        """As `def_abstract_eval`, of a function that returns (shapes, effects)."""
        self.abstract_eval = lambda *args, **params: abstract_eval(*args, **params)[0]
        return abstract_eval

    def bind(self, *args, **params):
        """Applies the primitive. Raises ArgumentError where it has no implementation."""
        if current_trace() is None:
            tracer = next((a for a in args if isinstance(a, Tracer) and a.trace.active), None)
            if tracer is not None:  # within ensure_compile_time_eval: what is not known is recorded, with its rules
                with resumed(tracer.trace):
                    return self.bind(*args, **params)
            if self.impl is None:
                raise ArgumentError(f"primitive '{self.name}' was applied", "it has no implementation", "use def_impl")
            return self.impl(*args, **params)
        call = Call.of(_Bound(self, params), args, {}, (), self.name)
        traced = call.trace()
        call.outside = values_outside(traced)
        call.twins = {k: t for k, t in call.twins.items() if any(t is o for o in call.outside)}
        derivative: Rule | None = None
        if self in primitive_jvps:
            with_jvp = custom_jvp(_Bound(self, params))
            with_jvp.defjvp(self._jvp_rule(primitive_jvps[self], params), symbolic_zeros=True)
            derivative = with_jvp.rule(call, traced)
        many = None
        if self in primitive_batchers or self in fancy_primitive_batchers or self in axis_primitive_batchers:
            with_vmap = custom_vmap(_Bound(self, params))
            with_vmap.def_vmap(self._vmap_rule(params))
            many = with_vmap.rule(call, traced)
        transpose = None
        if self in primitive_transposes:
            transpose = self._transpose_rule(primitive_transposes[self], params, call, traced)
        if derivative is None and many is None and transpose is None:
            return _Bound(self, params)(*args)
        if derivative is None and transpose is None:
            return call.emit(traced, many)
        derivative = Rule() if derivative is None else derivative
        return call.emit(traced, CustomModes(derivative, derivative, many, transpose))

    def _transpose_rule(self, rule, params, call: Call, traced):
        """What `CustomModes` takes as make_transpose."""
        shapes = [leaf._shape for leaf in call.leaves]
        outputs = [o.shape for o in traced.computation.outputs()]

        def make(linear):
            if any(linear[len(shapes) :]):
                raise DifferentiationError(
                    f"the transpose of primitive '{self.name}' with respect to a value from outside",
                    "it is not an operand",
                    "pass it",
                )
            kept = [s for s, of in zip(shapes, linear, strict=False) if not of]
            cotangents = [s for s in outputs if s.dtype in INEXACT]

            def run(*flat):
                given, following = iter(flat[: len(kept)]), iter(flat[len(kept) :])
                operands = [
                    UndefinedPrimal(ShapeDtypeStruct(s.dims, s.dtype)) if of else next(given)
                    for s, of in zip(shapes, linear, strict=False)
                ]
                found = [
                    next(following) if s.dtype in INEXACT else Zero(ShapeDtypeStruct(s.dims, s.dtype)) for s in outputs
                ]
                results = rule(found if self.multiple_results else found[0], *operands, **params)
                wanted = []
                for value, shape, of in zip(results, shapes, linear, strict=False):
                    if of:
                        zero = Zero(ShapeDtypeStruct(shape.dims, shape.dtype))
                        wanted.append(as_array(instantiate_zeros(zero if value is None else value)))
                return wanted

            outside = [o.shape for o in traced.computation.parameters[len(shapes) :]]
            count = len(kept) + len(cotangents)
            given = [*kept, *outside, *cotangents]
            place = len(kept)

            def reordered(*flat):
                return run(*flat[:place], *flat[place + len(outside) :])

            _, structure = tree.flatten((tuple(given), {}))
            made = trace_function(reordered, given, structure, f"{self.name}_transpose")
            if made.captures or len(made.computation.parameters) != count + len(outside):
                raise DifferentiationError(
                    f"the transpose rule of primitive '{self.name}'", "it uses traced values from outside", "pass them"
                )
            return made.computation

        return make

    def _jvp_rule(self, rule, params):
        def jvp(primals, tangents):
            given = [Zero(ShapeDtypeStruct(t.shape, t.dtype)) if isinstance(t, SymbolicZero) else t for t in tangents]
            results, found = rule(tuple(primals), tuple(given), **params)
            if self.multiple_results:
                return list(results), [instantiate_zeros(t) for t in found]
            return results, instantiate_zeros(found)

        return jvp

    def _vmap_rule(self, params):
        def rule(size, in_batched, *args):
            dims = tuple(0 if b else None for b in in_batched)
            if self in primitive_batchers:
                results, axes = primitive_batchers[self](args, dims, **params)
            elif self in axis_primitive_batchers:
                results, axes = axis_primitive_batchers[self](size, None, None, args, dims, **params)
            else:
                results, axes = fancy_primitive_batchers[self](AxisData(None, size), args, dims, **params)
            if not self.multiple_results:
                return _first(results, axes), axes is not None
            axes = [axes] * len(results) if isinstance(axes, int) or axes is None else list(axes)
            return [_first(r, a) for r, a in zip(results, axes, strict=True)], [a is not None for a in axes]

        return rule


def _first(result, axis):
    return hnp.moveaxis(as_array(result), axis, 0) if axis else result


class _Bound:
    """A primitive with its parameters, as a function of arrays that can be traced."""

    def __init__(self, primitive: Primitive, params: dict):
        self._primitive, self._params = primitive, params
        self.__name__ = primitive.name

    def __call__(self, *args):
        primitive, params = self._primitive, self._params
        lowering = lowerings.get(primitive)
        if lowering is not None:
            results = lowering(*args, **params)
            if lowering.multiple_results:
                return list(results) if primitive.multiple_results else results[0]
            return results
        if primitive.impl is None:
            raise ArgumentError(
                f"primitive '{primitive.name}' in a trace",
                "no implementation",
                "use def_impl or mlir.register_lowering",
            )
        try:
            results = primitive.impl(*args, **params)
        except TracerError:
            results = self._called(primitive.impl, args)
        return list(results) if primitive.multiple_results else results

    def _called(self, impl: Callable, args):
        """The implementation as a Python function that the program calls."""
        primitive, params = self._primitive, self._params
        if primitive.abstract_eval is None:
            raise ArgumentError(
                f"primitive '{primitive.name}' in a trace",
                "its implementation takes values only, and its result's shape is not known",
                "use def_abstract_eval",
            )
        shapes = primitive.abstract_eval(*[ShapeDtypeStruct.like(as_array(a)) for a in args], **params)
        shapes = list(shapes) if primitive.multiple_results else shapes

        @custom_jvp
        def function(*arrays):
            return pure_callback(lambda *v: impl(*v, **params), shapes, *arrays, vmap_method="sequential")

        @function.defjvp
        def refuse(primals, tangents):
            raise DifferentiationError(
                f"a derivative of primitive '{primitive.name}'", "it has no rule", "put one into ad.primitive_jvps"
            )

        return function(*args)


_named: dict[str, Primitive] = {}


def named(name: str, function) -> Primitive:
    """The primitive of a name `something_p` whose implementation is a function; the same each time."""
    if name not in _named:
        _named[name] = Primitive(name.removesuffix("_p"))
        if function is not None:
            _named[name].def_impl(function)
    return _named[name]
