"""First calls and new shapes are measured in processes of their own."""

from __future__ import annotations

import pytest

from hloom.benchmarks.measure import startup
from hloom.benchmarks.report import goals
from hloom.benchmarks.workloads import WORKLOADS


@pytest.mark.slow
def test_first_calls_and_new_shapes():
    (row,) = startup.first_calls(["gelu_16k"], peers=())
    assert min(row.cold, row.warm) > 0 and row.imports["hloom"] > 0 and row.peers == {}
    assert row.stages["llvm"] > 0 and row.family == WORKLOADS["gelu_16k"].family
    (shape,) = startup.new_shapes(["gelu_16k"], peers=())
    assert 0 <= shape.compiled <= shape.kernels and shape.seconds > 0


def test_ratios_and_means():
    row = startup.FirstCall("a", "b", 0.2, 0.1, {"jax": 0.4}, {}, {})
    assert (row.ratio("jax"), row.ratio("jax", warm=True)) == (2.0, 4.0)
    assert goals.geometric_mean([1.0, 4.0]) == 2.0 and goals.geometric_mean([]) is None
