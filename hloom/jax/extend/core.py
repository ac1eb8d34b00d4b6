"""Traces under the names of `jax.extend.core`."""

from __future__ import annotations

from contextlib import contextmanager

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.ir.module import Instruction
from hloom.jax.compatibility import Program
from hloom.jax.extend.primitive import Primitive
from hloom.tracing.trace import TRACES
from hloom.tracing.trace import resumed as set_current_trace

ClosedJaxpr = Jaxpr = Program
Atom = Var = JaxprEqn = Instruction


class DropVar:
    """A result that nothing reads. Programs of hloom have none: what nothing reads is left out."""


class Effect:
    """Base of what a primitive does besides computing its result. Programs keep calls with effects in their order."""


class Literal:
    """A constant in a program for JAX; in hloom's it is an instruction like others."""


class TraceState:
    """The traces and named axes around a piece of code; equal for equal surroundings."""

    def __init__(self):
        self._traces, self._axes = tuple(TRACES.active), TRACES.axes

    def __eq__(self, other) -> bool:
        if not isinstance(other, TraceState) or len(self._traces) != len(other._traces):
            return False
        return self._axes == other._axes and all(a is b for a, b in zip(self._traces, other._traces, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self._traces)))


def get_opaque_trace_state(convention: str = "") -> TraceState:
    """The traces around the caller, to compare with later ones."""
    return TraceState()


@contextmanager
def take_current_trace():
    """The innermost trace (or None), which is left for the time of the block."""
    before = list(TRACES.active)
    innermost = TRACES.active.pop() if TRACES.active else None
    try:
        yield innermost
    finally:
        TRACES.active[:] = before


def jaxpr_as_fun(closed_jaxpr: Program):
    """The function of flat arrays whose program was traced."""
    return lambda *args: closed_jaxpr.evaluate(args, closed_jaxpr.consts)


def mapped_aval(size: int, axis: int | None, aval):
    """The shape of one batch element along an axis."""
    if axis is None:
        return aval
    return ShapeDtypeStruct((*aval.shape[:axis], *aval.shape[axis + 1 :]), aval.dtype)


def unmapped_aval(size: int, axis: int | None, aval, *more):
    """The shape of a batch along an axis."""
    if axis is None:
        return aval
    return ShapeDtypeStruct((*aval.shape[:axis], size, *aval.shape[axis:]), aval.dtype)


__all__ = [
    "Atom",
    "ClosedJaxpr",
    "DropVar",
    "Effect",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "TraceState",
    "Var",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "mapped_aval",
    "set_current_trace",
    "take_current_trace",
    "unmapped_aval",
]
__dir__ = __all__.copy
