"""Random convolutions and windows, and their meaning written down as loops over single elements."""

from __future__ import annotations

import itertools

import numpy as np

from hloom.ir.build import Builder
from hloom.ir.module import Computation
from hloom.ir.types import Shape
from hloom.ir.window import WindowDimension, dilated


def single(opcode: str, arrays, shape=None, **attributes) -> Computation:
    """The computation of one instruction on parameters like these arrays."""
    builder = Builder("main")
    parameters = [builder.parameter(Shape(a.dtype, a.shape)) for a in arrays]
    return builder.finish(builder.emit(opcode, *parameters, shape=shape, **attributes))


def values(rng, dtype, dims) -> np.ndarray:
    """Whole numbers, so that sums are exact in every dtype; complex ones with whole parts."""
    x = rng.integers(-4, 5, dims)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.integers(-4, 5, dims)
    return np.asarray(abs(x) if np.dtype(dtype).kind == "u" else x).astype(dtype)


def random_window(rng, extents, dilates=True, pads=True, reverses=False) -> tuple[WindowDimension, ...]:
    """A window for each extent that leaves no negative extent."""
    found = []
    for extent in extents:
        base = int(rng.integers(1, 4)) if dilates and rng.random() < 0.4 else 1
        spread = dilated(extent, base)
        low, high = (int(rng.integers(-1, 4)) if pads else 0 for _ in range(2))
        if spread + low + high < 0:
            low = high = 0
        found.append(
            WindowDimension(
                int(rng.integers(1, 4)), int(rng.integers(1, 4)), low, high, base,
                int(rng.integers(1, 4)) if dilates and rng.random() < 0.4 else 1,
                bool(reverses and rng.random() < 0.4),
            )
        )  # fmt: skip
    return tuple(found)


def random_convolution(rng, dtype="float32", rank=None):
    """(operand, kernel, attributes) of a random convolution."""
    rank = int(rng.integers(0, 4)) if rank is None else rank
    groups, batch_groups = 1, 1
    if rng.random() < 0.5:
        count = int(rng.integers(2, 4))
        groups, batch_groups = (count, 1) if rng.random() < 0.6 else (1, count)
    extents = rng.integers(1, 7, rank)
    window = random_window(rng, extents, reverses=True)
    inputs, outputs = int(rng.integers(1, 4)), int(rng.integers(1, 4)) * max(groups, batch_groups)
    batch = int(rng.integers(1, 4)) * batch_groups
    orders = [rng.permutation(rank + 2) for _ in range(3)]
    names = [["b", "f"], ["o", "i"], ["b", "f"]]
    digits = [str(k) for k in range(rank)]
    sides = ["".join((pair + digits)[k] for k in order) for pair, order in zip(names, orders, strict=True)]
    whole = [[batch, inputs * groups, *extents], [outputs, inputs, *(d.size for d in window)]]
    arrays = [
        values(rng, dtype, tuple(int(dims[k]) for k in order)) for dims, order in zip(whole, orders[:2], strict=True)
    ]
    attributes = {"window": window, "dim_labels": f"{sides[0]}_{sides[1]}->{sides[2]}"}
    if groups > 1 or rng.random() < 0.3:
        attributes["feature_group_count"] = groups
    if batch_groups > 1 or rng.random() < 0.3:
        attributes["batch_group_count"] = batch_groups
    return *arrays, attributes


def places_of(position, window, extents):
    """(element of the window, index of the operand) for each element of the window at a position that is inside."""
    for tap in itertools.product(*(range(d.size) for d in window)):
        index = []
        for p, t, d, extent in zip(position, tap, window, extents, strict=True):
            at = p * d.stride + t * d.window_dilation - d.low
            if at % d.base_dilation or not 0 <= at < dilated(extent, d.base_dilation):
                break
            index.append(at // d.base_dilation)
        else:
            yield tap, tuple(index)


def loop_convolution(x, w, window, dim_labels, feature_group_count=1, batch_group_count=1, dtype=None):
    lhs, rhs, out = dim_labels.replace("->", "_").split("_")
    digits = [str(k) for k in range(len(window))]
    x = np.transpose(x, [lhs.index(c) for c in ["b", "f", *digits]]).astype(dtype or x.dtype)
    w = np.transpose(w, [rhs.index(c) for c in ["o", "i", *digits]]).astype(dtype or w.dtype)
    extents = x.shape[2:]
    dims = [d.output(e) for d, e in zip(window, extents, strict=True)]
    batch = x.shape[0] // batch_group_count
    result = np.zeros((batch, w.shape[0], *dims), x.dtype)
    for position in itertools.product(*map(range, dims)):
        for tap, index in places_of(position, window, extents):
            tap = tuple(d.size - 1 - t if d.reversed else t for t, d in zip(tap, window, strict=True))
            for o in range(w.shape[0]):
                g = o // (w.shape[0] // feature_group_count)
                first = o // (w.shape[0] // batch_group_count) * batch
                features = slice(g * w.shape[1], (g + 1) * w.shape[1])
                part = x[(slice(first, first + batch), features, *index)]
                result[(slice(None), o, *position)] += (part * w[(o, slice(None), *tap)]).sum(1)
    return np.transpose(result, np.argsort([out.index(c) for c in ["b", "f", *digits]]))


def loop_reduce_window(function, x, start, window):
    dims = [d.output(e) for d, e in zip(window, x.shape, strict=True)]
    result = np.full(dims, start, x.dtype)
    for position in itertools.product(*map(range, dims)):
        for _, index in places_of(position, window, x.shape):
            result[position] = function(result[position], x[index])
    return result


def loop_select_and_scatter(ahead, add, x, source, start, window):
    result = np.full(x.shape, start, x.dtype)
    for position in itertools.product(*map(range, source.shape)):
        chosen = None
        for _, index in places_of(position, window, x.shape):
            if chosen is None or not ahead(x[chosen], x[index]):
                chosen = index
        if chosen is not None:
            result[chosen] = add(result[chosen], source[position])
    return result
