"""Gradients whose tape would be larger than `hl.config.tape_bytes`: the loop is run again in segments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from processor_time import least_seconds

import hloom as hl
from hloom.errors import DifferentiationError


def sweeps(u, count):
    """A nonlinear relaxation in place: each sweep overwrites all that it reads."""
    a = u.copy()
    for _ in range(count):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                a[i, j] = np.sin(0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] * a[i, j] + a[i, j + 1]))
    return a


def numbers_and_arrays(u, count):
    """Variables that statements before and after the loop change, and an array that only later ones do."""
    a, s, scale = u.ravel().copy(), 0.1, 0.9
    w = np.cos(a)
    scale = scale * w[1]
    for t in range(2, 2 * count + 2, 2):
        k = t % len(a)
        s = np.sin(s * a[k]) + w[k] * scale
        if s > 0.7:
            continue
        a[k] = s * a[(k + 1) % len(a)]
    scale = scale * s
    w[0] = s * scale
    return a * s * w + scale


def falling(u, count):
    a = u.ravel().copy()
    v = 0.5
    for t in range(count, 0, -3):
        for k in range(t % 4):
            v = np.cos(v * a[(t + k) % len(a)])
            a[(t + k) % len(a)] *= 1.0 + 0.1 * v
    return a * v


LIMITS = {sweeps: 5000, numbers_and_arrays: 4500, falling: 12000}


@pytest.fixture(autouse=True)
def _64_bits():
    with hl.enable_x64():
        yield


def _total(function, count: int):
    compiled = hl.njit(function)

    def total(u):
        result = compiled.pure(u, count)[0]
        return (result * np.cos(np.arange(result.size)).reshape(result.shape)).sum()

    return total


def _argument() -> np.ndarray:
    return np.random.default_rng(0).uniform(0.4, 1.2, (5, 6))


@pytest.mark.parametrize(("function", "count"), [(sweeps, 67), (numbers_and_arrays, 500), (falling, 3001)])
def test_the_gradient_is_the_same(function, count):
    u, gradient = _argument(), hl.jit(hl.grad(_total(function, count)))
    whole = gradient(u)
    with hl.config(tape_bytes=LIMITS[function]):
        assert "_kept[" in gradient.lower(u).compile().source()
        np.testing.assert_allclose(gradient(u), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("function", [sweeps, numbers_and_arrays], ids=lambda f: f.__name__)
def test_second_derivatives_and_batches(function):
    u, total = _argument(), _total(function, 67 if function is sweeps else 500)
    way = np.random.default_rng(1).normal(size=u.shape)
    second = hl.jit(lambda u: hl.jvp(hl.grad(total), (u,), (way,))[1])
    many = hl.jit(hl.grad(lambda u: hl.vmap(total)(u).sum()))
    batch = np.stack([u, u[::-1]])
    want = second(u), many(batch)
    with hl.config(tape_bytes=LIMITS[function]):
        for found, expected in zip((second(u), many(batch)), want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def _bytes(gradient, u: np.ndarray) -> int:
    return gradient.lower(u).compile().memory_analysis()["temporary bytes"]


def test_memory_grows_with_the_root_and_time_with_the_length():
    u = np.random.default_rng(0).uniform(0.4, 1.2, (130, 130))
    with hl.config(tape_bytes=4 << 20):
        gradients = [hl.jit(hl.grad(_total(sweeps, count))) for count in (60, 120, 240)]
        memory = [_bytes(gradient, u) for gradient in gradients]
        for few, many in itertools.pairwise(memory):
            assert many < 1.6 * few, memory
        assert memory[-1] < 0.2 * 240 * 128 * 128 * 8
        few, many = (least_seconds(gradient, u, calls=3) for gradient in gradients[:2])
        assert many < 2.6 * few, (few, many)
    whole = least_seconds(hl.jit(hl.grad(_total(sweeps, 60))), u, calls=3)
    assert few < 2.6 * whole + 1e-3, (few, whole)


def test_segments_that_are_too_large_are_refused():
    with hl.config(tape_bytes=1000), pytest.raises(DifferentiationError, match="sweeps") as caught:
        hl.grad(_total(sweeps, 67))(_argument())
    assert "hl.config.tape_bytes" in caught.value.repair
