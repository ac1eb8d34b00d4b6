"""Workloads: a function written once with JAX's names, its inputs, and the tolerance of its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

M = 1 << 20


@dataclass(frozen=True)
class Workload:
    """name; what: one line; inputs(random, divide=1) -> NumPy arrays; function(lib, *arrays) -> tree of arrays.

    family: its heading.
    bound_by: 'memory' (inputs read once, results written once, at the triad's bandwidth), 'compute' or 'overhead'.
    tolerance: largest error against the reference, relative to the largest element of each result.
    needs: the parts of `lib` beyond `np` and `nn` that the function uses; a library without them is left out.
    plain: the function in plain NumPy, for the NumPy column where `function` needs more than NumPy has.
    """

    name: str
    what: str
    inputs: Callable
    function: Callable
    family: str
    bound_by: str = "memory"
    suite: str = "full"
    tolerance: float = 5e-6
    flops: float = 0.0
    needs: tuple[str, ...] = ()
    plain: Callable | None = None

    def runs_on(self, lib) -> bool:
        return (self.plain is not None and lib.name == "numpy") or lib.parts.issuperset(self.needs)

    def bound(self, lib):
        """The function of arrays alone, named after the workload."""
        if self.plain is not None and lib.name == "numpy":
            return self.plain
        function = self.function

        def run(*arrays):
            return function(lib, *arrays)

        run.__name__ = run.__qualname__ = self.name
        return run

    def reference(self, arrays, lib) -> list[np.ndarray]:
        """The results in double precision, by NumPy where it has all that is needed, otherwise by the reference
        interpreter. lib: the NumPy library."""
        from hloom.benchmarks.libraries import interpreted

        wide = [a.astype(np.float64) if a.dtype.kind in "fV" else a for a in arrays]
        if self.runs_on(lib):
            return lib.arrays(self.bound(lib)(*wide))
        return interpreted(self, wide)


@dataclass
class Family:
    """Workloads under one heading, registered by the decorator `workload`."""

    name: str
    members: dict[str, Workload] = field(default_factory=dict)

    def workload(self, name: str, what: str, inputs, **parts):
        def add(function):
            self.members[name] = Workload(name, what, inputs, function, self.name, **parts)
            return function

        return add


def divided(shape, divide: int) -> tuple[int, ...]:
    """A smaller shape for trials: every size above 16 divided, so that equal sizes stay equal."""
    return tuple(max(2, extent // divide) if extent > 16 else extent for extent in shape)


def normal(*shapes, scale: float = 1.0, dtype=np.float32):
    """Inputs drawn from a normal distribution."""

    def make(random, divide=1):
        dims = [divided(shape, divide) for shape in shapes]
        return [(random.standard_normal(shape, dtype=np.float32) * np.float32(scale)).astype(dtype) for shape in dims]

    return make


def uniform(*ranges, count: int):
    """One vector per range."""

    def make(random, divide=1):
        return [random.uniform(low, high, count // divide).astype(np.float32) for low, high in ranges]

    return make


def integers(high: int, *shapes, low: int = 0, dtype=np.int32):
    """Integer inputs below `high`, which is divided like the sizes where it is above 16."""

    def make(random, divide=1):
        (top,) = divided((high,), divide)
        return [random.integers(low, top, divided(shape, divide)).astype(dtype) for shape in shapes]

    return make


def both(*makers):
    """The inputs of each, one after the other."""
    return lambda random, divide=1: [array for make in makers for array in make(random, divide)]
