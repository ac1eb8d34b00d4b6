"""`jax.scipy.interpolate`: values between the points of a rectangular grid."""

from __future__ import annotations

import itertools
import math

import hloom.numpy as hnp
from hloom.errors import AttributeValueError, ShapeError
from hloom.lax.operands import as_operand, promote_operands, to_inexact

_METHODS = ("linear", "nearest")


class RegularGridInterpolator:
    """A function of N coordinates known at the points of a grid: `RegularGridInterpolator(points, values)(xi)`.

    points: for each of the N first dimensions of `values` its coordinates, a vector in increasing order. method:
    'linear' or 'nearest'. fill_value: the value outside of the grid (NaN); None: the values there are those of the
    outermost cells, continued. bounds_error: an error would need values known while tracing; only False is taken.
    Raises ShapeError, AttributeValueError.

    >>> f = hl.scipy.interpolate.RegularGridInterpolator((hnp.arange(3.0),), hnp.array([0.0, 10.0, 40.0]))
    >>> f(hnp.array([[0.5], [1.5]]))
    Array([ 5., 25.], dtype=float32)
    """

    def __init__(self, points, values, method: str = "linear", bounds_error: bool = False, fill_value=math.nan):
        _known_method(method)
        if bounds_error:
            raise AttributeValueError(
                "an error for points outside of the grid", "bounds_error=True", "look for fill_value in the result"
            )
        self.values = to_inexact(values, "RegularGridInterpolator")
        self.grid = tuple(as_operand(p, "RegularGridInterpolator") for p in points)
        if len(self.grid) > self.values.ndim or any(
            p.shape != (d,) for p, d in zip(self.grid, self.values.shape, strict=False)
        ):
            raise ShapeError(
                "a grid has the coordinates of each dimension of its values",
                f"{', '.join(repr(p._shape) for p in self.grid)} for {self.values._shape!r}",
                "pass a vector for each dimension, of its size",
            )
        self.method, self.fill_value = method, fill_value

    def __call__(self, xi, method: str | None = None):
        """The values at coordinates (..., N): an array, or a tuple of N arrays that broadcast. Raises ShapeError."""
        method = self.method if method is None else method
        _known_method(method)
        if isinstance(xi, tuple):
            xi = hnp.stack(hnp.broadcast_arrays(*xi), axis=-1)
        xi = to_inexact(xi, "RegularGridInterpolator")
        if not xi.ndim or xi.shape[-1] != len(self.grid):
            raise ShapeError(
                f"coordinates of {len(self.grid)} dimensions", f"{xi._shape!r}", "put them along the last axis"
            )
        places, shares, outside = [], [], hnp.zeros(xi.shape[:-1], bool)
        for k, points in enumerate(self.grid):
            (x, points), _ = promote_operands("RegularGridInterpolator", (xi[..., k], points), broadcast=False)
            cell = hnp.clip(hnp.searchsorted(points, x) - 1, 0, max(points.shape[0] - 2, 0))
            low, high = points[cell], points[hnp.minimum(cell + 1, points.shape[0] - 1)]
            places.append(cell)
            shares.append(hnp.where(high == low, 0, (x - low) / hnp.where(high == low, 1, high - low)))
            outside = outside | (x < points[0]) | (x > points[-1])
        rest = (1,) * (self.values.ndim - len(self.grid))
        if method == "nearest":
            nearest = [p + (s > 0.5) for p, s in zip(places, shares, strict=True)]
            found = self.values[tuple(nearest)]
        else:
            found = 0
            for corner in itertools.product((0, 1), repeat=len(self.grid)):
                weight = math.prod(s if side else 1 - s for side, s in zip(corner, shares, strict=True))
                at = tuple(
                    hnp.minimum(p + side, points.shape[0] - 1)
                    for p, side, points in zip(places, corner, self.grid, strict=True)
                )
                found = found + self.values[at] * weight.reshape(weight.shape + rest)
        if self.fill_value is None:
            return found
        return hnp.where(outside.reshape(outside.shape + rest), self.fill_value, found)


def _known_method(method: str) -> None:
    if method not in _METHODS:
        raise AttributeValueError("a way to interpolate", f"{method!r:.40}", f"one of {', '.join(_METHODS)}")


__all__ = ["RegularGridInterpolator"]
__dir__ = __all__.copy
