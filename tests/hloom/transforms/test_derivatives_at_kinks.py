"""Derivatives where a function has none: those of JAX, or what docs/reference/numerics.md says instead."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DTypeError

# (function of a library's (root, numpy), arguments)
AS_JAX = {
    "abs": (lambda l, n: n.abs, [0.0]),
    "abs_of_minus_0": (lambda l, n: abs, [-0.0]),
    "abs_of_complex": (lambda l, n: lambda x: n.abs(x + 0j), [0.0]),
    "clip_low": (lambda l, n: lambda x: n.clip(x, 1.0, 2.0), [1.0]),
    "clip_high": (lambda l, n: lambda x: n.clip(x, 1.0, 2.0), [2.0]),
    "clip_by_bound": (lambda l, n: lambda x: n.clip(1.0, x, 2.0), [1.0]),
    "clip_inside": (lambda l, n: n.clip, [1.5, 1.0, 2.0]),
    "clamp_low": (lambda l, n: l.lax.clamp, [1.0, 1.0, 2.0]),
    "clamp_high": (lambda l, n: l.lax.clamp, [1.0, 2.0, 2.0]),
    "clamp_below": (lambda l, n: l.lax.clamp, [1.0, 0.0, 2.0]),
    "clamp_empty": (lambda l, n: l.lax.clamp, [2.0, 1.0, 2.0]),
    "hypot": (lambda l, n: n.hypot, [0.0, 0.0]),
    "hypot_on_an_axis": (lambda l, n: n.hypot, [0.0, 1.0]),
    "maximum": (lambda l, n: n.maximum, [0.0, 0.0]),
    "minimum": (lambda l, n: n.minimum, [0.0, 0.0]),
    "max": (lambda l, n: n.max, [[1.0, 1.0, 0.0]]),
    "median": (lambda l, n: n.median, [[1.0, 1.0, 2.0]]),
    "sqrt": (lambda l, n: n.sqrt, [0.0]),
    "norm": (lambda l, n: n.linalg.norm, [[0.0, 0.0]]),
    "norm_1": (lambda l, n: lambda x: n.linalg.norm(x, 1), [[0.0, 0.0]]),
    "prod": (lambda l, n: n.prod, [[0.0, 2.0, 3.0]]),
    "sinc": (lambda l, n: n.sinc, [0.0]),
    "sign": (lambda l, n: n.sign, [0.0]),
    "power": (lambda l, n: n.power, [0.0, 2.0]),
    "relu": (lambda l, n: l.nn.relu, [0.0]),
    "relu6": (lambda l, n: l.nn.relu6, [6.0]),
    "leaky_relu": (lambda l, n: l.nn.leaky_relu, [0.0]),
    "elu": (lambda l, n: l.nn.elu, [0.0]),
    "hard_tanh": (lambda l, n: l.nn.hard_tanh, [1.0]),
    "hard_sigmoid": (lambda l, n: l.nn.hard_sigmoid, [-3.0]),
    "hard_swish": (lambda l, n: l.nn.hard_swish, [3.0]),
}
# Where JAX has NaN, or another rule (docs/reference/numerics.md).
OURS = {
    "power": (hnp.power, [0.0, 0.0], [0.0, 0.0]),
    "logaddexp": (hnp.logaddexp, [-np.inf, -np.inf], [0.5, 0.5]),
    "xlogy": (hl.scipy.special.xlogy, [0.0, 0.0], [0.0, 0.0]),
    "fmax": (hnp.fmax, [1.0, 1.0], [0.5, 0.5]),
    "mod": (hnp.mod, [4.0, 2.0], [0.0, 0.0]),
}


@pytest.mark.parametrize("name", AS_JAX)
def test_as_in_jax(name):
    made, arguments = AS_JAX[name]
    numbers = tuple(range(len(arguments)))
    given = [np.asarray(a, np.float32) for a in arguments]
    expected = jax.grad(made(jax, jnp), numbers)(*given)
    for run in (hl.grad(made(hl, hnp), numbers), hl.jit(hl.grad(made(hl, hnp), numbers))):
        for found, value in zip(run(*given), expected, strict=True):
            np.testing.assert_array_equal(found, value)


def test_the_infinity_norm_shares_among_elements():
    assert hl.grad(lambda x: hnp.linalg.norm(x, hnp.inf))(hnp.zeros(2)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", OURS)
def test_other_rules(name):
    function, arguments, expected = OURS[name]
    assert [float(g) for g in hl.grad(function, (0, 1))(*arguments)] == expected


def test_numbers_that_a_dtype_does_not_hold():
    for function in (lambda x: x // -2, lambda x: x % -2, lambda x: x + 70_000, lambda x: divmod(x, -1)):
        with pytest.raises(DTypeError, match="u16 holds 0 to 65535"):
            function(hnp.asarray([5], "uint16"))


def test_limits_are_python_floats():
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64"):
        found = hnp.finfo(dtype)
        names = ("eps", "max", "min", "tiny", "smallest_normal", "resolution")
        assert {type(getattr(found, name)) for name in names} == {float}
    assert hnp.finfo("float32").eps == 2.0**-23 and hnp.finfo("float32").max == float(np.finfo(np.float32).max)


def test_one_hot_has_the_default_dtype():
    with hl.config(enable_x64=True):
        assert hl.nn.one_hot(hnp.array([1]), 3).dtype == np.float64
    assert hl.nn.one_hot(hnp.array([1]), 3).dtype == np.float32
    assert hl.nn.one_hot(hnp.array([1]), 3, dtype="f16").dtype == np.float16


def test_cumulative_logarithms_of_sums_keep_their_digits():
    x = (np.random.default_rng(0).standard_normal((4, 300)) * 5).astype(np.float32)
    expected = np.logaddexp.accumulate(x.astype(np.float64), axis=1)
    for run in (hl.lax.cumlogsumexp, hl.jit(hl.lax.cumlogsumexp, static_argnums=1)):
        unit = np.spacing(np.maximum(np.abs(expected), 1).astype(np.float32))
        assert (np.abs(run(hnp.asarray(x), 1) - expected) / unit).max() < 3
