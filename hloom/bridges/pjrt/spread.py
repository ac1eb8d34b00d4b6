"""The tables by which native code takes arrays apart for devices, and puts them together (`runtime.pjrt.spread`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.bridges.pjrt.memory import address_of, array_of
from hloom.bridges.pjrt.shardings import Layout, Layouts
from hloom.ir.types import Shape
from hloom.runtime.pjrt.blocks import SPREAD

__all__ = ["Spread"]

_ALIGNED = 16  # bytes, as kernels want their arrays: parts that begin elsewhere are copied


class Spread:
    """rows: one for each argument and result of a program for several devices."""

    def __init__(self, layouts: Layouts, inputs: Sequence[Shape], outputs: Sequence[Shape]):
        self._kept: list[np.ndarray] = []
        pairs = zip((*layouts.inputs, *layouts.outputs), (*inputs, *outputs), strict=True)
        self.rows = array_of([word for layout, shape in pairs for word in self._row(layout, shape)])

    def _row(self, layout: Layout, shape: Shape) -> list[int]:
        dims, item = shape.dims, shape.dtype.itemsize
        local = tuple(d // p for d, p in zip(dims, layout.parts, strict=True))
        steps = [item * math.prod(dims[d + 1 :]) for d in range(len(dims))]
        outer = max((d for d, p in enumerate(layout.parts) if p > 1), default=0)  # what is behind it lies together
        run = math.prod(local[outer:]) * item
        begin = [sum(p * size * step for p, size, step in zip(place, local, steps, strict=True)) for place in layout.at]
        runs = math.prod(local[:outer])
        dense = runs == 1 and all(b % _ALIGNED == 0 for b in begin)
        first = [int(place not in layout.at[:device]) for device, place in enumerate(layout.at)]
        row = [0] * SPREAD["SPREAD_WORDS"]
        values = {
            "whole": int(layout.is_whole), "bytes": math.prod(local) * item, "run_bytes": run, "runs": runs,
            "rank": outer, "dims": self._array(local[:outer]), "steps": self._array(steps[:outer]),
            "begin": self._array(begin), "first": self._array(first), "dense": int(dense or layout.is_whole),
            "local": self._array(local[bool(layout.sums) :]),
        }  # fmt: skip
        for name, value in values.items():
            row[SPREAD[f"SPREAD_{name.upper()}"]] = value
        return row

    def _array(self, values: Sequence[int]) -> int:
        made = array_of(values)
        self._kept.append(made)
        return address_of(made)
