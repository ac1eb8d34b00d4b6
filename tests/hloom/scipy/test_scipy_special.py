"""scipy.special and the special functions of lax, against SciPy, compiled and at once, and their derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, DifferentiationError, DTypeError
from hloom.scipy import special

LINE = np.linspace(-6, 6, 101)
POSITIVE = np.linspace(0.05, 9, 101)
UNIT = np.linspace(0.001, 0.999, 101)
OTHER = POSITIVE[::-1].copy()

CASES = [
    *((name, (LINE,)) for name in "gammaln gamma gammasgn erf erfc ndtr log_ndtr expit i0e i1e i0 i1 dawsn".split()),
    *((name, (LINE,)) for name in "erfcx factorial".split()),
    *((name, (POSITIVE,)) for name in "digamma exp1 expi spence entr".split()),
    *((name, (UNIT,)) for name in "erfinv logit ndtri".split()),
    *((name, (POSITIVE, OTHER)) for name in "gammainc gammaincc betaln beta xlogy xlog1py rel_entr kl_div".split()),
    ("poch", (POSITIVE, OTHER)),
    ("zeta", (POSITIVE + 1.01, OTHER)),
    ("boxcox", (POSITIVE, LINE / 3)),
    ("boxcox1p", (POSITIVE, LINE / 3)),
    ("comb", (np.arange(5.0) + 10, np.arange(5.0))),
    ("owens_t", (LINE, POSITIVE)),
    ("betainc", (POSITIVE, OTHER, UNIT)),
    ("hyp1f1", (POSITIVE, OTHER, LINE)),
    ("hyp2f1", (POSITIVE, OTHER, POSITIVE + 1, UNIT * 0.9)),
    ("polygamma", (np.arange(101) % 4, POSITIVE)),
]


def agree(found, want, tolerance=1e-10):
    found, want = np.asarray(found), np.asarray(want)
    assert found.shape == want.shape
    close = np.abs(found - want) <= tolerance * np.maximum(np.abs(want), 1e-8)
    same = close | (found == want) | (np.isnan(found) & np.isnan(want))
    assert same.all(), (np.flatnonzero(~same)[:3], found[~same][:3], want[~same][:3])


@pytest.mark.parametrize("name, args", CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_values(name, args):
    arrays = [hnp.asarray(a) for a in args]
    with np.errstate(all="ignore"):
        want = getattr(scipy.special, name)(*args)
        agree(getattr(special, name)(*arrays), want)
        agree(hl.jit(getattr(special, name))(*arrays), want)


@pytest.mark.parametrize(
    "name, at",
    [
        ("log_ndtr", -30.0), ("log_ndtr", 2.0), ("ndtri", 0.3), ("ndtri", 1e-6), ("gammaln", 2.5), ("digamma", 2.5),
        ("i0e", 1.5), ("i1e", 1.5), ("erfcx", -0.5), ("dawsn", 0.7), ("exp1", 0.7), ("expi", 0.7), ("spence", 0.7),
        ("erfinv", 0.3), ("erfc", 0.3), ("gamma", 2.3), ("i0", 1.2),
    ],
)  # fmt: skip
def test_derivatives(name, at):
    function = getattr(special, name)
    step = abs(at) * 1e-6
    low, high = (float(function(hnp.asarray(np.float64(at + s)))) for s in (-step, step))
    np.testing.assert_allclose(hl.grad(function)(hnp.asarray(np.float64(at))), (high - low) / (2 * step), rtol=1e-5)


def test_derivatives_of_the_incomplete_functions():
    a, b, x = (np.float64(v) for v in (2.3, 1.7, 0.4))
    h = 1e-6

    def slope(function, v):
        return (float(function(hnp.asarray(v + h))) - float(function(hnp.asarray(v - h)))) / (2 * h)

    for function, at in [
        (lambda v: special.gammainc(v, 3.0), a),
        (lambda v: special.gammainc(v, 0.3), a),
        (lambda v: special.gammaincc(v, 9.0), a),
        (lambda v: special.gammainc(a, v), x),
        (lambda v: special.betainc(a, b, v), x),
        (lambda v: special.zeta(a, v), x),
        (lambda v: special.polygamma(2, v), x),
        (lambda v: special.fresnel(v)[0], x),
        (lambda v: special.sici(v)[1], x),
        (lambda v: special.bessel_jn(v, v=2)[1], x),
        (lambda v: special.expn(3, v), x),
        (lambda v: special.hyp1f1(a, b, v), x),
    ]:
        np.testing.assert_allclose(hl.grad(function)(hnp.asarray(at)), slope(function, at), rtol=1e-5)
    with pytest.raises(DifferentiationError, match="betainc"):
        hl.grad(lambda v: lax.betainc(v, b, x))(hnp.asarray(a))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("jitted", [False, True])
def test_limits_at_poles_and_infinities(dtype, jitted):
    values = np.array([0.0, -0.0, -1, -2, -3, -2.5, -0.5, 0.5, 1, 2, 3, 7, np.inf, -np.inf], dtype)
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    for name in ("beta", "betaln", "kl_div", "rel_entr"):
        with np.errstate(all="ignore"):
            expected = getattr(scipy.special, name)(a, b)
        function = hl.jit(getattr(special, name)) if jitted else getattr(special, name)
        got = np.asarray(function(hnp.asarray(a), hnp.asarray(b)))
        known = (a != np.inf) | (b != np.inf)  # beta(inf, inf) is 0 here, NaN in SciPy
        np.testing.assert_allclose(got[known], expected[known], rtol=2e-5, err_msg=name)
    digamma = hl.jit(special.digamma) if jitted else special.digamma
    np.testing.assert_array_equal(np.asarray(digamma(hnp.asarray(values[:4]))), [-np.inf, np.inf, np.nan, np.nan])
    for n in range(4):
        polygamma = hl.jit(special.polygamma) if jitted else special.polygamma
        expected = scipy.special.polygamma(n, values)
        np.testing.assert_allclose(np.asarray(polygamma(n, hnp.asarray(values))), expected, rtol=2e-5, err_msg=str(n))


def test_sums_of_exponentials():
    x = LINE.reshape(1, 101).repeat(2, 0)
    agree(special.logsumexp(hnp.asarray(x), axis=1), scipy.special.logsumexp(x, axis=1))
    agree(special.logsumexp(hnp.asarray(LINE), b=hnp.asarray(UNIT)), scipy.special.logsumexp(LINE, b=UNIT))
    found = special.logsumexp(hnp.asarray(LINE), b=hnp.asarray(-UNIT), return_sign=True)
    for mine, theirs in zip(found, scipy.special.logsumexp(LINE, b=-UNIT, return_sign=True), strict=True):
        agree(mine, theirs)
    agree(special.logsumexp(hnp.asarray([-np.inf, -np.inf])), -np.inf)
    agree(special.softmax(hnp.asarray(LINE)), scipy.special.softmax(LINE))
    agree(special.log_softmax(hnp.asarray(LINE)), scipy.special.log_softmax(LINE))
    agree(special.logsumexp(hnp.asarray(LINE), where=hnp.asarray(LINE > 0)), scipy.special.logsumexp(LINE[LINE > 0]))


def test_other_functions():
    agree(special.expn(3, hnp.asarray(POSITIVE)), scipy.special.expn(3, POSITIVE))
    agree(special.multigammaln(hnp.asarray(POSITIVE + 3), 4), scipy.special.multigammaln(POSITIVE + 3, 4))
    agree(special.bessel_jn(hnp.asarray(POSITIVE), v=3)[2], scipy.special.jv(2, POSITIVE))
    agree(special.bernoulli(8), scipy.special.bernoulli(8), 1e-6)
    n, m = np.array([0, 1, 2, 3, 4, 4, 5]), np.array([0, -1, 1, 2, 0, -4, 3])
    theta, phi = np.linspace(0.1, 3, 7), np.linspace(0, 6, 7)
    agree(special.sph_harm_y(n, m, theta, phi), scipy.special.sph_harm_y(n, m, theta, phi))
    agree(special.zeta(hnp.asarray([2.0, 4.0])), [np.pi**2 / 6, np.pi**4 / 90], 1e-6)
    agree(special.log_ndtr(hnp.asarray(np.array([-1e3, -50.0, 40.0]))), scipy.special.log_ndtr([-1e3, -50.0, 40.0]))
    powers = 10.0 ** -np.arange(20, 300, 40)
    agree(special.ndtri(hnp.asarray(powers)), scipy.special.ndtri(powers))


def test_neighbours_in_every_dtype():
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = hnp.asarray([1.0, 1.0, 0.0, -1.0, 2.0], dtype)
        y = hnp.asarray([2.0, 0.0, 1.0, -2.0, 2.0], dtype)
        for function in (lax.nextafter, hl.jit(lax.nextafter)):
            got = np.asarray(function(x, y))
            np.testing.assert_array_equal(got, np.nextafter(np.asarray(x), np.asarray(y)))


def test_text_of_what_hlo_has_no_opcode_for():
    text = hl.jit(lambda x: lax.lgamma(lax.digamma(x))).lower(hnp.asarray([0.5])).as_text()
    assert 'custom_call_target="chlo.lgamma"' in text
    from hloom.ir.text import parse_module

    assert [i.opcode for i in parse_module(text).entry.instructions] == ["parameter", "digamma", "lgamma"]


def test_errors():
    with pytest.raises(DTypeError, match="real numbers"):
        special.gammaln(hnp.asarray([1j]))
    with pytest.raises(ArgumentError, match="exact"):
        special.factorial(5, exact=True)
    with pytest.raises(ArgumentError, match="static integer"):
        special.bernoulli(2.5)
    with pytest.raises(DTypeError):
        lax.lgamma(hnp.asarray([1, 2]))
