"""Random gathers and scatters, and what HLO's definition says they mean, element by element."""

from __future__ import annotations

import itertools

import numpy as np

from hloom.ir.build import Builder, Value, assignment_computation, scalar_computation
from hloom.ir.ops.indexing.gather import gather_attributes, scatter_attributes
from hloom.ir.ops.indexing.windows import Windows
from hloom.ir.types import Shape


def random_windows(rng) -> Windows:
    """Windows of up to two batching, two collapsed and two window dimensions in any order."""
    batching = int(rng.integers(0, 3)) if rng.random() < 0.4 else 0
    rank = batching + int(rng.integers(1, 4))
    operand = [int(rng.integers(1, 5)) for _ in range(rank)]
    roles = rng.permutation(rank)
    operand_batching = sorted(int(d) for d in roles[:batching])
    others = [d for d in range(rank) if d not in operand_batching]
    collapsed = [d for d in others if rng.random() < 0.5]
    mapped = [int(d) for d in rng.permutation(others)][: int(rng.integers(0, len(others) + 1))]
    sizes = [
        1 if d in collapsed or d in operand_batching else int(rng.integers(0 if rng.random() < 0.05 else 1, n + 1))
        for d, n in enumerate(operand)
    ]
    index_dims = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(0, 3)))]
    places = sorted(rng.choice(len(index_dims) + batching, batching, replace=False)) if batching else []
    for place, d in zip(places, operand_batching, strict=True):
        index_dims.insert(int(place), operand[d])
    indices_batching = list(map(int, places))
    vector = len(index_dims)
    if len(mapped) != 1 or rng.random() < 0.6:
        vector = int(rng.integers(0, len(index_dims) + 1))
        index_dims.insert(vector, len(mapped))
        indices_batching = [b + (b >= vector) for b in indices_batching]
    window_rank = rank - len(collapsed) - batching
    total = window_rank + len(index_dims) - (vector < len(index_dims))
    offset = sorted(map(int, rng.choice(total, window_rank, replace=False)))
    parts = [tuple(p) for p in (operand, index_dims, offset, collapsed, mapped, operand_batching, indices_batching)]
    return Windows(*parts, vector, tuple(sizes))


def random_indices(rng, w: Windows, dtype=np.int32) -> np.ndarray:
    low = 0 if np.dtype(dtype).kind == "u" else -2
    return rng.integers(low, 6, w.indices).astype(dtype)


def each_element(w: Windows, indices: np.ndarray):
    """(place in the windows' array, unclamped place in the operand, clamped place, whether its window is inside)."""
    dims = w.dims()
    batch_places = [k for k in range(len(dims)) if k not in w.offset]
    window = [d for d in range(len(w.operand)) if d not in w.collapsed and d not in w.operand_batching]
    order = [*batch_places, *w.offset]  # one window after the other
    for ordered in itertools.product(*(range(dims[k]) for k in order)):
        place = tuple(ordered[order.index(k)] for k in range(len(dims)))
        at = [place[k] for k in batch_places]
        start = []
        for k in range(len(w.mapped)):
            full = list(at)
            if w.vector < len(w.indices):
                full.insert(w.vector, k)
            start.append(int(indices[tuple(full)]))
        with_vector = list(at)
        if w.vector < len(w.indices):
            with_vector.insert(w.vector, 0)
        raw, moved, inside = [0] * len(w.operand), [0] * len(w.operand), True
        for d, s in zip(w.mapped, start, strict=True):
            raw[d] = s
            moved[d] = min(max(s, 0), w.operand[d] - w.sizes[d])
            inside = inside and raw[d] == moved[d]
        for d, k in zip(w.operand_batching, w.indices_batching, strict=True):
            raw[d] = moved[d] = with_vector[k]
        for d, k in zip(window, w.offset, strict=True):
            raw[d] += place[k]
            moved[d] += place[k]
        yield place, tuple(raw), tuple(moved), inside


def gather_by_definition(x: np.ndarray, indices: np.ndarray, w: Windows) -> np.ndarray:
    result = np.zeros(w.dims(), x.dtype)
    for place, _, moved, _ in each_element(w, indices):
        result[place] = x[moved]
    return result


def scatter_by_definition(x, indices, updates, w: Windows, combine) -> np.ndarray:
    result = np.array(x)
    for place, raw, _, inside in each_element(w, indices):
        if inside:
            result[raw] = combine(result[raw], updates[place])
    return result


def gather_computation(dtype, index_dtype, w: Windows):
    builder = Builder("gathering")
    x, i = (builder.parameter(Shape(d, e), h) for d, e, h in ((dtype, w.operand, "x"), (index_dtype, w.indices, "i")))
    return builder.finish(builder.emit("gather", x, i, **gather_attributes(w)))


def scatter_computation(dtype, index_dtype, w: Windows, combiner, unique: bool = False):
    builder = Builder("scattering")
    x = builder.parameter(Shape(dtype, w.operand), "x")
    i = builder.parameter(Shape(index_dtype, w.indices), "i")
    u = builder.parameter(Shape(dtype, w.dims()), "u")
    return builder.finish(builder.emit("scatter", x, i, u, **scatter_attributes(w, combiner, unique=unique)))


def halves(dtype):
    """(element, update) -> element / 2 + update: neither associative nor commutative."""
    builder = Builder("halves")
    a, b = (Value(builder, builder.parameter(Shape(dtype), h)) for h in "ab")
    return builder.finish((a * 0.5 + b).instruction)


COMBINERS = {
    "add": (lambda d: scalar_computation("add", d), lambda a, b: a + b),
    "multiply": (lambda d: scalar_computation("multiply", d), lambda a, b: a * b),
    "minimum": (lambda d: scalar_computation("minimum", d), min),
    "maximum": (lambda d: scalar_computation("maximum", d), max),
    "overwrite": (assignment_computation, lambda a, b: b),
    "halves": (halves, lambda a, b: a * np.float32(0.5) + b),
}

__all__ = [n for n in dir() if not n.startswith("_") and n not in ("annotations", "itertools", "np")]
