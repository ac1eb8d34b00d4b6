"""Softmax, and normalization over layers, groups and batches, with their derivatives."""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import TO_TORCH, computed_in, convert, count, operand
from hloom.bridges.torch.rules.reductions import variance
from hloom.bridges.torch.table import rule
from hloom.ir.sizes.expressions import greatest


def _computed(x):
    return convert(x, computed_in(TO_TORCH[x.dtype]))


def shifted(x, axis: int):
    """x less its largest element along an axis."""
    return x - hnp.max(x, axis=axis, keepdims=True)


def softmax_of(x, axis: int):
    """exp(x) / sum(exp(x)) along an axis."""
    terms = hnp.exp(shifted(x, axis))
    return terms / hnp.sum(terms, axis=axis, keepdims=True)


@rule("_softmax.default")
def softmax(x, dim, half_to_float=False):
    x = _computed(x)
    if not x.size:
        return x
    return softmax_of(x, dim) if x.ndim else lax.full((), 1, x.dtype)


@rule("_log_softmax.default")
def log_softmax(x, dim, half_to_float=False):
    x = _computed(x)
    if not x.ndim or not x.size:
        return lax.full(x.shape, 0, x.dtype)
    apart = shifted(x, dim)
    return apart - hnp.log(hnp.sum(hnp.exp(apart), axis=dim, keepdims=True))


@rule("_softmax_backward_data.default")
def softmax_backward(grad, output, dim, input_dtype):
    grad, output = _computed(grad), _computed(output)
    return output * (grad - hnp.sum(grad * output, axis=dim, keepdims=True)) if grad.ndim else grad * 0


@rule("_log_softmax_backward_data.default")
def log_softmax_backward(grad, output, dim, input_dtype):
    grad, output = _computed(grad), _computed(output)
    return grad - hnp.exp(output) * hnp.sum(grad, axis=dim, keepdims=True) if grad.ndim else grad * 0


# --- layers and groups ---


