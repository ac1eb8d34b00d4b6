"""Kernel text to object code: values, vectorization, error messages, and a warm start without Numba."""

import ctypes
import math
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hloom.compiler.cache import Cache
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import codegen, interface
from hloom.compiler.targets.cpu import machine as machine_module
from hloom.compiler.targets.cpu.interface import KernelCompileError
from hloom.compiler.targets.cpu.machine import host, native_machine
from hloom.ir import records
from hloom.runtime import native

GELU = KernelSource(
    "gelu",
    """def gelu(x, b, o, n1, x_s0, lo, hi):
    for i0 in range(lo, hi):
        for i1 in range(n1):
            v0 = x[i0 * x_s0 + i1] + b[i1]
            v1 = f32(0.7978845608) * (v0 + f32(0.044715) * v0 * v0 * v0)
            v2 = f32(1.0) / (f32(1.0) + exp_f32(f32(-2.0) * v1))
            o[i0 * n1 + i1] = v0 * v2
""",
    ("f32*", "f32*", "f32*", "s64", "s64", "s64", "s64"),
)


def compiled(kernel):
    (code,) = codegen.compile_kernels([kernel])
    address = native.load(code.data, code.symbols)[kernel.name]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)


def run(kernel, lo, hi, *args):
    words = np.array([arg.ctypes.data if isinstance(arg, np.ndarray) else arg for arg in args], np.int64)
    compiled(kernel)(words.ctypes.data, lo, hi)


def loop(name, body, params, head="for i in range(lo, hi):"):
    """A kernel over pointers p0, p1, ... and its text."""
    names = [f"p{position}" for position in range(len(params))]
    text = f"def {name}({', '.join([*names, 'lo', 'hi'])}):\n    {head}\n        {body}\n"
    return KernelSource(name, text, (*params, "s64", "s64"))


def test_values_and_bounds_of_a_kernel():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 40)).astype(np.float32)
    bias = rng.standard_normal(37).astype(np.float32)
    out = np.full((7, 37), 5.0, np.float32)
    run(GELU, 2, 6, x, bias, out, 37, 40)
    v = x[:, :37].astype(np.float64) + bias
    expected = 0.5 * v * (1 + np.tanh(0.7978845608 * (v + 0.044715 * v**3)))
    np.testing.assert_allclose(out[2:6], expected[2:6], rtol=2e-5, atol=1e-6)
    assert (out[:2] == 5).all() and (out[6:] == 5).all()


def test_the_loop_is_vectorized_without_overlap_checks(code_machine):
    register = {64: "%zmm", 32: "%ymm"}[code_machine.vector_bytes]
    assert len(re.findall(register, codegen.assembly(GELU, code_machine))) > 20
    ir = codegen.llvm_ir(GELU, machine=code_machine)
    assert "vector.body" in ir
    assert "vector.memcheck" not in ir, "noalias was lost: the loop is guarded by run-time overlap checks"
    assert "call float @math_exp_f32" not in ir, "vector math was not inlined"


@pytest.mark.parametrize(
    "head, expected",
    [
        ("for i in range(hi):", range(9)),
        ("for i in range(lo, hi):", range(2, 9)),
        ("for i in range(lo, hi, 3):", range(2, 9, 3)),
        ("for i in range(hi - 1, lo, -2):", range(8, 2, -2)),
        ("for i in range(hi, lo):", range(0)),
        ("for i in range(lo, hi, lo):", range(2, 9, 2)),
        ("for i in range(hi, lo, -lo):", range(9, 2, -2)),
    ],
)
def test_range(head, expected):
    seen = np.zeros(10, np.int64)
    run(loop("count", "p0[i] = p0[i] + 1", ("s64*",), head), 2, 9, seen)
    assert np.flatnonzero(seen).tolist() == sorted(expected)
    assert seen.max(initial=0) <= 1


