"""Weighted losses, regularizers and streaming metrics against plain NumPy."""

import numpy as np
import pytest
from sklearn import metrics as theirs

import hloom as hl
import hloom.numpy as hnp
from hloom import metrics, nn
from hloom.errors import ArgumentError, ShapeError
from hloom.nn import losses, regularizers

RNG = np.random.default_rng(0)
L = RNG.random((4, 3)).astype(np.float32)
W = np.array([1.0, 0.0, 2.0, 0.5], np.float32)


def test_reductions_of_weighted_losses():
    products = L * W[:, None]
    for reduction, expected in (
        ("none", products), ("sum", products.sum()), ("mean", products.sum() / (3 * W.sum())),
        ("sum_over_batch_size", products.mean()), ("sum_by_nonzero_weights", products.sum() / 9),
    ):  # fmt: skip
        np.testing.assert_allclose(losses.compute_weighted_loss(L, W, reduction), expected, rtol=1e-6)
    np.testing.assert_allclose(losses.compute_weighted_loss(L), L.mean(), rtol=1e-6)
    padded = L.copy()
    padded[1] = np.inf  # has no weight
    assert float(losses.compute_weighted_loss(padded, W)) == pytest.approx(products.sum() / 9, rel=1e-6)
    assert float(losses.compute_weighted_loss(L, 0.0)) == 0
    gradient = hl.grad(lambda x: losses.compute_weighted_loss(x, W))(L)
    np.testing.assert_allclose(gradient, np.broadcast_to(W[:, None] / 9, L.shape), rtol=1e-6)
    with pytest.raises(ShapeError, match="one per example"):
        losses.compute_weighted_loss(L, np.ones(3))
    with pytest.raises(ArgumentError, match="sum_by_nonzero_weights"):
        losses.compute_weighted_loss(L, W, "average")


def test_more_losses():
    p, t = RNG.random((4, 3)).astype(np.float32), RNG.integers(0, 2, (4, 3)).astype(np.float32)
    np.testing.assert_allclose(losses.absolute_error(p, t), np.abs(p - t), rtol=1e-6)
    expected = [theirs.log_loss(t[:, j], p[:, j], labels=[0, 1]) for j in range(3)]
    np.testing.assert_allclose(hnp.mean(losses.log_loss(p, t), axis=0), expected, rtol=1e-4)
    d = p - t
    pairs = [[(d[k, i] - d[k, j]) ** 2 for i in range(3) for j in range(3) if i != j] for k in range(4)]
    np.testing.assert_allclose(losses.mean_pairwise_squared_error(p, t), np.mean(pairs, axis=1), rtol=1e-5)
    for call in (losses.absolute_error, losses.log_loss, losses.mean_pairwise_squared_error):
        with pytest.raises(ShapeError):
            call(p, t[:, :1])
    with pytest.raises(ShapeError, match="pairs"):
        losses.mean_pairwise_squared_error(p[:, :1], t[:, :1])


def test_penalties_by_name():
    model = nn.Sequential(nn.Linear(3, 4, key=hl.random.key(0)), nn.Linear(4, 2, key=hl.random.key(1)))
    first, second = (np.asarray(layer.kernel) for layer in model.layers)
    squares = 0.5 * 0.1 * ((first**2).sum() + (second**2).sum())
    assert float(regularizers.penalty(regularizers.l2(0.1), model)) == pytest.approx(squares, rel=1e-5)
    only = regularizers.penalty(regularizers.l1_l2(0.2, 0.0), model, "layers/1/*")
    assert float(only) == pytest.approx(0.2 * np.abs(second).sum(), rel=1e-5)
    with pytest.raises(ArgumentError, match="layers/0/kernel"):
        regularizers.penalty(regularizers.l2(0.1), model, "encoder/*")
    with pytest.raises(ArgumentError, match="at least 0"):
        regularizers.l2(-1.0)


def streamed(metric, batches, *options):
    """By jit, in one pass, and merged from two workers."""
    update = hl.jit(lambda m, *b: m.update(*b, *options))
    whole = metric
    for batch in batches:
        whole = update(whole, *batch)
    first, second = update(metric, *batches[0]), metric
    for batch in batches[1:]:
        second = update(second, *batch)
    merged = float(first.merge(second).compute())
    assert merged == pytest.approx(float(whole.compute()), rel=1e-6)
    return merged


def test_streaming_metrics():
    p, t, w = RNG.integers(0, 2, 60), RNG.integers(0, 2, 60), RNG.random(60).astype(np.float32)
    batches = [(p[k::3], t[k::3], w[k::3]) for k in range(3)]
    assert streamed(metrics.Precision.empty(), batches) == pytest.approx(theirs.precision_score(t, p, sample_weight=w))
    assert streamed(metrics.Recall.empty(), batches) == pytest.approx(theirs.recall_score(t, p, sample_weight=w))
    y, z = RNG.standard_normal((2, 60)).astype(np.float32)
    batches = [(y[k::3], z[k::3], w[k::3]) for k in range(3)]
    expected = theirs.root_mean_squared_error(z, y, sample_weight=w)
    assert streamed(metrics.RootMeanSquaredError.empty(), batches) == pytest.approx(expected, rel=1e-5)
    c, d = RNG.integers(0, 4, (2, 60))
    c[c == 3], d[d == 3] = 0, 1  # a class that does not occur
    batches = [(c[k::3], d[k::3]) for k in range(3)]
    expected = theirs.jaccard_score(d, c, average="macro", labels=[0, 1, 2])
    assert streamed(metrics.MeanIoU.empty(4), batches) == pytest.approx(expected, rel=1e-5)


def test_streaming_metrics_at_k():
    scores, labels = RNG.random((30, 7)).astype(np.float32), RNG.integers(0, 7, 30)
    batches = [(scores[k::3], labels[k::3]) for k in range(3)]
    expected = theirs.top_k_accuracy_score(labels, scores, k=3, labels=range(7))
    assert streamed(metrics.RecallAtK.empty(), batches, 3) == pytest.approx(expected)
    several = np.stack([labels, (labels + 1) % 7, np.where(labels % 2, (labels + 2) % 7, -1)], axis=1)
    top = np.argsort(-scores, axis=1)[:, :3]
    hits = np.array([[c in row for c in of] for row, of in zip(top, several, strict=True)])
    batches = [(scores[k::3], several[k::3]) for k in range(3)]
    recall, precision = hits[several >= 0].mean(), hits.sum(axis=1).mean() / 3
    assert streamed(metrics.RecallAtK.empty(), batches, 3) == pytest.approx(recall, rel=1e-6)
    assert streamed(metrics.PrecisionAtK.empty(), batches, 3) == pytest.approx(precision, rel=1e-6)
    with pytest.raises(ShapeError, match="k=9"):
        metrics.RecallAtK.empty().update(scores, labels, 9)
    assert float(metrics.MeanIoU.empty(3).compute()) == 0
