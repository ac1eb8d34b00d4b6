"""Every kind of CUDA kernel, of every dtype that it takes, as machine code for sm_80 and sm_90."""

import re

import ml_dtypes
import numpy as np
import pytest
from cuda_plans import planned

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.cache import default_cache
from hloom.compiler.kernels.attention import structure
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cuda import scans
from hloom.compiler.targets.cuda.codegen.compile import available
from hloom.compiler.targets.cuda.codegen.cubins import cubins
from hloom.compiler.targets.cuda.sorting import choice
from hloom.compiler.targets.cuda.target import CudaTarget

pytestmark = pytest.mark.skipif(not available(), reason='the extra is missing: pip install "hloom[cuda]"')

SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
FLOATS, COMPLEX = ("float16", "bfloat16", "float32", "float64"), ("complex64", "complex128")
REAL = (*SIGNED, *UNSIGNED, *FLOATS)
NUMBERS = (*REAL, *COMPLEX)
ALL = ("bool", *NUMBERS)


def array(dtype: str, *dims: int) -> np.ndarray:
    values = np.arange(np.prod(dims, dtype=int)).reshape(dims) % 5
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def either(dtype: str, x, y):
    """An element-wise function of all dtypes."""
    if dtype == "bool":
        return hnp.where(x == y, ~x, x & y)
    return hnp.where(x == y, -x, hnp.abs(x) * y + 1) if dtype in REAL else hnp.where(x == y, -x, x * y + 1)


def combined(dtype: str):
    """What scatters, windows and reductions combine with, and where they begin."""
    return (lax.bitwise_or, False) if dtype == "bool" else (lax.add, np.zeros((), array(dtype, 1).dtype)[()])


def loop(dtype):
    return lambda x, y: either(dtype, x, y), array(dtype, 1001), array(dtype, 1001)


def rows_by_four(dtype):
    return lambda x, y: either(dtype, x, y), array(dtype, 30, 64), array(dtype, 64)


def bit_casts(dtype):
    others = {2: ("int16", "uint16", "float16", "bfloat16"), 4: ("int32", "float32"), 8: ("int64", "float64")}
    x = array(dtype, 1024)
    targets = [d for d in others[x.dtype.itemsize] if d != dtype]
    return lambda x: tuple(lax.bitcast_convert_type(x, d) + 1 for d in targets), x


def update(dtype):
    return lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)), array(dtype, 40, 8), array(dtype, 4, 8), np.int32(3)


def row(dtype):
    if dtype == "bool":
        return lambda x: x & ~x.any(1, keepdims=True), array(dtype, 64, 100)
    return lambda x: x - x.sum(1, keepdims=True), array(dtype, 64, 100)


def long_rows(dtype):
    return lambda x: x - x.max(1, keepdims=True), array(dtype, 64, 3000)


def reduce(dtype):
    return lambda x: x.any(0) if dtype == "bool" else x.sum(0), array(dtype, 3000, 70)


def transpose(dtype):
    return lambda x, y: either(dtype, x.T, y), array(dtype, 70, 50), array(dtype, 50, 70)


def scatter(dtype):
    operation = "set" if dtype == "bool" else "add"
    index = np.arange(80) % 40
    return lambda x, i, u: getattr(x.at[i], operation)(u), array(dtype, 90, 5), index, array(dtype, 80, 5)


def sort(dtype):
    return lambda x: lax.sort(x, 1), array(dtype, 10, 64)


def digits(dtype):
    return lambda x: lax.sort(x, 0), array(dtype, 10000)


def cumulative(dtype):
    return lambda x: lax.cumsum(x, 1), array(dtype, 40, 300)


def groups(dtype):
    return lambda x: lax.cumsum(x, 0), array(dtype, 5000)


def transform(dtype):
    return hnp.fft.fft, array(dtype, 4, 12)


def best(dtype):
    return lambda x: lax.top_k(x, 3), array(dtype, 10, 40)


def window(dtype):
    combine, start = combined(dtype)
    return lambda x: lax.reduce_window(x, start, combine, (1, 3), (1, 2), "SAME"), array(dtype, 5, 12)


def product(dtype):
    return lax.dot, array(dtype, 33, 45), array(dtype, 45, 35)


