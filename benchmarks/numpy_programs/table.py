"""The table of NumPy programs: each a function as its author wrote it, and what makes its arguments for a size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

R = np.random.default_rng
SIZES = ("small", "medium", "large")


@dataclass(frozen=True)
class Program:
    """A program. make(n): its arguments. sizes: n by name; "tiny" is for tests.

    rtol: how far a result may be from NumPy's, over the largest element of the result; conditioning: why that is more
    than 1e-12. kink: why the results are not differentiable at the arguments, though both are floats; '' where they
    are.
    """

    name: str
    kind: str
    function: Callable
    make: Callable[[int], tuple]
    sizes: dict[str, int]
    rtol: float
    conditioning: str
    kink: str

    def arguments(self, size: str) -> tuple:
        return self.make(self.sizes[size])


PROGRAMS: dict[str, Program] = {}


def programs_of(kind: str) -> Callable:
    """The decorator that registers programs of a kind: `@program(make, tiny, small, medium, large)`."""

    def program(make, *sizes: int, rtol: float = 1e-12, conditioning: str = "", kink: str = ""):
        if bool(conditioning) != (rtol != 1e-12) or len(sizes) != 1 + len(SIZES):
            raise ValueError("a program needs four sizes, and a reason for a tolerance of its own")

        def register(function):
            name = function.__name__
            named = dict(zip(("tiny", *SIZES), sizes, strict=True))
            PROGRAMS[name] = Program(name, kind, function, make, named, rtol, conditioning, kink)
            return function

        return register

    return program


def error_of(found, wanted) -> float:
    """The largest difference of results, over the largest element of each of them. inf: of other structure or dtype."""
    if isinstance(wanted, (tuple, list)):
        if not isinstance(found, (tuple, list)) or len(found) != len(wanted):
            return np.inf
        return max((error_of(f, w) for f, w in zip(found, wanted, strict=True)), default=0.0)
    if wanted is None or callable(wanted):
        return 0.0 if found is wanted or callable(wanted) else np.inf
    one, other = np.asarray(found), np.asarray(wanted)
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return np.inf
    if other.dtype.kind not in "fc":
        return 0.0 if np.array_equal(one, other) else np.inf
    finite = np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True) or not np.isfinite(one[finite]).all():
        return np.inf
    scale = max(np.max(np.abs(other[finite]), initial=0.0), 1e-300)
    return float(np.max(np.abs(one[finite] - other[finite]), initial=0.0) / scale)
