"""Edge values of hloom.numpy's element-wise functions, against NumPy: infinities, extreme exponents, short floats."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp


@pytest.mark.parametrize("name", ["log2", "log10"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_logarithms_of_infinite_complex_numbers(name, dtype):
    x = np.array([-np.inf, np.inf, 1j, complex(0, -np.inf), complex(np.inf, 2), 3 - 4j], dtype)
    want = getattr(np, name)(x)
    for call in (getattr(hnp, name), hl.jit(getattr(hnp, name))):
        got = np.asarray(call(x))
        np.testing.assert_allclose(got.real, want.real, rtol=1e-6)
        np.testing.assert_allclose(got.imag, want.imag, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ldexp_beyond_the_range_of_exponents(dtype):
    info, rng = np.finfo(dtype), np.random.default_rng(0)
    edges = [0.0, -0.0, np.inf, -np.inf, 1.0, 3.0, info.max, info.tiny, info.smallest_subnormal]
    x = np.concatenate([rng.standard_normal(500), edges]).astype(dtype)
    exponents = rng.integers(-3 * info.maxexp, 3 * info.maxexp, x.shape).astype(np.int32)
    with np.errstate(all="ignore"):
        want = np.ldexp(x, exponents)
    for call in (hnp.ldexp, hl.jit(hnp.ldexp)):
        np.testing.assert_array_equal(call(x, exponents), want)


def test_ldexp_of_extreme_integers():
    huge = np.array([2**63 - 1, -(2**63), 2**63 - 1, -(2**63)])
    np.testing.assert_array_equal(hnp.ldexp(np.array([0.0, 1.0, 2.0, np.inf]), huge), [0.0, 0.0, np.inf, np.inf])


@pytest.mark.parametrize("name", ["tanh", "sin", "exp"])
@pytest.mark.parametrize("shape", [(3, 5), (7, 100)])
def test_float64_results_as_float16(name, shape):
    """LLVM makes one conversion of the two, by a function that no process has."""
    x = np.random.default_rng(0).standard_normal(shape)
    function, reference = getattr(hnp, name), getattr(np, name)
    got = hl.jit(lambda x: function(x.sum()).astype(np.float16))(x)
    np.testing.assert_allclose(got, reference(x.sum()).astype(np.float16), rtol=2e-3)
    rows = hl.jit(lambda x: function(x.sum(axis=1)).astype(np.float16))(x)
    np.testing.assert_allclose(rows, reference(x.sum(axis=1)).astype(np.float16), rtol=2e-3)
