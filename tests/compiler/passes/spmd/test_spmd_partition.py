"""A partitioned program computes what the whole one does: random programs, random layouts, all meshes."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laid_out_programs import LaidOut
from op_modules import cases
from random_programs import Programs, arguments, check_outputs
from spmd_modules import MESHES, annotated, check, copied, run_partitioned

from hloom.compiler.passes.spmd.resharding import costs
from hloom.compiler.transforms.vjp import gradient
from hloom.ir.module import Module

NAMES = [c.name for c in cases() if c.name not in ("custom_calls", "collectives", "collective_broadcast")]


@pytest.fixture(params=[0.0, costs.LATENCY], ids=["by_bytes", "by_time"])
def latency(request, monkeypatch):
    """What a message costs: without it small arrays go the ways of large ones."""
    monkeypatch.setattr(costs, "LATENCY", request.param)
    return request.param


@pytest.mark.parametrize("name", NAMES)
def test_every_op_in_random_layouts(name, latency):
    case = next(c for c in cases() if c.name == name)
    for seed in range(3):
        drawn = random.Random(zlib.crc32(name.encode()) + seed)
        check(annotated(copied(case.module), drawn.choice(MESHES), drawn), list(case.arguments))


@pytest.mark.parametrize("price", [0.0, costs.LATENCY])
@given(st.randoms(use_true_random=False), st.sampled_from(MESHES), st.integers(1, 12), st.floats(0.3, 1.0))
def test_random_programs_in_random_layouts(price, drawn, mesh, size, chance):
    programs = Programs(drawn)
    module = programs.module(size)
    arrays = arguments(module, drawn.randrange(1000))
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "LATENCY", price)
        check_outputs(programs, module, run_partitioned(annotated(module, mesh, drawn, chance), arrays), arrays)


@pytest.mark.parametrize("price", [0.0, costs.LATENCY])
@given(st.randoms(use_true_random=False), st.sampled_from(MESHES), st.integers(1, 4))
def test_short_programs_in_layouts_that_divide_little(price, drawn, mesh, steps):
    made = LaidOut(drawn, mesh)
    module = made.module(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "LATENCY", price)
        check(module, made.arrays, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("price", [0.0, costs.LATENCY])
@given(st.randoms(use_true_random=False), st.sampled_from(MESHES), st.integers(1, 8))
def test_gradients_of_random_programs_in_random_layouts(price, drawn, mesh, size):
    programs = Programs(drawn, ("f64",), smooth=True)
    given_arrays = programs.module(size)  # draws the steps
    computation = programs.scalar_output()
    inputs = range(len(computation.parameters))
    module = copied(Module("gradient", gradient(computation, list(inputs))))
    arrays = [*arguments(given_arrays, 3), np.float64(1.0)]
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "LATENCY", price)
        check(annotated(module, mesh, drawn, 0.7), arrays, 1e-9)
