"""Tensor cores in the simulator: what a warp's registers hold, as PTX's manual lays fragments out.

A collective gets the values that its 32 lanes bring and gives each lane its results. Words are np.uint32: two elements
of 16 bits, the first in the low half, or one of tf32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.targets.cuda.simulator.memory import LockstepError
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
    """mma.sync: m16n8k16 for f16 and bf16, m16n8k8 for tf32; each lane brings four words of A, two times two of B,
    which of both, and four sums."""
    words = np.array([[*a, *b[2 * half : 2 * half + 2]] for a, b, half, _ in values], np.uint32)
    sums = np.array([sums for *_, sums in values], np.float64)
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


def load_tf32(pointer, index, one, other) -> tuple:
    """Elements at an index, `one` and `other` further on, and both, as words of tf32."""
    return tuple(tf32_bits(pointer[index + far]) for far in (0, one, other, one + other))


def tf32_bits(value) -> np.uint32:
    """A float32 rounded to tf32, ties away from zero, as a word."""
    word = int(np.asarray(value, np.float32).view(np.uint32))
    return np.uint32((word + 0x1000) & 0xFFFFE000 if np.isfinite(value) else word)


# --- tuples of a thread ---------------------------------------------------------------------------------------------


def outer(a, b, c):
    """c[x, y] + a[x] * b[y]: floats in float64, rounded once for float32; integers wrap."""
    kind = c.dtype
    if kind.kind == "f":
        product = np.multiply.outer(a.astype(np.float64), b.astype(np.float64))
        return (c.reshape(product.shape).astype(np.float64) + product).astype(kind).reshape(-1)
    return c + np.multiply.outer(a, b).reshape(-1)


def load_wide(pointer, index, count: int):
    """Neighbours, by one instruction: its address has to be aligned to their size."""
    index = int(index)
    if index % count:
        raise LockstepError(f"{count} elements are read at {pointer.name}[{index}], which is not aligned to them")
    for x in range(index, index + count):
        pointer.read(x)
    return pointer.array[index : index + count].copy()


def store_wide(pointer, index, values) -> None:
    """Stores neighbours, as `load_wide` loads them."""
    index = int(index)
    if index % len(values):
        raise LockstepError(f"{len(values)} elements are stored at {pointer.name}[{index}], which is not aligned")
    for x in range(index, index + len(values)):
        pointer.write(x)
    pointer.array[index : index + len(values)] = values


def store_sums(pointer, index, step, sums) -> None:
    store_wide(pointer, index, sums[:2])
    store_wide(pointer, index + step, sums[2:])


def store_row(pointer, index, block, row: int) -> None:
    width = 16 // block.dtype.itemsize
    store_wide(pointer, index, block[row * width : row * width + width])


def scatter(pointer, index, step, block) -> None:
    for x, value in enumerate(block):
        pointer[int(index) + x * step] = value


_BY_NAME: dict[str, Callable] = {"load_tf32": load_tf32, "store_sums": store_sums}
_BY_STEM: dict[str, Callable] = {"outer": outer, "scatter": scatter, "store_row": store_row}


def meaning(name: str) -> Callable | None:
    """What a name that only matrix products have means; None for others."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    stem, _, dtype = name.rpartition("_")
    if dtype not in DTYPES:
        return None
    if stem == "zeros":
        return lambda count: np.zeros(count, DTYPES[dtype])
    if stem in ("load2", "load4"):
        return lambda pointer, index: load_wide(pointer, index, int(stem[4]))
    return _BY_STEM.get(stem)