@rule("native_layer_norm.default", result=True)
def native_layer_norm(x, normalized_shape, weight, bias, eps, *, result):
    """(result, mean, 1 / sqrt(variance + eps)), the last two with dimensions of size 1."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    x = _computed(x)
    spread, center = variance(x, axes, 0, True)
    scale = lax.rsqrt(spread + operand(eps, spread.dtype))
    found = (x - center) * scale
    if weight is not None:
        found = found * convert(weight, x.dtype)
    if bias is not None:
        found = found + convert(bias, x.dtype)
    return found, lax.reshape(center, result[1].dims), lax.reshape(scale, result[2].dims)


@rule("native_layer_norm_backward.default")
def native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight, bias, output_mask):
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    outer = tuple(range(x.ndim - len(normalized_shape)))
    grad, x = _computed(grad), _computed(x)
    kept = (*x.shape[: len(outer)], *[1] * len(axes))
    scale = lax.reshape(convert(rstd, x.dtype), kept)
    normal = (x - lax.reshape(convert(mean, x.dtype), kept)) * scale
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        elements = count(math.prod(normalized_shape), x.dtype)
        weighted = grad if weight is None else grad * convert(weight, x.dtype)
        first = hnp.sum(weighted, axis=axes, keepdims=True) / elements
        second = hnp.sum(weighted * normal, axis=axes, keepdims=True) / elements
        of_input = (weighted - first - normal * second) * scale
    if output_mask[1]:
        of_weight = hnp.sum(grad * normal, axis=outer)
    if output_mask[2]:
        of_bias = hnp.sum(grad, axis=outer)
    return of_input, of_weight, of_bias


def _groups(x, n: int, c: int, size: int, groups: int):
    return lax.reshape(x, (n, groups, c // groups, size))


def _per_channel(v, groups: int, dtype):
    return lax.reshape(convert(v, dtype), (1, groups, v.shape[0] // groups, 1))


@rule("native_group_norm.default")
def native_group_norm(x, weight, bias, n, c, size, groups, eps):
    """(result, mean, 1 / sqrt(variance + eps)) of each of n samples and groups of c channels of `size` elements."""
    dims, split = x.shape, _groups(_computed(x), n, c, size, groups)
    spread, center = variance(split, (2, 3), 0, True)
    scale = lax.rsqrt(spread + operand(eps, spread.dtype))
    found = (split - center) * scale
    if weight is not None:
        found = found * _per_channel(weight, groups, found.dtype)
    if bias is not None:
        found = found + _per_channel(bias, groups, found.dtype)
    return lax.reshape(found, dims), lax.reshape(center, (n, groups)), lax.reshape(scale, (n, groups))


@rule("native_group_norm_backward.default")
def native_group_norm_backward(grad, x, mean, rstd, weight, n, c, size, groups, output_mask):
    dims = x.shape
    x, grad = _groups(_computed(x), n, c, size, groups), _groups(_computed(grad), n, c, size, groups)
    center, scale = (lax.reshape(convert(v, x.dtype), (n, groups, 1, 1)) for v in (mean, rstd))
    normal = (x - center) * scale
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        elements = count(c // groups * size, x.dtype)
        weighted = grad if weight is None else grad * _per_channel(weight, groups, x.dtype)
        first = hnp.sum(weighted, axis=(2, 3), keepdims=True) / elements
        second = hnp.sum(weighted * normal, axis=(2, 3), keepdims=True) / elements
        of_input = lax.reshape((weighted - first - normal * second) * scale, dims)
    if output_mask[1]:
        of_weight = lax.reshape(hnp.sum(grad * normal, axis=(0, 3)), (c,))
    if output_mask[2]:
        of_bias = lax.reshape(hnp.sum(grad, axis=(0, 3)), (c,))
    return of_input, of_weight, of_bias


# --- batches ---


def _channels(v, x, dtype):
    return lax.reshape(convert(v, dtype), (1, v.shape[0], *[1] * (x.ndim - 2)))


def _normalized(x, center, scale, weight, bias):
    """x of (batch, channels, space...) with per-channel statistics, in the dtype of the computation."""
    found = (x - _channels(center, x, x.dtype)) * _channels(scale, x, x.dtype)
    if weight is not None:
        found = found * _channels(weight, x, x.dtype)
    return found if bias is None else found + _channels(bias, x, x.dtype)


def _of_batch(x, weight, bias, eps):
    """(result, mean, 1 / sqrt(variance + eps), unbiased variance) of a batch."""
    x = _computed(x)
    axes = (0, *range(2, x.ndim))
    spread, center = variance(x, axes, 0, False)
    scale = lax.rsqrt(spread + operand(eps, spread.dtype))
    elements = x.size // x.shape[1]
    unbiased = count(elements, x.dtype) / count(greatest(elements - 1, 1), x.dtype)
    return (
        _normalized(x, center, scale, weight, bias),
        center,
        scale,
        spread * unbiased,
    )


@rule("_native_batch_norm_legit_functional.default")
def native_batch_norm_functional(x, weight, bias, running_mean, running_var, training, momentum, eps):
    """(result, mean, 1 / sqrt(variance + eps), running mean, running variance)."""
    if not training:
        found, center, scale = native_batch_norm_no_training(x, weight, bias, running_mean, running_var, momentum, eps)
        return found, center, scale, running_mean, running_var
    found, center, scale, spread = _of_batch(x, weight, bias, eps)
    new = (_moved(old, now, momentum) for old, now in ((running_mean, center), (running_var, spread)))
    return found, center, scale, *new


def _moved(old, now, momentum: float):
    """The running number after a batch; in the dtype of the computation."""
    old = convert(old, now.dtype)
    return now * operand(momentum, now.dtype) + old * operand(1 - momentum, now.dtype)


@rule("_native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(x, weight, bias, training, momentum, eps):
    return _of_batch(x, weight, bias, eps)[:3]


@rule("_native_batch_norm_legit_no_training.default", result=True)
def native_batch_norm_no_training(x, weight, bias, running_mean, running_var, momentum, eps, *, result=None):
    """(result, and two empty results: batch statistics are not computed)."""
    x = _computed(x)
    scale = lax.rsqrt(_computed(running_var) + operand(eps, x.dtype))
    nothing = lax.full((0,), 0, x.dtype)
    return _normalized(x, running_mean, scale, weight, bias), nothing, nothing


@rule("native_batch_norm_backward.default")
def native_batch_norm_backward(
    grad, x, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
):
    dtype = x.dtype
    x, grad = _computed(x), _computed(grad)
    axes = (0, *range(2, x.ndim))
    if train:
        center, scale = convert(save_mean, x.dtype), convert(save_invstd, x.dtype)
    else:
        center = convert(running_mean, x.dtype)
        scale = lax.rsqrt(convert(running_var, x.dtype) + operand(eps, x.dtype))
    normal = (x - _channels(center, x, x.dtype)) * _channels(scale, x, x.dtype)
    total, along = hnp.sum(grad, axis=axes), hnp.sum(grad * normal, axis=axes)
    factor = scale if weight is None else scale * convert(weight, x.dtype)
    of_input = grad
    if train:
        elements = count(x.size // x.shape[1], x.dtype)
        of_input = grad - _channels(total / elements, x, x.dtype) - normal * _channels(along / elements, x, x.dtype)
    of_input = convert(of_input * _channels(factor, x, x.dtype), dtype)
    return of_input if output_mask[0] else None, along if output_mask[1] else None, total if output_mask[2] else None


__all__ = ["shifted", "softmax_of"]
