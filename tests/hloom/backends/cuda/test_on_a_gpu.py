"""Programs on a real GPU, compared with the reference interpreter or with the CPU. Skipped where there is no GPU.

Everything else in this folder runs on simulated devices, which execute the text of kernels: what the assembler, the
driver and NVIDIA's libraries make of them is tested here only.
"""

from __future__ import annotations

import random
import threading
import zlib

import ml_dtypes
import numpy as np
import pytest
from loop_programs import LoopPrograms
from loop_programs import arguments as loop_arguments
from random_programs import Programs, arguments, check_outputs, overflows_narrow_floats

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cuda.backend import CudaBackend
from hloom.ir.interpret import run
from hloom.platforms.backend import CompileOptions
from hloom.runtime.cuda.discovery import available
from hloom.runtime.cuda.errors import CudaError

WHY = available()
pytestmark = pytest.mark.skipif(WHY is not None, reason=f"no GPU: {WHY.found if WHY else ''}")
GPU = "cuda:0"
CHUNK = 10  # random programs in a test


def compiled(module):
    return CudaBackend().compile(module, CompileOptions(device=GPU))


def normal(*dims, seed=0, dtype=np.float32):
    values = np.random.default_rng(seed).standard_normal(dims)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * np.random.default_rng(seed + 1).standard_normal(dims)
    return values.astype(dtype)


def check(function, *arrays, tolerance: float = 2e-5, turns: int = 1) -> None:
    """The results of a function on the GPU are those on the CPU."""
    expected = hl.tree.leaves(hl.jit(function, device="cpu:0")(*arrays))
    on_gpu = hl.jit(function, device=GPU)
    for _ in range(turns):
        for got, want in zip(hl.tree.leaves(on_gpu(*arrays)), expected, strict=True):
            assert str(got.device) == GPU
            got, want = np.asarray(got), np.asarray(want)
            assert got.dtype == want.dtype and got.shape == want.shape
            if want.dtype.kind in "biu":
                np.testing.assert_array_equal(got, want)
                continue
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            got, want = got.astype(wide), want.astype(wide)
            finite = np.abs(want[np.isfinite(want)])
            scale = float(finite.max()) if finite.size else 1.0
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_random_programs(first):
    for seed in range(first, first + CHUNK):
        programs = Programs(random.Random(seed))
        module = programs.module(12)
        arrays = arguments(module, seed)
        if overflows_narrow_floats(module, arrays):
            continue
        executable = compiled(module)
        for _ in range(2):
            got = [value.numpy() for value in executable([a.copy() for a in arrays])]
            try:
                check_outputs(programs, module, got, arrays)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from None


