"""Indexes and shifts of integer types that do not hold the size of the axis."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax

CALLS = {
    "index": (lambda x, i: x[i[0]], lambda x, i: x[i[0]]),
    "indexes": (lambda x, i: x[i], lambda x, i: x[i]),
    "wrap": (lambda x, i: hnp.take(x, i, mode="wrap"), lambda x, i: np.take(x, i, mode="wrap")),
    "clip": (lambda x, i: hnp.take(x, i, mode="clip"), lambda x, i: np.take(x, i, mode="clip")),
    "along": (lambda x, i: hnp.take_along_axis(x, i, 0), lambda x, i: np.take_along_axis(x, i, 0)),
    "roll": (lambda x, i: hnp.roll(x, i[0]), lambda x, i: np.roll(x, i[0])),
    "two rolls": (
        lambda x, i: hnp.roll(x.reshape(2, -1), (i[0], i[1]), (0, 1)),
        lambda x, i: np.roll(x.reshape(2, -1), (i[0], i[1]), (0, 1)),
    ),
    "slice": (lambda x, i: lax.dynamic_slice(x, (i[0],), (1,)), lambda x, i: x[i[:1]]),
    "update": (
        lambda x, i: lax.dynamic_update_slice(x, x[:1], (i[0],)),
        lambda x, i: np.where(np.arange(len(x)) == i[0] % len(x), x[0], x),
    ),
    "set": (
        lambda x, i: x.at[i].set(7),
        lambda x, i: np.where(np.isin(np.arange(len(x)), i % len(x)), 7, x),
    ),
    "position": (
        lambda x, i: hnp.ravel_multi_index((i, i), (300, 400), mode="wrap"),
        lambda x, i: np.ravel_multi_index((i, i), (300, 400), mode="wrap"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("jitted", [False, True])
def test_narrow_indexes(name, jitted):
    function, reference = CALLS[name]
    for dtype in (np.int8, np.int16, np.uint8, np.uint16, np.int32):
        for size in (300, 70_000):
            x = np.arange(size, dtype=np.int32)
            for first in (5,) if np.dtype(dtype).kind == "u" else (-1, 5):
                i = np.array([first, 3, 100], dtype)
                got = (hl.jit(function) if jitted else function)(hnp.asarray(x), hnp.asarray(i))
                np.testing.assert_array_equal(np.asarray(got), reference(x, i.astype(int)), f"{dtype} {size} {first}")
