"""Dropout, losses' parts, random arrays."""

from __future__ import annotations

import zlib

import numpy as np

import hloom.numpy as hnp
from hloom import random
from hloom.errors import UnsupportedError
from hloom.onnx.reader import dtype_of
from hloom.onnx.table import op


def key_of(node, seed: float | None):
    """The key of a node: from its seed, or without one from its name, so that a model always draws the same numbers."""
    text = f"{seed}" if seed is not None else f"{node.node.name} {node.node.outputs}"
    return random.key(zlib.crc32(text.encode()))


@op("Dropout")
def dropout1(x, *, ratio=0.5, is_test=None, consumed_inputs=()):
    if is_test == 0:
        raise UnsupportedError("Dropout of opset 6 or older with is_test=0", "training", "export it for inference")
    return x, hnp.ones(x.shape, x.dtype)


@op("Dropout", since=10)
def dropout10(x, *, ratio=0.5):
    return x, hnp.ones(x.shape, bool)


@op("Dropout", since=12, static=(2,))
def dropout(node, x, ratio=None, training=None, *, seed=None):
    if training is None or not training.reshape(()):
        return x, hnp.ones(x.shape, bool)
    ratio = hnp.asarray(0.5 if ratio is None else ratio).astype(np.float32)
    kept = random.uniform(key_of(node, seed), x.shape) >= ratio
    return hnp.where(kept, x / (1 - ratio).astype(x.dtype), hnp.zeros((), x.dtype)), kept


@op("RandomNormal")
def random_normal(node, *, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    return (random.normal(key_of(node, seed), tuple(shape)) * scale + mean).astype(dtype_of(dtype))


@op("RandomUniform")
def random_uniform(node, *, dtype=1, high=1.0, low=0.0, seed=None, shape):
    return random.uniform(key_of(node, seed), tuple(shape), minval=low, maxval=high).astype(dtype_of(dtype))


@op("RandomNormalLike")
def random_normal_like(node, x, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (random.normal(key_of(node, seed), x.shape) * scale + mean).astype(kind)


@op("RandomUniformLike")
def random_uniform_like(node, x, *, dtype=None, high=1.0, low=0.0, seed=None):
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return random.uniform(key_of(node, seed), x.shape, minval=low, maxval=high).astype(kind)


@op("Bernoulli")
def bernoulli(node, x, *, dtype=None, seed=None):
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (random.uniform(key_of(node, seed), x.shape) < x.astype(np.float32)).astype(kind)


@op("Multinomial")
def multinomial(node, x, *, dtype=6, sample_size=1, seed=None):
    """x: unnormalized log probabilities (batch, classes); result (batch, sample_size)."""
    drawn = random.categorical(key_of(node, seed), x[:, None, :], axis=-1, shape=(x.shape[0], sample_size))
    return drawn.astype(dtype_of(dtype))
