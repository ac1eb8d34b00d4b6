"""Loops around the main functions become vector code, and importing the package compiles nothing."""

import platform
import re
import subprocess
import sys

import llvmlite.binding as llvm
import pytest
from numba import types
from vmath_kernels import compile_kernel

from hloom.compiler.kernels import math

X86 = platform.machine() in ("x86_64", "AMD64")
ARM = platform.machine() in ("aarch64", "arm64")
features = llvm.get_host_cpu_features() if X86 else {}
vectors = pytest.mark.skipif(
    not (ARM or (X86 and features.get("avx2") and features.get("fma"))),
    reason="knows the vector registers of x86 with AVX2 and FMA, and of 64-bit Arm",
)
MULTIPLY_ADD = r"vfn?m(add|sub)\w+p[sd]\s.*%[yz]mm" if X86 else r"fml[as]\s+v\d+\.[24][sd]"
ANY = r"%[yz]mm" if X86 else r"\bv\d+\.(16b|8h|4s|2d)"

POLYNOMIALS = [
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "tanh", "logistic", "erf", "erfc", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "cbrt",
]  # fmt: skip
OTHERS = ["sqrt", "rsqrt", "floor", "ceil", "trunc", "round_even", "abs", "sign"]


def assembly(text, params):
    return compile_kernel(text, params)._library.get_asm_str()


def loop_of(name):
    entry = math.FUNCTIONS[name]
    inputs = [f"x{i}" for i in range(len(entry.parameters))]
    values = ", ".join(f"{pointer}[i]" for pointer in inputs)
    text = f"def loop({', '.join(inputs)}, o, n):\n    for i in range(n):\n        o[i] = {name}({values})\n"
    return assembly(text, [f"{dtype}*" for dtype in (*entry.parameters, entry.result)] + ["s64"])


@vectors
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_in_vectors(name, dtype):
    assert re.search(MULTIPLY_ADD, loop_of(f"{name}_{dtype}"))


@vectors
@pytest.mark.parametrize("name", ["pow_f32", "pow_f64", "atan2_f32", "atan2_f64", "hypot_f64", "rem_f32"])
def test_binary_functions_in_vectors(name):
    assert re.search(MULTIPLY_ADD, loop_of(name))


@vectors
@pytest.mark.parametrize("name", [*OTHERS, "shl", "max", "convert"])
def test_instructions_in_vectors(name):
    full = {"shl": "shl_s32", "max": "max_f32", "convert": "convert_f32_s32"}.get(name, f"{name}_f32")
    assert re.search(ANY, loop_of(full))


@vectors
@pytest.mark.parametrize("dtype", ["f32", "f64", "s32", "u8", "s64"])
@pytest.mark.parametrize("name", ["sum", "accmax", "accmin"])
def test_accumulators_in_vectors(name, dtype):
    text = (
        f"def loop(x, o, n):\n    total = x[0]\n    for i in range(n):\n"
        f"        total = {name}_{dtype}(total, x[i])\n    o[0] = total\n"
    )
    code = assembly(text, [f"{dtype}*", f"{dtype}*", "s64"])
    assert re.search(ANY, code)


def test_import_compiles_nothing():
    script = (
        "import numba.core.dispatcher as d\n"
        "made = []\n"
        "d.Dispatcher.__init__, plain = (lambda self, *a, **k: (made.append(a), plain(self, *a, **k))[1], "
        "d.Dispatcher.__init__)\n"
        "import hloom.compiler.kernels.math as v\n"
        "assert len(v.FUNCTIONS) > 500 and not made, made\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_namespace_gives_the_casts_and_the_chosen_names():
    names = math.namespace(["tanh_f32"])
    assert names["f32"] is types.float32 and callable(names["tanh_f32"])
    assert "exp_f32" not in names
    with pytest.raises(KeyError):
        math.namespace(["tanh_f31"])
