"""The results of eager operations as Arrays that own their memory, checked where `hl.config` says so."""

from __future__ import annotations

import numpy as np

from hloom.arrays.array import Array, Strided
from hloom.arrays.checks import check_result
from hloom.config import config
from hloom.ir.types import Shape


def eager_result(value, weak: bool, device, opcode: str, operands) -> Array:
    """The Array of an eagerly computed NumPy array or scalar, which nobody writes to.

    A view in another order than row-major stays one, unless it would keep a much larger array alive.
    """
    value = np.asarray(value)
    if value.flags.c_contiguous or checks_results() or _is_small_part(value):
        return Array(owned(value, opcode, operands), weak, device)
    return Array(Strided(value), weak, device, Shape(value.dtype, value.shape))


def _is_small_part(view: np.ndarray) -> bool:
    base = view.base
    return isinstance(base, np.ndarray) and 4 * view.nbytes < base.nbytes


def _contiguous(value, opcode: str = "", operands=()) -> np.ndarray:
    """The value of an eager operation as an array that owns its memory."""
    value = np.asarray(value)
    return value if value.flags.c_contiguous else np.ascontiguousarray(value).reshape(value.shape)


def _checked(value, opcode: str = "", operands=()) -> np.ndarray:
    """The same with `hl.config.debug_nans` or `debug_infs`."""
    value = _contiguous(value)
    check_result(value, opcode, operands)
    return value


_owned = _contiguous


def _choose_checks(_=None) -> None:
    global _owned
    _owned = _checked if config.debug_nans or config.debug_infs else _contiguous


for _name in ("debug_nans", "debug_infs"):
    config.on_change(_name, _choose_checks)
_choose_checks()


def checks_results() -> bool:
    """Whether `hl.config.debug_nans` or `debug_infs` is set."""
    return _owned is _checked


def owned(value, opcode: str = "", operands=()) -> np.ndarray:
    """The value of an eager operation as an array that owns its memory, checked."""
    return _owned(value, opcode, operands)


__all__ = ["checks_results", "eager_result", "owned"]
