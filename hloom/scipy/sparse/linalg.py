"""Iterative solvers of A x = b over trees of arrays, with `jax.scipy.sparse.linalg`'s names.

A is a function x -> A x (or a matrix, where x is one array). Derivatives by b, and by what the function A closes over,
come from the linear system itself: A x = b has the tangent A dx = db - dA x, solved by the same method.
Sources: M. Hestenes and E. Stiefel (1952); H. van der Vorst (1992); Y. Saad and M. Schultz (1986).
"""

from __future__ import annotations

import math

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.arrays.base import ArrayMethods
from hloom.errors import ArgumentError, ShapeError, TreeError
from hloom.lax.operands import NUMBERS
from hloom.tree import pytrees as tree

__all__ = ["bicgstab", "cg", "gmres"]
__dir__ = __all__.copy


# --- vectors that are trees ---------------------------------------------------------------------------------------


def _dot(x, y):
    """The real part of x^H y over all leaves, which the methods compare."""
    total = 0.0
    for a, b in zip(tree.leaves(x), tree.leaves(y), strict=True):
        total = total + hnp.real(hnp.vdot(a, b))
    return total


def _full_dot(x, y):
    total = 0.0
    for a, b in zip(tree.leaves(x), tree.leaves(y), strict=True):
        total = total + hnp.vdot(a, b)
    return total


def _add(x, y):
    return tree.map(lambda a, b: a + b, x, y)


def _sub(x, y):
    return tree.map(lambda a, b: a - b, x, y)


def _scale(s, x):
    return tree.map(lambda a: s.astype(a.dtype) * a if isinstance(s, ArrayMethods) else s * a, x)


def _operator(A, name: str):
    if callable(A):
        return A
    if isinstance(A, (ArrayMethods, np.ndarray)) and len(A.shape) == 2 and A.shape[0] == A.shape[1]:
        return lambda x: hnp.matmul(A, x)
    raise ArgumentError(f"{name} takes A as a function or a square matrix", f"{A!r:.80}", "pass a function x -> A x")


def _prepared(name: str, A, b, x0, M):
    """(A, M, b, x0) as functions and trees of arrays, checked."""
    b = tree.map(lambda v: hnp.asarray(float(v) if type(v) in NUMBERS else v), b)
    b = tree.map(lambda v: v if hnp.issubdtype(v.dtype, hnp.inexact) else v.astype(hnp.float_), b)
    x0 = tree.map(hnp.zeros_like, b) if x0 is None else tree.map(hnp.asarray, x0)
    if tree.structure(x0) != tree.structure(b):
        raise TreeError(
            f"{name} takes x0 and b of one structure",
            f"{tree.written(tree.structure(x0))} and {tree.written(tree.structure(b))}",
            "leave x0 out",
        )
    for k, (x, v) in enumerate(zip(tree.leaves(x0), tree.leaves(b), strict=True)):
        if x.shape != v.shape:
            raise ShapeError(
                f"{name} takes x0 and b of one shape", f"leaf {k}: {x._shape!r} and {v._shape!r}", "check x0"
            )
    return _operator(A, name), (lambda x: x) if M is None else _operator(M, name), b, x0


def _bound(b, tol, atol):
    """The square of the length of the residual at which a method ends."""
    return hnp.maximum(hnp.asarray(tol) ** 2 * _dot(b, b), hnp.asarray(atol) ** 2)


def _default_steps(b, maxiter) -> int:
    return 10 * sum(leaf.size for leaf in tree.leaves(b)) if maxiter is None else int(maxiter)


def _solved(solve, operator, b, symmetric: bool):
    """solve(operator, b) as the solution of a linear system, so that it has derivatives."""
    return lax.custom_linear_solve(operator, b, solve, transpose_solve=solve, symmetric=symmetric)


# --- conjugate gradients ------------------------------------------------------------------------------------------


