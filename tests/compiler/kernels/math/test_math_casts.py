"""Conversions, bit casts, half-width storage, accumulators and stack arrays."""

import ml_dtypes
import numpy as np
import pytest
from vmath_kernels import NUMPY, call_kernel, compile_kernel, elementwise

INTEGERS = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"]
REAL = ["pred", *INTEGERS, "f16", "bf16", "f32", "f64"]
ALL = [*REAL, "c64", "c128"]
TRUE_DTYPE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
FLOAT_VALUES = [
    0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 127.9, 128.0, -128.5, 255.5, 256.0, 32767.5, 65535.5, 65519.0, 65520.0, 2.0**31,
    -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e20, -1e20, 1e38, np.inf, -np.inf, np.nan, 1 / 3, 1e-7, 6e-8,
    2.9e-8, 1e-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11,
]  # fmt: skip


def _operands(source):
    """Register values: those of f16 and bf16 are float32 numbers that the type can hold."""
    if source == "pred":
        return np.array([False, True])
    if source in INTEGERS:
        info = np.iinfo(NUMPY[source])
        edges = [0, 1, 2, 100, info.max, info.min, info.max // 2, info.max - 1, min(info.max, 2**24 + 1)]
        return np.array(edges, NUMPY[source])
    with np.errstate(all="ignore"):
        if source in ("c64", "c128"):
            return (np.array(FLOAT_VALUES) + 0.25j).astype(NUMPY[source])
        values = np.array(FLOAT_VALUES)
        if source == "f64":
            # a tie of f16 but for one last bit, which rounding by way of float32 would lose
            values = np.append(values, [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 2049 + 2.0**-40])
        return values.astype(TRUE_DTYPE.get(source, NUMPY[source])).astype(NUMPY[source])


def _expected(x, source, target):
    with np.errstate(all="ignore"):
        if source in ("c64", "c128") and target not in ("c64", "c128", "pred"):
            x = x.real
        if target == "pred":
            return x != 0
        if target in INTEGERS and source not in (*INTEGERS, "pred"):
            info = np.iinfo(NUMPY[target])
            clamped = [0 if np.isnan(v) else min(max(v, info.min), info.max) for v in x.tolist()]
            return np.array([int(v) for v in clamped], NUMPY[target])
        if target in TRUE_DTYPE:
            if source in INTEGERS:
                x = x.astype(np.float32)
            return x.astype(TRUE_DTYPE[target]).astype(np.float32)
        return x.astype(NUMPY[target])


@pytest.mark.parametrize("source", ALL)
def test_convert(source):
    x = _operands(source)
    for target, result in zip(ALL, elementwise([f"convert_{source}_{target}" for target in ALL])(x), strict=True):
        np.testing.assert_array_equal(result, _expected(x, source, target), err_msg=f"{source} to {target}")


def test_rounding_to_half_widths_agrees_with_numpy_everywhere():
    generator = np.random.default_rng(5)
    x = generator.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    half, brain = elementwise(["round_f16", "round_bf16"])(x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(half, x.astype(np.float16).astype(np.float32))
        np.testing.assert_array_equal(brain, x.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("source,target", [("f32", "s32"), ("u32", "f32"), ("f64", "s64"), ("u8", "s8")])
def test_bitcast(source, target):
    generator = np.random.default_rng(6)
    x = np.frombuffer(generator.bytes(8 * 64), NUMPY[source])
    (result,) = elementwise([f"bitcast_{source}_{target}"])(x)
    assert result.tobytes() == x.tobytes()


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_bitcast_of_half_widths(half):
    bits = np.arange(65536, dtype=np.uint16)
    values = bits.view(TRUE_DTYPE[half]).astype(np.float32)
    back, there = elementwise([f"bitcast_{half}_u16"])(values)[0], elementwise([f"bitcast_u16_{half}"])(bits)[0]
    number = ~np.isnan(values)
    np.testing.assert_array_equal(back[number], bits[number])
    np.testing.assert_array_equal(there, values)


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_load_and_store(half):
    kernel = compile_kernel(
        f"def loop(x, o, n):\n    for i in range(n):\n        store_{half}(o, i, load_{half}(x, i) * f32(1.01))\n",
        [f"{half}*", f"{half}*", "s64"],
    )
    x = np.linspace(-300, 300, 1001).astype(TRUE_DTYPE[half])
    result = np.empty_like(x)
    call_kernel(kernel, x, result, x.size)
    np.testing.assert_array_equal(result, (x.astype(np.float32) * np.float32(1.01)).astype(TRUE_DTYPE[half]))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_accumulators(dtype):
    text = "def loop(x, o, n):\n"
    starts = {"sum": "0", "prod": "1", "accmax": "-1e30", "accmin": "1e30"}
    for index, (name, start) in enumerate(starts.items()):
        text += f"    total = {dtype}({start})\n    for i in range(n):\n"
        text += f"        total = {name}_{dtype}(total, x[i])\n    o[{index}] = total\n"
    kernel = compile_kernel(text, [f"{dtype}*", f"{dtype}*", "s64"])
    x = np.random.default_rng(4).uniform(0.9, 1.1, 1003).astype(NUMPY[dtype])
    result = np.empty(4, NUMPY[dtype])
    call_kernel(kernel, x, result, x.size)
    tolerance = 2e-5 if dtype == "f32" else 1e-13
    np.testing.assert_allclose(result[:2], [x.astype(np.float64).sum(), x.astype(np.float64).prod()], rtol=tolerance)
    np.testing.assert_array_equal(result[2:], [x.max(), x.min()])
    x[517] = np.nan
    call_kernel(kernel, x, result, x.size)
    assert np.isnan(result).all()


def test_scratch_is_aligned_and_allocated_once():
    kernel = compile_kernel(
        "def loop(o, misaligned, n):\n"
        "    for i in range(n):\n"
        "        a = scratch_f32(100)\n"
        "        for k in range(100):\n"
        "            a[k] = f32(k + i)\n"
        "        o[i] = a[99]\n"
        "        misaligned[0] += address(a) & 63\n",
        ["f32*", "s64*", "s64"],
    )
    misaligned = np.zeros(1, np.int64)
    result = np.empty(100_000, np.float32)  # 40 MB of stack if it were allocated at each turn
    call_kernel(kernel, result, misaligned, result.size)
    np.testing.assert_array_equal(result, np.arange(99, 100_099, dtype=np.float32))
    assert misaligned[0] == 0
