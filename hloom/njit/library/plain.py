"""`math` and `cmath` of traced numbers: results are Python's numbers."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import UnsupportedError
from hloom.njit.operators import elementwise
from hloom.njit.values import KINDS, PYTHON, Number, Value, as_value, converted
from hloom.scipy import special

__all__ = ["of_math"]

# Functions that have other names in NumPy.
_NAMES = {"pow": "power", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
          "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}  # fmt: skip
_WHOLE = {math.floor: np.floor, math.ceil: np.ceil, math.trunc: np.trunc}
_SPECIAL: dict[Any, Callable] = {math.erf: special.erf, math.erfc: special.erfc, math.gamma: special.gamma,
                                 math.lgamma: special.gammaln}  # fmt: skip
_TEST_COMPLEX = {cmath.isnan: np.isnan, cmath.isinf: np.isinf, cmath.isfinite: np.isfinite}


def of_math(function: Any, args: tuple) -> Any:
    """A function of `math` or `cmath`."""
    if not any(isinstance(a, Value) for a in args):
        return function(*args)
    if function.__module__ == "cmath":
        return _of_cmath(function, args)
    if function in _WHOLE:
        value = as_value(args[0])
        found = value if value.dtype.kind in "iub" else elementwise(_WHOLE[function], (value,))
        return Number(converted(found, PYTHON[int]), int)
    if function in _SPECIAL:
        return Number(_SPECIAL[function](converted(args[0], PYTHON[float])), float)
    if function is math.ldexp:
        return Number(hnp.ldexp(converted(args[0], PYTHON[float]), converted(args[1], PYTHON[int])), float)
    if function is math.log and len(args) == 2:
        top, base = [elementwise(np.log, (_real(a),)) for a in args]
        return _as_python(elementwise(np.true_divide, (top, base)))
    name = function.__name__
    ufunc = getattr(np, _NAMES.get(name, name), None)
    if not isinstance(ufunc, np.ufunc):
        raise UnsupportedError(f"math.{name} in a compiled NumPy program", "it is not supported", "write it out")
    if name not in ("gcd", "lcm"):
        args = tuple([_real(a) for a in args])
    return _as_python(elementwise(ufunc, args))


def _real(value: Any) -> Any:
    """An argument of a function of `math`, which computes in float64."""
    return Number(converted(value, PYTHON[float]), float) if as_value(value) is not None else value


def _as_python(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_as_python(v) for v in value])
    return Number(value.traced, KINDS[value.dtype.kind]) if isinstance(value, Number) else value


def _of_cmath(function: Any, args: tuple) -> Any:
    if function in _TEST_COMPLEX:
        return _as_python(elementwise(_TEST_COMPLEX[function], (_complex(args[0]),)))
    if function is cmath.phase:
        return _phase(args[0])
    if function is cmath.polar:
        return _as_python(elementwise(np.absolute, (_complex(args[0]),))), _phase(args[0])
    if function is cmath.rect:
        size, angle = [_real(a) for a in args]
        parts = [elementwise(np.multiply, (size, elementwise(f, (angle,)))).traced for f in (np.cos, np.sin)]
        return Number(lax.complex(parts[0], parts[1]), complex)
    if function is cmath.log and len(args) == 2:
        top, base = [elementwise(np.log, (_complex(a),)) for a in args]
        return _as_python(elementwise(np.true_divide, (top, base)))
    name = function.__name__
    ufunc = getattr(np, _NAMES.get(name, name), None)
    if not isinstance(ufunc, np.ufunc):
        raise UnsupportedError(f"cmath.{name} in a compiled NumPy program", "it is not supported", "write it out")
    return _as_python(elementwise(ufunc, (_complex(args[0]),)))


def _complex(value: Any) -> Number:
    return Number(converted(value, PYTHON[complex]), complex)


def _phase(value: Any) -> Number:
    value = _complex(value)
    return _as_python(elementwise(np.arctan2, (value.imag, value.real)))
