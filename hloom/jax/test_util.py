"""Checks of derivatives against differences, for the tests of users."""

from __future__ import annotations

import functools

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir.types import DTYPES, INEXACT
from hloom.tracing.trace import as_array
from hloom.transforms.gradient import jvp, vjp
from hloom.tree import pytrees as tree

_STEPS = {"f64": 1e-5, "c128": 1e-5}
_TOLERANCES = {"f16": 0.1, "bf16": 0.2, "f64": 1e-5, "c128": 1e-5}


def check_grads(f, args, order: int, modes=("fwd", "rev"), atol=None, rtol=None, eps=None) -> None:
    """Checks derivatives of f, up to an order, against central differences in random directions.

    args: a tuple of trees of arrays (integers stay as they are). modes: 'fwd' and 'rev', or one of them.
    atol, rtol: tolerances, by default 1e-2 for f32 and 1e-5 for f64. eps: the step, by default 1e-2 and 1e-5.
    Raises AssertionError, which says mode and order, where a derivative is not near the difference.
    """
    modes = [modes] if isinstance(modes, str) else list(modes)
    for mode in modes:
        if mode not in ("fwd", "rev"):
            raise ArgumentError("check_grads takes modes", f"{mode!r}", "name 'fwd', 'rev' or both")
    _check(f, tuple(args), order, modes, atol, rtol, eps, np.random.default_rng(0), "")


def _check(f, args, order, modes, atol, rtol, eps, rng, path: str) -> None:
    if order <= 0:
        return
    leaves, structure = tree.flatten(args)
    leaves = [as_array(leaf, "an argument of check_grads") for leaf in leaves]
    args = tree.unflatten(structure, leaves)
    precise = _precision(leaves)
    step = eps if eps is not None else _STEPS.get(precise, 1e-2)
    tolerance = _TOLERANCES.get(precise, 2e-2)
    atol_used, rtol_used = (tolerance if t is None else t for t in (atol, rtol))
    tangents = tree.unflatten(structure, [_random(leaf, rng) for leaf in leaves])
    numeric = _difference(f, args, tangents, step)
    for mode in modes:
        where = f"{path}{mode}"
        message = f"check_grads: {where}"
        if mode == "fwd":
            _, found = jvp(f, args, tangents)
            for a, b in zip(tree.leaves(found), numeric, strict=True):
                if b is not None:
                    np.testing.assert_allclose(np.asarray(a, b.dtype), b, rtol_used, atol_used, err_msg=message)

            derivative = functools.partial(_jvp_along, f, tangents)

        else:
            result, back = vjp(f, *args)
            out, out_structure = tree.flatten(result)
            cotangents = tree.unflatten(out_structure, [_random(leaf, rng) for leaf in out])
            left = _pairing(back(cotangents), tangents)
            right = _pairing(cotangents, [n if n is not None else np.zeros(()) for n in numeric])
            np.testing.assert_allclose(left, right, rtol_used, atol_used, err_msg=message)

            derivative = functools.partial(_vjp_along, f, cotangents)

        _check(derivative, args, order - 1, modes, atol, rtol, eps, rng, f"{where} of ")


def _jvp_along(f, tangents, *args):
    return jvp(f, args, tangents)[1]


def _vjp_along(f, cotangents, *args):
    return vjp(f, *args)[1](cotangents)


def _precision(leaves) -> str:
    found = {leaf.dtype for leaf in leaves if leaf.dtype in INEXACT}
    for name in ("f16", "bf16", "f32", "c64", "f64", "c128"):
        if DTYPES[name] in found:
            return name
    return "f32"


def _random(leaf, rng):
    dtype = leaf._shape.dtype
    if dtype not in INEXACT:
        return np.zeros(leaf.shape, np.bool_)
    value = rng.normal(size=leaf.shape)
    if dtype.kind == "c":
        value = value + 1j * rng.normal(size=leaf.shape)
    return np.asarray(value).astype(dtype)


def _difference(f, args, tangents, step: float) -> list:
    """(f(x + step t) - f(x - step t)) / (2 step) for each array of the result, None for integers."""

    def moved(sign):
        def move(x, t):
            return x if x.dtype not in INEXACT else np.asarray(np.asarray(x) + sign * step * t).astype(x._shape.dtype)

        return [np.asarray(leaf) for leaf in tree.leaves(f(*tree.map(move, args, tangents)))]

    found: list[np.ndarray | None] = []
    for up, down in zip(moved(1.0), moved(-1.0), strict=True):
        if up.dtype not in INEXACT:
            found.append(None)
            continue
        wide = np.complex128 if up.dtype.kind == "c" else np.float64
        found.append((up.astype(wide) - down.astype(wide)) / (2 * step))
    return found


def _pairing(left, right) -> float:
    total = 0.0
    for a, b in zip(tree.leaves(left), tree.leaves(right), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype != np.bool_ and b.dtype != np.bool_:
            wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
            total += float(np.real(np.sum(a.astype(wide) * b.astype(wide))))
    return total


__all__ = ["check_grads"]
__dir__ = __all__.copy
