"""Loops around the main functions become vector code, and importing the package compiles nothing."""

import re
import subprocess
import sys

import pytest
from vector_code import ANY
from vmath_kernels import loop_source

from hloom.compiler.kernels import math
from hloom.compiler.targets.cpu import codegen

MULTIPLY_ADD = r"vfn?m(add|sub)\w+p[sd]\s.*%[yz]mm"

POLYNOMIALS = [
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "tanh", "logistic", "erf", "erfc", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "cbrt",
]  # fmt: skip
OTHERS = ["sqrt", "rsqrt", "floor", "ceil", "trunc", "round_even", "abs", "sign"]


def loop_of(name, machine):
    entry = math.FUNCTIONS[name]
    inputs = [f"x{i}" for i in range(len(entry.parameters))]
    values = ", ".join(f"{pointer}[i]" for pointer in inputs)
    text = f"def loop({', '.join(inputs)}, o, n):\n    for i in range(n):\n        o[i] = {name}({values})\n"
    params = [f"{dtype}*" for dtype in (*entry.parameters, entry.result)] + ["s64"]
    return codegen.assembly(loop_source(text, params), machine)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_in_vectors(name, dtype, code_machine):
    assert re.search(MULTIPLY_ADD, loop_of(f"{name}_{dtype}", code_machine))


def test_functions_of_elements_apart_in_vectors(code_machine):
    """LLVM by itself vectorizes a loop with a step that is an argument for a step of 1 alone."""
    text = "def loop(x, o, step, n):\n    for i in range(n):\n        o[i] = exp_f64(x[i * step])\n"
    code = codegen.assembly(loop_source(text, ["f64*", "f64*", "s64", "s64"]), code_machine)
    assert re.search(MULTIPLY_ADD, code) and re.search(r"vgatherqpd|vmovhpd", code)


@pytest.mark.parametrize("name", ["pow_f32", "pow_f64", "atan2_f32", "atan2_f64", "hypot_f64", "rem_f32"])
def test_binary_functions_in_vectors(name, code_machine):
    assert re.search(MULTIPLY_ADD, loop_of(name, code_machine))


@pytest.mark.parametrize("name", [*OTHERS, "shl", "max", "convert"])
def test_instructions_in_vectors(name, code_machine):
    full = {"shl": "shl_s32", "max": "max_f32", "convert": "convert_f32_s32"}.get(name, f"{name}_f32")
    assert re.search(ANY, loop_of(full, code_machine))


@pytest.mark.parametrize("dtype", ["f32", "f64", "s32", "u8", "s64"])
@pytest.mark.parametrize("name", ["sum", "accmax", "accmin"])
def test_accumulators_in_vectors(name, dtype, code_machine):
    text = (
        f"def loop(x, o, n):\n    total = x[0]\n    for i in range(n):\n"
        f"        total = {name}_{dtype}(total, x[i])\n    o[0] = total\n"
    )
    code = codegen.assembly(loop_source(text, [f"{dtype}*", f"{dtype}*", "s64"]), code_machine)
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
