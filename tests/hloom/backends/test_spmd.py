"""Programs that several CPU devices run together, against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.backends.spmd.backend import SpmdBackend
from hloom.errors import ParticipantsError
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.module import Module
from hloom.ir.spmd.interpret import run_spmd
from hloom.ir.types import DTYPES, PRED, Shape, TupleShape
from hloom.platforms.backend import CompileOptions

F32, S32, S64, U32 = (DTYPES[n] for n in ("f32", "s32", "s64", "u32"))
EVERYWHERE = {"use_global_device_ids": True, "channel_id": 1}


def checked(module: Module, by_device, times: int = 3):
    """Runs a module with the arguments of each device, and compares with the interpreter; the shards of the results."""
    executable = SpmdBackend().compile(module, CompileOptions())
    shards = [list(arrays) for arrays in zip(*by_device, strict=True)]
    expected = run_spmd(module, by_device)
    for _ in range(times):
        results = executable(shards)
        for device, wanted in enumerate(expected):
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            for k, value in enumerate(wanted):
                np.testing.assert_array_equal(np.asarray(value), results[k][device], err_msg=f"device {device}")
    return results


def one(opcode: str, shape: Shape, devices: int, replicas: int = 1, seed: int = 0, result=None, **attributes):
    """x + (the collective of x * 2), so that its operand and its result are computed by kernels."""
    b = Builder("main")
    x = b.parameter(shape)
    value = b.emit(opcode, b.emit("add", x, x), shape=result, **attributes)
    module = Module(
        "m", b.finish(b.tuple([value, b.emit("add", value, value), x])), None, replicas, devices // replicas
    )
    rng = np.random.default_rng(seed)
    data = [[np.asarray(rng.standard_normal(shape.dims) * 8).astype(shape.dtype)] for _ in range(devices)]
    return checked(module, data)


def groups_of(devices: int, size: int):
    return tuple(tuple(range(k, k + size)) for k in range(0, devices, size))


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dims", [(), (1,), (7,), (4, 6), (3, 1000)])
def test_all_reduce(devices, dims):
    one("all-reduce", Shape(F32, dims), devices, to_apply=scalar_computation("add", F32), **EVERYWHERE)


@pytest.mark.parametrize("name", ["f16", "bf16", "f64", "s8", "s32", "u64", "c64", "pred", "f8e5m2", "s4"])
@pytest.mark.parametrize("opcode", ["add", "maximum", "multiply"])
def test_dtypes_of_an_all_reduce(name, opcode):
    dtype = DTYPES[name]
    if name == "pred":
        opcode = {"add": "or", "maximum": "xor", "multiply": "and"}[opcode]
    if name == "c64" and opcode == "maximum":
        opcode = "add"
    shape = Shape(dtype, (5, 3))
    b = Builder("main")
    x = b.parameter(shape)
    value = b.emit("all-reduce", x, to_apply=scalar_computation(opcode, dtype), **EVERYWHERE)
    rng = np.random.default_rng(1)
    data = [[(rng.standard_normal(shape.dims) * 3).astype(np.float32).astype(dtype)] for _ in range(4)]
    if name in ("f16", "bf16"):  # kernels round once, the interpreter after each step
        data = [[np.round(array).astype(dtype) for array in arrays] for arrays in data]
    checked(Module("m", b.finish(value), None, 1, 4), data)


@pytest.mark.parametrize("opcode", ["all-gather", "reduce-scatter", "all-to-all"])
@pytest.mark.parametrize("name", ["f32", "bf16", "c128", "pred", "s4"])
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_parts_along_a_dimension(opcode, name, dimension):
    dtype, dims = DTYPES[name], (4, 8, 12)
    attributes = {"dimensions": (dimension,), **EVERYWHERE, "replica_groups": ((3, 1), (0, 2))}
    if opcode == "reduce-scatter":
        attributes["to_apply"] = scalar_computation("or" if name == "pred" else "add", dtype)
    b = Builder("main")
    x = b.parameter(Shape(dtype, dims))
    module = Module("m", b.finish(b.emit(opcode, x, **attributes)), None, 1, 4)
    rng = np.random.default_rng(2)
    checked(module, [[rng.integers(0, 3, dims).astype(np.float32).astype(dtype)] for _ in range(4)])


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_groups_count_in_all_modes(replicas):
    add = scalar_computation("add", F32)
    shape = Shape(F32, (4, 4))
    partitions = 4 // replicas
    one("all-reduce", shape, 4, replicas, to_apply=add, replica_groups=groups_of(replicas, max(replicas // 2, 1)))
    one("all-reduce", shape, 4, replicas, to_apply=add, replica_groups=groups_of(replicas, replicas), channel_id=2)
    one("all-reduce", shape, 4, replicas, to_apply=add, replica_groups=((1, 3), (2, 0)), **EVERYWHERE)
    one("all-to-all", shape, 4, replicas, dimensions=(1,), replica_groups=(tuple(range(replicas))[::-1],))
    one("all-to-all", shape, 4, replicas, dimensions=(0,), replica_groups=(tuple(range(partitions)),), channel_id=1)
    one("collective-broadcast", shape, 4, replicas, replica_groups=((partitions - 1,),), channel_id=1)


@pytest.mark.parametrize("devices", [2, 3, 8])
@pytest.mark.parametrize("size", [1000, 1024, 65537])
@pytest.mark.parametrize("opcode", ["all-reduce", "all-gather", "rows"])
def test_results_that_only_kernels_read_are_in_shared_memory(devices, size, opcode):
    shape = Shape(F32, (5, size) if opcode == "rows" else (size,))
    b = Builder("main")
    x, y = b.parameter(shape), b.parameter(Shape(F32))
    for _ in range(3):
        scaled = b.emit("multiply", x, b.emit("broadcast", y, shape=shape, dimensions=()))
        if opcode == "all-reduce":
            value = b.emit("all-reduce", scaled, to_apply=scalar_computation("add", F32), **EVERYWHERE)
        else:
            d = len(shape.dims) - 1
            groups = {"replica_groups": groups_of(devices, devices), **EVERYWHERE}
            gathered = b.emit("all-gather", scaled, dimensions=(d,), **groups)
            first = b.emit(
                "slice", gathered, slice=(*((0, s, 1) for s in shape.dims[:d]), (size // 2, size // 2 + size, 1))
            )
            value = b.emit("add", first, x)
        x = b.emit("add", value, x)
    module = Module("m", b.finish(x), None, 1, devices)
    rng = np.random.default_rng(5)
    data = [[rng.standard_normal(shape.dims).astype(np.float32), np.float32(k + 1)] for k in range(devices)]
    executable = SpmdBackend().compile(module, CompileOptions())
    assert executable.plan.shared_bytes > 0
    checked(module, [[np.asarray(a) for a in arrays] for arrays in data])


def test_permutations_and_broadcasts_with_devices_left_out():
    shape = Shape(F32, (40000,))
    one("collective-permute", shape, 4, source_target_pairs=((0, 1), (1, 2), (2, 0)), channel_id=1)
    one("collective-permute", shape, 8, source_target_pairs=tuple((k, (k + 1) % 8) for k in range(8)), channel_id=1)
    one("collective-permute", shape, 4, 4, source_target_pairs=((3, 3), (0, 2)))
    one("collective-broadcast", shape, 4, replica_groups=((2, 1),), channel_id=1)


def test_several_operands_and_numbers_of_devices():
    b = Builder("main")
    x, y = b.parameter(Shape(F32, (6,))), b.parameter(Shape(S32, (2, 2)))
    groups = {"replica_groups": ((0, 1), (2, 3)), **EVERYWHERE}
    total = b.emit("all-reduce", x, b.emit("add", x, x), to_apply=scalar_computation("add", F32), **groups)
    crossed = b.emit("all-to-all", y, b.emit("add", y, y), **groups)
    number, replica = b.emit("partition-id"), b.emit("replica-id")
    parts = [b.emit("get-tuple-element", t, index=k) for t in (total, crossed) for k in (0, 1)]
    moved = b.emit("collective-permute", number, source_target_pairs=((0, 3), (3, 0)), channel_id=1)
    module = Module("m", b.finish(b.tuple([*parts, number, b.emit("add", number, replica), moved])), None, 2, 2)
    module = Module("m", module.entry, None, 1, 4)
    rng = np.random.default_rng(3)
    data = [[rng.standard_normal(6).astype(np.float32), rng.integers(0, 9, (2, 2)).astype(np.int32)] for _ in range(4)]
    checked(module, data)


def test_a_combiner_of_several_ops():
    c = Builder("combiner")
    p, q = c.parameter(Shape(F32)), c.parameter(Shape(F32))
    combiner = c.finish(c.emit("add", c.emit("multiply", p, c.constant(0.5, F32)), q))
    one("all-reduce", Shape(F32, (3, 5)), 4, to_apply=combiner, **EVERYWHERE)
    one(
        "reduce-scatter",
        Shape(F32, (3, 8)),
        4,
        dimensions=(1,),
        to_apply=combiner,
        replica_groups=groups_of(4, 4),
        **EVERYWHERE,
    )


def loop(steps_by_device, dims=(300,)):
    """while (k < steps) { x = all-reduce(x) * 0.25 + permute(x); k += 1 }"""
    devices = len(steps_by_device)
    state = TupleShape((Shape(S32), Shape(S32), Shape(F32, dims)))

    def element(b, p, k):
        return b.emit("get-tuple-element", p, index=k)

    c = Builder("condition")
    p = c.parameter(state)
    condition = c.finish(c.emit("compare", element(c, p, 0), element(c, p, 1), direction="LT"))
    b = Builder("body")
    p = b.parameter(state)
    x = element(b, p, 2)
    total = b.emit("all-reduce", x, to_apply=scalar_computation("add", F32), **EVERYWHERE)
    ring = tuple((k, (k + 1) % devices) for k in range(devices))
    moved = b.emit("collective-permute", x, source_target_pairs=ring, channel_id=2)
    scaled = b.emit("multiply", total, b.splat(0.25, Shape(F32, dims)))
    count = b.emit("add", element(b, p, 0), b.constant(1, S32))
    body = b.finish(b.tuple([count, element(b, p, 1), b.emit("add", scaled, moved)]))
    m = Builder("main")
    steps, x = m.parameter(Shape(S32)), m.parameter(Shape(F32, dims))
    root = m.emit("while", m.tuple([m.constant(0, S32), steps, x]), condition=condition, body=body)
    module = Module("m", m.finish(m.emit("get-tuple-element", root, index=2)), None, 1, devices)
    rng = np.random.default_rng(4)
    return module, [[np.int32(n), rng.standard_normal(dims).astype(np.float32)] for n in steps_by_device]


@pytest.mark.parametrize("devices", [2, 3, 8])
@pytest.mark.parametrize("dims", [(3,), (5000,)])
def test_collectives_in_loops(devices, dims):
    module, data = loop([6] * devices, dims)
    checked(module, [[np.asarray(a) for a in arrays] for arrays in data])


def test_devices_that_wait_in_vain():
    module, data = loop([2, 3, 3])
    executable = SpmdBackend().compile(module, CompileOptions())
    shards = [[np.asarray(a[k]) for a in data] for k in (0, 1)]
    for _ in range(3):
        with pytest.raises(ParticipantsError, match=r"device 1 at (all-reduce|collective-permute) of the devices"):
            executable(shards)
    shards[0] = [np.asarray(3, np.int32)] * 3
    expected = run_spmd(module, list(zip(*shards, strict=True)))
    np.testing.assert_array_equal(executable(shards)[0], expected)


def test_collectives_in_branches():
    b = Builder("branch")
    p = b.parameter(Shape(F32, (4,)))
    left = b.finish(b.emit("all-reduce", p, to_apply=scalar_computation("add", F32), **EVERYWHERE))
    b = Builder("other")
    p = b.parameter(Shape(F32, (4,)))
    right = b.finish(b.emit("collective-permute", p, source_target_pairs=((0, 1), (1, 2)), channel_id=1))
    m = Builder("main")
    where, x = m.parameter(Shape(PRED)), m.parameter(Shape(F32, (4,)))
    module = Module("m", m.finish(m.emit("conditional", where, x, x, branch_computations=(left, right))), None, 1, 4)
    for flag in (True, False):
        checked(module, [[np.asarray(flag), np.arange(4, dtype=np.float32) + k] for k in range(4)])


@pytest.mark.parametrize("size", [5, 5000])
def test_groups_of_several_sizes(size):
    groups = {"replica_groups": ((0, 3, 4), (2,), (5, 1)), **EVERYWHERE}
    one("all-reduce", Shape(F32, (size,)), 6, to_apply=scalar_computation("add", F32), **groups)
