"""The contraction nest against NumPy: dtypes, strides, shapes, element and epilogue code, blocks and threads."""

from __future__ import annotations

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from hloom.compiler.kernel_ir.reader import expression, statements
from hloom.compiler.kernels.contractions.blocking import step_plan
from hloom.compiler.kernels.contractions.render import render
from hloom.compiler.kernels.contractions.spec import ContractionSpec, KernelAddress, PlainOperand, PlainStore
from hloom.compiler.kernels.contractions.tile_shapes import tile_shape, tile_shapes
from hloom.compiler.targets.cpu.codegen import compile_kernels
from hloom.compiler.targets.cpu.machine import host
from hloom.compiler.targets.cpu.microkernels import fma as tiles
from hloom.compiler.targets.cpu.numba_frontend import blocks
from hloom.ir.records import replace
from hloom.runtime import native

DTYPES = {
    "pred": np.bool_, "s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16,
    "s32": np.int32, "u32": np.uint32, "s64": np.int64,
    "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_addresses: dict = {}


def address_of(kernel) -> int:
    if kernel not in _addresses:
        (code,) = compile_kernels([kernel])
        _addresses[kernel] = native.load(code.data, code.symbols)[kernel.name]
    return _addresses[kernel]


def run(spec, shape, arrays, lhs=None, rhs=None, machine=None, threads=1, grain=None, split=False):
    """Do the contraction; `arrays` gives the array behind every pointer, `lhs` and `rhs` those that are plain operands
    (their strides are passed)."""
    kernels = render(spec, machine or host(), shape if split or shape[3] < 4096 else None)
    assert (kernels.splits > 1) == split

    def strides(array):
        return (0, 0, 0) if array is None else tuple(s // array.itemsize for s in array.strides)

    buffers = {}
    for step in step_plan(kernels, *shape, strides(lhs), strides(rhs)):
        values = {name: array.ctypes.data for name, array in arrays.items()} | step.arguments
        for name, size in step.temporaries.items():
            # Garbage, so that a temporary that is read before it is written shows; aligned as the planner does it.
            buffer = buffers.setdefault(name, np.full(size + 64, 0xFF, np.uint8))
            values[name] = -(-buffer.ctypes.data // 64) * 64
        values |= {name: values[pointer] for name, pointer in step.pointers.items()}
        words = [values[name] for name in kernels.parameters[step.kernel][:-2]]
        words = [address_of(kernels.kernels[x.kernel]) if isinstance(x, KernelAddress) else x for x in words]
        block = (ctypes.c_int64 * max(1, len(words)))(*words)
        entry = ENTRY(address_of(kernels.kernels[step.kernel]))
        size = grain or step.grain
        chunks = [(lo, min(lo + size, step.items)) for lo in range(0, step.items, size)]
        if threads == 1:
            for lo, hi in chunks:
                entry(ctypes.addressof(block), lo, hi)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda c, e=entry, b=block: e(ctypes.addressof(b), *c), reversed(chunks)))


def sample(rng, dtype, shape):
    kind = np.dtype(DTYPES[dtype])
    if dtype == "pred":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        # The whole range: products must wrap.
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    return np.asarray(rng.standard_normal(shape), np.float32).astype(kind)


def operand(rng, dtype, shape, transposed):
    batch, rows, columns = shape
    if transposed:
        return sample(rng, dtype, (batch, columns, rows)).swapaxes(1, 2)
    return sample(rng, dtype, shape)


def check(out, lhs, rhs, accumulate):
    """Integers exactly; floats to the error of sums of k products."""
    kind = DTYPES[accumulate]
    if np.dtype(kind).kind in "iu":
        np.testing.assert_array_equal(out, np.matmul(lhs.astype(kind), rhs.astype(kind)))
        return
    left, right = lhs.astype(np.float64), rhs.astype(np.float64)
    scale = np.matmul(np.abs(left), np.abs(right))
    error = np.abs(out.astype(np.float64) - np.matmul(left, right))
    # Sums of at most 640 products, each in order, one rounding a product.
    assert np.all(error <= (64 + lhs.shape[2] / 640) * np.finfo(kind).eps * scale + np.finfo(kind).tiny)


def plain(dtype, accumulate, name="dot"):
    return ContractionSpec(name, accumulate, PlainOperand("x", dtype), PlainOperand("w", dtype), PlainStore("o"))


EXTENT = st.one_of(st.integers(1, 40), st.sampled_from([1, 3, 6, 7, 8, 16, 17, 48, 100, 130, 200]))
DEPTHS = st.one_of(st.integers(0, 40), st.sampled_from([255, 256, 640, 641, 1300]))
ACCUMULATE = ("f32", "f64", "s32", "s64", "u32", "u64")


@pytest.mark.parametrize("accumulate", ACCUMULATE)
@settings(max_examples=60)
@given(
    batch=st.integers(1, 3), m=EXTENT, n=EXTENT, k=DEPTHS, turn_lhs=st.booleans(), turn_rhs=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_plain(accumulate, batch, m, n, k, turn_lhs, turn_rhs, seed):
    rng = np.random.default_rng(seed)
    x = operand(rng, accumulate, (batch, m, k), turn_lhs)
    w = operand(rng, accumulate, (batch, k, n), turn_rhs)
    o = np.full((batch, m, n), 77, DTYPES[accumulate])
    run(plain(accumulate, accumulate), (batch, m, n, k), {"x": x, "w": w, "o": o}, x, w)
    check(o, x, w, accumulate)


@pytest.mark.parametrize("dtype,accumulate", [
    ("bf16", "f32"), ("f16", "f32"), ("s8", "s32"), ("u8", "u32"), ("s16", "s32"), ("u16", "u32"), ("f32", "f64"),
    ("pred", "s32"),
])  # fmt: skip
@settings(max_examples=25)
@given(m=EXTENT, n=EXTENT, k=DEPTHS, turn_lhs=st.booleans(), turn_rhs=st.booleans())
def test_narrow_operands(dtype, accumulate, m, n, k, turn_lhs, turn_rhs):
    rng = np.random.default_rng(m * 1000 + n)
    x = operand(rng, dtype, (2, m, k), turn_lhs)
    w = operand(rng, dtype, (2, k, n), turn_rhs)
    o = np.full((2, m, n), 77, DTYPES[accumulate])
    run(plain(dtype, accumulate), (2, m, n, k), {"x": x, "w": w, "o": o}, x, w)
    check(o, x, w, accumulate)


def view(rng, shape, kind):
    """An array of that shape whose strides are unusual."""
    batch, rows, columns = shape
    if kind == "steps":
        return sample(rng, "f32", (batch, rows * 2, columns * 3))[:, ::2, ::3]
    if kind == "reversed":
        return sample(rng, "f32", shape)[::-1, ::-1, ::-1]
    if kind == "one batch":
        return np.broadcast_to(sample(rng, "f32", shape[1:]), shape)
    if kind == "one row":
        return np.broadcast_to(sample(rng, "f32", (1, 1, columns)), shape)
    return np.broadcast_to(sample(rng, "f32", (batch, rows, 1)), shape)


VIEWS = ["steps", "reversed", "one batch", "one row", "one column"]


@pytest.mark.parametrize("left", VIEWS)
@pytest.mark.parametrize("right", VIEWS)
def test_views(left, right):
    rng = np.random.default_rng(3)
    for batch, m, n, k in [(2, 30, 50, 20), (3, 200, 70, 100)]:
        x, w = view(rng, (batch, m, k), left), view(rng, (batch, k, n), right)
        o = np.full((batch, m, n), np.nan, np.float32)
        run(plain("f32", "f32"), (batch, m, n, k), {"x": x, "w": w, "o": o}, x, w)
        check(o, x, w, "f32")


@pytest.mark.parametrize("shape", [(1, 1000, 777, 500), (1, 1024, 300, 1024), (1, 1, 1000, 700), (1, 999, 1, 700)])
def test_large(shape):
    batch, m, n, k = shape
    rng = np.random.default_rng(1)
    for turn_lhs, turn_rhs in [(False, False), (True, False), (False, True)]:
        x, w = operand(rng, "f32", (batch, m, k), turn_lhs), operand(rng, "f32", (batch, k, n), turn_rhs)
        o = np.full((batch, m, n), np.nan, np.float32)
        run(plain("f32", "f32"), shape, {"x": x, "w": w, "o": o}, x, w)
        check(o, x, w, "f32")


def test_an_empty_result_needs_no_step():
    kernels = render(plain("f32", "f32"), host())
    for shape in [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5)]:
        assert step_plan(kernels, *shape, (15, 5, 1), (20, 4, 1)) == []


@pytest.mark.parametrize("accumulate", ["f32", "s32"])
def test_bits_do_not_depend_on_blocks_threads_or_packing(accumulate):
    """Blocks come from the caches and cores of a machine, packing from strides, the tile from the vector width."""
    rng = np.random.default_rng(5)
    batch, m, n, k = shape = (2, 157, 203, 900)
    x, w = operand(rng, accumulate, (batch, m, k), False), operand(rng, accumulate, (batch, k, n), False)
    results = []

    def go(x, w, **options):
        o = np.full((batch, m, n), 77, DTYPES[accumulate])
        run(plain(accumulate, accumulate), shape, {"x": x, "w": w, "o": o}, x, w, **options)
        results.append(o)

    go(x, w)
    go(x, w, threads=4, grain=1)
    go(np.asfortranarray(x), np.asfortranarray(w))
    go(x, w, machine=replace(host(), cores=64), threads=3)
    go(x, w, machine=replace(host(), l1_bytes=16 << 10, l2_bytes=64 << 10))
    for vector_bytes, registers in [(16, 16), (16, 32), (64, 32)]:
        go(x, w, machine=replace(host(), vector_bytes=vector_bytes, vector_registers=registers))
    check(results[0], x, w, accumulate)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def gelu_epilogue(names, value, b, i, j):
    """Bias, gelu, a bf16 output, and the sum itself as a second output."""
    lines = [
        f"v0 = {value} + bias[{j}]",
        "v1 = f32(0.7978845608) * (v0 + f32(0.044715) * v0 * v0 * v0)",
        "v2 = f32(0.5) * v0 * (f32(1) + tanh_f32(v1))",
        f"store_bf16(activation, ({b} * m + {i}) * n + {j}, v2)",
        f"raw[({b} * m + {i}) * n + {j}] = {value}",
    ]
    return statements("\n".join(lines), names.part())


GELU_PARAMS = (("bias", "f32*"), ("activation", "bf16*"), ("raw", "f32*"))


def check_gelu(raw, activation, bias, x, w):
    check(raw, x, w, "f32")
    expected = gelu(raw.astype(np.float64) + bias)
    np.testing.assert_allclose(activation.astype(np.float64), expected, rtol=2.0**-8, atol=1e-6)


@settings(max_examples=30)
@given(batch=st.integers(1, 2), m=EXTENT, n=EXTENT, k=DEPTHS, turn_lhs=st.booleans(), turn_rhs=st.booleans())
def test_epilogue_of_plain_operands(batch, m, n, k, turn_lhs, turn_rhs):
    rng = np.random.default_rng(n)
    operands = PlainOperand("x", "f32"), PlainOperand("w", "f32")
    spec = ContractionSpec("layer", "f32", *operands, gelu_epilogue, GELU_PARAMS)
    x, w = operand(rng, "f32", (batch, m, k), turn_lhs), operand(rng, "f32", (batch, k, n), turn_rhs)
    bias, raw = sample(rng, "f32", n), np.full((batch, m, n), np.nan, np.float32)
    activation = raw.astype(ml_dtypes.bfloat16)
    run(spec, (batch, m, n, k), {"x": x, "w": w, "bias": bias, "raw": raw, "activation": activation}, x, w)
    check_gelu(raw, activation, bias, x, w)


def elements(turn_lhs, turn_rhs):
    """Element code: lhs is max(x, 0) of bf16 data, rhs is w * scale[p]."""

    def lhs(names, b, i, p):
        at, own = f"({b} * k + {p}) * m + {i}" if turn_lhs else f"({b} * m + {i}) * k + {p}", names.part()
        return statements(f"e0 = load_bf16(x, {at})", own), expression("max_f32(e0, f32(0))", own)

    def rhs(names, b, p, j):
        at, own = f"{j} * k + {p}" if turn_rhs else f"{p} * n + {j}", names.part()
        return statements(f"e0 = w[{at}]\ne1 = e0 * scale[{p}]", own), own["e1"]

    return lhs, rhs


@pytest.mark.parametrize("turn_lhs", [False, True])
@pytest.mark.parametrize("turn_rhs", [False, True])
@pytest.mark.parametrize("fused", ["both", "lhs", "rhs"])
@settings(max_examples=12)
@given(batch=st.integers(1, 2), m=EXTENT, n=EXTENT, k=DEPTHS)
def test_prologues(fused, turn_lhs, turn_rhs, batch, m, n, k):
    rng = np.random.default_rng(k)
    lhs, rhs = elements(turn_lhs, turn_rhs)
    x = operand(rng, "bf16" if fused != "rhs" else "f32", (batch, m, k), turn_lhs)
    w = operand(rng, "f32", (1, k, n), turn_rhs)
    scale = sample(rng, "f32", k)
    left = np.maximum(x.astype(np.float32), 0) if fused != "rhs" else x
    right = w * scale[None, :, None] if fused != "lhs" else w
    w = np.broadcast_to(w, (batch, k, n))
    bias, raw = sample(rng, "f32", n), np.full((batch, m, n), np.nan, np.float32)
    activation = raw.astype(ml_dtypes.bfloat16)
    spec = ContractionSpec(
        "layer", "f32", lhs if fused != "rhs" else PlainOperand("x", "f32"),
        rhs if fused != "lhs" else PlainOperand("w", "f32"), gelu_epilogue,
        (*GELU_PARAMS, ("x", "bf16*"), ("w", "f32*"), ("scale", "f32*")) if fused != "rhs"
        else (*GELU_PARAMS, ("w", "f32*"), ("scale", "f32*")),
        lhs_fast="i" if turn_lhs else "p", rhs_fast="p" if turn_rhs else "j", rhs_batched=False,
    )  # fmt: skip
    arrays = {"x": x, "w": w, "scale": scale, "bias": bias, "raw": raw, "activation": activation}
    run(spec, (batch, m, n, k), arrays, x, w)
    check_gelu(raw, activation, bias, left, np.broadcast_to(right, (batch, k, n)))


LONG = [(1, 64, 64, 8192), (2, 25, 6, 9001), (1, 150, 17, 5000), (1, 1, 1, 70000)]


@pytest.mark.parametrize("shape", LONG)
@pytest.mark.parametrize("dtype,accumulate", [("f32", "f32"), ("f64", "f64"), ("s8", "s32"), ("bf16", "f32")])
def test_long_sums_are_cut_into_parts(shape, dtype, accumulate):
    batch, m, n, k = shape
    rng = np.random.default_rng(k)
    spec = plain(dtype, accumulate)
    for turn_lhs, turn_rhs in [(False, False), (True, False), (False, True)]:
        x, w = operand(rng, dtype, (batch, m, k), turn_lhs), operand(rng, dtype, (batch, k, n), turn_rhs)
        o = np.full((batch, m, n), 77, DTYPES[accumulate])
        run(spec, shape, {"x": x, "w": w, "o": o}, x, w, split=True)
        check(o, x, w, accumulate)
        for options in ({"threads": 3, "grain": 1}, {"machine": replace(host(), cores=64, l2_bytes=64 << 10)}):
            other = np.full((batch, m, n), 78, DTYPES[accumulate])
            run(spec, shape, {"x": x, "w": w, "o": other}, x, w, split=True, **options)
            np.testing.assert_array_equal(o, other)


@pytest.mark.parametrize("fused", ["both", "lhs", "epilogue"])
def test_parts_of_sums_with_prologues_and_epilogues(fused):
    batch, m, n, k = shape = (2, 30, 70, 5000)
    rng = np.random.default_rng(9)
    lhs, rhs = elements(False, False)
    x, w = operand(rng, "f32" if fused == "epilogue" else "bf16", (batch, m, k), False), sample(rng, "f32", (1, k, n))
    scale, bias = sample(rng, "f32", k), sample(rng, "f32", n)
    raw = np.full((batch, m, n), np.nan, np.float32)
    activation = raw.astype(ml_dtypes.bfloat16)
    wide = np.broadcast_to(w, (batch, k, n))
    left = x if fused == "epilogue" else np.maximum(x.astype(np.float32), 0)
    right = wide * scale[None, :, None] if fused == "both" else wide
    params = {"x": "bf16*", "w": "f32*", "scale": "f32*"}
    if fused == "epilogue":
        lhs = PlainOperand("x", "f32")
        del params["x"]
    if fused != "both":
        rhs = PlainOperand("w", "f32")
        del params["w"]
    spec = ContractionSpec("layer", "f32", lhs, rhs, gelu_epilogue, (*GELU_PARAMS, *params.items()), rhs_batched=False)
    arrays = {"x": x, "w": w, "scale": scale, "bias": bias, "raw": raw, "activation": activation}
    run(spec, shape, arrays, x, wide, split=True)
    check_gelu(raw, activation, bias, left, right)


def test_rhs_that_is_the_same_for_the_whole_batch_is_packed_once():
    lhs, rhs = elements(False, False)
    params = (*GELU_PARAMS, ("x", "bf16*"), ("w", "f32*"), ("scale", "f32*"))
    spec = ContractionSpec("layer", "f32", lhs, rhs, gelu_epilogue, params)
    sizes = [
        step_plan(render(replace(spec, rhs_batched=batched), host()), 8, 50, 40, 30)[0].temporaries["t_packed"]
        for batched in (True, False)
    ]
    assert sizes[0] == 8 * sizes[1]


def test_a_product_of_plain_operands_compiles_nothing_of_its_own():
    first, second = render(plain("f32", "f32", "one"), host()), render(plain("f32", "f32", "two"), host())
    assert first.kernels == second.kernels


def test_parameters_that_a_kernel_has_itself_are_refused():
    with pytest.raises(ValueError, match="'t_sum'"):
        render(ContractionSpec("dot", "f32", PlainOperand("x", "f32"), PlainOperand("w", "f32"), PlainStore("o"),
                               (("t_sum", "f32*"),)), host())  # fmt: skip


def test_names_that_only_look_like_tiles_are_left_alone():
    names = blocks.namespace(["copy_stream", "tile_f32_2x8", "tile_step", "copy_f32_3", "transpose_f32_3x3"])
    assert {"tile_f32_2x8", "copy_f32_3"} <= names.keys()
    assert not {"copy_stream", "tile_step", "transpose_f32_3x3"} & names.keys()


def test_dtypes_that_no_tile_accumulates_are_refused():
    with pytest.raises(ValueError, match="bf16.*f32, f64"):
        tile_shape("bf16", 32, 16)


# Triple, processor, bytes and number of vector registers, an FMA on them, and a move between them and the stack.
MACHINES = {
    "avx2": ("x86_64-unknown-linux-gnu", "znver3", 32, 16, r"vfmadd.*%ymm", r"\(%rsp\), %ymm|%ymm\d+, -?\d*\(%rsp\)"),
    "avx512": ("x86_64-unknown-linux-gnu", "skylake-avx512", 64, 32, r"vfmadd.*%zmm", r"rsp\), %zmm|%zmm.*\(%rsp\)"),
    "neon": ("aarch64-unknown-linux-gnu", "neoverse-n1", 16, 32, r"fmla\s+v", r"(ld|st)[rp]\s+q.*\[sp"),
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "s32"])
@pytest.mark.parametrize("m, n, k", [(12, 64, 100), (32, 200, 37), (20, 128, 1300)])
def test_the_only_block_of_rows_copies_its_panels_itself(dtype, m, n, k):
    """A rhs that is contiguous along p as well: no step of its own packs what fills whole panels."""
    rng = np.random.default_rng(m)
    x, w = sample(rng, dtype, (1, m, k)), operand(rng, dtype, (1, k, n), True)
    o = np.zeros((1, m, n), DTYPES[dtype])
    run(plain(dtype, dtype), (1, m, n, k), {"x": x, "w": w, "o": o}, x, w)
    check(o, x, w, dtype)
    kernels = render(plain(dtype, dtype), host(), (1, m, n, k))
    *packing, product = step_plan(kernels, 1, m, n, k, (0, k, 1), (0, 1, k))
    assert product.arguments["copy_rhs"] == 1
    assert len(packing) == (n % kernels.blocking.tile.columns != 0)