def cg(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """(x, None) with A x = b for a hermitian positive definite A, by conjugate gradients.

    Ends where |b - A x| <= max(tol |b|, atol), or after maxiter steps (default: ten times the number of elements).
    M: an approximation of A's inverse. Raises ArgumentError, ShapeError, TreeError.
    """
    operator, precondition, b, x0 = _prepared("cg", A, b, x0, M)
    steps = _default_steps(b, maxiter)

    def solve(matvec, right):
        bound = _bound(right, tol, atol)

        def going(state):
            _, r, gamma, _, k = state
            left = gamma if M is None else _dot(r, r)
            return (left > bound) & (k < steps)

        def step(state):
            x, r, gamma, p, k = state
            turned = matvec(p)
            alpha = gamma / _dot(p, turned)
            x, r = _add(x, _scale(alpha, p)), _sub(r, _scale(alpha, turned))
            z = precondition(r)
            after = _dot(r, z)
            return x, r, after, _add(z, _scale(after / gamma, p)), k + 1

        r = _sub(right, matvec(x0))
        p = z = precondition(r)
        return lax.while_loop(going, step, (x0, r, _dot(r, z), p, hnp.asarray(0, "s32")))[0]

    # A complex Hermitian operator does not equal its transpose.
    is_real = not any(hnp.iscomplexobj(leaf) for leaf in tree.leaves(b))
    return _solved(solve, operator, b, symmetric=is_real), None


# --- stabilized biconjugate gradients -----------------------------------------------------------------------------


def bicgstab(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """(x, None) with A x = b for a general A, by stabilized biconjugate gradients. Arguments as of `cg`."""
    operator, precondition, b, x0 = _prepared("bicgstab", A, b, x0, M)
    steps = _default_steps(b, maxiter)

    def solve(matvec, right):
        bound = _bound(right, tol, atol)
        r = _sub(right, matvec(x0))
        one = hnp.ones_like(_full_dot(right, right))

        def going(state):
            return (_dot(state[1], state[1]) > bound) & (state[-1] < steps) & (state[-1] >= 0)

        def step(state):
            x, r, shadow, alpha, omega, rho, p, q, k = state
            after = _full_dot(shadow, r)
            beta = after / rho * alpha / omega
            p = _add(r, _scale(beta, _sub(p, _scale(omega, q))))
            turned = precondition(p)
            q = matvec(turned)
            alpha = after / _full_dot(shadow, q)
            s = _sub(r, _scale(alpha, q))
            early = _dot(s, s) < bound
            other = precondition(s)
            t = matvec(other)
            omega = _full_dot(t, s) / _full_dot(t, t)
            half = _add(x, _scale(alpha, turned))
            x = tree.map(lambda a, b: hnp.where(early, a, b), half, _add(half, _scale(omega, other)))
            r = tree.map(lambda a, b: hnp.where(early, a, b), s, _sub(s, _scale(omega, t)))
            broken = (omega == 0) | (alpha == 0) | (after == 0)
            return x, r, shadow, alpha, omega, after, p, q, hnp.where(broken & ~early, -11, k + 1).astype("s32")

        state = (x0, r, r, one, one, one, r, r, hnp.asarray(0, "s32"))
        return lax.while_loop(going, step, state)[0]

    return _solved(solve, operator, b, symmetric=False), None


# --- generalized minimal residuals --------------------------------------------------------------------------------


def gmres(
    A, b, x0=None, *, tol=1e-5, atol=0.0, restart=20, maxiter=None, M=None, solve_method="batched",
):  # fmt: skip
    """(x, None) with A x = b for a general A, by minimal residuals over Krylov spaces of `restart` vectors.

    maxiter: how many times it starts again (default: ten times the number of elements). solve_method: 'batched' or
    'incremental', as in JAX; both build the space by Arnoldi's method and solve one least squares problem.
    Raises ArgumentError, ShapeError, TreeError.
    """
    if solve_method not in ("batched", "incremental"):
        raise ArgumentError("gmres takes solve_method 'batched' or 'incremental'", f"{solve_method!r}", "leave it out")
    operator, precondition, b, x0 = _prepared("gmres", A, b, x0, M)
    size = sum(leaf.size for leaf in tree.leaves(b))
    count = max(1, min(int(restart), size))
    steps = _default_steps(b, maxiter)

    def solve(matvec, right):
        bound = _bound(right, tol, atol)
        flat, unflatten = _raveled(right)
        tiny = float(hnp.finfo(flat.dtype).eps)

        def apply(v):
            return _raveled(precondition(matvec(unflatten(v))))[0]

        def residual(x):
            return _sub(right, matvec(unflatten(x)))

        def cycle(x):
            r = _raveled(precondition(residual(x)))[0]
            length = hnp.linalg.norm(r)
            safe = hnp.where(length > 0, length, 1).astype(flat.dtype)
            basis = hnp.zeros((count + 1, flat.size), flat.dtype).at[0].set(r / safe)

            def extend(k, state):
                basis, form = state
                w = apply(lax.dynamic_index_in_dim(basis, k, 0, keepdims=False))
                before = hnp.linalg.norm(w)
                total = hnp.zeros((count + 1,), flat.dtype)
                for _ in range(2):  # twice is enough to be orthogonal
                    overlap = hnp.conj(basis) @ w
                    w = w - overlap @ basis
                    total = total + overlap
                norm = hnp.linalg.norm(w)
                ended = norm <= tiny * before
                vector = hnp.where(ended, 0, w / hnp.where(ended, 1, norm).astype(flat.dtype))
                column = total + (hnp.arange(count + 1) == k + 1) * hnp.where(ended, 0, norm).astype(flat.dtype)
                basis = lax.dynamic_update_index_in_dim(basis, vector.astype(flat.dtype), k + 1, 0)
                return basis, lax.dynamic_update_index_in_dim(form, column.astype(flat.dtype), k, 1)

            form = hnp.zeros((count + 1, count), flat.dtype)
            basis, form = lax.fori_loop(0, count, extend, (basis, form))
            target = hnp.zeros((count + 1,), flat.dtype).at[0].set(length.astype(flat.dtype))
            weights = hnp.linalg.lstsq(form, target)[0]
            return x + weights @ basis[:-1]

        def going(state):
            x, k = state
            r = residual(x)
            return (_dot(r, r) > bound) & (k < steps)

        start = _raveled(x0)[0]
        x, _ = lax.while_loop(going, lambda s: (cycle(s[0]), s[1] + 1), (start, hnp.asarray(0, "s32")))
        return unflatten(x)

    return _solved(solve, operator, b, symmetric=False), None


def _raveled(x):
    """(one vector of all leaves, the way back)."""
    leaves, structure = tree.flatten(x)
    dtype = hnp.result_type(*leaves)
    vector = hnp.concatenate([hnp.ravel(leaf).astype(dtype) for leaf in leaves])
    shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]

    def unflatten(v):
        parts, start = [], 0
        for shape, own in shapes:
            size = math.prod(shape)
            part = v[start : start + size].reshape(shape)
            parts.append(part.astype(own) if own == dtype or not hnp.iscomplexobj(part) else hnp.real(part).astype(own))
            start += size
        return tree.unflatten(structure, parts)

    return vector, unflatten
