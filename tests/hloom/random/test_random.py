"""Random numbers: the same as JAX's for the same key; keys through every transform; errors that say what is wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import random
from hloom.errors import ArgumentError, DTypeError, ShapeError

KEY = 7
LOGITS = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
WEIGHTS = np.float32([0.1, 0.2, 0.3, 0.4])
GRID = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
COVARIANCE = np.float32([[2, 0.5], [0.5, 1]])

# name, arguments after the key, keyword arguments
EXACT = [
    ("bits", ((5, 3),), {}),
    ("bits", ((5, 3), "uint8"), {}),
    ("bits", ((5, 3), "uint16"), {}),
    ("uniform", ((50, 20),), {}),
    ("uniform", ((50, 20), "float16"), {}),
    ("uniform", ((50, 20), "bfloat16"), {}),
    ("uniform", ((500,),), {"minval": -3, "maxval": 5.5}),
    ("randint", ((300,), 0, 10), {}),
    ("randint", ((300,), -5, 100, "int8"), {}),
    ("randint", ((300,), -1000, 1000, "int16"), {}),
    ("randint", ((300,), 3, 2), {}),
    ("randint", ((100, 3), np.int32([0, 5, -3]), np.int32([10, 5, 100])), {}),
    ("randint", ((300,), 0, 2**31 - 1, "uint32"), {}),
    ("bernoulli", (0.3, (500,)), {}),
    ("bernoulli", (0.01, (500,)), {"mode": "high"}),
    ("bernoulli", (np.float32([0.1, 0.9]),), {}),
    ("rademacher", ((100,),), {}),
    ("categorical", (LOGITS,), {}),
    ("categorical", (LOGITS, 0), {"shape": (7, 5)}),
    ("categorical", (LOGITS, -1), {"shape": (3, 4), "replace": False}),
    ("permutation", (50,), {}),
    ("permutation", (GRID, 1), {}),
    ("permutation", (GRID, -1, True), {}),
    ("choice", (10, (100,)), {}),
    ("choice", (10, (2, 3), False), {}),
    ("choice", (4, (100,)), {"p": WEIGHTS}),
    ("choice", (4, (3,), False), {"p": WEIGHTS}),
    ("choice", (GRID, (2,)), {"axis": 1}),
    ("choice", (GRID, (2,), False), {"axis": 2}),
    ("geometric", (0.1, (300,)), {}),
    ("poisson", (3.0, (200,)), {}),
    ("poisson", (np.float32([0, 1, 20]),), {}),
    ("binomial", (10, 0.3, (200,)), {}),
    ("binomial", (1000, 0.9, (200,)), {}),
]
CLOSE = [
    ("normal", ((500,),), {}),
    ("normal", ((500,), "complex64"), {}),
    ("exponential", ((500,),), {}),
    ("laplace", ((500,),), {}),
    ("logistic", ((500,),), {}),
    ("cauchy", ((500,),), {}),
    ("gumbel", ((500,),), {}),
    ("gumbel", ((500,),), {"mode": "high"}),
    ("maxwell", ((500,),), {}),
    ("truncated_normal", (-1, 2.0, (500,)), {}),
    ("lognormal", (0.5, (500,)), {}),
    ("pareto", (2.5, (500,)), {}),
    ("rayleigh", (2.5, (500,)), {}),
    ("weibull_min", (2.5, 1.3, (500,)), {}),
    ("triangular", (-1.0, 0.5, 2.0, (500,)), {}),
    ("wald", (1.5, (500,)), {}),
    ("double_sided_maxwell", (1.5, 2.0, (500,)), {}),
    ("multivariate_normal", (np.float32([1, 2]), COVARIANCE, (50,)), {}),
    ("orthogonal", (4, (3,)), {}),
    ("gamma", (3.0, (200,)), {}),
    ("gamma", (0.3, (200,)), {}),
    ("loggamma", (0.01, (200,)), {}),
    ("beta", (2.0, 0.7, (200,)), {}),
    ("dirichlet", (np.float32([1, 2, 0.3]), (20,)), {}),
    ("chisquare", (5.0, (200,)), {}),
    ("f", (5.0, 3.0, (200,)), {}),
    ("t", (5.0, (200,)), {}),
    ("generalized_normal", (3.0, (200,)), {}),
    ("ball", (3, 2, (50,)), {}),
    ("multinomial", (100, np.float32([0.2, 0.3, 0.5])), {}),
]


# Products and sums in one rounding, as JAX's users have them: the tests' XLA_FLAGS turn that off.
ROUNDED_ONCE = {"xla_backend_optimization_level": 3}


def both(name, args, kwargs, options=None):
    """What hloom and JAX draw. options: of XLA, for JAX's function as one program."""
    jax = pytest.importorskip("jax")
    draw = lambda key: getattr(jax.random, name)(key, *args, **kwargs)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = np.asarray((jax.jit(draw, compiler_options=options) if options else draw)(jax.random.key(KEY)))
    found = np.asarray(getattr(random, name)(random.key(KEY), *args, **kwargs))
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    return found, want


