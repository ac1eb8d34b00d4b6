"""Checks of results: NaN and infinity under `debug_nans` and `debug_infs`."""

from __future__ import annotations

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.config import config
from hloom.tree import pytrees as tree


def check_result(value) -> None:
    """Raises FloatingPointError where an array of a result has a NaN (debug_nans) or infinity (debug_infs)."""
    for leaf in tree.leaves(value):
        data = leaf._data if isinstance(leaf, Array) else leaf
        if isinstance(leaf, ArrayMethods) and not isinstance(leaf, Array):
            continue
        if not isinstance(data, np.ndarray) or data.dtype.kind not in "fcV":
            continue
        if config.debug_nans and np.isnan(data).any():
            raise FloatingPointError(f"invalid value (nan) encountered in a result {leaf!r:.200}")
        if config.debug_infs and np.isinf(data).any():
            raise FloatingPointError(f"invalid value (inf) encountered in a result {leaf!r:.200}")
