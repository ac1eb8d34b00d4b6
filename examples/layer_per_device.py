"""Model-parallel training: an LSTM of two layers, one per device, that reads digits row by row.

While the second layer processes a row, the first processes the next one. Gradients flow back the same way. Run it with

    python examples/layer_per_device.py [--devices 2]
"""

import argparse
import time

import numpy as np
from digits import load

import hloom as hl
import hloom.numpy as hnp

BATCH, EPOCHS, HIDDEN, RATE = 32, 25, 48, 0.5


def initial_parameters(layers, seed=1):
    random = np.random.default_rng(seed)

    def weights(inputs, outputs):
        return hnp.asarray((random.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32))

    cells = [
        {"w": weights((8 if k == 0 else HIDDEN) + HIDDEN, 4 * HIDDEN), "b": hnp.zeros(4 * HIDDEN)}
        for k in range(layers)
    ]
    return {"cells": cells, "output": weights(HIDDEN, 10)}


def cell(parameters, state, x):
    h, c = state
    z = hnp.concatenate([x, h], axis=1) @ parameters["w"] + parameters["b"]
    i, f, g, o = hnp.split(z, 4, axis=1)
    c = hl.nn.sigmoid(f + 1.0) * c + hl.nn.sigmoid(i) * hnp.tanh(g)
    return hl.nn.sigmoid(o) * hnp.tanh(c), c


def logits(parameters, images, devices):
    """devices: the name of the device of each layer, None for none in particular."""
    rows = hnp.transpose(images.reshape(-1, 8, 8), (1, 0, 2))
    zero = hnp.zeros((images.shape[0], HIDDEN))

    def step(states, x):
        made = []
        for one, state, device in zip(parameters["cells"], states, devices, strict=True):
            with hl.device(device):
                state = cell(one, state, x)
            made.append(state)
            x = state[0]
        return made, None

    states, _ = hl.lax.scan(step, [(zero, zero) for _ in devices], rows)
    return states[-1][0] @ parameters["output"]


def make_step(devices):
    def loss(parameters, images, labels):
        log_probabilities = hl.nn.log_softmax(logits(parameters, images, devices))
        return -hnp.mean(hnp.sum(log_probabilities * hl.nn.one_hot(labels, 10), axis=-1))

    @hl.jit
    def step(parameters, images, labels):
        value, gradient = hl.value_and_grad(loss)(parameters, images, labels)
        return hl.tree.map(lambda p, g: p - RATE * g, parameters, gradient), value

    return step


def train(devices=2, epochs=EPOCHS, report=print):
    """Trains; returns the accuracy on the held-out fifth, and how far one step is from a single device's."""
    images, labels, held_images, held_labels = load()
    with hl.config(num_cpu_devices=max(devices, hl.config.num_cpu_devices)):
        names = [f"cpu:{k}" for k in range(devices)]
        step, single = make_step(names), make_step([None] * devices)
        parameters = initial_parameters(devices)
        one, other = (s(parameters, images[:BATCH], labels[:BATCH])[0] for s in (step, single))
        apart = max(
            float(np.max(np.abs(np.asarray(a) - np.asarray(b))))
            for a, b in zip(hl.tree.leaves(one), hl.tree.leaves(other), strict=True)
        )
        report("What the devices exchange in a step:")
        report(step.lower(parameters, images[:BATCH], labels[:BATCH]).compile().collectives())
        random = np.random.default_rng(2)
        started = time.perf_counter()
        for epoch in range(1, epochs + 1):
            order = random.permutation(len(labels))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                batch = order[start : start + BATCH]
                parameters, value = step(parameters, images[batch], labels[batch])
            if epoch % 5 == 0 or epoch == 1:
                report(f"epoch {epoch:3d}  loss {float(value):.4f}  {time.perf_counter() - started:.1f} s")
        scores = hl.jit(lambda p, x: logits(p, x, names))(parameters, held_images)
        return float(np.mean(np.argmax(np.asarray(scores), axis=-1) == held_labels)), apart


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=2, help="layers, each on a device of its own (default: 2)")
    found, apart = train(arguments.parse_args().devices)
    print(f"accuracy on the held-out fifth: {found:.1%}; a step within {apart:.1e} of a single device's")
