"""Functions that Numba compiles, called in users' kernels: their statements are compiled in the place of a call."""

from __future__ import annotations

import subprocess
import sys

import numba
import numpy as np
import pytest

import hloom as hl
from hloom.errors import UnsupportedError

X = np.random.default_rng(3).normal(size=(6, 40)).astype(np.float32)


@numba.njit
def softplus(v):
    if v > 20:
        found = v
    else:
        found = np.log1p(np.exp(v))
    return found


@numba.vectorize
def clipped(a, low):
    return max(a, low)


@numba.njit
def recursive(v):
    return recursive(v - 1)


@hl.kernel
def of_numbers(x):
    out = np.empty_like(x)
    for i, j in hl.parallel(x.shape):
        out[i, j] = softplus(x[i, j])
    return out


@hl.kernel
def of_arrays(x):
    out = np.empty_like(x)
    for t in hl.tile(x.shape):
        out[t] = clipped(x[t], -0.5) + clipped(x[t][0], 0.25)
    return out


@hl.kernel
def endless(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i, 0] = recursive(x[i, 0])
    return out


@pytest.mark.parametrize("kernel", [of_numbers, of_arrays], ids=["njit", "vectorize"])
def test_functions_of_numba_are_compiled_in_place(kernel):
    np.testing.assert_allclose(kernel(X), kernel.python(X), rtol=1e-5)


def test_a_recursive_function_of_numba():
    with pytest.raises(UnsupportedError, match="a recursive function") as caught:
        endless(X)
    assert caught.value.source.file == __file__


def test_kernels_do_not_import_numba():
    program = (
        "import sys, hloom as hl, numpy as np\nsys.path.insert(0, sys.argv[1])\nimport user_programs as p\n"
        "hl.block_until_ready(p.softmax(p.X))\nassert 'numba' not in sys.modules"
    )
    folder = __file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@numba.vectorize
def huber(x, delta):
    return 0.5 * x * x if abs(x) < delta else delta * (abs(x) - 0.5 * delta)


@numba.njit(parallel=True)
def doubled(x):
    out = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        for j in numba.prange(x.shape[1]):
            out[i, j] = 2 * x[i, j]
    return out


@numba.njit(parallel=True)
def total(x):
    found = 0.0
    for i in numba.prange(x.shape[0]):
        found += x[i].sum()
    return found


@numba.njit
def counts(x):
    out = np.zeros(4, np.int64)
    for i in numba.prange(x.shape[0]):
        out[int(x[i]) % 4] += 1
    return out


@numba.njit
def with_a_set(x):
    seen = {1, 2}
    return x * len(seen)


class TestKernelsOfNumbasFunctions:
    """`hl.kernel` of a function that Numba compiles."""

    def test_vectorize_is_one_op_of_elements(self):
        kernel = hl.kernel(huber)
        weights = np.linspace(0.1, 2, 40, dtype=np.float32)
        np.testing.assert_allclose(kernel(X, weights), huber(X, weights), rtol=1e-5)
        source = hl.jit(lambda x: kernel(x * 2, weights) + 1).lower(X).compile().source()
        assert source.count("def ") == 1, "it is fused with its neighbours"
        slope = hl.grad(lambda x: kernel(x, np.float32(0.7)).sum())(X)
        np.testing.assert_allclose(slope, np.clip(X, -0.7, 0.7), rtol=1e-5)

    @pytest.mark.parametrize("function", [doubled, total], ids=lambda f: f.__name__)
    def test_njit_with_prange(self, function):
        np.testing.assert_allclose(hl.kernel(function)(X), function(X), rtol=1e-4)

    def test_prange_runs_in_order_without_parallel(self):
        x = np.arange(1000, dtype=np.int64)
        np.testing.assert_array_equal(hl.kernel(counts)(x), [250] * 4)
        assert "items 1," in hl.kernel(counts).source(x)

    def test_in_programs(self):
        kernel = hl.kernel(doubled)
        np.testing.assert_allclose(hl.vmap(kernel)(np.stack([X, X])), np.stack([2 * X, 2 * X]))
        np.testing.assert_allclose(hl.grad(lambda x: (kernel(x) ** 2).sum())(X), 8 * X, rtol=1e-5)

    def test_what_kernels_do_not_have_is_refused_at_its_line(self):
        with pytest.raises(UnsupportedError) as caught:
            hl.kernel(with_a_set)(X)
        assert caught.value.source.file == __file__
