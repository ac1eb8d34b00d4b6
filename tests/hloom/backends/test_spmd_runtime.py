"""Teams of devices in trouble: many calls, several callers, Python that raises or waits, Ctrl-C, forks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import hloom as hl
from hloom.backends.spmd.backend import SpmdBackend
from hloom.errors import DeviceError
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.module import Module
from hloom.ir.ops.programs.structure import CUSTOM_CALLS
from hloom.ir.types import DTYPES, Shape, TupleShape
from hloom.platforms.backend import CompileOptions

F32, S32 = DTYPES["f32"], DTYPES["s32"]
EVERYWHERE = {"use_global_device_ids": True, "channel_id": 1}
ADD = scalar_computation("add", F32)


def compiled(build, count: int, *shapes: Shape, **options):
    b = Builder("main")
    root = build(b, *[b.parameter(shape) for shape in shapes])
    return SpmdBackend().compile(Module("m", b.finish(root), None, 1, count), CompileOptions(**options))


def summed(b, x, times: int = 3):
    for _ in range(times):
        total = b.emit("all-reduce", x, to_apply=ADD, **EVERYWHERE)
        x = b.emit("multiply", b.emit("add", total, x), b.splat(0.125, x.shape))
    return x


@pytest.mark.parametrize("size", [3, 3000])
def test_thousands_of_calls_have_the_same_bits(size):
    executable = compiled(summed, 8, Shape(F32, (size,)))
    rng = np.random.default_rng(0)
    shards = [[rng.standard_normal(size).astype(np.float32) for _ in range(8)]]
    expected = [array.tobytes() for array in executable(shards)[0]]
    for _ in range(1000):
        assert [array.tobytes() for array in executable(shards)[0]] == expected


def test_several_threads_call_at_once():
    executable = compiled(summed, 4, Shape(F32, (500,)))
    failures: list = []

    def caller(number: int) -> None:
        try:
            rng = np.random.default_rng(number)
            shards = [[rng.standard_normal(500).astype(np.float32) for _ in range(4)]]
            expected = [array.tobytes() for array in executable(shards)[0]]
            for _ in range(300):
                assert [array.tobytes() for array in executable(shards)[0]] == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caller, args=(k,)) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.fixture
def called():
    """A program of four devices with a Python function, which the test chooses, between two collectives."""
    chosen: list = []
    CUSTOM_CALLS["spmd-test"] = lambda x: chosen[-1](x)

    def build(b, x):
        made = b.emit("custom-call", summed(b, x, 1), shape=x.shape, custom_call_target="spmd-test")
        return summed(b, made, 1)

    yield compiled(build, 4, Shape(F32, (4,))), chosen
    del CUSTOM_CALLS["spmd-test"]


def test_python_functions_run_once_for_each_device_and_may_wait_for_each_other(called):
    executable, chosen = called
    barrier, seen = threading.Barrier(4, timeout=60), []

    def function(x):
        barrier.wait()
        seen.append(float(x[0]))
        return x + 1

    chosen.append(function)
    shards = [[np.full(4, k, np.float32) for k in range(4)]]
    first = executable(shards)[0]
    assert len(seen) == 4
    np.testing.assert_array_equal(first[0], np.full(4, (0.75 + (0.75 * 4 + 6 / 8) + 4 + 1) / 8, np.float32))


def test_what_a_python_function_raises_on_one_device_ends_all(called):
    executable, chosen = called
    shards = [[np.full(4, k, np.float32) for k in range(4)]]
    chosen.append(lambda x: x)
    expected = executable(shards)[0]
    for _ in range(5):

        def function(x):
            if x[0] == max(0.75 + k / 8 for k in range(4)):
                raise ZeroDivisionError("of one device")
            return x

        chosen.append(function)
        with pytest.raises(ZeroDivisionError, match="of one device"):
            executable(shards)
        chosen.append(lambda x: x)
        for array, wanted in zip(executable(shards)[0], expected, strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_a_python_function_may_call_such_a_program(called):
    executable, chosen = called
    inner = compiled(summed, 4, Shape(F32, (4,)))
    chosen.append(lambda x: inner([[x] * 4])[0][0])
    shards = [[np.full(4, k, np.float32) for k in range(4)]]
    for _ in range(20):
        executable(shards)


def test_donated_shards_are_written_in_place():
    executable = compiled(lambda b, x: b.emit("add", x, summed(b, x)), 2, Shape(F32, (100,)), donated=frozenset([0]))
    assert executable.donated == {0: 0}
    given = [np.full(100, k, np.float32) for k in (1, 2)]
    kept = given[1]  # somebody else refers to it
    places = [array.__array_interface__["data"][0] for array in given]
    shards = [[given.pop(0), given.pop(0)]]
    results = executable.call_donating(shards, lambda: None)[0]
    assert results[0].__array_interface__["data"][0] == places[0]
    assert results[1].__array_interface__["data"][0] != places[1]
    np.testing.assert_array_equal(kept, np.full(100, 2, np.float32))


def test_wrong_devices_are_errors():
    with pytest.raises(DeviceError, match="name 2 different devices of one kind"):
        compiled(summed, 2, Shape(F32, (4,)), devices=("cpu:0",))
    with pytest.raises(DeviceError, match="name 2 different devices of one kind"):
        compiled(summed, 2, Shape(F32, (4,)), devices=("cpu:0", "cpu:0"))


def test_a_memory_limit_holds_for_each_device():
    with hl.config(cpu_memory=1000), pytest.raises(DeviceError, match="may use 1000 bytes"):
        compiled(summed, 2, Shape(F32, (400,)))


def test_texts_and_costs():
    executable = compiled(summed, 4, Shape(F32, (1000,)))
    assert "all-reduce" in executable.as_text() and "all_reduce" in executable.as_text("stablehlo")
    assert "def " in executable.source()
    assert executable.cost_analysis()["flops"] > 0
    assert executable.memory_analysis()["argument bytes"] == 4000


PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
sys.path.insert(0, "tests/hloom/backends")
from test_spmd_runtime import F32, S32, EVERYWHERE, ADD, compiled, summed, spinning
from hloom.ir.types import Shape
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def spinning(b, steps, x):
    """`steps` times x = all-reduce(x) / devices."""
    state = TupleShape((Shape(S32), Shape(S32), x.shape))
    inner = Builder("condition")
    p = inner.parameter(state)
    k, n = (inner.emit("get-tuple-element", p, index=i) for i in (0, 1))
    condition = inner.finish(inner.emit("compare", k, n, direction="LT"))
    inner = Builder("body")
    p = inner.parameter(state)
    k, n, y = (inner.emit("get-tuple-element", p, index=i) for i in (0, 1, 2))
    y = inner.emit("all-reduce", inner.emit("sine", y), to_apply=ADD, **EVERYWHERE)
    body = inner.finish(inner.tuple([inner.emit("add", k, inner.constant(1, S32)), n, y]))
    root = b.emit("while", b.tuple([b.constant(0, S32), steps, x]), condition=condition, body=body)
    return b.emit("get-tuple-element", root, index=2)


def run(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_ctrl_c_ends_all_devices():
    out = run("""
    executable = compiled(spinning, 4, Shape(S32), Shape(F32, (10,)))
    def call(steps):
        return executable([[np.asarray(steps, np.int32)] * 4, [np.ones(10, np.float32)] * 4])[0][0][0]
    before = call(100)
    for _ in range(2):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            call(2**31 - 1)
        except KeyboardInterrupt:
            print(time.monotonic() - started < 30)
    print(call(100) == before)
    """)
    assert out == ["True", "True", "True"]


def test_ctrl_c_while_a_python_function_of_another_device_sleeps():
    out = run("""
    from hloom.ir.ops.programs.structure import CUSTOM_CALLS
    def sleeping(x):
        time.sleep(0.05 if threading.current_thread() is threading.main_thread() else 1.5)
        return x
    CUSTOM_CALLS["sleeping"] = sleeping
    def build(b, x):
        return summed(b, b.emit("custom-call", x, shape=x.shape, custom_call_target="sleeping"), 1)
    executable = compiled(build, 2, Shape(F32, (4,)))
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        for _ in range(20):
            executable([[np.ones(4, np.float32)] * 2])
    except KeyboardInterrupt:
        print("interrupted")
    """)
    assert out == ["interrupted"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_calls_it_too():
    executable = compiled(summed, 4, Shape(F32, (5000,)))
    shards = [[np.full(5000, k, np.float32) for k in range(4)]]
    expected = executable(shards)[0][0]
    child = os.fork()
    if child == 0:
        good = np.array_equal(executable(shards)[0][0], expected)
        os._exit(0 if good else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    raise AssertionError("the child hangs")
