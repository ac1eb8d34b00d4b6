"""Levels of x86-64 (`HLOOM_CPU`): each gives right results, its own vectors and keys; float16 without F16C."""

from __future__ import annotations

import subprocess
import sys
import weakref

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cpu import driver
from hloom.compiler.cache import Cache
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import codegen, machine
from hloom.compiler.targets.cpu.interface import kernel_key
from hloom.compiler.targets.cpu.prebuilt.build import shared_kernels
from hloom.errors import SettingError
from hloom.runtime import native

HALVES = np.arange(1 << 16).astype(np.uint16)
EXP = KernelSource(
    "f", "def f(x, lo, hi):\n    for i in range(lo, hi):\n        x[i] = exp_f32(x[i])\n", ("f32*", "s64", "s64")
)


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


PROGRAMS = {
    "functions": (lambda x: hnp.exp(hnp.sin(x)) + hnp.tanh(x), lambda x: np.exp(np.sin(x)) + np.tanh(x), (37, 19)),
    "rows": (lambda x: hl.nn.softmax(x), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), (37, 70)),
    "columns": (lambda x: x.var(0), lambda x: x.var(0), (129, 33)),
    "product": (lambda x: x @ x.T, lambda x: x @ x.T, (67, 41)),
    "transform": (lambda x: hnp.abs(hnp.fft.fft(x)), lambda x: np.abs(np.fft.fft(x)), (9, 60)),
    "sort": (lambda x: hnp.sort(x, axis=1), lambda x: np.sort(x, axis=1), (9, 60)),
    "prefix sums": (lambda x: hnp.cumsum(x, axis=1), lambda x: np.cumsum(x, axis=1), (9, 60)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_every_level(name, cpu_level):
    function, reference, shape = PROGRAMS[name]
    x = random(*shape)
    np.testing.assert_allclose(np.asarray(hl.jit(function)(x)), reference(x.astype(np.float64)), rtol=2e-5, atol=2e-5)


def test_convolutions_on_every_level(cpu_level):
    x, w = random(2, 9, 9, 3), random(3, 3, 3, 5)
    found = hl.jit(
        lambda x, w: hl.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    )
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))
    np.testing.assert_allclose(np.asarray(found(x, w)), np.einsum("bijcyx,yxco->bijo", windows, w), atol=1e-4)


def test_one_function_is_compiled_for_each_level():
    f = hl.jit(lambda x: x * 2)
    made = set()
    for level in machine.valid_choices():
        with hl.config(cpu=level):
            assert machine.host() == machine.machine_of(level)
            made.add(kernel_key(EXP))
            np.testing.assert_array_equal(np.asarray(f(np.ones(9, np.float32))), 2)
    assert len(made) == len({machine.machine_of(level).identity for level in machine.valid_choices()})


def test_a_changed_setting_uses_neither_programs_nor_kernels_of_another_level(monkeypatch):
    made, compile_kernels = [], codegen.compile_kernels

    def recorded(kernels, cache=None, name=None):
        made.append(name or machine.host_name())
        return compile_kernels(kernels, cache, name)

    monkeypatch.setattr(codegen, "compile_kernels", recorded)
    monkeypatch.setattr(driver, "_kernels", weakref.WeakValueDictionary())
    f, x = hl.jit(lambda x: x * 3 - 1), hnp.array(np.ones(11, np.float32))
    programs = {}
    for level in ("native", "x86-64-v2", "native", "x86-64-v2"):
        with hl.config(cpu=level):
            before, known = len(made), level in programs
            for _ in range(3):  # the first call, the second and the shortest way
                np.testing.assert_array_equal(np.asarray(f(x)), 2)
            assert made[before:] == ([] if known else [level])
            programs.setdefault(level, f.lower(x).compile().executable)
            assert f.lower(x).compile().executable is programs[level]
    assert programs["native"] is not programs["x86-64-v2"]


