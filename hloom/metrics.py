"""Metrics of classifiers and regressions, and streaming means, over batches.

The functions take whole arrays; the classes collect over batches. A metric object is a tree of arrays: `update` returns
a new one, so it can be carried through `jit` and `scan`, and `merge` joins those of several workers.

    mean = metrics.Mean.empty()
    for batch in batches:
        mean = mean.update(loss(parameters, batch))
    float(mean.compute())
"""

from __future__ import annotations

from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ShapeError
from hloom.ir.types import INEXACT
from hloom.lax.operands import as_operand


def _pair(predictions, labels, name: str):
    predictions, labels = as_operand(predictions, name), as_operand(labels, name)
    if predictions.shape != labels.shape:
        raise ShapeError(
            f"{name} takes predictions and labels of one shape",
            f"{predictions._shape!r} and {labels._shape!r}",
            "take the argmax over the classes first",
        )
    return predictions, labels


def accuracy(predictions, labels):
    """The share of predictions that equal their labels.

    predictions: class numbers of labels' shape, or scores with one more dimension, the last, whose largest counts.
    Raises ShapeError for scores of the labels' shape: labels are class numbers, not one-hot.

    >>> hl.metrics.accuracy(hnp.array([[0.1, 0.9], [0.8, 0.2]]), hnp.array([1, 1]))
    Array(0.5, dtype=float32)
    """
    predictions, labels = as_operand(predictions, "accuracy"), as_operand(labels, "accuracy")
    if predictions.ndim == labels.ndim + 1:
        predictions = hnp.argmax(predictions, axis=-1)
    elif predictions.dtype in INEXACT and predictions.ndim > 1:
        raise ShapeError(
            f"accuracy of {predictions.dtype.name}{list(predictions.shape)} and {list(labels.shape)}",
            "scores need labels with a dimension less: class numbers",
            "pass hnp.argmax(labels, -1) for one-hot labels, or (predictions > 0).astype(int) for binary ones",
        )
    predictions, labels = _pair(predictions, labels, "accuracy")
    return hnp.mean(predictions == labels)


def precision(predictions, labels):
    """True positives over predicted positives, for predictions and labels of 0 and 1; 0 where none is predicted.

    >>> hl.metrics.precision(hnp.array([1, 1, 0]), hnp.array([1, 0, 0]))
    Array(0.5, dtype=float32)
    """
    return ConfusionCounts.empty().update(predictions, labels).precision()


def recall(predictions, labels):
    """True positives over actual positives; 0 where there are none.

    >>> hl.metrics.recall(hnp.array([1, 1, 0]), hnp.array([1, 0, 1]))
    Array(0.5, dtype=float32)
    """
    return ConfusionCounts.empty().update(predictions, labels).recall()


def f1_score(predictions, labels):
    """The harmonic mean of precision and recall.

    >>> hl.metrics.f1_score(hnp.array([1, 1, 0]), hnp.array([1, 0, 0])).round(3)
    Array(0.667, dtype=float32)
    """
    return ConfusionCounts.empty().update(predictions, labels).f1()


def auc(scores, labels):
    """The area under the receiver operating characteristic: the chance that a positive scores above a negative.

    Computed exactly from the ranks (Mann and Whitney, 1947), ties count half. scores: (n,). labels: (n,) of 0 and 1.
    NaN where only one class is there.

    >>> hl.metrics.auc(hnp.array([0.1, 0.8, 0.4]), hnp.array([0, 1, 1]))
    Array(1., dtype=float32)
    """
    scores, labels = _pair(scores, labels, "auc")
    scores, positive = hnp.ravel(scores), hnp.ravel(labels) > 0
    ordered = hnp.sort(scores)
    below = hnp.searchsorted(ordered, scores, side="left")
    upto = hnp.searchsorted(ordered, scores, side="right")
    ranks = 0.5 * (below + upto + 1)  # the mean of the ranks that equal scores share, from 1 on
    positives = hnp.sum(positive).astype("f32")
    negatives = scores.shape[0] - positives
    total = hnp.sum(hnp.where(positive, ranks, 0.0))
    return (total - positives * (positives + 1) / 2) / (positives * negatives)


def mean_absolute_error(predictions, targets):
    """The mean of |predictions - targets|.

    >>> hl.metrics.mean_absolute_error(hnp.array([1.0, 2.0]), hnp.array([1.0, 4.0]))
    Array(1., dtype=float32)
    """
    predictions, targets = _pair(predictions, targets, "mean_absolute_error")
    return hnp.mean(hnp.abs(predictions - targets))


