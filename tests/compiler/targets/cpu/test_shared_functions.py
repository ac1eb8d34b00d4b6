"""Functions of the math library that a kernel calls often: equal bits, and code that hardly grows with the calls."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import backend, codegen, library, machine
from hloom.compiler.targets.cpu.llvm_emitter import emitter, shared
from hloom.ir.types import DTYPES
from hloom.runtime import native

CALLS = 2 * shared.INSTRUCTIONS // 30  # enough of any function of 30 instructions


def kernel(name: str, dtype: str, calls: int, arguments: int = 1) -> KernelSource:
    """o[i] is the sum of a function at `calls` numbers made of a[i]."""
    lines = []
    part = {"c64": "f32", "c128": "f64"}.get(dtype)
    for k in range(calls):
        scaled = f"v + complex_{part}({k + 1.0}, 0.5)" if part else f"v * {dtype}({k + 1.0})"
        values = ", ".join([scaled, "v"][:arguments])
        lines.append(f"        s{k + 1} = s{k} + {name}({values})\n")
    text = f"def f(a, o, n, lo, hi):\n    for i in range(n):\n        v = a[i]\n        s0 = v\n{''.join(lines)}"
    params = (f"{dtype}*", f"{dtype}*", "s64", "s64", "s64")
    return KernelSource("f", f"{text}        o[i] = s{calls}\n", params)


def values(source: KernelSource, a: np.ndarray, share: bool) -> np.ndarray:
    size = library.shared_size if share else None
    text, names = emitter.kernel_text(source, backend.triple(), library.signature, size)
    assert any(name.startswith(shared.SHARED) for name in names) == share
    code = backend.compiled(text, [library.module_text(name) for name in names])
    address = native.load(code, ("f",))["f"]
    out = np.empty_like(a)
    words = np.array([a.ctypes.data, out.ctypes.data, len(a)], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(words.ctypes.data, 0, 1)
    return out


@pytest.mark.parametrize(
    ("name", "dtype", "arguments"),
    [("sin_f32", "f32", 1), ("exp_f64", "f64", 1), ("atan2_f32", "f32", 2), ("log_c128", "c128", 1)],
)
def test_shared_and_inlined_functions_have_the_same_bits(name, dtype, arguments):
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.standard_normal(61), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, 1e-30]])
    a = a.astype(DTYPES[dtype])
    if dtype == "c128":
        a.imag = rng.permutation(a.real)
    source = kernel(name, dtype, max(8, shared.INSTRUCTIONS // library.shared_size(name) + 1), arguments)
    assert values(source, a, True).tobytes() == values(source, a, False).tobytes()


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "native"])
@pytest.mark.parametrize(("name", "dtype"), [("sin_f32", "f32"), ("exp_f64", "f64"), ("sin_c64", "c64")])
def test_loops_stay_vectors_and_code_hardly_grows(name, dtype, level, capfd):
    if level != "native" and machine.architecture() != "x86_64":
        pytest.skip("a level of x86-64")
    target = machine.machine_of(level)
    few, many = (codegen.llvm_ir(kernel(name, dtype, n), machine=target) for n in (CALLS, 2 * CALLS))
    function = f"math_{name.replace('c64', 'c128')}.shared"
    assert f"@{function}." in many  # a variant of several lanes
    assert many.count("fma.") == few.count("fma.")  # no copy of the function more
    assert capfd.readouterr().err == ""  # LLVM has nothing to say


def test_a_kernel_of_few_calls_inlines_them():
    assert ".shared" not in codegen.llvm_ir(kernel("sin_f32", "f32", shared.CALLS))


def test_functions_of_values_that_no_vector_holds_are_inlined():
    assert library.shared_size("convert_pred_f32") == 0
    assert library.shared_size("no_such_function") == 0
