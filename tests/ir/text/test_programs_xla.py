"""Whole programs of hloom's as text: XLA compiles what was traced and what the passes made of it, in HLO and in
StableHLO, and gets hloom's numbers."""

from __future__ import annotations

import numpy as np
import pytest
import xla

import hloom as hl
import hloom.numpy as hnp
from hloom import lax

RNG = np.random.default_rng(0)


def _normal(*dims) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


WEIGHTS = {"w": _normal(6, 8), "b": _normal(8), "v": _normal(8, 3)}
X = _normal(5, 6)
IMAGES, KERNELS = _normal(2, 3, 8, 7), _normal(4, 3, 3, 3)
LABELS = np.array([0, 2, 1, 1, 0], np.int32)


def _network(w, b, v, x):
    return hl.nn.softmax(hl.nn.gelu(x @ w + b) @ v)


def _loss(w, b, v, x, labels):
    scores = hl.nn.log_softmax(hnp.tanh(x @ w + b) @ v)
    return -hnp.mean(hnp.take_along_axis(scores, labels[:, None], axis=1))


def _convolutional(images, kernels):
    y = hl.nn.relu(lax.conv_general_dilated(images, kernels, (1, 1), "SAME"))
    return lax.reduce_window(y, -hnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID").mean(axis=(2, 3))


def _normalized(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered / hnp.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)


def _recurrent(x, w):
    def step(state, row):
        state = hnp.tanh(row @ w + state)
        return state, state.sum()

    return lax.scan(step, hnp.zeros(8, "float32"), x)


def _newton(x):
    return lax.while_loop(lambda s: abs(s * s - x) > 1e-3, lambda s: 0.5 * (s + x / s), x)


PROGRAMS = {
    "network": (_network, *WEIGHTS.values(), X),
    "training step": (hl.value_and_grad(_loss, argnums=(0, 1, 2)), *WEIGHTS.values(), X, LABELS),
    "convolutional network": (_convolutional, IMAGES, KERNELS),
    "gradient of a convolutional network": (
        hl.grad(lambda k, x: (_convolutional(x, k) ** 2).sum()), KERNELS, IMAGES
    ),
    "layer norm": (_normalized, X),
    "attention": (lambda q: hl.nn.dot_product_attention(q, q, q, is_causal=True), _normal(2, 5, 3, 4)),
    "scan": (_recurrent, X, WEIGHTS["w"]),
    "gradient of a scan": (hl.grad(lambda w, x: _recurrent(x, w)[1].sum()), WEIGHTS["w"], X),
    "while": (_newton, np.float32(7)),
    "mapped while": (hl.vmap(_newton), np.array([2, 9, 30], np.float32)),
    "branches": (lambda i, x: lax.switch(i, [hnp.sin, hnp.cos, lambda t: 2 * t], x), np.int32(1), X),
    "mapped branches": (hl.vmap(lambda x: lax.cond(x.sum() > 0, hnp.sin, lambda t: t - 1, x)), X),
    "scatter": (lambda x, i, u: x.at[i].add(u).at[:, i].max(0.5), X, np.array([0, 2, 2]), _normal(3, 6)),
    "gather": (lambda x, i: (x[i], x[:, ::-2], lax.dynamic_slice_in_dim(x, i[0], 2)), X, np.array([3, 0, -1])),
    "sort": (lambda x: (hnp.sort(x, 1), hnp.argsort(x, 0), lax.top_k(x, 2)), X),
    "running sums": (lambda x: (hnp.cumsum(x, 1), lax.cummax(x, 0), lax.cumlogsumexp(x, 1)), X),
    "statistics": (lambda x: (x.var(0), hnp.median(x), hnp.quantile(x, 0.3, axis=1), hnp.histogram(x, 4)[0]), X),
    "second derivatives": (hl.hessian(lambda b: (hnp.tanh(b) ** 3).sum()), WEIGHTS["b"]),
    "mapped convolution": (hl.vmap(lambda x, k: lax.conv(x[None], k, (2, 1), "SAME")), IMAGES, np.stack([KERNELS] * 2)),
    "linear algebra": (lambda x: hnp.linalg.cholesky(x @ x.T + 6 * hnp.eye(5)), X),
    "frequencies": (lambda x: (hnp.fft.rfft(x), abs(hnp.fft.fft2(x))), X),
    "narrow floats": (lambda x: hl.nn.softmax(x.astype("bfloat16") * 2).astype("float32"), X),
    "dropout": (lambda s, x: hnp.where(hl.random.bernoulli(hl.random.key(s), 0.5, x.shape), 2 * x, 0), np.int32(0), X),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_gets_the_numbers_of_programs(name):
    function, *arguments = PROGRAMS[name]
    jitted = hl.jit(function)
    lowered = jitted.lower(*arguments)
    arguments = [np.asarray(hnp.asarray(a)) for a in arguments]
    wanted = [np.asarray(x) for x in hl.tree.leaves(jitted(*arguments))]
    texts = {"traced": lowered.as_text(), "optimized": lowered.compile().as_text(export=True)}
    for stage, text in (*texts.items(), ("stablehlo", lowered.as_text(dialect="stablehlo"))):
        found = (xla.run_stablehlo if stage == "stablehlo" else xla.run)(text, arguments)
        assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted], stage
        for a, b in zip(found, wanted, strict=True):
            scale = np.max(np.abs(b), initial=0)
            unit = 2e-2 if name == "narrow floats" else 1e-5
            np.testing.assert_allclose(a, b, rtol=unit, atol=unit * scale, err_msg=stage)
