"""Fourier transforms with `numpy.fft`'s and `jax.numpy.fft`'s names: also the Array API's extension `fft`.

Computed in the precision of the operand: f32 and c64 in single, f64 and c128 in double. Any number of axes is
supported; more than three are transformed three at a time.
"""

from __future__ import annotations

import math

from hloom import lax
from hloom.arrays.promotion import default_float
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import COMPLEX, DTYPES, INEXACT, NARROW_FLOATS, as_dtype
from hloom.lax.operands import as_operand, canonical_axes, canonical_axis, convert, inexact_dtype, whole_number
from hloom.lax.table import docstring, documented
from hloom.lax.transfer import device_put
from hloom.numpy.creation import asarray
from hloom.numpy.shaping.rearrangement import roll

__all__ = (
    "fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn"
).split()
__dir__ = __all__.copy

_NORMS = (None, "backward", "ortho", "forward")


def _read(a, name: str, is_complex: bool):
    """The operand as floats or complex numbers with 32 or 64 bits per part."""
    x = as_operand(a, name)
    dtype = x.dtype
    if dtype not in INEXACT:
        dtype = inexact_dtype(dtype)
    if dtype in NARROW_FLOATS:
        dtype = DTYPES["f32"]
    if is_complex and dtype not in COMPLEX:
        dtype = DTYPES["c64" if dtype == DTYPES["f32"] else "c128"]
    if not is_complex and dtype in COMPLEX:
        raise DTypeError(f"{name} takes real elements", f"{x._shape!r}", "use fft, or take .real first")
    return convert(x, dtype)


def _axes_and_lengths(name: str, x, s, axes):
    if s is not None:
        s = [whole_number(n, name, "length") for n in s]
    if axes is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise ShapeError(f"{name} over {count} axes", f"{x._shape!r}", "give no more lengths than there are axes")
        found = tuple(range(x.ndim - count, x.ndim))
    else:
        found = canonical_axes(tuple(axes), x.ndim, name)
    if s is not None and len(s) != len(found):
        raise ShapeError(
            f"{name} takes a length for each axis", f"{s} for axes {found}", "give as many lengths as axes"
        )
    return s, found


def _transform(name: str, a, s, axes, norm, kind: str):
    """kind: 'FFT', 'IFFT', 'RFFT' or 'IRFFT' over the axes, the last of which is the real one."""
    x = _read(a, name, kind != "RFFT")
    if norm not in _NORMS:
        raise ArgumentError(f"{name} takes norm 'backward', 'ortho' or 'forward'", f"{norm!r}", "choose one of them")
    s, axes = _axes_and_lengths(name, x, s, axes)
    if not axes:
        if kind in ("RFFT", "IRFFT"):
            raise ShapeError(f"{name} takes one axis or more", f"{x._shape!r}", "name an axis")
        return x
    lengths = list(s) if s is not None else [x.shape[k] for k in axes]
    if kind == "IRFFT" and s is None:
        lengths[-1] = 2 * (lengths[-1] - 1)
    if min(lengths) < 1:
        raise ShapeError(
            f"{name} takes one point or more along each axis",
            f"{lengths[lengths.index(min(lengths))]} points of {x._shape!r}",
            "give positive lengths",
        )
    order = [k for k in range(x.ndim) if k not in axes] + list(axes)
    x = lax.transpose(x, order)
    lead = x.ndim - len(axes)
    needed = list(lengths)
    if kind == "IRFFT":
        needed[-1] = lengths[-1] // 2 + 1
    x = _resized(x, lead, needed)
    x = _pieces(x, lead, tuple(lengths), kind)
    inverse = kind in ("IFFT", "IRFFT")
    if norm == "ortho":
        points = math.sqrt(math.prod(lengths))
        x = lax.mul(x, points if inverse else 1 / points)
    elif norm == "forward":
        points = math.prod(lengths)
        x = lax.mul(x, float(points) if inverse else 1 / points)
    return lax.transpose(x, [order.index(k) for k in range(x.ndim)])


def _resized(x, lead: int, lengths):
    """The last axes truncated or zero-padded to this shape."""
    widths = [(0, 0, 0)] * lead + [(0, n - d, 0) for n, d in zip(lengths, x.shape[lead:], strict=True)]
    if not any(w[1] for w in widths):
        return x
    return lax.pad(x, lax.full((), 0, x.dtype), widths)


