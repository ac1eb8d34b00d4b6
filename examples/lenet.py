"""LeNet-5, a convolutional network (LeCun et al., 1998), on handwritten digits.

The 1,797 digits (8 by 8 pixels) that scikit-learn bundles are enlarged to 28 by 28. A fifth of them is held out. Run

    python examples/lenet.py [--epochs 8]
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim

BATCH = 100


class LeNet(nn.Module):
    """Two convolutions with pooling, then three dense layers; images (batch, 28, 28, 1) to 10 logits."""

    features: nn.Sequential
    classifier: nn.Sequential

    def __init__(self, key):
        keys = hl.random.split(key, 5)
        self.features = nn.Sequential(
            nn.Conv(1, 6, (5, 5), key=keys[0]),
            nn.relu,
            nn.MaxPool((2, 2)),
            nn.Conv(6, 16, (5, 5), padding="VALID", key=keys[1]),
            nn.relu,
            nn.MaxPool((2, 2)),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(400, 120, key=keys[2]),
            nn.relu,
            nn.Linear(120, 84, key=keys[3]),
            nn.relu,
            nn.Linear(84, 10, key=keys[4]),
        )

    def __call__(self, images):
        return self.classifier(self.features(images))


def load():
    """Training and held-out images (28, 28, 1) between 0 and 1, and labels."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    small = (digits.images[order] / 16.0).astype(np.float32)[..., None]
    images = np.asarray(hl.image.resize(small, (len(small), 28, 28, 1), "linear"))
    labels = digits.target[order].astype(np.int32)
    held_out = len(labels) // 5
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def loss(model, images, labels):
    return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(model(images), labels))


@hl.jit
def accuracy(model, images, labels):
    return hl.metrics.accuracy(model(images), labels)


def train(epochs=8, report=print):
    """Trains with Adam and a cosine schedule; returns the accuracy on the held-out fifth."""
    images, labels, held_images, held_labels = load()
    model = LeNet(hl.random.key(0))
    steps = epochs * (len(labels) // BATCH)
    optimizer = optim.adam(optim.warmup_cosine_decay_schedule(0.0, 3e-3, 10, steps))
    state = optimizer.init(model)

    @hl.jit
    def step(model, state, images, labels):
        value, gradient = hl.value_and_grad(loss)(model, images, labels)
        updates, state = optimizer.update(gradient, state, model)
        return optim.apply_updates(model, updates), state, value

    random = np.random.default_rng(1)
    for epoch in range(1, epochs + 1):
        started = time.perf_counter()
        order = random.permutation(len(labels))
        total = hl.metrics.Mean.empty()
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            model, state, value = step(model, state, images[batch], labels[batch])
            total = total.update(value)
        speed = len(labels) / (time.perf_counter() - started)
        held = float(accuracy(model, held_images, held_labels))
        report(f"epoch {epoch}  loss {float(total.compute()):.4f}  held out {held:.1%}  {speed:,.0f} images/s")
    return float(accuracy(model, held_images, held_labels))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--epochs", type=int, default=8, help="passes over the training images")
    result = train(arguments.parse_args().epochs)
    print(f"accuracy on the held-out fifth: {result:.1%}")
    assert result >= 0.97, "LeNet should read at least 97 % of the held-out digits"
