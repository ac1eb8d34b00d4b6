"""gather and scatter against HLO's definition, element by element; their errors."""

from __future__ import annotations

import numpy as np
import pytest
from indexed_cases import (
    COMBINERS,
    gather_by_definition,
    gather_computation,
    random_indices,
    random_windows,
    scatter_by_definition,
    scatter_computation,
)

from hloom.ir.build import Builder, scalar_computation
from hloom.ir.errors import HloomError
from hloom.ir.interpret import evaluate
from hloom.ir.types import Shape

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("seed", range(80))
def test_gather_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    w = random_windows(rng)
    dtype = [np.int32, np.int8, np.uint8, np.int64, np.uint64][seed % 5]
    x, i = rng.normal(size=w.operand).astype(np.float32), random_indices(rng, w, dtype)
    if dtype == np.uint64 and i.size:
        i.reshape(-1)[0] = 2**64 - 1  # beyond s64
    found = evaluate(gather_computation("f32", dtype, w), [x, i])
    np.testing.assert_array_equal(found, gather_by_definition(x, i, w))


@pytest.mark.parametrize("seed", range(80))
def test_scatter_is_its_definition(seed):
    rng = np.random.default_rng(1000 + seed)
    w = random_windows(rng)
    name = list(COMBINERS)[seed % len(COMBINERS)]
    combiner, combine = COMBINERS[name]
    x = rng.normal(size=w.operand).astype(np.float32)
    u = rng.normal(size=w.dims()).astype(np.float32)
    i = random_indices(rng, w)
    found = evaluate(scatter_computation("f32", "s32", w, combiner("f32")), [x, i, u])
    np.testing.assert_array_equal(found, scatter_by_definition(x, i, u, w, combine))


def test_scatter_of_several_arrays():
    """(value, key) pairs: the pair of the larger key stays."""
    builder = Builder("larger")
    a, b, c, d = (builder.parameter(Shape(t)) for t in ("f32", "s32", "f32", "s32"))
    less = builder.emit("compare", b, d, direction="LT")
    larger = builder.finish(builder.tuple([builder.emit("select", less, c, a), builder.emit("select", less, d, b)]))
    builder = Builder("f")
    shapes = [("f32", (4,)), ("s32", (4,)), ("s32", (5, 1)), ("f32", (5,)), ("s32", (5,))]
    parameters = [builder.parameter(Shape(*s)) for s in shapes]
    numbers = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    f = builder.finish(builder.emit("scatter", *parameters, update_window_dims=(), to_apply=larger, **numbers))
    values, keys = np.zeros(4, np.float32), np.array([0, 5, 0, 0], np.int32)
    at = np.array([[0], [1], [0], [9], [2]], np.int32)
    found = evaluate(f, [values, keys, at, np.arange(1, 6, dtype=np.float32), np.array([3, 4, 2, 9, 1], np.int32)])
    np.testing.assert_array_equal(found[0], [1, 0, 5, 0])
    np.testing.assert_array_equal(found[1], [3, 5, 1, 0])


def test_promised_distinct_indexes_that_are_not_still_count():
    rng = np.random.default_rng(0)
    w = random_windows(rng)
    while not (w.mapped and w.dims() and np.prod(w.dims()) > 6):
        w = random_windows(rng)
    combiner, combine = COMBINERS["add"]
    i = np.zeros(w.indices, np.int32)
    x, u = np.zeros(w.operand, np.float32), np.ones(w.dims(), np.float32)
    found = evaluate(scatter_computation("f32", "s32", w, combiner("f32"), unique=True), [x, i, u])
    np.testing.assert_array_equal(found, scatter_by_definition(x, i, u, w, combine))


GOOD = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 4),
}


@pytest.mark.parametrize(
    "changed, found",
    [
        ({"slice_sizes": (1, 5)}, "slice_sizes=(1, 5)"),
        ({"slice_sizes": (2, 4)}, "slice_sizes=(2, 4)"),
        ({"start_index_map": (0, 1)}, "start_index_map=(0, 1)"),
        ({"start_index_map": (2,)}, "(2,)"),
        ({"offset_dims": ()}, "offset_dims=()"),
        ({"offset_dims": (2,)}, "(2,)"),
        ({"index_vector_dim": 3}, "index_vector_dim=3"),
        ({"operand_batching_dims": (0,)}, "(0,)"),
        ({"operand_batching_dims": (1,), "slice_sizes": (1, 1)}, "(1,) and ()"),
        ({"collapsed_slice_dims": (1, 0), "offset_dims": (), "slice_sizes": (1, 1)}, "(1, 0)"),
    ],
)
def test_gather_rejects_wrong_dimension_numbers(changed, found):
    builder = Builder("f")
    x, i = builder.parameter(Shape("f32", (3, 4))), builder.parameter(Shape("s32", (2, 1)))
    builder.emit("gather", x, i, **GOOD)
    with pytest.raises(HloomError) as error:
        builder.emit("gather", x, i, **{**GOOD, **changed})
    assert "gather" in error.value.asked and found in error.value.found and error.value.repair


@pytest.mark.parametrize(
    "operand, indices, updates, found",
    [
        (("f32", (3, 4)), ("s32", (2, 1)), ("f32", (2, 5)), "(1, 5)"),
        (("f32", (3, 4)), ("s32", (2, 1)), ("f32", (3, 4)), "f32[3,4]"),
        (("f32", (3, 4)), ("s32", (2, 1)), ("f64", (2, 4)), "f64[2,4]"),
        (("f32", (3, 4)), ("f32", (2, 1)), ("f32", (2, 4)), "f32[2,1]"),
        (("f16", (3, 4)), ("s32", (2, 1)), ("f16", (2, 4)), "expected"),
    ],
)
def test_scatter_rejects_what_does_not_fit(operand, indices, updates, found):
    builder = Builder("f")
    parameters = [builder.parameter(Shape(*s)) for s in (operand, indices, updates)]
    with pytest.raises(HloomError) as error:
        builder.emit(
            "scatter",
            *parameters,
            update_window_dims=(1,),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            to_apply=scalar_computation("add", "f32"),
        )
    assert "scatter" in error.value.asked and found in error.value.found and error.value.repair
