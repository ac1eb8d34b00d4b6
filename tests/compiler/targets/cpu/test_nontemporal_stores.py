"""Stores past the caches: which results take them, the machine code, and values at every alignment."""

import re

import numpy as np
import pytest
from ml_dtypes import bfloat16

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.machine import host
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.ir import records

needs_x86 = pytest.mark.skipif(host().arch != "x86_64", reason="non-temporal vector stores are x86's")


@pytest.fixture
def always(monkeypatch):
    """Every kernel stores past the caches."""
    monkeypatch.setattr(CpuTarget, "nontemporal_threshold", property(lambda self: 1))


def _kernels(function, *arguments):
    return [k.launch.source for k in hl.jit(function).lower(*arguments).compile().executable.plan.kernels()]


@needs_x86
def test_only_results_that_do_not_fit_the_last_cache():
    count = CpuTarget(host()).nontemporal_result_threshold // 8
    small, large = (_kernels(lambda x: x + 1, np.zeros(n, np.float32))[0].text for n in (count - 64, count + 64))
    assert "stream_" not in small and "stream_f32(out0, i0, v1)" in large


def test_numbers_are_stored_like_other_values():
    def constants(x):
        return hnp.full_like(x, 3), hnp.full_like(x, -np.inf), x + 1

    x = np.ones(100, np.float32)
    assert "stream_" not in "".join(kernel.text for kernel in _kernels(constants, x))


@needs_x86
def test_what_the_program_reads_again_may_be_larger():
    target = CpuTarget(host())

    def two(x):
        y = hnp.sqrt(x)
        return y, hnp.cumsum(y)

    for count, streamed in (
        (target.nontemporal_threshold // 8 - 64, False),
        (target.nontemporal_threshold // 8 + 64, True),
    ):
        assert count * 8 > target.nontemporal_result_threshold
        first = _kernels(two, np.zeros(count, np.float32))[0].text
        assert ("stream_f32(out0" in first) == streamed


def test_outputs_of_one_kernel_differ(monkeypatch):
    monkeypatch.setattr(CpuTarget, "nontemporal_result_threshold", property(lambda self: 1))

    def two(x):
        y = x * 2
        return hnp.sqrt(x), hnp.cumsum(y), hnp.sin(y)

    x = np.random.default_rng(0).random(5000).astype(np.float32)
    text = _kernels(two, x)[0].text
    assert "stream_f32(" in text and re.search(r"out\d\[", text)
    for got, wanted in zip(hl.jit(two)(x), (np.sqrt(x), np.cumsum(x * 2), np.sin(x * 2)), strict=True):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4)
    assert CpuTarget(records.replace(host(), arch="aarch64")).nontemporal_threshold == 0


def test_results_in_place_and_rows_that_hold_values_between_sweeps_are_stored_plainly(always):
    x = np.zeros((8, 64), np.float32)
    assert all("stream_" not in k.text for k in _kernels(lambda x: hl.nn.softmax(x), x))
    assert any("stream_" in k.text for k in _kernels(lambda x: x - x.mean(1, keepdims=True), x))


@needs_x86
def test_machine_code(always, code_machine):
    (kernel,) = _kernels(lambda x, y: x * 2 + y, np.zeros(64, np.float32), np.zeros(64, np.float32))
    text = codegen.assembly(kernel, code_machine)
    assert "vmovntp" in text or "movntp" in text
    assert text.rindex("sfence") > text.rindex("movnt")


@needs_x86
def test_loops_past_the_caches_ask_for_what_they_will_read(always, code_machine):
    x = np.zeros(640, np.float32)
    asked = "prefetcht1"
    (chain,) = _kernels(lambda x, y: hnp.sqrt(x) * 2 + y, x, x)
    assert codegen.assembly(chain, code_machine).count(asked) >= 2  # of each input
    (filled,) = _kernels(lambda: hnp.arange(640, dtype=np.float32))
    assert asked not in codegen.assembly(filled, code_machine)
    (summed,) = _kernels(lambda x: x.sum(1), x.reshape(10, 64))
    assert asked not in codegen.assembly(summed, code_machine)


@needs_x86
def test_rows_that_begin_inside_of_vectors_go_through_the_caches(monkeypatch):
    monkeypatch.setattr(CpuTarget, "nontemporal_threshold", property(lambda self: 1))

    for columns, streamed in ((640, True), (1000 + 1, False)):
        (kernel,) = _kernels(lambda x, y: x * y, np.zeros((20, columns), np.float32), np.zeros(columns, np.float32))
        assert ("stream_" in kernel.text) == streamed
    (kernel,) = _kernels(lambda x: x + 1, np.zeros((20, 1001), np.float32))
    assert "stream_" in kernel.text  # rows that are walked as one


DTYPES = [np.float32, np.float64, np.float16, bfloat16, np.int8, np.int16, np.int32, np.int64, np.uint8, bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_values(always, dtype):
    rng = np.random.default_rng(0)
    for shape in ((1,), (64,), (1000,), (37, 61), (5, 128), (3, 7, 33)):
        x = rng.integers(0, 2 if dtype is bool else 9, shape).astype(dtype)
        np.testing.assert_array_equal(
            np.asarray(hl.jit(lambda x: hnp.where(x > 3, x, x + x))(x)), np.where(x > 3, x, x + x)
        )
        np.testing.assert_array_equal(np.asarray(hl.jit(lambda x: (x.T, x + x))(x)[0]), x.T)


def test_complex_results_keep_plain_stores(always):
    x = np.arange(12).reshape(3, 4) * (1 + 2j)
    np.testing.assert_array_equal(np.asarray(hl.jit(lambda x: x + x)(x)), x + x)


@pytest.mark.parametrize("columns", [7, 8, 61, 64])
def test_rows(always, columns):
    x = np.random.default_rng(1).standard_normal((50, columns)).astype(np.float32)
    got = np.asarray(hl.jit(lambda x: (x - x.max(1, keepdims=True)) * x.sum(1, keepdims=True))(x))
    np.testing.assert_allclose(got, (x - x.max(1, keepdims=True)) * x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)
