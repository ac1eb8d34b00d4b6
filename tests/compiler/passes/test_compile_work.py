"""Compiling large graphs: work that grows as the graph does, and kernels of bounded size.

Work is counted in lines of the compiler that run, not timed.
"""

from __future__ import annotations

import sys

import linear_programs
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.passes.fusion.group import MEMBERS
from hloom.compiler.pipeline import run_passes
from hloom.compiler.schedule.scheduler import Plan, make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.module import Module

X = hl.ShapeDtypeStruct((8, 64), "f32")
LINES = 2000  # of a kernel's text, at most


def chain(count):
    def function(x):
        for k in range(count):
            x = hnp.sin(x) if k % 2 else x * 1.5 + 1
        return x

    return hl.make_module(function)(X)


def column_updates(count):
    def function(x):
        for k in range(count):
            x = x.at[:, k % 64].set(x[:, (k + 1) % 64] * 2 + k)
        return x

    return hl.make_module(function)(X)


def gradient_of_column_updates(count):
    def function(x):
        for k in range(count):
            total = hnp.sum(x, axis=1)
            x = x.at[:, k].set(total / (1 + x[:, k] * x[:, (k + 1) % count]))
        return hnp.sum(x)

    return hl.make_module(hl.grad(function))(hl.ShapeDtypeStruct((8, count), "f32"))


def recurrence(count):
    def function(x):
        out, state, cell = hnp.zeros((8, count), "float32"), x[:, 0], x[:, 1]
        for k in range(count):
            entry = x[:, k] * 0.5 + state
            cell = cell * hnp.tanh(entry) + hnp.sin(entry + state)
            state = hnp.tanh(cell) * 2 + cell
            out = out.at[:, k].set(state)
        return out, state, cell

    return hl.make_module(function)(hl.ShapeDtypeStruct((8, count), "f32"))


def sums_of_rows(count):
    return hl.make_module(lambda x: sum([hnp.sum(hnp.sin(x[k % 8] * k)) for k in range(count)]))(X)


def layers(count):
    def loss(x):
        for _ in range(count):
            x = hnp.tanh(x @ x.T @ x) + x
        return hnp.sum(x)

    return hl.make_module(hl.grad(loss))(X)


def siblings(count):
    return hl.make_module(lambda x: [hnp.sin(x * (k + 0.5)) + x for k in range(count)])(X)


PROGRAMS = {
    f.__name__: f
    for f in (chain, column_updates, gradient_of_column_updates, recurrence, sums_of_rows, layers, siblings)
}


def planned(module: Module) -> Plan:
    return make_plan(run_passes(module), host_target())


def lines_run(function, *arguments) -> int:
    """How many lines of hloom's own code run in a call."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if "hloom" not in frame.f_globals.get("__name__", ""):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_grows_as_the_graph_does(name):
    planned(PROGRAMS[name](8))  # what is computed once for all programs
    size = 40 if name.startswith("gradient") else 80
    once, twice = (lines_run(planned, PROGRAMS[name](n)) for n in (size, 2 * size))
    assert twice < 2.25 * once


LINEAR = [
    ("stack", False),
    ("stack_of_scalars", True),
    ("long_state", False),
    ("many_arguments", False),
    ("branches", True),
    ("wide_sum", True),
]


@pytest.mark.parametrize(("name", "gradient"), LINEAR)
def test_work_of_linear_programs(name, gradient):
    """A sample of what `tests/complexity.py` measures for all families."""

    def lines(count):
        function, arguments = linear_programs.program(name, count, gradient)
        return lines_run(planned, hl.make_module(function)(*arguments))

    lines(16)  # what is computed once for all programs
    assert lines(80) < 2.3 * lines(40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "instructions"),
    [("chain", 40_000, 95_000), ("column_updates", 5_000, 47_500), ("sums_of_rows", 6_000, 47_500)],
)
def test_large_graphs(name, count, instructions):
    """Deeper than Python's stack by far. The cheapest has a hundred thousand instructions; that the work of the others
    grows as they do is tested above."""
    module = PROGRAMS[name](count)
    assert len(module.entry.instructions) >= instructions
    assert planned(module).kernels()


def by_scan(combine):
    return lambda x: hnp.sum(lax.associative_scan(combine, x) * hnp.arange(x.shape[0], dtype="float32"))


def cumulative(function):
    return lambda x: hnp.sum(function(x) * hnp.arange(x.shape[0], dtype="float32"))


GRADIENTS = {
    "cummax": cumulative(lax.cummax),
    "cummin": cumulative(lax.cummin),
    "cumprod": cumulative(lax.cumprod),
    "cumlogsumexp": cumulative(lax.cumlogsumexp),
    "associative_scan(maximum)": by_scan(hnp.maximum),
    "associative_scan(multiply)": by_scan(lambda a, b: a * b),
}


@pytest.mark.parametrize("count", [16, 129, 1024])
@pytest.mark.parametrize("name", GRADIENTS)
def test_kernels_of_gradients_of_scans_are_bounded(name, count):
    module = hl.make_module(hl.grad(GRADIENTS[name]))(hl.ShapeDtypeStruct((count,), "f32"))
    assert max(step.launch.source.text.count("\n") for step in planned(module).kernels()) < LINES


@pytest.mark.parametrize("name", ["cummax", "cumlogsumexp", "associative_scan(maximum)"])
def test_gradients_of_scans_give_what_is_computed_unfused(name):
    x = np.random.default_rng(0).standard_normal(33).astype(np.float32)
    gradient = hl.grad(GRADIENTS[name])
    np.testing.assert_allclose(hl.jit(gradient)(x), hl.jit(gradient, fusion=False)(x), rtol=1e-5, atol=1e-5)


def test_updates_at_other_columns_are_the_same_kernel():
    """But for the smallest indexes, which are literals of the text."""
    plan = planned(column_updates(60))
    assert len(plan.kernels()) == 120
    assert len({step.launch.source.text for step in plan.kernels()}) < 30


def test_kernels_of_many_siblings_are_bounded():
    """All read one array: each kernel computes as many of them as its bound on instructions lets it."""
    module = run_passes(siblings(400))
    fused = [i["calls"] for i in module.entry.instructions if i.opcode == "fusion"]
    assert 400 * 3 / MEMBERS <= len(fused) <= 400 * 6 / MEMBERS
    assert all(len(c.instructions) < 3 * MEMBERS for c in fused)
