"""Reductions, running sums, arguments of extremes, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import lax, nn
from hloom.ir.sizes.expressions import Size
from hloom.onnx.sizes import count_of, integers
from hloom.onnx.table import op
from hloom.scipy import special


def _log_sum(x, axis, keepdims):
    return hnp.log(hnp.sum(x, axis=axis, keepdims=keepdims))


def _sum_square(x, axis, keepdims):
    return hnp.sum(x * x, axis=axis, keepdims=keepdims)


def _norm(x, axis, keepdims):
    return hnp.sqrt(hnp.sum(x * x, axis=axis, keepdims=keepdims).astype(_float(x))).astype(x.dtype)


def _float(x):
    return x.dtype if np.dtype(x.dtype).kind not in "iub" else np.float64


def _mean(x, axis, keepdims):
    return hnp.mean(x, axis=axis, keepdims=keepdims).astype(x.dtype)


def _log_sum_exp(x, axis, keepdims):
    return special.logsumexp(x.astype(_float(x)), axis=axis, keepdims=keepdims).astype(x.dtype)


def _extreme(function, lowest: bool):
    def rule(x, axis, keepdims):
        if np.dtype(x.dtype).kind == "b":
            return (hnp.any if lowest else hnp.all)(x, axis=axis, keepdims=keepdims)
        kind = hnp.finfo if np.dtype(x.dtype).kind not in "iu" else hnp.iinfo
        start: Any = -np.inf if lowest else np.inf
        if kind is hnp.iinfo:
            start = (hnp.iinfo(x.dtype).min if lowest else hnp.iinfo(x.dtype).max)  # fmt: skip
        return function(x, axis=axis, keepdims=keepdims, initial=start)

    return rule


def _keeping_dtype(function):
    def rule(x, axis, keepdims):
        return function(x, axis=axis, keepdims=keepdims, dtype=x.dtype)

    return rule


REDUCTIONS: dict[str, Any] = {
    "ReduceSum": _keeping_dtype(hnp.sum),
    "ReduceProd": _keeping_dtype(hnp.prod),
    "ReduceMean": _mean,
    "ReduceMax": _extreme(hnp.max, True),
    "ReduceMin": _extreme(hnp.min, False),
    "ReduceL1": lambda x, axis, keepdims: hnp.sum(hnp.abs(x), axis=axis, keepdims=keepdims, dtype=x.dtype),
    "ReduceL2": _norm,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": _sum_square,
}


def _declare(name: str, function) -> None:
    @op(name)
    def old(x, *, axes=None, keepdims=1):
        return function(x, None if axes is None else tuple(axes), bool(keepdims))

    @op(name, since=13 if name == "ReduceSum" else 18, static=(1,))
    def rule(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        if axes is None or not len(axes):
            if noop_with_empty_axes:
                return function(hnp.reshape(x, (1, *x.shape)), (0,), False)
            axes = range(x.ndim)
        return function(x, integers(axes), bool(keepdims))


for _name, _function in REDUCTIONS.items():
    _declare(_name, _function)


def _arg(function, x, axis: int, keepdims: int, select_last_index: int):
    if np.dtype(x.dtype).kind == "b":
        x = x.astype(np.int8)
    if select_last_index:
        at = x.shape[axis] - 1 - function(hnp.flip(x, axis), axis=axis, keepdims=bool(keepdims))
    else:
        at = function(x, axis=axis, keepdims=bool(keepdims))
    return at.astype(np.int64)


@op("ArgMax")
def arg_max(x, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(hnp.argmax, x, axis, keepdims, select_last_index)


@op("ArgMin")
def arg_min(x, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(hnp.argmin, x, axis, keepdims, select_last_index)


def _running(function, neutral: int, x, axis, exclusive: int, reverse: int):
    axis = int(axis.reshape(-1)[0]) % max(x.ndim, 1)
    if reverse:
        x = hnp.flip(x, axis)
    if exclusive:
        first = hnp.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), neutral, x.dtype)
        x = hnp.concatenate([first, lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)], axis)
    y = function(x, axis=axis, dtype=x.dtype)
    return hnp.flip(y, axis) if reverse else y


@op("CumSum", static=(1,))
def cumulative_sum(x, axis, *, exclusive=0, reverse=0):
    return _running(hnp.cumsum, 0, x, axis, exclusive, reverse)


@op("CumProd", static=(1,))
def cumulative_product(x, axis, *, exclusive=0, reverse=0):
    return _running(hnp.cumprod, 1, x, axis, exclusive, reverse)


def _softmax(function, x, axis: int):
    """Before opset 13: over all axes from one on."""
    axis = axis % max(x.ndim, 1)
    flat = hnp.reshape(x, (count_of(x.shape[:axis]), count_of(x.shape[axis:])))
    return hnp.reshape(function(flat, axis=-1), x.shape)


def _hard(x, axis):
    at = hnp.argmax(x, axis=axis, keepdims=True)
    places = hnp.arange(x.shape[axis]).reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])
    return (places == at).astype(x.dtype)


def _declare_softmax(name: str, function) -> None:
    @op(name)
    def old(x, *, axis=1):
        return _softmax(function, x, axis)

    @op(name, since=13)
    def rule(x, *, axis=-1):
        return function(x, axis=axis)


for _name, _function in {"Softmax": nn.softmax, "LogSoftmax": nn.log_softmax, "Hardmax": _hard}.items():
    _declare_softmax(_name, _function)


def _top_k(x, k: Size, axis: int, largest: int):
    axis = axis % x.ndim
    count = x.shape[axis]
    places = hnp.broadcast_to(
        hnp.arange(count, dtype=np.int64).reshape([-1 if d == axis else 1 for d in range(x.ndim)]), x.shape
    )
    keys = x
    if largest:  # stable, descending: equal elements in the order of their positions
        keys, places = hnp.flip(keys, axis), hnp.flip(places, axis)
    keys, places = lax.sort((keys, places), dimension=axis, num_keys=1)
    if largest:
        keys, places = hnp.flip(keys, axis), hnp.flip(places, axis)
    cut = [slice(None)] * axis + [slice(0, k)]
    return keys[tuple(cut)], places[tuple(cut)]


@op("TopK")
def top_k1(x, *, axis=-1, k):
    return _top_k(x, k, axis, 1)


@op("TopK", since=10, static=(1,))
def top_k(x, k, *, axis=-1, largest=1, sorted=1):
    return _top_k(x, integers(k)[0], axis, largest)
