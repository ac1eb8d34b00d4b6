"""Open issues of Numba (github.com/numba/numba) as tests that hloom does right."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp


def test_the_sum_of_a_million_floats():
    """numba#2855: `sum` of float32 adds one element after the other and is 0.3 % off. hloom's is right to 1e-5. Seen
    in numba 0.68.1: 3909.2 for 3921.57."""
    x = np.full(10**6, 1 / 255, np.float32)
    assert float(hl.jit(hnp.sum)(x)) == pytest.approx(math.fsum(x.tolist()), rel=1e-5)


def test_the_mean_of_a_million_floats():
    """numba#3702: so does `mean`. hloom's is the float32 next to the exact one. Seen in numba 0.68.1: 499940.4 for
    499999.5."""
    x = np.arange(10**6).astype(np.float32)
    assert float(hl.jit(hnp.mean)(x)) == 499999.5


@pytest.mark.parametrize("name", ["max", "min", "mean", "std", "any", "all", "prod", "argmax", "median"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_reductions_along_an_axis(name, axis):
    """numba#1269: reductions refuse `axis`, `keepdims` or both. hloom has them for all. Seen in numba 0.68.1: max,
    mean and any are a TypingError."""
    x = np.random.default_rng(0).random((5, 7)) - 0.3
    given, function, wanted = (x > 0 if name in ("any", "all") else x), getattr(hnp, name), getattr(np, name)
    with hl.config(enable_x64=True):
        for keepdims in (False, True):
            got = hl.jit(lambda a, keepdims=keepdims: function(a, axis=axis, keepdims=keepdims))(given)
            np.testing.assert_allclose(got, wanted(given, axis=axis, keepdims=keepdims), rtol=1e-12)


def test_a_sum_of_functions_of_a_row_and_a_column():
    """numba#6387: sin(x²) + cos(y²) of a row and a column computes the functions for each element of the result. hloom
    computes each once for each of its own elements. Seen in numba 0.68.1: 5 times NumPy's time."""
    x = np.random.default_rng(0).random((1, 1000)).astype(np.float32)
    y = np.random.default_rng(1).random((100, 1)).astype(np.float32)
    function = hl.jit(lambda x, y: hnp.sin(x**2) + hnp.cos(y**2))
    np.testing.assert_allclose(function(x, y), np.sin(x**2) + np.cos(y**2), rtol=1e-5)
    assert function.lower(x, y).compile().cost_analysis()["transcendentals"] == 1100


def test_long_nested_tuples_of_arrays():
    """numba#5953: compiling a function of a long tuple of tuples of arrays takes time as its square. In hloom it is
    linear. Seen in numba 0.68.1: 40 tuples of 3 arrays, returned as they are, take 71 s."""

    def seconds(count):
        tuples = tuple((np.ones(1), np.ones(2), np.ones(3)) for _ in range(count))
        start = time.process_time()
        result = hl.jit(lambda tuples: tuple((a + 1, b, c * 2) for a, b, c in tuples))(tuples)
        took = time.process_time() - start
        assert all((a == 2).all() and (b == 1).all() and (c == 2).all() for a, b, c in result)
        return took

    seconds(3)
    small, large = seconds(16), seconds(128)
    assert large < 24 * small + 0.2, (small, large)
