"""Eager, compiled and NumPy agree at special values: infinities, NaN, signed zeros, smallest and largest numbers and
branch cuts, for every element-wise op of the op table and every dtype."""

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DTypeError
from hloom.ir.ops import OPS
from hloom.ir.types import DTYPES, kind
from hloom.tracing.trace import bind

NAMED = {name: op for name, op in OPS.items() if op.family == "elementwise" and op.arity}
DTYPE_NAMES = ("pred", "s8", "s32", "s64", "u8", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128")


def _special(dtype) -> np.ndarray:
    if dtype == np.bool_:
        return np.array([False, True])
    if kind(dtype) in ("signed", "unsigned"):
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return np.array([0, 1, 2, 3, 5, most, most - 1, least, least + 1] + [-1, -2, -7] * (least < 0), dtype)
    parts = np.float32 if dtype == np.complex64 else np.float64 if dtype == np.complex128 else dtype
    info = ml_dtypes.finfo(parts)
    largest, normal, smallest = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    if kind(dtype) == "complex":
        found = [0.0, -0.0, 1, -1, 0.5, smallest, -normal, largest, largest / 4, -largest, largest**0.5, normal**0.5]
        found += [2, -3, float(info.eps), np.inf, -np.inf, np.nan]
        return np.array([complex(a, b) for a in found for b in found], dtype)
    found = [0.0, 1, 0.5, 2, 3, 2.5, np.pi / 2, np.pi, 100, 700, smallest, normal, largest, largest / 4]
    found += [float(info.eps), 1 + float(info.eps), 1e5, 1e10, np.inf]
    with np.errstate(over="ignore"):
        return np.array([s * x for x in found for s in (1.0, -1.0)] + [1 - float(info.eps), np.nan], dtype)


def _arguments(dtype, arity: int) -> list[np.ndarray]:
    """Every combination of the values, or of some of them, so that there are at most a few thousand."""
    values = _special(dtype)
    some = values[:: max(1, len(values) // {1: 400, 2: 48, 3: 13}[arity])]
    return [x.ravel() for x in np.meshgrid(*[some] * arity, indexing="ij")]


def _same_size(a, b) -> np.ndarray:
    return (np.abs(a) == np.abs(b)) & ((a == 0) | np.isinf(a))


def _agree(found, expected, ulps: float, size=None) -> np.ndarray:
    """size: what errors are compared with, by default the expected value; of complex numbers the magnitude."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    if kind(found.dtype) == "complex":
        size = np.hypot(expected.real.astype(np.float64), expected.imag.astype(np.float64))
        real = _agree(found.real, expected.real, ulps, size)
        imaginary = _agree(found.imag, expected.imag, ulps, size)
        # C's Annex G leaves the signs of an infinity and of a zero beside NaN open.
        real |= np.isnan(found.imag) & _same_size(found.real, expected.real)
        imaginary |= np.isnan(found.real) & _same_size(found.imag, expected.imag)
        return real & imaginary
    if kind(found.dtype) != "float":
        return found == expected
    info = ml_dtypes.finfo(found.dtype)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    size = np.abs(b) if size is None else np.where(np.isfinite(size), size, np.abs(b))
    bound = ulps * (float(info.eps) * size + float(info.smallest_subnormal))
    return same | (np.isfinite(a) & np.isfinite(b) & (a != b) & (np.abs(a - b) <= bound))


def _open_signs(op, found, expected, given) -> np.ndarray:
    """Where only signs of zeros differ, of complex results, and an angle is infinite or NaN (C's Annex G leaves them
    open), a part vanishes below the smallest number, or NumPy takes a reciprocal for a power."""
    free = ~_ordinary(*given) | (op == "power")
    return free & np.all([(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in _parts(found, expected)], axis=0)


def _parts(found, expected):
    return (found.real, expected.real), (found.imag, expected.imag)


def _ordinary(*arrays) -> np.ndarray:
    """Where sums and products of parts neither overflow nor vanish, and nothing is infinite or NaN."""
    if kind(arrays[0].dtype) not in ("float", "complex"):
        return np.ones(arrays[0].shape, bool)
    root = float(np.sqrt(ml_dtypes.finfo(arrays[0].real.dtype).max)) / 4
    parts = [np.abs(p).astype(np.float64) for a in arrays for p in (a.real, a.imag)]
    return np.all([(p < root) & ((p == 0) | (p > 1 / root)) for p in parts], axis=0)


# Op -> where eager and compiled are not compared, of its arguments, and why.
EXCEPTIONS = {
    # Which of two products a fused multiply-add rounds depends, in NumPy, on the processor and the place in the array.
    "multiply": lambda x, y: (kind(x.dtype) == "complex") & ~_ordinary(x, y),
    # C leaves the special values of cpow open, NumPy calls the platform's, and its error grows with the exponent.
    "power": lambda x, y: (kind(x.dtype) == "complex") & ~(_ordinary(x, y) & (np.abs(y) < 4) & (x != 0)),
    # Of zeros of both signs NumPy takes either; compiled code takes -0 for the smaller one, as IEEE 754 has it.
    "maximum": lambda x, y: (x == 0) & (y == 0),
    "minimum": lambda x, y: (x == 0) & (y == 0),
    # SciPy, which the eager function calls, loses digits beside the zeros at 1 and 2 and others below 0.
    "lgamma": lambda x: (np.abs(x - 1) < 1e-3) | (x < 0),
    # SciPy adds the pole at s = 1 and that at q = 0 where one of them overflows; its result lacks the smaller one.
    "zeta": lambda s, q: np.abs(s - 1) < 1e-3,
}
ULPS = {"digamma": 64, "polygamma": 64, "lgamma": 8, "power": 64}


def _computed(dtype):
    """Op -> (arguments, eager result, compiled result)."""
    arguments = {name: _arguments(dtype, op.arity) for name, op in NAMED.items()}
    eager = {}
    for name, given in arguments.items():
        try:
            eager[name] = np.asarray(bind(name, *map(hnp.asarray, given)))
        except DTypeError:
            continue
    run = hl.jit(lambda all: {name: bind(name, *all[name]) for name in eager})
    compiled = run({name: arguments[name] for name in eager})
    return {name: (arguments[name], eager[name], np.asarray(compiled[name])) for name in eager}


@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_special_values(name):
    dtype = DTYPES[name]
    wrong = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        computed = _computed(dtype)
        assert len(computed) >= (40 if kind(dtype) == "float" else 8)
        for op, (given, eager, compiled) in computed.items():
            bad = ~_agree(compiled, eager, ULPS.get(op, 16 if kind(dtype) == "complex" else 4))
            if kind(dtype) == "complex":
                bad &= ~_open_signs(op, compiled, eager, given)
            bad &= np.logical_not(EXCEPTIONS.get(op, lambda *_: False)(*given))
            for k in itertools.islice(np.flatnonzero(bad), 3):
                wrong.append(f"{op}({', '.join(str(x[k]) for x in given)}): eager {eager[k]}, compiled {compiled[k]}")
    assert not wrong, "\n".join(wrong)


# NumPy's name -> where NumPy differs, of its arguments, and why.
NUMPY_EXCEPTIONS = {
    "multiply": EXCEPTIONS["multiply"],
    # NumPy drops the sign of zero; of complex numbers with infinite parts it returns a unit, hloom NaN, as JAX does.
    "sign": lambda x: (x == 0) | ((kind(x.dtype) == "complex") & ~_ordinary(x)),
    # NumPy's expm1 of complex numbers is exp(x) cos(y) - 1 without C's limits; its log1p overflows on the way.
    "expm1": lambda x: (kind(x.dtype) == "complex") & ~_ordinary(x),
    "log1p": lambda x: (kind(x.dtype) == "complex") & (~_ordinary(x) | (np.abs(x) < 4)),
    # NumPy divides 1 by 0 + 0i to NaN; hloom as 1 / z, infinite, and with the zeros that a division has.
    "reciprocal": lambda x: (kind(x.dtype) == "complex") & (~_ordinary(x) | (x.real == 0) | (x.imag == 0)),
}
BY_NUMPY = sorted({n for op in NAMED.values() if op.numpy for n in str(getattr(op.numpy, "names", op.numpy)).split()})


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128", "s32", "u8"])
def test_numpy_at_special_values(dtype):
    wrong = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name in [*BY_NUMPY, "reciprocal", "square", "absolute", "angle", "conj", "negative", "floor", "rint"]:
            reference, function = getattr(np, name, None), getattr(hnp, name)
            arity = getattr(reference, "nin", 1)
            if reference is None:
                continue
            given = _arguments(DTYPES[dtype], arity)
            try:
                expected, found = reference(*given), np.asarray(function(*map(hnp.asarray, given)))
            except (TypeError, DTypeError):  # an op for other kinds of dtypes
                continue
            if found.dtype != expected.dtype:
                continue
            bad = ~_agree(found, expected, 4)
            if kind(DTYPES[dtype]) == "complex":
                bad &= ~_open_signs(name, found, expected, given)
            bad &= np.logical_not(NUMPY_EXCEPTIONS.get(name, lambda *_: False)(*given))
            for k in itertools.islice(np.flatnonzero(bad), 3):
                wrong.append(f"{name}({', '.join(str(x[k]) for x in given)}): {found[k]}, NumPy {expected[k]}")
    assert not wrong, "\n".join(wrong)
