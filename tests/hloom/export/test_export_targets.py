"""Programs for other machines: vector code, no calls for multiply-adds, a sample of the op table's cases under QEMU."""

import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from op_modules import cases

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.compile import optimized_plan
from hloom.compiler.targets.cpu import cross
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.errors import ExportError, HloomError
from hloom.export.functions import State, plan_of, refuse_python, requests_of, traced
from hloom.export.targets import TARGETS, checked_features, target_of
from hloom.ir.text import print_module

PROGRAMS = Path(__file__).with_name("programs")
ZIG = importlib.util.find_spec("ziglang") is not None


def kernels(function, *args, target, features=None):
    _, _, machine = target_of(target, features)
    module = hl.jit(function).lower(*args).module
    _, plan, _ = optimized_plan(module, target=CpuTarget(machine, self_contained=True))
    return machine, [step.launch.source for step in plan.kernels()]


def layer(x, w):
    return hnp.exp(hnp.tanh(x @ w) * 2 + 1)


ARGUMENTS = np.ones((64, 96), np.float32), np.ones((96, 48), np.float32)


@pytest.mark.quick
def test_kernels_for_arm_are_vector_code():
    machine, found = kernels(layer, *ARGUMENTS, target="aarch64-linux")
    text = "\n".join(cross.assembly(kernel, machine) for kernel in found)
    assert len(re.findall(r"\bfmla\s+v\d+\.4s", text)) > 10  # the tiles of the product
    assert re.search(r"\bf(add|mul)\s+v\d+\.4s", text)  # the functions of elements
    assert not re.search(r"\bbl\s+(fmaf?|expf?|tanhf?)\b", text)


@pytest.mark.quick
@pytest.mark.parametrize("target", ["wasm32-wasi", "armv7-linux", "x86_64-linux"])
def test_no_calls_for_multiply_adds(target):
    """Where there is no such instruction, LLVM would call the C library's function for each."""
    features = "x86-64-v2" if target == "x86_64-linux" else None
    machine, found = kernels(layer, *ARGUMENTS, target=target, features=features)
    assert not machine.has_fma
    for kernel in found:
        assert not re.search(r"\bfmaf?\b", re.sub(r"hloom\w+", "", cross.assembly(kernel, machine)))


@pytest.mark.quick
def test_features_of_processors():
    _, target, machine = target_of("x86_64-linux", "x86-64-v4")
    assert machine.vector_bytes == 64 and "avx512f" in dict(checked_features(target, machine))
    _, target, machine = target_of("x86_64-linux", "x86-64-v2")
    assert machine.vector_bytes == 16 and not machine.has_fma
    _, target, machine = target_of("armv7-linux", "+vfp4")
    assert machine.has_fma and "vfp4" in dict(checked_features(target, machine))
    _, target, machine = target_of("aarch64-linux", "+dotprod")
    assert dict(checked_features(target, machine))["dotprod"] == (16, 20)
    names = {cross.symbol(k, m) for t in TARGETS for m, ks in [kernels(hnp.sin, ARGUMENTS[0], target=t)] for k in ks}
    assert len(names) >= len(TARGETS) - 1  # each machine's code has a name of its own


def exportable(wanted):
    """The op table's cases that can be exported, as functions of named arguments; and how many cannot."""
    _, _, machine = target_of("aarch64-linux")
    functions, arguments, refused = {}, {}, 0
    for number, case in enumerate(cases()):
        if not case.name.startswith(wanted):
            continue
        try:
            program = hl.from_hlo(print_module(case.module))
            names = [f"c{number}_{k}" for k in range(len(case.arguments))]

            def run(*values, program=program):
                return program(*values)

            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            run.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])
            run.__name__ = f"case{number}"
            (request,) = requests_of(run, case.arguments, {}, (), ())
            function = traced(request, State(()))
            refuse_python({case.name: plan_of(function, machine)})
        except HloomError:
            refused += 1
            continue
        functions[run.__name__] = run
        arguments |= dict(zip(names, case.arguments, strict=True))
    return functions, arguments, refused


def run_under(emulator, target, wanted, folder):
    """(results, what the jitted calls here return) of the cases."""
    functions, arguments, refused = exportable(wanted)
    library = hl.export(functions, folder=folder, name="cases", target=target, kind="static", **arguments)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[target].zig]
    shutil.copyfile(PROGRAMS / "run_all.c", folder / "run_all.c")
    done = subprocess.run(
        [*zig, "-O1", "run_all.c", library.path.name, "-o", "run_all", "-lm"],
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    jitted, data = [], b""
    for name, function in functions.items():
        given = [arguments[n] for n in inspect.signature(function).parameters]
        data += b"".join(np.ascontiguousarray(a).tobytes() for a in given)
        jitted.append((name, hl.tree.leaves(hl.jit(function)(*given))))
    (folder / "in.bin").write_bytes(data)
    done = subprocess.run([emulator, "./run_all"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    data = (folder / "out.bin").read_bytes()
    pairs = []
    for name, results in jitted:
        for result in map(np.asarray, results):
            got = np.frombuffer(data[: result.nbytes], result.dtype).reshape(result.shape)
            data = data[result.nbytes :]
            pairs.append((name, got, result))
    assert not data
    return pairs, len(functions), refused


def check(pairs):
    for name, got, wanted in pairs:
        if wanted.dtype.kind in "biu":
            assert np.array_equal(got, wanted), name
            continue
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        limit = {2: 2e-2, 4: 2e-5, 8: 1e-11, 16: 1e-11}[wanted.dtype.itemsize // (1 + (wanted.dtype.kind == "c"))]
        assert np.allclose(got.astype(wide), wanted.astype(wide), rtol=limit, atol=limit, equal_nan=True), name


SAMPLE = ("scalar", "calls", "fusions", "dot", "sort", "gather", "scatter", "reduce", "while", "cond", "select")


@pytest.mark.slow
@pytest.mark.skipif(not ZIG, reason="ziglang (hloom[export]) links for other machines")
@pytest.mark.parametrize(
    ("target", "emulator"),
    [
        ("aarch64-linux-musl", "qemu-aarch64"),
        ("riscv64-linux-musl", "qemu-riscv64"),
        ("armv7-linux-musl", "qemu-arm"),
    ],
    ids=["aarch64", "riscv64", "armv7"],
)
def test_cases_of_the_op_table_on_other_machines(target, emulator, tmp_path):
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} (qemu-user) runs programs for {target}")
    pairs, count, refused = run_under(emulator, target, SAMPLE, tmp_path)
    assert count >= 7 and refused < count and len(pairs) >= 50
    check(pairs)


def test_without_a_compiler_for_the_target(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"zig is not installed[^$]*hloom\[export\]"):
        hl.export(hnp.sin, np.ones(3, np.float32), target="aarch64-linux", folder=tmp_path, name="sine")
