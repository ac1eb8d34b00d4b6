"""Rows and columns of a few elements: written out, with vectors along the many."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_programs import computation
from kernel_checks import check
from random_programs import largest_and_place

from hloom.compiler.kernels.loops.short_rows import SHORT
from hloom.compiler.targets.cpu.codegen import assembly
from hloom.ir.build import Builder
from hloom.ir.types import DTYPES, Shape


def kernels(program, kinds):
    """The kernels' sources, after a check of the results."""
    return [step.launch.source for step in check(program, kinds).plan.kernels()]


def total(x, *dimensions):
    return x.reduce("add", 0.0, dimensions)


@pytest.mark.parametrize("width", [2, 3, 4, SHORT])
def test_short_rows_are_vectors_of_rows(width, code_machine):
    (source,) = kernels(computation([("f32", (300, width))], lambda x: total(x * x, 1)), ["loop"])
    assert "sum_f32" not in source.text and source.text.count("in0[") == width
    assert "%ymm" in (text := assembly(source, code_machine)) or "%zmm" in text


def test_distances_of_points():
    """Each point's coordinates are read once, outside of the loop over the others."""

    def build(x):
        dims = (70, 90, 3)
        y = x.op("slice", slice=((0, 70, 1), (0, 3, 1)))
        difference = y.broadcast(dims, (0, 2)) - x.broadcast(dims, (1, 2))
        return total(difference * difference, 2)

    (source,) = kernels(computation([("f32", (90, 3))], build), ["loop"])
    assert source.text.split("for i1 in")[0].count("in0[") == 3


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "s32", "u8"])
def test_combiners(opcode, dtype):
    check(computation([(dtype, (65, 3))], lambda x: x.reduce(opcode, 1, (1,))), ["loop"])
    check(computation([(dtype, (80, 3))], lambda x: x.reduce(opcode, 1, (0,))), ["reduce", "join"])


def test_rows_that_are_normalized():
    """Reductions, one after the other, and outputs of the whole rows and of one number a row."""

    def build(x):
        m = x.reduce("maximum", -np.inf, (1,))
        e = (x - m.broadcast(x.dims, (0,))).op("exponential")
        s = total(e, 1)
        return e / s.broadcast(x.dims, (0,)), s

    (source,) = kernels(computation([("f32", (77, 4))], build), ["loop"])
    assert source.text.count("exp_f32") == 4


def test_initial_values_and_two_short_dimensions():
    check(computation([("f32", (9, 11, 2, 3))], lambda x: total(x, 2, 3) + total(x + 1.0, 2, 3)), ["loop"])


@pytest.mark.parametrize("dims", [(500, 3), (90, 2, 2), (4, 200, 3)], ids=str)
def test_few_columns_share_what_they_have_in_common(dims, code_machine):
    d = 1 if dims[0] == 4 else 0

    def build(x, w):
        weight = (w * w + 1.0).op("sqrt").broadcast(dims, tuple(range(d + 1)))
        return total(x / weight, d) * 2.0

    first, _ = kernels(computation([("f32", dims), ("f32", dims[: d + 1])], build), ["reduce", "join"])
    assert first.text.count("sqrt_f32") == 1
    assert "%ymm" in (text := assembly(first, code_machine)) or "%zmm" in text


def test_long_columns_come_in_chunks():
    x = computation([("f32", (100_000, 3))], lambda x: total(x * x, 0))
    first, _ = check(x, ["reduce", "join"]).plan.kernels()
    assert first.launch.items > 1


def test_searches_stay_rows():
    """Reductions of several operands have no short form."""
    builder = Builder("search")
    x = builder.parameter(Shape("f32", (90, 4)))
    place = builder.emit("iota", shape=Shape("s32", (90, 4)), iota_dimension=1)
    start, zero = builder.constant(np.float32(-np.inf)), builder.constant(0, "s32")
    to_apply = largest_and_place(DTYPES["f32"])
    check(builder.finish(builder.emit("reduce", x, place, start, zero, dimensions=(1,), to_apply=to_apply)), ["row"])