def convolution(dtype):
    names = ("NHWC", "HWIO", "NHWC")
    convolve = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=names)  # noqa: E731
    return convolve, array(dtype, 1, 6, 6, 8), array(dtype, 3, 3, 8, 8)


def attention(dtype):
    def attend(q, k, v):
        scores = hnp.einsum("bid,bjd->bij", q, k)
        scores = scores.astype("float32") if scores.dtype.itemsize == 2 else scores
        power = hnp.exp(scores - scores.max(-1, keepdims=True))
        weights = power / power.sum(-1, keepdims=True)
        return hnp.einsum("bij,bjd->bid", weights.astype(q.dtype), v)

    return attend, *(array(dtype, 2, 32, 16) for _ in range(3))


# What is compiled, its dtypes, and what stands in the name of one of its kernels. topk has none for uint64, a whole
# attention none for float64; products of pred and complex numbers are rows of sums.
KINDS = [
    (loop, ALL, "loop_"),
    (rows_by_four, ALL, "loop_"),
    (bit_casts, ("int16", "uint16", "int32", "int64", *FLOATS), "loop_"),
    (update, ALL, "update_"),
    (row, ALL, "row_"),
    (long_rows, REAL, "row_"),
    (reduce, ALL, "reduce_"),
    (transpose, ALL, "transpose"),
    (scatter, ALL, "scatter_chain"),
    (sort, ALL, "sort_"),
    (digits, ("float16",), "sort_scatter"),
    (cumulative, NUMBERS, "running_"),
    (groups, ("float16",), "running_part"),
    (transform, ("float32", "float64", *COMPLEX), "fft"),
    (best, tuple(dtype for dtype in REAL if dtype != "uint64"), "topk"),
    (window, ALL, "window_"),
    (product, REAL, "product_"),
    (product, ("bool", *COMPLEX), "row_"),
    (convolution, ("int8", "float16"), "product_"),
    (attention, ("float16", "bfloat16", "float32"), "attention"),
]
BOTH = ("bool", "int8", "float16", "bfloat16")  # on sm_80 too; the other dtypes there are slow tests, for their number

CASES = [
    pytest.param(make, dtype, name, arch, id=f"{make.__name__}-{dtype}-{arch}",
                 marks=[pytest.mark.slow] if arch == "sm_80" and dtype not in BOTH else [])
    for make, dtypes, name in KINDS for dtype in dtypes for arch in ("sm_90", "sm_80")
]  # fmt: skip


@pytest.mark.parametrize("make, dtype, name, arch", CASES)
def test_every_kind_is_compiled_for_every_dtype(make, dtype, name, arch, monkeypatch):
    monkeypatch.setattr(structure, "BLOCKS", 1)
    monkeypatch.setattr(scans, "TILES", 1)
    monkeypatch.setattr(choice, "estimates", lambda *_: (1.0, 0.0) if make is digits else (0.0, 1.0))
    function, *arrays = make(dtype)
    target = CudaTarget(arch)
    plan = make_plan(run_passes(hl.make_module(function)(*arrays), PIPELINE, target=target), target)
    sources = list(dict.fromkeys(step.launch.source for step in plan.kernels()))
    assert any(name in source.name for source in sources), [source.name for source in sources]
    for source, code in zip(sources, cubins(sources, arch, default_cache()), strict=True):
        assert code.cubin[:4] == b"\x7fELF" and code.arch == arch
        assert code.spills == 0 and code.stack == 0, (source.name, code.spills, code.stack)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_which_loops_go_by_four(dtype):
    """All of real numbers, so that the sweep above has seen how four elements of each dtype become registers."""
    function, *arrays = loop(dtype)
    plan, _ = planned(function, *arrays)
    (step,) = plan.kernels()
    assert ("copy4" in step.launch.source.text) == (dtype in REAL)


def test_halves_are_loaded_four_at_a_time():
    plan, _ = planned(lambda x: x + 1, array("float16", 4096))
    (code,) = cubins([step.launch.source for step in plan.kernels()], "sm_90")
    assert re.search(r"ld\.global\.nc\.v4\.u16", code.ptx) and "st.global.v4.u16" in code.ptx
    assert len(re.findall(r"cvt\.f32\.f16", code.ptx)) == 5, "four, and one of the rest"
