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
