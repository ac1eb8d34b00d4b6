"""Penalties on parameters: functions of an array, and their sum over the parameters of a model by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import hloom.numpy as hnp
from hloom.errors import ArgumentError
from hloom.tree import pytrees as tree


def l1(scale: float) -> Callable[[Any], Any]:
    """scale * sum(|w|).

    >>> hl.nn.regularizers.l1(0.1)(hnp.array([1.0, -2.0])).round(3)
    Array(0.3, dtype=float32)
    """
    _not_negative("l1", scale)
    return lambda w: scale * hnp.sum(hnp.abs(w))


def l2(scale: float) -> Callable[[Any], Any]:
    """scale * sum(w^2) / 2.

    >>> hl.nn.regularizers.l2(0.1)(hnp.array([1.0, -2.0])).round(3)
    Array(0.25, dtype=float32)
    """
    _not_negative("l2", scale)
    return lambda w: (0.5 * scale) * hnp.sum(w * w)


def l1_l2(scale_l1: float, scale_l2: float) -> Callable[[Any], Any]:
    """The sum of both."""
    first, second = l1(scale_l1), l2(scale_l2)
    return lambda w: first(w) + second(w)


def _not_negative(name: str, scale: float) -> None:
    if scale < 0:
        raise ArgumentError(f"{name} takes a scale of at least 0", repr(scale), "pass for example 1e-4")


def penalty(regularizer: Callable[[Any], Any], model: Any, names: str | tuple[str, ...] = "*kernel"):
    """The sum of a regularizer over the parameters whose paths match, a scalar to be added to the loss.

    names: patterns with * and ?, for paths such as `layers/0/kernel`: "*kernel" are all weights without biases,
    "encoder/*" a part of the model. Raises ArgumentError if none matches.
    """
    patterns = (names,) if isinstance(names, str) else tuple(names)
    paths = {tree.keystr(path, simple=True, separator="/"): leaf for path, leaf in tree.leaves_with_path(model)}
    found = [leaf for path, leaf in paths.items() if any(fnmatch.fnmatchcase(path, p) for p in patterns)]
    if not found:
        raise ArgumentError(
            f"a penalty on the parameters {', '.join(patterns)}",
            f"none of {', '.join(list(paths)[:8])}{', ...' if len(paths) > 8 else ''}",
            "use a pattern of these paths, such as '*kernel'",
        )
    return sum(regularizer(leaf) for leaf in found)


__all__ = ["l1", "l1_l2", "l2", "penalty"]
__dir__ = __all__.copy
