"""Discrete cosine transforms with `scipy.fft`'s and `jax.scipy.fft`'s names, from the Fourier transform.

Source: J. Makhoul, "A fast cosine transform in one and two dimensions" (1980): type 2 of n points is one transform of
n points in another order, turned by quarter-wave phases.
"""

from __future__ import annotations

import math

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import COMPLEX
from hloom.lax.operands import canonical_axes, canonical_axis, whole_number
from hloom.numpy.fft import _read

__all__ = ["dct", "dctn", "idct", "idctn"]
__dir__ = __all__.copy


def _checked(name: str, x, type_: int, norm):
    if type_ not in (1, 2, 3, 4):
        raise ArgumentError(f"{name} takes type 1, 2, 3 or 4", f"{type_!r}", "2 is the usual one")
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(f"{name} takes norm 'backward', 'ortho' or 'forward'", f"{norm!r}", "choose one of them")
    x = hnp.asarray(x)
    if x.dtype in COMPLEX:
        raise DTypeError(f"{name} takes real elements", f"{x._shape!r}", "transform real and imaginary part each")
    return _read(x, name, False)


def _resized(name: str, x, n, axis: int):
    if n is None:
        n = x.shape[axis]
    n = whole_number(n, name, "length")
    if n < 1:
        raise ShapeError(f"{name} takes one point or more", f"{n}", "give a positive length")
    have = x.shape[axis]
    if n < have:
        return lax.slice_in_dim(x, 0, n, axis=axis)
    widths = [(0, 0, 0)] * x.ndim
    widths[axis] = (0, n - have, 0)
    return lax.pad(x, lax.full((), 0, x.dtype), widths) if n > have else x


def _even_odd_order(n: int):
    """The permutation 0, 2, 4, ..., 5, 3, 1."""
    return np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)[::-1]]).astype(np.int32)


def _phases(n: int, dtype, sign: int):
    whole = np.exp(sign * 0.5j * np.pi * np.arange(n) / n)
    return hnp.asarray(whole.astype(np.complex64 if dtype == np.float32 else np.complex128))


def _type2(x):
    """2 sum_j x_j cos(pi k (2 j + 1) / (2 n)) along the last axis."""
    n = x.shape[-1]
    turned = hnp.fft.fft(hnp.take(x, _even_odd_order(n), axis=-1))
    return 2 * hnp.real(turned * _phases(n, x.dtype, -1))


def _type3(x):
    """x_0 + 2 sum_j x_j cos(pi j (2 k + 1) / (2 n)) along the last axis: the transposed type 2."""
    n = x.shape[-1]
    reverse = hnp.concatenate([lax.full_like(x[..., :1], 0), hnp.flip(x[..., 1:], -1)], axis=-1)
    spectrum = lax.complex(x, -reverse) * _phases(n, x.dtype, 1)
    points = hnp.real(hnp.fft.ifft(spectrum)) * n
    return hnp.take(points, np.argsort(_even_odd_order(n)).astype(np.int32), axis=-1)


def _type1(x):
    """x_0 + (-1)^k x_(n - 1) + 2 sum of the others cos(pi j k / (n - 1)): the transform of the even extension."""
    n = x.shape[-1]
    if n < 2:
        raise ShapeError("a cosine transform of type 1 takes two points or more", f"{n}", "use type 2")
    return hnp.real(hnp.fft.rfft(hnp.concatenate([x, hnp.flip(x[..., 1:-1], -1)], axis=-1)))


def _type4(x):
    """2 sum_j x_j cos(pi (2 k + 1) (2 j + 1) / (4 n)): every other point of a type 2 of twice the length."""
    n = x.shape[-1]
    k = np.arange(n)
    phases = np.exp(-0.25j * np.pi * (2 * k + 1) / n)
    phases = hnp.asarray(phases.astype(np.complex64 if x.dtype == np.float32 else np.complex128))
    turned = x * hnp.asarray(np.exp(-0.5j * np.pi * k / n).astype(phases.dtype))
    padded = hnp.concatenate([turned, lax.full_like(turned, 0)], axis=-1)
    return 2 * hnp.real(phases * hnp.fft.fft(padded)[..., :n])


