"""Random numbers from keys, with JAX's names: the same key gives the same numbers, on any machine and in any program.

    key = hl.random.key(0)
    key, own = hl.random.split(key)
    x = hl.random.normal(own, (3, 4))

Numbers whose algorithm is fixed by the bits are JAX's for the same key (threefry2x32, partitionable): integers exactly,
floats up to the last bits of the logarithms in them.
"""

from hloom.random.bits import bits, fold_in, split
from hloom.random.continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    maxwell,
    multivariate_normal,
    normal,
    orthogonal,
    pareto,
    rademacher,
    rayleigh,
    triangular,
    truncated_normal,
    uniform,
    wald,
    weibull_min,
)
from hloom.random.discrete import bernoulli, categorical, choice, geometric, permutation, randint, shuffle
from hloom.random.keys import KeyArray, clone, key_data, key_dtype, key_impl, wrap_key_data
from hloom.random.rejection import (
    ball,
    beta,
    binomial,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    multinomial,
    poisson,
    t,
)
from hloom.random.seeds import PRNGKey, key

__all__ = [
    "KeyArray", "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare",
    "choice", "clone", "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma",
    "generalized_normal", "geometric", "gumbel", "key", "key_data", "key_dtype", "key_impl", "laplace", "loggamma",
    "logistic", "lognormal", "maxwell", "multinomial", "multivariate_normal", "normal", "orthogonal", "pareto",
    "permutation", "poisson", "rademacher", "randint", "rayleigh", "shuffle", "split", "t", "triangular",
    "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]  # fmt: skip
__dir__ = __all__.copy
