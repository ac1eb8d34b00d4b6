"""Indices by value: nonzero, flatnonzero, argwhere, and `where` with one argument."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from hloom import lax
from hloom.arrays.array import Array
from hloom.dispatch.counted_sizes import counts, size_of_mask, with_size
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import DTYPES
from hloom.lax.operands import as_operand, convert, default_int
from hloom.numpy.elementwise.logic import truth
from hloom.numpy.elementwise.logic import where as choose
from hloom.numpy.elementwise.numbers import unravel_index
from hloom.numpy.shaping.manipulation import atleast_1d, ravel, stack
from hloom.tracing.concrete import require_known

S32 = DTYPES["s32"]
# What finds the true elements of a mask of rank 1 and their number, (s64[n], s32[1]), where a program may have kernels,
# which no text of it can hold; None: operations.
kernel_for_masks: ContextVar[Callable[[Any], tuple[Any, Any]] | None] = ContextVar("kernel_for_masks", default=None)


def true_places(mask, size: int, beyond: int):
    """The indices of the first `size` true elements of a mask of rank 1; missing ones are `beyond`."""
    dtype = default_int()
    count = mask.shape[0]
    if not size or not count:
        return lax.full((size,), beyond, dtype)
    number = lax.cumsum(convert(mask, dtype), axis=0)
    target = choose(mask, lax.sub(number, 1), size)
    places = lax.full((size,), beyond, dtype)
    return places.at[target].set(lax.iota(dtype, count), mode="drop")


def nonzero(a, *, size: int | None = None, fill_value=None):
    """The indices of the nonzero elements: one integer array per axis, in row-major order.

    size: the number of indices; further ones are dropped, missing ones are fill_value (default 0; a scalar, or one per
    axis). Without size, the result has a dynamic size under jit (docs/guides/sizes.md). Raises ConcretizationTypeError,
    ArgumentError.

    >>> hnp.nonzero(hnp.array([[0, 3], [4, 0]]))
    (Array([0, 1], dtype=int32), Array([1, 0], dtype=int32))
    """
    x = as_operand(a, "nonzero")
    if not x.ndim:
        raise ShapeError("nonzero takes an array with axes", f"{x._shape!r}", "use hnp.atleast_1d first")
    dtype = default_int()
    fills = fill_value if isinstance(fill_value, (tuple, list)) else (fill_value,) * x.ndim
    if len(fills) != x.ndim:
        raise ArgumentError(
            "nonzero takes a fill value for each axis", f"{fill_value!r} for {x._shape!r}", f"pass {x.ndim} or one"
        )
    if size is None and not counts(x):
        value = require_known(x, "nonzero", "the number of positions is a shape", "pass size=")
        return tuple(Array(p.astype(dtype)) for p in np.nonzero(value))
    mask = ravel(truth(x))
    if size is None:
        return _counted(x, mask)
    flat = true_places(mask, size, x.size)
    missing = lax.eq(flat, lax.full_like(flat, x.size))
    results = []
    for place, fill in zip(unravel_index(flat, x.shape) if x.size else [flat] * x.ndim, fills, strict=True):
        results.append(choose(missing, convert(as_operand(0 if fill is None else fill, "nonzero"), dtype), place))
    return tuple(results)


def _counted(x, mask):
    """`nonzero` of a traced array, with a size that is computed at run time."""
    kernel = kernel_for_masks.get()
    if kernel is None or not x.size:
        everywhere = nonzero(x, size=x.size)
        if not x.size:
            return everywhere
        count = lax.reduce_sum(convert(mask, S32), None)
    else:
        flat, counted = kernel(mask)
        count = lax.reshape(counted, ())
        found = (flat,) if x.ndim == 1 else unravel_index(flat, x.shape)
        everywhere = tuple([convert(places, default_int()) for places in found])
    size = size_of_mask(mask, "a mask")
    return tuple(with_size(places, count, size) for places in everywhere)


def flatnonzero(a, *, size: int | None = None, fill_value=None):
    """The indices of the nonzero elements of the flat array. Arguments as in `nonzero`.

    >>> hnp.flatnonzero(hnp.array([0, 7, 0, 9]))
    Array([1, 3], dtype=int32)
    """
    return nonzero(ravel(as_operand(a, "flatnonzero")), size=size, fill_value=fill_value)[0]


def argwhere(a, *, size: int | None = None, fill_value=None):
    """The indices of the nonzero elements, one row for each. Arguments as in `nonzero`.

    >>> hnp.argwhere(hnp.array([[0, 3], [4, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    x = as_operand(a, "argwhere")
    found = stack(nonzero(atleast_1d(x), size=size, fill_value=fill_value), axis=-1)
    return found if x.ndim else found[:, :0]


def where(condition, x=None, y=None, /, *, size: int | None = None, fill_value=None):
    """x where condition is true (not 0), otherwise y. All three broadcast, x and y promote.

    Without x and y the indices where condition is true, as by `nonzero` with size and fill_value.
    Raises ShapeError, DTypeError, ArgumentError.

    >>> x = hnp.array([-1.0, 2.0, -3.0])
    >>> hnp.where(x > 0, x, 0)
    Array([0., 2., 0.], dtype=float32)
    >>> hnp.where(x < 0)
    (Array([0, 2], dtype=int32),)
    """
    if x is None and y is None:
        return nonzero(atleast_1d(as_operand(condition, "where")), size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ArgumentError("where takes both x and y, or neither", "one of them", "pass the other one too")
    if size is not None or fill_value is not None:
        raise ArgumentError(
            "where takes size and fill_value without x and y", f"{size=}, {fill_value=}", "leave them out"
        )
    return choose(condition, x, y)
