"""What becomes of collectives: reduce-scatter in place of more, one in place of many, none for nobody, and overlap."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax
from hloom.compiler.schedule.steps import ArriveStep, AwaitStep, KernelStep
from hloom.sharding import AxisType

DEVICES, WIDTH, LAYERS = 4, 64, 3
RANDOM = np.random.default_rng(0)


@pytest.fixture
def mesh():
    with hl.config(num_cpu_devices=DEVICES):
        yield hl.make_mesh((DEVICES,), ("d",), AxisType.Auto)


def put(mesh, value, *spec):
    return hl.device_put(value, NamedSharding(mesh, P(*spec)))


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32) / shape[-1] ** 0.5


def kinds(function, *arguments):
    return [c.kind for c in function.lower(*arguments).compile().collectives()]


@pytest.mark.quick
def test_a_sum_that_is_read_in_parts_is_scattered(mesh):
    x, w = put(mesh, values(8, 16), None, "d"), put(mesh, values(16, 12), "d")
    rows = NamedSharding(mesh, P(None, "d"))
    assert kinds(hl.jit(lambda x, w: x @ w), x, w) == ["all-reduce"]
    assert kinds(hl.jit(lambda x, w: x @ w, out_shardings=rows), x, w) == ["reduce-scatter"]
    both = hl.jit(lambda x, w: (hnp.tanh(lax.with_sharding_constraint(x @ w, rows)), x))
    assert kinds(both, x, w) == ["reduce-scatter"]


@pytest.mark.quick
def test_nothing_is_sent_for_a_result_that_nobody_reads(mesh):
    x, w = put(mesh, values(8, 16), None, "d"), put(mesh, values(16, 12), "d")

    def unused(x, w):
        total = x @ w  # would be all-reduced
        gathered = lax.with_sharding_constraint(w * 2, NamedSharding(mesh, P()))
        return x + 0 * hnp.zeros_like(x), [total, gathered][:0]

    assert kinds(hl.jit(unused), x, w) == []


@pytest.mark.quick
def test_small_sums_in_a_loop_become_one(mesh):
    x = put(mesh, values(DEVICES * 2, 8), "d")

    def loop(x):
        def step(state, _):
            a, b = state
            return (a + (x * b).sum(0), b + (x * a).sum(0)), None

        return lax.scan(step, (hnp.ones(8), hnp.ones(8)), None, length=5)[0]

    uses = hl.jit(loop).lower(x).compile().collectives()
    assert [(u.kind, u.times) for u in uses] == [("all-reduce", 5)]


def gradient_step():
    def loss(weights, x):
        for w in weights:
            x = hnp.tanh(x @ w)
        return (x**2).sum()

    def step(weights, x):
        gradients = hl.grad(loss)(weights, x)
        return [w - 0.01 * g for w, g in zip(weights, gradients, strict=True)]

    return hl.jit(step)


def test_devices_compute_while_they_wait(mesh):
    """Between the arrival at a sum of gradients and the wait for it the next layer's gradient is computed."""
    width = 600  # large enough not to be combined
    weights, x = [values(width, width) for _ in range(LAYERS)], values(64, width)
    step = gradient_step()
    given = put(mesh, weights), put(mesh, x, "d")
    steps = step.lower(*given).compile().executable.plan.steps
    assert sum(isinstance(s, ArriveStep) for s in steps) == sum(isinstance(s, AwaitStep) for s in steps)
    meanwhile, arrived = [], None
    for s in steps:
        if isinstance(s, ArriveStep):
            arrived = 0
        elif isinstance(s, KernelStep) and arrived is not None:
            arrived += 1
        elif isinstance(s, AwaitStep):
            meanwhile.append(arrived)
            arrived = None
    # One barrier begins, one ends each sum; all sums but the last one have work beside them.
    assert len(meanwhile) == 2 * LAYERS and sum(n > 0 for n in meanwhile) >= LAYERS - 1, meanwhile
    expected = step(weights, x)
    first = [np.asarray(w) for w in step(*given)]
    for _ in range(20):  # the same bits each time, whoever waits for whom
        for found, same, whole in zip(step(*given), first, expected, strict=True):
            np.testing.assert_array_equal(found, same)
            np.testing.assert_allclose(found, whole, rtol=1e-3, atol=1e-4)


@pytest.mark.quick
def test_memory_is_not_written_before_its_last_reader(mesh):
    """Results of collectives that begin early share no memory with what is read until they end."""
    x = put(mesh, values(DEVICES * 4, 700), "d")

    def chain(x):
        found = []
        for k in range(6):
            total = (hnp.tanh(x * (k + 1))).sum(0)  # a sum over devices
            x = hnp.sin(x * 1.5 + k)  # and work beside it
            found.append(total * 2)
        return found, x

    run = hl.jit(chain)
    expected, rest = run(np.asarray(x))
    for _ in range(30):
        found, other = run(x)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(other, rest, rtol=1e-4, atol=1e-4)


@pytest.mark.quick
def test_what_one_group_shares_is_read_by_another():
    """Gathered along one axis into memory that its group shares, then along the other axis."""
    with hl.config(num_cpu_devices=DEVICES):
        grid = hl.make_mesh((2, 2), ("x", "y"), AxisType.Auto)
        value = values(64, 32)
        for spec in (P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x"))):
            x = hl.device_put(value, NamedSharding(grid, spec))
            whole = hl.jit(lambda x: x * 2, out_shardings=NamedSharding(grid, P()))(x)
            half = hl.jit(lambda x: x * 2, out_shardings=NamedSharding(grid, P("y")))(x)
            for found in (whole, half):
                for shard in found.addressable_shards:
                    np.testing.assert_array_equal(shard.data, (value * 2)[shard.index])
