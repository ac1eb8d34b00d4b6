"""Derivatives of users' kernels, which hloom derives: against finite differences, and against array functions."""

from __future__ import annotations

import numpy as np
import pytest
from user_programs import PROGRAMS

import hloom as hl
import hloom.numpy as hnp

G = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return G.normal(size=shape)


@hl.kernel
def powers(x, a):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        v = x[i] * a
        for _ in range(3):
            v = v * v + 0.1 * x[i]
        out[i] = v
    return out


@hl.kernel
def recurrence(x):
    out = np.empty_like(x)
    out[0] = x[0]
    for i in range(1, len(x)):
        out[i] = np.sin(out[i - 1]) * x[i] + 0.5
    return out


@hl.kernel
def in_place(x, steps):
    out = x.copy()
    for i in hl.parallel(x.shape[0]):
        row = out[i]
        for _ in range(4):
            for j in range(1, len(row) - 1):
                row[j] = (row[j - 1] + row[j] * row[j + 1]) / 2
            row[0] = row[0] * steps
    return out


@hl.kernel
def branches(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        v = x[i]
        if v > 0.5:
            v = v * v
        elif v > -0.5:
            v = np.sin(v) * 3
            if v > 0:
                v = v * 2
        out[i] = v if v < 2 else 2 - np.exp(-v)
    return out


@hl.kernel
def functions(x, y):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        a, b = np.abs(x[i]) + 0.3, y[i]
        out[i] = (
            np.log(a) + np.sqrt(a) * np.tanh(b) - np.arctan2(b, a) + a**b + np.exp2(b) + np.maximum(a, b) / (1 + b * b)
        )
        out[i] += np.log1p(a) * np.cosh(b) + np.where(b > 0, a * b, a - b) + np.clip(b, -0.5, 0.5) * a
    return out


@hl.kernel
def with_memory(x):
    out = np.empty_like(x)
    for i in hl.parallel(x.shape[0]):
        e = np.exp(x[i] - x[i].max())
        s = e.sum()
        for j in range(x.shape[1]):
            e[j] = e[j] * e[j] / s
        out[i] = e * s
    return out


@hl.kernel
def several_loops(x):
    middle = np.empty_like(x)
    total = 0.0
    for i in hl.parallel(len(x)):
        middle[i] = x[i] * x[i]
    for i in range(len(x)):
        total += middle[i] * x[i]
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = middle[i] / (total + 10) + np.sin(total) * x[i]
    return out, total


@hl.kernel
def gathered(x, indices):
    out = np.zeros(8, x.dtype)
    for i in hl.parallel(len(indices)):
        hl.atomic_add(out, indices[i] % 8, x[indices[i]] ** 2)
    return out


@hl.kernel
def triangle(x):
    out = np.zeros_like(x)
    for i in hl.parallel(x.shape[0]):
        for j in range(i + 1):
            out[i, j] = x[i, : j + 1].sum() * x[j, i]
    return out


@hl.kernel
def backwards(x):
    out = np.empty_like(x)
    carry = 0.0
    for i in range(len(x) - 1, -1, -2):
        carry = carry * x[i] + x[i - 1] if i > 0 else carry * x[i]
        out[i] = carry
    for i in range(len(x) - 2, -1, -2):
        out[i] = x[i] * 2
    return out


@hl.kernel
def tiles(x):
    out = np.empty_like(x)
    for t in hl.tile(x.shape, tile=(2, 3)):
        out[t] = np.sin(x[t]) * x[t]
    return out


CASES = {
    "powers": (powers, (0.5 * floats(7), np.float64(0.7)), (0, 1)),
    "recurrence": (recurrence, (floats(9),), (0,)),
    "in_place": (in_place, (floats(3, 6), np.float64(1.1)), (0, 1)),
    "branches": (branches, (floats(40),), (0,)),
    "functions": (functions, (floats(12), floats(12)), (0, 1)),
    "with_memory": (with_memory, (floats(3, 5),), (0,)),
    "several_loops": (several_loops, (floats(6),), (0,)),
    "gathered": (gathered, (floats(20), np.array([1, 3, 3, 19, 11, 0], np.int32)), (0,)),
    "triangle": (triangle, (floats(5, 5),), (0,)),
    "backwards": (backwards, (floats(7),), (0,)),
    "tiles": (tiles, (floats(5, 7),), (0,)),
    "softmax": (PROGRAMS["softmax"][0], (floats(4, 6),), (0,)),
    "softmax_of_rows": (PROGRAMS["softmax_of_rows"][0], (floats(4, 6),), (0,)),
    "softmax_of_tiles": (PROGRAMS["softmax_of_tiles"][0], (floats(4, 6),), (0,)),
    "stencil": (PROGRAMS["stencil"][0], (floats(5, 40),), (0,)),
    "stencil_of_slices": (PROGRAMS["stencil_of_slices"][0], (floats(5, 6),), (0,)),
    "product": (PROGRAMS["product"][0], (floats(3, 4), floats(4, 5)), (0, 1)),
    "normalized": (PROGRAMS["normalized"][0], (floats(8),), (0,)),
    "rows_of": (PROGRAMS["rows_of"][0], (floats(5, 3), np.array([1, 4, 1], np.int32)), (0,)),
}


def weights_of(results) -> list[np.ndarray]:
    leaves = results if isinstance(results, tuple) else (results,)
    return [np.cos(np.arange(np.size(leaf)).reshape(np.shape(leaf)) + 1.0) for leaf in leaves]


def loss_of(kernel, weights, *arguments):
    results = kernel(*arguments)
    leaves = results if isinstance(results, tuple) else (results,)
    return sum((leaf * w).sum() for leaf, w in zip(leaves, weights, strict=True))


def differences(kernel, weights, arguments, k: int) -> np.ndarray:
    """The gradient by central differences, of the function that Python runs."""
    found = np.zeros(np.shape(arguments[k]))
    for place in np.ndindex(found.shape):
        sides = []
        for step in (1e-6, -1e-6):
            moved = np.array(arguments[k], np.float64)
            moved[place] += step
            sides.append(loss_of(kernel.python, weights, *arguments[:k], moved, *arguments[k + 1 :]))
        found[place] = (sides[0] - sides[1]) / 2e-6
    return found


@pytest.fixture(autouse=True)
def double_precision():
    with hl.enable_x64():
        yield


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_finite_differences(name):
    kernel, arguments, wanted = CASES[name]
    weights = weights_of(kernel.python(*arguments))
    found = hl.jit(hl.grad(lambda *a: loss_of(kernel, weights, *a), argnums=wanted))(*arguments)
    for k, gradient in zip(wanted, found, strict=True):
        np.testing.assert_allclose(gradient, differences(kernel, weights, arguments, k), rtol=2e-5, atol=2e-7)


@pytest.mark.parametrize("name", CASES)
def test_forward_mode_agrees_with_reverse_mode(name):
    kernel, arguments, wanted = CASES[name]
    weights = weights_of(kernel.python(*arguments))
    given = [arguments[k] for k in wanted]

    def loss(*moved):
        filled = list(arguments)
        for k, value in zip(wanted, moved, strict=True):
            filled[k] = value
        return loss_of(kernel, weights, *filled)

    tangents = tuple(np.sin(np.arange(np.size(v)).reshape(np.shape(v)) + 2.0) for v in given)
    _, forward = hl.jvp(loss, tuple(given), tangents)
    reverse = hl.grad(loss, argnums=tuple(range(len(given))))(*given)
    np.testing.assert_allclose(forward, sum((g * t).sum() for g, t in zip(reverse, tangents, strict=True)), rtol=1e-9)


@pytest.mark.parametrize("name", ["powers", "recurrence", "in_place", "with_memory", "several_loops", "product"])
def test_gradients_of_many_calls_at_once(name):
    kernel, arguments, _ = CASES[name]
    first = np.stack([arguments[0], 0.5 * arguments[0], arguments[0] - 0.1])
    weights = weights_of(kernel.python(*arguments))

    def gradient(x):
        return hl.grad(lambda v: loss_of(kernel, weights, v, *arguments[1:]))(x)

    np.testing.assert_allclose(hl.jit(hl.vmap(gradient))(first), np.stack([gradient(x) for x in first]), rtol=1e-10)


def test_a_gradient_by_an_operand_that_all_calls_share():
    x, a = floats(4, 7), np.float64(0.6)
    found = hl.grad(lambda a: hl.vmap(lambda row: powers(row, a))(x).sum())(a)
    np.testing.assert_allclose(found, sum(hl.grad(lambda a, row=row: powers(row, a).sum())(a) for row in x), rtol=1e-10)


def test_second_derivatives():
    x = 0.5 * floats(5)
    found = hl.hessian(lambda v: powers(v, 0.7).sum())(x)

    def by_arrays(v):
        w = v * 0.7
        for _ in range(3):
            w = w * w + 0.1 * v
        return w.sum()

    np.testing.assert_allclose(found, hl.hessian(by_arrays)(hnp.asarray(x)), rtol=1e-8, atol=1e-10)


def test_a_kernel_in_the_middle_of_a_loss():
    x, w = floats(6, 4), floats(4, 5)
    kernel = PROGRAMS["softmax"][0]
    found = hl.grad(lambda w: (kernel(hnp.tanh(x @ w)) ** 2).sum())(w)
    wanted = hl.grad(lambda w: (hl.nn.softmax(hnp.tanh(x @ w), -1) ** 2).sum())(w)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_the_gradient_of_single_precision_has_its_dtype():
    x = floats(3, 5).astype(np.float32)
    kernel = PROGRAMS["softmax"][0]
    found = hl.grad(lambda v: (kernel(v) ** 2).sum())(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, hl.grad(lambda v: (hl.nn.softmax(v, -1) ** 2).sum())(hnp.asarray(x)), atol=1e-6)


def test_a_large_tape_is_memory_of_the_program():
    x = floats(2, 9000)

    @hl.kernel
    def long_rows(x):
        out = np.empty(len(x), x.dtype)
        for i in hl.parallel(len(x)):
            v = 1.0
            for j in range(x.shape[1]):
                v = np.sin(v) + x[i, j] * v * 0.01
                v = v * 0.9
                v = np.cos(v)
                v = v * v
                v = v + 0.1
            out[i] = v
        return out

    found = hl.grad(lambda v: long_rows(v).sum())(x)
    for place in ((0, 8999), (1, 8998)):
        moved = [np.array(x), np.array(x)]
        moved[0][place] += 1e-5
        moved[1][place] -= 1e-5
        sides = [long_rows.python(m).sum() for m in moved]
        np.testing.assert_allclose(found[place], (sides[0] - sides[1]) / 2e-5, rtol=1e-4, atol=1e-9)


@hl.kernel
def until_small(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        v = x[i]
        while v > 0.1:
            v = v / 2
        out[i] = v
    return out


def test_backward_of_loops_without_bounds():
    x = np.abs(floats(4)) + 1
    found = hl.grad(lambda v: until_small(v).sum())(x)
    np.testing.assert_allclose(found, np.asarray(until_small(x)) / x)


def test_forward_mode_of_loops_without_bounds():
    x = np.abs(floats(4)) + 1
    _, found = hl.jvp(until_small, (x,), (np.ones(4),))
    np.testing.assert_allclose(found, np.asarray(until_small(x)) / x)


def test_an_index_out_of_range_in_a_gradient_is_an_error():
    with pytest.raises(hl.errors.ShapeError, match="the size 20"):
        hl.block_until_ready(hl.grad(lambda x: gathered(x, np.array([1, 99], np.int32)).sum())(floats(20)))
