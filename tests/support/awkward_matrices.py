"""Kinds of matrices that are awkward for linear algebra: without full rank, graded, huge, tiny, not finite, ..."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FLOATING = ("float32", "float64", "complex64", "complex128")
KINDS: dict[str, Callable[[Draw, int, int], np.ndarray]] = {}
# Powers of ten that a dtype of 4 or 8 bytes has: (large, its inverse, a denormal one, the spread of mixed scales).
POWERS = {4: (30, -30, -41, 8), 8: (300, -300, -315, 60)}


class Draw:
    """Random numbers for matrices of one dtype, in float64 or complex128."""

    def __init__(self, rng: np.random.Generator, dtype: str):
        self.rng, self.dtype = rng, np.dtype(dtype)
        self.large, self.small, self.denormal, self.spread = POWERS[np.finfo(dtype).dtype.itemsize]

    def normal(self, *dims: int) -> np.ndarray:
        real = self.rng.normal(size=dims)
        return real + 1j * self.rng.normal(size=dims) if self.dtype.kind == "c" else real

    def powers(self, low: float, high: float, *dims: int) -> np.ndarray:
        """Powers of ten with exponents from low to high, at random."""
        return 10.0 ** self.rng.uniform(low, high, dims)

    def orthogonal(self, m: int, n: int) -> np.ndarray:
        """Orthonormal columns, or rows of a wide matrix."""
        q = np.linalg.qr(self.normal(max(m, n), min(m, n)))[0]
        return q if m >= n else q.T

    def place(self, m: int, n: int) -> tuple[int, int]:
        return int(self.rng.integers(m)), int(self.rng.integers(n))


def kind(function: Callable[[Draw, int, int], np.ndarray]):
    KINDS[function.__name__] = function
    return function


@kind
def normal(draw, m, n):
    return draw.normal(m, n)


@kind
def zero(draw, m, n):
    return np.zeros((m, n))


@kind
def ones(draw, m, n):
    return np.ones((m, n))


@kind
def identity(draw, m, n):
    return np.eye(m, n)


@kind
def rank_one(draw, m, n):
    return np.outer(draw.normal(m), draw.normal(n))


@kind
def rank_deficient(draw, m, n):
    rank = max(min(m, n) // 2, 1)
    return draw.normal(m, rank) @ draw.normal(rank, n)


@kind
def equal_rows(draw, m, n):
    return draw.normal(m, n)[draw.rng.integers(max(m // 2, 1), size=m)]


@kind
def equal_columns(draw, m, n):
    return draw.normal(m, n)[:, draw.rng.integers(max(n // 2, 1), size=n)]


@kind
def zero_rows(draw, m, n):
    return draw.normal(m, n) * (draw.rng.random((m, 1)) < 0.5)


@kind
def zero_columns(draw, m, n):
    return draw.normal(m, n) * (draw.rng.random(n) < 0.5)


@kind
def small_integers(draw, m, n):
    return draw.rng.integers(-1, 2, (m, n)).astype(float)


@kind
def consecutive(draw, m, n):
    return np.arange(1.0, m * n + 1).reshape(m, n)


@kind
def graded_rows(draw, m, n):
    return draw.normal(m, n) * np.logspace(0, -2 * draw.spread / 3, m)[:, None]


@kind
def graded_columns(draw, m, n):
    return draw.normal(m, n) * np.logspace(-2 * draw.spread / 3, 0, n)


@kind
def graded_both(draw, m, n):
    return draw.normal(m, n) * np.logspace(0, -10, m)[:, None] * np.logspace(0, -10, n)


@kind
def rows_of_mixed_scales(draw, m, n):
    return draw.normal(m, n) * draw.powers(-10, 10, m, 1)


@kind
def elements_of_mixed_scales(draw, m, n):
    return draw.normal(m, n) * draw.powers(-draw.spread, draw.spread, m, n)


@kind
def diagonal_of_mixed_scales(draw, m, n):
    return np.eye(m, n) * draw.powers(-draw.spread, draw.spread, n)


@kind
def diagonal_of_both_ends(draw, m, n):
    """The product of the diagonal is about 1; that of its first half is beyond the range."""
    return np.eye(m, n) * np.where(np.arange(n) % n < n // 2, 10.0**draw.large, 10.0**draw.small)


@kind
def ill_conditioned(draw, m, n):
    k = min(m, n)
    return draw.orthogonal(m, k) @ (np.logspace(0, -16, k)[:, None] * draw.orthogonal(k, n))


@kind
def clustered_values(draw, m, n):
    k = min(m, n)
    values = 1 + 1e-10 * draw.rng.random(k)
    values[k // 2 :] = 1e-12
    return draw.orthogonal(m, k) @ (values[:, None] * draw.orthogonal(k, n))


@kind
def orthogonal(draw, m, n):
    return draw.orthogonal(m, n)


@kind
def hermitian(draw, m, n):
    a = draw.normal(max(m, n), max(m, n))
    return (a + a.conj().T)[:m, :n]


@kind
def hilbert(draw, m, n):
    return 1.0 / (1 + np.arange(m)[:, None] + np.arange(n))


@kind
def wilkinson(draw, m, n):
    return np.eye(m, n) * np.abs(np.arange(n) - (n - 1) / 2) + np.eye(m, n, 1) + np.eye(m, n, -1)


@kind
def companion(draw, m, n):
    a = np.eye(m, n, -1).astype(draw.normal(1).dtype)
    a[0] = draw.normal(n) * 10
    return a


@kind
def jordan(draw, m, n):
    return np.eye(m, n) * 2 + np.eye(m, n, 1)


@kind
def nearly_defective(draw, m, n):
    return np.eye(m, n) * (1 + 1e-12 * np.arange(n)) + np.eye(m, n, 1) + 1e-13 * draw.normal(m, n)


@kind
def nilpotent(draw, m, n):
    return np.triu(draw.normal(m, n), 1)


@kind
def kahan(draw, m, n):
    s, c = np.sin(1.2), np.cos(1.2)
    return np.triu(np.eye(m, n) - c * np.triu(np.ones((m, n)), 1)) * (s ** np.arange(m))[:, None]


@kind
def permutation(draw, m, n):
    return np.eye(m, n)[draw.rng.permutation(m)]


@kind
def huge(draw, m, n):
    return draw.normal(m, n) * 10.0**draw.large


@kind
def tiny(draw, m, n):
    return draw.normal(m, n) * 10.0**draw.small


@kind
def denormal(draw, m, n):
    return draw.normal(m, n) * 10.0**draw.denormal


@kind
def huge_and_rank_one(draw, m, n):
    return rank_one(draw, m, n) * 10.0**draw.large


@kind
def tiny_and_equal_columns(draw, m, n):
    return equal_columns(draw, m, n) * 10.0**draw.small


@kind
def huge_and_tiny(draw, m, n):
    a = draw.normal(m, n)
    a[draw.place(m, n)] *= 10.0**draw.large
    a[draw.place(m, n)] *= 10.0**draw.small
    return a


@kind
def nan_in_one_place(draw, m, n):
    a = draw.normal(m, n)
    a[draw.place(m, n)] = np.nan
    return a


@kind
def infinity_in_one_place(draw, m, n):
    a = draw.normal(m, n)
    a[draw.place(m, n)] = draw.rng.choice([np.inf, -np.inf])
    return a


def matrix(name: str, rng: np.random.Generator, dtype: str, m: int, n: int) -> np.ndarray:
    """A matrix of a kind."""
    with np.errstate(all="ignore"):
        made = KINDS[name](Draw(rng, dtype), m, n)
        if np.dtype(dtype).kind != "c":
            made = made.real
        return np.asarray(made).astype(dtype)
