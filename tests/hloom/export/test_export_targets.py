"""Programs for other machines: vector code, no calls for multiply-adds, a sample of the op table's cases under QEMU."""

import importlib.util
import re
import shutil

import numpy as np
import pytest
from exported_cases import check, run_under

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.compile import optimized_plan
from hloom.compiler.cache import default_cache
from hloom.compiler.targets.cpu import cross
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.errors import ExportError
from hloom.export.targets import TARGETS, checked_features, target_of

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
def test_extrema_of_float64_on_arm():
    """LLVM's code generator for 32-bit ARM has none, and would end the process."""

    def extrema(x):
        return hnp.maximum(x, x.mean()), hnp.minimum(x, 0.0), hnp.max(x)

    machine, found = kernels(extrema, np.ones(40), target="armv7-linux")
    assert all(cross.object_code(kernel, machine, default_cache()) for kernel in found)


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
    # Debian's qemu-user-static has it under another name.
    found = next(filter(shutil.which, (emulator, f"{emulator}-static")), None)
    if found is None:
        pytest.skip(f"{emulator} (qemu-user) runs programs for {target}")
    pairs, count, refused = run_under(found, target, SAMPLE, tmp_path)
    assert count >= 7 and len(refused) < count and len(pairs) >= 50
    check(pairs)


def test_without_a_compiler_for_the_target(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"zig is not installed[^$]*hloom\[export\]"):
        hl.export(hnp.sin, np.ones(3, np.float32), target="aarch64-linux", folder=tmp_path, name="sine")
