"""Programs that several GPUs run together: collectives by NCCL, against the reference interpreter (no GPU needed)."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import numpy as np
import pytest
from fake_nccl import FakeNccl
from simulated_gpus import simulated_gpus

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cuda.spmd import communicators, watch
from hloom.backends.cuda.spmd.exchange import exchanges_of
from hloom.backends.spmd.backend import SpmdBackend
from hloom.errors import CudaError, DeviceError, DistributedError, ParticipantsError
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.module import Module
from hloom.ir.spmd.interpret import run_spmd
from hloom.ir.types import DTYPES, Shape
from hloom.platforms.backend import CompileOptions
from hloom.runtime.cuda.libraries.nccl import Nccl

EVERYWHERE = {"use_global_device_ids": True, "channel_id": 1}


@contextmanager
def gpus_with_nccl(count: int, **options):
    """GPUs of the fake driver that exchange values through the fake NCCL. Gives (the driver, NCCL, the devices)."""
    with simulated_gpus(count, **options) as (driver, devices), pytest.MonkeyPatch.context() as patch:
        library = FakeNccl(driver)
        nccl = Nccl(library)
        for module in ("communicators", "exchange", "program", "watch"):
            patch.setattr(f"hloom.backends.cuda.spmd.{module}.nccl", lambda: nccl)
        communicators._closing.clear()
        try:
            yield driver, library, devices
        finally:
            communicators.close_all()
    assert library.leaks() == []


def names(count: int) -> tuple[str, ...]:
    return tuple(f"cuda:{k}" for k in range(count))


def checked(module: Module, by_device, rtol: float = 1e-6):
    devices = names(len(by_device))
    executable = SpmdBackend().compile(module, CompileOptions(devices=devices))
    shards = [list(arrays) for arrays in zip(*by_device, strict=True)]
    expected = run_spmd(module, by_device)
    for _ in range(2):
        results = executable(shards)
        for device, wanted in enumerate(expected):
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            for k, value in enumerate(wanted):
                found = results[k][device].numpy()
                assert found.dtype == value.dtype
                np.testing.assert_allclose(
                    found.astype(np.complex128), np.asarray(value).astype(np.complex128), rtol=rtol, atol=rtol,
                    err_msg=f"device {device}",
                )  # fmt: skip
    return executable


def values(shape: Shape, devices: int) -> list[tuple[np.ndarray, ...]]:
    random = np.random.default_rng(3)
    found = []
    for _ in range(devices):
        x = random.integers(0, 2 if shape.dtype.kind == "b" else 5, shape.dims)
        found.append((x.astype(shape.dtype),))
    return found


def one(opcode: str, shape: Shape, devices: int, result: Shape | None = None, **attributes) -> Module:
    """x and the collective of a value that a kernel computes."""
    b = Builder("main")
    x = b.parameter(shape)
    opposite = "not" if shape.dtype.kind == "b" else "add"
    given = b.emit(opposite, x) if opposite == "not" else b.emit("add", x, x)
    value = b.emit(opcode, given, shape=result, **attributes)
    return Module("m", b.finish(b.tuple([value, x])), None, 1, devices)


ROWS, COLUMNS, ALL = ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1, 2, 3),)


@pytest.mark.quick
@pytest.mark.parametrize("groups", [ALL, ROWS, COLUMNS, ((2, 0), (3, 1))])
@pytest.mark.parametrize("combiner, dtype, calls", [
    ("add", "f32", "all_reduce"), ("multiply", "s32", "all_reduce"), ("maximum", "s64", "all_reduce"),
    ("minimum", "u8", "all_reduce"), ("add", "bf16", "all_reduce"), ("maximum", "f32", "all_gather"),
    ("add", "s16", "all_gather"), ("or", "pred", "all_gather"), ("add", "c64", "all_gather"),
])  # fmt: skip
def test_all_reduce(groups, combiner, dtype, calls):
    """Reductions that NCCL lacks, or does otherwise, gather."""
    shape = Shape(DTYPES[dtype], (3, 2))
    apply = scalar_computation(combiner, shape.dtype)
    with gpus_with_nccl(4) as (_, library, _devices):
        checked(one("all-reduce", shape, 4, replica_groups=groups, to_apply=apply, **EVERYWHERE), values(shape, 4))
        assert library.names().count(calls) == 8 and not {"all_reduce", "all_gather"} - {calls} & set(library.names())


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("opcode", ["all-gather", "reduce-scatter", "all-to-all"])
@pytest.mark.parametrize("groups", [ALL, COLUMNS])
def test_along_a_dimension(opcode, dimension, groups):
    shape, size = Shape(DTYPES["f32"], (4, 8, 4)), len(groups[0])
    dims = list(shape.dims)
    dims[dimension] = {"all-gather": dims[dimension] * size, "reduce-scatter": dims[dimension] // size}.get(
        opcode, dims[dimension]
    )
    attributes = {"replica_groups": groups, "dimensions": (dimension,), **EVERYWHERE}
    if opcode == "reduce-scatter":
        attributes["to_apply"] = scalar_computation("add", shape.dtype)
    with gpus_with_nccl(4):
        checked(one(opcode, shape, 4, shape.with_dims(tuple(dims)), **attributes), values(shape, 4))


@pytest.mark.parametrize("dtype", ["f32", "pred", "c128", "s16", "f8e4m3fn"])
def test_permute_and_broadcast(dtype):
    """Those that nobody sends to get zeros; any type is moved as it is."""
    if dtype not in DTYPES:
        pytest.skip(f"no dtype {dtype}")
    shape = Shape(DTYPES[dtype], (3,))
    b = Builder("main")
    x = b.parameter(shape)
    pairs = ((0, 1), (1, 2), (3, 3))
    moved = b.emit("collective-permute", x, source_target_pairs=pairs, **EVERYWHERE)
    sent = b.emit("collective-broadcast", x, replica_groups=((2, 1),), **EVERYWHERE)
    with gpus_with_nccl(4):
        checked(Module("m", b.finish(b.tuple([moved, sent])), None, 1, 4), values(shape, 4))


def test_empty_arrays_exchange_nothing():
    shape = Shape(DTYPES["f32"], (0, 3))
    module = one("all-gather", shape, 2, replica_groups=((0, 1),), dimensions=(0,), **EVERYWHERE)
    with gpus_with_nccl(2) as (_, library, _devices):
        checked(module, values(shape, 2))
        assert library.calls == []


# --- through the front end ---------------------------------------------------------------------------------------


def mesh_of(*sizes, axes=("data", "model")):
    kind = hl.sharding.AxisType.Auto
    return hl.make_mesh(sizes, axes[: len(sizes)], axis_types=(kind,) * len(sizes), devices=hl.devices("cuda"))


def normal(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def loss(w, x, y):
    return hnp.mean((hnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2)


def weights():
    return {"in": normal(6, 8, seed=1), "out": normal(8, 4, seed=2)}


@pytest.mark.parametrize("layout", ["data", "model", "both"])
def test_a_training_step(layout):
    """Data-parallel, tensor-parallel, and both on a mesh of 2 x 2; twice, on the results of the first."""
    w, x, y = weights(), normal(8, 6, seed=3), normal(8, 4, seed=4)

    def step(w, x, y):
        value, gradients = hl.value_and_grad(loss)(w, x, y)
        return value, hl.tree.map(lambda a, g: a - 0.1 * g, w, gradients)

    plain = hl.jit(step)
    first = plain(w, x, y)
    want = plain(first[1], x, y)
    with gpus_with_nccl(4) as (driver, library, devices):
        mesh = mesh_of(2, 2)
        rows = hl.P("data") if layout != "model" else hl.P()
        into = hl.P(None, "model") if layout != "data" else hl.P()
        out = hl.P("model", None) if layout != "data" else hl.P()
        place = lambda a, spec: hl.device_put(a, hl.NamedSharding(mesh, spec))  # noqa: E731
        given = {"in": place(w["in"], into), "out": place(w["out"], out)}
        xs, ys = place(x, rows), place(y, rows)
        function = hl.jit(step, donate_argnums=0)
        _, given = function(given, xs, ys)
        made = len(library.names())
        value, given = function(given, xs, ys)
        later = library.names()[made:]
        np.testing.assert_allclose(value, want[0], rtol=1e-5)
        for key in w:
            np.testing.assert_allclose(given[key], want[1][key], rtol=1e-4, atol=1e-6)
            assert {str(s.data.device) for s in given[key].addressable_shards} == set(names(4))
        assert "all_reduce" in later and "comm_init_rank_config" not in later and "comm_split" not in later
        assert library.names().count("comm_init_rank_config") == 4
        del given, xs, ys, value, function
        for device in devices:
            device.close()
        assert library.leaks() == []


def test_collectives_in_a_loop_and_eager_operations():
    mesh_size = 4

    def ring(x):
        def body(k, c):
            total, part = c
            part = hl.lax.ppermute(part, "data", [(i, (i + 1) % mesh_size) for i in range(mesh_size)])
            return total + part * (1.0 + k), part

        total, _ = hl.lax.fori_loop(0, 3, body, (x, x))
        return total + hl.lax.axis_index("data").astype(np.float32)

    x = normal(8, 3)
    with hl.config(num_cpu_devices=4):
        cpus = hl.make_mesh((4,), ("data",), devices=hl.devices("cpu")[:4])
        want = np.asarray(hl.jit(hl.shard_map(ring, mesh=cpus, in_specs=hl.P("data"), out_specs=hl.P("data")))(x))
    with gpus_with_nccl(4) as (driver, library, _):
        mesh = mesh_of(4)
        function = hl.jit(hl.shard_map(ring, mesh=mesh, in_specs=hl.P("data"), out_specs=hl.P("data")))
        array = hl.device_put(x, hl.NamedSharding(mesh, hl.P("data")))
        np.testing.assert_allclose(function(array), want, rtol=1e-6)
        assert library.names().count("send") == library.names().count("recv") == 12
        np.testing.assert_allclose((array * 2 + array).sum(0), (x * 3).sum(0), rtol=1e-5)
        np.testing.assert_array_equal(hl.device_put(array, hl.NamedSharding(mesh, hl.P(None))), x)
        compiled = function.lower(array).compile()
        with pytest.raises(DeviceError, match="a plan for each"):
            compiled.plan  # noqa: B018
        kinds = {use.kind for use in compiled.collectives()}
        assert kinds == {"collective-permute"}


def test_calls_of_all_gpus_are_one_group_on_their_own_streams():
    shape = Shape(DTYPES["f32"], (4,))
    module = one("all-reduce", shape, 3, replica_groups=((0, 1, 2),), to_apply=scalar_computation("add", shape.dtype),
                 **EVERYWHERE)  # fmt: skip
    with gpus_with_nccl(3) as (_, library, devices):
        executable = checked(module, values(shape, 3))
        start = len(library.calls)
        executable([[np.ones(4, np.float32)] * 3])
        found = library.calls[start:]
        assert [c[0] for c in found] == ["group_start", *["all_reduce"] * 3, "group_end"]
        assert [c[1:] for c in found[1:4]] == [(k, 4, int(devices[k].main)) for k in range(3)]
        assert library.calls[:2] == [("get_unique_id",), ("group_start",)]
        for device in devices:
            device.close()
        assert library.leaks() == []
        (total, _) = executable([[np.ones(4, np.float32)] * 3])
        np.testing.assert_array_equal(total[2].numpy(), np.full(4, 6.0))


# --- mistakes ----------------------------------------------------------------------------------------------------


def test_an_error_of_nccl_names_the_call_and_the_line():
    x = normal(4)
    with gpus_with_nccl(2) as (_, library, _devices):
        mesh = mesh_of(2)
        total = hl.jit(
            hl.shard_map(lambda v: hl.lax.psum(v, "data"), mesh=mesh, in_specs=hl.P("data"), out_specs=hl.P())
        )
        library.inject("comm_init_rank_config", 2)
        with pytest.raises(CudaError, match="NCCL's error 2"):
            total(x)
        library.inject("all_reduce", 3)
        with pytest.raises(CudaError, match="NCCL's error 3") as caught:
            total(x)
        assert "test_cuda_spmd.py" in str(caught.value)
        np.testing.assert_allclose(total(x), x[:2] + x[2:], rtol=1e-6)


def test_without_the_extra(monkeypatch):
    with simulated_gpus(2):
        monkeypatch.setitem(sys.modules, "nccl", None)
        communicators.nccl.cache_clear()
        mesh = mesh_of(2)
        with pytest.raises(CudaError, match=r"hloom\[nccl\]"):
            hl.jit(lambda v: v.sum())(hl.device_put(normal(4), hl.NamedSharding(mesh, hl.P("data"))))


def test_devices_of_one_kind():
    module = one("all-reduce", Shape(DTYPES["f32"], (2,)), 2, replica_groups=((0, 1),),
                 to_apply=scalar_computation("add", DTYPES["f32"]), **EVERYWHERE)  # fmt: skip
    with gpus_with_nccl(2), pytest.raises(DeviceError, match="one kind"):
        SpmdBackend().compile(module, CompileOptions(devices=("cuda:0", "cpu:0")))


def test_gpus_that_wait_for_each_other_in_vain():
    """Device 0 takes a branch with a collective, the others another."""
    shape = Shape(DTYPES["f32"], (2,))
    b, branches = Builder("main"), []
    for gathers in (True, False):
        inner = Builder(f"branch{gathers}")
        p = inner.parameter(shape)
        value = inner.emit("all-reduce", p, replica_groups=((0, 1),), to_apply=scalar_computation("add", shape.dtype),
                           **EVERYWHERE) if gathers else inner.emit("add", p, p)  # fmt: skip
        branches.append(inner.finish(value))
    pred, x = b.parameter(Shape(DTYPES["pred"], ())), b.parameter(shape)
    module = Module("m", b.finish(b.emit("conditional", pred, x, x, branch_computations=tuple(branches))), None, 1, 2)
    with gpus_with_nccl(2):
        executable = SpmdBackend().compile(module, CompileOptions(devices=names(2)))
        with pytest.raises(ParticipantsError, match="device 0 at all-reduce"):
            executable([[np.array(True), np.array(False)], [np.ones(2, np.float32)] * 2])


@pytest.mark.parametrize(
    "status, words", [(6, "NCCL lost process 1: error 6"), (0, "nothing came from process 1 within")]
)
def test_a_peer_that_is_lost(status, words):
    """An error that shows later, or the end of the time, aborts the groups; whoever uses the GPUs learns why."""
    shape = Shape(DTYPES["f32"], (2,))
    module = one(
        "all-reduce", shape, 3, replica_groups=((0, 1, 2),), to_apply=scalar_computation("add", shape.dtype),
        **EVERYWHERE,
    )  # fmt: skip
    world = communicators.World(((0, 0), (0, 1), (1, 0)))
    with gpus_with_nccl(2) as (_, library, devices):
        held = hl.device_put(normal(3), "cuda:0")
        found = communicators.nccl().connect(3, communicators.nccl().new_id(), world.own)
        communicators._made[world, ((0, 1, 2),)] = dict(enumerate(found))
        exchange = next(iter(exchanges_of(module, world).values()))
        library.comms[1].state = status
        with devices[0].guard():
            event = devices[0].record(devices[0].main)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(watch, "_is_done", lambda device, event: False)
            watch.look_until_done(
                watch.Watched(world, f"{exchange.asked} in 'step'", None, [(devices[0], event)], 0.05, 0.0)
            )
        assert library.names().count("comm_abort") == 2
        with pytest.raises(DistributedError, match=words) as caught:
            held.block_until_ready()
            np.asarray(held)
        assert "all-reduce of f32[2] among 3 GPUs in 'step'" in str(caught.value)
        for device in devices:
            device.failure = None
