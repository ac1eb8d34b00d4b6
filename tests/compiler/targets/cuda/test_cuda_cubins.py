"""Cubins in the disk cache, and what CUDA programs are compiled to: workloads for sm_90, golden ones for sm_80."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from cuda_programs import request, softmax
from kernel_nests import nests
from passes_support import DIVIDER, GOLDEN

import hloom as hl
from hloom.benchmarks.libraries import Hloom
from hloom.benchmarks.workloads import WORKLOADS
from hloom.benchmarks.workloads.training import FAMILY
from hloom.compiler.cache import Cache, default_cache
from hloom.compiler.compile_timings import collecting
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cuda.codegen import compile as cuda_compile
from hloom.compiler.targets.cuda.codegen import cubins as stored
from hloom.compiler.targets.cuda.codegen.compile import CudaNotInstalledError
from hloom.compiler.targets.cuda.codegen.cubins import cubin_key, cubins, disassembled
from hloom.compiler.targets.cuda.codegen.render import render
from hloom.compiler.targets.cuda.target import CudaTarget, NoCudaKernelError
from hloom.ir.text import parse_module

needs_cuda = pytest.mark.skipif(
    not cuda_compile.available(), reason='compiling needs the extra: pip install "hloom[cuda]"'
)
REGISTERS = Path(__file__).parents[3] / "golden" / "cuda" / "registers.json"

# Kernels that keep something in local memory: bytes, with the reason. None of them spills registers.
STACK = {"loop_multiply_cosine_add": (32, "libdevice's sin and cos reduce large angles in an array")}


def workload_plan(name: str, arch: str = "sm_90"):
    workload = WORKLOADS[name]
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    target = CudaTarget(arch)
    return make_plan(run_passes(hl.make_module(workload.bound(Hloom(True)))(*arrays), PIPELINE, target=target), target)


def sources(plan) -> list:
    return list(dict.fromkeys(step.launch.source for step in plan.kernels()))


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_planned(name):
    plan = workload_plan(name)
    for step in plan.kernels():
        launch, machine = step.launch, CudaTarget("sm_80").machine
        assert 0 < launch.threads <= machine.block_threads and launch.threads % 32 == 0
        assert 0 < launch.blocks < 2**31 and launch.shared_bytes <= machine.dynamic_bytes
        assert len(launch.arguments) == len(launch.source.params) == len(launch.source.parameters)


def checked(name: str, arch: str) -> list:
    """The texts of a workload. Products of whole training steps take minutes to compile; their kinds are in the others,
    and in test_cuda_contraction_compile."""
    training = WORKLOADS[name].family == FAMILY.name
    return [s for s in sources(workload_plan(name, arch)) if s.grain != "product" or not training]


def registers(arch: str) -> dict[str, dict[str, int]]:
    """Registers of each kernel of each workload, none of which spills any."""
    found: dict[str, dict[str, int]] = {}
    for name in WORKLOADS:
        kernels: dict[str, int] = {}
        for code in cubins(checked(name, arch), arch, default_cache()):
            assert code.spills == 0, f"{name}: {code.name} spills {code.spills} bytes"
            most, _ = STACK.get(code.name, (0, ""))
            assert code.stack <= most, f"{name}: {code.name} has {code.stack} bytes of local memory"
            title, count = code.name, 1
            while title in kernels:
                count += 1
                title = f"{code.name} {count}"
            kernels[title] = code.registers
        found[name] = kernels
    return found


@needs_cuda
@pytest.mark.slow
def test_no_kernel_of_a_workload_spills(request):
    """Registers are recorded, and may grow by eight: `pytest --bless` writes them anew."""
    arch = "sm_90"  # a minute of compilation; the golden programs are compiled for another one
    found = registers(arch)
    known = json.loads(REGISTERS.read_text())
    if request.config.getoption("--bless"):
        known |= {arch: found, "versions": stored.versions()}
        REGISTERS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    elif stored.versions() == known["versions"]:
        worse = [
            f"{name}: {kernel} {known[arch][name].get(kernel)} to {count}"
            for name, kernels in found.items()
            for kernel, count in kernels.items()
            # Those of products and attention follow from the number of blocks that are to fit.
            if not kernel.startswith(("product", "attention"))
            and count > known[arch].get(name, {}).get(kernel, 255) + 8
        ]
        assert not worse, worse


@needs_cuda
@pytest.mark.slow
def test_every_golden_program_is_compiled():
    """Those of rules and passes as they stand before them, by our own passes after."""
    arch = "sm_80"
    target, count = CudaTarget(arch), 0
    for path in sorted(GOLDEN.glob("[fipr]*/*.hlo")):
        module = parse_module(path.read_text().partition(DIVIDER)[0], str(path))
        try:
            plan = make_plan(run_passes(module, PIPELINE, target=target), target)
        except NoCudaKernelError:  # test_cuda_conformance says which may
            continue
        for code in cubins(sources(plan), arch, default_cache()):
            assert code.spills == 0, f"{path.stem}: {code.name} spills {code.spills} bytes"
            angles = "sine" in code.name or "cosine" in code.name  # as in STACK
            assert code.stack <= 32 * angles, f"{path.stem}: {code.name} has {code.stack} bytes of local memory"
            if not code.name.startswith(("product", "attention")):
                assert code.registers <= 96, f"{path.stem}: {code.name} has {code.registers} registers"
            count += 1
    assert count > 150


# --- the machine code ---------------------------------------------------------------------------------------------


def code_of(name: str, number: int, arch: str = "sm_90"):
    return cubins(sources(workload_plan(name, arch)), arch, default_cache())[number]


@needs_cuda
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "name, number, wanted",
    [
        ("tiny_add", 0, [r"ld\.global(\.nc)?\.v4", r"st\.global\.v4"]),
        ("gelu_4m", 0, [r"ld\.global(\.nc)?\.v4", r"st\.global\.v4"]),
        ("softmax", 0, [r"shfl\.sync\.bfly"]),
        ("cumsum_4m", 0, [r"shfl\.sync\.bfly", r"bar\.sync"]),
        ("top_k", 0, [r"shfl\.sync\.bfly"]),
        ("sort_rows", 0, [r"bar\.sync", r"st\.shared"]),
        ("sort_1m", 2, [r"vote\.sync\.ballot", r"shfl\.sync\.bfly", r"st\.shared"]),
        ("full_sum_16m", 0, [r"shfl\.sync\.bfly"]),
    ],
)
def test_what_is_promised_is_in_the_code(name, number, wanted, arch):
    code = code_of(name, number, arch)
    assert f".target {arch}" in code.ptx
    for pattern in wanted:
        assert re.search(pattern, code.ptx), pattern
    assert not re.search(r"\batom\.|\bred\.", code.ptx), "an atomic operation"


@needs_cuda
def test_machine_instructions_are_shown():
    code = code_of("gelu_4m", 0)
    if stored._nvdisasm() is None:
        with pytest.raises(CudaNotInstalledError, match="pip install nvidia-cuda-nvdisasm"):
            disassembled(code)
        return
    text = disassembled(code)
    assert "LDG.E.128" in text and "STG.E.128" in text


# --- the cache ----------------------------------------------------------------------------------------------------


def source():
    (nest,) = nests(request(softmax(40, 70)))
    return render(nest)


@needs_cuda
def test_a_second_process_compiles_nothing(tmp_path):
    with collecting() as stages:
        (first,) = cubins([source()], "sm_90", Cache(tmp_path))
    assert stages.counts == {"kernels compiled": 1}
    with collecting() as stages:
        (second,) = cubins([source()], "sm_90", Cache(tmp_path))
    assert stages.counts == {} and second == first


@needs_cuda
def test_a_machine_without_compilers_takes_what_another_made(tmp_path, monkeypatch):
    (first,) = cubins([source()], "sm_90", Cache(tmp_path))
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", None)
    monkeypatch.setattr(stored, "versions", lambda: "")
    (second,) = cubins([source()], "sm_90", Cache(tmp_path))
    assert second == first
    with pytest.raises(CudaNotInstalledError):
        cubins([source()], "sm_80", Cache(tmp_path))


@needs_cuda
def test_other_versions_compile_again(tmp_path, monkeypatch):
    cubins([source()], "sm_90", Cache(tmp_path))
    monkeypatch.setattr(stored, "versions", lambda: "numba 1.0")
    with collecting() as stages:
        cubins([source()], "sm_90", Cache(tmp_path))
    assert stages.counts == {"kernels compiled": 1}


def test_the_key_is_that_of_text_and_architecture():
    keys = {cubin_key(source(), arch) for arch in ("sm_80", "sm_90", "sm_90a")}
    assert len(keys) == 3 and cubin_key(source(), "sm_90") in keys