def r2_score(predictions, targets):
    """1 - the squared error over that of the mean: 1 is perfect, 0 as good as the mean.

    >>> hl.metrics.r2_score(hnp.array([1.0, 2.0, 3.0]), hnp.array([1.0, 2.0, 3.0]))
    Array(1., dtype=float32)
    """
    predictions, targets = _pair(predictions, targets, "r2_score")
    return 1 - hnp.sum((targets - predictions) ** 2) / hnp.sum((targets - hnp.mean(targets)) ** 2)


def confusion_matrix(predictions, labels, num_classes: int):
    """counts[true class, predicted class], int32. predictions, labels: class numbers of one shape.

    >>> hl.metrics.confusion_matrix(hnp.array([0, 1, 1]), hnp.array([0, 1, 0]), 2)
    Array([[1, 1],
           [0, 1]], dtype=int32)
    """
    predictions, labels = _pair(predictions, labels, "confusion_matrix")
    rows = hnp.ravel(labels)[:, None] == hnp.arange(num_classes)
    columns = hnp.ravel(predictions)[:, None] == hnp.arange(num_classes)
    return hnp.einsum("ni,nj->ij", rows.astype("s32"), columns.astype("s32"))


class Mean(NamedTuple):
    """A streaming mean of values, weighted where weights are given.

    >>> mean = hl.metrics.Mean.empty()
    >>> for batch in ([1.0, 2.0], [6.0]):
    ...     mean = mean.update(hnp.array(batch))
    >>> mean.compute()
    Array(3., dtype=float32)
    """

    total: Any
    weight: Any

    @classmethod
    def empty(cls) -> Mean:
        """The state before the first batch."""
        return cls(hnp.zeros((), "f32"), hnp.zeros((), "f32"))

    def update(self, values, weights=None) -> Mean:
        """The mean over everything before and all elements of `values`."""
        values = hnp.asarray(values).astype("f32")
        weights = hnp.ones_like(values) if weights is None else hnp.broadcast_to(hnp.asarray(weights), values.shape)
        return Mean(self.total + hnp.sum(values * weights), self.weight + hnp.sum(weights).astype("f32"))

    def merge(self, other: Mean) -> Mean:
        """The state after the batches of both, in any order."""
        return Mean(self.total + other.total, self.weight + other.weight)

    def compute(self):
        """The mean; 0 before the first value."""
        return self.total / hnp.where(self.weight == 0, 1, self.weight)


class Accuracy(NamedTuple):
    """A streaming accuracy.

    >>> metric = hl.metrics.Accuracy.empty()
    >>> metric = metric.update(hnp.array([1, 0]), hnp.array([1, 1]))
    >>> metric.compute()
    Array(0.5, dtype=float32)
    """

    mean: Mean

    @classmethod
    def empty(cls) -> Accuracy:
        """The state before the first batch."""
        return cls(Mean.empty())

    def update(self, predictions, labels) -> Accuracy:
        """Arguments as those of `accuracy`."""
        predictions, labels = as_operand(predictions, "accuracy"), as_operand(labels, "accuracy")
        if predictions.ndim == labels.ndim + 1:
            predictions = hnp.argmax(predictions, axis=-1)
        predictions, labels = _pair(predictions, labels, "accuracy")
        return Accuracy(self.mean.update(predictions == labels))

    def merge(self, other: Accuracy) -> Accuracy:
        """The state after the batches of both, in any order."""
        return Accuracy(self.mean.merge(other.mean))

    def compute(self):
        """The share of right predictions over all batches, f32[]."""
        return self.mean.compute()


class ConfusionCounts(NamedTuple):
    """Streaming counts of binary classification, float32 scalars, for precision, recall and F1.

    >>> counts = hl.metrics.ConfusionCounts.empty().update(hnp.array([1, 1, 0]), hnp.array([1, 0, 0]))
    >>> counts.precision(), counts.recall()
    (Array(0.5, dtype=float32), Array(1., dtype=float32))
    """

    true_positives: Any
    false_positives: Any
    false_negatives: Any
    true_negatives: Any

    @classmethod
    def empty(cls) -> ConfusionCounts:
        """The state before the first batch."""
        zero = hnp.zeros((), "f32")
        return cls(zero, zero, zero, zero)

    def update(self, predictions, labels, weights=None) -> ConfusionCounts:
        """predictions, labels: 0 and 1 (or booleans) of one shape. weights: of that shape, or broadcast to it."""
        predictions, labels = _pair(predictions, labels, "precision and recall")
        predicted, actual = predictions > 0, labels > 0
        weights = None if weights is None else hnp.broadcast_to(hnp.asarray(weights).astype("f32"), labels.shape)

        def count(a, b):
            both = hnp.logical_and(a, b)
            return hnp.sum(both.astype("f32") if weights is None else hnp.where(both, weights, 0))

        new = (
            count(predicted, actual),
            count(predicted, ~actual),
            count(~predicted, actual),
            count(~predicted, ~actual),
        )
        return ConfusionCounts(*(old + n for old, n in zip(self, new, strict=True)))

    def merge(self, other: ConfusionCounts) -> ConfusionCounts:
        """The state after the batches of both, in any order."""
        return ConfusionCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def precision(self):
        """True positives over predicted positives, f32[]; 0 where none is predicted."""
        return _share(self.true_positives, self.false_positives)

    def recall(self):
        """True positives over actual positives, f32[]; 0 where there are none."""
        return _share(self.true_positives, self.false_negatives)

    def f1(self):
        """The harmonic mean of precision and recall, f32[]."""
        return _share(2 * self.true_positives, self.false_positives + self.false_negatives)