@pytest.mark.parametrize("name, args, kwargs", EXACT, ids=lambda v: v if isinstance(v, str) else "")
def test_numbers_that_hang_on_bits_alone_are_those_of_jax(name, args, kwargs):
    found, want = both(name, args, kwargs, ROUNDED_ONCE if "minval" in kwargs else None)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name, args, kwargs", CLOSE, ids=lambda v: v if isinstance(v, str) else "")
def test_floats_are_those_of_jax_up_to_their_logarithms(name, args, kwargs):
    found, want = both(name, args, kwargs)
    scale = np.maximum(np.abs(want), np.median(np.abs(want)))
    # XLA's own functions are some ten units in the last place from the exact values.
    assert np.max(np.abs(found - want) / scale) < 200 * np.finfo(np.float32).eps


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_are_those_of_jax(impl):
    jax = pytest.importorskip("jax")
    for seed in (0, 42, -1, 2**31, 2**32 + 5):
        ours, theirs = random.key(seed, impl=impl), jax.random.key(seed, impl=impl)
        np.testing.assert_array_equal(random.key_data(ours), jax.random.key_data(theirs))
    for num in (1, 3, (2, 5)):
        np.testing.assert_array_equal(
            random.key_data(random.split(ours, num)), jax.random.key_data(jax.random.split(theirs, num))
        )
    for number in (0, 7, 2**32 - 1):
        np.testing.assert_array_equal(
            random.key_data(random.fold_in(ours, number)), jax.random.key_data(jax.random.fold_in(theirs, number))
        )
    np.testing.assert_array_equal(random.bits(ours, (3, 4)), jax.random.bits(theirs, (3, 4)))


def test_wide_numbers_are_those_of_jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        key = jax.random.key(KEY)
        np.testing.assert_array_equal(
            random.bits(random.key(KEY), (9,), "uint64"), jax.random.bits(key, (9,), "uint64")
        )
        np.testing.assert_array_equal(
            random.uniform(random.key(KEY), (9,), "float64"), jax.random.uniform(key, (9,), "float64")
        )
        np.testing.assert_array_equal(
            random.randint(random.key(KEY), (50,), 0, 2**40, "int64"), jax.random.randint(key, (50,), 0, 2**40, "int64")
        )


# --- keys as values -----------------------------------------------------------------------------------------------


def test_typed_and_raw_keys_agree():
    typed, raw = random.key(3), random.PRNGKey(3)
    assert random.key_impl(typed) == "threefry2x32" and str(typed.dtype) == "key<fry>" and typed.shape == ()
    np.testing.assert_array_equal(random.normal(typed, (4,)), random.normal(raw, (4,)))
    np.testing.assert_array_equal(random.key_data(random.split(typed)), random.split(raw))
    wrapped = random.wrap_key_data(raw)
    np.testing.assert_array_equal(random.key_data(wrapped), raw)
    first, second = random.split(typed)
    np.testing.assert_array_equal(random.key_data(first), random.split(raw)[0])
    assert not np.array_equal(random.key_data(first), random.key_data(second))
    keys = random.split(typed, (2, 3))
    assert keys.shape == (2, 3) and keys[1].shape == (3,) and keys[1, 2].shape == () and keys.size == 6
    assert keys.reshape(-1).shape == (6,) and len(keys) == 2
    assert random.clone(typed) is typed


def test_keys_go_through_jit_vmap_and_scan():
    key = random.key(5)
    np.testing.assert_array_equal(
        hl.jit(lambda k: random.normal(random.split(k)[0], (2,)))(key), random.normal(random.split(key)[0], (2,))
    )
    assert hl.jit(lambda k: random.split(k))(key).shape == (2,)
    keys = random.split(key, 4)
    together = np.asarray(hl.vmap(lambda k: random.uniform(k, (3,)))(keys))
    np.testing.assert_array_equal(together, np.stack([np.asarray(random.uniform(k, (3,))) for k in keys]))

    def step(total, k):
        return total + random.normal(k), random.uniform(k)

    total, ys = hl.lax.scan(step, 0.0, keys)
    np.testing.assert_array_equal(ys, [random.uniform(k) for k in keys])
    np.testing.assert_allclose(total, sum(float(random.normal(k)) for k in keys), rtol=1e-6)
    made = hl.jit(lambda n: random.key_data(random.fold_in(key, n)))(9)
    np.testing.assert_array_equal(made, random.key_data(random.fold_in(key, 9)))