def _pieces(x, lead: int, lengths, kind: str):
    """The transform over all last axes, at most three in one op: the op's real axis is the last."""
    count = len(lengths)
    if count <= 3:
        return lax.fft(x, kind, lengths)
    whole = {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)
    if kind != "IRFFT":
        x = lax.fft(x, kind, lengths[-3:])
    for start in range(0, count - 3, 3):
        part = list(range(lead + start, lead + min(start + 3, count - 3)))
        order = [k for k in range(x.ndim) if k not in part] + part
        moved = lax.fft(lax.transpose(x, order), whole, tuple(x.shape[k] for k in part))
        x = lax.transpose(moved, [order.index(k) for k in range(x.ndim)])
    return lax.fft(x, kind, lengths[-3:]) if kind == "IRFFT" else x


def _several(name: str, kind: str, text: str, printed: str):
    def function(a, s=None, axes=None, norm=None):
        return _transform(name, a, s, axes, norm, kind)

    return _documented(
        function,
        name,
        text,
        "s: lengths to which the axes are truncated or padded; axes: by default all.",
        "hnp.ones((4, 6))).shape",
        printed,
    )


def _two(name: str, kind: str, text: str, printed: str):
    def function(a, s=None, axes=(-2, -1), norm=None):
        if len(axes) != 2:
            raise ShapeError(f"{name} takes two axes", f"{tuple(axes)}", "use the function for any number of axes")
        return _transform(name, a, s, axes, norm, kind)

    return _documented(
        function,
        name,
        text,
        "s: lengths to which the two axes are truncated or padded.",
        "hnp.ones((4, 6))).shape",
        printed,
    )


def _one(name: str, kind: str, text: str, printed: str):
    def function(a, n=None, axis=-1, norm=None):
        if isinstance(axis, (tuple, list)):
            raise ArgumentError(f"{name} takes one axis", f"{axis!r}", "use the function for several axes")
        return _transform(name, a, None if n is None else (n,), (axis,), norm, kind)

    return _documented(
        function,
        name,
        text,
        "n: the length to which the axis is truncated or padded.",
        "hnp.array([1.0, 2.0, 4.0, 1.0])).real.round(3)",
        printed,
    )


def _documented(function, name: str, text: str, lengths: str, call: str, printed: str):
    text = (
        f"{text}\n\n{lengths}\nnorm: which transform is divided by the number of points: 'backward' (the default: the "
        "inverse), 'forward',\nor 'ortho' (both, by its square root). Raises ShapeError, DTypeError, ArgumentError."
    )
    return documented(function, name, docstring(text, (f"{{f}}({call}", printed), f"hnp.fft.{name}"))


_HALF = "of real values: the non-redundant half of the spectrum"
fft = _one("fft", "FFT", "The discrete Fourier transform along an axis.", "Array([ 8., -3.,  2., -3.], dtype=float32)")
ifft = _one(
    "ifft",
    "IFFT",
    "The inverse discrete Fourier transform along an axis.",
    "Array([ 2.  , -0.75,  0.5 , -0.75], dtype=float32)",
)
rfft = _one(
    "rfft",
    "RFFT",
    f"The discrete Fourier transform along an axis {_HALF}, n // 2 + 1 points.",
    "Array([ 8., -3.,  2.], dtype=float32)",
)
irfft = _one(
    "irfft",
    "IRFFT",
    "The inverse of rfft: n real points, by default 2 (m - 1) of m.",
    "Array([ 2.333, -0.333, -0.667,  0.667, -0.667, -0.333], dtype=float32)",
)
fft2 = _two("fft2", "FFT", "The discrete Fourier transform over two axes.", "(4, 6)")
ifft2 = _two("ifft2", "IFFT", "The inverse discrete Fourier transform over two axes.", "(4, 6)")
rfft2 = _two("rfft2", "RFFT", f"The discrete Fourier transform over two axes {_HALF} of the last one.", "(4, 4)")
irfft2 = _two("irfft2", "IRFFT", "The inverse of rfft2.", "(4, 10)")
fftn = _several("fftn", "FFT", "The discrete Fourier transform over several axes.", "(4, 6)")
ifftn = _several("ifftn", "IFFT", "The inverse discrete Fourier transform over several axes.", "(4, 6)")
rfftn = _several(
    "rfftn", "RFFT", f"The discrete Fourier transform over several axes {_HALF} of the last one.", "(4, 4)"
)
irfftn = _several("irfftn", "IRFFT", "The inverse of rfftn.", "(4, 10)")

