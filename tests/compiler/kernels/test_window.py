"""reduce-window, select-and-scatter and batch normalization compiled, against the interpreter."""

from __future__ import annotations

import numpy as np
import op_modules
import pytest
import window_programs as programs
from plan_simulator import simulate

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.schedule.steps import HostStep
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.build import scalar_computation
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation, Module
from hloom.ir.ops.reductions.window import comparison, selecting_combiner
from hloom.ir.types import DTYPES
from hloom.ir.window import WindowDimension as W

DTYPE_NAMES = ("f32", "f64", "s32", "bf16", "s8", "c64", "u8", "f16")


def as_list(value):
    return list(value) if isinstance(value, tuple) else [value]


def plan_of(computation: Computation):
    module = run_passes(Module("main", computation), PIPELINE, verify=True)
    plan = make_plan(module, host_target(), frozenset())
    assert not any(isinstance(s, HostStep) for s in plan.steps)
    return plan


def check(computation: Computation, arrays, compiled: bool) -> None:
    arrays = [np.asarray(a) for a in arrays]
    found = compile_module(Module("main", computation))(arrays) if compiled else simulate(plan_of(computation), arrays)
    for a, b in zip(found, as_list(evaluate(computation, arrays)), strict=True):
        np.testing.assert_array_equal(a, b)


def random_reduce_window(seed):
    rng = np.random.default_rng(seed)
    dtype = DTYPES[DTYPE_NAMES[seed % len(DTYPE_NAMES)]]
    opcode = "add" if dtype.kind == "c" else ("add", "maximum", "minimum")[seed % 3]
    dims = rng.integers(1, 7, rng.integers(0, 5))
    window = programs.random_window(rng, dims)
    # Dimensions that stay as they are, before and after the others.
    window = tuple(W(1) if rng.random() < 0.4 else d for d in window)
    x, start = programs.values(rng, dtype, dims), programs.values(rng, dtype, ())
    computation = programs.single(
        "reduce-window", [x, start], window=window, to_apply=scalar_computation(opcode, dtype)
    )
    return computation, [x, start]


@pytest.mark.parametrize("seed", range(120))
def test_kernel_texts_of_random_reduce_windows(seed):
    check(*random_reduce_window(seed), compiled=False)


@pytest.mark.parametrize("seed", range(300, 316))
def test_random_reduce_windows_compiled(seed):
    check(*random_reduce_window(seed), compiled=True)


def random_select_and_scatter(seed):
    rng = np.random.default_rng(seed)
    dtype = DTYPES[("f32", "s32", "f64", "bf16")[seed % 4]]
    dims = rng.integers(1, 7, rng.integers(1, 5))
    window = programs.random_window(rng, dims, dilates=False)
    window = tuple(W(1) if rng.random() < 0.4 else d for d in window)
    x = programs.values(rng, dtype, dims)
    source = programs.values(rng, dtype, [d.output(e) for d, e in zip(window, dims, strict=True)])
    start = programs.values(rng, dtype, ())
    computation = programs.single(
        "select-and-scatter", [x, source, start], window=window,
        select=comparison(("GE", "GT", "LE", "LT")[seed % 4], dtype),
        scatter=scalar_computation(("add", "maximum")[seed % 2], dtype),
    )  # fmt: skip
    return computation, [x, source, start]


@pytest.mark.parametrize("seed", range(80))
def test_kernel_texts_of_random_select_and_scatters(seed):
    check(*random_select_and_scatter(seed), compiled=False)


