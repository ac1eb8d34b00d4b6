"""Images resized and resampled, with `jax.image`'s names.

Each spatial dimension is multiplied by a matrix of weights: a kernel (Keys 1981 for cubic, Duchon 1979 for Lanczos)
around each sample of the result, widened where the image shrinks if `antialias`, and normalized.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

import hloom.numpy as hnp
from hloom.errors import AttributeValueError, ShapeError
from hloom.ir.types import FLOATS
from hloom.lax.operands import as_operand, canonical_axis, canonical_shape, to_inexact

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
__dir__ = __all__.copy


class ResizeMethod(enum.Enum):
    """How `resize` and `scale_and_translate` interpolate. LINEAR includes bilinear and trilinear, CUBIC bicubic."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name such as 'bilinear'. Raises AttributeValueError."""
        found = _NAMES.get(s)
        if found is None:
            raise AttributeValueError(
                f"the resize method '{s}'", f"the methods are {', '.join(_NAMES)}", "name one of them"
            )
        return found


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    "linear": ResizeMethod.LINEAR,
    "bilinear": ResizeMethod.LINEAR,
    "trilinear": ResizeMethod.LINEAR,
    "triangle": ResizeMethod.LINEAR,
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    "cubic": ResizeMethod.CUBIC,
    "bicubic": ResizeMethod.CUBIC,
    "tricubic": ResizeMethod.CUBIC,
    "cubic-pytorch": ResizeMethod.CUBIC_PYTORCH,
    "bicubic-pytorch": ResizeMethod.CUBIC_PYTORCH,
}


def _triangle(x):
    return hnp.maximum(0, 1 - hnp.abs(x))


def _keys(sharpness: float):
    def kernel(x):
        a = sharpness
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return hnp.where(x >= 2, 0, hnp.where(x >= 1, far, near))

    return kernel


def _lanczos(radius: float):
    def kernel(x):
        product = np.pi * x
        y = radius * hnp.sin(product) * hnp.sin(product / radius)
        # Near zero the quotient is 1 up to the square of x.
        close = x < 1e-3
        value = hnp.where(close, 1, y / hnp.where(close, 1, np.pi**2 * x * x))
        return hnp.where(x > radius, 0, value)

    return kernel


_KERNELS = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _keys(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _keys(-0.75),
}


def _weights(source: int, target: int, scale, translation, method: ResizeMethod, antialias: bool):
    """The matrix [source, target]: how much of each element of the image is in each of the result."""
    inverse = 1 / scale
    wide = hnp.maximum(inverse, 1) if antialias else 1
    samples = (hnp.arange(target, dtype=scale.dtype) + 0.5) * inverse - translation * inverse - 0.5
    distance = hnp.abs(samples[None, :] - hnp.arange(source, dtype=scale.dtype)[:, None]) / wide
    weights = _KERNELS[method](distance)
    total = hnp.sum(weights, axis=0, keepdims=True)
    # Where the kernel has nothing of the image beneath it there is no sum to divide by.
    enough = hnp.abs(total) > 1000 * float(np.finfo(np.float32).eps)
    weights = hnp.where(enough, weights / hnp.where(total == 0, 1, total), 0)
    inside = (samples >= -0.5) & (samples <= source - 0.5)
    return hnp.where(inside[None, :], weights, 0)


def _method(method) -> ResizeMethod:
    return method if isinstance(method, ResizeMethod) else ResizeMethod.from_string(method)


def _resampled(x, shape, spatial, scales, translations, method: ResizeMethod, antialias: bool):
    compute = x.dtype if x.dtype in FLOATS and x.dtype.itemsize >= 4 else np.dtype(np.float32)
    dtype = x.dtype
    x = x.astype(compute)
    for k, d in enumerate(spatial):
        weights = _weights(
            x.shape[d], shape[d], hnp.asarray(scales[k]).astype(compute), hnp.asarray(translations[k]).astype(compute),
            method, antialias,
        )  # fmt: skip
        x = hnp.moveaxis(hnp.tensordot(x, weights, axes=((d,), (0,))), -1, d)
    return x.astype(dtype)


