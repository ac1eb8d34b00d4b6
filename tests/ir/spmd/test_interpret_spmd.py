"""Programs on several devices by the reference interpreter: the examples of StableHLO's specification and more."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hloom.errors import ParticipantsError, ShapeError
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.interpret import run
from hloom.ir.module import Module
from hloom.ir.spmd.interpret import run_spmd
from hloom.ir.types import DTYPES, PRED, Shape, TupleShape

pytestmark = pytest.mark.quick

S64 = DTYPES["s64"]


def results(opcode, values, replicas=1, partitions=1, shape=None, **attributes):
    b = Builder("main")
    values = [np.asarray(v, S64) for v in values]
    x = b.parameter(Shape(S64, values[0].shape))
    module = Module("m", b.finish(b.emit(opcode, x, shape=shape, **attributes)), None, replicas, partitions)
    return [r.tolist() for r in run_spmd(module, [[v] for v in values])]


ADD = scalar_computation("add", S64)
FOUR = [[10 * k, 10 * k + 1] for k in range(4)]


def test_all_reduce_in_groups_by_every_way_of_counting():
    flat = results("all-reduce", FOUR, 1, 4, to_apply=ADD, replica_groups=((0, 3), (2, 1)), use_global_device_ids=True)
    assert flat == [[30, 32], [30, 32], [30, 32], [30, 32]]
    # devices 0, 1 are the partitions of replica 0
    replicas = results("all-reduce", FOUR, 2, 2, to_apply=ADD, replica_groups=((0, 1),))
    assert replicas == [[20, 22], [40, 42], [20, 22], [40, 42]]
    both = results("all-reduce", FOUR, 2, 2, to_apply=ADD, replica_groups=((0, 1),), channel_id=1)
    assert both == [[60, 64]] * 4
    own = results("all-reduce", FOUR, 2, 2, to_apply=ADD, replica_groups=((0,), (1,)), channel_id=1)
    assert own == [[10, 12], [10, 12], [50, 52], [50, 52]]
    assert results("all-reduce", FOUR, 4, 1, to_apply=ADD) == [[60, 64]] * 4


def test_all_gather_reduce_scatter_and_all_to_all():
    groups = {"replica_groups": ((1, 0), (2, 3)), "use_global_device_ids": True}
    gathered = results("all-gather", FOUR, 1, 4, dimensions=(0,), **groups)
    assert gathered == [[10, 11, 0, 1], [10, 11, 0, 1], [20, 21, 30, 31], [20, 21, 30, 31]]
    scattered = results("reduce-scatter", FOUR, 1, 4, dimensions=(0,), to_apply=ADD, **groups)
    assert scattered == [[12], [10], [50], [52]]
    crossed = results("all-to-all", FOUR, 1, 4, dimensions=(0,), replica_groups=((1, 0), (2, 3)), channel_id=1)
    assert crossed == [[11, 1], [10, 0], [20, 30], [21, 31]]
    of_both = results(
        "all-gather", FOUR, 2, 2, shape=Shape(S64, (8,)), dimensions=(0,), replica_groups=((0, 1),), channel_id=3
    )
    assert of_both == [[0, 1, 20, 21, 10, 11, 30, 31]] * 4


def test_permute_and_broadcast_leave_zeros_where_nobody_sends():
    assert results("collective-permute", FOUR[:3], 3, 1, source_target_pairs=((0, 1), (1, 2))) == [
        [0, 0],
        [0, 1],
        [10, 11],
    ]
    rows = results("collective-permute", FOUR, 2, 2, source_target_pairs=((0, 1),), channel_id=1)
    assert rows == [[0, 0], [0, 1], [0, 0], [20, 21]]
    sent = results("collective-broadcast", FOUR[:3], 3, 1, replica_groups=((2, 1),))
    assert sent == [[0, 0], [20, 21], [20, 21]]


def test_all_to_all_of_several_arrays_and_an_all_reduce_of_two():
    b = Builder("main")
    x, y = (b.parameter(Shape(S64, (2,))) for _ in "xy")
    crossed = b.emit("all-to-all", x, y, replica_groups=((0, 1),))
    summed = b.emit("all-reduce", x, y, to_apply=ADD, replica_groups=((0, 1),))
    parts = [b.emit("get-tuple-element", t, index=k) for t in (crossed, summed) for k in (0, 1)]
    module = Module("m", b.finish(b.tuple(parts)), None, 2, 1)
    given = [[np.array([1, 2]), np.array([3, 4])], [np.array([5, 6]), np.array([7, 8])]]
    first, second = run_spmd(module, given)
    assert [r.tolist() for r in first] == [[1, 2], [5, 6], [6, 8], [10, 12]]
    assert [r.tolist() for r in second] == [[3, 4], [7, 8], [6, 8], [10, 12]]


def test_numbers_of_devices():
    b = Builder("main")
    module = Module("m", b.finish(b.tuple([b.emit("replica-id"), b.emit("partition-id")])), None, 2, 3)
    assert [tuple(map(int, r)) for r in run_spmd(module, [[]] * 6)] == [(r, p) for r in range(2) for p in range(3)]


def _loop(steps_by_device):
    """while (k < steps) { total = all-reduce(total); k += 1 }"""
    scalar = Shape(S64)
    state = TupleShape((scalar, scalar, scalar))

    def element(b, p, k):
        return b.emit("get-tuple-element", p, index=k)

    c = Builder("condition")
    p = c.parameter(state)
    condition = c.finish(c.emit("compare", element(c, p, 0), element(c, p, 1), direction="LT"))
    b = Builder("body")
    p = b.parameter(state)
    total = b.emit("all-reduce", element(b, p, 2), to_apply=ADD)
    count = b.emit("add", element(b, p, 0), b.constant(1, S64))
    body = b.finish(b.tuple([count, element(b, p, 1), total]))
    m = Builder("main")
    steps, x = m.parameter(scalar), m.parameter(scalar)
    root = m.emit("while", m.tuple([m.constant(0, S64), steps, x]), condition=condition, body=body)
    module = Module("m", m.finish(m.emit("get-tuple-element", root, index=2)), None, len(steps_by_device), 1)
    return run_spmd(module, [[np.int64(n), np.int64(k + 1)] for k, n in enumerate(steps_by_device)])


def test_collectives_in_loops_and_devices_that_wait_in_vain():
    assert [int(r) for r in _loop([3, 3])] == [12, 12]
    with pytest.raises(ParticipantsError, match=r"device 1 at all-reduce of the devices \[0, 1\]"):
        _loop([2, 3])
    assert threading.active_count() < 20


def test_a_collective_in_one_branch_only_is_found():
    b = Builder("branch")
    p = b.parameter(Shape(S64))
    left = b.finish(b.emit("all-reduce", p, to_apply=ADD))
    b = Builder("other")
    right = b.finish(b.parameter(Shape(S64)))
    m = Builder("main")
    where, x = m.parameter(Shape(PRED)), m.parameter(Shape(S64))
    module = Module("m", m.finish(m.emit("conditional", where, x, x, branch_computations=(left, right))), None, 2, 1)
    assert [int(r) for r in run_spmd(module, [[True, 1], [True, 2]])] == [3, 3]
    assert [int(r) for r in run_spmd(module, [[False, 1], [False, 2]])] == [1, 2]
    with pytest.raises(ParticipantsError, match="device 0 at all-reduce"):
        run_spmd(module, [[True, 1], [False, 2]])


def test_what_an_op_raises_on_a_device_ends_all():
    b = Builder("main")
    x = b.parameter(Shape(S64))
    module = Module("m", b.finish(b.emit("all-reduce", x, to_apply=ADD, replica_groups=((0, 1, 2),))), None, 2, 1)
    with pytest.raises(ParticipantsError, match="runs on 2 replicas"):
        run_spmd(module, [[1], [2]])
    with pytest.raises(ShapeError, match="for 2 devices"):
        run_spmd(module, [[1]])
    with pytest.raises(ParticipantsError, match="one device"):
        run(module, [np.int64(1)])
