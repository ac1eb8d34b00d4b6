"""convolve and correlate: sums of products of shifted sequences, through the convolution op."""

from __future__ import annotations

from hloom import lax
from hloom.errors import AttributeValueError, ShapeError
from hloom.lax.linear.convolution import conv_general_dilated
from hloom.lax.operands import as_operand, inexact_dtype, promote_operands, reshape_to

MODES = ("full", "same", "valid")


def mode_padding(mode: str, size: int, name: str) -> tuple[int, int]:
    """The (low, high) padding for a window of `size` elements in a mode. Raises
    AttributeValueError."""
    if mode == "full":
        return size - 1, size - 1
    if mode == "same":
        return size // 2, size - 1 - size // 2
    if mode != "valid":
        raise AttributeValueError(f"{name} takes mode 'full', 'same' or 'valid'", f"{mode!r}", "name one of them")
    return 0, 0


def slide(x, window, pads, preferred_element_type=None):
    """The sum of window * (covered elements) at each position of x; all have the same rank."""
    rank = x.ndim
    left, right = reshape_to(x, (1, 1, *x.shape)), reshape_to(window, (1, 1, *window.shape))
    made = conv_general_dilated(left, right, (1,) * rank, list(pads), preferred_element_type=preferred_element_type)
    return reshape_to(made, made.shape[2:])


def _sequences(name: str, a, v):
    # Integers become floats, as in JAX.
    given = [as_operand(a, name), as_operand(v, name)]
    (x, y), _ = promote_operands(name, given, inexact_dtype, broadcast=False)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(
            f"{name} takes one-dimensional arrays",
            f"{x._shape!r} and {y._shape!r}",
            f"use hloom.scipy.signal.{name} for more dimensions",
        )
    if not x.shape[0] or not y.shape[0]:
        raise ShapeError(
            f"{name} takes sequences of at least one element",
            f"{x._shape!r} and {y._shape!r}",
            "leave out empty sequences",
        )
    return x, y


def convolve(a, v, mode: str = "full", *, precision=None, preferred_element_type=None):
    """The convolution of two sequences: the sum over k of a[k] v[n - k].

    mode: 'full' (all M + N - 1 overlapping positions), 'same' (the central max(M, N) of them), 'valid' (complete
    overlap). Raises ShapeError, AttributeValueError.

    >>> hnp.convolve(hnp.array([1.0, 2.0, 3.0]), hnp.array([0.0, 1.0, 0.5]))
    Array([0. , 1. , 2.5, 4. , 1.5], dtype=float32)
    """
    x, y = _sequences("convolve", a, v)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    pads = mode_padding(mode, y.shape[0], "convolve")
    return slide(x, lax.rev(y, (0,)), [pads], preferred_element_type)


def correlate(a, v, mode: str = "valid", *, precision=None, preferred_element_type=None):
    """The correlation of two sequences: the sum over k of a[n + k] times the conjugate of v[k].

    mode: as in `convolve`. Raises ShapeError, AttributeValueError.

    >>> hnp.correlate(hnp.array([1.0, 2.0, 3.0]), hnp.array([0.0, 1.0, 0.5]), mode="same")
    Array([2. , 3.5, 3. ], dtype=float32)
    """
    x, y = _sequences("correlate", a, v)
    y = lax.conj(y) if y.dtype.kind == "c" else y
    if x.shape[0] >= y.shape[0]:
        return slide(x, y, [mode_padding(mode, y.shape[0], "correlate")], preferred_element_type)
    # The shorter one slides, which reverses the result.
    pads = mode_padding(mode, x.shape[0], "correlate")
    return lax.rev(slide(y, x, [pads], preferred_element_type), (0,))
