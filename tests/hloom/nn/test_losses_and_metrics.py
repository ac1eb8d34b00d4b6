"""hloom.nn.losses and hloom.metrics: against formulas in NumPy, scikit-learn, and brute force over alignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import metrics
from hloom.errors import DTypeError, ShapeError
from hloom.nn import losses

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.standard_normal((5, 4)).astype(np.float32)
LABELS = np.array([0, 3, 1, 1, 2], np.int32)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_cross_entropies():
    expected = -log_softmax(LOGITS)[np.arange(5), LABELS]
    found = losses.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)
    np.testing.assert_allclose(
        np.asarray(losses.softmax_cross_entropy(LOGITS, hl.nn.one_hot(LABELS, 4))), expected, rtol=1e-5
    )
    moved = losses.softmax_cross_entropy_with_integer_labels(LOGITS.T, LABELS, axis=0)
    np.testing.assert_allclose(np.asarray(moved), expected, rtol=1e-5)
    large = losses.softmax_cross_entropy_with_integer_labels(np.array([[1e4, -1e4]], np.float32), np.array([1]))
    np.testing.assert_allclose(np.asarray(large), [2e4])
    p = 1 / (1 + np.exp(-LOGITS))
    targets = (LOGITS > 0.3).astype(np.float32)
    expected = -(targets * np.log(p) + (1 - targets) * np.log1p(-p))
    np.testing.assert_allclose(
        np.asarray(losses.sigmoid_binary_cross_entropy(LOGITS, targets)), expected, rtol=1e-4, atol=1e-6
    )


def test_the_gradient_of_cross_entropy_is_the_difference_to_the_labels():
    gradient = hl.grad(lambda x: hnp.sum(losses.softmax_cross_entropy_with_integer_labels(x, LABELS)))(LOGITS)
    np.testing.assert_allclose(
        np.asarray(gradient), np.exp(log_softmax(LOGITS)) - np.eye(4)[LABELS], rtol=1e-4, atol=1e-6
    )


def test_distances():
    a, b = np.array([0.0, 1.0, -3.0], np.float32), np.array([0.5, 3.0, 0.0], np.float32)
    d = a - b
    np.testing.assert_allclose(np.asarray(losses.squared_error(a, b)), d**2)
    np.testing.assert_allclose(np.asarray(losses.l2_loss(a, b)), d**2 / 2)
    np.testing.assert_allclose(float(losses.mean_squared_error(a, b)), (d**2).mean(), rtol=1e-6)
    huber = np.where(np.abs(d) <= 1.5, d**2 / 2, 1.5 * (np.abs(d) - 0.75))
    np.testing.assert_allclose(np.asarray(losses.huber_loss(a, b, 1.5)), huber, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(losses.log_cosh(a, b)), np.log(np.cosh(d)), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(losses.hinge_loss(a, np.sign(b))), np.maximum(0, 1 - a * np.sign(b)))
    x, y = LOGITS, LOGITS[::-1].copy()
    cosine = (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
    np.testing.assert_allclose(np.asarray(losses.cosine_similarity(x, y)), cosine, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.asarray(losses.cosine_distance(x, y)), 1 - cosine, rtol=1e-4, atol=1e-6)
    p = np.array([0.0, 0.25, 0.75], np.float32)
    q = np.array([0.2, 0.3, 0.5], np.float32)
    expected = 0.25 * np.log(0.25 / 0.3) + 0.75 * np.log(0.75 / 0.5)
    assert float(losses.kl_divergence(np.log(q), p)) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(
        np.asarray(losses.smooth_labels(np.eye(4, dtype=np.float32)[:1], 0.1)), [[0.925, 0.025, 0.025, 0.025]]
    )


def test_wrong_arguments():
    with pytest.raises(DTypeError, match="class numbers"):
        losses.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS.astype(np.float32))
    with pytest.raises(ShapeError, match="one label per example"):
        losses.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS[:3])
    with pytest.raises(ShapeError, match="labels of the logits' shape"):
        losses.softmax_cross_entropy(LOGITS, LABELS)
    with pytest.raises(ShapeError, match="one shape"):  # would broadcast to (3, 3)
        losses.squared_error(np.ones((3, 1), np.float32), np.ones(3, np.float32))
    with pytest.raises(ShapeError, match="batch, frames, classes"):
        losses.ctc_loss(LOGITS, np.zeros(5), LABELS[None], np.zeros((1, 5)))


def brute_force(log_probabilities, label):
    """-log of the sum over all frame labellings that collapse to `label`."""
    total = 0.0
    frames, classes = log_probabilities.shape
    for path in itertools.product(range(classes), repeat=frames):
        collapsed = [c for c, _ in itertools.groupby(path) if c != 0]
        if collapsed == list(label):
            total += np.exp(sum(log_probabilities[t, c] for t, c in enumerate(path)))
    return -np.log(total)


def test_ctc():
    frames, classes = 5, 3
    logits = RANDOM.standard_normal((4, frames, classes)).astype(np.float32)
    labels = np.array([[1, 2], [1, 1], [2, 0], [1, 2]], np.int32)
    label_paddings = np.array([[0, 0], [0, 0], [0, 1], [0, 0]], np.float32)
    logit_paddings = np.zeros((4, frames), np.float32)
    logit_paddings[3, 3:] = 1
    found = np.asarray(losses.ctc_loss(logits, logit_paddings, labels, label_paddings))
    logs = log_softmax(logits)
    expected = [
        brute_force(logs[0], [1, 2]),
        brute_force(logs[1], [1, 1]),
        brute_force(logs[2], [2]),
        brute_force(logs[3][:3], [1, 2]),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    gradient = hl.jit(hl.grad(lambda x: hnp.sum(losses.ctc_loss(x, logit_paddings, labels, label_paddings))))(logits)
    gradient = np.asarray(gradient)
    assert np.all(np.isfinite(gradient)) and np.all(gradient[3, 3:] == 0)
    step = np.zeros_like(logits)
    step[0, 2, 1] = 1e-2
    both = [float(hnp.sum(losses.ctc_loss(logits + s, logit_paddings, labels, label_paddings))) for s in (step, -step)]
    assert gradient[0, 2, 1] == pytest.approx((both[0] - both[1]) / 2e-2, rel=2e-2, abs=1e-3)


def test_metrics_as_scikit_learn():
    theirs = pytest.importorskip("sklearn.metrics")
    labels = RANDOM.integers(0, 2, 200)
    scores = np.round(np.clip(0.3 * labels + 0.6 * RANDOM.random(200), 0, 0.999), 2).astype(np.float32)  # with ties
    predicted = (scores > 0.5).astype(np.int32)
    assert float(metrics.auc(scores, labels)) == pytest.approx(theirs.roc_auc_score(labels, scores), rel=1e-5)
    assert float(metrics.precision(predicted, labels)) == pytest.approx(theirs.precision_score(labels, predicted))
    assert float(metrics.recall(predicted, labels)) == pytest.approx(theirs.recall_score(labels, predicted))
    assert float(metrics.f1_score(predicted, labels)) == pytest.approx(theirs.f1_score(labels, predicted))
    assert float(metrics.accuracy(predicted, labels)) == pytest.approx(theirs.accuracy_score(labels, predicted))
    assert float(metrics.r2_score(scores, labels)) == pytest.approx(theirs.r2_score(labels, scores), rel=1e-4)
    assert float(metrics.mean_absolute_error(scores, labels)) == pytest.approx(
        theirs.mean_absolute_error(labels, scores), rel=1e-5
    )
    classes, guesses = RANDOM.integers(0, 4, 100), RANDOM.integers(0, 4, 100)
    np.testing.assert_array_equal(
        np.asarray(metrics.confusion_matrix(guesses, classes, 4)), theirs.confusion_matrix(classes, guesses)
    )


def test_streams_equal_the_whole():
    labels = RANDOM.integers(0, 2, 300)
    scores = np.clip(0.3 * labels + 0.6 * RANDOM.random(300), 0, 0.999).astype(np.float32)
    mean, counts, area, right = (
        c.empty() for c in (metrics.Mean, metrics.ConfusionCounts, metrics.AUC, metrics.Accuracy)
    )
    update = hl.jit(lambda m, *batch: m.update(*batch))
    for k in range(0, 300, 100):
        part = slice(k, k + 100)
        mean = update(mean, scores[part])
        counts = update(counts, scores[part] > 0.5, labels[part] > 0)
        area = update(area, scores[part], labels[part])
        right = update(right, scores[part] > 0.5, labels[part] > 0)
    assert float(mean.compute()) == pytest.approx(scores.mean(), rel=1e-5)
    assert float(counts.precision()) == pytest.approx(float(metrics.precision(scores > 0.5, labels > 0)))
    assert float(area.compute()) == pytest.approx(float(metrics.auc(scores, labels)), abs=2e-3)
    assert float(right.compute()) == pytest.approx(np.mean((scores > 0.5) == (labels > 0)))
    halves = metrics.Mean.empty().update(scores[:10]).merge(metrics.Mean.empty().update(scores[10:]))
    assert float(halves.compute()) == pytest.approx(float(mean.compute()), rel=1e-5)
    assert float(metrics.Mean.empty().compute()) == 0.0
    weighted = metrics.Mean.empty().update([1.0, 3.0], [1.0, 3.0])
    assert float(weighted.compute()) == pytest.approx(2.5)


def test_scores_of_classes():
    assert float(metrics.accuracy(LOGITS, LOGITS.argmax(1))) == 1.0
    with pytest.raises(ShapeError, match="one shape"):
        metrics.accuracy(LABELS, LABELS[:2])


@pytest.mark.parametrize(
    "name", ["sigmoid_binary_cross_entropy", "hinge_loss", "kl_divergence", "cosine_similarity", "cosine_distance"]
)
def test_losses_do_not_pair_all_with_all(name):
    """(8, 1) against (8,) broadcasts to (8, 8), and trains without an error."""
    function, p = getattr(losses, name), np.full((8, 1), 0.5, np.float32)
    for targets in (p[:, 0], p[:4], p[None]):
        with pytest.raises(ShapeError, match=f"{name.replace('distance', 'similarity')} takes predictions"):
            function(p, targets)
    assert function(p, p).shape in ((8, 1), (8,))


def test_one_label_for_all():
    logits = np.linspace(-2, 2, 5, dtype=np.float32)
    found = losses.sigmoid_binary_cross_entropy(logits, 1.0)
    np.testing.assert_array_equal(found, losses.sigmoid_binary_cross_entropy(logits, np.ones(5, np.float32)))


def test_accuracy_of_one_hot_labels_is_refused():
    scores = np.eye(4, dtype=np.float32)
    assert float(metrics.accuracy(scores, np.arange(4))) == 1
    with pytest.raises(ShapeError, match=r"(?s)accuracy of float32\[4, 4\].*argmax"):
        metrics.accuracy(scores, scores)
    assert float(metrics.accuracy(np.array([[1, 2]]), np.array([[1, 3]]))) == 0.5
