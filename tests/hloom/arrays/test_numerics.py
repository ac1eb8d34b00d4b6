"""What docs/reference/numerics.md promises, compiled and at once."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cpu.driver import driver
from hloom.errors import HloomError

NAN, INF = np.nan, np.inf


@pytest.fixture(params=["jit", "unfused", "at once"])
def run(request):
    """run(f, *arrays) -> NumPy array."""
    wrap = {"jit": hl.jit, "unfused": lambda f: hl.jit(f, fusion=False), "at once": lambda f: f}[request.param]
    return lambda f, *arrays: np.asarray(wrap(f)(*(hnp.asarray(a) for a in arrays)))


def s32(*values):
    return np.array(values, np.int32)


def f32(*values):
    return np.array(values, np.float32)


LOWEST = -(2**31)


def test_integer_division(run):
    x, y = s32(7, -7, 5, LOWEST, -5), s32(2, 2, 0, -1, 0)
    assert run(hl.lax.div, x, y).tolist() == [3, -3, -1, LOWEST, -1]
    assert run(hl.lax.rem, x, y).tolist() == [1, -1, 5, 0, -5]
    assert run(lambda a, b: a // b, x, y).tolist() == [3, -4, 0, LOWEST, 0]
    assert run(lambda a, b: a % b, x, y).tolist() == [1, 1, 0, 0, 0]


def test_integers_wrap_and_long_shifts(run):
    assert run(lambda x: x + 1, np.array([127, -128], np.int8)).tolist() == [-128, -127]
    assert run(lambda x: x * x, s32(2**20)).tolist() == [0]
    x, width = s32(-1, 1), s32(32, 40)
    assert run(hl.lax.shift_left, x, width).tolist() == [0, 0]
    assert run(hl.lax.shift_right_arithmetic, x, width).tolist() == [-1, 0]
    assert run(hl.lax.shift_right_logical, x, width).tolist() == [0, 0]


def test_float_division_by_zero(run):
    np.testing.assert_array_equal(run(lambda x, y: x / y, f32(1, -1, 0), f32(0, 0, 0)), f32(INF, -INF, NAN))


def test_maximum_keeps_nan(run):
    np.testing.assert_array_equal(run(hnp.maximum, f32(NAN, 1, 2), f32(1, NAN, 3)), f32(NAN, NAN, 3))
    assert np.isnan(run(hnp.max, f32(1, NAN, 3))) and np.isnan(run(hnp.min, f32(1, NAN, 3)))
    assert np.isnan(run(lambda x: hl.lax.clamp(0.0, x, 1.0), f32(NAN))).all()


@pytest.mark.parametrize("fusion", [True, False])
def test_compiled_maximum_orders_zeros(fusion):
    x, y = f32(-0.0, 0.0), f32(0.0, -0.0)
    assert not np.signbit(np.asarray(hl.jit(hnp.maximum, fusion=fusion)(x, y))).any()
    assert np.signbit(np.asarray(hl.jit(hnp.minimum, fusion=fusion)(x, y))).all()


def test_comparisons_with_nan(run):
    x = f32(NAN)
    for compare, wanted in ((hnp.less, False), (hnp.equal, False), (hnp.greater_equal, False), (hnp.not_equal, True)):
        assert run(compare, x, x).tolist() == [wanted]


def test_argmax_takes_the_first(run):
    assert run(hnp.argmax, f32(1, 3, 3)) == 1 and run(hnp.argmin, f32(2, 1, 1)) == 1
    assert run(hnp.argmax, f32(1, NAN, 3, NAN)) == 1 and run(hnp.argmin, f32(1, NAN, 3, NAN)) == 1


def test_conversions(run):
    x = f32(3.7, -3.7, 1e20, -1e20, NAN, INF)
    assert run(lambda a: a.astype("s32"), x).tolist() == [3, -3, 2**31 - 1, LOWEST, 0, 2**31 - 1]
    assert run(lambda a: a.astype("u8"), x).tolist() == [3, 0, 255, 0, 0, 255]
    assert run(lambda a: a.astype("s8"), s32(300, -129)).tolist() == [44, 127]
    assert run(lambda a: a.astype("pred"), f32(0, -0.0, 0.1, NAN)).tolist() == [False, False, True, True]


def test_extents_of_zero(run):
    empty = np.zeros((0, 3), np.float32)
    assert run(hnp.sum, empty) == 0 and run(hnp.prod, empty) == 1
    assert run(lambda x: hnp.sum(x, axis=0), empty).tolist() == [0, 0, 0]
    assert run(lambda x: x * 2 + 1, empty).shape == (0, 3)
    assert run(lambda x: x.T @ x, empty).tolist() == np.zeros((3, 3)).tolist()
    assert np.isnan(run(hnp.mean, empty))
    with pytest.raises((HloomError, ValueError)):
        run(hnp.max, empty)


def test_windows_move_into_the_array(run):
    assert run(lambda x, k: hl.lax.dynamic_slice(x, (k,), (3,)), np.arange(6), np.int32(5)).tolist() == [3, 4, 5]


def test_products_and_sums_are_rounded_twice(run):
    x = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    assert np.array_equal(run(lambda a, b, c: a * b + c, *x), x[0] * x[1] + x[2])


def test_subnormals_are_not_flushed(run):
    tiny = f32(1e-40)
    assert run(lambda x: x * 0.5, tiny)[0] == tiny[0] * np.float32(0.5) != 0


def test_dtypes():
    assert (hnp.ones(2, "bf16") + 1.5).dtype == hnp.bfloat16 and (hnp.asarray(s32(1)) + 1.5).dtype == np.float32
    assert (hnp.asarray(np.ones(2)) + 1).dtype == np.float64 and hnp.asarray(1.0).dtype == np.float32
    assert hnp.sin(hnp.asarray(np.ones(2, np.int64))).dtype == np.float64
    assert hnp.sin(hnp.asarray(s32(1))).dtype == np.float32


def test_ties_share_the_cotangent():
    assert float(hl.grad(abs)(0.0)) == 1  # as in JAX
    assert float(hl.grad(lambda x: hnp.maximum(x, 1.0))(1.0)) == 0.5
    assert np.asarray(hl.grad(hnp.max)(f32(1, 2, 2))).tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize("shape", [(100_003,), (37, 4099), (4099, 37), (513, 257)])
def test_the_same_bits_for_every_number_of_threads(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    function = hl.jit(lambda x: (hnp.sum(x * x), hnp.sum(hnp.exp(x), axis=0), hl.nn.softmax(x)))
    before = driver().num_threads
    results = []
    try:
        for threads in (1, 2, 3, 5):
            driver().set_num_threads(threads)
            results.append([np.asarray(y).tobytes() for y in function(x)])
    finally:
        driver().set_num_threads(before)
    assert all(r == results[0] for r in results[1:])


def test_remainders_of_subnormals(run):
    x, y = np.array([2.0**-1022, -(2.0**-1022), 7e-320, 1e308]), np.array([5e-324, -5e-324, 3e-323, 5e-324])
    np.testing.assert_array_equal(run(hnp.fmod, x, y), np.fmod(x, y))
