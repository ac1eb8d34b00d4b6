"""Integer arithmetic and shifts, exhaustive over interesting operands, against Python integers."""

import numpy as np
import pytest
from vmath_kernels import NUMPY, elementwise

INTEGERS = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"]


def _wrap(value, dtype):
    bits = int(dtype[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype[0] == "s" and value >> (bits - 1) else value


def _unsigned(value, dtype):
    return value & ((1 << int(dtype[1:])) - 1)


def _quotient(x, y):
    return -1 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


def _power(x, y):
    if y >= 0:
        return pow(x, y, 1 << 64)
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


def reference(name, dtype, x, y):
    bits = int(dtype[1:])
    amount = _unsigned(y, dtype)
    return _wrap({
        "div": lambda: _quotient(x, y),
        "rem": lambda: x if y == 0 else x - y * _quotient(x, y),
        "pow": lambda: _power(x, y),
        "shl": lambda: x << amount if amount < bits else 0,
        "shr_logical": lambda: _unsigned(x, dtype) >> amount,
        "shr_arithmetic": lambda: _wrap_signed(x, bits) >> amount,
        "max": lambda: max(x, y),
        "min": lambda: min(x, y),
        "and": lambda: x & y,
        "or": lambda: x | y,
        "xor": lambda: x ^ y,
        "sum": lambda: x + y,
        "prod": lambda: x * y,
        "accmax": lambda: max(x, y),
        "accmin": lambda: min(x, y),
        "abs": lambda: abs(x),
        "sign": lambda: (x > 0) - (x < 0),
        "popcnt": lambda: _unsigned(x, dtype).bit_count(),
        "clz": lambda: bits - _unsigned(x, dtype).bit_length(),
        "not": lambda: ~x,
    }[name](), dtype)  # fmt: skip


def _wrap_signed(value, bits):
    return _wrap(value, f"s{bits}")


UNARY = ["abs", "sign", "popcnt", "clz", "not"]
BINARY = [
    "div", "rem", "pow", "shl", "shr_logical", "shr_arithmetic", "max", "min", "and", "or", "xor", "sum", "prod",
    "accmax", "accmin",
]  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    info = np.iinfo(NUMPY[dtype])
    bits = info.bits
    values = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 10, 13, bits - 1, bits, bits + 1}
    values |= {value for value in (-1, -2, -3, -7, -bits) if value >= info.min}
    values |= set(np.random.default_rng(3).integers(info.min, info.max, 12, dtype=NUMPY[dtype], endpoint=True).tolist())
    pairs = [(x, y) for x in sorted(values) for y in sorted(values)]
    x = np.array([pair[0] for pair in pairs], NUMPY[dtype])
    y = np.array([pair[1] for pair in pairs], NUMPY[dtype])
    for names, arrays in ((BINARY, (x, y)), (UNARY, (x,))):
        for name, result in zip(names, elementwise([f"{name}_{dtype}" for name in names])(*arrays), strict=True):
            expected = np.array([reference(name, dtype, *pair) for pair in pairs], NUMPY[dtype])
            np.testing.assert_array_equal(result, expected, err_msg=name)


def test_predicates():
    x = np.array([False, False, True, True])
    y = np.array([False, True, False, True])
    names = ["and", "or", "xor", "max", "min", "accand", "accor"]
    expected = [x & y, x | y, x ^ y, x | y, x & y, x & y, x | y]
    for result, right in zip(elementwise([f"{name}_pred" for name in names])(x, y), expected, strict=True):
        np.testing.assert_array_equal(result, right)
    np.testing.assert_array_equal(elementwise(["not_pred"])(x)[0], ~x)
