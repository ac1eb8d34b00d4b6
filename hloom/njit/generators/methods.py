"""What a call of a method of a generator draws: the function of the state, its parameters, and how many."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from hloom.errors import ArgumentError, UnsupportedError
from hloom.ir.records import record
from hloom.njit.generators import draws

__all__ = ["Draw", "Drawn", "Generator", "drawn", "refuse"]


@record(frozen=True, eq=False)
class Drawn:
    """draw: the function of the state. a, b: its parameters. dtype: of the results. python: the type of a single one
    that is a number of Python. shape: None for a single one."""

    draw: Callable
    a: Any
    b: Any
    dtype: type
    python: type | None
    shape: tuple[int, ...] | None


class Generator:
    """A generator in a program, or in a kernel of one. state: six integers of uint64, see `draws`."""

    def __init__(self, state: Any):
        self.state = state

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Draw(self, name)

    def run(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Draws."""
        refuse(f"a generator's {name}", "a kernel has no state of it")


class Draw:
    """A method of a generator."""

    def __init__(self, generator: Generator, name: str):
        self.generator, self.name = generator, name
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.generator.run(self.name, args, kwargs)


def refuse(asked: str, found: str, repair: str = "draw the numbers outside, and pass them as an argument") -> NoReturn:
    raise UnsupportedError(f"{asked} in a compiled NumPy program", found, repair)


def drawn(name: str, args: Sequence[Any], kwargs: dict[str, Any], known: Callable[[Any], Any]) -> Drawn:
    """The draw of a call. known: the Python value of an argument, or something else where it is computed.

    Raises NumPy's errors for arguments that are known.
    """
    method = _METHODS.get(name)
    if method is None:
        refuse(f"a generator's {name}", f"compiled are {', '.join(_METHODS)}, shuffle, permutation")
    try:
        bound = inspect.signature(method).bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"a generator's {name}", str(error), f"call {name}{inspect.signature(method)}") from None
    for key in ("size", "dtype", "out", "endpoint", "method"):
        if key in bound.arguments:
            bound.arguments[key] = known(bound.arguments[key])
    if bound.arguments.get("out") is not None:
        refuse(f"a generator's {name} with out=", "it is not supported", "assign the result: x[:] = rng.random(len(x))")
    plain = {key: known(value) for key, value in bound.arguments.items()}
    if all(isinstance(v, (bool, int, float, np.generic)) for key, v in plain.items() if key not in _OPTIONS):
        # NumPy says what is wrong with them. Shapes are not its matter here, as arrays may be large.
        single = {key: v for key, v in plain.items() if key not in ("size", "out")}
        getattr(np.random.default_rng(0), name)(**single)
    return method(**bound.arguments)


_OPTIONS = frozenset(("size", "dtype", "out", "endpoint", "method"))


def _shape(name: str, size: Any) -> tuple[int, ...] | None:
    if size is None:
        return None
    shape = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    found = tuple(map(operator.index, shape))
    if any(n < 0 for n in found):
        raise ArgumentError(f"a generator's {name}", f"the size {size}", "give sizes that are not negative")
    return found


def _random(size: Any = None, dtype: Any = np.float64, out: Any = None) -> Drawn:
    dtype = np.dtype(dtype)
    if dtype not in (np.float64, np.float32):
        raise TypeError(f"Unsupported dtype {dtype!r} for random")
    draw = draws.random if dtype == np.float64 else draws.random32
    kind = np.float64 if size is None else dtype.type  # a single one is a number of Python
    return Drawn(draw, None, None, kind, float, _shape("random", size))


def _uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Drawn:
    return Drawn(draws.uniform, low, high, np.float64, float, _shape("uniform", size))


def _integers(
    low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: Any = False
) -> Drawn:  # fmt: skip
    if high is None:
        low, high = 0, low
    python = dtype if dtype in (int, bool) else None
    dtype = np.dtype(dtype)
    if dtype not in (np.int64, np.int32, np.uint32):
        refuse(f"a generator's integers of {dtype}", "compiled are int64, int32 and uint32",
               "draw int64, and convert them with astype")  # fmt: skip
    for bound in (low, high):
        own = getattr(bound, "dtype", None)  # of a number, which may be computed
        if own is not None and (own.kind not in "biu" or own == np.uint64):
            refuse(f"a generator's integers with bounds of {own}", "they may not be integers of int64",
                   "convert them with np.int64(...)")  # fmt: skip
    draw = draws.integers if endpoint else draws.integers_below
    return Drawn(draw, low, high, dtype.type, python, _shape("integers", size))


def _double(name: str, dtype: Any) -> None:
    if np.dtype(dtype) != np.float64:
        refuse(f"a generator's {name} of {np.dtype(dtype)}", "compiled is float64", "convert them with astype")


def _standard_normal(size: Any = None, dtype: Any = np.float64, out: Any = None) -> Drawn:
    _double("standard_normal", dtype)
    return Drawn(draws.standard_normal, None, None, np.float64, float, _shape("standard_normal", size))


def _normal(loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Drawn:
    return Drawn(draws.normal, loc, scale, np.float64, float, _shape("normal", size))


def _standard_exponential(
    size: Any = None, dtype: Any = np.float64, method: Any = "zig", out: Any = None
) -> Drawn:  # fmt: skip
    _double("standard_exponential", dtype)
    if method != "zig":
        refuse(f"a generator's standard_exponential by the method {method!r}", "compiled is 'zig'", "leave it out")
    return Drawn(draws.standard_exponential, None, None, np.float64, float, _shape("standard_exponential", size))


def _exponential(scale: Any = 1.0, size: Any = None) -> Drawn:
    return Drawn(draws.exponential, scale, None, np.float64, float, _shape("exponential", size))


_METHODS: dict[str, Callable[..., Drawn]] = {
    "random": _random, "uniform": _uniform, "integers": _integers, "normal": _normal, "exponential": _exponential,
    "standard_normal": _standard_normal, "standard_exponential": _standard_exponential,
}  # fmt: skip
