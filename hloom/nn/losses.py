"""Losses, one value per example (without a mean), with Optax's names and arguments."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import INTEGERS
from hloom.lax.operands import as_operand, to_inexact
from hloom.nn.functional import log_sigmoid, log_softmax, logsumexp
from hloom.tracing.range_checks import check_in_range


def squared_error(predictions, targets=None):
    """(predictions - targets)^2, element-wise; without targets predictions^2.

    >>> hl.nn.losses.squared_error(hnp.array([1.0, 4.0]), hnp.array([0.0, 2.0]))
    Array([1., 4.], dtype=float32)
    """
    predictions = to_inexact(predictions, "squared_error")
    return (predictions if targets is None else _difference(predictions, targets, "squared_error")) ** 2


def l2_loss(predictions, targets=None):
    """Half the squared error, element-wise: its derivative is the difference.

    >>> hl.nn.losses.l2_loss(hnp.array([1.0, 4.0]), hnp.array([0.0, 2.0]))
    Array([0.5, 2. ], dtype=float32)
    """
    return 0.5 * squared_error(predictions, targets)


def mean_squared_error(predictions, targets):
    """The mean of the squared error over all elements, a scalar.

    >>> hl.nn.losses.mean_squared_error(hnp.array([1.0, 4.0]), hnp.array([0.0, 2.0]))
    Array(2.5, dtype=float32)
    """
    return hnp.mean(squared_error(predictions, targets))


def absolute_error(predictions, targets):
    """|predictions - targets|, element-wise.

    >>> hl.nn.losses.absolute_error(hnp.array([1.0, 2.0]), hnp.array([3.0, 2.0]))
    Array([2., 0.], dtype=float32)
    """
    return hnp.abs(_difference(to_inexact(predictions, "absolute_error"), targets, "absolute_error"))


def log_loss(predictions, labels, epsilon=1e-7):
    """-labels log(p) - (1 - labels) log(1 - p) of probabilities p, element-wise, with epsilon added to both.

    For logits `sigmoid_binary_cross_entropy` is exact. Raises ShapeError.

    >>> hl.nn.losses.log_loss(hnp.array([0.5, 0.9]), hnp.array([1.0, 1.0])).round(3)
    Array([0.693, 0.105], dtype=float32)
    """
    predictions = to_inexact(predictions, "log_loss")
    _difference(predictions, labels, "log_loss")  # raises if the shapes differ
    labels = hnp.asarray(labels).astype(predictions.dtype)
    return -labels * hnp.log(predictions + epsilon) - (1 - labels) * hnp.log(1 - predictions + epsilon)


def mean_pairwise_squared_error(predictions, targets):
    """The mean over all pairs (i, j) of elements of ((p_i - p_j) - (t_i - t_j))^2, for each example.

    predictions, targets: (batch, ...), of at least two elements per example. Returns (batch,). Raises ShapeError.

    >>> hl.nn.losses.mean_pairwise_squared_error(hnp.array([[1.0, 2.0]]), hnp.array([[1.0, 4.0]]))
    Array([4.], dtype=float32)
    """
    predictions = to_inexact(predictions, "mean_pairwise_squared_error")
    d = _difference(predictions, targets, "mean_pairwise_squared_error")
    d = hnp.reshape(d, (d.shape[0], -1))
    count = d.shape[1]
    if count < 2:
        raise ShapeError(
            "mean_pairwise_squared_error compares pairs of elements of an example",
            repr(predictions._shape),
            "use squared_error for one element per example",
        )
    # The sum over ordered pairs of (d_i - d_j)^2 is 2 n sum(d^2) - 2 sum(d)^2.
    total = 2 * count * hnp.sum(d * d, axis=1) - 2 * hnp.sum(d, axis=1) ** 2
    return total / (count * (count - 1))


_REDUCTIONS = ("none", "sum", "mean", "sum_over_batch_size", "sum_by_nonzero_weights")


def compute_weighted_loss(losses, weights=1.0, reduction: str = "sum_by_nonzero_weights"):
    """Losses times weights, reduced to a scalar, with TensorFlow's names of reductions.

    weights: a scalar, or an array that broadcasts to the losses: one per leading dimension, such as per example, or one
    per loss. reduction: "sum_by_nonzero_weights" divides the sum by the number of losses with nonzero weight (which
    excludes padding with weight 0), "mean" by the sum of the weights, "sum_over_batch_size" by the number of losses;
    "sum"; "none" returns the products. An empty sum is 0. Raises ArgumentError, ShapeError.

    >>> losses, weights = hnp.array([1.0, 2.0, 6.0]), hnp.array([1.0, 1.0, 0.0])
    >>> hl.nn.losses.compute_weighted_loss(losses, weights)
    Array(1.5, dtype=float32)
    """
    losses, weights = to_inexact(losses, "compute_weighted_loss"), as_operand(weights, "compute_weighted_loss")
    if reduction not in _REDUCTIONS:
        raise ArgumentError("a reduction of losses", repr(reduction), f"one of {', '.join(_REDUCTIONS)}")
    dims = weights.shape + (1,) * (losses.ndim - weights.ndim)
    if len(dims) != losses.ndim or any(n not in (1, m) for n, m in zip(dims, losses.shape, strict=True)):
        raise ShapeError(
            "weights of losses: a scalar, one per example, or one per loss",
            f"weights {weights._shape!r}, losses {losses._shape!r}",
            "give the weights the leading dimensions of the losses",
        )
    weights = hnp.broadcast_to(hnp.reshape(weights.astype(losses.dtype), dims), losses.shape)
    # A weight of 0 excludes a loss, even if it is infinite, as in padding.
    products = hnp.where(weights == 0, 0, losses * weights)
    if reduction == "none":
        return products
    total = hnp.sum(products)
    if reduction == "sum":
        return total
    if reduction == "sum_over_batch_size":
        return total / max(math.prod(losses.shape), 1)
    over = hnp.sum(weights) if reduction == "mean" else hnp.sum((weights != 0).astype(losses.dtype))
    return hnp.where(over == 0, 0, total / hnp.where(over == 0, 1, over))


def huber_loss(predictions, targets=None, delta=1.0):
    """d^2 / 2 for |d| <= delta, delta (|d| - delta / 2) beyond, element-wise (Huber, 1964).

    >>> hl.nn.losses.huber_loss(hnp.array([0.5, 3.0]), hnp.array([0.0, 0.0]))
    Array([0.125, 2.5  ], dtype=float32)
    """
    predictions = to_inexact(predictions, "huber_loss")
    distance = hnp.abs(predictions if targets is None else _difference(predictions, targets, "huber_loss"))
    near = hnp.minimum(distance, delta)
    return 0.5 * near**2 + delta * (distance - near)


def log_cosh(predictions, targets=None):
    """log(cosh(d)), element-wise: like the squared error near 0 and the absolute error far away.

    >>> hl.nn.losses.log_cosh(hnp.array([0.0, 100.0])).round(3)
    Array([ 0.   , 99.307], dtype=float32)
    """
    predictions = to_inexact(predictions, "log_cosh")
    d = predictions if targets is None else _difference(predictions, targets, "log_cosh")
    return hnp.logaddexp(d, -d) - 0.6931471805599453


def hinge_loss(predictor_outputs, targets):
    """max(0, 1 - outputs * targets), element-wise, for targets of -1 and 1. Raises ShapeError.

    >>> hl.nn.losses.hinge_loss(hnp.array([2.0, 0.5]), hnp.array([1.0, -1.0]))
    Array([0. , 1.5], dtype=float32)
    """
    outputs = to_inexact(predictor_outputs, "hinge_loss")
    return hnp.maximum(0, 1 - outputs * _paired(outputs, targets, "hinge_loss"))


def sigmoid_binary_cross_entropy(logits, labels):
    """-labels log(p) - (1 - labels) log(1 - p) of p = sigmoid(logits), element-wise, without overflow.

    labels: of the logits' shape, or a scalar. Raises ShapeError.

    >>> hl.nn.losses.sigmoid_binary_cross_entropy(hnp.array([0.0, 100.0]), hnp.array([1.0, 1.0])).round(3)
    Array([0.693, 0.   ], dtype=float32)
    """
    logits = to_inexact(logits, "sigmoid_binary_cross_entropy")
    labels = _paired(logits, labels, "sigmoid_binary_cross_entropy")
    return -labels * log_sigmoid(logits) - (1 - labels) * log_sigmoid(-logits)


def softmax_cross_entropy(logits, labels, axis: int = -1, where=None):
    """-sum(labels * log_softmax(logits)) over `axis`. labels: a distribution for each example, logits' shape.

    >>> hl.nn.losses.softmax_cross_entropy(hnp.array([[0.0, 0.0]]), hnp.array([[0.5, 0.5]])).round(3)
    Array([0.693], dtype=float32)
    """
    logits = to_inexact(logits, "softmax_cross_entropy")
    labels = as_operand(labels, "softmax_cross_entropy")
    if labels.ndim > logits.ndim or any(
        n not in (1, m) for n, m in zip(labels.shape[::-1], logits.shape[::-1], strict=False)
    ):
        raise ShapeError(
            "softmax_cross_entropy takes labels of the logits' shape",
            f"logits {logits._shape!r}, labels {labels._shape!r}",
            "for class numbers use softmax_cross_entropy_with_integer_labels",
        )
    return -hnp.sum(labels * log_softmax(logits, axis=axis, where=where), axis=axis, where=where)


def softmax_cross_entropy_with_integer_labels(logits, labels, axis: int = -1, where=None):
    """-log_softmax(logits)[labels] over `axis`. labels: integers, logits' shape without the axis.

    A label out of range raises IndexOutOfBoundsError if its value is known: outside of `jit`, and everywhere under
    `hl.config.debug_checks`. Otherwise its loss is NaN. Raises DTypeError and ShapeError.

    >>> logits, labels = hnp.array([[2.0, 0.0], [0.0, 0.0]]), hnp.array([0, 1])
    >>> hl.nn.losses.softmax_cross_entropy_with_integer_labels(logits, labels).round(3)
    Array([0.127, 0.693], dtype=float32)
    """
    logits = to_inexact(logits, "softmax_cross_entropy_with_integer_labels")
    labels = as_operand(labels, "softmax_cross_entropy_with_integer_labels")
    if labels.dtype not in INTEGERS:
        raise DTypeError(
            "softmax_cross_entropy_with_integer_labels takes class numbers",
            f"labels {labels._shape!r}",
            "for distributions use softmax_cross_entropy",
        )
    axis = axis % logits.ndim
    expected = logits.shape[:axis] + logits.shape[axis + 1 :]
    if labels.shape != expected:
        raise ShapeError(
            "softmax_cross_entropy_with_integer_labels requires one label per example",
            f"logits {logits._shape!r}, labels {labels._shape!r}",
            f"give the labels the shape {expected}",
        )
    count = logits.shape[axis]
    check_in_range(
        labels,
        0,
        count,
        f"softmax_cross_entropy_with_integer_labels of {count} classes takes labels from 0 to {count - 1}",
        "check the labels and the number of logits; leave padding out with a valid label and hnp.where of the loss",
    )
    # By comparison with the class indices, not by a gather: this fuses with the softmax, forward and backward.
    classes = lax.broadcasted_iota(labels.dtype, logits.shape, axis)
    chosen = hnp.equal(classes, hnp.expand_dims(labels, axis))
    picked = hnp.sum(hnp.where(chosen, logits, 0), axis=axis)
    loss = logsumexp(logits, axis=axis, where=where) - picked
    return hnp.where((labels < 0) | (labels >= count), np.nan, loss)


def smooth_labels(labels, alpha):
    """(1 - alpha) labels + alpha / classes over the last axis (Szegedy et al., 2016).

    >>> hl.nn.losses.smooth_labels(hl.nn.one_hot(1, 4), 0.2).round(3)
    Array([0.05, 0.85, 0.05, 0.05], dtype=float32)
    """
    labels = to_inexact(labels, "smooth_labels")
    return (1.0 - alpha) * labels + alpha / labels.shape[-1]


def kl_divergence(log_predictions, targets, axis: int = -1):
    """sum(targets * (log(targets) - log_predictions)) over `axis`; targets of 0 count as 0. Raises ShapeError.

    >>> p = hnp.array([0.5, 0.5])
    >>> hl.nn.losses.kl_divergence(hnp.log(hnp.array([0.25, 0.75])), p).round(3)
    Array(0.144, dtype=float32)
    """
    targets = to_inexact(targets, "kl_divergence")
    log_predictions = to_inexact(log_predictions, "kl_divergence")
    _difference(log_predictions, targets, "kl_divergence")
    positive = targets > 0
    logs = hnp.log(hnp.where(positive, targets, 1))
    return hnp.sum(hnp.where(positive, targets * (logs - log_predictions), 0), axis=axis)


def cosine_similarity(predictions, targets, epsilon=0.0, axis: int = -1):
    """The cosine of the angle between the vectors along `axis`; norms are at least epsilon. Raises ShapeError.

    >>> hl.nn.losses.cosine_similarity(hnp.array([3.0, 0.0]), hnp.array([2.0, 0.0]))
    Array(1., dtype=float32)
    """
    predictions = to_inexact(predictions, "cosine_similarity")
    targets = to_inexact(targets, "cosine_similarity")
    _difference(predictions, targets, "cosine_similarity")

    def unit(x):
        norm = hnp.sqrt(hnp.sum(x * x, axis=axis, keepdims=True))
        return x / hnp.maximum(norm, epsilon)

    return hnp.sum(unit(predictions) * unit(targets), axis=axis)


def cosine_distance(predictions, targets, epsilon=0.0, axis: int = -1):
    """1 - cosine_similarity.

    >>> hl.nn.losses.cosine_distance(hnp.array([1.0, 0.0]), hnp.array([0.0, 2.0]))
    Array(1., dtype=float32)
    """
    return 1.0 - cosine_similarity(predictions, targets, epsilon, axis)


def _paired(predictions, targets, name: str):
    """The targets in the predictions' dtype. Raises ShapeError if their shape is neither the predictions' nor ()."""
    targets = as_operand(targets, name)
    if targets.ndim:
        _difference(predictions, targets, name)
    return targets.astype(predictions.dtype)


def _difference(predictions, targets, name: str):
    targets = as_operand(targets, name)
    if targets.shape != predictions.shape:
        # Broadcasting (n, 1) against (n,) is a silent mistake: training runs without an error and learns nothing.
        raise ShapeError(
            f"{name} takes predictions and targets of one shape",
            f"{predictions._shape!r} and {targets._shape!r}",
            "reshape one of them",
        )
    return predictions - targets.astype(predictions.dtype)


def ctc_loss(logits, logit_paddings, labels, label_paddings, blank_id: int = 0, log_epsilon=-1e5):
    """Connectionist temporal classification (Graves et al., 2006): -log of the probability of the labels.

    logits: (batch, frames, classes). logit_paddings: (batch, frames), 1 where a frame is padding.
    labels: (batch, length) integers. label_paddings: (batch, length), 1 where a label is padding; padding is on the
    right. blank_id: the class of the blank. log_epsilon: log of the probability of impossible alignments. Returns
    (batch,); NaN if a label is out of range, or IndexOutOfBoundsError if its value is known or under
    `hl.config.debug_checks`. Raises ShapeError.

    >>> logits, labels = hnp.zeros((1, 4, 3)), hnp.array([[1, 2]])
    >>> hl.nn.losses.ctc_loss(logits, hnp.zeros((1, 4)), labels, hnp.zeros((1, 2))).round(3)
    Array([1.686], dtype=float32)
    """
    logits = to_inexact(logits, "ctc_loss")
    labels = as_operand(labels, "ctc_loss")
    if logits.ndim != 3 or labels.ndim != 2 or labels.shape[0] != logits.shape[0]:
        raise ShapeError(
            "ctc_loss takes logits (batch, frames, classes) and labels (batch, length)",
            f"{logits._shape!r} and {labels._shape!r}",
            "add the batch dimension",
        )
    dtype = logits.dtype
    logit_paddings = hnp.asarray(logit_paddings).astype(dtype)
    label_paddings = hnp.asarray(label_paddings).astype(dtype)
    batch, frames, classes = logits.shape
    length = labels.shape[1]
    wrong = _out_of_range(hnp.where(label_paddings > 0, 0, labels), classes)
    log_probabilities = log_softmax(logits)
    blank = log_probabilities[:, :, blank_id]
    one_hot = hnp.equal(labels[:, :, None], hnp.arange(classes, dtype=labels.dtype)).astype(dtype)
    emitted = hnp.einsum("btk,bnk->btn", log_probabilities, one_hot)
    # A label that repeats its predecessor can only follow a blank.
    repeats = hnp.equal(labels[:, :-1], labels[:, 1:]).astype(dtype)
    repeats = hnp.pad(repeats, ((0, 0), (0, 1)))

    # States between labels (after n labels, in a blank) and in labels; both in logarithms.
    in_blank = hnp.full((batch, length + 1), log_epsilon, dtype).at[:, 0].set(0.0)
    in_label = hnp.full((batch, length), log_epsilon, dtype)

    def step(state, frame):
        before_blank, before_label = state
        emit, quiet, padding = frame
        from_blank = before_blank[:, :-1] + emit
        staying = before_label + emit
        label = hnp.logaddexp(from_blank, staying)
        # From the previous label, if the two differ.
        moving = before_label[:, :-1] + log_epsilon * repeats[:, :-1] + emit[:, 1:]
        label = hnp.concatenate([label[:, :1], hnp.logaddexp(label[:, 1:], moving)], axis=1)
        arriving = hnp.pad(before_label, ((0, 0), (1, 0)), constant_values=log_epsilon)
        blank_state = hnp.logaddexp(before_blank, arriving) + quiet[:, None]
        over = padding[:, None] > 0
        state = (hnp.where(over, before_blank, blank_state), hnp.where(over, before_label, label))
        return state, None

    frames_first = (hnp.moveaxis(emitted, 1, 0), hnp.moveaxis(blank, 1, 0), hnp.moveaxis(logit_paddings, 1, 0))
    (in_blank, in_label), _ = lax.scan(step, (in_blank, in_label), frames_first)
    lengths = hnp.sum(1.0 - label_paddings, axis=1).astype("s32")
    ended = hnp.arange(length + 1) == lengths[:, None]
    last_label = hnp.pad(in_label, ((0, 0), (1, 0)), constant_values=log_epsilon)
    return hnp.where(wrong, np.nan, -hnp.sum(hnp.where(ended, hnp.logaddexp(in_blank, last_label), 0), axis=1))


def _out_of_range(labels, classes: int):
    """The rows with a label out of range. Raises IndexOutOfBoundsError if their values are known."""
    asked = f"ctc_loss of {classes} classes takes labels from 0 to {classes - 1}"
    check_in_range(labels, 0, classes, asked, "check the labels and the number of logits")
    return hnp.any((labels < 0) | (labels >= classes), axis=1)


__all__ = [
    "absolute_error", "compute_weighted_loss", "cosine_distance", "cosine_similarity", "ctc_loss", "hinge_loss",
    "huber_loss", "kl_divergence", "l2_loss", "log_cosh", "log_loss", "mean_pairwise_squared_error",
    "mean_squared_error", "sigmoid_binary_cross_entropy", "smooth_labels", "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels", "squared_error",
]  # fmt: skip
__dir__ = __all__.copy
