"""gather and scatter compiled, differentiated and batched, on random dimension numbers."""

from __future__ import annotations

import numpy as np
import pytest
from derivative_cases import check
from indexed_cases import (
    COMBINERS,
    gather_by_definition,
    gather_computation,
    random_indices,
    random_windows,
    scatter_by_definition,
    scatter_computation,
)

import hloom as hl
from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.kernels import scatter
from hloom.compiler.targets.cpu.machine import host
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.jvp import jvp
from hloom.compiler.transforms.vjp import gradient
from hloom.ir.errors import DifferentiationError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.ops.indexing.windows import Windows
from hloom.ir.records import replace


def compiled(computation, arguments):
    (result,) = compile_module(Module("m", computation))(arguments)
    return result


@pytest.mark.parametrize("seed", range(24))
def test_compiled_gather(seed):
    rng = np.random.default_rng(seed)
    w = random_windows(rng)
    dtype = [np.int32, np.int8, np.uint8, np.int64][seed % 4]
    x, i = rng.normal(size=w.operand).astype(np.float32), random_indices(rng, w, dtype)
    found = compiled(gather_computation("f32", dtype, w), [x, i])
    np.testing.assert_array_equal(found, gather_by_definition(x, i, w))


@pytest.mark.parametrize("strip", [3, scatter.STRIP])
@pytest.mark.parametrize("seed", range(24))
def test_compiled_scatter(seed, strip, monkeypatch):
    monkeypatch.setattr(scatter, "STRIP", strip)
    rng = np.random.default_rng(100 + seed)
    w = random_windows(rng)
    name = list(COMBINERS)[seed % len(COMBINERS)]
    combiner, combine = COMBINERS[name]
    x = rng.normal(size=w.operand).astype(np.float32)
    u = rng.normal(size=w.dims()).astype(np.float32)
    i = random_indices(rng, w)
    found = compiled(scatter_computation("f32", "s32", w, combiner("f32")), [x, i, u])
    np.testing.assert_array_equal(found, scatter_by_definition(x, i, u, w, combine))


@pytest.mark.parametrize("seed", range(24))
def test_scatter_of_many_updates_is_cut_into_parts(seed, monkeypatch):
    """Each part in a table of its own; windows and places are those of any scatter."""
    monkeypatch.setattr(scatter, "ENOUGH", 1)
    monkeypatch.setattr(scatter, "TABLES", 0)
    monkeypatch.setattr(scatter, "STRIP", [3, scatter.STRIP][seed % 2])
    rng = np.random.default_rng(500 + seed)
    w = random_windows(rng)
    name = list(COMBINERS)[seed % len(COMBINERS)]
    combiner, combine = COMBINERS[name]
    x = rng.integers(1, 3, w.operand).astype(np.float32)
    u = rng.integers(1, 3, w.dims()).astype(np.float32)  # small numbers: exact in any order
    i = random_indices(rng, w)
    found = compiled(scatter_computation("f32", "s32", w, combiner("f32")), [x, i, u])
    np.testing.assert_array_equal(found, scatter_by_definition(x, i, u, w, combine))


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(24))
def test_scatters_by_bands_of_the_result(seed, cores, monkeypatch):
    """One band for each core, of which the last ones may be empty: the same bits as in one, whatever the combiner."""
    monkeypatch.setattr(scatter, "ENOUGH", 1)
    monkeypatch.setattr(scatter, "BAND", 1)
    monkeypatch.setattr(scatter, "_parts", lambda request: 1)
    monkeypatch.setattr(scatter, "STRIP", [3, scatter.STRIP][seed % 2])
    rng = np.random.default_rng(900 + seed)
    rows, width, updates = (int(n) for n in rng.integers(1, 20, 3))
    w = Windows((rows, width), (updates, 1), (1,), (0,), (0,), (), (), 1, (1, width))
    combiner, combine = COMBINERS[list(COMBINERS)[seed % len(COMBINERS)]]
    x = rng.normal(size=w.operand).astype(np.float32)
    u = rng.normal(size=w.dims()).astype(np.float32)
    i = rng.integers(-2, rows + 2, (updates, 1)).astype(np.int32)
    module = Module("m", scatter_computation("f32", "s32", w, combiner("f32")))
    made = compile_module(module, target=CpuTarget(replace(host(), cores=cores)))
    (launch,) = [step.launch for step in made.plan.kernels()]
    assert launch.items == cores and ("band" in launch.source.text) == (cores > 1)
    (found,) = made([x, i, u])
    np.testing.assert_array_equal(found, scatter_by_definition(x, i, u, w, combine))


