"""merge-dots: dots of few rows with one matrix as one dot, with the same values, where none needs another's result."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.passes.canonicalize import merged_dots
from hloom.compiler.pipeline import run_passes
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.ops.linalg.dot import free_dims
from hloom.ir.types import DTYPES, Shape


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(merged_dots, "NEAR", 0)


SIZES = (24, 24, 24, 30)


class Programs:
    """Random programs of products with a few matrices, from either side, of earlier results."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.dtype = DTYPES[str(self.random.choice(["f32", "s32", "f64", "bf16"]))]
        self.builder = Builder("main")
        self.arrays: list[np.ndarray] = []

    def parameter(self, *shape: int) -> Value:
        self.arrays.append(self.random.integers(-2, 3, shape).astype(self.dtype))
        return Value(self.builder, self.builder.parameter(Shape(self.dtype, shape)))

    def pick(self, values: list):
        return values[int(self.random.integers(len(values)))]

    def product(self, x: Value, w: Value) -> Value:
        """Of a vector or a few rows with a matrix, on one of its sides, as far as their sizes fit."""
        sides = [(i, k) for i, n in enumerate(x.dims) for k, m in enumerate(w.dims) if n == m]
        across, along = self.pick(sides)
        left, right, at, to = (x, w, across, along) if self.random.random() < 0.6 else (w, x, along, across)
        free = [left.dims[k] for k in free_dims(len(left.dims), (), (at,))]
        free += [right.dims[k] for k in free_dims(len(right.dims), (), (to,))]
        made = left.op("dot", right, shape=Shape(self.dtype, tuple(free)),
                       lhs_contracting_dims=(at,), rhs_contracting_dims=(to,))  # fmt: skip
        return made

    def module(self) -> Module:
        matrices = [self.parameter(SIZES[int(self.random.integers(4))], 24) for _ in range(2)]
        if self.random.random() < 0.5:
            matrices.append(matrices[0].transpose((1, 0)))
        rows = [self.parameter(*shape, 24) for shape in ((), (1,), (3,), (1, 2), (1,), (20,), ())]
        pool, results = list(rows), []
        for _ in range(int(self.random.integers(6, 25))):
            x, w = self.pick(pool), self.pick(matrices)
            if not set(x.dims) & set(w.dims):
                continue
            made = self.product(x, w)
            results.append(made)
            if made.dims in [r.dims for r in rows] and self.random.random() < 0.3:
                pool.append(made - self.pick([r for r in rows if r.dims == made.dims]))
        return Module("main", self.builder.finish(self.builder.tuple([r.instruction for r in results])))


def dots(module: Module) -> int:
    return sum(i.opcode == "dot" for i in module.entry.instructions)


def steps(count: int, turned: bool, recurrent: bool) -> tuple[Module, list[np.ndarray]]:
    """A network of `count` steps that each multiply a row of their own, and the last state where it is recurrent."""
    made = Programs(0)
    made.dtype = DTYPES["f32"]
    w, u = made.parameter(24, 24), made.parameter(24, 24)
    inputs = [made.parameter(1, 24) for _ in range(count)]
    state, attributes = made.parameter(1, 24), {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (int(turned),)}
    for x in inputs:
        part = x.op("dot", w, shape=x.instruction.shape, **attributes)
        state = (
            (part + state.op("dot", u, shape=x.instruction.shape, **attributes)).op("tanh")
            if recurrent
            else part + state
        )
    return Module("main", made.builder.finish(state.instruction)), made.arrays


@pytest.mark.parametrize("seed", [*range(20), 154, 233, 290])
def test_random_products(seed, monkeypatch):
    monkeypatch.setattr(merged_dots, "TURNED", 1)
    monkeypatch.setattr(merged_dots, "FEWEST", 2)
    made = Programs(seed)
    module = made.module()
    merged = run_passes(module, ("merge-dots",), verify=True)
    wanted = evaluate(module.entry, made.arrays)
    for found in (evaluate(merged.entry, made.arrays), compile_module(module)(made.arrays)):
        for a, b in zip(found, wanted, strict=True):
            scale = max(1.0, float(np.abs(b.astype(np.float64)).max(initial=0)))
            loose = 2e-2 if made.dtype == DTYPES["bf16"] else 1e-5
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=loose, atol=loose * scale)


def test_the_random_products_are_merged(monkeypatch):
    monkeypatch.setattr(merged_dots, "TURNED", 1)
    monkeypatch.setattr(merged_dots, "FEWEST", 2)
    modules = [Programs(seed).module() for seed in range(30)]
    assert sum(dots(run_passes(m, ("merge-dots",))) < dots(m) for m in modules) > 20


@pytest.mark.parametrize("turned", [False, True])
def test_the_inputs_of_a_recurrent_network_are_one_product(turned):
    module, arrays = steps(20, turned, True)
    merged = run_passes(module, ("merge-dots",), verify=True)
    assert dots(merged) == 21  # the states need each other
    np.testing.assert_allclose(evaluate(merged.entry, arrays)[0], evaluate(module.entry, arrays)[0], rtol=1e-5)


def test_few_rows_and_small_matrices_stay_apart(monkeypatch):
    for count, turned, left in ((3, False, 3), (4, False, 1), (8, True, 8), (16, True, 1)):
        module, _ = steps(count, turned, False)
        assert dots(run_passes(module, ("merge-dots",), verify=True)) == left
    monkeypatch.undo()
    assert dots(run_passes(steps(16, False, False)[0], ("merge-dots",))) == 16


def test_thousands_of_products():
    """No recursion, and each matrix takes one walk."""
    module, _ = steps(1500, False, True)
    merged = run_passes(module, ("merge-dots",))
    assert dots(merged) == 1501
