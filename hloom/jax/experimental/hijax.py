"""Functions with rules of their own for each transformation, as classes (`jax.experimental.hijax`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hloom import numpy as hnp
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.custom import CustomBatch, CustomModes
from hloom.errors import DifferentiationError, TreeError
from hloom.ir.records import record
from hloom.tracing.custom_rules import Call, values_outside
from hloom.tracing.trace import as_array, current_trace
from hloom.transforms.custom_batching import custom_vmap
from hloom.transforms.custom_derivatives import custom_jvp, custom_vjp
from hloom.tree import pytrees as tree

ShapedArray = ShapeDtypeStruct
# For classes that take what they lack from another rule: here every rule that is missing is.
linearize_from_jvp = vjp_from_lin = jvp_from_lin = (None, None)


@record(frozen=True)
class Zero:
    """A cotangent that is known to be zero, of an array of this shape and dtype."""

    aval: Any


def instantiate_zeros(x):
    """An array of zeros for a Zero; others as they are."""
    return hnp.zeros(x.aval.shape, x.aval.dtype) if isinstance(x, Zero) else x


class NullAccum:
    """Stands for an argument whose cotangent nobody wants."""

    def __init__(self, aval):
        self.aval = aval

    def accum(self, x) -> None:
        """Nothing."""


class ValAccum(NullAccum):
    """Adds up the cotangent of an argument."""

    def __init__(self, aval):
        super().__init__(aval)
        self._value = None

    def accum(self, x) -> None:
        """Adds x, a tree like the argument."""
        self._value = x if self._value is None else tree.map(lambda a, b: a + b, self._value, x)

    def value(self):
        """The sum, or None where nothing was added."""
        return self._value


class RefAccum(NullAccum):
    """Adds the cotangent of an argument to a Ref."""

    def __init__(self, aval, ref):
        super().__init__(aval)
        self.ref = ref

    def accum(self, x) -> None:
        """Adds x to the Ref."""
        self.ref.addupdate(x)


@record(frozen=True)
class AxisData:
    """The axis of a vmap."""

    name: Any
    size: int


class VJPHiPrimitive:
    """Base of functions with rules. `__init__` of the class sets `in_avals` (a tree for each argument), `out_aval` and
    `params`, which become attributes, and calls this one's. An instance is called with the arguments.

    expand(*args): what it computes. Derivatives, of which one is enough for reverse mode:
        vjp_fwd(nzs_in, *args) -> (result, residuals), and vjp_bwd_retval(residuals, cotangent) -> a cotangent for each
        argument (None: zero), or vjp_bwd(residuals, cotangent, *accumulators), which calls `accum`; nzs_in is True for
        each argument that may be differentiated by;
        jvp(primals, tangents) -> (result, tangent);
        lin(nzs_in, *args) -> (result, residuals), and linearized(residuals, *tangents) -> the tangent.
    batch(axis_data, args, dims) -> (result, its axis): vmap; without it `expand` and the rules are vectorized.

    Raises DifferentiationError for a derivative without a rule.
    """

    in_avals: tuple
    out_aval: Any
    params: dict

    jvp: Callable | None = None
    lin: Callable | None = None
    linearized: Callable | None = None
    vjp_fwd: Callable | None = None
    vjp_bwd: Callable | None = None
    vjp_bwd_retval: Callable | None = None
    batch: Callable | None = None

    def __init__(self):
        self.__dict__.update(self.params)

    def expand(self, *args):
        name = type(self).__name__
        raise TreeError(
            f"{name} was called", "the class has no expand, which computes the result", "define expand(self, *args)"
        )

    def __call__(self, *args):
        wanted, found = tree.structure(tuple(self.in_avals)), tree.structure(args)
        if wanted != found:
            raise TreeError(f"{type(self).__name__} takes {wanted}", f"{found}", "pass the arguments of in_avals")
        if current_trace() is None:
            return self.expand(*args)
        call = Call.of(_Named(self), args, {}, (), type(self).__name__)
        traced = call.trace()
        call.outside = values_outside(traced, *call.twins.values())
        forward_mode, reverse_mode = self._forward_mode(), self._reverse_mode()
        # One of the modes has a rule; it is also that of the other one, and in forward mode says that it is not for it.
        rules = [mode.rule(call, traced) for mode in (forward_mode, reverse_mode) if mode is not None]
        return call.emit(traced, CustomModes(rules[0], rules[-1], self._many(call, traced)))

    def _forward_mode(self) -> custom_jvp | None:
        rule = custom_jvp(_Named(self))
        if self.jvp is not None:
            rule.defjvp(self.jvp)
        elif self.lin is not None and self.linearized is not None:
            rule.defjvp(functools.partial(_linearized, self.lin, self.linearized))
        elif self.vjp_fwd is None:
            rule.defjvp(self._missing)
        else:
            return None
        return rule

    def _missing(self, primals, tangents):
        raise DifferentiationError(
            f"a derivative of {type(self).__name__}",
            "it has no rule for one",
            "define jvp(primals, tangents), or vjp_fwd and vjp_bwd_retval for reverse mode",
        )

    def _reverse_mode(self) -> custom_vjp | None:
        forward = self.vjp_fwd
        if forward is None:
            return None
        rule = custom_vjp(_Named(self))
        rule.defvjp(lambda *args: forward(tuple(True for _ in args), *args), self._backward)
        return rule

    def _backward(self, residuals, cotangent):
        if self.vjp_bwd_retval is not None:
            return self.vjp_bwd_retval(residuals, cotangent)
        if self.vjp_bwd is None:
            raise DifferentiationError(
                f"the reverse-mode derivative of {type(self).__name__}",
                "it has vjp_fwd, and nothing for the way back",
                "define vjp_bwd_retval(residuals, cotangent)",
            )
        sums = [ValAccum(aval) for aval in self.in_avals]
        self.vjp_bwd(residuals, cotangent, *sums)
        return tuple(s.value() for s in sums)

    def _many(self, call: Call, traced) -> CustomBatch | None:
        batch = self.batch
        if batch is None:
            return None

        def vmap_rule(size, in_batched, *args):
            dims = tuple(0 if any(tree.leaves(b)) else None for b in in_batched)
            result, axis = batch(AxisData(None, size), args, dims)
            if isinstance(axis, int) and axis:
                result = tree.map(lambda r: hnp.moveaxis(as_array(r), axis, 0), result)
            return result, axis is not None

        function = custom_vmap(_Named(self))
        function.def_vmap(vmap_rule)
        return function.rule(call, traced)


def _linearized(lin: Callable, linearized: Callable, primals, tangents):
    """The rule of forward mode that `lin` and `linearized` make."""
    result, residuals = lin(tree.map(lambda _: True, primals), *primals)
    return result, linearized(residuals, *tangents)


class _Named:
    """The function of an instance, under the name of its class."""

    def __init__(self, primitive: VJPHiPrimitive):
        self._primitive = primitive
        self.__name__ = type(primitive).__name__

    def __call__(self, *args):
        return self._primitive.expand(*args)


__all__ = [
    "AxisData",
    "NullAccum",
    "RefAccum",
    "ShapedArray",
    "VJPHiPrimitive",
    "ValAccum",
    "Zero",
    "instantiate_zeros",
    "jvp_from_lin",
    "linearize_from_jvp",
    "vjp_from_lin",
]
__dir__ = __all__.copy
