"""Random programs: compiled, or their kernels' texts run with bounds checked, against the reference interpreter.

The numbers of examples are small; to look for bugs, raise them and drop `derandomize`.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_simulator import Ambiguous, simulate, small_cuts
from random_programs import Programs, arguments, assert_near, check_outputs

import hloom as hl
from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.pipeline import PIPELINE, UNFUSED, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.compiler.transforms.vjp import gradient
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module

SETTINGS = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck), "database": None}


def donated(rng: random.Random, module: Module) -> frozenset[int]:
    return frozenset(k for k in range(len(module.entry.parameters)) if rng.random() < 0.3)


@pytest.mark.parametrize("names", [PIPELINE, UNFUSED], ids=["fused", "unfused"])
@pytest.mark.parametrize("cuts", ["small", "usual"])
def test_kernel_texts_of_random_programs(names, cuts, monkeypatch):
    if cuts == "small":
        small_cuts(monkeypatch)

    @settings(max_examples=250, **SETTINGS)
    @given(st.integers(0, 1 << 30), st.integers(1, 25))
    def check(seed, size):
        rng = random.Random(seed)
        programs = Programs(rng)
        module = programs.module(size)
        arrays = arguments(module, seed)
        optimized = run_passes(module, names, verify=True)
        plan = make_plan(optimized, host_target(), donated(rng, module))
        try:
            results = simulate(plan, arrays, reverse=seed % 2 == 1)
        except Ambiguous:
            return
        check_outputs(programs, module, results, arrays)

    check()


@settings(max_examples=25, **SETTINGS)
@given(st.integers(0, 1 << 30))
def test_random_programs_compiled(seed):
    rng = random.Random(seed)
    programs = Programs(rng)
    module = programs.module(12)
    arrays = arguments(module, seed)
    reused = donated(rng, module)
    for fusion in (True, False):
        compiled = compile_module(module, fusion=fusion, donated=reused)
        found = [np.array(r) for r in compiled([a.copy() for a in arrays])]
        check_outputs(programs, module, found, arrays)
        with hl.config(num_threads=1):
            alone = compiled([a.copy() for a in arrays])
        for one, several in zip(alone, found, strict=True):
            assert one.tobytes() == several.tobytes(), "the bits depend on the number of threads"


@settings(max_examples=8, **SETTINGS)
@given(st.integers(0, 1 << 30))
def test_gradients_of_random_programs_compiled(seed):
    rng = random.Random(seed)
    programs = Programs(rng, dtypes=("f64",), smooth=True)
    programs.parameter()
    for _ in range(8):
        programs.step()
    forward = programs.scalar_output()
    module = Module("gradient", gradient(forward, range(len(forward.parameters))))
    arrays = arguments(module, seed)
    with np.errstate(all="ignore"):
        want = evaluate(module.entry, arrays)
    want = list(want) if isinstance(want, tuple) else [want]
    scale = max([1.0, *(float(np.abs(w).max()) for w in want if w.size)])
    for fusion in (True, False):
        found = compile_module(module, fusion=fusion)(arrays)
        for one, other in zip(found, want, strict=True):
            assert_near(one, other, 1e-10, scale, exact=False)
