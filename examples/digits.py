"""A two-layer network that learns to read handwritten digits, by mini-batch stochastic gradient descent.

The data are the 1,797 digits (8 by 8 pixels) that scikit-learn bundles. A fifth of them is held out. Run it with

    python examples/digits.py [--dump DIRECTORY]

--dump writes the graph after every pass and the source of the kernels.
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp

BATCH, EPOCHS, HIDDEN, RATE = 32, 60, 128, 0.1


def load():
    """Training and held-out images (rows of 64 pixels between 0 and 1) and labels."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.data[order] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    held_out = len(labels) // 5
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def initial_parameters(seed=1):
    random = np.random.default_rng(seed)

    def layer(inputs, outputs):
        weights = random.standard_normal((inputs, outputs)) * np.sqrt(2.0 / inputs)
        return {"w": hnp.asarray(weights.astype(np.float32)), "b": hnp.zeros(outputs)}

    return {"hidden": layer(64, HIDDEN), "output": layer(HIDDEN, 10)}


def logits(parameters, images):
    hidden = hl.nn.relu(images @ parameters["hidden"]["w"] + parameters["hidden"]["b"])
    return hidden @ parameters["output"]["w"] + parameters["output"]["b"]


def loss(parameters, images, labels):
    log_probabilities = hl.nn.log_softmax(logits(parameters, images))
    return -hnp.mean(hnp.sum(log_probabilities * hl.nn.one_hot(labels, 10), axis=-1))


@hl.jit(donate_argnums=0)
def train_step(parameters, images, labels):
    """One step of gradient descent; the new parameters take the place of the old ones."""
    value, gradient = hl.value_and_grad(loss)(parameters, images, labels)
    return hl.tree.map(lambda p, g: p - RATE * g, parameters, gradient), value


@hl.jit
def accuracy(parameters, images, labels):
    return hnp.mean(hnp.argmax(logits(parameters, images), axis=-1) == labels)


def train(epochs=EPOCHS, report=print):
    """Trains and returns the accuracy on the held-out fifth."""
    images, labels, held_images, held_labels = load()
    parameters = initial_parameters()
    random = np.random.default_rng(2)
    started = time.perf_counter()
    for epoch in range(1, epochs + 1):
        order = random.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            parameters, value = train_step(parameters, images[batch], labels[batch])
        if epoch % 10 == 0 or epoch == 1:
            held = float(accuracy(parameters, held_images, held_labels))
            report(
                f"epoch {epoch:3d}  loss {float(value):.4f}  held out {held:.1%}  {time.perf_counter() - started:.1f} s"
            )
    return float(accuracy(parameters, held_images, held_labels))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--dump", default="", help="directory for the graphs and kernels")
    dump = arguments.parse_args().dump
    if dump:
        hl.config.dump_to = dump
    result = train()
    print(f"accuracy on the held-out fifth: {result:.1%}")
    if dump:
        print(f"graphs after every pass and the kernels: {dump}/")
    assert result >= 0.97, "the network should read at least 97 % of the held-out digits"
