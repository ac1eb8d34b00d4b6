"""Pooling: the largest, smallest or mean element of windows of images and sequences, channels last.

The signatures are those of `flax.linen`'s functions.
"""

from __future__ import annotations

from hloom import lax
from hloom.errors import ShapeError
from hloom.lax.linear.convolution import static_integers
from hloom.lax.operands import as_operand, full, to_inexact
from hloom.lax.windows import reduce_window_max, reduce_window_min, reduce_window_sum
from hloom.nn.convolution import checked_padding


def _arguments(name: str, inputs, window_shape, strides, padding):
    """(operand, window, strides, padding) for all dimensions of the operand."""
    x = as_operand(inputs, name)
    if isinstance(window_shape, int):
        window_shape = (window_shape,)
    rank = len(window_shape)
    if not rank + 1 <= x.ndim:
        raise ShapeError(
            f"{name} takes (batch..., {rank} window dimensions, channels)",
            f"{x._shape!r} for window_shape {tuple(window_shape)}",
            "give window_shape one entry for each dimension between batch and channels",
        )
    window = static_integers(window_shape, rank, name, "window_shape")
    steps = (1,) * rank if strides is None else (strides,) * rank if isinstance(strides, int) else strides
    steps = static_integers(steps, rank, name, "strides")
    lead = (1,) * (x.ndim - rank - 1)
    padding = checked_padding(padding, rank, name)
    if not isinstance(padding, str):
        padding = [(0, 0)] * len(lead) + [tuple(p) for p in padding] + [(0, 0)]
    return x, (*lead, *window, 1), (*lead, *steps, 1), padding


def max_pool(inputs, window_shape, strides=None, padding="VALID"):
    """The largest element of each window of (batch..., space..., channels); NaN if there is one.

    window_shape, strides (default 1): an integer for each spatial dimension; padding: 'VALID', 'SAME', 'SAME_LOWER' or
    (low, high) pairs for these; padding is never selected. Raises ShapeError, AttributeValueError.

    >>> hl.nn.max_pool(hnp.arange(4.0).reshape(1, 4, 1), (2,), strides=(2,)).ravel()
    Array([1., 3.], dtype=float32)
    """
    return reduce_window_max(*_arguments("max_pool", inputs, window_shape, strides, padding))


def min_pool(inputs, window_shape, strides=None, padding="VALID"):
    """The smallest element of each window; arguments and errors as in `max_pool`.

    >>> hl.nn.min_pool(hnp.arange(4.0).reshape(1, 4, 1), (2,), strides=(2,)).ravel()
    Array([0., 2.], dtype=float32)
    """
    return reduce_window_min(*_arguments("min_pool", inputs, window_shape, strides, padding))


def avg_pool(inputs, window_shape, strides=None, padding="VALID", count_include_pad: bool = True):
    """The mean of each window; arguments and errors as in `max_pool`.

    count_include_pad: padding counts as zeros; otherwise it is excluded from the mean.

    >>> hl.nn.avg_pool(hnp.arange(4.0).reshape(1, 4, 1), (2,), strides=(2,)).ravel()
    Array([0.5, 2.5], dtype=float32)
    """
    x, window, steps, pads = _arguments("avg_pool", to_inexact(inputs, "avg_pool"), window_shape, strides, padding)
    total = reduce_window_sum(x, window, steps, pads)
    if count_include_pad:
        count = 1
        for size in window:
            count *= size
        return lax.div(total, full(count, total.dtype, total.shape))
    lead = x.ndim - len(window_shape if not isinstance(window_shape, int) else (window_shape,)) - 1
    ones = full(1, x.dtype, (*[1] * lead, *x.shape[lead:-1], 1))
    count = reduce_window_sum(ones, window, steps, pads)
    return lax.div(total, lax.broadcast_in_dim(lax.reshape(count, count.shape[lead:-1]), total.shape,
                                               tuple(range(lead, x.ndim - 1))))  # fmt: skip


def pool(inputs, init, reduce_fn, window_shape, strides, padding):
    """Each window reduced by reduce_fn(accumulator, element) from init; arguments and errors as in `max_pool`.

    >>> x = hnp.arange(4.0).reshape(1, 4, 1)
    >>> hl.nn.pool(x, 0.0, hl.lax.add, (2,), (2,), "VALID").ravel()
    Array([1., 5.], dtype=float32)
    """
    x, window, steps, pads = _arguments("pool", inputs, window_shape, strides, padding)
    return lax.reduce_window(x, init, reduce_fn, window, steps, pads)