def test_few_columns_get_a_tile_that_they_fill():
    shapes = {n: tile_shape("f32", 32, 16, n) for n in (1, 6, 8, 9, 10, 16, 20, 24, 40, 64, 70, 1000)}
    found = {n: (shape.rows, shape.columns) for n, shape in shapes.items()}
    assert [n for n in found if found[n] == (8, 8)] == [1, 6, 8]
    assert [n for n in found if found[n] == (4, 24)] == [20, 24, 70]
    assert [n for n in found if found[n] == (6, 16)] == [9, 10, 16, 40, 64, 1000]
    assert [tile_shape("f32", 64, 32, n).columns for n in (10, 30, 48, 64, 96)] == [16, 32, 48, 64, 48]
    assert tile_shape("s32", 32, 16, 6) == tile_shape("s32", 32, 16)


def test_few_rows_get_a_tile_of_more_columns():
    shapes = [tile_shape("f32", 64, 32, 1000, rows) for rows in (None, 1, 16, 17)]
    assert [(shape.rows, shape.columns) for shape in shapes] == [(8, 48), (6, 64), (6, 64), (8, 48)]
    assert tile_shape("f32", 64, 32, 10, 4).columns == 16 and tile_shape("f32", 32, 16, 1000, 4).rows == 6


@pytest.mark.parametrize("dtype", ["f32", "f64", "s32"])
@pytest.mark.parametrize("m, n, k", [(1, 1024, 300), (7, 700, 1000), (16, 2100, 130), (16, 5000, 200)])
def test_few_rows_read_a_wide_operand_in_runs(dtype, m, n, k):
    """Short steps through wide blocks, nothing packed but what fills no panel; the bits depend on nothing else."""
    rng = np.random.default_rng(m)
    x, w = sample(rng, dtype, (1, m, k)), sample(rng, dtype, (1, k, n))
    results = []
    for machine in (host(), replace(host(), cores=7), replace(host(), vector_bytes=16, l2_bytes=1 << 16)):
        for threads in (1, 3):
            o = np.zeros((1, m, n), DTYPES[dtype])
            run(plain(dtype, dtype), (1, m, n, k), {"x": x, "w": w, "o": o}, x, w, machine=machine, threads=threads)
            results.append(o)
    check(results[0], x, w, dtype)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    kernels = render(plain(dtype, dtype), replace(host(), cores=2), (1, m, n, k))
    *packing, product = step_plan(kernels, 1, m, n, k, (0, k, 1), (0, n, 1))
    assert 64 <= product.arguments["step"] <= 128
    assert len(packing) == (n % kernels.blocking.tile.columns != 0)
    assert product.arguments["row_blocks"] == 1 and product.arguments["column_blocks"] in (2, 4)


