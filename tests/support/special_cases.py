"""Cases of the special functions for `derivative_cases`, each within its domain and away from its poles."""

from __future__ import annotations

import numpy as np

F64 = np.dtype("float64")
D = (3, 4)


def normal(rng, dims):
    return rng.normal(size=dims)


def between(low, high):
    return lambda rng, dims: rng.uniform(low, high, size=dims)


def beyond(low, high):
    """Of either sign, with an absolute value between the bounds."""
    return lambda rng, dims: rng.uniform(low, high, size=dims) * rng.choice([-1.0, 1.0], size=dims)


def whole(low, high):
    """A constant operand: whole numbers."""
    return lambda like: np.random.default_rng(7).integers(low, high, like.dims).astype(F64)


def complex_normal(rng, dims):
    return rng.normal(size=dims) + 1j * rng.normal(size=dims)


UNARY = {
    "erf-inv": between(-0.9, 0.9),
    "erfc": normal,
    "erfcx": normal,
    "lgamma": between(0.3, 6.0),
    "digamma": between(0.3, 6.0),
    "bessel-i0e": beyond(0.1, 4.0),
    "bessel-i1e": beyond(0.1, 4.0),
    "atan": normal,
    "dawsn": normal,
    "exp1": between(0.2, 4.0),
    "expi": between(0.5, 4.0),
    "spence": between(0.2, 3.0),
    "fresnel-s": normal,
    "fresnel-c": normal,
    "sine-integral": beyond(0.1, 4.0),
    "cosine-integral": between(0.3, 4.0),
}
# Functions that have a derivative by some operands only: the others are constants.
WITH_CONSTANTS = {
    "zeta": ([between(2.2, 4.0)], between(0.5, 4.0)),
    "polygamma": ([whole(1, 4)], between(0.5, 4.0)),
    "expn": ([whole(2, 5)], between(0.5, 3.0)),
    "bessel-jv": ([whole(0, 4)], between(0.5, 5.0)),
    "regularized-incomplete-beta": ([between(0.7, 3.0), between(0.7, 3.0)], between(0.2, 0.8)),
    "hyp1f1": ([between(0.5, 2.0), between(1.5, 3.0)], normal),
    "hyp2f1": ([between(0.5, 2.0), between(0.5, 2.0), between(2.5, 4.0)], between(-0.6, 0.6)),
}


def with_constants(opcode, samplers):
    def apply(x):
        constants = []
        for k, sampler in enumerate(samplers):
            drawn = sampler(x) if sampler.__code__.co_argcount == 1 else sampler(np.random.default_rng(k), x.dims)
            constants.append(type(x)(x.builder, x.builder.constant(drawn)))
        return constants[0].op(opcode, *constants[1:], x)

    return apply


def register(case) -> None:
    for name, sampler in UNARY.items():
        case(name, lambda x, name=name: x.op(name), (sampler, D))
    for name in ("lgamma", "digamma"):
        case(name, lambda x, name=name: x.op(name), (between(-1.8, -1.2), D), label="negative")
    case("atan", lambda x: x.op("atan"), (complex_normal, D), label="complex")
    for name in ("dawsn", "sine-integral", "erf-inv", "bessel-i1e"):
        case(
            name, lambda x, name=name: x.op(name), (lambda rng, dims: np.zeros(dims), (2,)), smooth=False, label="zero"
        )
    case("spence", lambda x: x.op("spence"), (lambda rng, dims: np.ones(dims), (2,)), smooth=False, label="one")
    for name, (constants, sampler) in WITH_CONSTANTS.items():
        case(name, with_constants(name, constants), (sampler, D))
    case("next-after", lambda x, y: x.op("next-after", y), (normal, D), (normal, D))
    case("owens-t", lambda h, a: h.op("owens-t", a), (normal, D), (normal, D))
    for name in ("igamma", "igammac"):
        both = (between(0.5, 4.0), D), (between(0.5, 4.0), D)
        # The derivative by a has none itself.
        case(name, lambda a, x, name=name: a.op(name, x), *both, smooth=False)
        one = lambda x, name=name: with_constants(name, [between(0.5, 4.0)])(x)  # noqa: E731
        case(name, one, (between(0.5, 4.0), D), label="by-x")
