"""Several updates of arrays in the steps of a loop: no copies where reads can come first, and never a wrong value."""

from __future__ import annotations

import numpy as np
import pytest
from update_programs import UpdateProgram, check_simulated, outputs_of

import hloom as hl
from hloom import lax
from hloom.compiler.pipeline import run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.schedule.steps import BranchStep, CopyStep, JumpStep
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.interpret import evaluate

LARGE = 64_000


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_random_updates(first):
    """In the simulator: every access within bounds, no value read before it was written."""
    for seed in range(first, first + 20):
        check_simulated(seed)


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_random_updates_compiled(seed):
    """Loops that are one kernel too, with donated arguments."""
    program = UpdateProgram(seed)
    expected = outputs_of(evaluate(hl.make_module(program.function)(*program.arguments).entry, program.arguments))
    given = [hl.numpy.asarray(a) for a in program.arguments]
    found = hl.jit(program.function, donate_argnums=(0,))(*given)
    for got, want in zip(hl.tree.leaves(found), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


STEPS = {
    "update and update": lambda i, x: x.at[i - 1].add(0.5 * x[i]).at[i + 1].set(0.25),
    "swap": lambda i, x: x.at[i].set(x[i - 1]).at[i - 1].set(x[i]),
    "read back": lambda i, x: (lambda y: y.at[i + 1].multiply(y[i]))(x.at[i].add(x[i - 1])),
    "windows": lambda i, x: lax.dynamic_update_slice(
        lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i + 3,), (3,)) + 1, (i,)),
        lax.dynamic_slice(x, (i,), (2,)),
        (i + 5,),
    ),
    "an inner loop between updates": lambda i, x: (
        lax.fori_loop(0, 3, lambda j, x: x.at[i + j].add(x[j]).at[j].set(1.0), x.at[i].set(2.0)).at[i - 1].add(1.0)
    ),
    "a branch between updates": lambda i, x: (
        lax.cond(i % 2 == 0, lambda x: x.at[i].set(3.0).at[i - 1].add(1.0), lambda x: x, x.at[i].add(1.0))
        .at[0]
        .add(x[i])
    ),
}


def copied_in_loops(function, *arguments) -> int:
    """Bytes that the steps of loops copy."""
    plan = make_plan(run_passes(hl.make_module(function)(*arguments)), host_target(), whole=False)
    backwards = [(s.target, k) for k, s in enumerate(plan.steps) if isinstance(s, JumpStep) and s.target < k]
    inside = {k for start, stop in backwards for k in range(start, stop)}
    assert any(isinstance(s, BranchStep) for s in plan.steps)
    return sum(s.bytes for k, s in enumerate(plan.steps) if k in inside and isinstance(s, CopyStep))


@pytest.mark.parametrize("name", STEPS)
def test_updates_one_after_the_other_copy_nothing(name):
    x = np.arange(LARGE, dtype=np.float32)
    function = lambda x: lax.fori_loop(1, LARGE - 9, STEPS[name], x)  # noqa: E731
    assert copied_in_loops(function, x) < 256


def test_a_pair_of_arrays():
    a, b = np.arange(LARGE, dtype=np.float32), np.ones(LARGE, np.float32)

    def step(i, pair):
        a, b = pair
        return a.at[i].set(b[i]).at[i + 1].add(b[i - 1]), b.at[i].set(a[i]).at[i - 1].set(a[i + 1])

    assert copied_in_loops(lambda a, b: lax.fori_loop(1, LARGE - 1, step, (a, b)), a, b) < 256


def test_the_carry_of_a_scan():
    x = np.arange(LARGE, dtype=np.float32)

    def step(x, i):
        made = x.at[i].set(x[i - 1]).at[i - 1].add(x[i])
        return made, x[i]

    assert copied_in_loops(lambda x: lax.scan(step, x, np.arange(1, 1000)), x) < 256


def test_recurrences_on_arguments_are_one_kernel():
    """The array is copied before the kernel that contains the loop, not by it."""
    x = np.arange(LARGE, dtype=np.float32)
    function = lambda x: lax.fori_loop(1, LARGE, lambda i, x: x.at[i].add(0.5 * x[i - 1]), x)  # noqa: E731
    plan = make_plan(run_passes(hl.make_module(function)(x)), host_target())
    assert {s.launch.source.name for s in plan.kernels()} == {plan.kernels()[0].launch.source.name}
    assert plan.kernels()[0].launch.source.name.startswith("whole_")
    expected = x.copy()
    for i in range(1, LARGE):
        expected[i] += np.float32(0.5) * expected[i - 1]
    np.testing.assert_array_equal(hl.jit(function)(x), expected)


def test_an_old_version_that_is_a_result_is_kept():
    x = np.arange(200, dtype=np.int32)

    def step(i, pair):
        x, _ = pair
        first = x.at[i].add(1)
        return first.at[i + 1].set(first[i]), first

    made, before = hl.jit(lambda x: lax.fori_loop(0, 150, step, (x, x)))(x)
    a, b = x.copy(), x.copy()
    for i in range(150):
        b = a.copy()
        b[i] += 1
        a = b.copy()
        a[i + 1] = b[i]
    np.testing.assert_array_equal(made, a)
    np.testing.assert_array_equal(before, b)