@pytest.mark.parametrize("dtype, n", [("f32", 6), ("f32", 20), ("f64", 3)])
@pytest.mark.parametrize("m, k", [(1, 5), (7, 40), (12, 700), (23, 9), (100, 64)])
def test_the_tile_of_few_columns_sums_to_the_same_bits(dtype, n, m, k):
    """As one tile's columns of a product that is wide enough for the usual tile."""
    rng = np.random.default_rng(m)
    x, w = sample(rng, dtype, (1, m, k)), sample(rng, dtype, (1, k, 64))
    results = []
    for columns in (n, 64):
        part, o = np.ascontiguousarray(w[:, :, :columns]), np.zeros((1, m, columns), DTYPES[dtype])
        run(plain(dtype, dtype), (1, m, columns, k), {"x": x, "w": part, "o": o}, x, part)
        results.append(o[:, :, :n])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("dtype, widest", [("f32", 0), ("f64", 0), ("f32", 1), ("f64", 1), ("f32", -1), ("f64", -1)])
def test_a_tile_keeps_its_sums_in_registers(name, dtype, widest):
    """For machines other than the host as well: the inner loop has one vector FMA a register of sums and no spill."""
    triple, cpu, vector_bytes, registers, fma, spill = MACHINES[name]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    shape = tile_shapes(dtype, vector_bytes, registers)[widest]
    module = ir.Module()
    module.triple = triple
    tiles.build_tile(module, dtype, shape.rows, shape.columns).linkage = "external"
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2)
    parsed = llvm.parse_assembly(str(module))
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(parsed, builder)
    text = target.emit_assembly(parsed)
    blocks = re.split(r"^\.?L\w+:", text, flags=re.MULTILINE)
    counts = sorted(len(re.findall(fma, block)) for block in blocks)
    vectors = shape.columns // shape.lanes
    counted = tiles.row_counts(shape.rows)
    row_bytes = shape.columns * tiles.ELEMENTS[dtype][2]
    if row_bytes >= tiles.LONG_ROW:
        counted.append(shape.rows)  # once more for panels that are far
    assert [count for count in counts if count] == sorted(rows * vectors for rows in counted)
    assert not any(re.search(spill, block) for block in blocks if re.search(fma, block))
    asked = sorted(len(re.findall(r"\bprfm|\bprefetch", block)) for block in blocks if re.search(fma, block))
    far = [1 + row_bytes // 64] * (row_bytes >= tiles.LONG_ROW)
    assert asked == [1] * (len(counted) - len(far)) + far
