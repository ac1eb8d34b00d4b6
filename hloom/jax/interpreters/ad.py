"""Derivatives of primitives (`hloom.jax.extend.core.Primitive`), under the names of `jax.interpreters.ad`."""

from __future__ import annotations

from hloom import numpy as hnp
from hloom.jax.experimental.hijax import Zero, instantiate_zeros
from hloom.transforms.gradient import jvp, linearize, vjp

primitive_jvps: dict = {}  # Primitive -> rule(primals, tangents, **params) -> (results, their tangents)
primitive_transposes: dict = {}  # Primitive -> rule(cotangent, *operands, **params) -> a cotangent for each operand


class UndefinedPrimal:
    """Stands for an operand in which a primitive is linear, in the rule of its transpose."""

    def __init__(self, aval):
        self.aval = aval


def is_undefined_primal(x) -> bool:
    """Whether an operand of a transpose rule is one that it is linear in."""
    return isinstance(x, UndefinedPrimal)


def zeros_like_aval(aval):
    """Zeros of a shape and dtype."""
    return hnp.zeros(aval.shape, aval.dtype)


def deflinear(primitive, transpose_rule) -> None:
    """A primitive that is linear in all its operands: transpose_rule(cotangent, **params) -> their cotangents."""

    def jvp_rule(primals, tangents, **params):
        tangents = [instantiate_zeros(t) for t in tangents]
        return primitive.bind(*primals, **params), primitive.bind(*tangents, **params)

    primitive_jvps[primitive] = jvp_rule
    primitive_transposes[primitive] = lambda cotangent, *operands, **params: transpose_rule(cotangent, **params)


def deflinear2(primitive, transpose_rule) -> None:
    """As `deflinear`; the rule gets the operands too."""
    deflinear(primitive, transpose_rule)
    primitive_transposes[primitive] = transpose_rule


def defjvp(primitive, *rules) -> None:
    """Rules operand by operand: rule_k(tangent, *primals, **params) -> its part of the tangent."""

    def jvp_rule(primals, tangents, **params):
        result = primitive.bind(*primals, **params)
        parts = [
            rule(t, *primals, **params)
            for rule, t in zip(rules, tangents, strict=True)
            if rule is not None and not isinstance(t, Zero)
        ]
        if not parts:
            return result, hnp.zeros_like(result)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return result, total

    primitive_jvps[primitive] = jvp_rule


__all__ = [
    "UndefinedPrimal",
    "Zero",
    "defjvp",
    "deflinear",
    "deflinear2",
    "instantiate_zeros",
    "is_undefined_primal",
    "jvp",
    "linearize",
    "primitive_jvps",
    "primitive_transposes",
    "vjp",
    "zeros_like_aval",
]
__dir__ = __all__.copy