@pytest.mark.parametrize("first", range(0, 100, CHUNK))
def test_random_loops(first):
    for seed in range(first, first + CHUNK):
        module = LoopPrograms(seed).module()
        given = loop_arguments(module, seed)
        want = run(module, given)
        executable = compiled(module)
        for _ in range(2):
            for got, expected in zip(executable(given), want if isinstance(want, tuple) else (want,), strict=True):
                np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, err_msg=f"seed {seed}")


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-3, -3.7, 12.5, 88.0, -104.0, 1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan]
UNARY = """exp expm1 log log1p log2 sqrt cbrt sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh
floor ceil trunc rint abs sign square reciprocal exp2 log10 negative isfinite isnan signbit""".split()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name, dtype):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if kind.kind == "c" and name in "floor ceil trunc rint cbrt signbit log10".split():
        pytest.skip("not a function of complex numbers")
    with np.errstate(all="ignore"):
        values = np.concatenate([np.array(SPECIAL), np.random.default_rng(zlib.crc32(name.encode())).normal(size=1000)])
        values = values.astype(kind) if kind.kind != "c" else normal(1000, dtype=kind)
    bound = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-13, "complex128": 1e-13}.get(dtype, 2e-6)
    got = np.asarray(hl.jit(getattr(hnp, name), device=GPU)(values))
    want = np.asarray(hl.jit(getattr(hnp, name), device="cpu:0")(values))
    if want.dtype.kind == "b":
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if kind.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=bound, atol=float(np.finfo(np.float32).tiny))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integers(dtype):
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    x, y = (rng.integers(info.min, info.max, 3000, dtype=dtype) for _ in range(2))

    def all_of(x, y):
        shift = y & np.array(7, dtype)
        results = [x + y, x - y, x * y, x & y, x | y, x ^ y, ~x, x << shift, x >> shift, x // (y | 1), x % (y | 1)]
        return [*results, hnp.minimum(x, y), hnp.maximum(x, y), x < y, x.sum(), hnp.cumsum(x), hnp.sort(x), x.max()]

    check(all_of, x, y)


DOTS = [
    (1, 1, 1),
    (5, 7, 3),
    (64, 64, 64),
    (65, 129, 33),
    (128, 1000, 10),
    (300, 2048, 512),
    (1, 4096, 4096),
    (513, 3, 77),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8", "complex64"])
@pytest.mark.parametrize("dims", DOTS)
def test_products(dims, dtype):
    m, k, n = dims
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if dtype == "int8":
        x, y = (np.random.default_rng(s).integers(-9, 9, d, np.int8) for s, d in ((0, (m, k)), (1, (k, n))))
        check(lambda x, y: lax.dot(x, y, preferred_element_type=np.int32), x, y)
        return
    x, y = normal(m, k, dtype=kind) / k**0.5, normal(k, n, seed=2, dtype=kind)
    x = x.astype(kind)
    bound = {"bfloat16": 2e-2, "float16": 3e-3, "float64": 1e-12}.get(dtype, 2e-5)
    check(lambda x, y: hnp.tanh(x @ y) if kind.kind != "c" else x @ y, x, y, tolerance=bound)
    check(lambda x, y: (x.T @ y.T, (x * 2).sum()), normal(k, m, dtype=kind), normal(n, k, dtype=kind), tolerance=bound)


@pytest.mark.parametrize("batch", [1, 3, 40])
def test_batched_products(batch):
    check(lambda x, y: hl.nn.softmax(x @ y, axis=-1), normal(batch, 33, 64), normal(batch, 64, 50))
    check(lambda x, y: hnp.einsum("bij,kj->bki", x, y), normal(batch, 33, 64), normal(50, 64))


CONVOLUTIONS = [  # image, filter, strides, padding, dilation, groups
    ((2, 3, 32, 32), (8, 3, 3, 3), (1, 1), "SAME", (1, 1), 1),
    ((8, 512, 7, 7), (64, 512, 3, 3), (1, 1), "SAME", (1, 1), 1),
    ((1, 16, 20, 20), (16, 1, 5, 5), (1, 1), "SAME", (1, 1), 16),
    ((2, 8, 31, 29), (12, 4, 3, 3), (2, 2), "VALID", (1, 1), 2),
    ((2, 8, 31, 29), (12, 8, 3, 3), (1, 1), "VALID", (2, 2), 1),
    ((2, 64, 14, 14), (128, 64, 1, 1), (1, 1), "SAME", (1, 1), 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_and_their_gradients(case):
    image, kernel, strides, padding, dilation, groups = case

    def convolved(x, w):
        return lax.conv_general_dilated(x, w, strides, padding, rhs_dilation=dilation, feature_group_count=groups)

    x, w = normal(*image), normal(*kernel, seed=1)
    check(convolved, x, w)
    check(hl.grad(lambda x, w: (convolved(x, w) ** 2).sum(), argnums=(0, 1)), x, w, tolerance=1e-4)


@pytest.mark.parametrize("dims", [(7,), (1000,), (70, 33), (1, 4097), (3, 100000), (2000, 5), (4, 5, 6)])
def test_reductions_sorts_and_scans(dims):
    x = normal(*dims)

    def several(x):
        last = x.ndim - 1
        sums = [x.sum(), x.sum(0), x.sum(last), x.max(last), x.argmax(last), x.var(last), hnp.logaddexp.reduce(x, last)]
        return [*sums, hnp.cumsum(x, last), hnp.sort(x, last), hnp.argsort(x, last), hl.nn.softmax(x, -1), x.T + 1]

    check(several, x, tolerance=1e-4)
    check(lambda x: lax.top_k(x, 3), x)


@pytest.mark.parametrize("n", [1, 2, 8, 60, 97, 128, 1000, 1024, 5040, 65536])
def test_fourier_transforms(n):
    check(lambda z: (hnp.fft.fft(z), hnp.fft.ifft(z)), normal(5, n, dtype=np.complex64), tolerance=1e-4)
    check(lambda x: hnp.fft.irfft(hnp.fft.rfft(x) * 2, n), normal(5, n), tolerance=1e-4)
    check(lambda z: hnp.fft.fft2(z), normal(12, n, dtype=np.complex128), tolerance=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("n", [1, 5, 33, 100])
def test_linear_algebra(n, dtype):
    a, b = normal(3, n, n, dtype=dtype) + 3 * np.eye(n, dtype=dtype), normal(3, n, 2, seed=5, dtype=dtype)
    bound = 1e-9 if np.dtype(dtype).itemsize // (2 if np.dtype(dtype).kind == "c" else 1) == 8 else 2e-3
    check(lambda a, b: hnp.linalg.solve(a, b), a, b, tolerance=bound)
    check(lambda a: hnp.linalg.cholesky(a @ a.conj().swapaxes(-1, -2) + hnp.eye(n, dtype=a.dtype)), a, tolerance=bound)
    check(lambda a: hnp.linalg.svd(a, compute_uv=False), a, tolerance=bound)
    check(lambda a: hnp.linalg.eigvalsh(a + a.conj().swapaxes(-1, -2)), a, tolerance=bound)

    def again(a):
        q, r = hnp.linalg.qr(a)
        return q @ r

    check(again, a, tolerance=bound)


def test_indexing_and_scatters():
    x, i = normal(1000, 33), np.random.default_rng(1).integers(0, 1000, 5000)
    check(
        lambda x, i: (x[i], x[i, 3], x.at[i].add(1.0), x.at[i, 5].max(2.0), hnp.bincount(i, length=1000)),
        x,
        i,
        tolerance=1e-4,
    )
    check(hl.grad(lambda x, i: (x[i] ** 2).sum()), x, i, tolerance=1e-4)
    check(
        lambda x: (hnp.roll(x, 7, 0), x[::-3], hnp.concatenate([x, x[:5] * 2]), hnp.pad(x, 3), x.reshape(33, 1000)), x
    )


def test_random_numbers_are_those_of_the_cpu():
    check(lambda key: hl.random.bits(key, (1000,)), hl.random.key(3))
    check(lambda key: (hl.random.normal(key, (1000,)), hl.random.uniform(key, (7, 9))), hl.random.key(3))


def test_control_flow():
    x = np.abs(normal(40, 30)) + 1

    def newton(x):
        return lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1, 0.5 * (s[1] + x / s[1])), (0, hnp.ones_like(x)))[
            1
        ]

    check(newton, x, turns=3)
    check(lambda x: lax.while_loop(lambda v: v.sum() < 1e6, lambda v: v * 2 + hnp.roll(v, 1), x), x, turns=3)
    check(lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), hnp.zeros(30, np.float32), x), x, turns=3)
    for which in (0, 1, 2, 9):
        check(
            lambda k, x: lax.switch(k, [lambda v: hnp.cumsum(v, 1), lambda v: hnp.sort(v, 1), lambda v: -v], x),
            np.int32(which), x,
        )  # fmt: skip
        check(lambda k, x: lax.cond(k > 1, lambda v: v @ v.T, lambda v: v @ v.T + 1, x), np.int32(which), x)
    check(hl.grad(lambda x: lax.scan(lambda c, r: (hnp.tanh(c + r), None), x[0], x)[0].sum()), x, tolerance=1e-4)


def test_a_training_step_that_donates():
    w1, w2 = normal(64, 128), normal(128, 10, seed=2)
    x, y = normal(32, 64, seed=3), np.random.default_rng(0).integers(0, 10, 32)

    def loss(params, x, y):
        logits = hnp.tanh(x @ params[0]) @ params[1]
        return -hl.nn.log_softmax(logits)[hnp.arange(32), y].mean()

    def step(params, x, y):
        value, gradient = hl.value_and_grad(loss)(params, x, y)
        return [p - 0.1 * g for p, g in zip(params, gradient, strict=True)], value

    results = {}
    for device in (GPU, "cpu:0"):
        params, values = [hl.device_put(w / 8, device) for w in (w1, w2)], []
        function = hl.jit(step, donate_argnums=0, device=device)
        for _ in range(20):
            params, value = function(params, x, y)
            values.append(float(value))
        results[device] = values
    assert results[GPU][-1] < results[GPU][0] / 2
    np.testing.assert_allclose(results[GPU], results["cpu:0"], rtol=1e-4)


def test_a_python_function_inside():
    def with_host(x):
        shape = hl.ShapeDtypeStruct(x.shape, x.dtype)
        return hl.pure_callback(lambda a: np.flip(np.asarray(a), 0), shape, hnp.sin(x)) + x

    check(with_host, normal(50, 3), turns=3)


def test_results_are_bitwise_equal_from_run_to_run():
    x = normal(3000, 257)
    function = hl.jit(lambda x: (x.sum(), x.sum(0), x.T @ x, hnp.cumsum(x, 0), hl.nn.softmax(x)), device=GPU)
    first = [np.asarray(value).tobytes() for value in function(x)]
    for _ in range(5):
        assert [np.asarray(value).tobytes() for value in function(x)] == first


def test_two_threads_call_two_functions():
    x, failures = normal(300, 300), []

    def work(k):
        function = hl.jit(lambda x: hnp.tanh(x @ x + k).sum(0), device=GPU)
        want = np.tanh(x.astype(np.float64) @ x + k).sum(0)
        for _ in range(50):
            if not np.allclose(function(x), want, rtol=1e-3, atol=1e-2):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_too_much_memory_is_an_error_and_the_device_goes_on():
    with pytest.raises(CudaError, match="memory"):
        hl.jit(lambda: hnp.ones((1 << 20, 1 << 18), np.float64), device=GPU)().block_until_ready()
    check(lambda x: x * 2, normal(10))


def test_arrays_are_exchanged_with_other_libraries():
    x = hl.device_put(normal(12, 5), GPU)
    torch = pytest.importorskip("torch")
    view = torch.from_dlpack(x)
    assert view.is_cuda
    np.testing.assert_array_equal(view.cpu().numpy(), normal(12, 5))
    theirs = torch.arange(7, dtype=torch.float32, device="cuda", requires_grad=True) + 1
    ours = hnp.from_dlpack(theirs)
    assert str(ours.device) == GPU and ours.unsafe_buffer_pointer() == theirs.data_ptr()
    np.testing.assert_array_equal(hl.jit(lambda v: v * 2)(ours), np.arange(1, 8) * 2)
    np.testing.assert_array_equal(hl.jit(lambda v: v.sum())(theirs), 28)
