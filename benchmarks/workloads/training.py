"""Whole training steps: gradients and the update of all parameters by gradient descent."""

from __future__ import annotations

import math

import numpy as np

from hloom.benchmarks.workloads.products import attention
from hloom.benchmarks.workloads.table import Family, divided

FAMILY = Family("training steps")
workload = FAMILY.workload
STEP = {"bound_by": "compute", "tolerance": 2e-5, "needs": ("grad",)}


def draw(random, *shape, fan_in: int | None = None) -> np.ndarray:
    """Parameters of variance 2 / fan_in."""
    return (random.standard_normal(shape) * math.sqrt(2 / (fan_in or shape[0]))).astype(np.float32)


def descended(lib, loss, parameters, *data):
    """The parameters after a step of gradient descent, and the loss."""
    value, gradient = lib.value_and_grad(loss)(parameters, *data)
    return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)] + [value]


def cross_entropy(lib, logits, labels):
    wanted = lib.nn.one_hot(labels, logits.shape[-1])
    return -lib.np.mean(lib.np.sum(lib.nn.log_softmax(logits) * wanted, axis=-1))


def _network(batch: int, inputs: int, hidden: int, outputs: int):
    def make(random, divide=1):
        b, i, h, o = divided((batch, inputs, hidden, outputs), divide)
        images, labels = random.random((b, i), dtype=np.float32), random.integers(0, o, b).astype(np.int32)
        return [draw(random, i, h), draw(random, h) * 0.01, draw(random, h, o), draw(random, o) * 0.01, images, labels]

    return make


def _network_step(lib, w1, b1, w2, b2, images, labels):
    """One step of gradient descent of the cross entropy of a two-layer network."""

    def loss(parameters, images, labels):
        w1, b1, w2, b2 = parameters
        return cross_entropy(lib, lib.nn.relu(images @ w1 + b1) @ w2 + b2, labels)

    return descended(lib, loss, (w1, b1, w2, b2), images, labels)


def _network_step_by_hand(w1, b1, w2, b2, images, labels):
    """The same with the gradient written out, in NumPy."""
    before = images @ w1 + b1
    hidden = np.maximum(before, 0)
    logits = hidden @ w2 + b2
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    wanted = (labels[:, None] == np.arange(len(b2))).astype(w1.dtype)
    value = -np.mean(np.sum(log_probabilities * wanted, axis=1))
    d_logits = (np.exp(log_probabilities) - wanted) / len(labels)
    d_hidden = (d_logits @ w2.T) * (before > 0)
    gradient = images.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_logits, d_logits.sum(axis=0)
    return [p - 0.1 * g for p, g in zip((w1, b1, w2, b2), gradient, strict=True)] + [value]


workload(
    "mlp_step",
    "784-512-10, batch 256",
    _network(256, 784, 512, 10),
    suite="core",
    flops=2.0 * 256 * (784 * 512 * 2 + 512 * 10 * 3),
    plain=_network_step_by_hand,
    **STEP,
)(_network_step)
workload(
    "digits_step",
    "64-128-10, batch 32 (example 1)",
    _network(32, 64, 128, 10),
    suite="core",
    flops=2.0 * 32 * (64 * 128 * 2 + 128 * 10 * 3),
    plain=_network_step_by_hand,
    **STEP | {"bound_by": "overhead"},
)(_network_step)


