"""The LLVM emitter against Numba's front end: the same bits from the same kernel text."""

from __future__ import annotations

import ast
import functools
import weakref

import numpy as np
import pytest

from hloom.backends.compile import optimized_plan
from hloom.backends.cpu.compilation import compile_module
from hloom.backends.cpu.driver import driver
from hloom.benchmarks import libraries
from hloom.benchmarks.workloads import WORKLOADS
from hloom.compiler.cache import Cache
from hloom.compiler.kernels.codegen.source import KernelSource, parsed
from hloom.compiler.targets.cpu import backend, codegen, library
from hloom.compiler.targets.cpu.llvm_emitter import analysis, emitter
from hloom.compiler.targets.cpu.numba_frontend import lower
from hloom.compiler.targets.cpu.prebuilt import keys
from hloom.ir.types import DTYPES
from hloom.runtime import native

RANDOM = np.random.default_rng(0)


def run(kernel: KernelSource, arrays, front_end) -> list[np.ndarray]:
    """The arrays after one launch, of all items, compiled from what `front_end` makes of the text."""
    import ctypes

    code = backend.compiled(*front_end(kernel))
    address = native.load(code, (kernel.name,))[kernel.name]
    arrays = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arrays]
    block = np.array(words, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(block.ctypes.data, 0, 1)
    return [a for a in arrays if isinstance(a, np.ndarray)]


def through_numba(kernel):
    return lower.kernel_module(kernel, library.module_text)


def through_emitter(kernel):
    text, names = emitter.kernel_text(kernel, backend.triple(), library.signature)
    return text, [library.module_text(name) for name in names]


def same(text: str, params: tuple[str, ...], *arrays) -> list[np.ndarray]:
    """Both front ends' results of a text, which have to be the same bytes."""
    name = next(node.name for node in ast.parse(text).body)
    kernel = KernelSource(name, text, (*params, "s64", "s64"))
    one, other = run(kernel, arrays, through_emitter), run(kernel, arrays, through_numba)
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()
    return one


@pytest.mark.parametrize("dtype", ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"])
def test_operators_of_one_integer(dtype):
    info = np.iinfo(DTYPES[dtype])
    x = np.array([info.min, info.max, 0, 1, 2, info.max // 2, 5, 7], info.dtype)
    integers = ["-v", "~v", "-v + v", "~v + v", "(~v) & v", f"{dtype}(-v)", f"{dtype}(~v)", "-v < v", "v > ~v"]
    lines = [f"m[{8 * k} + i] = {text}" for k, text in enumerate(integers)]
    lines += [f"f[{8 * k} + i] = {text}" for k, text in enumerate(["f64(-v)", "f64(~v)"])]
    text = "def k(x, m, f, lo, hi):\n    for i in range(8):\n        v = x[i]\n" + "".join(
        f"        {line}\n" for line in lines
    )
    same(text, (f"{dtype}*", "s64*", "f64*"), x, np.zeros(8 * len(integers), np.int64), np.zeros(16))


def test_the_least_integer():
    kernel = KernelSource("k", "def k(x, lo, hi):\n    x[0] = -9223372036854775808\n", ("s64*", "s64", "s64"))
    assert run(kernel, [np.zeros(1, np.int64)], through_emitter)[0][0] == -(1 << 63)


def test_every_operator():
    lines = ["v = x[i]", "w = y[i]", "s = a[i]", "t = b[i]", "u = c[i]"]
    floats = ["v + w", "v - w", "v * w", "v / w", "-v", "f32(f64(v) * w)", "max_f32(v, w)", "select(v < w, v, w)"]
    floats += ["v if v > w else w", "f32(s)", "f32(0.1)", "f32(nan)", "f32(s * 0.5)", "min(v, w)", "f32(s / t)"]
    integers = ["s + t", "s - t", "s * t", "-s", "s & t", "s | t", "s ^ t", "s >> 3", "s << 2", "s // 7", "s % 7"]
    integers += ["s // t", "s % t", "min(s, t, 5)", "max(s, t)", "s if s < t else t", "f64(v) * 8", "u >> 1", "u ^ 5"]
    integers += ["~(s + 0)", "s * (t > 3)", "(s > 1) & (t > 1)", "s8(u)", "quotient(s64(u), 3)"]
    tests = ["s < t", "s == t", "u >= 7", "v != w", "s < t and v < w", "s < t or v < w", "not s < t", "v <= 0.5"]
    lines += [f"f[{k} * n + i] = {text}" for k, text in enumerate(floats)]
    lines += [f"m[{k} * n + i] = s32({text})" for k, text in enumerate(integers)]
    lines += [f"store_pred(p, {k} * n + i, {text})" for k, text in enumerate(tests)]
    body = "".join(f"            {line}\n" for line in lines)
    head = "def every(x, y, a, b, c, f, m, p, n, lo, hi):\n    for item in range(lo, hi):\n        for i in range(n):\n"
    text = head + body
    n = 100
    x, y = (RANDOM.standard_normal(n, dtype=np.float32) for _ in range(2))
    x[:3] = np.nan, np.inf, -0.0
    a, b = (RANDOM.integers(-20, 20, n).astype(np.int32) for _ in range(2))
    c = RANDOM.integers(0, 1 << 32, n).astype(np.uint32)
    outs = [
        np.zeros((len(floats), n), np.float32),
        np.zeros((len(integers), n), np.int32),
        np.zeros((len(tests), n), bool),
    ]
    same(text, ("f32*", "f32*", "s32*", "s32*", "u32*", "f32*", "s32*", "pred*", "s64"), x, y, a, b, c, *outs, n)


def test_loops_branches_and_variables():
    text = """def walk(x, o, n, lo, hi):
    best = scratch_f32(4)
    for item in range(lo, hi):
        count = 0
        for j in range(4):
            best[j] = f32(-inf)
        for i in range(n):
            if x[i] < f32(0.0):
                continue
            if i > 90:
                break
            v = x[i]
            k = 3
            while k > 0 and best[k - 1] < v:
                best[k] = best[k - 1]
                k -= 1
            best[k] = v
            count += 1
        p = 0
        for p in range(0, n - 3, 4):
            count += p
        for p in range(p, n):
            count = count + 1
        total = f32(0)
        for i in range(n - 1, -1, -2):
            total = sum_f32(total, x[i])
        for j in range(4):
            o[j] = best[j]
        o[4] = count
        o[5] = total if n > 5 else best[0]
"""
    same(text, ("f32*", "f32*", "s64"), RANDOM.standard_normal(100, dtype=np.float32), np.zeros(6, np.float32), 100)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "pred"])
def test_narrow_elements(dtype):
    text = f"def narrow(x, o, n, lo, hi):\n    for i in range(n):\n        v = load_{dtype}(x, i)\n"
    text += f"        store_{dtype}(o, i, {'not v' if dtype == 'pred' else 'v * f32(1.7)'})\n"
    kind = {"f16": np.float16, "bf16": np.uint16, "pred": bool}[dtype]
    x = (
        RANDOM.integers(0, 1 << 14, 50).astype(np.uint16).view(np.float16)
        if dtype == "f16"
        else RANDOM.integers(0, 2, 50)
    )
    same(text, (f"{dtype}*", f"{dtype}*", "s64"), x.astype(kind), np.zeros(50, kind), 50)


def test_library_functions():
    names = [n for n in ("exp_f32", "tanh_f32", "log1p_f32", "erf_f32", "pow_f32") if library.signature(n)]
    calls = "".join(
        f"        o[{k} * n + i] = {name}({'x[i], x[i]' if name == 'pow_f32' else 'x[i]'})\n"
        for k, name in enumerate(names)
    )
    text = f"def library(x, o, n, lo, hi):\n    for i in range(n):\n{calls}"
    x = RANDOM.standard_normal(1000, dtype=np.float32)
    same(text, ("f32*", "f32*", "s64"), x, np.zeros((len(names), 1000), np.float32), 1000)


def test_what_it_does_not_know_goes_to_numba():
    text = "def odd(x, o, lo, hi):\n    for i in range(lo, hi):\n        o[i] = f32(0) < x[i] < f32(1)\n"
    kernel = KernelSource("odd", text, ("f32*", "f32*", "s64", "s64"))
    with pytest.raises(emitter.Unsupported):
        emitter.kernel_text(kernel, backend.triple(), library.signature)
    assert codegen.compile_kernels([kernel])[0].symbols == ("odd",)


def made_once(thing):
    return thing


CHOSEN = """
gelu_16k adam_4m softmax layer_norm_grad argmax top_k cumsum_rows transpose_heads histogram one_hot matmul_odd
matmul_bf16 matmul_s8 conv_depthwise max_pool_grad mlp_step while_newton mandelbrot monte_carlo k_means rfft_rows
fft_filter""".split()


@pytest.mark.parametrize("name", CHOSEN)
def test_programs_have_the_same_bits(name, monkeypatch):
    workload, lib = WORKLOADS[name], libraries.Hloom(True)
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    module = lib.compiled(workload).lower(*map(lib.prepare, arrays)).module
    results, through = [], []
    driver()
    for unknown in (False, True):
        if unknown:

            def refuse(*_):
                raise emitter.Unsupported("for comparison")

            monkeypatch.setattr(emitter, "kernel_text", refuse)
        monkeypatch.setattr("hloom.backends.cpu.driver._kernels", weakref.WeakValueDictionary())
        monkeypatch.setattr("hloom.backends.cpu.driver.default_cache", functools.partial(made_once, Cache(None)))
        monkeypatch.setattr(keys, "kernel_code", lambda kernel, name: None)
        made = compile_module(module)
        through.append(made.kernels_compiled)
        results.append([r.tobytes() for r in made([np.asarray(a) for a in arrays])])
    assert results[0] == results[1] and through[0] == through[1] > 0


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_workload_needs_the_other_front_end(name):
    workload, lib = WORKLOADS[name], libraries.Hloom(True)
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    module = lib.compiled(workload).lower(*map(lib.prepare, arrays)).module
    _, plan, _ = optimized_plan(module)
    for step in plan.kernels():
        given = [a for a in step.launch.arguments if isinstance(a, KernelSource)]
        for kernel in (step.launch.source, *given):
            emitter.kernel_text(kernel, backend.triple(), library.signature)  # raises Unsupported


@pytest.mark.parametrize("source, target", [("f32", "s32"), ("f64", "u64"), ("s32", "u32"), ("u16", "s16")])
def test_bits_read_as_another_dtype(source, target):
    values = RANDOM.integers(-(2**60), 2**60, 9).view(DTYPES[source])[:9].copy()
    text = f"""def bits(x, y, n, lo, hi):
    for i in range(n):
        y[i] = bitcast_{source}_{target}(x[i])
        x[i] = bitcast_{target}_{source}(y[i])
"""
    params = (f"{source}*", f"{target}*", "s64")
    back, made = same(text, params, values, np.zeros(9, DTYPES[target]), 9)
    assert made.tobytes() == values.tobytes() == back.tobytes()


def test_loops_of_blocks_are_left_as_they_are():
    moves = "def f(x, o, n, lo, hi):\n    for i in range(lo, hi):\n        for j in range(n):\n"
    copy = "            copy_f32_8(address(x) + j * 32, address(o) + j * 32)\n"
    sums = "            o[j] = x[j] + f32(1)\n"
    tile = f"            tile_f32_6x16(address(x), {', '.join('1' * 15)})\n"
    params = ("f32*", "f32*", "s64", "s64", "s64")
    texts = [
        emitter.kernel_text(KernelSource("f", moves + body, params), "t", library.signature)[0]
        for body in (copy, sums, tile)
    ]
    assert [text.startswith(analysis.EXPLICIT) for text in texts] == [True, False, True]
    assert ["llvm.loop.unroll.disable" in text for text in texts] == [False, False, True]
    x = RANDOM.standard_normal(64, dtype=np.float32)
    (_, result) = same(moves + copy, params[:-2], x, np.zeros(64, np.float32), 8)
    assert (result == x).all()


RUNS = """def runs(x, d, o, n, m, lo, hi):
    block = scratch_f32(64)
    for j in range(64):
        block[j] = f32(0)
    for j in range(n):
        block[j] = x[3 + j]
    for j in range(m, n):
        block[j * 0 + m + j] = x[m + j]
    for j in range(n, m):
        block[j] = x[j]
    for j in range(m):
        block[40 + j] = d[j]
    for j in range(0, 6, 2):
        block[50 + j] = x[j]
    for j in range(5):
        block[56 + j] = x[j * 2]
    q = 7
    for q in range(3):
        block[20 + q] = x[q]
    for i in range(64):
        o[i] = block[i]
"""


@pytest.mark.parametrize("n, m", [(10, 2), (0, 0), (1, 5), (17, 3)])
def test_runs_into_scratch_memory_have_the_meaning_of_their_loops(n, m):
    """Zeros and copies become calls of the C library; other strides, dtypes and variables that live on do not."""
    x, d = RANDOM.standard_normal(64, dtype=np.float32), RANDOM.standard_normal(64)
    (*_, result) = same(RUNS, ("f32*", "f64*", "f32*", "s64", "s64"), x, d, np.zeros(64, np.float32), n, m)
    assert result[20:23].tobytes() == x[:3].tobytes()
    made = emitter.kernel_text(
        KernelSource("runs", RUNS, ("f32*", "f64*", "f32*", *["s64"] * 4)), "t", library.signature
    )[0]
    assert made.count("call void @llvm.memset") == 1 and made.count("call void @llvm.memcpy") == 2


def test_moves_to_places_apart_are_left_to_nobody():
    apart = "def f(x, o, n, lo, hi):\n    for j in range(lo, hi):\n        o[j * n] = x[j]\n"
    beside = apart.replace("j * n", "j")
    params = ("f32*", "f32*", "s64", "s64", "s64")
    texts = [through_emitter(KernelSource("f", text, params))[0] for text in (apart, beside)]
    assert ["llvm.loop.vectorize.enable" in text for text in texts] == [True, False]
    assert not any(text.startswith(analysis.EXPLICIT) for text in texts[1:])


def test_comparisons_and_choices_stay_in_lanes():
    text = """def lanes(x, y, a, b, o, n, lo, hi):
    for i in range(n):
        v = x[i]
        w = y[i]
        t = a[i] == s32(i)
        u = v + w
        c = v > f32(0.5)
        r = u if c else v
        b[i] = t
        o[i] = r
"""
    kernel = KernelSource("lanes", text, ("f32*", "f32*", "s32*", "s32*", "f32*", "s64", "s64", "s64"))
    made = through_emitter(kernel)[0]
    assert "icmp eq i32" in made and "select" not in made
    x, y, o = (RANDOM.standard_normal(100, dtype=np.float32) for _ in range(3))
    a = np.arange(100, dtype=np.int32)[::-1].copy()
    same(text, kernel.params[:-2], x, y, a, np.zeros(100, np.int32), o, 100)


UNARY = [
    "exp",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "sqrt",
    "rsqrt",
    "cbrt",
    "sign",
    "sin",
    "cos",
    "tan",
    "tanh",
    "acosh",
]


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_complex_numbers(dtype):
    part = {"c64": "f32", "c128": "f64"}[dtype]
    values = [
        "v + w",
        "v - w",
        "-v",
        f"mul_{dtype}(v, w)",
        f"div_{dtype}(v, w)",
        f"pow_{dtype}(v, w)",
        "select(t, v, w)",
    ]
    values += ["v if t else w", "w if v == w else v", f"complex_{part}(v.imag, w.real)", f"convert_pred_{dtype}(t)"]
    values += [f"max_{dtype}(v, w)", f"min_{dtype}(v, w)", f"convert_s32_{dtype}(s32(i))", "r[i]", f"{dtype}(c128(v))"]
    values += [f"{name}_{dtype}(v)" for name in UNARY]
    numbers = ["v.real", "v.imag * w.real", f"abs_{dtype}(v)", f"{part}(v == w)", f"{part}(v != w) + f"]
    text = "def parts(x, y, o, p, n, lo, hi):\n    r = scratch_c64(200)\n    f = PART(0)\n".replace("PART", part)
    text = text.replace("scratch_c64", f"scratch_{dtype}")
    text += "    for i in range(n):\n        v = x[i]\n        w = y[i]\n        t = v.real < w.real\n"
    text += "        r[i] = v\n        r[i] += w\n"
    text += "".join(f"        o[{k} * n + i] = {value}\n" for k, value in enumerate(values))
    text += "".join(f"        p[{k} * n + i] = {value}\n" for k, value in enumerate(numbers))
    kind = {"c64": np.complex64, "c128": np.complex128}[dtype]
    x, y = ((RANDOM.standard_normal((200, 2)) @ [1, 1j]).astype(kind) for _ in range(2))
    x[:4], y[8:12] = (np.nan, np.inf, -0.0, complex(0, -np.inf)), x[8:12]
    o, p = np.zeros((len(values), 200), kind), np.zeros((len(numbers), 200), x.real.dtype)
    _, _, o, p = same(text, (f"{dtype}*", f"{dtype}*", f"{dtype}*", f"{part}*", "s64"), x, y, o, p, 200)
    assert (o[0, 4:] == x[4:] + y[4:]).all() and (o[14, 4:] == o[0, 4:]).all() and (p[3, 8:12] == 1).all()


def test_a_text_is_parsed_again_when_other_threads_disturb_it(monkeypatch):
    parse, failures = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * 3

    def disturbed(text):
        if failures:
            raise failures.pop()
        return parse(text)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert ast.dump(parsed("a = 1")) == ast.dump(parse("a = 1")) and not failures
    with pytest.raises(SyntaxError):
        parsed("a = ")