def _scaled(x, type_: int, forward: bool, norm, function):
    """One transform along the last axis, with norm. SciPy's conventions: 'ortho' makes each type orthogonal."""
    n = x.shape[-1]
    points = 2 * (n - 1) if type_ == 1 else 2 * n
    if norm == "ortho":
        if type_ == 1:
            x = x * _ends(n, x.dtype, math.sqrt(2), both=True)
            return function(x) * _ends(n, x.dtype, math.sqrt(0.5), both=True) / math.sqrt(points)
        if type_ == 2:
            return function(x) * _ends(n, x.dtype, math.sqrt(0.5)) / math.sqrt(points)
        if type_ == 3:
            return function(x * _ends(n, x.dtype, math.sqrt(2))) / math.sqrt(points)
        return function(x) / math.sqrt(points)
    scaled = norm == "forward" if forward else norm != "forward"
    return function(x) / points if scaled else function(x)


def _ends(n: int, dtype, value: float, both: bool = False):
    scale = np.ones(n)
    scale[0] = value
    if both:
        scale[-1] = value
    return hnp.asarray(scale.astype(dtype))


_FUNCTIONS = {1: _type1, 2: _type2, 3: _type3, 4: _type4}
_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def _along(name: str, x, type_: int, n, axis, norm, forward: bool):
    axis = canonical_axis(axis, x.ndim, name)
    x = hnp.moveaxis(_resized(name, x, n, axis), axis, -1)
    used = type_ if forward else _INVERSE[type_]
    return hnp.moveaxis(_scaled(x, used, forward, norm, _FUNCTIONS[used]), -1, axis)


def dct(x, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The discrete cosine transform of type 1 to 4 along an axis.

    n: the length to which the axis is cut or filled with zeros. norm: None, 'ortho' or 'forward', as in SciPy.
    Raises ShapeError, ArgumentError, DTypeError.

    >>> hl.scipy.fft.dct(hnp.ones(4))[0].round(3)
    Array(8., dtype=float32)
    """
    return _along("dct", _checked("dct", x, type, norm), type, n, axis, norm, True)


def idct(x, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The inverse of `dct` with the same arguments. Raises ShapeError, ArgumentError, DTypeError.

    >>> hl.scipy.fft.idct(hl.scipy.fft.dct(hnp.array([1.0, 2.0]))).round(3)
    Array([1., 2.], dtype=float32)
    """
    return _along("idct", _checked("idct", x, type, norm), type, n, axis, norm, False)


def _several(name: str, x, type_: int, s, axes, norm, forward: bool):
    x = _checked(name, x, type_, norm)
    if axes is None:
        count = x.ndim if s is None else len(s)
        axes = tuple(range(x.ndim - count, x.ndim))
    axes = canonical_axes(axes if isinstance(axes, int) else tuple(axes), x.ndim, name)
    if s is not None and len(s) != len(axes):
        raise ShapeError(f"{name} takes a length for each axis", f"{s} for axes {axes}", "give as many lengths as axes")
    for k, axis in enumerate(axes):
        x = _along(name, x, type_, None if s is None else s[k], axis, norm, forward)
    return x


def dctn(x, type: int = 2, s=None, axes=None, norm: str | None = None):
    """`dct` along several axes, by default all. s: their lengths. Raises ShapeError, ArgumentError, DTypeError.

    >>> hl.scipy.fft.dctn(hnp.ones((2, 2)))[0, 0].round(3)
    Array(16., dtype=float32)
    """
    return _several("dctn", x, type, s, axes, norm, True)


def idctn(x, type: int = 2, s=None, axes=None, norm: str | None = None):
    """The inverse of `dctn`. Raises ShapeError, ArgumentError, DTypeError."""
    return _several("idctn", x, type, s, axes, norm, False)
