"""Concatenations of many pieces: copies, one function for all pieces, the values of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.kernels.loops import pieces
from hloom.compiler.pipeline import run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.types import DTYPES


def plan(function, *shapes):
    return make_plan(run_passes(hl.make_module(function)(*shapes)), host_target())


@pytest.mark.parametrize("seed", range(24))
def test_random_pieces(seed):
    """Of any widths, zero and one too, along any axis, read once or twice, computed or given."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[str(rng.choice(["f32", "f64", "s8", "pred", "bf16", "f16", "u64", "c64", "c128"]))]
    rank = int(rng.integers(1, 4))
    axis = int(rng.integers(rank))
    large = seed % 6 == 0
    dims = [int(n) for n in rng.integers(1, 300 if large else 7, rank)]
    widths = rng.choice([0, 1, 1, 2, 5, 5, 40], int(rng.integers(pieces.FEW + 1, 50)))
    arrays = [rng.integers(0, 2, [*dims[:axis], int(w), *dims[axis + 1 :]]).astype(dtype) for w in widths]
    for array in arrays:
        array.ravel()[:1] = np.array(7).astype(dtype)
    order = rng.integers(0, len(arrays), len(arrays))

    def function(*arrays):
        given = [arrays[k] if k % 3 or dtype == np.bool_ else arrays[k] + arrays[k] for k in order]
        return hnp.concatenate(given, axis)

    found = np.asarray(hl.jit(function)(*arrays))
    expected = [arrays[k] if k % 3 or dtype == np.bool_ else arrays[k] + arrays[k] for k in order]
    assert found.tobytes() == np.concatenate(expected, axis).tobytes()


def test_columns_of_many_arrays_are_stacked():
    arrays = [np.arange(1000, dtype=np.float32) + k for k in range(40)]
    np.testing.assert_array_equal(hl.jit(lambda *a: hnp.stack(a, axis=1))(*arrays), np.stack(arrays, axis=1))


def test_large_pieces_are_shared_by_threads():
    """In strips, where there is one row; pieces of one element among them."""
    sizes = [1, 70_000, 1, 3, 90_001, 1, 1, 5, 40_000, 1]
    arrays = [np.random.default_rng(k).standard_normal(n).astype(np.float32) for k, n in enumerate(sizes)]
    (step,) = plan(lambda *a: hnp.concatenate(a), *arrays).kernels()
    assert step.launch.items > 4
    assert np.asarray(hl.jit(lambda *a: hnp.concatenate(a))(*arrays)).tobytes() == np.concatenate(arrays).tobytes()


def test_a_loop_of_small_kernels_may_concatenate_many_pieces():
    x = np.arange(80, dtype=np.float32)

    def step(_, x):
        return hnp.concatenate([x[k : k + 8] * (k + 1) for k in range(72, -1, -8)])

    function = hl.jit(lambda x: lax.fori_loop(0, 5, step, x))
    expected = x
    for _ in range(5):
        expected = np.concatenate([expected[k : k + 8] * np.float32(k + 1) for k in range(72, -1, -8)])
    np.testing.assert_array_equal(np.asarray(function(x)), expected)


def test_text_grows_by_a_line_for_each_piece():
    shape = hl.ShapeDtypeStruct((500,), "f32")
    made = []
    for count in (100, 200):
        kernels = plan(lambda x, n=count: hnp.concatenate([x[k : k + 2] + k for k in range(n)]), shape).kernels()
        made.append(next(k for k in kernels if k.launch.source.name.startswith("pieces")).launch.source.text)
    assert made[1].count("\n") - made[0].count("\n") <= 200


@pytest.mark.parametrize("count", [2, pieces.FEW, pieces.FEW + 1, pieces.SOME])
def test_few_or_tiny_pieces_are_chosen_from(count):
    x = np.arange(32, dtype=np.float32)
    function = lambda x: hnp.concatenate([x[k : k + 1] * 2 for k in range(count)])  # noqa: E731
    assert len(plan(function, x).kernels()) == 1
    np.testing.assert_array_equal(hl.jit(function)(x), x[:count] * 2)