def _share(part, rest):
    whole = part + rest
    return hnp.where(whole == 0, 0.0, part / hnp.where(whole == 0, 1, whole))


class Precision(NamedTuple):
    """A streaming precision: of the predicted positives, the share that is positive."""

    counts: ConfusionCounts

    @classmethod
    def empty(cls) -> Precision:
        """The state before the first batch."""
        return cls(ConfusionCounts.empty())

    def update(self, predictions, labels, weights=None) -> Precision:
        """Arguments as those of `ConfusionCounts.update`."""
        return Precision(self.counts.update(predictions, labels, weights))

    def merge(self, other: Precision) -> Precision:
        """The state after the batches of both, in any order."""
        return Precision(self.counts.merge(other.counts))

    def compute(self):
        """0 where nothing was predicted positive."""
        return self.counts.precision()


class Recall(NamedTuple):
    """A streaming recall: of the positives, the share that was predicted."""

    counts: ConfusionCounts

    @classmethod
    def empty(cls) -> Recall:
        """The state before the first batch."""
        return cls(ConfusionCounts.empty())

    def update(self, predictions, labels, weights=None) -> Recall:
        """Arguments as those of `ConfusionCounts.update`."""
        return Recall(self.counts.update(predictions, labels, weights))

    def merge(self, other: Recall) -> Recall:
        """The state after the batches of both, in any order."""
        return Recall(self.counts.merge(other.counts))

    def compute(self):
        """0 where nothing was positive."""
        return self.counts.recall()


class RecallAtK(NamedTuple):
    """A streaming recall at k: of the true classes, the share that is among the k largest scores."""

    mean: Mean

    @classmethod
    def empty(cls) -> RecallAtK:
        """The state before the first batch."""
        return cls(Mean.empty())

    def update(self, scores, labels, k: int) -> RecallAtK:
        """scores: (batch, classes). labels: class numbers, (batch,) or (batch, n) where a negative number is none."""
        found, there = _at_k(scores, labels, k)
        return RecallAtK(self.mean.update(found, there))

    def merge(self, other: RecallAtK) -> RecallAtK:
        """The state after the batches of both, in any order."""
        return RecallAtK(self.mean.merge(other.mean))

    def compute(self):
        """The recall over all batches, f32[]."""
        return self.mean.compute()


class PrecisionAtK(NamedTuple):
    """A streaming precision at k: of the k classes with the largest scores, the share that is true."""

    mean: Mean

    @classmethod
    def empty(cls) -> PrecisionAtK:
        """The state before the first batch."""
        return cls(Mean.empty())

    def update(self, scores, labels, k: int) -> PrecisionAtK:
        """Arguments as those of `RecallAtK.update`."""
        found, _ = _at_k(scores, labels, k)
        return PrecisionAtK(self.mean.update(hnp.sum(found.astype("f32"), axis=1) / k))

    def merge(self, other: PrecisionAtK) -> PrecisionAtK:
        """The state after the batches of both, in any order."""
        return PrecisionAtK(self.mean.merge(other.mean))

    def compute(self):
        """The precision over all batches, f32[]."""
        return self.mean.compute()


def _at_k(scores, labels, k: int):
    """(whether each label is among the k largest scores, whether it is a label), both (batch, n)."""
    scores, labels = as_operand(scores, "metrics at k"), as_operand(labels, "metrics at k")
    labels = labels[:, None] if labels.ndim == 1 else labels
    if scores.ndim != 2 or labels.ndim != 2 or labels.shape[0] != scores.shape[0] or not 0 < k <= scores.shape[1]:
        raise ShapeError(
            f"metrics at k={k} take scores (batch, classes) and labels (batch,) or (batch, n)",
            f"{scores._shape!r} and {labels._shape!r}",
            "pass one row of scores per example, and a k of at most the number of classes",
        )
    top = lax.top_k(scores, k)[1]
    there = labels >= 0
    among = hnp.any(labels[:, :, None] == top[:, None, :].astype(labels.dtype), axis=2)
    return hnp.logical_and(among, there), there.astype("f32")