def test_min_and_max():
    out = np.zeros(4, np.int64)
    floats = np.zeros(2, np.float32)
    text = """def extrema(o, f, lo, hi):
    o[0] = min(hi, 5)
    o[1] = max(lo, hi, 3)
    o[2] = min(lo + 1, s32(7), -2)
    o[3] = max(-4, lo)
    f[0] = min(f32(1.5), f32(-2.5))
    f[1] = max(f32(1.5), f32(-2.5))
"""
    run(KernelSource("extrema", text, ("s64*", "f32*", "s64", "s64")), 2, 9, out, floats)
    assert out.tolist() == [5, 9, -2, 2]
    assert floats.tolist() == [-2.5, 1.5]


@pytest.mark.parametrize(
    "dtype, kind",
    [("s8", np.int8), ("s16", np.int16), ("s32", np.int32), ("s64", np.int64), ("u8", np.uint8), ("u16", np.uint16),
     ("u32", np.uint32), ("u64", np.uint64), ("f32", np.float32), ("f64", np.float64), ("c64", np.complex64),
     ("c128", np.complex128)],
)  # fmt: skip
def test_every_pointer_type(dtype, kind):
    x = np.arange(1, 20).astype(kind)
    out = np.zeros_like(x)
    run(loop("double", f"p1[i] = {dtype}(p0[i] + p0[i])", (f"{dtype}*", f"{dtype}*")), 0, x.size, x, out)
    np.testing.assert_array_equal(out, (x + x).astype(kind))


def test_pred_and_half_pointers():
    x = np.array([0.1, -2.0, np.inf, 70000.0, 1e-8], np.float32)
    half, flags = np.zeros(5, np.float16), np.zeros(5, np.bool_)
    text = """def narrow(x, h, p, lo, hi):
    for i in range(lo, hi):
        store_f16(h, i, x[i])
        store_pred(p, i, load_f16(h, i) < f32(0.5))
"""
    with np.errstate(over="ignore"):
        run(KernelSource("narrow", text, ("f32*", "f16*", "pred*", "s64", "s64")), 0, 5, x, half, flags)
        np.testing.assert_array_equal(half, x.astype(np.float16))
    np.testing.assert_array_equal(flags, half < 0.5)


def test_division_by_zero_follows_ieee_and_raises_nothing():
    x, y = np.array([1.0, -1.0, 0.0], np.float32), np.zeros(3, np.float32)
    out = np.zeros(3, np.float32)
    run(loop("divide", "p2[i] = p0[i] / p1[i]", ("f32*", "f32*", "f32*")), 0, 3, x, y, out)
    assert out[0] == math.inf and out[1] == -math.inf and math.isnan(out[2])


@pytest.mark.parametrize(
    "body, words",
    [
        ("p0[i] = no_such_function_f32(p0[i])", "no_such_function_f32"),
        ("p0[i] = exp_f32(p0)", "exp_f32"),
        ("p0[i] = = 3", "invalid syntax"),
        ("p0[i] = 'text'", ""),
    ],
)
def test_errors_show_the_numbered_text(body, words):
    kernel = loop("broken", body, ("f32*",))
    with pytest.raises(KernelCompileError) as caught:
        codegen.compile_kernels([kernel])
    assert caught.value.name == "broken" and caught.value.text == kernel.text
    assert words in caught.value.message
    assert f"   3          {body}" in str(caught.value)


def test_params_must_end_with_the_bounds():
    with pytest.raises(KernelCompileError, match="lo and hi"):
        codegen.compile_kernels([KernelSource("f", "def f(x):\n    x[0] = f32(1)\n", ("f32*",))])


def test_a_failing_kernel_in_a_batch_names_itself():
    good, bad = loop("good", "p0[i] = f32(1)", ("f32*",)), loop("bad", "p0[i] = nothing(i)", ("f32*",))
    with pytest.raises(KernelCompileError, match="kernel bad"):
        codegen.compile_kernels([good, bad, good])


