"""Derivatives of kernels whose loops end early, or pass over the rest of an iteration: against finite differences."""

import numpy as np
import pytest

import hloom as hl

G = np.random.default_rng(8)


@hl.kernel
def left_early(x):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 1:
                break
            out[i] += x[i, j] * x[i, j]
    return out


@hl.kernel
def passed_over(x):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(x.shape[0]):
        v = 1.0
        for j in range(x.shape[1]):
            if x[i, j] > 1:
                continue
            v = v * x[i, j] + 0.5
            if v < 0:
                v = np.sin(v)
                continue
            v = v * v * 0.3
        out[i] = v
    return out


@hl.kernel
def both_in_branches(x):
    out = np.zeros(len(x), x.dtype)
    for i in range(x.shape[0]):
        if x[i, 0] < -1:
            continue
        v = x[i, 0]
        for j in range(x.shape[1] - 1, 0, -2):
            if x[i, j] > 0:
                v = v * x[i, j]
                if v > 2:
                    v = v * v
                    break
                if v < 0.1:
                    continue
                v = v + 1
            else:
                v = v - x[i, j] * v
                if v > 3:
                    continue
            v = np.sin(v) * x[i, j - 1]
        out[i] = v * x[i, 1]
        if i > 0:
            out[i] = out[i] * out[i - 1] + v
    return out


@hl.kernel
def left_at_once(x):
    out = x[:, 0].copy()
    for k in range(x.shape[1]):
        for i in range(len(x)):
            if i > k:
                break
            out[i] = out[i] * x[i, k] + out[0]
        if out[0] > 100:
            break
    return out


@hl.kernel
def loops_within(x):
    """The jumps of inner loops are not those of the outer one."""
    out = np.zeros(len(x), x.dtype)
    for i in range(len(x)):
        v = 1.0
        for j in range(x.shape[1]):
            for k in range(j, x.shape[1]):
                if x[i, k] > 0.8:
                    break
                if k == j + 1:
                    continue
                v = v * (1 + 0.1 * x[i, k])
            if v > 1.2:
                continue
            v = v * v + x[i, j]
        out[i] = v
    return out


KERNELS = (left_early, passed_over, both_in_branches, left_at_once, loops_within)


def differences(kernel, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    found = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        found[place] = (weights * (kernel.python(moved[0]) - kernel.python(moved[1]))).sum() / 2e-6
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("dims", [(7, 6), (3, 1), (4, 0)], ids=str)
def test_gradients_are_those_of_finite_differences(kernel, dims):
    if dims[1] == 0 and kernel in (both_in_branches, left_at_once):
        pytest.skip("reads a first column")
    if dims[1] == 1 and kernel is both_in_branches:
        pytest.skip("reads a second column")
    x = G.normal(size=dims)
    weights = np.cos(np.arange(len(x)))
    with hl.enable_x64():
        found = hl.jit(hl.grad(lambda v: (kernel(v) * weights).sum()))(x)
        np.testing.assert_allclose(found, differences(kernel, x, weights), rtol=1e-5, atol=1e-7)
        tangent = G.normal(size=dims)
        _, forward = hl.jvp(lambda v: (kernel(v) * weights).sum(), (x,), (tangent,))
    np.testing.assert_allclose(forward, (np.asarray(found) * tangent).sum(), rtol=1e-9, atol=1e-12)


def test_second_derivatives():
    x = G.normal(size=(1, 4))
    with hl.enable_x64():
        slope = hl.grad(lambda v: loops_within(v).sum())
        found = np.asarray(hl.hessian(lambda v: loops_within(v).sum())(x)).reshape(4, 4)
        for k in range(4):
            step = np.zeros((1, 4))
            step[0, k] = 1e-6
            wanted = (np.asarray(slope(x + step)) - np.asarray(slope(x - step))) / 2e-6
            np.testing.assert_allclose(found[k], wanted[0], rtol=1e-5, atol=1e-6)


@hl.kernel
def of_a_root(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = np.sqrt(max(x[i], 0.0)) + np.sqrt(np.minimum(np.maximum(x[i], 0.0), 4.0) * 2.0)
    return out


def test_what_a_maximum_does_not_choose_has_no_derivative_whatever_follows():
    """The derivative of the root at 0 is infinite; where 0 is a constant, it does not count."""
    x = np.array([-3.0, -1e-3, 0.25, 9.0])
    wanted = [0, 0, 1 + np.sqrt(2), 1 / 6]
    with hl.enable_x64():
        np.testing.assert_allclose(hl.grad(lambda v: of_a_root(v).sum())(x), wanted)

        def by_arrays(v):
            return (hl.numpy.sqrt(hl.numpy.maximum(v, 0)) + hl.numpy.sqrt(2 * hl.numpy.clip(v, 0, 4))).sum()

        np.testing.assert_allclose(hl.grad(by_arrays)(x), wanted)
        np.testing.assert_allclose(hl.jit(hl.grad(by_arrays))(x), wanted)
