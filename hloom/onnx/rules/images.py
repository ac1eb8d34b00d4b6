"""Resizing and sampling of images."""

from __future__ import annotations

import functools
import io
import itertools
import math
import operator
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.errors import UnsupportedError
from hloom.ir.sizes.expressions import Size, SizeExpression
from hloom.onnx.sizes import integers
from hloom.onnx.table import op


def _cubic(distance, a: float):
    """Keys' cubic kernel."""
    xp = np if isinstance(distance, np.ndarray) else hnp
    x = xp.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x <= 1, near, xp.where(x < 2, far, 0))


def _sources(mode: str, scale: float, size: int, length: int, roi) -> np.ndarray:
    """The position in the input of each of `size` outputs. length: of the input."""
    x = np.arange(size, dtype=np.float64)
    whole = scale * length
    if mode == "align_corners":
        return np.zeros(size) if whole == 1 else x * (length - 1) / (whole - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        inner = (end - start) * (length - 1)
        return start * (length - 1) + (inner / 2 + 0 * x if whole == 1 else x * inner / (whole - 1))
    if mode == "pytorch_half_pixel" and whole == 1:
        return np.full(size, -0.5)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    shift = length / 2 * (1 - size / whole) if mode == "half_pixel_symmetric" else 0
    return shift + (x + 0.5) / scale - 0.5


def _nearest(source, mode: str):
    xp = np if isinstance(source, np.ndarray) else hnp
    low = xp.floor(source)
    if mode == "floor":
        return low
    if mode == "ceil":
        return xp.ceil(source)
    half = source - low == 0.5
    return xp.where(half, low if mode == "round_prefer_floor" else low + 1, xp.floor(source + 0.5))


def _weights(source, length: int, scale: float, kind: str, a: float, antialias: int, exclude: int) -> np.ndarray:
    """The matrix (outputs, inputs) of an interpolation along one axis."""
    squeeze = min(scale, 1.0) if antialias else 1.0
    reach = (2 if kind == "cubic" else 1) / squeeze
    first = np.floor(source).astype(int)
    taps = np.arange(-math.ceil(reach), math.ceil(reach) + 2)
    places = first[:, None] + taps
    distance = (places - source[:, None]) * squeeze
    values = _cubic(distance, a) if kind == "cubic" else np.clip(1 - np.abs(distance), 0, None)
    if antialias:
        values = values / values.sum(1, keepdims=True)
    if exclude:
        values = np.where((places < 0) | (places >= length), 0, values)
        values = values / values.sum(1, keepdims=True)
    matrix = np.zeros((len(source), length))
    np.add.at(matrix, (np.arange(len(source))[:, None], np.clip(places, 0, length - 1)), values)
    return matrix


def resized(x, scales, sizes, roi, *, mode, transformation, nearest_mode="round_prefer_floor", a=-0.75, antialias=0,
            exclude=0, extrapolation=0.0):  # fmt: skip
    """x with axes of other sizes. scales, sizes: of all axes. Axes are interpolated one after the other."""
    rank = x.ndim
    outside = None
    y = x
    for axis in range(rank):
        length, size, scale = x.shape[axis], sizes[axis], scales[axis]
        region = (0.0, 1.0) if roi is None or len(roi) == 0 else (float(roi[axis]), float(roi[axis + rank]))
        if size == length and math.isclose(float(scale), 1) and region == (0, 1):
            continue
        is_open = isinstance(length, SizeExpression) or isinstance(size, SizeExpression)
        if is_open and transformation in _OPEN and not antialias and size > 1:
            y = _resized_open(y, axis, size, scale, mode, transformation, nearest_mode, a, exclude)
            continue
        length, size, scale = int(length), int(size), float(scale)  # matrices and positions are computed here
        source = _sources(transformation, scale, size, length, region)
        if mode == "nearest":
            places = np.clip(_nearest(source, nearest_mode), 0, length - 1).astype(np.int64)
            y = hnp.take(y, places, axis=axis)
        else:
            y = _along_axis(y, axis, _weights(source, length, scale, mode, a, antialias, exclude))
        if transformation == "tf_crop_and_resize":
            beyond = ((source < 0) | (source > length - 1)).reshape([-1 if k == axis else 1 for k in range(rank)])
            outside = beyond if outside is None else outside | beyond
    if outside is not None and outside.any():
        y = hnp.where(hnp.asarray(outside), np.asarray(extrapolation, y.dtype), y)
    return _in_dtype(y, np.dtype(x.dtype))


def _along_axis(y, axis: int, matrix: np.ndarray):
    """y with an axis multiplied by a matrix (new size, size), in f32 or f64."""
    wide = y if np.dtype(y.dtype).name in ("float32", "float64") else y.astype(np.float32)
    moved = hnp.matmul(hnp.moveaxis(wide, axis, -1), hnp.asarray(matrix.T.astype(wide.dtype)))
    return hnp.moveaxis(moved, -1, axis)


def _in_dtype(y, dtype: np.dtype):
    """y in a dtype; integers are truncated, and clipped to the range of the dtype."""
    if dtype.kind in "iu" and y.dtype != dtype:
        y = hnp.clip(hnp.trunc(y), hnp.iinfo(dtype).min, hnp.iinfo(dtype).max)
    return y.astype(dtype)


_OPEN = {
    "half_pixel": lambda x, scale, whole, length: (x + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda x, scale, whole, length: (x + 0.5) / scale - 0.5,
    "asymmetric": lambda x, scale, whole, length: x / scale,
    "align_corners": lambda x, scale, whole, length: x * (length - 1) / (whole - 1),
    "tf_half_pixel_for_nn": lambda x, scale, whole, length: (x + 0.5) / scale,
}  # as `_sources` has it, for more than one output


def _resized_open(x, axis: int, size, scale, mode: str, transformation: str, nearest_mode: str, a: float, exclude: int):
    """x with an axis resized from an open size: the program computes the positions of the outputs."""
    length = x.shape[axis]
    factor = hnp.full((), size, np.float64) / length if isinstance(scale, _Ratio) else scale
    whole = hnp.full((), length, np.float64) * factor
    source = _OPEN[transformation](hnp.arange(size, dtype=np.float64), factor, whole, length)
    if mode == "nearest":
        places = hnp.clip(_nearest(source, nearest_mode), 0, length - 1)
        return hnp.take(x, places.astype(np.int64), axis=axis)
    first = hnp.floor(source)
    along = [-1 if k == axis else 1 for k in range(x.ndim)]
    wide = x if np.dtype(x.dtype).name in ("float32", "float64") else x.astype(np.float32)
    taps = []
    for tap in (-1, 0, 1, 2) if mode == "cubic" else (0, 1):
        places = first + tap
        distance = places - source
        weights = _cubic(distance, a) if mode == "cubic" else 1 - hnp.abs(distance)
        if exclude:
            weights = hnp.where((places < 0) | (places >= length), 0, weights)
        taps.append((hnp.clip(places, 0, length - 1).astype(np.int64), weights))
    total = functools.reduce(operator.add, [weights for _, weights in taps]) if exclude else 1
    parts = [hnp.take(wide, at, axis=axis) * (w / total).astype(wide.dtype).reshape(along) for at, w in taps]
    return functools.reduce(operator.add, parts)


class _Ratio:
    """Of a new size to the old one, of which one is open."""

    def __init__(self, size, length):
        self.size, self.length = size, length

    def __float__(self) -> float:
        return int(self.size) / int(self.length)


def _ratio(size, length) -> float | _Ratio:
    if not isinstance(size, SizeExpression) and not isinstance(length, SizeExpression):
        return int(size) / int(length)
    return 1.0 if size == length else _Ratio(size, length)


def _scaled(length: Size, scale: float) -> Size:
    """A length times a factor, rounded down."""
    if not isinstance(length, SizeExpression):
        return math.floor(scale * length)
    times, parts = scale.as_integer_ratio()  # exact, as a product of a number of 24 bits with a length is
    return times * length // parts


def _settings(x, roi, scales, sizes, axes, policy: str):
    """(scales, sizes, roi) of all axes."""
    rank = x.ndim
    axes = [k % rank for k in axes] if axes else list(range(rank))
    full_roi = None
    if roi is not None and roi.size:
        full_roi = [0.0] * rank + [1.0] * rank
        for k, axis in enumerate(axes):
            full_roi[axis], full_roi[axis + rank] = float(roi[k]), float(roi[k + len(axes)])
    all_scales: list[float | _Ratio] = [1.0] * rank
    all_sizes = list(x.shape)
    if sizes is not None and sizes.size:
        ratios = [_ratio(s, x.shape[axis]) for s, axis in zip(sizes, axes, strict=True)]
        if policy != "stretch":
            ratios = [(min if policy == "not_larger" else max)(map(float, ratios))] * len(axes)
        for ratio, size, axis in zip(ratios, sizes, axes, strict=True):
            all_scales[axis] = ratio
            if policy != "stretch":
                all_sizes[axis] = int(float(ratio) * int(x.shape[axis]) + 0.5)
            elif ratio != 1:
                all_sizes[axis] = integers(size)[0]
    else:
        for scale, axis in zip(scales, axes, strict=True):
            all_scales[axis] = float(scale)
            all_sizes[axis] = _scaled(x.shape[axis], float(scale))
    return all_scales, all_sizes, full_roi


@op("Resize", since=10, static=(1,))
def resize10(x, scales, *, mode="nearest"):
    scales, sizes, _ = _settings(x, None, scales, None, None, "stretch")
    return resized(x, scales, sizes, None, mode=mode, transformation="asymmetric", nearest_mode="floor")


@op("Resize", since=11, static=(1, 2, 3))
def resize(x, roi=None, scales=None, sizes=None, *, antialias=0, axes=None, mode="nearest",
           coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0,
           extrapolation_value=0.0, keep_aspect_ratio_policy="stretch", nearest_mode="round_prefer_floor"):  # fmt: skip
    scales, sizes, roi = _settings(x, roi, scales, sizes, axes, keep_aspect_ratio_policy)
    return resized(x, scales, sizes, roi, mode=mode, transformation=coordinate_transformation_mode,
                   nearest_mode=nearest_mode, a=cubic_coeff_a, antialias=antialias, exclude=exclude_outside,
                   extrapolation=extrapolation_value)  # fmt: skip


@op("Upsample", since=7)
def upsample7(x, *, mode="nearest", scales):
    return resize10(x, np.asarray(scales, np.float32), mode=mode)


@op("Upsample", since=9, static=(1,))
def upsample9(x, scales, *, mode="nearest"):
    return resize10(x, scales, mode=mode)


# --- sampling at computed positions ----------------------------------------------------------------------------------


def _reflected(x, low: float, high: float):
    span = high - low
    if span == 0:
        return hnp.zeros_like(x)
    distance = hnp.remainder(hnp.abs(x - low), 2 * span)
    return hnp.where(distance > span, 2 * span - distance, distance) + low


def _samples(image, places, padding: str, corners: int):
    """image (N, C, *spatial) at integer positions (N, points) of each axis; (N, C, points)."""
    spatial = image.shape[2:]
    inside: Any = True
    flat: Any = 0
    for at, size in zip(places, spatial, strict=True):
        if padding == "reflection":
            at = _reflected(at, 0.0 if corners else -0.5, size - 1.0 if corners else size - 0.5)
        elif padding == "zeros":
            inside = inside & (at >= 0) & (at < size)
        flat = flat * size + hnp.clip(hnp.round(at), 0, size - 1).astype(np.int64)
    values = hnp.take_along_axis(hnp.reshape(image, (*image.shape[:2], -1)), flat[:, None], axis=2)
    return hnp.where(inside[:, None], values, hnp.zeros((), values.dtype)) if padding == "zeros" else values


@op("GridSample")
def grid_sample(x, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    """x (N, C, *spatial) at the positions of grid (N, *out, axes), whose last axis begins with the last axis of x."""
    rank = x.ndim - 2
    points = hnp.reshape(grid, (x.shape[0], -1, rank))
    at = []
    for k, size in enumerate(x.shape[2:]):
        p = points[..., rank - 1 - k]
        p = (p + 1) / 2 * (size - 1) if align_corners else ((p + 1) * size - 1) / 2
        if mode not in ("cubic", "bicubic"):
            if padding_mode == "border":
                p = hnp.clip(p, 0, size - 1)
            elif padding_mode == "reflection":
                p = _reflected(p, 0.0 if align_corners else -0.5, size - 1.0 if align_corners else size - 0.5)
        at.append(p)
    if mode == "nearest":
        y = _samples(x, [hnp.round(p) for p in at], padding_mode, align_corners)
    else:
        cubic = mode in ("cubic", "bicubic")
        low = [hnp.floor(p) for p in at]
        total = 0
        for taps in itertools.product(range(-1, 3) if cubic else range(2), repeat=rank):
            distances = [p - base - tap for p, base, tap in zip(at, low, taps, strict=True)]
            weight = functools.reduce(operator.mul, [_traced_cubic(d) if cubic else 1 - hnp.abs(d) for d in distances])
            places = [base + tap for base, tap in zip(low, taps, strict=True)]
            total = total + _samples(x, places, padding_mode, align_corners) * weight[:, None]
        y = total
    return hnp.reshape(y, (*x.shape[:2], *grid.shape[1:-1])).astype(x.dtype)


def _traced_cubic(distance):
    a = -0.75
    x = hnp.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return hnp.where(x <= 1, near, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)


def _roi_align(x, rois, batch, *, half_pixel: bool, mode, output_height, output_width, sampling_ratio, spatial_scale):
    """Means or maxima of bilinear samples in each cell of each region (He et al., 2017)."""
    height, width = x.shape[2:]
    scaled = np.asarray(rois, np.float64) * spatial_scale - (0.5 if half_pixel else 0)
    results = []
    for region, number in zip(scaled, integers(batch), strict=True):
        axes = []
        for start, end, cells, size in ((region[1], region[3], output_height, height),
                                        (region[0], region[2], output_width, width)):  # fmt: skip
            extent = end - start if half_pixel else max(end - start, 1.0)
            count = sampling_ratio if sampling_ratio > 0 else max(1, math.ceil(extent / cells))
            at = start + (np.arange(cells * count) + 0.5) * (extent / cells) / count
            beyond = (at < -1) | (at > size)
            at = np.clip(at, 0, size - 1)
            low = np.minimum(np.floor(at), size - 1).astype(int)
            high = np.minimum(low + 1, size - 1)
            axes.append((low, high, np.where(beyond, 0, 1 - (at - low)), np.where(beyond, 0, at - low), count))
        (y0, y1, wy0, wy1, ny), (x0, x1, wx0, wx1, nx) = axes
        image = hnp.asarray(x)[number]
        parts = [image[:, ys][:, :, xs] * hnp.asarray((wy[:, None] * wx).astype(x.dtype))
                 for ys, wy in ((y0, wy0), (y1, wy1)) for xs, wx in ((x0, wx0), (x1, wx1))]  # fmt: skip
        shape = (x.shape[1], output_height, ny, output_width, nx)
        if mode == "avg":
            results.append(hnp.mean(hnp.reshape(sum(parts), shape), axis=(2, 4)))
        else:
            best = hnp.max(hnp.stack(parts), axis=0)
            results.append(hnp.max(hnp.reshape(best, shape), axis=(2, 4)))
    if not results:
        return hnp.zeros((0, x.shape[1], output_height, output_width), x.dtype)
    return hnp.stack(results).astype(x.dtype)


@op("RoiAlign", since=10, static=(1, 2))
def roi_align10(x, rois, batch, *, mode="avg", output_height=1, output_width=1, sampling_ratio=0, spatial_scale=1.0):
    return _roi_align(x, rois, batch, half_pixel=False, mode=mode, output_height=output_height,
                      output_width=output_width, sampling_ratio=sampling_ratio,
                      spatial_scale=spatial_scale)  # fmt: skip


@op("RoiAlign", since=16, static=(1, 2))
def roi_align(x, rois, batch, *, coordinate_transformation_mode="half_pixel", mode="avg", output_height=1,
              output_width=1, sampling_ratio=0, spatial_scale=1.0):  # fmt: skip
    return _roi_align(x, rois, batch, half_pixel=coordinate_transformation_mode == "half_pixel", mode=mode,
                      output_height=output_height, output_width=output_width, sampling_ratio=sampling_ratio,
                      spatial_scale=spatial_scale)  # fmt: skip


@op("Col2Im", static=(1, 2))
def col2im(x, image, block, *, dilations=None, pads=None, strides=None):
    """Sums of overlapping blocks: the transpose of taking an image's blocks."""
    sizes, kernel = integers(image), integers(block)
    rank = len(sizes)
    dilations, strides, pads = dilations or (1,) * rank, strides or (1,) * rank, pads or (0,) * 2 * rank
    counts = [
        (s + pads[k] + pads[k + rank] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1
        for k, s in enumerate(sizes)
    ]
    columns = hnp.reshape(x, (x.shape[0], -1, *kernel, *counts))
    padded = [s + pads[k] + pads[k + rank] for k, s in enumerate(sizes)]
    grid = []
    for k in range(rank):
        at = np.arange(int(kernel[k]))[:, None] * dilations[k] + np.arange(counts[k]) * strides[k]
        shape = [1] * (2 * rank)
        shape[k], shape[k + rank] = at.shape
        grid.append(at.reshape(shape))
    total = hnp.zeros((*columns.shape[:2], *padded), x.dtype).at[(slice(None), slice(None), *grid)].add(columns)
    return total[(..., *(slice(pads[k], pads[k] + s) for k, s in enumerate(sizes)))]


@op("ImageDecoder", host=True)
def image_decoder(data, *, pixel_format="RGB"):
    try:
        # Optional: only models that decode images need it.
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            "the op ImageDecoder", str(error), "pip install pillow, or decode images before"
        ) from None
    image = Image.open(io.BytesIO(np.asarray(data, np.uint8).tobytes()))
    if pixel_format == "BGR":
        return np.asarray(image.convert("RGB"))[..., ::-1]
    if pixel_format == "Grayscale":
        return np.asarray(image.convert("L"))[..., None]
    return np.asarray(image.convert("RGB"))
