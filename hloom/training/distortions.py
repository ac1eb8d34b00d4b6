"""Random distortions of images for training, drawn independently for each image of a batch.

    def loss(model, batch):
        images = batch["image"]
        if nn.is_training():                 # in a step of `train_step`, not in evaluation
            images = distortions.random_flip_left_right(nn.draw_key(), images)

Images are floats (..., height, width, channels), colours (red, green, blue) between 0 and 1. The functions can be
compiled; the same key makes the same changes. They have TensorFlow's names and definitions.
"""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom import random
from hloom.errors import ArgumentError, ShapeError
from hloom.lax.operands import to_inexact


def _images(images, name: str, channels: int | None = None):
    images = to_inexact(images, name)
    if images.ndim < 3 or (channels is not None and images.shape[-1] != channels):
        raise ShapeError(
            f"{name} takes images (..., height, width, {channels or 'channels'})",
            repr(images._shape),
            "add the dimension of channels",
        )
    return images


def _each(images) -> tuple[int, ...]:
    """The shape of one number for each image."""
    return (*images.shape[:-3], 1, 1, 1)


def _between(key, images, lower: float, upper: float, name: str):
    if not lower <= upper:
        raise ArgumentError(f"{name} draws from an interval", f"{lower} to {upper}", "pass the lower end first")
    return random.uniform(key, _each(images), minval=lower, maxval=upper).astype(images.dtype)


def random_flip_left_right(key, images):
    """Mirrored or not, with equal chances.

    >>> images = hnp.ones((8, 32, 32, 3))
    >>> hl.training.distortions.random_flip_left_right(hl.random.key(0), images).shape
    (8, 32, 32, 3)
    """
    images = _images(images, "random_flip_left_right")
    return hnp.where(random.bernoulli(key, 0.5, _each(images)), images[..., ::-1, :], images)


def random_crop(key, images, size: tuple[int, int]):
    """Crops of (height, width) at random positions: (..., *size, channels). Raises ShapeError for a larger size."""
    images = _images(images, "random_crop")
    *lead, height, width, channels = images.shape
    rows, columns = size
    if not (0 < rows <= height and 0 < columns <= width):
        raise ShapeError(
            "random_crop cuts out a part of an image", f"{size} of {height} x {width}", "resize or pad the images first"
        )
    flat = hnp.reshape(images, (math.prod(lead), height, width, channels))
    first, second = random.split(key)
    count = flat.shape[0]
    top = random.randint(first, (count, 1), 0, height - rows + 1) + hnp.arange(rows)
    left = random.randint(second, (count, 1), 0, width - columns + 1) + hnp.arange(columns)
    parts = flat[hnp.arange(count)[:, None, None], top[:, :, None], left[:, None, :]]
    return hnp.reshape(parts, (*lead, rows, columns, channels))


def random_brightness(key, images, max_delta: float):
    """A number between -max_delta and max_delta added."""
    images = _images(images, "random_brightness")
    return images + _between(key, images, -max_delta, max_delta, "random_brightness")


def random_contrast(key, images, lower: float, upper: float):
    """The distance to each channel's mean times a factor between lower and upper."""
    images = _images(images, "random_contrast")
    mean = hnp.mean(images, axis=(-3, -2), keepdims=True)
    return (images - mean) * _between(key, images, lower, upper, "random_contrast") + mean


def random_saturation(key, images, lower: float, upper: float):
    """The saturation (of hue, saturation and value) times a factor between lower and upper, at most 1."""
    images = _images(images, "random_saturation", 3)
    factor = _between(key, images, lower, upper, "random_saturation")
    value = hnp.max(images, axis=-1, keepdims=True)
    spread = value - hnp.min(images, axis=-1, keepdims=True)
    most = value / hnp.where(spread == 0, 1, spread)  # the factor of saturation 1
    return value - (value - images) * hnp.where(spread == 0, 1, hnp.minimum(factor, most))


def random_hue(key, images, max_delta: float):
    """The hue turned by a part between -max_delta and max_delta of the circle; max_delta is at most 0.5."""
    images = _images(images, "random_hue", 3)
    if not 0 <= max_delta <= 0.5:
        raise ArgumentError("random_hue turns by at most half of the circle", f"{max_delta}", "pass 0 to 0.5")
    turn = _between(key, images, -max_delta, max_delta, "random_hue")[..., 0]
    red, green, blue = images[..., 0], images[..., 1], images[..., 2]
    value, low = hnp.max(images, axis=-1), hnp.min(images, axis=-1)
    spread = value - low
    divisor = hnp.where(spread == 0, 1, spread)
    sixths = hnp.where(
        value == red,
        (green - blue) / divisor,
        hnp.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    sixths = hnp.remainder(sixths + 6 * turn, 6)

    def channel(shift: float):
        """A colour is low + spread * (a trapezoid of the hue's distance to it)."""
        near = hnp.abs(hnp.remainder(sixths - shift + 3, 6) - 3)
        return low + spread * hnp.clip(2 - near, 0, 1)

    return hnp.stack([channel(0.0), channel(2.0), channel(4.0)], axis=-1)


def per_image_standardization(images):
    """(x - mean) / max(deviation, 1 / sqrt(elements)) of each image.

    >>> x = hl.training.distortions.per_image_standardization(hl.random.normal(hl.random.key(0), (2, 8, 8, 3)))
    >>> x.shape
    (2, 8, 8, 3)
    """
    images = _images(images, "per_image_standardization")
    axes = (-3, -2, -1)
    centred = images - hnp.mean(images, axis=axes, keepdims=True)
    deviation = hnp.sqrt(hnp.mean(centred**2, axis=axes, keepdims=True))
    return centred / hnp.maximum(deviation, 1 / math.sqrt(math.prod(images.shape[-3:])))


__all__ = [
    "per_image_standardization", "random_brightness", "random_contrast", "random_crop", "random_flip_left_right",
    "random_hue", "random_saturation",
]  # fmt: skip
__dir__ = __all__.copy
