"""Kernels that users write, for CUDA: in the lock-step simulator against the CPU, and compiled for sm_90."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cuda_plans import check

import hloom as hl

sys.path.insert(0, str(Path(__file__).parents[3] / "hloom" / "kernels"))
from user_programs import GENERATOR, PROGRAMS, floats

X = floats(7, 37)
NAMES = [name for name in PROGRAMS if name not in ("histogram", "mandelbrot")]


def small(value):
    """An argument, small enough for the simulator."""
    return value[tuple(slice(0, n) for n in (9, 37)[: value.ndim])].copy() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", NAMES)
def test_kernels_on_a_gpu(name):
    kernel, arguments = PROGRAMS[name]
    given = [small(a) for a in arguments]
    if name == "ragged":
        given = [floats(9, 9)]
    if name == "rows_of":
        given = [given[0], given[1] % 9]  # rows that a small array has
    if name == "product":
        given = [floats(3, 4), floats(4, 5)]
    arrays = [a for a in given if isinstance(a, np.ndarray)]

    def called(*traced):
        left = iter(traced)
        return kernel(*[next(left) if isinstance(a, np.ndarray) else a for a in given])

    check(called, *arrays)


@pytest.mark.parametrize("name", ["softmax", "stencil", "running_sum", "normalized"])
def test_many_calls_at_once_on_a_gpu(name):
    kernel, (x,) = PROGRAMS[name]
    x = small(x)
    check(hl.vmap(kernel), np.stack([x, 2 * x]))


@pytest.mark.parametrize("name", ["softmax", "softmax_of_rows", "stencil_of_slices", "running_sum", "product"])
def test_gradients_on_a_gpu(name):
    kernel, arguments = PROGRAMS[name]
    given = [small(a)[:5] for a in arguments]
    if name == "product":
        given = [floats(3, 4), floats(4, 5)]

    def gradient(*arrays):
        return hl.grad(lambda *a: (kernel(*a) ** 2).sum())(*arrays)

    check(gradient, *given)


@hl.kernel(unchecked=True)
def counted(indices, x):
    out = np.zeros(8, np.float32)
    for i in hl.parallel(len(indices)):
        hl.atomic_add(out, indices[i], x[i])
    return out


def test_atomic_updates_on_a_gpu():
    check(counted, GENERATOR.integers(0, 8, 40).astype(np.int32), floats(40))


@hl.kernel
def skipping(x):
    out = np.zeros_like(x)
    for i in hl.parallel(len(x)):
        for j in range(x.shape[1] - 1, 0, -3):
            if x[i, j] < 0:
                continue
            for k in range(j):
                if k % 2:
                    continue
                out[i, j] += x[i, k]
    return out


def test_loops_backwards_and_with_continue_on_a_gpu():
    check(skipping, X)


def test_a_kernel_whose_indices_are_checked_on_a_gpu():
    check(lambda x: PROGRAMS["histogram"][0](x, 4), np.abs(X[0]) / 5)


def test_kernels_compile_for_sm_90():
    compile_cuda = pytest.importorskip("hloom.compiler.targets.cuda.codegen.compile").compile_cuda
    pytest.importorskip("numba.cuda")
    from cuda_plans import planned

    for kernel, given in ((PROGRAMS["softmax"][0], X), (PROGRAMS["stencil"][0], X), (skipping, X)):
        plan, _ = planned(kernel, given)
        sources = [step.launch.source for step in plan.steps if hasattr(step, "launch")]
        assert all(code.cubin[:4] == b"\x7fELF" for code in compile_cuda(sources, "sm_90"))