@pytest.mark.parametrize("dims, sizes", [
    ((2, 6, 9, 5), (1, 2, 3, 1)), ((3, 6, 8), (1, 3, 2)), ((2, 3, 4, 20), (1, 1, 1, 4)), ((8, 6, 17), (4, 3, 1)),
    ((12,), (3,)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32", "f64"])
def test_windows_side_by_side_write_each_element_once(dims, sizes, dtype):
    rng = np.random.default_rng(3)
    window = tuple(W(size, size) for size in sizes)
    x = rng.integers(0, 4, dims).astype(DTYPES[dtype])  # most windows have their largest element twice
    if dtype == "f32":
        x.reshape(-1)[::7] = np.nan
    source = programs.values(rng, DTYPES[dtype], [e // size for e, size in zip(dims, sizes, strict=True)])
    arrays = [x, source, np.asarray(2, DTYPES[dtype])]
    computation = programs.single(
        "select-and-scatter", arrays, window=window, select=comparison("GE", DTYPES[dtype]),
        scatter=scalar_computation("add", DTYPES[dtype]),
    )  # fmt: skip
    (kernel,) = plan_of(computation).kernels()
    assert kernel.launch.source.name.startswith("select_tiled")
    check(computation, arrays, compiled=False)
    check(computation, arrays, compiled=True)


@pytest.mark.parametrize("seed", range(300, 308))
def test_random_select_and_scatters_compiled(seed):
    check(*random_select_and_scatter(seed), compiled=True)


@pytest.mark.parametrize("dims, window", [
    ((4, 9), (W(1), W(9, 1, 8, 0))), ((9, 4), (W(9, 1, 0, 8), W(1))), ((3, 5, 2), (W(1), W(5, 1, 4, 0), W(1))),
    ((6,), (W(8, 1, 7, 0),)), ((0, 3), (W(1), W(3, 1, 2, 0))),
])  # fmt: skip
@pytest.mark.parametrize("compiled", [False, True])
def test_running_combinations(dims, window, compiled):
    x = programs.values(np.random.default_rng(0), np.float32, dims)
    for opcode, start in (("add", 0), ("maximum", -np.inf)):
        to_apply = scalar_computation(opcode, np.dtype("float32"))
        arrays = [x, np.float32(start)]
        check(programs.single("reduce-window", arrays, window=window, to_apply=to_apply), arrays, compiled)


def running(x, opcode="add", start=0, reverse=False):
    extent = x.shape[-1]
    window = (*[W(1)] * (x.ndim - 1), W(extent, 1, *((0, extent - 1) if reverse else (extent - 1, 0))))
    to_apply = scalar_computation(opcode, x.dtype)
    arrays = [x, np.asarray(start, x.dtype)]
    return programs.single("reduce-window", arrays, window=window, to_apply=to_apply), arrays


def test_running_combinations_cost_what_the_array_costs():
    plan = plan_of(running(np.ones((16, 1 << 16), np.float32))[0])
    (kernel,) = plan.kernels()
    assert kernel.launch.source.text.count("for ") == 2  # items, and the row


@pytest.mark.parametrize("dims", [(40000,), (2, 32768), (3, 50001)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("opcode, dtype", [("add", "s32"), ("add", "s8"), ("multiply", "u32"), ("maximum", "f32")])
def test_few_long_rows_are_cut(dims, reverse, opcode, dtype):
    x = np.random.default_rng(1).integers(-9, 100, dims).astype(DTYPES[dtype]) | 1 if dtype != "f32" else (
        np.random.default_rng(1).normal(size=dims).astype(np.float32)
    )  # fmt: skip
    computation, arrays = running(x, opcode, 3, reverse)
    assert len(plan_of(computation).kernels()) == 2
    (found,) = compile_module(Module("main", computation))(arrays)
    ufunc = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum}[opcode]
    turned = x[..., ::-1] if reverse else x
    start = np.full((*dims[:-1], 1), 3, x.dtype)
    with np.errstate(over="ignore"):
        expected = ufunc.accumulate(np.concatenate([start, turned], -1), -1, dtype=x.dtype)[..., 1:]
    np.testing.assert_array_equal(found, expected[..., ::-1] if reverse else expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_of_a_long_row(reverse):
    """No worse than one addition after the other, and never falling where nothing is negative."""
    x = np.random.default_rng(2).uniform(size=300007).astype(np.float32)
    (found,) = compile_module(Module("main", (made := running(x, reverse=reverse))[0]))(made[1])
    if reverse:
        x, found = x[::-1], found[::-1]
    exact = np.cumsum(x.astype(np.float64))
    assert np.all(np.diff(found) >= 0)
    assert np.max(np.abs(found - exact) / exact) <= np.max(np.abs(np.cumsum(x) - exact) / exact)


@pytest.mark.parametrize("compiled", [False, True])
def test_several_arrays(compiled):
    rng = np.random.default_rng(4)
    x, y = rng.permutation(40).reshape(5, 8).astype(np.float32), programs.values(rng, np.int32, (5, 8))
    arrays = [x, y, np.float32(-np.inf), np.int32(7)]
    to_apply = selecting_combiner("GE", np.dtype("float32"), np.dtype("int32"))
    for window in ((W(3, 2, 1, 1), W(2)), (W(2), W(1))):
        check(programs.single("reduce-window", arrays, window=window, to_apply=to_apply), arrays, compiled)


@pytest.mark.parametrize("name", ["convolutions", "windows", "selections_over_windows", "batch_normalizations"])
def test_modules_compiled(name):
    (case,) = [c for c in op_modules.cases() if c.name == name]
    found = compile_module(case.module)(list(case.arguments))
    for a, b in zip(found, as_list(evaluate(case.module.entry, case.arguments)), strict=True):
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        tolerance = 0.02 if a.dtype.itemsize == 2 else 2e-5
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


def test_batch_normalizations_are_expanded():
    (case,) = [c for c in op_modules.cases() if c.name == "batch_normalizations"]
    module = run_passes(case.module, PIPELINE, verify=True)
    assert not any(i.opcode.startswith("batch-norm") for i in module.instructions())
