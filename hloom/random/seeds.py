"""Keys from seeds: `key` and `PRNGKey`."""

from __future__ import annotations

import operator

import numpy as np

from hloom.arrays.keys import KeyArray
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import INTEGERS
from hloom.lax.operands import as_operand
from hloom.random.bits import seed_data
from hloom.random.keys import implementation_name


def _seed_data(seed, implementation: str):
    """The words of the key of a seed: its upper and its lower 32 bits."""
    if isinstance(seed, (bool, int, np.integer)) and not isinstance(seed, np.generic):
        number = operator.index(seed)
        if not -(2**63) <= number < 2**64:
            raise ArgumentError("a seed has 64 bits at most", f"{number}", "take a smaller one")
        # A Python number is an int32 here, as everywhere.
        seed = np.array(number & 0xFFFFFFFF, np.uint32)
    seed = as_operand(seed, "random.key")
    if seed.dtype not in INTEGERS:
        raise DTypeError("a seed is an integer", f"{seed._shape!r}", "pass a Python integer")
    if seed.shape:
        raise ShapeError("a seed is one integer", f"{seed._shape!r}", "use hl.vmap(hl.random.key)(seeds)")
    return seed_data(seed, implementation)


def key(seed, *, impl=None, dtype=None) -> KeyArray:
    """A key from an integer seed.

    impl: 'threefry2x32' (the default), 'rbg' or 'unsafe_rbg'. The same seed gives the same key. Only the last 32
    bits of a Python integer count. Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.key(0).shape
    ()
    >>> hl.random.normal(hl.random.key(0), (2,)).round(3)
    Array([1.623, 2.025], dtype=float32)
    """
    implementation = implementation_name(dtype if impl is None else impl)
    return KeyArray(_seed_data(seed, implementation), implementation)


def PRNGKey(seed, *, impl=None):
    """A raw key from an integer seed: u32[2]. `key` makes typed keys.

    >>> hl.random.PRNGKey(7)
    Array([0, 7], dtype=uint32)
    """
    return _seed_data(seed, implementation_name(impl))
