"""Integrals of samples, with the names of `scipy.integrate`."""

from __future__ import annotations

import hloom.numpy as hnp


def trapezoid(y, x=None, dx=1.0, axis: int = -1):
    """The integral of samples by the trapezoidal rule along an axis: at points x, or at distances dx.

    Raises DTypeError, ShapeError.

    >>> hl.scipy.integrate.trapezoid(hnp.array([0.0, 1.0, 2.0]))
    Array(2., dtype=float32)
    """
    return hnp.trapezoid(y, x, dx, axis)


__all__ = ["trapezoid"]
__dir__ = __all__.copy
