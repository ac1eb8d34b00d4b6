"""Special functions of `hloom.scipy.special` that the host computes by SciPy: integrals, Bessel functions and others.

Compiled programs run them as separate steps. They are differentiable with respect to their last argument.
"""

from __future__ import annotations

import numpy as np

import hloom.numpy as hnp
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import COMPLEX
from hloom.lax.operands import inexact_dtype, promote_operands
from hloom.tracing.trace import bind


def _host(name: str, opcode: str, text: str, names: str):
    scope: dict = {}
    text = f"def function({names}):\n    return apply({names})"
    exec(compile(text, __file__, "exec"), {"apply": lambda *v: _apply(name, opcode, v)}, scope)
    function = scope["function"]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}\n\n    Element-wise, floats. Raises DTypeError, ShapeError.\n    "
    return function


def _apply(name: str, opcode: str, values):
    operands, weak = promote_operands(name, values, inexact_dtype)
    if operands[0].dtype in COMPLEX:
        raise DTypeError(f"{name} takes real numbers", f"{operands[0]._shape!r}", "take the real part")
    return bind(opcode, *operands, weak=weak)


dawsn = _host("dawsn", "dawsn", "Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x.", "x")
erfcx = _host("erfcx", "erfcx", "exp(x^2) erfc(x), without its overflow.", "x")
exp1 = _host("exp1", "exp1", "The exponential integral E1(x), the integral of exp(-t) / t from x on.", "x")
expi = _host("expi", "expi", "The exponential integral Ei(x), the integral of exp(t) / t up to x.", "x")
expn = _host("expn", "expn", "The exponential integral of order n: the integral of exp(-x t) / t^n from 1 on.", "n, x")
spence = _host("spence", "spence", "Spence's integral of log(t) / (1 - t) from 1 to x: the dilogarithm of 1 - x.", "x")
hyp1f1 = _host("hyp1f1", "hyp1f1", "The confluent hypergeometric function 1F1(a; b; x).", "a, b, x")
hyp2f1 = _host("hyp2f1", "hyp2f1", "Gauss' hypergeometric function 2F1(a, b; c; x).", "a, b, c, x")
owens_t = _host("owens_t", "owens-t", "Owen's T function of h and a.", "h, a")
_fresnel_s, _fresnel_c = _host("fresnel", "fresnel-s", "", "x"), _host("fresnel", "fresnel-c", "", "x")
_si, _ci = _host("sici", "sine-integral", "", "x"), _host("sici", "cosine-integral", "", "x")


def fresnel(x):
    """(S(x), C(x)): the integrals of sin(pi t^2 / 2) and of cos(pi t^2 / 2) from 0 to x. Raises DTypeError.

    >>> s, c = hl.scipy.special.fresnel(hnp.array([1.0]))
    >>> s.round(3), c.round(3)
    (Array([0.438], dtype=float32), Array([0.78], dtype=float32))
    """
    return _fresnel_s(x), _fresnel_c(x)


def sici(x):
    """(Si(x), Ci(x)): the sine and the cosine integral. Raises DTypeError."""
    return _si(x), _ci(x)


def bessel_jn(z, *, v: int, n_iter: int = 50):
    """Bessel functions of the first kind J(0, z) to J(v, z): shape (v + 1, *z.shape). n_iter is ignored.

    Raises ArgumentError, DTypeError.

    >>> hl.scipy.special.bessel_jn(hnp.array([0.0]), v=2).ravel()
    Array([1., 0., 0.], dtype=float32)
    """
    if not isinstance(v, (int, np.integer)) or isinstance(v, bool) or v < 0:
        raise ArgumentError("bessel_jn takes a static order v from 0", f"{v!r:.60}", "pass a Python integer")
    return hnp.stack([_apply("bessel_jn", "bessel-jv", (hnp.full_like(hnp.asarray(z), k), z)) for k in range(v + 1)])
