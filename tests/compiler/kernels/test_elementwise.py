"""Every element-wise op of the table, for every dtype that it takes, compiled against its NumPy reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hloom.backends.cpu.compilation import compile_module
from hloom.ir.build import Builder
from hloom.ir.errors import HloomError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.ops import OPS
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, NARROW_FLOATS, PRED, Shape

ATTRIBUTES = {
    "compare": [{"direction": d} for d in ("EQ", "NE", "LT", "LE", "GT", "GE")],
    "reduce-precision": [{"exponent_bits": e, "mantissa_bits": m} for e, m in ((5, 10), (8, 7), (11, 52), (3, 0))],
}
# Compiled, the larger of 0 and -0 is 0, as IEEE 754 has it; NumPy takes the first or the second.
ANY_ZERO = {"maximum", "minimum", "clamp"}
# Of complex numbers: the distance over the magnitude. At infinities and NaN test_math_complex.py has them.
RELATIVE = {"f16": 2e-3, "bf16": 1e-2, "f32": 2e-6, "f64": 1e-14, "c64": 4e-6, "c128": 1e-13}


def values(dtype: np.dtype) -> np.ndarray:
    """Special values and ordinary ones."""
    if dtype == PRED:
        return np.array([False, True])
    if dtype in FLOATS | COMPLEX:
        plain = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -2.5, 0.1, 1.5, 17.25, -7.0, 88.0, 1e-3]
        if dtype in COMPLEX:
            return np.array([complex(a, b) for a in plain[:8] for b in plain[2:8:2]], dtype)
        info = [np.inf, -np.inf, np.nan]
        if dtype not in NARROW_FLOATS:
            limits = np.finfo(dtype)
            info += [limits.max, -limits.max, limits.tiny, 1e5, -1e5, 2.0**31, -(2.0**63), 1e-20]
        return np.array(plain + info).astype(dtype)
    limits = np.iinfo(dtype)
    plain = [0, 1, 2, 3, 5, 7, 8, 31, 63, 64, 100, limits.max, limits.max - 1, limits.min, limits.min + 1]
    if limits.min:
        plain += [-1, -2, -3, -7, -100]
    return np.array(plain, dtype)


def arguments(shapes: list[Shape]) -> list[np.ndarray]:
    """All pairs of values; for three operands the third is the second one backwards."""
    columns = [values(s.dtype) for s in shapes[:2]]
    if len(shapes) > 1:
        columns = [np.array(c) for c in zip(*itertools.product(*columns), strict=True)]
        columns = [c.astype(s.dtype) for c, s in zip(columns, shapes, strict=False)]
    columns += [columns[1][::-1].copy() for _ in shapes[2:]]
    return columns


def cases(dtype_name: str):
    """(opcode, operand dtypes, attributes, result dtype or None) of all ops whose first operand has this dtype."""
    shape = Shape(DTYPES[dtype_name])
    found = []
    for name, entry in OPS.items():
        if entry.family != "elementwise" or entry.shaped:
            continue
        for count in (1, 2, 3):
            shapes = [Shape(PRED), shape, shape] if name == "select" else [shape] * count
            if name == "copy" and count > 1:
                continue
            for attributes in ATTRIBUTES.get(name, [{}]):
                try:
                    entry.infer(shapes, dict(attributes), None)
                except HloomError:
                    continue
                found.append((name, [s.dtype for s in shapes], attributes, None))
            if name == "select":
                break
    for other_name, other in DTYPES.items():
        if other_name in CONVERTED:
            found.append(("convert", [shape.dtype], {}, other))
            if PRED not in (shape.dtype, other) and other.itemsize == shape.dtype.itemsize:
                found.append(("bitcast-convert", [shape.dtype], {}, other))
    return found


CONVERTED = ("pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128")


def same_bits(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where two float arrays have equal values, the signs of zeros included, or are both NaN."""
    equal = (got == want) & (np.signbit(got) == np.signbit(want))
    return equal | ((got != got) & (want != want))


def near(got: np.ndarray, want: np.ndarray, name: str) -> np.ndarray:
    """Where two results agree: integers exactly, floats to the dtype's precision with the same zeros, NaN and signs."""
    if want.dtype not in FLOATS | COMPLEX:
        return got == want
    if want.dtype in COMPLEX:
        scale = np.maximum(np.abs(want), np.finfo(want.dtype).tiny)
        return (np.abs(got - want) <= RELATIVE[name] * scale) | (got == want) | (np.isnan(got) & np.isnan(want))
    got, want = got.astype(np.float64), want.astype(np.float64)
    smallest = 0.0 if name in ("f16", "bf16") else float(np.finfo(DTYPES[name]).tiny)
    close = np.abs(got - want) <= RELATIVE[name] * np.abs(want) + smallest
    both = close & np.isfinite(want) & ((want != 0) | (np.signbit(got) == np.signbit(want)))
    return same_bits(got, want) | both


@pytest.mark.parametrize("dtype", CONVERTED)
def test_every_op_of(dtype):
    builder = Builder("ops")
    jobs, arrays, outputs = cases(dtype), [], []
    assert len(jobs) > 15
    for name, dtypes, attributes, result in jobs:
        given = arguments([Shape(d) for d in dtypes])
        if name == "convert" and DTYPES[dtype].kind in "fcV" and result.kind in "iu":
            given = [in_range(given[0], result)]
        parameters = [builder.parameter(Shape(d, g.shape)) for d, g in zip(dtypes, given, strict=True)]
        shape = None if result is None else Shape(result, given[0].shape)
        outputs.append(builder.emit(name, *parameters, shape=shape, **attributes))
        arrays += given
    module = Module("ops", builder.finish(builder.tuple(outputs)))
    with np.errstate(all="ignore"):
        want = evaluate(module.entry, arrays)
    wrong = []
    for (name, _, attributes, result), output, a, b in zip(
        jobs, outputs, compile_module(module, fusion=False)(arrays), want, strict=True
    ):
        b = np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, name
        label = next(n for n, d in DTYPES.items() if d == b.dtype)
        with np.errstate(all="ignore"):
            agree = near(a, b, label) | ((a == b) if name in ANY_ZERO else False)
        if not agree.all():
            where = np.flatnonzero(~agree)[:3]
            operands = [arrays[p["index"]][where] for p in output.operands]
            wrong.append(f"{name} {attributes} {result or ''} of {operands}: {a[where]}, reference {b[where]}")
    assert not wrong, "\n".join(wrong)


def in_range(given: np.ndarray, target: np.dtype) -> np.ndarray:
    """Values that the integer dtype can hold: NumPy leaves the others undefined (test_math_casts.py has them)."""
    limits = np.iinfo(target)
    with np.errstate(all="ignore"):
        real = np.real(given).astype(np.float64)
    inside = np.isfinite(real) & (np.trunc(real) >= float(limits.min)) & (np.trunc(real) < float(limits.max))
    return given[inside]
