"""The kernels of the benchmark's programs: each is written with the syntax tree that it was read from, and the text and
the LLVM IR of all of them are those of the last time, unless a change says otherwise (`pytest --bless`)."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections import Counter

import numpy as np
import pytest

from hloom.backends.compile import optimized_plan
from hloom.benchmarks.libraries import Hloom
from hloom.benchmarks.workloads import WORKLOADS
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernel_ir.verify import verify
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.schedule.steps import KernelStep
from hloom.compiler.targets.cpu import library
from hloom.compiler.targets.cpu.bounds import accesses_of
from hloom.compiler.targets.cpu.llvm_emitter import emitter
from hloom.compiler.targets.cpu.machine import Machine
from hloom.compiler.targets.cpu.target import CpuTarget

TRIPLE = "x86_64-unknown-linux-gnu"
CACHES = (32 << 10, 512 << 10, 32 << 20)
# Not those of the host, whose caches and vectors choose other kernels.
MACHINES = {
    "avx2": Machine("x86_64", "znver3", "+avx,+avx2,+bmi,+bmi2,+f16c,+fma", 32, 16, *CACHES, 2),
    "avx512": Machine(
        "x86_64",
        "znver4",
        "+avx,+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+bmi,+bmi2,+f16c,+fma",
        64,
        32,
        *CACHES,
        2,
    ),
}  # fmt: skip


class Normal(ast.NodeTransformer):
    """Of the texts that mean the same one: `range(n)` for `range(0, n)`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=0), stop]):
                node.args = [stop]
        return node


def tree(text: str) -> str:
    return ast.dump(Normal().visit(ast.parse(text)))


def assert_written_as_read(source: KernelSource) -> None:
    parts = [name for name, _ in source.parts]
    nodes = read(source.text, source.params, library.signature, parts)
    assert tree(printed(nodes)) == tree(source.text)
    verify(nodes, library.signature, parts)
    verify(source.nodes, library.signature, parts)
    for _, part in source.parts:
        assert_written_as_read(part)


@functools.cache
def steps(name: str, target: CpuTarget) -> list[KernelStep]:
    workload = WORKLOADS[name]
    module = Hloom(True).jitted(workload).lower(*workload.inputs(np.random.default_rng(0))).module
    return optimized_plan(module, target=target)[1].kernels()


def kernels(name: str, target: CpuTarget) -> list[KernelSource]:
    """The distinct kernels of a workload, in the order of their launches."""
    launches = [step.launch for step in steps(name, target)]
    passed = [a for launch in launches for a in launch.arguments if isinstance(a, KernelSource)]
    return list(dict.fromkeys([*(launch.source for launch in launches), *passed]))


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_the_benchmark(machine, golden):
    target, lines = CpuTarget(MACHINES[machine], False), []
    for name in WORKLOADS:
        digest = hashlib.sha256()
        found = kernels(name, target)
        for source in found:
            assert_written_as_read(source)
            text, libraries = emitter.kernel_text(source, TRIPLE, library.signature, library.shared_size)
            digest.update(repr((source, text, libraries)).encode())
        lines.append(f"{name} {len(found)} {digest.hexdigest()[:16]}")
    golden(f"kernels/{machine}.txt", "\n".join(lines) + "\n")


def test_accesses_of_the_benchmark_are_proved(golden):
    """Each launch of the benchmark's programs, with the sizes that it has: how many of its accesses are proved."""
    target = CpuTarget(MACHINES["avx2"], False)
    lines, all_of, whole, launches = [], Counter[str](), 0, 0
    for name in WORKLOADS:
        known = {
            (step.launch.source, repr(step.launch.arguments), repr(step.extents)): step for step in steps(name, target)
        }
        total = Counter[str]()
        for step in known.values():
            accesses = accesses_of(step.launch, step.least_extents()).values()
            found = Counter(access.status for of in accesses for access in of)
            whole, launches = whole + (found.total() == found["proved"]), launches + 1
            total += found
        all_of += total
        lines.append(f"{name} {total['proved']} of {total.total()}")
    assert all_of["out of range"] == 0
    assert all_of["proved"] >= 0.96 * all_of.total()
    lines.append(f"all {all_of['proved']} of {all_of.total()}, all of {whole} of {launches} launches")
    golden("kernels/proved.txt", "\n".join(lines) + "\n")
