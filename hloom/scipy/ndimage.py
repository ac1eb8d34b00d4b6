"""`jax.scipy.ndimage`: arrays read at fractional coordinates."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy as np

import hloom.numpy as hnp
from hloom.errors import AttributeValueError, ShapeError
from hloom.lax.operands import as_operand, promote_operands


def _mirror(index, size: int):
    """... 2 1 0 1 2 1 0 1 ...: the edge is not repeated."""
    period = max(2 * size - 2, 1)
    return hnp.abs((index + (size - 1)) % period - (size - 1))


def _reflect(index, size: int):
    """... 1 0 0 1 2 2 1 0 ...: the edge is repeated."""
    twice = _mirror(2 * index + 1, 2 * size + 1)
    return (twice - 1) // 2


_OUTSIDE = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: hnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirror,
    "reflect": _reflect,
}


def map_coordinates(input, coordinates, order: int, mode: str = "constant", cval=0.0):
    """input at fractional coordinates: an array of the shape of each of `coordinates`, one array for each dimension.

    order: 0 (the nearest element) or 1 (linear interpolation). mode: the values outside: 'constant' (cval), 'nearest',
    'wrap', 'mirror' (the edge once), 'reflect' (the edge twice). The result has input's dtype. Raises ShapeError,
    AttributeValueError.

    >>> image = hnp.array([[0.0, 1.0], [2.0, 3.0]])
    >>> hl.scipy.ndimage.map_coordinates(image, [hnp.array([0.5]), hnp.array([0.5])], order=1)
    Array([1.5], dtype=float32)
    """
    x = as_operand(input, "map_coordinates")
    points = [as_operand(c, "map_coordinates") for c in coordinates]
    if len(points) != x.ndim:
        raise ShapeError(
            "map_coordinates takes coordinates for each dimension",
            f"{len(points)} for {x._shape!r}",
            "pass a sequence of one array a dimension",
        )
    outside = _OUTSIDE.get(mode)
    if outside is None or order not in (0, 1):
        raise AttributeValueError(
            f"map_coordinates takes order 0 or 1 and mode {', '.join(_OUTSIDE)}",
            f"order={order!r}, mode={mode!r}",
            "interpolate linearly",
        )
    points, _ = promote_operands("map_coordinates", points) if points else ([], False)
    cval = hnp.asarray(cval).astype(x.dtype)
    choices = [[_nearest(p)] if order == 0 else _neighbours(p) for p in points]
    parts = []
    for corner in itertools.product(*choices):
        index = tuple(outside(i, n) for (i, _), n in zip(corner, x.shape, strict=True))
        value = x[index] if index else x
        if mode == "constant":
            inside = None
            for i, n in zip(index, x.shape, strict=True):
                here = (i >= 0) & (i < n)
                inside = here if inside is None else inside & here
            value = value if inside is None else hnp.where(inside, value, cval)
        for _, weight in corner:
            value = value if weight is None else value * weight
        parts.append(value)
    total = functools.reduce(operator.add, parts)
    if x.dtype.kind in "iu" and total.dtype != x.dtype:
        total = hnp.round(total)
    return total.astype(x.dtype)


def _nearest(point):
    # Halves away from zero, as C rounds.
    return hnp.floor(point + 0.5).astype(np.int32), None


def _neighbours(point):
    lower = hnp.floor(point)
    upper = point - lower
    index = lower.astype(np.int32)
    return [(index, 1 - upper), (index + 1, upper)]


__all__ = ["map_coordinates"]
__dir__ = __all__.copy
