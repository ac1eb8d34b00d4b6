"""The programs of the measurements of `hl.export`: (function, arguments) by name."""

from __future__ import annotations

from typing import Any

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import lax


def models() -> dict[str, tuple[Any, list[np.ndarray]]]:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (0.1 * random.standard_normal(shape)).astype(np.float32)

    w1, b1, w2, b2 = normal(784, 256), normal(256), normal(256, 10), normal(10)

    def mlp(x):
        return hl.nn.softmax(hnp.maximum(x @ w1 + b1, 0) @ w2 + b2)

    k1, k2, f1, f2 = normal(5, 5, 1, 6), normal(5, 5, 6, 16), normal(256, 84), normal(84, 10)

    def pooled(x):
        return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def lenet(x):
        layout = ("NHWC", "HWIO", "NHWC")
        for kernel in (k1, k2):
            x = pooled(hnp.tanh(lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=layout)))
        return hnp.tanh(x.reshape(x.shape[0], -1) @ f1) @ f2

    wq, wk, wv, wo, wu, wd = *(normal(128, 128) for _ in range(4)), normal(128, 512), normal(512, 128)

    def normalized(x):
        centred = x - hnp.mean(x, -1, keepdims=True)
        return centred * lax.rsqrt(hnp.mean(centred * centred, -1, keepdims=True) + 1e-5)

    def transformer_block(x):
        h = normalized(x)
        q, k, v = (hnp.transpose((h @ w).reshape(64, 4, 32), (1, 0, 2)) for w in (wq, wk, wv))
        scores = hl.nn.softmax(q @ hnp.transpose(k, (0, 2, 1)) / np.float32(32**0.5))
        x = x + hnp.transpose(scores @ v, (1, 0, 2)).reshape(64, 128) @ wo
        return x + hnp.tanh(normalized(x) @ wu) @ wd

    wx, wh = normal(32, 256), normal(64, 256)

    def lstm(xs):
        def cell(carry, x):
            h, s = carry
            i, f, o, u = hnp.split(x @ wx + h @ wh, 4, 1)
            s = hl.nn.sigmoid(f) * s + hl.nn.sigmoid(i) * hnp.tanh(u)
            h = hl.nn.sigmoid(o) * hnp.tanh(s)
            return (h, s), h

        zeros = hnp.zeros((xs.shape[1], 64), np.float32)
        return lax.scan(cell, (zeros, zeros), xs)[1]

    def sgd_step(w1, w2, x, y):
        def loss(w):
            z = hnp.tanh(x @ w[0]) @ w[1]
            z = z - hnp.max(z, 1, keepdims=True)
            return -hnp.mean(hnp.sum(y * (z - hnp.log(hnp.sum(hnp.exp(z), 1, keepdims=True))), 1))

        value, (g1, g2) = hl.value_and_grad(loss)((w1, w2))
        return w1 - 0.1 * g1, w2 - 0.1 * g2, value

    labels = np.eye(10, dtype=np.float32)[random.integers(0, 10, 64)]
    return {
        "mlp": (mlp, [normal(64, 784)]),
        "lenet": (lenet, [normal(32, 28, 28, 1)]),
        "transformer_block": (transformer_block, [normal(64, 128)]),
        "lstm": (lstm, [normal(20, 8, 32)]),
        "sgd_step": (sgd_step, [normal(784, 128), normal(128, 10), normal(64, 784), labels]),
    }
