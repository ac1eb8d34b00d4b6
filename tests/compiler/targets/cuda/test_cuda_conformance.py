"""Every op with a derivative, every golden program, and random ones, planned for CUDA and run in the simulator."""

import random

import numpy as np
import pytest
from cuda_plans import simulate
from derivative_cases import CASES, as_list
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed_cases import COMBINERS, random_indices, random_windows, scatter_by_definition, scatter_computation
from passes_support import DIVIDER, GOLDEN, arguments
from plan_simulator import small_cuts
from random_programs import Programs, check_outputs
from random_programs import arguments as random_arguments

from hloom.compiler.pipeline import PIPELINE, UNFUSED, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.compiler.targets.cuda.target import CudaTarget, NoCudaKernelError
from hloom.compiler.transforms.vjp import gradient
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.text import parse_module

SETTINGS = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck), "database": None}
TARGET = CudaTarget("sm_90")
FUSED = PIPELINE
WINDOWED = ("reduce-window", "sort", "scatter", "gather", "dot", "convolution", "select-and-scatter")


def is_excused(error: NoCudaKernelError) -> bool:
    """Whether the CPU has no kernel for the instruction either, or it is attention, one fusion in a golden program."""
    return not host_target().has_kernel(error.instruction) or error.instruction.opcode == "fusion"


def planned(module: Module, names=FUSED, donated=frozenset()):
    return make_plan(run_passes(module, names, target=TARGET, verify=True), TARGET, donated)


def close(got, want) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    bound = {2: 2e-2, 4: 2e-5}.get(want.real.dtype.itemsize, 1e-9)
    finite = np.abs(want[np.isfinite(want)].astype(wide)) if want.size else want
    scale = max(1.0, float(finite.max(initial=0.0)))
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=bound, atol=bound * scale)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_op(case):
    program, values = case.computation(), case.arguments()
    try:
        plan = planned(Module("case", program))
    except NoCudaKernelError as error:
        assert is_excused(error), error
        return
    with np.errstate(all="ignore"):
        wanted = as_list(evaluate(program, values))
    for got, want in zip(simulate(plan, values), wanted, strict=True):
        close(got, want)


@pytest.mark.parametrize("case", [c for c in CASES if c.opcode in WINDOWED], ids=str)
def test_gradients(case):
    program, values = case.computation(), case.arguments()
    chosen = [k for k, a in enumerate(values) if a.dtype.kind in "fc"]
    if len(program.outputs()) > 1 or program.outputs()[0].dtype.kind not in "fc" or not chosen:
        return
    made = gradient(program, chosen)
    seed = np.ones(program.outputs()[0].dims, program.outputs()[0].dtype)
    given = values if len(made.parameters) == len(values) else [*values, seed]
    plan = planned(Module("gradient", made))
    for got, want in zip(simulate(plan, given, reverse=True), as_list(evaluate(made, given)), strict=True):
        close(got, want)


@pytest.mark.parametrize("seed", range(40))
def test_random_scatters(seed):
    rng = np.random.default_rng(300 + seed)
    w = random_windows(rng)
    name = list(COMBINERS)[seed % len(COMBINERS)]
    combiner, combine = COMBINERS[name]
    x = rng.normal(size=w.operand).astype(np.float32)
    u = rng.normal(size=w.dims()).astype(np.float32)
    i = random_indices(rng, w)
    plan = planned(Module("scatter", scatter_computation("f32", "s32", w, combiner("f32"))))
    (found,) = simulate(plan, [x, i, u], reverse=seed % 2 == 1)
    np.testing.assert_array_equal(found, scatter_by_definition(x, i, u, w, combine))


LARGE = ("gelu_mlp", "gelu_mlp_step")  # tens of seconds in the simulator
FILES = [
    pytest.param(path, id=f"{path.parent.name}/{path.stem}", marks=[pytest.mark.slow] if path.stem in LARGE else [])
    for path in sorted(GOLDEN.glob("[fipr]*/*.hlo"))
]


@pytest.mark.parametrize("path", FILES)
def test_golden_programs(path):
    """Those of rules and passes as they stand before them, and by our own passes after."""
    module = parse_module(path.read_text().partition(DIVIDER)[0], str(path))
    values = arguments(module, 0, special=False)
    if any(i.opcode == "custom-call" and i["custom_call_target"] != "test.double" for i in module.entry.instructions):
        assert planned(module).kernels() is not None  # nobody can call it
        return
    try:
        plan = planned(module)
    except NoCudaKernelError as error:
        assert is_excused(error), error
        return
    with np.errstate(all="ignore"):
        wanted = as_list(evaluate(module.entry, values))
    for got, want in zip(simulate(plan, values), wanted, strict=True):
        close(got, want)


@pytest.mark.parametrize("names", [FUSED, UNFUSED], ids=["fused", "unfused"])
@pytest.mark.parametrize("cuts", ["small", "usual"])
def test_random_programs(names, cuts, monkeypatch):
    if cuts == "small":
        small_cuts(monkeypatch)

    @settings(max_examples=40, **SETTINGS)
    @given(st.integers(0, 1 << 30), st.integers(1, 20))
    def check(seed, size):
        rng = random.Random(seed)
        programs = Programs(rng)
        module = programs.module(size)
        arrays = random_arguments(module, seed)
        donated = frozenset(k for k in range(len(module.entry.parameters)) if rng.random() < 0.3)
        try:
            plan = planned(module, names, donated)
        except NoCudaKernelError as error:
            assert is_excused(error), error
            return
        check_outputs(programs, module, simulate(plan, arrays, reverse=seed % 2 == 1), arrays)

    check()
