"""Special functions that the host computes by SciPy, between two native segments: integrals and hypergeometric ones.

Derivatives: NIST Digital Library of Mathematical Functions, chapters 6 to 8, 10, 13, 15 and 25.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.ops.elementwise.declare import host_function
from hloom.ir.ops.elementwise.special import no_partial, odd, scipy_function
from hloom.ir.ops.rules import partials
from hloom.ir.process.lazy import LazyModule

scipy_special = LazyModule("scipy.special")


def _component(name: str, which: int):
    """One of the results of a SciPy function."""

    def reference(x):
        return getattr(scipy_special, name)(x.astype(np.float64))[which]

    return reference


def _where_zero(x, at_zero: float, elsewhere):
    """`elsewhere(x)`, and a constant where x is 0."""
    zero = x.compare("EQ", 0)
    return zero.where(x.like(at_zero), elsewhere(zero.where(x.like(1), x)))


def _spence_slope(g, y, x):
    one = x.compare("EQ", 1)
    safe = one.where(x.like(2), x)
    return g * one.where(x.like(-1), safe.op("log") / (1 - safe))


def _quarter(x):
    return x * x * (math.pi / 2)


def _expn_slope(g, y, n, x):
    """-E(n-1, x); E(0, x) = exp(-x) / x."""
    return -(g * (n - 1).op("expn", x))


def _bessel_slope(g, y, v, x):
    return g * 0.5 * ((v - 1).op("bessel-jv", x) - (v + 1).op("bessel-jv", x))


def _owens_by_h(g, y, h, a):
    slope = (-(h * h) * 0.5).op("exponential") * (a * h * math.sqrt(0.5)).op("erf")
    return -(g * slope) * (1 / math.sqrt(8 * math.pi))


def _owens_by_a(g, y, h, a):
    square = a * a + 1
    return g * (-(h * h) * square * 0.5).op("exponential") / (square * (2 * math.pi))


ONE = {
    "dawsn": (odd(scipy_function("dawsn")), lambda g, y, x: g * (1 - x * y * 2)),
    "exp1": (scipy_function("exp1"), lambda g, y, x: -(g * (-x).op("exponential") / x)),
    "expi": (scipy_function("expi"), lambda g, y, x: g * x.op("exponential") / x),
    "spence": (scipy_function("spence"), _spence_slope),
    "fresnel-s": (_component("fresnel", 0), lambda g, y, x: g * _quarter(x).op("sine")),
    "fresnel-c": (_component("fresnel", 1), lambda g, y, x: g * _quarter(x).op("cosine")),
    "sine-integral": (
        _component("sici", 0),
        lambda g, y, x: g * _where_zero(x, 1.0, lambda s: s.op("sine") / s),
    ),
    "cosine-integral": (_component("sici", 1), lambda g, y, x: g * x.op("cosine") / x),
}
for _name, (_reference, _slope) in ONE.items():
    host_function(_name, 1, _reference, partials(_slope), 100)


def _expn(n, x):
    return scipy_special.expn(n.astype(np.float64), x.astype(np.float64))


host_function("expn", 2, _expn, partials(no_partial("expn", "n"), _expn_slope), 100)
host_function("bessel-jv", 2, scipy_function("jv"), partials(no_partial("bessel_jn", "v"), _bessel_slope), 100)
host_function("owens-t", 2, scipy_function("owens_t"), partials(_owens_by_h, _owens_by_a), 100)
host_function(
    "hyp1f1",
    3,
    scipy_function("hyp1f1"),
    partials(
        no_partial("hyp1f1", "a"),
        no_partial("hyp1f1", "b"),
        lambda g, y, a, b, x: g * a / b * (a + 1).op("hyp1f1", b + 1, x),
    ),
    200,
)
host_function(
    "hyp2f1",
    4,
    scipy_function("hyp2f1"),
    partials(
        no_partial("hyp2f1", "a"),
        no_partial("hyp2f1", "b"),
        no_partial("hyp2f1", "c"),
        lambda g, y, a, b, c, x: g * a * b / c * (a + 1).op("hyp2f1", b + 1, c + 1, x),
    ),
    300,
)
