"""The file of machine code that the package brings for the kernels which all contractions share."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.render import shared_kernels
from hloom.compiler.targets.cpu import backend, codegen, prebuilt_kernels
from hloom.compiler.targets.cpu.machine import host
from hloom.ir.records import replace

needs_a_level = pytest.mark.skipif(
    not prebuilt_kernels.LEVELS.get(host().arch), reason=f"no kernels are stored for {host().arch}"
)
needs_avx2 = pytest.mark.skipif(not prebuilt_kernels._runs_here(0), reason="the processor lacks AVX2 or FMA")


@pytest.fixture
def forgotten():
    """What the process knows of the file is read anew, in the test and after it."""
    for known in (prebuilt_kernels._contents, prebuilt_kernels._runs_here):
        known.cache_clear()
    yield
    for known in (prebuilt_kernels._contents, prebuilt_kernels._runs_here):
        known.cache_clear()


def of_level(index: int) -> list[KernelSource]:
    machine = prebuilt_kernels.LEVELS["x86_64"][index].machine()
    return [kernel for dtype in prebuilt_kernels.DTYPES for kernel in shared_kernels(dtype, machine)]


@needs_a_level
def test_the_file_is_of_these_sources():
    """Otherwise: python -m hloom.backends.cpu.driver"""
    assert not prebuilt_kernels.outdated()


@needs_a_level
@pytest.mark.parametrize("index", range(2))
def test_the_file_has_every_kernel_of_a_level_as_it_would_be_compiled_now(index):
    machine = prebuilt_kernels.LEVELS["x86_64"][index].machine()
    _, entries, data = prebuilt_kernels._contents()
    for kernel in of_level(index):
        level, start, length = entries[prebuilt_kernels._key(kernel)]
        assert level == index
    now = backend.compiled(*codegen.kernel_module(kernel, None), machine)
    assert prebuilt_kernels.zlib.decompress(data[start : start + length]) == now


@needs_a_level
@needs_avx2
def test_the_kernels_of_this_machine_are_found_whatever_its_caches_are(forgotten, monkeypatch):
    small = replace(host(), l1_bytes=48 << 10, l2_bytes=2 << 20, cores=64, vector_bytes=32, vector_registers=16)
    for kernel in shared_kernels("f32", small):
        assert prebuilt_kernels.object_code(kernel)


@needs_a_level
def test_a_processor_without_the_instructions_compiles_the_texts(forgotten, monkeypatch):
    old = replace(host(), features="+avx,-avx2,-fma")
    monkeypatch.setattr(prebuilt_kernels, "host", lambda: old)
    assert [prebuilt_kernels.object_code(kernel) for kernel in of_level(0)] == [None] * len(of_level(0))


@needs_a_level
@pytest.mark.parametrize(
    "contents", [None, b"", b"; no JSON\n", b'; {"made from": "other sources", "kernels": {"a": [0, 0, 1]}}\nx']
)
def test_no_file_or_another_is_as_if_nothing_were_stored(forgotten, monkeypatch, tmp_path, contents):
    path = tmp_path / "kernels.bin"
    if contents is not None:
        path.write_bytes(contents)
    monkeypatch.setattr(prebuilt_kernels, "_path", lambda: path)
    assert prebuilt_kernels.outdated()
    assert prebuilt_kernels.object_code(of_level(0)[0]) is None


@needs_a_level
@needs_avx2
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int8])
def test_results_have_the_bits_of_kernels_compiled_for_this_processor(dtype, monkeypatch):
    generator = np.random.default_rng(0)
    x, y = (
        generator.standard_normal((37, 70)).astype(dtype)
        if np.dtype(dtype).kind == "f"
        else generator.integers(-100, 100, (37, 70)).astype(dtype)
        for _ in range(2)
    )

    def products():
        def f(x, y):
            return hl.lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=wide)

        wide = np.int32 if np.dtype(dtype).kind == "i" else dtype
        return np.asarray(hl.jit(f)(x, y))

    from hloom.backends.cpu import driver

    stored = products()
    monkeypatch.setattr(prebuilt_kernels, "object_code", lambda kernel: None)
    monkeypatch.setattr(driver, "_addresses", {})
    monkeypatch.setattr(driver, "default_cache", lambda: None)
    compiled = products()
    assert driver._addresses
    assert stored.tobytes() == compiled.tobytes()
    wide = np.float64 if np.dtype(dtype).kind == "f" else np.int64
    np.testing.assert_allclose(stored, x.astype(wide) @ y.astype(wide).T, rtol=1e-4, atol=1e-4)