def _lenet_inputs(random, divide=1):
    """Parameters of two convolutions and three dense layers; images (batch, 28, 28, 1)."""
    batch = max(2, 100 // divide)
    shapes = [(5, 5, 1, 6), (6,), (5, 5, 6, 16), (16,), (400, 120), (120,), (120, 84), (84,), (84, 10), (10,)]
    parameters = [draw(random, *s, fan_in=int(np.prod(s[:-1])) if len(s) > 1 else 20_000) for s in shapes]
    images = random.random((batch, 28, 28, 1), dtype=np.float32)
    return [*parameters, images, random.integers(0, 10, batch).astype(np.int32)]


@workload(
    "lenet_step",
    "LeNet-5, batch 100",
    _lenet_inputs,
    flops=3 * 2.0 * 100 * (784 * 25 * 6 + 100 * 150 * 16 + 400 * 120 + 120 * 84 + 840),
    **STEP | {"needs": ("grad", "conv")},
)
def _lenet(lib, *arrays):
    def loss(parameters, images, labels):
        w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = parameters
        relu = lib.nn.relu
        x = lib.max_pool(relu(lib.conv(images, w1) + b1), 2)
        x = lib.max_pool(relu(lib.conv(x, w2, padding="VALID") + b2), 2)
        x = relu(x.reshape(x.shape[0], -1) @ w3 + b3)
        return cross_entropy(lib, relu(x @ w4 + b4) @ w5 + b5, labels)

    *parameters, images, labels = arrays
    return descended(lib, loss, tuple(parameters), images, labels)


def _resnet_inputs(random, divide=1):
    size = max(7, 28 // divide)
    parameters = []
    for _ in range(2):
        parameters += [draw(random, 3, 3, 64, 64, fan_in=576), np.ones(64, np.float32), np.zeros(64, np.float32)]
    return [*parameters, random.standard_normal((16, size, size, 64), dtype=np.float32)]


@workload(
    "resnet_block_step",
    "a block of ResNet-18 (two 3 x 3 convolutions, batch norm), 16 x 28 x 28 x 64",
    _resnet_inputs,
    flops=6 * 2.0 * 16 * 28 * 28 * 9 * 64 * 64,
    **STEP | {"needs": ("grad", "conv"), "tolerance": 1e-4},
)
def _resnet_block(lib, *arrays):
    np = lib.np

    def norm(x, scale, shift):
        mean = np.mean(x, axis=(0, 1, 2))
        variance = np.mean((x - mean) ** 2, axis=(0, 1, 2))
        return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift

    def loss(parameters, x):
        w1, g1, b1, w2, g2, b2 = parameters
        y = lib.nn.relu(norm(lib.conv(x, w1), g1, b1))
        return np.mean(lib.nn.relu(x + norm(lib.conv(y, w2), g2, b2)) ** 2)

    *parameters, x = arrays
    return descended(lib, loss, tuple(parameters), x)


def _lstm_inputs(random, divide=1):
    batch, time, features, hidden = divided((32, 64, 64, 128), divide)
    gates = draw(random, features + hidden, 4 * hidden), np.zeros(4 * hidden, np.float32)
    x = random.standard_normal((time, batch, features), dtype=np.float32)
    return [*gates, draw(random, hidden, 10), x, random.integers(0, 10, batch).astype(np.int32)]


@workload(
    "lstm_step",
    "LSTM of 128 over 64 steps of 64, batch 32",
    _lstm_inputs,
    flops=3 * 2.0 * 64 * 32 * 192 * 512,
    **STEP | {"needs": ("grad", "lax"), "tolerance": 1e-4},
)
def _lstm(lib, w, b, out, x, labels):
    np, nn = lib.np, lib.nn

    def loss(parameters, x, labels):
        w, b, out = parameters
        hidden = out.shape[0]

        def step(state, row):
            h, c = state
            z = np.concatenate([row, h], axis=1) @ w + b
            i, f, g, o = (z[:, k * hidden : (k + 1) * hidden] for k in range(4))
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * np.tanh(g)
            return (nn.sigmoid(o) * np.tanh(c), c), None

        zero = np.zeros((x.shape[1], hidden), x.dtype)
        (h, _), _ = lib.lax.scan(step, (zero, zero), x)
        return cross_entropy(lib, h @ out, labels)

    return descended(lib, loss, (w, b, out), x, labels)


def _transformer_inputs(random, divide=1):
    batch, time, width = 4, max(8, 256 // divide), 256
    shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    return [*(draw(random, *s) * 0.5 for s in shapes), random.standard_normal((batch, time, width), dtype=np.float32)]


@workload(
    "transformer_step",
    "transformer block, width 256, 8 heads, 4 x 256",
    _transformer_inputs,
    flops=3 * (2.0 * 4 * 256 * 12 * 256 * 256 + 4.0 * 4 * 256 * 256 * 256),
    **STEP | {"tolerance": 1e-4},
)
def _transformer(lib, qkv, out, up, down, x):
    np, nn = lib.np, lib.nn

    def norm(x):
        centred = x - np.mean(x, axis=-1, keepdims=True)
        return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)

    def loss(parameters, x):
        qkv, out, up, down = parameters
        batch, time, width = x.shape
        parts = np.transpose((norm(x) @ qkv).reshape(batch, time, 3, 8, width // 8), (2, 0, 3, 1, 4))
        mixed = attention(lib, parts[0], parts[1], parts[2], causal=True)
        x = x + np.transpose(mixed, (0, 2, 1, 3)).reshape(batch, time, width) @ out
        x = x + nn.gelu(norm(x) @ up) @ down
        return np.mean(x * x)

    return descended(lib, loss, (qkv, out, up, down), x)