class RootMeanSquaredError(NamedTuple):
    """A streaming root of the mean squared error.

    >>> metric = hl.metrics.RootMeanSquaredError.empty().update(hnp.array([1.0, 5.0]), hnp.array([1.0, 2.0]))
    >>> metric.compute().round(3)
    Array(2.121, dtype=float32)
    """

    mean: Mean

    @classmethod
    def empty(cls) -> RootMeanSquaredError:
        """The state before the first batch."""
        return cls(Mean.empty())

    def update(self, predictions, targets, weights=None) -> RootMeanSquaredError:
        """The state after another batch. weights: of the examples. Raises ShapeError."""
        predictions, targets = _pair(predictions, targets, "RootMeanSquaredError")
        return RootMeanSquaredError(self.mean.update((predictions - targets) ** 2, weights))

    def merge(self, other: RootMeanSquaredError) -> RootMeanSquaredError:
        """The state after the batches of both, in any order."""
        return RootMeanSquaredError(self.mean.merge(other.mean))

    def compute(self):
        """The root of the mean of all squared errors, f32[]."""
        return hnp.sqrt(self.mean.compute())


class MeanIoU(NamedTuple):
    """A streaming mean of intersection over union, over the classes that occur. counts[true class, predicted class].

    >>> metric = hl.metrics.MeanIoU.empty(2).update(hnp.array([0, 1, 1]), hnp.array([0, 1, 0]))
    >>> metric.compute()
    Array(0.5, dtype=float32)
    """

    counts: Any

    @classmethod
    def empty(cls, num_classes: int) -> MeanIoU:
        """The state before the first batch. num_classes: how many classes there are."""
        return cls(hnp.zeros((num_classes, num_classes), "f32"))

    def update(self, predictions, labels) -> MeanIoU:
        """predictions, labels: class numbers of one shape, such as (batch, height, width). Others than 0 to
        num_classes - 1 do not count."""
        found = confusion_matrix(predictions, labels, self.counts.shape[0])
        return MeanIoU(self.counts + found.astype("f32"))

    def merge(self, other: MeanIoU) -> MeanIoU:
        """The state after the batches of both, in any order."""
        return MeanIoU(self.counts + other.counts)

    def compute(self):
        """0 before the first class."""
        both = hnp.diagonal(self.counts)
        union = hnp.sum(self.counts, axis=0) + hnp.sum(self.counts, axis=1) - both
        occurs = union > 0
        shares = hnp.where(occurs, both / hnp.where(occurs, union, 1), 0)
        return hnp.sum(shares) / hnp.maximum(hnp.sum(occurs.astype("f32")), 1)


class AUC(NamedTuple):
    """A streaming area under the ROC curve from counts in bins of the score, for scores between 0 and 1.

    Within a bin positives and negatives count as ties, so the error is at most the chance that both fall in one bin.

    >>> metric = hl.metrics.AUC.empty().update(hnp.array([0.1, 0.8, 0.4]), hnp.array([0, 1, 1]))
    >>> metric.compute().round(2)
    Array(1., dtype=float32)
    """

    positives: Any
    negatives: Any

    @classmethod
    def empty(cls, bins: int = 1000) -> AUC:
        """The state before the first batch. bins: how finely scores are told apart."""
        return cls(hnp.zeros(bins, "f32"), hnp.zeros(bins, "f32"))

    def update(self, scores, labels) -> AUC:
        """The state after another batch. scores: between 0 and 1; labels: 0 or 1. Raises ShapeError."""
        scores, labels = _pair(scores, labels, "AUC")
        bins = self.positives.shape[0]
        where = hnp.clip((hnp.ravel(scores) * bins).astype("s32"), 0, bins - 1)
        positive = (hnp.ravel(labels) > 0).astype("f32")
        return AUC(self.positives.at[where].add(positive), self.negatives.at[where].add(1 - positive))

    def merge(self, other: AUC) -> AUC:
        """The state after the batches of both, in any order."""
        return AUC(self.positives + other.positives, self.negatives + other.negatives)

    def compute(self):
        """The area; NaN where only one class is there."""
        below = hnp.cumsum(self.negatives) - self.negatives
        pairs = hnp.sum(self.positives * (below + 0.5 * self.negatives))
        return pairs / (hnp.sum(self.positives) * hnp.sum(self.negatives))


__all__ = [
    "AUC", "Accuracy", "ConfusionCounts", "Mean", "MeanIoU", "Precision", "PrecisionAtK", "Recall", "RecallAtK",
    "RootMeanSquaredError", "accuracy", "auc", "confusion_matrix", "f1_score", "mean_absolute_error", "precision",
    "r2_score", "recall",
]  # fmt: skip
__dir__ = __all__.copy
