"""vmap of primitives (`hloom.jax.extend.core.Primitive`), under the names of `jax.interpreters.batching`."""

from __future__ import annotations

from hloom import numpy as hnp

not_mapped = None
# Primitive -> rule(operands, dims, **params) -> (result, its axis); rule(axis_data, operands, dims, **params); and
# rule(axis_size, axis_name, trace_type, operands, dims, **params).
primitive_batchers: dict = {}
fancy_primitive_batchers: dict = {}
axis_primitive_batchers: dict = {}


def moveaxis(x, src, dst):
    """x with its mapped axis moved; x itself where it has none."""
    return x if src is not_mapped else hnp.moveaxis(x, src, dst)


def bdim_at_front(x, bdim, size: int):
    """x with its mapped axis first; broadcast along one where it has none."""
    return hnp.broadcast_to(x, (size, *x.shape)) if bdim is not_mapped else hnp.moveaxis(x, bdim, 0)


def defvectorized(primitive) -> None:
    """A primitive of one operand that computes element by element."""
    primitive_batchers[primitive] = lambda operands, dims, **params: (primitive.bind(*operands, **params), dims[0])


def defbroadcasting(primitive) -> None:
    """A primitive of operands of one shape that computes element by element."""

    def rule(operands, dims, **params):
        size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not not_mapped)
        given = [bdim_at_front(x, d, size) for x, d in zip(operands, dims, strict=True)]
        return primitive.bind(*given, **params), 0

    primitive_batchers[primitive] = rule


__all__ = [
    "axis_primitive_batchers",
    "bdim_at_front",
    "defbroadcasting",
    "defvectorized",
    "fancy_primitive_batchers",
    "moveaxis",
    "not_mapped",
    "primitive_batchers",
]
__dir__ = __all__.copy