def test_the_setting_outweighs_the_variable(monkeypatch):
    text = (
        "import hloom as hl\nhl.config.cpu = 'native'\nhl.jit(lambda x: x + 1)(1.0)\n"
        "from hloom.compiler.targets.cpu.machine import host_name\nprint(host_name())"
    )
    monkeypatch.setenv("HLOOM_CPU", "x86-64-v2")
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout == b"native\n"


def test_code_is_cached_under_the_key_of_its_processor():
    cache = Cache(None)
    other = "x86-64-v3" if machine.host_name() == "x86-64-v2" else "x86-64-v2"
    codegen.compile_kernels([EXP], cache, other)
    assert cache.get(kernel_key(EXP, machine.machine_of(other))) and cache.get(kernel_key(EXP)) is None


def test_a_fused_multiply_add_without_the_instruction_is_rounded_once(cpu_level):
    source = "def f(x, y, z, o, n, lo, hi):\n    for i in range(n):\n        o[i] = fma_f64(x[i], y[i], z[i])\n"
    (code,) = codegen.compile_kernels([KernelSource("f", source, ("f64*",) * 4 + ("s64",) * 3)])
    x = 1 + np.arange(1, 100) * 2.0**-50
    o = np.zeros(99)
    run(code, x, x, -x * x, o, 99)
    exact = [float(int(v * 2**50) ** 2 - int(v * v * 2**50) * 2**50) * 2.0**-100 for v in x]
    np.testing.assert_array_equal(o, exact)


def run(code, *arguments):
    import ctypes

    address = native.load(code.data, code.symbols)[code.symbols[0]]
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    block = np.array(words, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(block.ctypes.data, 0, 1)


def test_every_float16_on_every_level(cpu_level):
    source = (
        "def f(x, y, z, n, lo, hi):\n    for i in range(n):\n"
        "        v = load_f16(x, i)\n        y[i] = v\n        store_f16(z, i, v)\n"
    )
    (code,) = codegen.compile_kernels([KernelSource("f", source, ("f16*", "f32*", "f16*", "s64", "s64", "s64"))])
    wide, back = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.uint16)
    run(code, HALVES, wide, back, 1 << 16)
    expected = HALVES.view(np.float16).astype(np.float32)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(wide.view(np.uint32)[number], expected.view(np.uint32)[number])
    np.testing.assert_array_equal(back[number], HALVES[number])
    assert np.isnan(wide[~number]).all() and np.isnan(back.view(np.float16)[~number]).all()


def test_rounding_to_float16_on_every_level(cpu_level):
    halves = HALVES[:0x7C00].view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / 2
    near = np.concatenate([np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(0)), ties, halves])
    special = np.array([65519, 65520, 1e30, np.inf, -np.inf, np.nan, 0, -0.0, 1e-40], np.float32)
    x = np.concatenate([near, -near, special])
    found = np.asarray(hl.jit(lambda x: x.astype(np.float16))(x))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16))


def test_sources_and_code_follow_the_machine(code_machine):
    names = {kernel.name for kernel in shared_kernels(code_machine)}
    tile = {32: "contraction_product_f32_6x16", 64: "contraction_product_f32_8x48"}[code_machine.vector_bytes]
    assert tile in names
    text = codegen.assembly(EXP, code_machine)
    assert ("%zmm" in text) == (code_machine.vector_bytes == 64) and "vfmadd" in text and "fmaf" not in text


@pytest.mark.parametrize("value", ["x86-64-v9", "znver3", ""])
def test_an_unknown_processor_lists_the_valid_ones(value):
    with pytest.raises(SettingError, match="'native'"):
        hl.config.cpu = value


def test_a_level_beyond_this_machine_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "runs_level", lambda level: level == "x86-64-v2")
    machine.machine_of.cache_clear()
    try:
        with pytest.raises(SettingError, match="x86-64-v4.*\n.*\n.*\n.*\n.*can run: 'x86-64-v2', 'native'"):
            hl.config.cpu = "x86-64-v4"
        with pytest.raises(ValueError, match="lacks its instructions; valid here: x86-64-v2, native"):
            machine.machine_of("x86-64-v4")
    finally:
        machine.machine_of.cache_clear()
