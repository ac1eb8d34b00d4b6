"""hloom.nn's layers: trees of arrays, what they compute (against formulas in NumPy), training and inference."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn
from hloom.errors import ArgumentError, DTypeError, ShapeError

KEY = hl.random.key(7)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_layers_are_trees():
    layer = nn.Linear(3, 2, key=KEY)
    leaves, structure = hl.tree.flatten(layer)
    assert [x.shape for x in leaves] == [(3, 2), (2,)]
    again = hl.tree.unflatten(structure, leaves)
    assert type(again) is nn.Linear and again.kernel is layer.kernel
    without = nn.Linear(3, 2, key=KEY, use_bias=False)
    assert hl.tree.structure(without) != structure and len(hl.tree.leaves(without)) == 1
    assert hl.tree.structure(nn.Dropout(0.1)) != hl.tree.structure(nn.Dropout(0.2))


def test_gradients_have_the_layers_structure():
    model = nn.Sequential(nn.Linear(3, 4, key=KEY), nn.relu, nn.Linear(4, 1, key=hl.random.key(1)))
    x = numbers(5, 3)
    gradient = hl.grad(lambda m: hnp.sum(m(x)))(model)
    assert hl.tree.structure(gradient) == hl.tree.structure(model)
    np.testing.assert_allclose(np.asarray(gradient[2].bias), [5.0], rtol=1e-6)
    jitted = hl.jit(hl.grad(lambda m: hnp.sum(m(x))))(model)
    for a, b in zip(hl.tree.leaves(gradient), hl.tree.leaves(jitted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def test_modules_of_users_with_and_without_an_init():
    class Scale(nn.Module):
        factor: object
        power: int = nn.static(default=2)

        def __call__(self, x):
            return self.factor * x**self.power

    layer = Scale(hnp.asarray(3.0))
    assert float(layer(2.0)) == 12.0 and len(hl.tree.leaves(layer)) == 1
    assert float(layer.replace(power=3)(2.0)) == 24.0
    assert float(hl.grad(lambda s: s(2.0))(layer).factor) == 4.0
    with pytest.raises(ArgumentError, match="modules cannot be changed"):
        layer.factor = 1.0
    with pytest.raises(ArgumentError, match="its fields are factor, power"):
        layer.replace(facter=1.0)
    assert "Scale(power=2, factor=" in repr(layer)


def test_linear_and_embedding():
    layer, x = nn.Linear(3, 2, key=KEY), numbers(4, 5, 3)
    expected = x @ np.asarray(layer.kernel) + np.asarray(layer.bias)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="3 features"):
        layer(numbers(4, 2))
    table = nn.Embedding(6, 4, key=KEY)
    np.testing.assert_array_equal(np.asarray(table([[1, 5], [0, 1]])), np.asarray(table.table)[[[1, 5], [0, 1]]])
    np.testing.assert_allclose(
        np.asarray(table.attend(numbers(2, 4))), numbers(2, 4) @ np.asarray(table.table).T, rtol=1e-5, atol=1e-6
    )
    with pytest.raises(DTypeError, match="integers"):
        table(np.ones(2, np.float32))


def test_the_gradient_of_an_embedding_adds_up_repeated_rows():
    table = nn.Embedding(5, 2, key=KEY)
    gradient = hl.jit(hl.grad(lambda t: hnp.sum(t(hnp.asarray([1, 1, 3])))))(table)
    np.testing.assert_array_equal(np.asarray(gradient.table), [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]])


def test_normalizations():
    x = 3 + 2 * numbers(6, 8)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(np.asarray(nn.LayerNorm(8)(x)), expected, rtol=1e-4, atol=1e-5)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(np.asarray(nn.RMSNorm(8)(x)), expected, rtol=1e-4, atol=1e-5)
    images = numbers(2, 3, 3, 8)
    grouped = images.reshape(2, 3, 3, 4, 2)
    mean, variance = (f(grouped, axis=(1, 2, 4), keepdims=True) for f in (np.mean, np.var))
    expected = ((grouped - mean) / np.sqrt(variance + 1e-6)).reshape(images.shape)
    np.testing.assert_allclose(np.asarray(nn.GroupNorm(8, 4)(images)), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="divides the features"):
        nn.GroupNorm(8, 3)


def test_batch_norm_in_training_and_after():
    x = 3 + 2 * numbers(16, 4)
    layer = nn.BatchNorm(4, momentum=0.75)
    y, trained = nn.apply(layer, x)
    np.testing.assert_allclose(np.asarray(y), (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(trained.mean), 0.25 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(trained.variance), 0.75 + 0.25 * x.var(0), rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(layer.mean), 0)
    expected = (x - np.asarray(trained.mean)) / np.sqrt(np.asarray(trained.variance) + 1e-5)
    np.testing.assert_allclose(np.asarray(trained(x)), expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_through_gradients_and_jit_with_the_new_statistics():
    model = nn.Sequential(nn.Linear(4, 4, key=KEY), nn.BatchNorm(4), nn.Dropout(0.5), nn.Linear(4, 1, key=KEY))
    x = numbers(8, 4)

    @hl.jit
    def step(model, x, key):
        def loss(model):
            y, new = nn.apply(model, x, key=key)
            return hnp.mean(y**2), new

        return hl.value_and_grad(loss, has_aux=True)(model)

    (value, new), gradient = step(model, x, KEY)
    hidden = np.asarray(model[0](x))
    np.testing.assert_allclose(np.asarray(new[1].mean), 0.1 * hidden.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(gradient[1].mean), 0)
    assert np.isfinite(float(value)) and hl.tree.structure(new) == hl.tree.structure(model)


def test_batch_norm_over_a_mapped_axis_sees_the_whole_batch():
    x = numbers(2, 8, 4)
    layer = nn.BatchNorm(4, axis_name="batch")
    mapped = hl.vmap(lambda x: nn.apply(layer, x), axis_name="batch", out_axes=(0, None))
    y, trained = mapped(x)
    flat = x.reshape(16, 4)
    expected = (x - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5)
    np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(trained.mean), 0.1 * flat.mean(0), rtol=1e-4, atol=1e-6)


def test_dropout():
    layer, x = nn.Dropout(0.25), np.ones((100, 100), np.float32)
    np.testing.assert_array_equal(np.asarray(layer(x)), x)
    y, _ = nn.apply(layer, x, key=KEY)
    values, counts = np.unique(np.asarray(y), return_counts=True)
    np.testing.assert_allclose(values, [0, 1 / 0.75], rtol=1e-6)
    assert abs(counts[0] / x.size - 0.25) < 0.02
    both = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    z, _ = nn.apply(both, x, key=KEY)
    assert abs(np.mean(np.asarray(z) > 0) - 0.25) < 0.03  # the two draw different numbers
    with pytest.raises(ArgumentError, match="nn.apply got no key"):
        nn.apply(layer, x)
    with pytest.raises(ArgumentError, match="rate between 0 and 1"):
        nn.Dropout(1.5)


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 0), (2, 1))])
def test_convolution(padding):
    layer = nn.Conv(4, 6, (3, 2), key=KEY, strides=2, padding=padding, groups=2)
    x = numbers(2, 7, 8, 4)
    y = np.asarray(layer(x))
    kernel = np.asarray(layer.kernel)
    if padding == "SAME":
        total = [max((-(-n // 2) - 1) * 2 + k - n, 0) for n, k in ((7, 3), (8, 2))]
        pads = [(t // 2, t - t // 2) for t in total]
    else:
        pads = [(0, 0), (0, 0)] if padding == "VALID" else padding
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    expected = np.zeros_like(y)
    for i in range(y.shape[1]):
        for j in range(y.shape[2]):
            window = padded[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
            for g in range(2):
                part = np.einsum("bhwc,hwco->bo", window[..., 2 * g : 2 * g + 2], kernel[..., 3 * g : 3 * g + 3])
                expected[:, i, j, 3 * g : 3 * g + 3] = part
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="4 channels"):
        layer(numbers(2, 7, 8, 3))


def test_transposed_convolution_is_the_gradient_of_a_convolution():
    layer = nn.ConvTranspose(3, 2, (2, 2), key=KEY, strides=2, padding="VALID")
    x = numbers(1, 3, 4, 3)
    y = np.asarray(layer(x))
    assert y.shape == (1, 6, 8, 2)
    expected = np.einsum("bhwc,ijco->bhiwjo", x, np.asarray(layer.kernel)).reshape(1, 6, 8, 2)
    flipped = np.einsum("bhwc,ijco->bhiwjo", x, np.asarray(layer.kernel)[::-1, ::-1]).reshape(1, 6, 8, 2)
    assert np.allclose(y, expected, atol=1e-5) or np.allclose(y, flipped, atol=1e-5)


def test_pooling():
    x = numbers(2, 6, 4, 3)
    tiles = x.reshape(2, 3, 2, 2, 2, 3)
    np.testing.assert_array_equal(np.asarray(nn.MaxPool((2, 2))(x)), tiles.max(axis=(2, 4)))
    np.testing.assert_allclose(np.asarray(nn.AvgPool((2, 2))(x)), tiles.mean(axis=(2, 4)), rtol=1e-5, atol=1e-6)
    assert nn.Flatten()(x).shape == (2, 72)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_lstm():
    layer, x = nn.LSTM(3, 4, key=KEY), numbers(2, 5, 3)
    y, (memory, hidden) = layer(x)
    w, u, b = (np.asarray(a) for a in (layer.cell.input_kernel, layer.cell.hidden_kernel, layer.cell.bias))
    c = h = np.zeros((2, 4), np.float32)
    for t in range(5):
        i, f, g, o = np.split(x[:, t] @ w + h @ u + b, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(np.asarray(y[:, t]), h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(memory), c, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(hidden), h, rtol=1e-4, atol=1e-5)
    backwards, _ = layer(x[:, ::-1], reverse=True)
    np.testing.assert_allclose(np.asarray(backwards)[:, ::-1], np.asarray(y), rtol=1e-4, atol=1e-5)


def test_gru_and_rnn():
    x = numbers(2, 5, 3)
    gru = nn.GRU(3, 4, key=KEY)
    w, u, b = (np.asarray(a) for a in (gru.cell.input_kernel, gru.cell.hidden_kernel, gru.cell.bias))
    h = np.zeros((2, 4), np.float32)
    for t in range(5):
        gates = x[:, t] @ w + b
        r, z = sigmoid(gates[:, :4] + h @ u[:, :4]), sigmoid(gates[:, 4:8] + h @ u[:, 4:8])
        h = z * h + (1 - z) * np.tanh(gates[:, 8:] + (r * h) @ u[:, 8:])
    np.testing.assert_allclose(np.asarray(gru(x)[1]), h, rtol=1e-4, atol=1e-5)
    rnn = nn.RNN(3, 4, key=KEY)
    w, u, b = (np.asarray(a) for a in (rnn.cell.input_kernel, rnn.cell.hidden_kernel, rnn.cell.bias))
    h = np.zeros((2, 4), np.float32)
    for t in range(5):
        h = np.tanh(x[:, t] @ w + h @ u + b)
    np.testing.assert_allclose(np.asarray(rnn(x)[1]), h, rtol=1e-4, atol=1e-5)


def test_gradients_flow_through_time():
    layer, x = nn.LSTM(2, 3, key=KEY), numbers(1, 4, 2)

    def total(kernel):
        return hnp.sum(layer.replace(cell=layer.cell.replace(hidden_kernel=kernel))(x)[0])

    kernel = layer.cell.hidden_kernel
    gradient = np.asarray(hl.jit(hl.grad(total))(kernel))
    step = np.zeros(kernel.shape, np.float32)
    step[1, 2] = 1e-2
    numeric = (float(total(kernel + step)) - float(total(kernel - step))) / 2e-2
    assert gradient[1, 2] == pytest.approx(numeric, rel=1e-2, abs=1e-4)


def test_attention():
    layer, x = nn.MultiHeadAttention(8, 2, key=KEY), numbers(2, 5, 8)
    q, k, v = (np.asarray(f(x)).reshape(2, 5, 2, 4) for f in (layer.query, layer.key, layer.value))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / 2.0
    scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(2, 5, 8)
    expected = np.asarray(layer.output(mixed))
    np.testing.assert_allclose(np.asarray(layer(x, is_causal=True)), expected, rtol=1e-4, atol=1e-5)
    block = nn.TransformerBlock(8, 2, key=KEY)
    changed = x.copy()
    changed[:, 3:] += 1
    same = np.asarray(block(x, is_causal=True))[:, :3], np.asarray(block(changed, is_causal=True))[:, :3]
    np.testing.assert_allclose(*same, rtol=1e-5, atol=1e-6)  # the past does not see the future
    with pytest.raises(ArgumentError, match="divides the features"):
        nn.MultiHeadAttention(8, 3, key=KEY)


def test_initializers():
    shape = (200, 300)
    for name, variance in (
        ("glorot_uniform", 2 / 500),
        ("glorot_normal", 2 / 500),
        ("lecun_normal", 1 / 200),
        ("lecun_uniform", 1 / 200),
        ("he_normal", 2 / 200),
        ("he_uniform", 2 / 200),
    ):
        values = np.asarray(getattr(nn.initializers, name)()(KEY, shape, "f32"))
        assert values.var() == pytest.approx(variance, rel=0.05), name
        assert abs(values.mean()) < 3 * np.sqrt(variance / values.size), name
    window = np.asarray(nn.initializers.he_normal()(KEY, (3, 3, 20, 50), "f32"))
    assert window.var() == pytest.approx(2 / 180, rel=0.1)
    for rows, columns in ((5, 3), (3, 5)):
        q = np.asarray(nn.initializers.orthogonal(2.0)(KEY, (rows, columns), "f32"))
        product = q.T @ q if rows > columns else q @ q.T
        np.testing.assert_allclose(product, 4 * np.eye(min(rows, columns)), atol=1e-5)
    delta = np.asarray(nn.initializers.delta_orthogonal()(KEY, (3, 3, 4, 4), "f32"))
    np.testing.assert_allclose(delta[1, 1] @ delta[1, 1].T, np.eye(4), atol=1e-5)
    assert np.count_nonzero(delta) == np.count_nonzero(delta[1, 1])
    np.testing.assert_array_equal(np.asarray(nn.initializers.constant(3)(KEY, (2,), "s32")), [3, 3])
    with pytest.raises(ArgumentError, match="two or more dimensions"):
        nn.initializers.lecun_normal()(KEY, (3,))
    with pytest.raises(ArgumentError, match="a mode"):
        nn.initializers.variance_scaling(1.0, "fan", "normal")(KEY, (3, 3))


def test_initializers_as_jax():
    jax = pytest.importorskip("jax")
    for name in ("lecun_normal", "glorot_uniform", "he_normal"):
        theirs = np.asarray(getattr(jax.nn.initializers, name)()(jax.random.key(3), (4, 6)))
        ours = np.asarray(getattr(nn.initializers, name)()(hl.random.key(3), (4, 6)))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_initializers_of_empty_arrays(shape):
    for name in ("glorot_uniform", "he_normal"):
        assert getattr(hl.nn.initializers, name)()(hl.random.key(0), shape).shape == shape
