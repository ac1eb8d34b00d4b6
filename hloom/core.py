"""Traced values and shapes under `jax.core`'s names."""

from hloom.compatibility import ensure_compile_time_eval, typeof
from hloom.ir.module import Instruction
from hloom.shapes import ShapeDtypeStruct
from hloom.tracing import Trace, Tracer

AbstractValue = ShapedArray = ShapeDtypeStruct
Atom = Var = Instruction  # what jaxprs call variables


def get_aval(x) -> ShapeDtypeStruct:
    """The shape and dtype of an array or number."""
    return typeof(x)


def is_concrete(x) -> bool:
    """Whether the value of x is known now."""
    return not isinstance(x, Tracer) or x.value is not None


def concrete_or_error(force, value, context: str = ""):
    """force(value) of a value that is known now. Raises ConcretizationTypeError."""
    return value if force is None else force(value)


__all__ = [
    "AbstractValue",
    "Atom",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "concrete_or_error",
    "ensure_compile_time_eval",
    "get_aval",
    "is_concrete",
]