def test_samples_are_differentiable_by_their_parameters():
    key = random.key(1)
    slope = hl.grad(lambda s: random.lognormal(key, s, (4,)).sum())(0.5)
    x = np.asarray(random.normal(key, (4,)), np.float64)
    np.testing.assert_allclose(slope, (x * np.exp(0.5 * x)).sum(), rtol=1e-5)
    jax = pytest.importorskip("jax")
    for a in (0.4, 2.0):
        found = hl.grad(lambda v: random.gamma(key, v, (5,)).sum())(a)
        want = jax.grad(lambda v: jax.random.gamma(jax.random.key(1), v, (5,)).sum())(a)
        np.testing.assert_allclose(found, want, rtol=1e-4)


@pytest.mark.parametrize(
    "name, args, mean, variance",
    [
        ("gamma", (2.5,), 2.5, 2.5),
        ("poisson", (30.0,), 30.0, 30.0),
        ("binomial", (50, 0.3), 15.0, 10.5),
        ("beta", (2.0, 3.0), 0.4, 0.04),
        ("normal", (), 0.0, 1.0),
        ("gumbel", (), 0.5772, np.pi**2 / 6),
    ],
)
def test_moments(name, args, mean, variance):
    x = np.asarray(getattr(random, name)(random.key(11), *args, shape=(20000,)), np.float64)
    assert abs(x.mean() - mean) < 5 * np.sqrt(variance / x.size)
    assert abs(x.var() / variance - 1) < 0.1


def test_orthogonal_matrices_are_orthogonal():
    q = np.asarray(random.orthogonal(random.key(0), 5, m=3))
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-5)
    shuffled = np.sort(np.asarray(random.permutation(random.key(0), 1000)))
    np.testing.assert_array_equal(shuffled, np.arange(1000))


def test_bits_are_made_in_the_kernel_that_uses_them():
    text = hl.jit(lambda k: random.uniform(k, (1000,)) * 2 + 1).lower(random.key(0)).compile().source()
    assert text.count("def ") == 1 and "threefry2x32_first_u32" in text


# --- errors -------------------------------------------------------------------------------------------------------

KEYS = random.split(random.key(0), 3)
ERRORS = [
    (lambda: random.normal(5), ArgumentError, "takes a key"),
    (lambda: random.normal(np.zeros(3, np.float32)), ArgumentError, "takes a key"),
    (lambda: random.normal(KEYS), ShapeError, "takes a single key"),
    (lambda: random.key(1.5), DTypeError, "a seed is an integer"),
    (lambda: random.key(0, impl="mersenne"), ArgumentError, "implementation"),
    (lambda: random.uniform(KEYS[0], (2,), "int32"), DTypeError, "makes floats"),
    (lambda: random.bits(KEYS[0], (2,), "float32"), DTypeError, "makes unsigned"),
    (lambda: random.randint(KEYS[0], (2,), 0, 10, "float32"), DTypeError, "makes integers"),
    (lambda: random.randint(KEYS[0], (2,), 0.0, 10), DTypeError, "integer bounds"),
    (lambda: random.split(KEYS[0], -1), ShapeError, "not negative"),
    (lambda: random.fold_in(KEYS[0], 1.5), DTypeError, "takes an integer"),
    (lambda: random.choice(KEYS[0], 5, (10,), replace=False), ArgumentError, "there are 5"),
    (lambda: random.choice(KEYS[0], 5, (2,), p=WEIGHTS), ShapeError, "probability for each"),
    (lambda: random.gamma(KEYS[0], np.float32([1, 2]), (3,)), ShapeError, "its parameters have the shape"),
    (lambda: random.gumbel(KEYS[0], (3,), mode="middle"), ArgumentError, "modes 'low' and 'high'"),
    (lambda: random.wrap_key_data(hnp.zeros((3,), "uint32")), ArgumentError, "takes a key"),
    (lambda: np.asarray(KEYS), ArgumentError, "key_data"),
    (lambda: len(random.key(0)), ArgumentError, "single key"),
    (lambda: random.multivariate_normal(KEYS[0], np.zeros(3), COVARIANCE), ShapeError, "covariance"),
]


@pytest.mark.parametrize("call, kind, text", ERRORS)
def test_mistakes_are_named(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert text in message
    for part in ("found:", "repair:"):
        assert part in message


@pytest.mark.parametrize("low, high", [(-1.0, 1.0), (0.5, 2.5), (3.0, 3.25)])
def test_a_width_that_is_a_power_of_two_is_rounded_once(low, high):
    """Then products with the width are exact, and float32 gives the bits of the float64 sum."""
    u = np.asarray(hl.random.uniform(hl.random.key(5), (4000,)))
    x = np.asarray(hl.random.uniform(hl.random.key(5), (4000,), minval=low, maxval=high))
    np.testing.assert_array_equal(x, (u.astype(np.float64) * (high - low) + low).astype(np.float32))
