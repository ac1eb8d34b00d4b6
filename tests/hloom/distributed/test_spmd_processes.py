"""Programs whose devices are in several processes: collectives by messages, with the bits of one process."""

import pytest
from test_launch import launched, lines

pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")

SETUP = """
from hloom.backends.spmd.backend import SpmdBackend
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.module import Module
from hloom.ir.spmd.interpret import run_spmd
from hloom.ir.types import DTYPES, Shape, TupleShape
from hloom.platforms.backend import CompileOptions

N = hl.device_count()
DEVICES = tuple(f"/job:worker/task:{d.process_index}/cpu:{d.index}" for d in hl.devices())
OWN = [d.id for d in hl.local_devices()]
F32 = DTYPES["f32"]
EVERYWHERE = {"use_global_device_ids": True, "channel_id": 1}


def wrong(build, *dims, dtype=F32, times=2):
    b = Builder("main")
    parameters = [b.parameter(Shape(dtype, d)) for d in dims]
    module = Module("m", b.finish(build(b, *parameters)), None, 1, N)
    rng = np.random.default_rng(0)
    data = [[np.asarray(rng.standard_normal(d) * 8).astype(dtype) for d in dims] for _ in range(N)]
    expected = run_spmd(module, data)
    executable = SpmdBackend().compile(module, CompileOptions(devices=DEVICES))
    found = []
    for _ in range(times):
        results = executable([[data[k][n] for k in OWN] for n in range(len(dims))])
        for k, device in enumerate(OWN):
            values = expected[device] if isinstance(expected[device], tuple) else (expected[device],)
            for n, value in enumerate(values):
                if not np.array_equal(results[n][k], np.asarray(value)):
                    found.append((device, n, np.abs(results[n][k] - np.asarray(value)).max()))
    return found
"""

COLLECTIVES = """
half = ((tuple(range(0, N, 2)), tuple(range(1, N, 2))), (tuple(range(N // 2)), tuple(range(N // 2, N))))
add = scalar_computation("add", F32)


def check(name, *dims, **attributes):
    def build(b, x):
        value = b.emit(name, b.emit("add", x, x), **attributes)
        return b.tuple([value, b.emit("add", value, value), x])

    print(name, dims, {k: v for k, v in attributes.items() if k in ("dimensions", "replica_groups")}, end=": ")
    print(wrong(build, dims))


for groups in ({"replica_groups": g} for g in ((tuple(range(N)),), *half)):
    for dims in ((), (7,), (4, 6), (3, 20000), (100003,)):
        check("all-reduce", *dims, to_apply=add, **groups, **EVERYWHERE)
    for d in (0, 1, 2):
        check("all-gather", 8, 8, 16, dimensions=(d,), **groups, **EVERYWHERE)
        check("reduce-scatter", 8, 8, 16, dimensions=(d,), to_apply=add, **groups, **EVERYWHERE)
        check("all-to-all", 8, 8, 16, dimensions=(d,), **groups, **EVERYWHERE)
check("collective-permute", 5, 3, source_target_pairs=tuple((k, (k + 1) % N) for k in range(N)), **EVERYWHERE)
check("collective-permute", 5, 3, source_target_pairs=((0, 1), (N - 1, 0), (2, 2)), **EVERYWHERE)
check("collective-broadcast", 5, 3, replica_groups=((1, 0, 2),), **EVERYWHERE)


def several(b, x, y):
    value = b.emit("all-reduce", x, b.emit("multiply", y, y), to_apply=add, **EVERYWHERE)
    number = b.emit("convert", b.emit("partition-id"), shape=Shape(F32))
    parts = [b.emit("get-tuple-element", value, index=k) for k in range(2)]
    tuples = b.emit("all-to-all", *[b.emit("negate", x)] * N, **EVERYWHERE)
    return b.tuple([*parts, number, *[b.emit("get-tuple-element", tuples, index=k) for k in range(N)]])


print("several:", wrong(several, (5,), (2, 3)))


def loop(b, x):
    def emit(name, *operands, **attributes):
        return inner.emit(name, *operands, **attributes)

    state = TupleShape((Shape(F32, (50,)), Shape(DTYPES["s32"])))
    inner = Builder("condition")
    s = inner.parameter(state)
    three = inner.constant(np.int32(3))
    condition = inner.finish(emit("compare", emit("get-tuple-element", s, index=1), three, direction="LT"))
    inner = Builder("body")
    s = inner.parameter(state)
    value, count = (emit("get-tuple-element", s, index=k) for k in range(2))
    around = tuple((k, (k + 1) % N) for k in range(N))
    moved = emit("collective-permute", value, source_target_pairs=around, **EVERYWHERE)
    total = emit("all-reduce", emit("add", moved, value), to_apply=add, **EVERYWHERE)
    one = inner.constant(np.int32(1))
    body = inner.finish(inner.tuple([emit("subtract", total, value), emit("add", count, one)]))
    start = b.tuple([x, b.constant(np.int32(0))])
    return b.emit("get-tuple-element", b.emit("while", start, condition=condition, body=body), index=0)


print("loop:", wrong(loop, (50,)))
"""


@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (4, 1), (2, 4)])
def test_collectives_have_the_bits_of_the_interpreter(tmp_path, processes, devices):
    done = launched(tmp_path, SETUP + COLLECTIVES, processes=processes, options=["--devices-per-process", str(devices)])
    assert done.returncode == 0, done.stderr
    for process in range(processes):
        found = lines(done.stdout, process)
        assert len(found) == 47, found
        assert [line for line in found if not line.endswith(": []")] == []


TWO = """
def reduced(size):
    b = Builder("main")
    x = b.parameter(Shape(F32, (size,)))
    total = b.emit("all-reduce", x, to_apply=scalar_computation("add", F32), **EVERYWHERE)
    return Module("step", b.finish(total), None, 1, N)


compiled = SpmdBackend().compile(reduced(8), CompileOptions(devices=DEVICES))
data = [[np.ones(8, np.float32) for _ in OWN]]
print(compiled(data)[0][0][0])
"""


def test_a_process_that_does_not_call_is_named(tmp_path):
    body = (
        """
hl.config.distributed_timeout = 1.0
"""
        + SETUP
        + TWO
        + """
if me == 1:
    time.sleep(60)
compiled(data)
"""
    )
    done = launched(tmp_path, body, processes=2)
    assert done.returncode == 1
    assert lines(done.stdout, 0) == lines(done.stdout, 1) == ["2.0"]
    assert "all-reduce of device 0 with devices of other processes" in done.stderr
    assert "nothing came from process 1 within the time that hl.config.distributed_timeout allows" in done.stderr


def test_processes_that_compile_different_programs(tmp_path):
    body = SETUP + TWO + "SpmdBackend().compile(reduced(8 + me), CompileOptions(devices=DEVICES))"
    done = launched(tmp_path, body, processes=2)
    assert done.returncode == 1
    assert "all processes run the same program 'step'" in done.stderr
    assert "f32[8]" in done.stderr and "f32[9]" in done.stderr


def test_an_interrupt_ends_a_wait_for_others(tmp_path):
    body = (
        SETUP
        + TWO
        + """
if me == 1:
    time.sleep(60)
import threading
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    compiled(data)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""
    )
    done = launched(tmp_path, body, processes=2)
    assert (done.returncode, lines(done.stdout, 0)) == (3, ["2.0", "interrupted"]), done.stderr