@pytest.mark.parametrize("dtype, count", [("int32", 1 << 18), ("uint8", 300001), ("float32", 1 << 18)])
def test_histogram(dtype, count):
    rng = np.random.default_rng(7)
    places = rng.integers(-3, 80, count).astype(np.int32)
    call = hl.jit(lambda x, weights: hl.numpy.zeros(70, dtype).at[x].add(weights, mode="drop"))
    weights = (rng.integers(0, 9, count) if dtype != "float32" else rng.uniform(size=count)).astype(dtype)
    assert call.lower(places, weights).compile().source().count("table") > 5
    kept = np.where(places < 0, places + 70, places)
    kept, exact = kept[kept < 70], weights[kept < 70]
    expected = np.bincount(kept, exact, 70)
    if dtype == "float32":
        np.testing.assert_allclose(call(places, weights), expected, rtol=1e-5)
    else:
        np.testing.assert_array_equal(call(places, weights), expected.astype(np.int64).astype(dtype))


@pytest.mark.parametrize("seed", range(20))
def test_derivative_of_gather(seed):
    rng = np.random.default_rng(200 + seed)
    w = random_windows(rng)
    check(gather_computation("f64", "s32", w), [rng.normal(size=w.operand), random_indices(rng, w)])


@pytest.mark.parametrize("name", ["add", "overwrite", "minimum", "maximum"])
@pytest.mark.parametrize("seed", range(6))
def test_derivative_of_scatter(name, seed):
    rng = np.random.default_rng(300 + seed)
    w = random_windows(rng)
    computation = scatter_computation("f64", "s32", w, COMBINERS[name][0]("f64"))
    check(computation, [rng.normal(size=w.operand), random_indices(rng, w), rng.normal(size=w.dims())])


@pytest.mark.parametrize("name", ["multiply", "overwrite"])
def test_derivative_of_scatter_to_distinct_places(name):
    rng = np.random.default_rng(5)
    w = Windows((6, 3), (4, 1), (1,), (0,), (0,), (), (), 1, (1, 3))
    computation = scatter_computation("f64", "s32", w, COMBINERS[name][0]("f64"), unique=True)
    i = np.array([[4], [0], [9], [2]], np.int32)
    check(computation, [rng.normal(size=(6, 3)), i, rng.normal(size=(4, 3))])


def test_the_extreme_shares_its_derivative():
    w = Windows((2,), (3, 1), (), (0,), (0,), (), (), 1, (1,))
    f = gradient(scatter_computation("f64", "s32", w, COMBINERS["maximum"][0]("f64")), [0, 2])
    i = np.zeros((3, 1), np.int32)
    _, by_x, by_u = evaluate(f, [np.array([2.0, 7.0]), i, np.array([2.0, 1.0, 2.0]), np.array([3.0, 5.0])])
    np.testing.assert_array_equal(by_x, [1.0, 5.0])
    np.testing.assert_array_equal(by_u, [1.0, 0.0, 1.0])


def test_scatter_of_another_computation_has_no_derivative():
    rng = np.random.default_rng(0)
    w = random_windows(rng)
    with pytest.raises(DifferentiationError) as error:
        jvp(scatter_computation("f64", "s32", w, COMBINERS["halves"][0]("f64")), [True, False, True])
    assert "halves" in error.value.found and ".at[i]" in error.value.repair
    with pytest.raises(DifferentiationError) as error:
        jvp(scatter_computation("f64", "s32", w, COMBINERS["multiply"][0]("f64")), [True, False, True])
    assert "unique_indices" in error.value.repair


def check_batch(computation, arguments, mapped, size):
    """Batched, against one problem after the other."""
    made, out = batch(computation, mapped, size)[:2]
    assert out == [True]
    found = evaluate(made, arguments)
    for k in range(size):
        one = [a[k] if m else a for a, m in zip(arguments, mapped, strict=True)]
        np.testing.assert_array_equal(
            found[k] if not isinstance(found, tuple) else found[0][k], evaluate(computation, one)
        )


@pytest.mark.parametrize("mapped", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("seed", range(5))
def test_batched_gather(mapped, seed):
    rng = np.random.default_rng(400 + seed)
    w = random_windows(rng)
    lead = [(3,) if m else () for m in mapped]
    x = rng.normal(size=lead[0] + w.operand).astype(np.float32)
    i = rng.integers(-2, 6, lead[1] + w.indices).astype(np.int32)
    check_batch(gather_computation("f32", "s32", w), [x, i], mapped, 3)


@pytest.mark.parametrize(
    "mapped",
    [(True, False, False), (False, True, False), (False, False, True), (True, True, True), (True, False, True)],
)
@pytest.mark.parametrize("seed", range(4))
def test_batched_scatter(mapped, seed):
    rng = np.random.default_rng(500 + seed)
    w = random_windows(rng)
    lead = [(3,) if m else () for m in mapped]
    x = rng.normal(size=lead[0] + w.operand).astype(np.float32)
    i = rng.integers(-2, 6, lead[1] + w.indices).astype(np.int32)
    u = rng.normal(size=lead[2] + w.dims()).astype(np.float32)
    combiner = list(COMBINERS.values())[seed][0]
    check_batch(scatter_computation("f32", "s32", w, combiner("f32")), [x, i, u], mapped, 3)
