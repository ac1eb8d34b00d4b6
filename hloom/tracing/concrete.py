"""Values that are known while tracing: those that tracing requires, and functions that are computed eagerly.

Outside a trace a function of several ops is one NumPy function of whole arrays (`at_once`), without an array per op.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.eager import eager_device, eager_result
from hloom.errors import ConcretizationTypeError
from hloom.ir.base_error import no_memory
from hloom.ir.types import DTYPES, NARROW_FLOATS, bit_width
from hloom.sharding.shardings import NamedSharding
from hloom.tracing.active import TRACES
from hloom.tracing.trace import Tracer, resumed

_COMPUTED = {d for d in DTYPES.values() if d.kind in "biufc" and d.itemsize * 8 == bit_width(d)} - NARROW_FLOATS
PIECE = 1 << 13  # elements: several arrays of them fit into a core's cache


def known(x) -> np.ndarray | None:
    """The values of an array that has them: not of one that jit traces."""
    if isinstance(x, Tracer):
        return None if x.value is None else np.asarray(x.value)
    return np.asarray(x._value() if isinstance(x, Array) else x)


def require_known(x, name: str, what: str, repair: str) -> np.ndarray:
    """`known`, or a ConcretizationTypeError that names the argument that would make the shape known."""
    value = known(x)
    if value is None:
        raise ConcretizationTypeError(
            f"{name} inside of jit, where {what}", f"a traced value {x._shape!r}, which has no value yet", repair
        )
    return value


def ensure_compile_time_eval():
    """Inside a trace: operations on known values are computed eagerly, instead of being recorded.

    >>> @hl.jit
    ... def f(x):
    ...     with hl.ensure_compile_time_eval():
    ...         n = int(hnp.sum(hnp.array([1, 2])))
    ...     return x * n
    >>> f(hnp.array([1, 2]))
    Array([3, 6], dtype=int32)
    """
    return resumed(None)


# --- functions that are computed eagerly -------------------------------------------------------------------------


def is_eager(*operands) -> bool:
    """Whether operations on these operands run now, on arrays whose dtypes NumPy computes without a change of
    precision."""
    if TRACES.active and TRACES.active[-1] is not None:
        return False
    return all(
        o.__class__ is Array and o._shape.dtype in _COMPUTED and o._device.__class__ is not NamedSharding
        for o in operands
    )


def at_once(name: str, function: Callable, *operands, weak: bool = False):
    """The result of a function of several ops, computed by one function of NumPy arrays; None if the ops are needed.

    They are needed in a trace, for narrow floats, and for Python numbers, whose digits they keep. The ops are the
    specification: tests compare `function(*arrays)` with them. It must not write to its operands, which have any
    strides, and returns an unshared array or scalar, or a tuple of them.
    """
    if weak or not is_eager(*operands):
        return None
    device = eager_device(operands, name)
    try:
        with np.errstate(all="ignore"):
            value = function(*[o._in_any_order() for o in operands])
    except MemoryError as error:
        raise no_memory(error, name, [operands[0]._shape]) from None
    if isinstance(value, tuple):
        return tuple([eager_result(v, False, device, name, operands) for v in value])
    return eager_result(value, False, device, name, operands)


def lacks_nan(x) -> bool:
    """Whether an array of floats is known now, is not empty, and has no NaN."""
    if not is_eager(x) or not x._shape.size or x._shape.dtype.kind != "f":
        return False
    return not math.isnan(np.min(x._in_any_order()))


def in_pieces(function: Callable, *arrays: np.ndarray) -> np.ndarray:
    """Applies an element-wise function to arrays of one shape in blocks, so that its intermediate results stay in the
    cache."""
    size = arrays[0].size
    if size <= PIECE or not all(a.flags.c_contiguous or not any(a.strides) for a in arrays):
        return function(*arrays)
    flat = [a.reshape(-1) if a.flags.c_contiguous else np.broadcast_to(a[(0,) * a.ndim], size) for a in arrays]
    result = None
    for start in range(0, size, PIECE):
        piece = function(*[a[start : start + PIECE] for a in flat])
        if result is None:
            result = np.empty(size, piece.dtype)
        result[start : start + PIECE] = piece
    assert result is not None
    return result.reshape(arrays[0].shape)
