"""Ops in terms of other torch ops, in addition to torch's own decompositions.

    table() -> {overload: function of tensors}

Graphs are captured with them, so functions here may use any torch op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from hloom.bridges.torch.rules import RULES

__all__ = ["table"]

aten = torch.ops.aten
_OWN: dict[Any, Callable] = {}


def _decomposition(name: str):
    """Makes a function the decomposition of an overload such as 'histc.default', where this torch has it."""

    def register(function):
        packet, _, overload = name.partition(".")
        found = getattr(getattr(aten, packet, None), overload, None)
        if found is not None:
            _OWN[found] = function
        return function

    return register


@functools.cache
def table() -> dict:
    """The decompositions of ops that have no rule of hloom's."""
    known = {**decomposition_table, **core_aten_decompositions(), **_lists(), **_OWN}
    return {op: function for op, function in known.items() if op not in RULES}


# --- ops on lists of tensors, by which optimizers change all parameters at once ---


def _scaled_by(function):
    """addcmul, addcdiv with their factor as a tensor."""
    return lambda x, y, z, factor: x + factor * function(y, z)


# The op for one element of `_foreach_add.List` is torch.add, unless listed here, by name or by overload.
_ELEMENTS: dict[str, Callable] = {
    "zero": torch.zeros_like,
    "copy": aten.copy.default,
    "norm": lambda x, ord=2, dtype=None: torch.linalg.vector_norm(x, ord, dtype=dtype),  # noqa: A006 - torch's name
    "powsum": lambda x, ord=2, dtype=None: torch.sum(torch.abs(x.to(dtype or x.dtype)) ** ord),  # noqa: A006
    "maximum.Scalar": torch.clamp_min,
    "maximum.ScalarList": torch.clamp_min,
    "minimum.Scalar": torch.clamp_max,
    "minimum.ScalarList": torch.clamp_max,
    "addcmul.Scalar": lambda x, y, z, value=1: torch.addcmul(x, y, z, value=value),
    "addcmul.ScalarList": lambda x, y, z, value: torch.addcmul(x, y, z, value=value),
    "addcmul.Tensor": _scaled_by(torch.mul),
    "addcdiv.Scalar": lambda x, y, z, value=1: torch.addcdiv(x, y, z, value=value),
    "addcdiv.ScalarList": lambda x, y, z, value: torch.addcdiv(x, y, z, value=value),
    "addcdiv.Tensor": _scaled_by(torch.div),
}


def _lists() -> dict:
    """Ops on lists (`_foreach_add.List`) as ops on their elements."""
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        name, overload = schema.name.removeprefix("aten::_foreach_"), schema.overload_name
        if name == schema.name or name.endswith("_") or "out" in overload:
            continue
        element = _ELEMENTS.get(f"{name}.{overload}", _ELEMENTS.get(name, getattr(torch, name, None)))
        if element is not None:
            op = getattr(getattr(aten, f"_foreach_{name}"), overload or "default")
            found[op] = functools.partial(_each, element, f"{name}.{overload}" in ("addcmul.Tensor", "addcdiv.Tensor"))
    return found


def _each(element: Callable, divided: bool, *args, **kwargs) -> list[torch.Tensor]:
    """element(...) for each index of the lists among the arguments; other arguments apply to all of them. divided: the
    last argument is a tensor with one element per index."""
    if divided:
        args = (*args[:-1], list(args[-1].unbind()))
    count = len(next(a for a in (*args, *kwargs.values()) if isinstance(a, (list, tuple))))

    def at(value, k: int):
        return value[k] if isinstance(value, (list, tuple)) else value

    return [element(*[at(a, k) for a in args], **{n: at(v, k) for n, v in kwargs.items()}) for k in range(count)]


# --- layers ---


@_decomposition("_weight_norm_interface_backward.default")
def weight_norm_backward(grad, v, g, norms, dim):
    """The derivatives of v and g in w = v g / |v|; norms: |v|, over all dimensions but `dim`."""
    others = [k for k in range(v.ndim) if k != dim]
    norms = norms.to(g.dtype)
    along = (grad * v).sum(others, keepdim=True)
    return (g / norms) * (grad - v * (along / (norms * norms))), along / norms


@_decomposition("rrelu_with_noise_functional.default")
def rrelu_functional(x, noise, lower=0.125, upper=0.3333333333333333, training=False, generator=None):
    """(leaky_relu with a random slope where x is negative, the slopes)."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise
    slopes = torch.where(x <= 0, torch.empty_like(x).uniform_(lower, upper), torch.ones_like(x))
    return x * slopes, slopes


def _fake_quantized(x, scale, zero_point, low: int, high: int):
    """(x rounded to multiples of the scale, whether each element is within the bounds)."""
    numbers = torch.round(zero_point + x * (1.0 / scale))
    inside = (numbers >= low) & (numbers <= high)
    return ((numbers.clamp(low, high) - zero_point) * scale).to(x.dtype), inside


@_decomposition("fake_quantize_per_tensor_affine_cachemask.default")
def fake_quantize(x, scale, zero_point, quant_min, quant_max):
    return _fake_quantized(x, scale, zero_point, quant_min, quant_max)


@_decomposition("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_by_tensors(x, scale, zero_point, fake_quant_enabled, quant_min, quant_max):
    found, inside = _fake_quantized(x, scale, zero_point, quant_min, quant_max)
    off = fake_quant_enabled == 0
    return torch.where(off, x, found), inside | off


@_decomposition("fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_channels(x, scale, zero_point, axis, quant_min, quant_max):
    dims = [-1 if k == axis % x.ndim else 1 for k in range(x.ndim)]
    return _fake_quantized(x, scale.reshape(dims), zero_point.reshape(dims), quant_min, quant_max)


def _heads(x, count: int):
    """(batch, length, features) as (batch, heads, length, features of each)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


@_decomposition("_native_multi_head_attention.default")
def multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias,
                         mask=None, need_weights=True, average_attn_weights=True, mask_type=None):  # fmt: skip
    """Attention with projections. mask: True hides; mask_type: 0, (length, length); 1, (batch, length); 2, for all."""
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    parts = [torch.nn.functional.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]
    query, key, value = (_heads(p, num_head) for p in parts)
    scores = (query * (embed_dim / num_head) ** -0.5) @ key.mT
    if mask is not None:
        if mask_type == 1:
            mask = mask[:, None, None, :]
        scores = scores.masked_fill(mask.bool(), -torch.inf)
    shares = torch.softmax(scores, -1)
    found = torch.nn.functional.linear((shares @ value).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return found, query.new_empty(0)
    return found, shares.mean(1) if average_attn_weights else shares


@_decomposition("_transformer_encoder_layer_fwd.default")
def transformer_encoder_layer(x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu,
                              norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1,
                              ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None):  # fmt: skip
    """nn.TransformerEncoderLayer in eval."""

    def first(x):
        return torch.nn.functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x):
        return torch.nn.functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x):
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def widened(x):
        inner = torch.nn.functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = torch.nn.functional.gelu(inner) if use_gelu else torch.relu(inner)
        return torch.nn.functional.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = x + attended(first(x))
        return x + widened(second(x))
    x = first(x + attended(x))
    return second(x + widened(x))
