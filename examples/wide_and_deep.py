"""A wide and deep classifier (Cheng et al., 2016) of tumours, on the Wisconsin breast cancer data.

569 patients with 30 measurements, bundled with scikit-learn; a fifth is held out. The wide part is linear in crossed
buckets of pairs of measurements, the deep part a network over the measurements and embedded buckets. Run

    python examples/wide_and_deep.py [--epochs 60]
"""

import argparse
import itertools

import numpy as np
from sklearn.datasets import load_breast_cancer

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim

BATCH, BUCKETS, CROSSED, EMBEDDING = 64, 8, 5, 4
PAIRS = list(itertools.combinations(range(CROSSED), 2))


class WideAndDeep(nn.Module):
    wide: object  # (pairs, BUCKETS^2): one weight for each crossed bucket
    embeddings: object  # (features, BUCKETS, EMBEDDING)
    deep: nn.Sequential

    def __init__(self, features, key):
        keys = hl.random.split(key, 4)
        self.wide = hnp.zeros((len(PAIRS), BUCKETS * BUCKETS))
        self.embeddings = 0.1 * hl.random.normal(keys[0], (features, BUCKETS, EMBEDDING))
        self.deep = nn.Sequential(
            nn.Linear(features * (1 + EMBEDDING), 64, key=keys[1]),
            nn.relu,
            nn.Dropout(0.2),
            nn.Linear(64, 32, key=keys[2]),
            nn.relu,
            nn.Linear(32, 1, key=keys[3]),
        )

    def __call__(self, values, buckets):
        """values: (batch, features), standardized. buckets: (batch, features), 0 to BUCKETS - 1. Returns logits."""
        pairs = np.array(PAIRS)
        crossed = buckets[:, pairs[:, 0]] * BUCKETS + buckets[:, pairs[:, 1]]
        wide = hnp.sum(self.wide[np.arange(len(PAIRS)), crossed], axis=1)
        embedded = self.embeddings[np.arange(values.shape[1]), buckets]
        deep = self.deep(hnp.concatenate([values, embedded.reshape(len(values), -1)], axis=1))
        return wide + deep[:, 0]


def load():
    """Standardized values, buckets by the quantiles of the training part, and labels; (training, held out)."""
    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.target))
    values, labels = data.data[order].astype(np.float32), data.target[order].astype(np.float32)
    held = len(labels) // 5
    mean, deviation = values[held:].mean(axis=0), values[held:].std(axis=0)
    edges = np.quantile(values[held:], np.arange(1, BUCKETS) / BUCKETS, axis=0)
    buckets = (values[:, None] > edges).sum(axis=1).astype(np.int32)
    values = (values - mean) / deviation
    parts = [(values[s], buckets[s], labels[s]) for s in (slice(held, None), slice(held))]
    return parts


def loss(model, values, buckets, labels, key):
    logits, _ = nn.apply(model, values, buckets, training=True, key=key)
    return hnp.mean(nn.losses.sigmoid_binary_cross_entropy(logits, labels))


@hl.jit
def scores(model, values, buckets):
    return nn.sigmoid(model(values, buckets))


def train(epochs=60, report=print):
    """Returns (accuracy, area under the ROC curve, precision, recall) on the held-out fifth."""
    (values, buckets, labels), (held_values, held_buckets, held_labels) = load()
    model = WideAndDeep(values.shape[1], hl.random.key(0))
    # As in the paper, each part has its own optimizer.
    kinds = hl.tree.map(lambda _: "deep", model).replace(wide="wide")
    optimizer = optim.partition({"wide": optim.adagrad(0.02), "deep": optim.adamw(2e-3, weight_decay=0.01)}, kinds)
    state = optimizer.init(model)

    @hl.jit
    def step(model, state, values, buckets, labels, key):
        value, gradient = hl.value_and_grad(loss)(model, values, buckets, labels, key)
        updates, state = optimizer.update(gradient, state, model)
        return optim.apply_updates(model, updates), state, value

    random, count = np.random.default_rng(1), 0
    for epoch in range(1, epochs + 1):
        order = random.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows, count = order[start : start + BATCH], count + 1
            key = hl.random.fold_in(hl.random.key(2), count)
            model, state, value = step(model, state, values[rows], buckets[rows], labels[rows], key)
        if epoch % 20 == 0:
            report(f"epoch {epoch}  loss {float(value):.4f}")
    probabilities = scores(model, held_values, held_buckets)
    predicted = probabilities > 0.5
    return (
        float(hl.metrics.accuracy(predicted, held_labels > 0)),
        float(hl.metrics.auc(probabilities, held_labels)),
        float(hl.metrics.precision(predicted, held_labels)),
        float(hl.metrics.recall(predicted, held_labels)),
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--epochs", type=int, default=60, help="passes over the training patients")
    accuracy, area, precision, recall = train(arguments.parse_args().epochs)
    print(f"held out: accuracy {accuracy:.1%}, AUC {area:.4f}, precision {precision:.1%}, recall {recall:.1%}")
    assert accuracy >= 0.94 and area >= 0.98
