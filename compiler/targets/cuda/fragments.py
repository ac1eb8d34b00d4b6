"""Tensor cores in the simulator: what a warp's registers hold, as PTX's manual lays fragments out.

A collective gets the values that its 32 lanes bring and gives each lane its results. Words are np.uint32: two elements
of 16 bits, the first in the low half, or one of tf32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.targets.cuda.memory import LockstepError
from hloom.ir.types import DTYPES

LANES = 32
_GROUP, _MEMBER = np.arange(LANES) >> 2, np.arange(LANES) & 3


def _bits(value) -> int:
    return int(np.asarray(value).view(np.uint16)[()])


def load_matrix4(values: list[tuple], turned: bool, read: Callable) -> list[tuple]:
    """ldmatrix.x4: lane l names where line l % 8 of matrix l / 8 begins, eight elements of 16 bits; it gets the
    elements 2(l % 4) and the next of line l / 4 of each matrix, or, turned, those lines of that element.

    read(lane, memory, index) reads on behalf of a lane.
    """
    matrices = np.empty((4, 8, 8), np.uint32)
    for lane, (memory, index) in enumerate(values):
        if int(index) % 8:
            raise LockstepError(f"lane {lane} reads a line of a matrix at {memory.name}[{index}], not at 16 bytes")
        for x in range(8):
            matrices[lane >> 3, lane & 7, x] = _bits(read(lane, memory, int(index) + x))
    if turned:
        matrices = matrices.transpose(0, 2, 1)
    words = matrices[:, :, 0::2] | (matrices[:, :, 1::2] << np.uint32(16))
    return [tuple(words[number, lane >> 2, lane & 3] for number in range(4)) for lane in range(LANES)]


def _halves(words: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = (words & np.uint32(0xFFFF)).astype(np.uint16), (words >> np.uint32(16)).astype(np.uint16)
    return low.view(DTYPES[dtype]).astype(np.float64), high.view(DTYPES[dtype]).astype(np.float64)


def multiply(values: list[tuple], dtype: str) -> list[tuple]:
    """mma.sync: m16n8k16 for f16 and bf16, m16n8k8 for tf32; four words of A, two of B, four sums for each lane."""
    words = np.array([[int(word) for word in lane[:6]] for lane in values], np.uint32)
    sums = np.array([lane[6:] for lane in values], np.float64)
    depth = 8 if dtype == "tf32" else 16
    a, b, c = np.zeros((16, depth)), np.zeros((depth, 8)), np.zeros((16, 8))
    for x in range(4):
        row = _GROUP + 8 * (x & 1)
        if dtype == "tf32":
            a[row, _MEMBER + 4 * (x >> 1)] = _exact(words[:, x])
        else:
            a[row, 2 * _MEMBER + 8 * (x >> 1)], a[row, 2 * _MEMBER + 1 + 8 * (x >> 1)] = _halves(words[:, x], dtype)
        c[_GROUP + 8 * (x >> 1), 2 * _MEMBER + (x & 1)] = sums[:, x]
    for x in range(2):
        if dtype == "tf32":
            b[_MEMBER + 4 * x, _GROUP] = _exact(words[:, 4 + x])
        else:
            b[2 * _MEMBER + 8 * x, _GROUP], b[2 * _MEMBER + 1 + 8 * x, _GROUP] = _halves(words[:, 4 + x], dtype)
    d = (c + a @ b).astype(np.float32)
    return [
        tuple(d[_GROUP[lane] + 8 * (x >> 1), 2 * _MEMBER[lane] + (x & 1)] for x in range(4)) for lane in range(LANES)
    ]


def _exact(words: np.ndarray) -> np.ndarray:
    """tf32 words as numbers; the hardware does not look at the lower 13 bits."""
    return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def tf32_bits(value) -> np.uint32:
    """A float32 rounded to tf32, ties away from zero, as a word."""
    word = np.asarray(value, np.float32).view(np.uint32)[()]
    if not np.isfinite(value):
        return word
    return np.uint32((int(word) + 0x1000) & 0xFFFFE000)
