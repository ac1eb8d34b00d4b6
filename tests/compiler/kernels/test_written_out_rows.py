"""Rows of a few elements in loops: written out where neighbours of a row are read far from each other."""

from __future__ import annotations

import numpy as np
import pytest
from plan_simulator import simulate

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.types import DTYPES, Shape


def colours(dims, permutation, dtype):
    """Transposed, with something computed before and after; two results."""
    builder = Builder("main")
    x = Value(builder, builder.parameter(Shape(dtype, dims)))
    y = (x + x).transpose(permutation)
    row = Value(builder, builder.parameter(Shape(dtype, y.dims[-1:]))).broadcast(y.dims, (len(dims) - 1,))
    return builder.finish(builder.tuple([(y * row).instruction, (y - row).instruction]))


CASES = [
    ((2, 3, 9, 11), (0, 2, 3, 1), "f32"),
    ((2, 3, 9, 11), (0, 2, 3, 1), "bf16"),
    ((5, 7, 13), (1, 2, 0), "s32"),
    ((3, 2, 8, 8), (2, 3, 1, 0), "f64"),
    ((8, 70), (1, 0), "u8"),
    ((9, 70), (1, 0), "f32"),
    ((3, 5), (1, 0), "f32"),
]


@pytest.mark.quick
@pytest.mark.parametrize("case", CASES)
def test_transposes_of_few_planes(case):
    dims, permutation, name = case
    dtype = DTYPES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 9, d).astype(dtype) for d in (dims, (dims[permutation[-1]],))]
    computation = colours(dims, permutation, dtype)
    module = Module("main", computation)
    wanted = evaluate(computation, arrays)
    for a, b in zip(compile_module(module)(arrays), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    executable = compile_module(module)
    plan = make_plan(executable.module, host_target(), frozenset())
    for a, b in zip(simulate(plan, arrays), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
