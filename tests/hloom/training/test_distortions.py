"""Distortions of images against plain formulas and Python's colorsys."""

import colorsys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn
from hloom.errors import ArgumentError, ShapeError

distortions = hl.training.distortions
KEY = hl.random.key(0)
X = np.random.default_rng(0).random((6, 4, 5, 3)).astype(np.float32)


def test_flips_crops_and_brightness_are_drawn_for_each_image():
    flipped = np.asarray(hl.jit(distortions.random_flip_left_right)(hl.random.key(3), X))
    kinds = [np.array_equal(a, b) for a, b in zip(flipped, X, strict=True)]
    assert len(set(kinds)) == 2
    assert all(same or np.array_equal(a, b[:, ::-1]) for same, a, b in zip(kinds, flipped, X, strict=True))
    parts = np.asarray(hl.jit(lambda k, x: distortions.random_crop(k, x, (2, 3)))(KEY, X))
    places = []
    for part, image in zip(parts, X, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(image, (2, 3, 3))[:, :, 0]
        (place,) = np.argwhere((windows == part).all(axis=(2, 3, 4)))
        places.append(tuple(place))
    assert len(set(places)) > 2
    added = np.asarray(distortions.random_brightness(KEY, X, 0.2)) - X
    each = added.reshape(6, -1)
    assert np.ptp(each, axis=1).max() < 1e-6 and np.abs(each).max() <= 0.2 and np.ptp(each[:, 0]) > 0.01


def test_contrast_and_standardization():
    found = np.asarray(distortions.random_contrast(KEY, X, 0.5, 0.5))
    mean = X.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found, (X - mean) * 0.5 + mean, rtol=1e-5, atol=1e-6)
    found = np.asarray(distortions.per_image_standardization(X))
    np.testing.assert_allclose(found.mean(axis=(1, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(axis=(1, 2, 3)), 1, rtol=1e-5)
    assert not np.asarray(distortions.per_image_standardization(np.full((2, 2, 3), 0.7, np.float32))).any()


@pytest.mark.parametrize("factor", (0.3, 1.0, 2.5))
def test_saturation_is_that_of_colorsys(factor):
    found = np.asarray(distortions.random_saturation(KEY, X[0], factor, factor))
    for pixel, wanted in zip(found.reshape(-1, 3), X[0].reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*map(float, wanted))
        np.testing.assert_allclose(pixel, colorsys.hsv_to_rgb(h, min(1.0, s * factor), v), atol=1e-5)


def test_hue_is_that_of_colorsys():
    pixels = X[:1].copy()
    pixels[0, 0, 0] = 0.4  # grey
    found = np.asarray(hl.jit(lambda k, x: distortions.random_hue(k, x, 0.4))(KEY, pixels))
    turn = float(np.asarray(hl.random.uniform(KEY, (1, 1, 1, 1), minval=-0.4, maxval=0.4)).item())
    for pixel, given in zip(found.reshape(-1, 3), pixels.reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*map(float, given))
        np.testing.assert_allclose(pixel, colorsys.hsv_to_rgb((h + turn) % 1, s, v), atol=1e-5)
    np.testing.assert_allclose(distortions.random_hue(KEY, X, 0.0), X, atol=1e-6)


def test_a_loss_distorts_in_training_only():
    seen = []

    def loss(model, batch):
        seen.append(nn.is_training())
        if nn.is_training():
            batch = distortions.random_brightness(nn.draw_key(), batch, 0.5)
        return hnp.mean((batch - model) ** 2)

    optimizer = hl.optim.sgd(0.0)
    state = hl.training.TrainState.of(hnp.zeros(()), optimizer, key=KEY)
    step = hl.training.train_step(loss, optimizer, donate=False)
    state, first = step(state, X)
    _, second = step(state, X)
    plain = float(loss(state.model, X))
    assert seen == [True, False] and len({float(first["loss"]), float(second["loss"]), plain}) == 3
    with pytest.raises(ArgumentError, match="got no key"):
        step(state._replace(key=None), X)


def test_mistakes():
    for call, error, words in (
        (lambda: distortions.random_crop(KEY, X, (9, 2)), ShapeError, "resize or pad"),
        (lambda: distortions.random_hue(KEY, X, 0.7), ArgumentError, "half of the circle"),
        (lambda: distortions.random_hue(KEY, X[..., :1], 0.1), ShapeError, "width, 3"),
        (lambda: distortions.random_contrast(KEY, X, 2.0, 1.0), ArgumentError, "lower end first"),
        (lambda: distortions.random_flip_left_right(KEY, X[0, 0]), ShapeError, "dimension of channels"),
    ):
        with pytest.raises(error, match=words):
            call()
