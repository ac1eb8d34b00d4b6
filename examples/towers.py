"""Data-parallel training as in TensorFlow 1.0's multi-GPU tutorial: parameters on cpu:0, a tower on each device.

Each tower computes the gradient of its share of a batch of handwritten digits; their mean is taken on cpu:0, and the
step is the one that a single device would do, to rounding. Run it with

    python examples/towers.py [--devices 2]
"""

import argparse
import time

import numpy as np
from digits import accuracy, initial_parameters, load, loss

import hloom as hl
import hloom.numpy as hnp

BATCH, EPOCHS, RATE = 64, 40, 0.1


def make_step(towers):
    """A training step of so many towers, the first on cpu:0."""

    @hl.jit
    def step(parameters, images, labels):
        values, gradients = [], []
        shares = zip(hnp.split(images, towers), hnp.split(labels, towers), strict=True)
        for k, (some_images, some_labels) in enumerate(shares):
            with hl.device(f"cpu:{k}"):
                value, gradient = hl.value_and_grad(loss)(parameters, some_images, some_labels)
            values.append(value)
            gradients.append(gradient)
        with hl.device("cpu:0"):
            mean = hl.tree.map(lambda *g: sum(g) / towers, *gradients)
            return hl.tree.map(lambda p, g: p - RATE * g, parameters, mean), sum(values) / towers

    return step


def train(devices=2, epochs=EPOCHS, report=print):
    """Trains; returns the accuracy on the held-out fifth, and how far the parameters are from a single device's."""
    images, labels, held_images, held_labels = load()
    with hl.config(num_cpu_devices=max(devices, hl.config.num_cpu_devices)):
        steps = {"towers": make_step(devices), "single": make_step(1)}
        parameters = {name: initial_parameters() for name in steps}
        random = np.random.default_rng(2)
        started = time.perf_counter()
        for epoch in range(1, epochs + 1):
            order = random.permutation(len(labels))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                batch = order[start : start + BATCH]
                for name, step in steps.items():
                    parameters[name], value = step(parameters[name], images[batch], labels[batch])
            if epoch % 10 == 0 or epoch == 1:
                report(f"epoch {epoch:3d}  loss {float(value):.4f}  {time.perf_counter() - started:.1f} s")
        pairs = zip(hl.tree.leaves(parameters["towers"]), hl.tree.leaves(parameters["single"]), strict=True)
        apart = max(float(hnp.max(hnp.abs(a - b))) for a, b in pairs)
        return float(accuracy(parameters["towers"], held_images, held_labels)), apart


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=2, help="towers (default: 2)")
    found, apart = train(arguments.parse_args().devices)
    print(f"accuracy on the held-out fifth: {found:.1%}; parameters within {apart:.1e} of a single device's")
