"""Kernels that users write: what they compute is what Python computes, in all the ways of calling them."""

from __future__ import annotations

import numpy as np
import pytest
from user_programs import PROGRAMS, X, histogram, product, running_sum, saxpy, softmax, softmax_of_rows, stencil, top_k

import hloom as hl
import hloom.numpy as hnp


def leaves(value) -> list:
    return list(value) if isinstance(value, tuple) else [value]


def assert_equal(found, wanted, tolerance: float = 3e-5):
    assert len(leaves(found)) == len(leaves(wanted))
    for one, other in zip(leaves(found), leaves(wanted), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_computes_what_python_computes(name):
    kernel, arguments = PROGRAMS[name]
    assert_equal(kernel(*arguments), kernel.python(*arguments))


@pytest.mark.parametrize("name", PROGRAMS)
def test_python_is_the_reference_of_the_op(name):
    kernel, arguments = PROGRAMS[name]
    with hl.disable_jit():
        assert_equal(kernel(*arguments), kernel.python(*arguments))


@pytest.mark.parametrize("name", ["softmax", "softmax_of_rows", "product", "stencil", "piecewise", "running_sum"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32"])
def test_dtypes(name, dtype):
    kernel, arguments = PROGRAMS[name]
    if name == "product":
        arguments = (X[:9, :4], X[:4, :9])
    given = [np.asarray(hnp.asarray(a * 3).astype(dtype)) for a in arguments]
    if dtype == "int32" and name in ("softmax", "softmax_of_rows", "stencil", "piecewise"):
        given = [np.clip(a, 0, 3) for a in given]
    wide = [np.asarray(a, np.float64) if dtype != "int32" else a for a in given]
    tolerance = {"float64": 1e-12, "float16": 2e-2, "bfloat16": 2e-1, "int32": 1e-5}[dtype]
    found, wanted = kernel(*given), kernel.python(*wide)
    assert_equal(np.asarray(found, np.float64), np.asarray(wanted, np.float64), tolerance)


def test_complex_numbers():
    @hl.kernel
    def squared(z):
        size = np.empty(z.shape, np.float32)
        out = np.empty_like(z)
        for i in hl.parallel(len(z)):
            out[i] = z[i] * z[i] + 1
            size[i] = z[i].real ** 2 + z[i].imag ** 2
        return out, size

    z = (X[0] + 1j * X[1]).astype(np.complex64)
    assert_equal(squared(z), (z * z + 1, np.abs(z) ** 2))


@pytest.mark.parametrize(
    "name", ["softmax", "stencil", "stencil_of_slices", "ragged", "softmax_of_tiles", "transposed"]
)
def test_vmap(name):
    kernel, (x,) = PROGRAMS[name]
    many = np.stack([x, 2 * x, x - 1])
    assert_equal(hl.vmap(kernel)(many), np.stack([kernel.python(one) for one in many]))
    assert_equal(hl.jit(hl.vmap(kernel, in_axes=2))(np.moveaxis(many, 0, 2)), [kernel.python(one) for one in many])


def test_vmap_of_atomic_updates_and_of_numbers_between_loops():
    x = np.abs(X) / 5
    assert_equal(hl.vmap(lambda row: histogram(row, 8))(x), [histogram.python(row, 8) for row in x])
    mean = hl.vmap(PROGRAMS["normalized"][0])(X)
    assert_equal(
        mean, tuple(map(np.stack, zip(*[PROGRAMS["normalized"][0].python(row) for row in X], strict=True))), 1e-4
    )


def test_nested_vmap_with_an_operand_of_one_level_each():
    f = hl.vmap(hl.vmap(lambda a, b: saxpy(3.0, a, b), in_axes=(None, 0)), in_axes=(0, None))
    assert_equal(hl.jit(f)(X[:4], X[4:9]), [[3 * a + b for b in X[4:9]] for a in X[:4]])


def test_jit_scan_and_branches_around_a_kernel():
    def step(carry, row):
        return softmax_of_rows((carry + row)[None])[0], running_sum(row)

    carry, sums = hl.lax.scan(step, X[0], X[:5])
    wanted = X[0]
    for row in X[:5]:
        wanted = softmax_of_rows.python((wanted + row)[None])[0]
    assert_equal(carry, wanted)
    assert_equal(sums, np.cumsum(X[:5], 1), 1e-4)
    chosen = hl.jit(lambda flag, x: hl.lax.cond(flag, softmax, lambda v: v * 2, x))
    assert_equal(chosen(True, X), softmax.python(X))
    assert_equal(chosen(False, X), 2 * X)


def test_a_kernel_between_other_ops():
    f = hl.jit(lambda x: hnp.tanh(softmax(hnp.sin(x))).sum(1))
    assert_equal(f(X), np.tanh(softmax.python(np.sin(X))).sum(1))


def test_one_kernel_serves_all_sizes_of_its_arguments():
    hl.clear_caches()
    sources = {stencil.source(np.zeros(shape, np.float32)).split("def ", 1)[1] for shape in ((20, 40), (50, 60))}
    assert len({text.rsplit("def ", 1)[1] for text in sources}) == 1


def test_the_source_has_the_users_names():
    text = softmax.source(X)
    assert "def kernel_softmax(x, out, x_1, lo, hi):" in text
    assert "for i in range(lo, hi):" in text and "largest = " in text and "total = total + e" in text


@pytest.mark.parametrize("name", ["saxpy", "two_dimensional_tiles", "piecewise"])
def test_kernels_of_elements_are_fused_with_their_neighbours(name):
    kernel, arguments = PROGRAMS[name]
    f = hl.jit(lambda *a: hnp.tanh(kernel(*[hnp.abs(v) for v in a])) + 1)
    assert f.lower(*arguments).compile().cost_analysis()["kernels"] == 1
    assert_equal(f(*arguments), np.tanh(kernel.python(*[np.abs(v) for v in arguments])) + 1)


def test_kernels_of_shifted_elements_are_not_taken_for_kernels_of_elements():
    @hl.kernel
    def shifted(x, y):
        out = np.empty(len(x) - 1, x.dtype)
        for i in hl.parallel(len(x) - 1):
            out[i] = x[i + 1] - y[i]
        return out

    @hl.kernel
    def turned(x):
        out = np.empty_like(x)
        for i, j in hl.parallel(*x.shape):
            out[j, i] = x[i, j]
        return out

    @hl.kernel
    def half(x):
        out = np.empty_like(x)
        for i in hl.parallel(len(x)):
            out[i] = 1.0
        for i in hl.parallel(len(x) // 2):
            out[i] = x[i]
        return out

    assert_equal(shifted(X[0], X[1]), X[0, 1:] - X[1, :-1])
    assert_equal(turned(X[:, :37]), X[:, :37].T)
    assert_equal(half(X[0]), np.where(np.arange(53) < 26, X[0], 1))


def test_indices_that_loops_and_tests_prove_are_not_checked():
    for kernel, arguments in (PROGRAMS[n] for n in PROGRAMS if n not in ("histogram", "rows_of")):
        assert "fault" not in kernel.source(*arguments), kernel.__name__
    assert "fault" in histogram.source(X[0], 4)


def test_python_arguments_and_empty_arrays():
    assert_equal(saxpy(2.0, X[0, :0], X[1, :0]), X[0, :0])
    assert_equal(saxpy(a=1, x=X[0], y=X[1]), X[0] + X[1])
    assert_equal(product(np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32)), np.zeros((3, 4)))
    assert top_k(np.zeros((0, 8), np.float32), 3)[0].shape == (0, 3)


def test_results_do_not_depend_on_the_number_of_threads():
    x = np.random.default_rng(1).random(100_000).astype(np.float32)
    found = [np.asarray(histogram(x, 32)) for _ in range(3)]
    np.testing.assert_array_equal(found[0], np.histogram(x, 32, (0, 1))[0])
    assert all((one == found[0]).all() for one in found)


def test_atomic_updates_of_floats():
    @hl.kernel(static_argnames="n")
    def sums(x, groups, n):
        total = np.zeros(n, x.dtype)
        largest = np.full(n, -np.inf, x.dtype)
        least = np.full(n, np.inf, x.dtype)
        for i in hl.parallel(len(x)):
            hl.atomic_add(total, groups[i], x[i])
            hl.atomic_max(largest, groups[i], x[i])
            hl.atomic_min(least, groups[i], x[i])
        return total, largest, least

    x, groups = np.tile(X[0], 30), np.arange(30 * 53, dtype=np.int32) % 7
    wanted = [[f(x[groups == k]) for k in range(7)] for f in (np.sum, np.max, np.min)]
    assert_equal(sums(x, groups, 7), tuple(np.array(w, np.float32) for w in wanted), 1e-3)


def test_a_derivative_that_is_given():
    @hl.custom_vjp
    def f(x):
        return softmax(x)

    f.defvjp(lambda x: (f(x), f(x)), lambda y, g: (y * (g - (y * g).sum(1, keepdims=True)),))
    found = hl.grad(lambda x: (f(x) ** 2).sum())(X)
    wanted = hl.grad(lambda x: (hl.nn.softmax(x, 1) ** 2).sum())(hnp.asarray(X))
    assert_equal(found, wanted, 1e-5)


@hl.kernel(static_argnames="k")
def scaled_twice(x, k):
    out = np.empty(len(x), np.float32)
    for i in hl.parallel(len(x)):
        out[i] = (x[i] * 200_000 * k) * 200_000
    return out


def test_static_numbers_of_other_types_are_other_kernels():
    x = np.arange(1, 5, dtype=np.int32)
    wrapped = (x * np.int32(200_000)).astype(np.int64) * 200_000
    assert_equal(scaled_twice(x, 1), wrapped.astype(np.int32))
    assert_equal(scaled_twice(x, 1.0), x * 4e10)
    assert_equal(scaled_twice(x, 1), wrapped.astype(np.int32))
