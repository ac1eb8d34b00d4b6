"""Whole programs in JAX's shape: networks, scientific code and nested transformations, checked by their mathematics."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import pytest

import hloom as jax
import hloom.numpy as jnp
from hloom import grad, jit, lax, nn, random, value_and_grad, vmap
from hloom.jax.tree_util import tree_leaves, tree_map

# --- networks -----------------------------------------------------------------------------------------------------


def descend(loss, params, *data, rate=0.1, steps=5):
    """The losses on the way down, and the last parameters."""

    @jit
    def step(params):
        value, gradient = value_and_grad(loss)(params, *data)
        return tree_map(lambda p, g: p - rate * g, params, gradient), value

    losses = []
    for _ in range(steps):
        params, value = step(params)
        losses.append(float(value))
    return losses, params


def test_causal_transformer_learns_and_does_not_look_ahead():
    width, heads, words, length = 16, 2, 12, 8

    def init(key):
        normal = iter([functools.partial(random.normal, k) for k in random.split(key, 20)])

        def matrix(*shape):
            return next(normal)(shape) * 0.1

        layer = {name: matrix(width, width) for name in ("q", "k", "v", "o")}
        layer |= {"in": matrix(width, 32), "out": matrix(32, width), "scale": jnp.ones(width)}
        return {"embed": matrix(words, width), "place": matrix(length, width), "layers": [layer]}

    def norm(x, scale):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale

    def attention(p, x):
        def split(w):
            return (x @ w).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

        scores = jnp.einsum("bhqd,bhkd->bhqk", split(p["q"]), split(p["k"])) / math.sqrt(width // heads)
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        weights = nn.softmax(jnp.where(mask, scores, jnp.finfo(scores.dtype).min))
        mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, split(p["v"]))
        return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ p["o"]

    def network(params, tokens):
        x = params["embed"][tokens] + params["place"]
        for p in params["layers"]:
            x = x + attention(p, norm(x, p["scale"]))
            x = x + nn.gelu(x @ p["in"]) @ p["out"]
        return x @ params["embed"].T

    def loss(params, tokens, targets):
        return -jnp.take_along_axis(nn.log_softmax(network(params, tokens)), targets[..., None], -1).mean()

    tokens = random.randint(random.PRNGKey(1), (4, length), 0, words)
    losses, params = descend(loss, init(random.PRNGKey(0)), tokens, (tokens + 1) % words, rate=1.0, steps=40)
    assert losses[0] == pytest.approx(math.log(words), rel=0.1) and losses[-1] < 0.5 * losses[0]
    changed = tokens.at[:, -1].set((tokens[:, -1] + 5) % words)
    before, after = network(params, tokens), network(params, changed)
    np.testing.assert_allclose(before[:, :-1], after[:, :-1], atol=1e-5)
    assert float(jnp.abs(before[:, -1] - after[:, -1]).max()) > 1e-3


def test_residual_block_with_batch_norm_state():
    keys = random.split(random.PRNGKey(3), 2)
    params = {"conv": random.normal(keys[0], (8, 4, 3, 3)) * 0.1, "skip": random.normal(keys[1], (8, 4, 1, 1))}
    state = {"mean": jnp.zeros(8), "var": jnp.ones(8)}

    @functools.partial(jit, static_argnames="train")
    def block(params, state, x, train=True):
        h = lax.conv(x, params["conv"], (2, 2), "SAME")
        if train:
            mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3))
            state = tree_map(lambda old, new: 0.9 * old + 0.1 * new, state, {"mean": mean, "var": var})
        else:
            mean, var = state["mean"], state["var"]
        h = (h - mean[:, None, None]) * lax.rsqrt(var + 1e-5)[:, None, None]
        return nn.relu(h) + lax.conv(x, params["skip"], (2, 2), "SAME"), state, h

    x = random.normal(random.PRNGKey(4), (3, 4, 8, 8))
    _, new, h = block(params, state, x)
    np.testing.assert_allclose(h.mean((0, 2, 3)), np.zeros(8), atol=1e-5)
    np.testing.assert_allclose(h.var((0, 2, 3)), np.ones(8), rtol=1e-3)
    assert not np.allclose(new["var"], 1.0)
    total = functools.partial(lambda p: block(p, state, x)[0].sum())
    gradient = grad(total)(params)
    np.testing.assert_allclose(
        gradient["skip"], np.broadcast_to(np.asarray(x)[:, :, ::2, ::2].sum((0, 2, 3))[:, None, None], (8, 4, 1, 1)),
        rtol=1e-3, atol=1e-3,
    )  # fmt: skip


def test_lstm_by_scan_is_the_loop_in_python():
    keys = random.split(random.key(0), 2)
    weights = random.normal(keys[0], (3 + 4, 16)) * 0.4
    xs = random.normal(keys[1], (6, 2, 3))

    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ weights, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    first = (jnp.zeros((2, 4)), jnp.zeros((2, 4)))
    _, found = jit(lambda xs: lax.scan(cell, first, xs))(xs)
    carry = first
    for k in range(6):
        carry, h = cell(carry, xs[k])
        np.testing.assert_allclose(found[k], h, atol=1e-6)


class AdamState(NamedTuple):
    mean: object
    square: object
    step: object


def test_vae_with_adam_written_out():
    keys = random.split(random.PRNGKey(0), 4)
    shapes = {"encode": (10, 8), "moments": (8, 4), "hidden": (2, 8), "decode": (8, 10)}
    params = {n: random.normal(k, s) * 0.3 for k, (n, s) in zip(keys, shapes.items(), strict=True)}
    x = (jnp.arange(160).reshape(16, 10) % 3 == 0).astype(jnp.float32)

    def loss(params, key):
        mean, log_var = jnp.split(jnp.tanh(x @ params["encode"]) @ params["moments"], 2, -1)
        z = mean + jnp.exp(0.5 * log_var) * random.normal(key, mean.shape)
        logits = jnp.tanh(z @ params["hidden"]) @ params["decode"]
        log_p = (x * nn.log_sigmoid(logits) + (1 - x) * nn.log_sigmoid(-logits)).sum(-1)
        return (0.5 * (jnp.exp(log_var) + mean**2 - 1 - log_var).sum(-1) - log_p).mean()

    def update(carry, key):
        params, state = carry
        value, g = value_and_grad(loss)(params, key)
        step = state.step + 1
        mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, g)
        square = tree_map(lambda s, g: 0.999 * s + 0.001 * g * g, state.square, g)
        params = tree_map(
            lambda p, m, s: p - 0.05 * (m / (1 - 0.9**step)) / (jnp.sqrt(s / (1 - 0.999**step)) + 1e-8),
            params, mean, square,
        )  # fmt: skip
        return (params, AdamState(mean, square, step)), value

    zeros = tree_map(jnp.zeros_like, params)
    (_, state), losses = jit(lambda p: lax.scan(update, (p, AdamState(zeros, zeros, 0)), random.split(keys[0], 60)))(
        params
    )
    assert int(state.step) == 60 and float(losses[-10:].mean()) < 0.75 * float(losses[0])


def test_message_passing_is_equivariant():
    n, edges = 7, 20
    senders, receivers = (random.randint(random.PRNGKey(k), (edges,), 0, n) for k in (0, 1))
    features, w = random.normal(random.PRNGKey(2), (n, 3)), random.normal(random.PRNGKey(3), (6, 3))

    @jit
    def layer(x, senders, receivers):
        messages = jnp.tanh(jnp.concatenate([x[senders], x[receivers]], -1) @ w)
        score = (messages * x[receivers]).sum(-1)
        score = jnp.exp(score - jax.ops.segment_max(score, receivers, num_segments=n)[receivers])
        share = score / jax.ops.segment_sum(score, receivers, n)[receivers]
        return jax.ops.segment_sum(share[:, None] * messages, receivers, n), jax.ops.segment_sum(share, receivers, n)

    order = np.array([3, 1, 6, 0, 2, 5, 4])
    place = np.argsort(order)
    found, shares = layer(features, senders, receivers)
    moved, _ = layer(features[order], jnp.asarray(place)[senders], jnp.asarray(place)[receivers])
    np.testing.assert_allclose(moved, found[order], atol=1e-5)
    np.testing.assert_allclose(shares, np.isin(np.arange(n), np.asarray(receivers)), atol=1e-5)


def test_normalizing_flow_counts_volume():
    layers = [random.normal(k, (2, 1, 4)) for k in random.split(random.PRNGKey(0), 3)]

    def flow(x):
        log_volume = 0.0
        for k, (first, second) in enumerate(layers):
            kept, moved = (x[:1], x[1:]) if k % 2 else (x[1:], x[:1])
            scale, shift = jnp.split(jnp.tanh(kept @ first) @ second.T @ jnp.ones((1, 2)) * 0.3, 2)
            moved = moved * jnp.exp(scale) + shift
            log_volume += scale.sum()
            x = jnp.concatenate([kept, moved] if k % 2 else [moved, kept])
        return x, log_volume

    xs = random.normal(random.PRNGKey(1), (5, 2))
    _, volumes = vmap(flow)(xs)
    jacobians = vmap(jax.jacfwd(lambda x: flow(x)[0]))(xs)
    np.testing.assert_allclose(volumes, jnp.linalg.slogdet(jacobians)[1], rtol=1e-4, atol=1e-5)


def test_dqn_loss_stops_the_target():
    online, target = random.normal(random.PRNGKey(0), (4, 3)), random.normal(random.PRNGKey(1), (4, 3))
    s, s2 = random.normal(random.PRNGKey(2), (2, 8, 4))
    a, r = jnp.arange(8) % 3, jnp.linspace(-1, 1, 8)

    def error(q, t, s, a, r, s2):
        goal = r + 0.9 * (s2 @ t).max()
        return (s @ q)[a] - lax.stop_gradient(goal)

    def loss(q, t):
        e = vmap(error, (None, None, 0, 0, 0, 0))(q, t, s, a, r, s2)
        return jnp.where(jnp.abs(e) < 1, 0.5 * e**2, jnp.abs(e) - 0.5).sum()

    by_q, by_t = jit(grad(loss, (0, 1)))(online, target)
    assert not np.any(by_t)
    e = vmap(error, (None, None, 0, 0, 0, 0))(online, target, s, a, r, s2)
    expected = np.einsum("bi,ba->ia", s, np.asarray(jnp.clip(e, -1, 1))[:, None] * np.eye(3)[np.asarray(a)])
    np.testing.assert_allclose(by_q, expected, rtol=1e-4, atol=1e-5)


# --- science ------------------------------------------------------------------------------------------------------


def test_leapfrog_keeps_energy():
    masses = jnp.array([1.0, 0.5, 0.2])

    def potential(x):
        d = x[:, None] - x[None]
        r = jnp.sqrt((d**2).sum(-1) + 0.1)
        return -0.5 * (masses[:, None] * masses * (1 - jnp.eye(3)) / r).sum()

    def step(state, _):
        x, v = state
        v = v - 0.005 * grad(potential)(x) / masses[:, None]
        x = x + 0.01 * v
        v = v - 0.005 * grad(potential)(x) / masses[:, None]
        return (x, v), 0.5 * (masses[:, None] * v**2).sum() + potential(x)

    x = jnp.array([[0.0, 0.0], [1.0, 0.2], [-0.5, 1.0]])
    (_, v), energy = jit(lambda x: lax.scan(step, (x, jnp.zeros_like(x)), None, length=200))(x)
    np.testing.assert_allclose(energy, np.full(200, energy[0]), rtol=2e-3)
    np.testing.assert_allclose((masses[:, None] * v).sum(0), np.zeros(2), atol=1e-5)


def test_kalman_recurrence_by_associative_scan():
    a = random.normal(random.PRNGKey(0), (16, 3, 3)) * 0.4
    b = random.normal(random.PRNGKey(1), (16, 3))

    def join(left, right):
        return right[0] @ left[0], jnp.einsum("...ij,...j->...i", right[0], left[1]) + right[1]

    _, found = jit(lambda a, b: lax.associative_scan(join, (a, b)))(a, b)
    _, expected = lax.scan(lambda x, ab: (ab[0] @ x + ab[1],) * 2, jnp.zeros(3), (a, b))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_poisson_by_fft_and_by_conjugate_gradients():
    n = 16
    x = jnp.arange(n) * (2 * jnp.pi / n)
    wanted = jnp.sin(x)[:, None] * jnp.cos(2 * x)

    def solve(f):
        k = jnp.fft.fftfreq(n, 1 / n)
        k2 = k[:, None] ** 2 + k**2
        return jnp.fft.ifft2(jnp.where(k2 == 0, 0, -jnp.fft.fft2(f) / jnp.where(k2 == 0, 1, k2))).real

    np.testing.assert_allclose(jit(solve)(-5 * wanted), wanted, atol=1e-5)
    matrix = 2 * jnp.eye(n) - jnp.eye(n, k=1) - jnp.eye(n, k=-1)
    b = jnp.sin(x)
    found, _ = jax.scipy.sparse.linalg.cg(lambda v: matrix @ v, b, tol=1e-6)
    np.testing.assert_allclose(matrix @ found, b, atol=1e-4)


def test_newton_with_jacobians_and_hessians():
    def f(x):
        return jnp.array([x[0] ** 2 + x[1] ** 2 - 4, jnp.exp(x[0]) + x[1] - 1])

    def rosenbrock(x):
        return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()

    root = lax.fori_loop(0, 8, lambda _, x: x - jnp.linalg.solve(jax.jacfwd(f)(x), f(x)), jnp.array([1.0, -1.5]))
    np.testing.assert_allclose(f(root), np.zeros(2), atol=1e-5)
    y = jnp.array([1.2, 1.3, 1.6])
    for _ in range(8):
        y = y - jnp.linalg.solve(jax.hessian(rosenbrock)(y), grad(rosenbrock)(y))
    np.testing.assert_allclose(y, np.ones(3), atol=1e-3)


def test_hamiltonian_monte_carlo_finds_the_moments():
    precision = jnp.array([1.0, 4.0])

    def log_density(x):
        return -0.5 * (precision * x**2).sum()

    def step(x, key):
        one, two = random.split(key)
        p = first = random.normal(one, x.shape)
        y = x
        for _ in range(4):
            p = p + 0.125 * grad(log_density)(y)
            y = y + 0.25 * p
            p = p + 0.125 * grad(log_density)(y)
        gain = log_density(y) - log_density(x) - 0.5 * (p @ p - first @ first)
        return jnp.where(jnp.log(random.uniform(two)) < gain, y, x), x

    keys = random.split(random.key(0), (40, 200))
    samples = jit(vmap(lambda keys: lax.scan(step, jnp.zeros(2), keys)[1]))(keys)[:, 50:].reshape(-1, 2)
    np.testing.assert_allclose(samples.mean(0), np.zeros(2), atol=0.08)
    np.testing.assert_allclose(samples.var(0) * precision, np.ones(2), rtol=0.1)


def test_gaussian_process_meets_its_data():
    x = jnp.linspace(-2, 2, 9)
    y = jnp.sin(2 * x)

    def kernel(a, b):
        return jnp.exp(-0.5 * (a[:, None] - b) ** 2 / 0.5)

    factor = jax.scipy.linalg.cho_factor(kernel(x, x) + 1e-5 * jnp.eye(9), lower=True)
    mean = kernel(x, x) @ jax.scipy.linalg.cho_solve(factor, y)
    np.testing.assert_allclose(mean, y, atol=2e-3)


def test_k_means_never_gets_worse():
    points = random.normal(random.PRNGKey(0), (60, 2)) + 4 * (jnp.arange(60) % 3)[:, None]

    @functools.partial(jit, static_argnames="k")
    def run(points, k):
        def step(centers, _):
            distance = jnp.linalg.norm(points[:, None] - centers, axis=-1)
            member = nn.one_hot(distance.argmin(1), k)
            return member.T @ points / jnp.maximum(member.sum(0)[:, None], 1), (distance.min(1) ** 2).sum()

        return lax.scan(step, points[:k], None, 10)

    centers, cost = run(points, k=3)
    assert np.all(np.diff(cost) <= 1e-3)
    np.testing.assert_allclose(np.sort(np.asarray(centers)[:, 0]), [0, 4, 8], atol=0.7)


# --- nested transformations ---------------------------------------------------------------------------------------

X = jnp.linspace(0.1, 1.0, 5)


def loop(w, xs):
    return lax.scan(lambda c, x: (jnp.sin(c * w + x), c), 0.1, xs)[0]


def python_loop(w, xs):
    c = 0.1
    for x in xs:
        c = math.sin(c * w + float(x))
    return c


def test_vmap_of_grad_of_scan():
    xs = jnp.arange(12.0).reshape(3, 4)
    found = jit(vmap(grad(loop), (None, 0)))(0.5, xs)
    numeric = [(python_loop(0.5 + 1e-5, row) - python_loop(0.5 - 1e-5, row)) / 2e-5 for row in np.asarray(xs)]
    np.testing.assert_allclose(found, numeric, rtol=1e-3)


def test_derivatives_of_derivatives_agree_in_all_modes():
    def f(x):
        return jnp.prod(x) + jnp.sum(x**4)

    outer = np.prod(X) / np.outer(X, X) * (1 - np.eye(5)) + np.diag(12 * np.asarray(X) ** 2)
    for inner in (jax.jacfwd, jax.jacrev):
        for second in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(second(inner(f))(X), outer, rtol=2e-4, atol=1e-5)
    v = jnp.ones(5)
    np.testing.assert_allclose(jax.jvp(grad(f), (X,), (v,))[1], outer @ v, rtol=2e-4)
    np.testing.assert_allclose(grad(lambda x: jnp.vdot(grad(f)(x), v))(X), outer @ v, rtol=2e-4)


def test_per_example_gradients_sum_to_the_gradient():
    params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
    x, y = jnp.arange(12.0).reshape(4, 3) / 10, jnp.arange(4) % 2

    def loss(p, x, y):
        return -nn.log_softmax(x @ p["w"] + p["b"])[y]

    each = jit(vmap(grad(loss), (None, 0, 0)))(params, x, y)
    total = grad(lambda p: sum(loss(p, a, b) for a, b in zip(x, y, strict=True)))(params)
    for a, b in zip(tree_leaves(each), tree_leaves(total), strict=True):
        np.testing.assert_allclose(a.sum(0), b, rtol=1e-5, atol=1e-6)


def test_custom_vjp_inside_of_scan_inside_of_vmap():
    @jax.custom_vjp
    def clipped(x):
        return 2 * x

    clipped.defvjp(lambda x: (2 * x, None), lambda _, g: (jnp.clip(2 * g, -0.5, 0.5),))

    def f(a, xs):
        return lax.scan(lambda c, x: (clipped(c + x), None), a, xs)[0]

    np.testing.assert_allclose(vmap(grad(f), (None, 0))(0.3, jnp.ones((2, 3))), [0.5, 0.5])
    np.testing.assert_allclose(jit(vmap(f, (None, 0)))(0.3, jnp.ones((2, 3))), [8 * 0.3 + 14] * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "policy", [None, jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.nothing_saveable]
)
def test_checkpoint_in_scan_changes_no_number(policy):
    weights = jnp.sin(jnp.arange(27.0)).reshape(3, 3, 3)

    def f(body):
        return lambda w: lax.scan(body, jnp.ones(3), w)[0].sum()

    def body(h, w):
        return jnp.tanh(w @ h), None

    expected = grad(f(body))(weights)
    np.testing.assert_allclose(jit(grad(f(jax.checkpoint(body, policy=policy))))(weights), expected, rtol=1e-5)


def test_loops_whose_ends_differ_between_problems():
    def collatz(n):
        return lax.while_loop(
            lambda s: s[0] != 1, lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, 0)
        )[1]

    assert vmap(collatz)(jnp.arange(1, 9)).tolist() == [0, 1, 7, 2, 5, 8, 16, 3]
    branches = [lambda x: 2 * x, jnp.sin, lambda x: -x]
    index = jnp.array([0, 1, 2, 9, -3])
    expected = [0.2, math.sin(X[1]), -X[2], -X[3], 2 * X[4]]
    np.testing.assert_allclose(vmap(lambda i, x: lax.switch(i, branches, x))(index, X), expected, rtol=1e-6)


def test_python_functions_under_all_transformations():
    def host(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(jnp.shape(x), "f32"), x, vmap_method="expand_dims")

    @jax.custom_jvp
    def sine(x):
        return host(x)

    sine.defjvp(lambda primals, tangents: (sine(*primals), jnp.cos(primals[0]) * tangents[0]))
    np.testing.assert_allclose(jit(vmap(sine))(X), np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(vmap(grad(sine))(X), np.cos(X), rtol=1e-6)
    total, _ = lax.scan(lambda c, x: (c + sine(x), None), 0.0, X)
    np.testing.assert_allclose(total, np.sin(X).sum(), rtol=1e-6)


@pytest.mark.parametrize("make", [random.PRNGKey, random.key], ids=["raw", "typed"])
def test_keys_go_through_everything(make):
    key = make(0)
    keys = random.split(key, 3)
    one_by_one = [float(random.normal(k)) for k in keys]
    # Eager, by the reference; one by one by a kernel, whose erf_inv is off by an ulp at times.
    np.testing.assert_allclose(vmap(random.normal)(keys), one_by_one, rtol=3e-7)
    np.testing.assert_array_equal(lax.scan(lambda c, k: (c, random.normal(k)), 0, keys)[1], one_by_one)
    np.testing.assert_array_equal(lax.map(random.normal, keys), one_by_one)
    assert float(lax.cond(True, random.normal, random.uniform, keys[1])) == one_by_one[1]
    assert float(jit(lambda k: random.normal(random.split(k, 3)[2]))(key)) == one_by_one[2]
    last, drawn = lax.scan(lambda k, _: (random.split(k)[0], random.randint(k, (), 0, 100)), key, None, 4)
    assert drawn.shape == (4,) and jnp.shape(random.normal(last)) == ()


def test_static_and_donated_arguments_of_nested_jits():
    traces = []

    @functools.partial(jit, static_argnums=(1,), static_argnames=("mode",))
    def inner(x, n, mode="double"):
        traces.append((n, mode))
        for _ in range(n):
            x = 2 * x if mode == "double" else x + 1
        return x

    @functools.partial(jit, static_argnames="k", donate_argnums=0)
    def outer(x, *, k):
        return inner(x, k) + inner(x, k, mode="add")

    for _ in range(2):
        np.testing.assert_array_equal(outer(jnp.arange(3.0), k=2), 4 * np.arange(3) + np.arange(3) + 2)
    assert traces == [(2, "double"), (2, "add")]
    np.testing.assert_array_equal(grad(lambda x: outer(x, k=3).sum())(jnp.ones(2)), [9, 9])
