"""Traced values and shapes under `jax.core`'s names."""

from hloom.arrays.keys import KeyArray, KeysType
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.ir.module import Instruction
from hloom.jax.compatibility import Program, typeof
from hloom.tracing.concrete import ensure_compile_time_eval
from hloom.tracing.trace import Trace, Tracer

ShapedArray = ShapeDtypeStruct
Atom = Var = Instruction  # what jaxprs call variables


class _Abstract(type):
    def __instancecheck__(cls, value) -> bool:
        if isinstance(value, KeyArray):
            value = value._data
        return isinstance(value, (ShapeDtypeStruct, KeysType))


class AbstractValue(metaclass=_Abstract):
    """What has a shape and a dtype only, those of random keys too: for `isinstance`."""


def get_aval(x) -> ShapeDtypeStruct:
    """The shape and dtype of an array or number."""
    return typeof(x)


def eval_jaxpr(jaxpr: Program, consts, *args, **options) -> list:
    """The results of a traced program (`hl.make_jaxpr`) for flat arguments; consts: its own `consts`."""
    return jaxpr.evaluate(args, consts)


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
    "eval_jaxpr",
    "ensure_compile_time_eval",
    "get_aval",
    "is_concrete",
]
__dir__ = __all__.copy
