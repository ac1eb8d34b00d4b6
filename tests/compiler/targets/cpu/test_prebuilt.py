"""The file of prebuilt code: complete, ignored where another code generator made it, and without effect on results."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu import driver
from hloom.compiler.targets.cpu import codegen, interface, library, machine
from hloom.compiler.targets.cpu.prebuilt import archive, keys
from hloom.compiler.targets.cpu.prebuilt.build import shared_kernels
from hloom.runtime import driver_source

needs_x86 = pytest.mark.skipif(machine.architecture() != "x86_64", reason="kernels are prebuilt for x86-64")
needs_v3 = pytest.mark.skipif(not machine.runs_level("x86-64-v3"), reason="the processor lacks AVX2 or FMA")


@pytest.fixture
def other_file(monkeypatch, tmp_path):
    """The file that is read from now on, which is not there yet."""
    path = tmp_path / archive.file_name()
    monkeypatch.setattr(archive, "path", lambda: path)
    library.signature.cache_clear()
    library.module_text.cache_clear()
    yield path
    library.signature.cache_clear()
    library.module_text.cache_clear()


def test_the_file_is_of_this_code_generator():
    """Otherwise: python -m hloom.backends.cpu.prebuild"""
    assert archive.is_current()


def test_every_source_that_code_generation_imports_decides_the_version():
    """All that `codegen` reaches in the compiler is listed, but for what states interfaces, folders and times."""
    compiler = Path(interface.__file__).resolve().parents[2]
    listed = {path for pattern in interface.CODE_SOURCES for path in compiler.glob(pattern)}
    harmless = {"cache.py", "compile_timings.py", "gil.py", "interface.py", "accuracy.py", "archive.py", "keys.py"}
    found, left = set(), [compiler / "targets/cpu/codegen.py", compiler / "targets/cpu/library.py"]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hloom.compiler."):
                base = compiler.joinpath(*node.module.split(".")[2:])
                files = [base.with_suffix(".py"), base / "__init__.py", *(base / f"{n.name}.py" for n in node.names)]
                left += [file for file in files if file.is_file()]
    unlisted = {path for path in found - listed if path.name not in {*harmless, "__init__.py"}}
    assert not unlisted


@needs_x86
@pytest.mark.parametrize("level", keys.LEVELS)
def test_the_file_has_every_shared_kernel_as_it_would_be_compiled_now(level):
    kernels = shared_kernels(machine.level_machine(level))
    entries = [archive.get(keys.kernel_key(kernel, level)) for kernel in kernels]
    assert all(entries)
    assert entries[-1] == codegen.compile_for(kernels[-1], machine.level_machine(level))


def test_the_file_has_the_driver():
    assert keys.functions_code(driver_source.FUNCTIONS)


@needs_x86
@needs_v3
def test_kernels_are_found_by_the_level_that_the_host_is(monkeypatch):
    (kernel, *_) = shared_kernels(machine.level_machine("x86-64-v3"))
    try:
        machine.use_cpu("x86-64-v3")
        assert keys.kernel_code(kernel)
        machine.use_cpu("x86-64-v2")
        assert keys.kernel_code(kernel) is None
    finally:
        machine.use_cpu(None)


@pytest.mark.parametrize(
    "contents",
    [None, b"", b"no JSON\n", b"[]\n", b'{"version": "another", "entries": {"function exp_f32": [0, 1]}}\nx'],
)
def test_no_file_or_another_is_as_if_nothing_were_prebuilt(other_file, contents):
    if contents is not None:
        other_file.write_bytes(contents)
    assert not archive.is_current()
    assert archive.get("function exp_f32") is None
    assert keys.functions_code(driver_source.FUNCTIONS) is None
    assert library.signature("exp_f32") == (("f32",), "f32") and library.signature("no_function") is None
    assert "define linkonce_odr float @math_exp_f32" in library.module_text("exp_f32")


def test_a_damaged_entry_is_compiled_anew(other_file):
    archive.write({"function exp_f32": library._encoded(library._compiled("exp_f32"))})
    whole = archive.get("function exp_f32")
    data = bytearray(other_file.read_bytes())
    data[-20:] = bytes(20)
    other_file.write_bytes(data)
    archive._contents.cache_clear()
    assert whole and archive.get("function exp_f32") is None
    assert "@math_exp_f32" in library.module_text("exp_f32")


def test_processes_without_the_file_say_so_once_and_compute_the_same(tmp_path):
    """Two at once, in a copy of nothing but the setting that no file is there."""
    program = """
import pathlib, numpy as np, hloom as hl, hloom.numpy as hnp
from hloom.compiler.targets.cpu.prebuilt import archive
archive.path = lambda: pathlib.Path("/nowhere")
x = np.linspace(-1, 1, 100, dtype=np.float32)
print(np.asarray(hl.jit(lambda x: hnp.exp(hnp.sin(x)) @ x)(x)).tobytes().hex())
"""
    environment = {**os.environ, "HLOOM_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(hl.__file__).parents[1])}
    command = [sys.executable, "-c", program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    results = [process.communicate(timeout=120) for process in running]
    warm = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert all(process.returncode == 0 for process in (*running, warm)), results
    assert len({out for out, _ in results} | {warm.stdout}) == 1 and warm.stdout.strip()
    assert max(error.count("no prebuilt code") for _, error in results) == 1 and warm.stderr == ""


@needs_x86
@needs_v3
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

    loaded = []

    def recorded(*arguments):
        loaded.append(compile_kernels(*arguments))
        return loaded[-1]

    compile_kernels = codegen.compile_kernels
    prebuilt = products()
    monkeypatch.setattr(keys, "kernel_code", lambda kernel, name: None)
    monkeypatch.setattr(driver, "_kernels", weakref.WeakValueDictionary())
    monkeypatch.setattr(driver, "default_cache", lambda: None)
    monkeypatch.setattr(codegen, "compile_kernels", recorded)
    compiled = products()
    assert loaded
    assert prebuilt.tobytes() == compiled.tobytes()
    wide = np.float64 if np.dtype(dtype).kind == "f" else np.int64
    np.testing.assert_allclose(prebuilt, x.astype(wide) @ y.astype(wide).T, rtol=1e-4, atol=1e-4)
