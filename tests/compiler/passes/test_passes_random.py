"""Random graphs: the interpreter gives the same numbers before and after each pass and the whole pipeline."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from passes_support import arguments, assert_same, results
from random_graphs import Graphs
from silence import no_warnings

from hloom.compiler.pipeline import UNFUSED, run_passes

CHECKS = settings(
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def transformed(module, names):
    """After the passes, each verified; rules that go in a circle are an error here."""
    with no_warnings():
        return run_passes(module, names, verify=True)


@CHECKS
@given(st.randoms(use_true_random=False), st.integers(3, 14), st.integers(0, 1000))
def test_elementwise_and_movement_keep_every_bit(random, size, seed):
    module = Graphs(random, integral=False).module(size)
    after = transformed(module, UNFUSED)
    for special in (False, True):
        values = arguments(module, seed, special)
        for a, b in zip(results(module, values), results(after, values), strict=True):
            assert_same(a, b)


@CHECKS
@given(st.randoms(use_true_random=False), st.integers(3, 14), st.integers(0, 1000))
def test_sums_and_dots_of_whole_numbers(random, size, seed):
    module = Graphs(random, integral=True).module(size)
    rng = np.random.default_rng(seed)
    values = [rng.integers(-3, 4, p.dims).astype(p.dtype) for p in module.entry.parameters]
    before = results(module, values)
    # Above 2^53 floats round, and the order of a sum shows.
    assume(all(np.max(np.abs(b.astype(np.float64)), initial=0) < 2**40 for b in before))
    after = transformed(module, UNFUSED)
    for a, b in zip(before, results(after, values), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@settings(CHECKS, max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(3, 12), st.sampled_from(sorted(set(UNFUSED))))
def test_each_pass_alone(random, size, name):
    module = Graphs(random, integral=True).module(size)
    rng = np.random.default_rng(size)
    values = [rng.integers(-3, 4, p.dims).astype(p.dtype) for p in module.entry.parameters]
    before = results(module, values)
    assume(all(np.max(np.abs(b.astype(np.float64)), initial=0) < 2**40 for b in before))
    once = transformed(module, [name])
    for a, b in zip(before, results(once, values), strict=True):
        np.testing.assert_array_equal(a, b)
    assert once.entry.shape is module.entry.shape
    assert [p.shape for p in once.entry.parameters] == [p.shape for p in module.entry.parameters]