def test_keys_depend_on_text_params_and_name():
    kernel = loop("one", "p0[i] = f32(1)", ("f32*",))
    keys = {
        interface.kernel_key(kernel),
        interface.kernel_key(loop("one", "p0[i] = f32(2)", ("f32*",))),
        interface.kernel_key(loop("two", "p0[i] = f32(1)", ("f32*",))),
        interface.kernel_key(KernelSource(kernel.name, kernel.text, ("f64*", *kernel.params[1:]))),
    }
    assert len(keys) == 4
    assert interface.kernel_key(kernel) == interface.kernel_key(loop("one", "p0[i] = f32(1)", ("f32*",)))


def test_equal_names_in_different_objects_do_not_collide():
    first, second = (loop("same", f"p0[i] = f32({value})", ("f32*",)) for value in (1, 2))
    codes = codegen.compile_kernels([first, second])
    addresses = native.load_all([(code.data, code.symbols) for code in codes])
    assert addresses[0]["same"] != addresses[1]["same"]
    for value, found in enumerate(addresses, 1):
        out = np.zeros(3, np.float32)
        words = np.array([out.ctypes.data], np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(found["same"])(words.ctypes.data, 0, 3)
        assert (out == value).all()


def test_an_unknown_symbol_is_reported_by_name():
    code = codegen.compile_kernels([loop("present", "p0[i] = f32(1)", ("f32*",))])[0]
    with pytest.raises(RuntimeError, match="absent"):
        native.load(code.data, ["absent"])


def test_compiling_from_several_threads():
    kernels = [loop(f"part{number}", f"p0[i] = f32({number})", ("f32*",)) for number in range(8)]
    results = [None] * 8

    def work(number):
        results[number] = codegen.compile_kernels([kernels[number]])[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out = np.zeros(2, np.float32)
    words = np.array([out.ctypes.data], np.int64)
    for number, code in enumerate(results):
        address = native.load(code.data, code.symbols)[f"part{number}"]
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(words.ctypes.data, 0, 2)
        assert (out == number).all()


def test_a_process_does_not_import_numba(tmp_path):
    # Neither where kernels are compiled nor where they come from the disk cache. The package's own __init__ is left
    # out: this is about the way from cache to code.
    program = f"""
import sys, types
package = types.ModuleType("hloom")
package.__path__ = [{str(Path(native.__file__).parents[1])!r}]
sys.modules["hloom"] = package
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.backends.cpu.driver import driver, load_kernels
driver()
text = "def f(x, lo, hi):\\n    for i in range(lo, hi):\\n        x[i] = exp_f32(x[i])\\n"
print(load_kernels([KernelSource("f", text, ("f32*", "s64", "s64"))])[0] != 0, "numba" in sys.modules)
"""
    environment = {**os.environ, "HLOOM_CACHE_DIR": str(tmp_path)}
    for _ in ("cold", "warm"):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["True", "False"]


def test_cached_code_is_the_same_code(tmp_path):
    first = codegen.compile_kernels([GELU], Cache(tmp_path))[0]
    cache = Cache(tmp_path)
    again = codegen.compile_kernels([GELU], cache)[0]
    assert again == first
    assert (cache.hits, cache.misses) == (1, 0)


def test_compiling_is_deterministic():
    first, second = (codegen.compile_kernels([GELU])[0] for _ in range(2))
    assert first.data == second.data


@pytest.mark.skipif(host().arch != "x86_64", reason="AVX-512 code needs LLVM's x86 back end")
def test_avx512_machines_get_full_width_vectors():
    """Icelake's own tuning prefers 256 bits; `host` switches that off, as here."""
    from hloom.compiler.targets.cpu import backend, library
    from hloom.compiler.targets.cpu.numba_frontend import lower

    features = "+avx,+avx2,+avx512f,+avx512vl,+avx512bw,+avx512dq,+fma,-prefer-256-bit"
    wide = records.replace(host(), cpu="icelake-server", features=features, vector_bytes=64, vector_registers=32)
    text, libraries = lower.kernel_module(GELU, library.module_text)
    assert backend.assembly(backend.optimized(text, libraries, wide), wide).count("%zmm") > 20


def test_the_host_is_described():
    machine = host()
    assert machine is host()
    assert machine.vector_bytes in (16, 32, 64) and machine.vector_registers in (16, 32)
    assert 4096 <= machine.l1_bytes <= machine.l2_bytes
    assert machine.cores >= 1
    assert machine.cpu in machine.identity


@pytest.mark.parametrize("shown, counted", [(480 << 20, 32 << 20), (32 << 20, 32 << 20), (0, 0)])
def test_a_guest_has_a_part_of_the_last_cache(monkeypatch, shown, counted):
    monkeypatch.setattr(machine_module, "_caches", lambda: (32 << 10, 1 << 20, shown))
    monkeypatch.setattr(machine_module, "available_cores", lambda: 2)
    assert native_machine.__wrapped__().l3_bytes == counted


def test_element_wise_loops_do_two_vectors_per_iteration(code_machine):
    text = "def twice(x, o, lo, hi):\n    for i in range(lo, hi):\n        o[i] = exp_f32(x[i])\n"
    twice = KernelSource("twice", text, ("f32*", "f32*", "s64", "s64"))
    text = "def total(x, o, lo, hi):\n    for i in range(lo, hi):\n        o[0] = sum_f32(o[0], x[i])\n"
    total = KernelSource("total", text, ("f32*", "f32*", "s64", "s64"))
    assert "interleave.count" in codegen.llvm_ir(twice, optimized=False)
    assert "interleave.count" not in codegen.llvm_ir(total, optimized=False)
    lines = [line for line in codegen.llvm_ir(twice, machine=code_machine).splitlines() if "store <" in line]
    stores = [line.split("store ")[1].split(">")[0] for line in lines]
    assert stores.count(stores[0]) == 2  # a third one, half as wide, may do the rest


def test_long_plain_arithmetic_does_four_vectors_per_iteration(code_machine):
    steps = "".join("        y = y * y + c\n" for _ in range(15))
    text = f"def orbit(x, o, lo, hi):\n    for i in range(lo, hi):\n        y = c = x[i]\n{steps}        o[i] = y\n"
    orbit = KernelSource("orbit", text, ("f32*", "f32*", "s64", "s64"))
    lines = [line for line in codegen.llvm_ir(orbit, machine=code_machine).splitlines() if "store <" in line]
    stores = [line.split("store ")[1].split(">")[0] for line in lines]
    assert stores.count(stores[0]) == 4


@pytest.mark.parametrize("loop", ["for j in range(n):", "while x[i * n + j] > f32(0):"])
@pytest.mark.parametrize("front_end", ["emitter", "numba"])
def test_only_innermost_loops_are_marked(loop, front_end, monkeypatch):
    lines = ["for i in range(lo, hi):", "    j = 0", f"    {loop}", "        x[i * n + j] = x[i * n + j] * f32(2)"]
    lines += ["        j += 1"] * loop.startswith("while")
    body = "".join(f"    {line}\n" for line in lines)
    kernel = KernelSource("f", f"def f(x, n, lo, hi):\n{body}", ("f32*", "s64", "s64", "s64"))
    if front_end == "numba":
        monkeypatch.setattr(codegen, "compiled_by_numba", lambda: True)
    marked = [line for line in codegen.llvm_ir(kernel, optimized=False).splitlines() if "!llvm.loop !" in line]
    assert len(marked) == 1
    text = codegen.llvm_ir(kernel, optimized=False)
    assert 'llvm.loop.interleave.count", i32 2' in text


@pytest.mark.parametrize("store", ["x[i] = {}", "stream_f32(x, i, {})"])
def test_the_test_for_huge_angles_is_part_of_the_loop(store, code_machine):
    # The vectorizer comes after the inliner: the vector form of the C library's call stood in the loop, and in front of
    # it a test of the lanes, in a function.
    text = f"def f(x, n, lo, hi):\n    for i in range(n):\n        {store.format('sin_f32(x[i])')}\n"
    code = codegen.assembly(KernelSource("f", text, ("f32*", "s64", "s64", "s64")), code_machine)
    assert "hloom_huge_sin_f32_lanes" in code
    assert re.search(r"call\w*\s+hloom_huge_sin_f32_v\d", code) is None
