"""Dots in normal form; join-dots: sums of dots as one dot, exactly where that is less work, with the same values."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.passes.canonicalize.dots import is_canonical
from hloom.compiler.pipeline import run_passes
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.types import DTYPES, Shape


def sum_of_products(rng, steps: int, dims=(4, 12, 10), dtype="f32", shared=False):
    """Sum over steps of x_t^T y_t, added in a random order, between other terms. dims: rows of x_t, and columns."""
    rows, left, right = dims
    builder = Builder("main")
    arrays, terms = [], []

    def parameter(*shape):
        arrays.append(rng.integers(-3, 4, shape).astype(DTYPES[dtype]))
        return Value(builder, builder.parameter(Shape(DTYPES[dtype], shape)))

    for step in range(steps):
        x, y = parameter(rows + step % 2, left), parameter(rows + step % 2, right)
        terms.append(x.op("dot", y, lhs_contracting_dims=(0,), rhs_contracting_dims=(0,)))
    others = [parameter(left, right) for _ in range(2)]
    kept = terms[0] if shared else others[0]
    terms += others
    while len(terms) > 1:
        one, two = (terms.pop(int(rng.integers(len(terms)))) for _ in range(2))
        terms.append(one + two)
    return builder.finish(builder.tuple([(terms[0] * 2).instruction, kept.instruction])), arrays


def dots(computation) -> int:
    return sum(i.opcode == "dot" for i in computation.instructions)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", ["f32", "s32", "bf16"])
def test_sums_of_dots(seed, dtype):
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(3, 9))
    computation, arrays = sum_of_products(rng, steps, dtype=dtype, shared=seed % 2 == 1)
    module = Module("main", computation)
    joined = run_passes(module, ("join-dots",), verify=True)
    assert dots(joined.entry) == (1 if seed % 2 == 0 else min(2, steps))  # one that is needed alone stays
    wanted = evaluate(computation, arrays)
    exact = dtype != "bf16"  # of which each dot would be rounded
    for found in (evaluate(joined.entry, arrays), compile_module(module)(arrays)):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(
                a.astype(np.float64), b.astype(np.float64), rtol=0 if exact else 0.02, atol=0 if exact else 1
            )


@pytest.mark.parametrize(("steps", "dims"), [(2, (4, 12, 10)), (5, (40, 12, 10))])
def test_sums_that_are_less_work_apart(steps, dims):
    """Two of them, or with operands larger than the result."""
    computation, _ = sum_of_products(np.random.default_rng(0), steps, dims)
    module = Module("main", computation)
    assert run_passes(module, ("join-dots",)) is module


def test_many_terms():
    """A loop of many steps: no recursion."""
    computation, arrays = sum_of_products(np.random.default_rng(1), 1500, (1, 4, 5))
    joined = run_passes(Module("main", computation), ("join-dots",), verify=True)
    assert dots(joined.entry) == 1
    np.testing.assert_array_equal(evaluate(joined.entry, arrays)[0], evaluate(computation, arrays)[0])


@pytest.mark.parametrize(
    "left, right, canonical",
    [((5, 7), (7, 3), True), ((1, 7), (7, 3), False), ((5, 7), (7, 1), False), ((1, 1), (1, 1), False)],
)
def test_a_product_without_sizes_of_one_is_left_as_it_is(left, right, canonical):
    builder = Builder("main")
    x, y = (Value(builder, builder.parameter(Shape(DTYPES["f32"], dims))) for dims in (left, right))
    dot = x.op("dot", y, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    assert is_canonical(dot.instruction) is canonical