_OTHER = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _other_norm(name: str, norm):
    if norm not in _OTHER:
        raise ArgumentError(f"{name} takes norm 'backward', 'ortho' or 'forward'", f"{norm!r}", "choose one of them")
    return _OTHER[norm]


def hfft(a, n=None, axis: int = -1, norm=None):
    """The transform of a signal with Hermitian symmetry, given its first half a: n real points.

    Arguments and errors as for `irfft`; norm scales as for a forward transform.

    >>> hnp.fft.hfft(hnp.array([1.0, 2.0, 4.0])).round(3)
    Array([ 9., -3.,  1., -3.], dtype=float32)
    """
    x = _read(a, "hfft", True)
    return irfft(lax.conj(x), n, axis, _other_norm("hfft", norm))


def ihfft(a, n=None, axis: int = -1, norm=None):
    """The inverse of hfft: the first half, n // 2 + 1 points, of the inverse transform of n real points.

    >>> hnp.fft.ihfft(hnp.array([1.0, 2.0, 4.0, 2.0])).real.round(3)
    Array([ 2.25, -0.75,  0.25], dtype=float32)
    """
    other = _other_norm("ihfft", norm)
    half = rfft(a, n, axis)
    points = as_operand(a, "ihfft").shape[axis] if n is None else n
    # Scaled after conjugation, as complex numbers, so that zeros have the same signs as in JAX.
    scale = {"forward": 1 / points, "ortho": 1 / math.sqrt(points), "backward": None}[other]
    return lax.conj(half) if scale is None else lax.mul(lax.conj(half), scale)


# --- frequencies and order ----------------------------------------------------------------------------------------


def _frequencies(name: str, n, d, dtype, device, counts):
    size = whole_number(n, name, "number of points")
    if size == 0:
        raise ArgumentError(f"{name} takes a number of points that is not 0", "0", "pass the length of the signal")
    dtype = as_dtype(default_float() if dtype is None else dtype)
    if dtype not in (DTYPES["f32"], DTYPES["f64"]) and dtype not in NARROW_FLOATS:
        raise DTypeError(f"{name} makes real frequencies", f"{dtype}", "pass a float dtype")
    steps = asarray(counts(size), dtype=dtype)
    result = steps / (asarray(d, dtype=dtype) * size)
    if device is not None:
        result = device_put(result, device)
    return result


def fftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """The n frequencies of `fft`, in cycles per unit of the spacing d: 0, 1, ..., -1 over n d. Raises ArgumentError.

    >>> hnp.fft.fftfreq(4, d=0.5)
    Array([ 0. ,  0.5, -1. , -0.5], dtype=float32)
    """
    return _frequencies("fftfreq", n, d, dtype, device, lambda n: [*range((n - 1) // 2 + 1), *range(-(n // 2), 0)])


def rfftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """The n // 2 + 1 frequencies of `rfft`, in cycles per unit of the spacing d. Raises ArgumentError.

    >>> hnp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    return _frequencies("rfftfreq", n, d, dtype, device, lambda n: list(range(n // 2 + 1)))


def _shifted(name: str, x, axes, amount):
    x = as_operand(x, name)
    if axes is None:
        axes = tuple(range(x.ndim))
    axes = (canonical_axis(axes, x.ndim, name),) if isinstance(axes, int) else canonical_axes(tuple(axes), x.ndim, name)
    return roll(x, tuple(amount(x.shape[k]) for k in axes), axes)


def fftshift(x, axes=None):
    """Frequency 0 moved to the middle of the axes (by default all). Raises ShapeError.

    >>> hnp.fft.fftshift(hnp.array([0, 1, 2, -2, -1]))
    Array([-2, -1,  0,  1,  2], dtype=int32)
    """
    return _shifted("fftshift", x, axes, lambda n: n // 2)


def ifftshift(x, axes=None):
    """The inverse of fftshift. Raises ShapeError.

    >>> hnp.fft.ifftshift(hnp.array([-2, -1, 0, 1, 2]))
    Array([ 0,  1,  2, -2, -1], dtype=int32)
    """
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))
