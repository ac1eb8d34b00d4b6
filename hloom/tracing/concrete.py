"""Values that have to be known while a function is traced."""

from __future__ import annotations

import numpy as np

from hloom.arrays.array import Array
from hloom.errors import ConcretizationTypeError
from hloom.tracing.trace import Tracer, resumed


def known(x) -> np.ndarray | None:
    """The values of an array that has them: not of one that jit traces."""
    if isinstance(x, Tracer):
        return None if x.value is None else np.asarray(x.value)
    return np.asarray(x._value() if isinstance(x, Array) else x)


def require_known(x, name: str, what: str, repair: str) -> np.ndarray:
    """`known`, or a ConcretizationTypeError that says which argument would make the shape known."""
    value = known(x)
    if value is None:
        raise ConcretizationTypeError(
            f"{name} inside of jit, where {what}", f"a traced value {x._shape!r}, which has no value yet", repair
        )
    return value


def ensure_compile_time_eval():
    """Inside of a trace: what is computed on known values is computed eagerly, instead of being recorded."""
    return resumed(None)