def scale_and_translate(
    image, shape, spatial_dims: Sequence[int], scale, translation, method, antialias: bool = True, precision=None
):
    """An image scaled and moved: pixel x of the image goes to (x + 0.5) * scale + translation - 0.5 of the result.

    shape: the shape of the result, that of the image except in spatial_dims. scale, translation: a number for each of
    spatial_dims, which may be traced. method: a ResizeMethod or its name, not 'nearest'. antialias: the kernel is
    widened where the image shrinks. Samples outside of the image are 0. Raises ShapeError, AttributeValueError.

    >>> moved = hl.image.scale_and_translate(hnp.ones((4, 4)), (4, 4), (0,), hnp.ones(1), hnp.ones(1), "linear")
    >>> moved[:, 0]
    Array([0., 1., 1., 1.], dtype=float32)
    """
    x = to_inexact(image, "scale_and_translate")
    shape = canonical_shape(shape, "scale_and_translate")
    if len(shape) != x.ndim:
        raise ShapeError(
            "scale_and_translate takes a shape of the image's rank", f"{shape} for {x._shape!r}", "name every dimension"
        )
    method = _method(method)
    if method == ResizeMethod.NEAREST:
        raise AttributeValueError(
            "scale_and_translate interpolates", "method 'nearest'", "use resize, or another method"
        )
    spatial = [canonical_axis(d, x.ndim, "scale_and_translate") for d in spatial_dims]
    scales, translations = hnp.atleast_1d(hnp.asarray(scale)), hnp.atleast_1d(hnp.asarray(translation))
    if len(set(spatial)) != len(spatial) or scales.shape != (len(spatial),) or translations.shape != (len(spatial),):
        raise ShapeError(
            "scale_and_translate takes distinct spatial_dims, and a scale and a translation for each",
            f"spatial_dims {tuple(spatial_dims)}, scale {scales.shape}, translation {translations.shape}",
            "pass vectors with an element for each of spatial_dims",
        )
    for d in range(x.ndim):
        if d not in spatial and shape[d] != x.shape[d]:
            raise ShapeError(
                "scale_and_translate keeps the dimensions that are not in spatial_dims",
                f"dimension {d} is {x.shape[d]}, requested {shape[d]}",
                "name it in spatial_dims",
            )
    return _resampled(x, shape, spatial, scales, translations, method, antialias)


def resize(image, shape, method, antialias: bool = True, precision=None):
    """The image with this shape; dimensions that keep their size are not resampled.

    method: a ResizeMethod or its name: 'nearest', 'linear' ('bilinear', 'trilinear', 'triangle'), 'cubic' ('bicubic',
    'tricubic'), 'lanczos3', 'lanczos5', 'cubic-pytorch' ('bicubic-pytorch'). antialias: kernels are widened where the
    image shrinks. Integers are converted to float32, but by 'nearest'. Raises ShapeError, AttributeValueError.

    >>> hl.image.resize(hnp.array([[0.0, 4.0]]), (1, 4), "linear")
    Array([[0., 1., 3., 4.]], dtype=float32)
    >>> hl.image.resize(hnp.zeros((32, 32, 3)), (16, 16, 3), hl.image.ResizeMethod.CUBIC).shape
    (16, 16, 3)
    """
    x = as_operand(image, "resize")
    shape = canonical_shape(shape, "resize")
    if len(shape) != x.ndim:
        raise ShapeError(
            "resize takes a shape of the image's rank", f"{shape} for {x._shape!r}", "name every dimension"
        )
    method = _method(method)
    changed = [d for d in range(x.ndim) if shape[d] != x.shape[d]]
    if any(x.shape[d] == 0 for d in changed):
        raise ShapeError("resize takes an image with pixels", f"{x._shape!r} to {shape}", "pass a non-empty image")
    if method == ResizeMethod.NEAREST:
        for d in changed:
            nearest = (np.arange(shape[d], dtype=np.float32) + np.float32(0.5)) * np.float32(x.shape[d])
            nearest = np.floor(nearest / np.float32(shape[d])).astype(np.int32)
            x = hnp.take(x, hnp.asarray(nearest), axis=d)
        return x
    x = to_inexact(x, "resize")
    if method == ResizeMethod.CUBIC_PYTORCH:
        antialias = False  # PyTorch's has none
    scales = [1.0 if shape[d] == 0 else shape[d] / x.shape[d] for d in changed]
    return _resampled(x, shape, changed, scales, [0.0] * len(changed), method, antialias)
