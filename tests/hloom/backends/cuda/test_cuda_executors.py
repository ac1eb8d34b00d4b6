"""Parts of one function on GPUs and other devices: loops across them, what goes where, donated memory, errors."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from device_programs import deep_lstm
from loop_programs import LoopPrograms, arguments
from random_devices import choose
from simulated_gpus import simulated_gpus

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.multi_device import MultiDeviceBackend
from hloom.ir.interpret import run
from hloom.platforms.backend import CompileOptions
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.errors import CudaError


def normal(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


@pytest.fixture
def gpus():
    """Two GPUs, cuda:0 and cuda:1, beside cpu:0 and cpu:1."""
    with simulated_gpus(2) as (driver, devices):
        driver.devices = devices
        yield driver


def on_host(value) -> np.ndarray:
    return value.numpy() if hasattr(value, "numpy") else value


@pytest.mark.parametrize(
    "first, linked, version", [(0, True, 13000), (30, False, 12020), (60, True, 13000), (120, True, 13000)]
)
def test_random_programs_on_gpus_and_cpus(first, linked, version):
    """Run twice: what a first run leaves in the channels must not matter to the next. Nothing is left in the end."""
    placed = sent = 0
    with simulated_gpus(2, version, linked=linked) as (driver, devices):
        for seed in range(first, first + 30):
            module = LoopPrograms(seed).module()
            given = arguments(module, seed)
            want = run(module, given)
            want = want if isinstance(want, tuple) else (want,)
            share = (0.5, 0.7, 0.9)[seed % 3]
            choose(module.entry, random.Random(seed), share, ("cuda:0", "cpu:0", "cuda:1", "cpu:1"))
            compiled = MultiDeviceBackend().compile(module, CompileOptions())
            for _ in range(2):
                for got, expected in zip(compiled(given), want, strict=True):
                    np.testing.assert_allclose(on_host(got), expected, rtol=1e-6, err_msg=f"seed {seed}")
            placed += any("cuda" in device for device in compiled.parts)
            sent += len(compiled.channels)
            del compiled, got
        for device in devices:
            device.close()
        assert driver.leaks() == []
    assert placed > 10 and sent > 30 and (driver.direct if linked else driver.staged) > 0


@pytest.mark.parametrize("first", [0, 240, 300])
def test_random_programs_that_are_given_their_arguments(first):
    """On all devices, some donated: results are right, the others keep their elements, and no memory is shared."""
    names, taken = ("cuda:0", "cpu:0", "cuda:1", "cpu:1"), 0
    with simulated_gpus(2) as (_, devices):
        for seed in range(first, first + 30):
            module = LoopPrograms(seed).module()
            given = arguments(module, seed)
            want = run(module, given)
            want = want if isinstance(want, tuple) else (want,)
            generator = random.Random(seed)
            choose(module.entry, generator, (0.5, 0.7, 0.9)[seed % 3], names)
            homes = {k: generator.choice(names) for k in range(len(given))}
            donated = frozenset(k for k in homes if generator.random() < 0.6)
            compiled = MultiDeviceBackend().compile(module, CompileOptions("cpu:0", homes, donated=donated))
            taken += sum(homes[k].startswith("cuda") for k in compiled.donated.values())
            for _ in range(2):
                inputs = [
                    DeviceArray.put(devices[int(home[-1])], value) if home.startswith("cuda") else np.array(value)
                    for home, value in zip(homes.values(), given, strict=True)
                ]
                made = compiled(inputs)
                for got, expected in zip(made, want, strict=True):
                    np.testing.assert_allclose(on_host(got), expected, rtol=1e-6, err_msg=f"seed {seed}")
                kept = [(inputs[k], given[k]) for k in homes if k not in donated]
                for array, value in kept:
                    np.testing.assert_array_equal(on_host(array), value, err_msg=f"seed {seed}")
                there = [a.buffer for a in (*made, *(array for array, _ in kept)) if isinstance(a, DeviceArray)]
                assert len({buffer.address for buffer in there}) == len(there)
    assert taken > 3


@pytest.mark.parametrize("devices", [("cpu:0", "cuda:0"), ("cuda:0", "cpu:1"), ("cuda:0", "cuda:1")])
def test_a_scan_of_two_layers_on_two_devices_and_its_gradient(gpus, devices):
    hidden, batch, steps = 2, 2, 3
    parameters = [(normal(2 * hidden, 4 * hidden, seed=k) * 0.3, normal(4 * hidden, seed=9 + k) * 0.1) for k in (0, 1)]
    xs = normal(steps, batch, hidden, seed=50)
    plain, placed = deep_lstm((None, None), unrolled=False), deep_lstm(devices, unrolled=False)
    want, want_gradient = hl.jit(hl.value_and_grad(plain))(parameters, xs)
    function, value = hl.jit(hl.value_and_grad(placed)), hl.jit(placed)
    for _ in range(2):
        np.testing.assert_allclose(value(parameters, xs), want, rtol=1e-5)
        found, gradient = function(parameters, xs)
        np.testing.assert_allclose(found, want, rtol=1e-5)
        for layer, (mine, theirs) in enumerate(zip(gradient, want_gradient, strict=True)):
            for a, b in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
                assert str(a.device) == devices[layer]


def test_arrays_are_put_from_one_gpu_to_another(gpus):
    x = hl.device_put(normal(100), "cuda:0")
    made = hl.jit(lambda v: v * 2)(x)
    start = len(gpus.calls)
    there = hl.device_put(made, "cuda:1")
    assert not any("Synchronize" in name for name in gpus.counts(start)) and gpus.direct == 400
    assert str(there.device) == "cuda:1" and there.__dlpack_device__() == (2, 1)
    del made, x
    np.testing.assert_array_equal(hl.jit(lambda v: v + 1)(there), normal(100) * 2 + 1)
    moved = hl.jit(lambda v: v + 1, device="cuda:0", donate_argnums=0)(there)  # a copy is written over
    assert str(moved.device) == "cuda:0" and there.is_deleted()
    np.testing.assert_array_equal(moved, normal(100) * 2 + 1)


def test_parameters_that_lie_on_their_gpus_stay_there(gpus):
    """Training by steps: of the parameters nothing goes to the host or to another GPU."""

    def step(devices):
        def loss(parameters, x):
            w, v = parameters
            with hl.device(devices[0]):
                h = hnp.tanh(x @ w)
            with hl.device(devices[1]):
                return hnp.sum((h @ v) ** 2)

        def made(parameters, x):
            gradients = hl.grad(loss)(parameters, x)
            new = []
            for parameter, gradient, device in zip(parameters, gradients, devices, strict=True):
                with hl.device(device):
                    new.append(parameter - 0.1 * gradient)
            return new

        return made

    want = normal(16, 20, seed=1) * 0.1, normal(20, 24, seed=2) * 0.1
    x = normal(1, 16, seed=3)
    devices = "cuda:0", "cuda:1"
    w, v = (hl.device_put(p, device) for p, device in zip(want, devices, strict=True))
    function, plain, single = hl.jit(step(devices), donate_argnums=0), hl.jit(step(devices)), hl.jit(step((None, None)))
    places = w.unsafe_buffer_pointer(), v.unsafe_buffer_pointer()
    for turn in range(4):
        given = [w, v]
        start, before = len(gpus.calls), gpus.direct
        w, v = function(given, x)
        want = single([*want], x)
        assert all(a.is_deleted() for a in given)
        assert (w.unsafe_buffer_pointer(), v.unsafe_buffer_pointer()) == places
        assert gpus.direct - before == 2 * 4 * 20  # h there, its gradient back: no parameter
        copied = [a[2] for name, a in gpus.calls[start:] if name == "cuMemcpyAsync"]
        if turn:
            assert copied == [x.nbytes]
        for a, b in zip((w, v), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    kept = plain([w, v], x)
    start = len(gpus.calls)
    plain([w, v], x)
    assert not any("Synchronize" in name for name in gpus.counts(start))  # nothing was fetched
    assert not w.is_deleted() and kept[0].unsafe_buffer_pointer() != places[0]


def test_a_gpu_that_has_arguments_and_no_results(gpus):
    @hl.jit
    def f(x, y):
        with hl.device("cuda:0"):
            h = x * 2
        with hl.device("cpu:1"):
            return h + y

    x = hl.device_put(normal(9), "cuda:0")
    for _ in range(2):
        np.testing.assert_array_equal(f(x, normal(9, seed=1)), normal(9) * 2 + normal(9, seed=1))


def test_a_loop_that_donates_its_state_needs_no_other_memory(gpus):
    """The state of a loop across devices is written over from step to step, and so is the donated argument."""

    def walk(x, y, steps):
        def step(_, state):
            a, b = state
            with hl.device("cuda:0"):
                a = a * 0.5 + b
            with hl.device("cuda:1"):
                b = b * 0.5 - a
            return a, b

        return lax.fori_loop(0, steps, step, (x, y))

    def placed_twice():
        return hl.device_put(normal(3000), "cuda:0"), hl.device_put(normal(3000, seed=1), "cuda:1")

    function, keeping = hl.jit(walk, donate_argnums=(0, 1), static_argnums=2), hl.jit(walk, static_argnums=2)
    want = normal(3000), normal(3000, seed=1)
    for _ in range(6):
        a = want[0] * np.float32(0.5) + want[1]
        want = a, want[1] * np.float32(0.5) - a
    x, y = placed_twice()
    places = x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer()
    a, b = function(x, y, 6)
    assert x.is_deleted() and y.is_deleted()
    assert (a.unsafe_buffer_pointer(), b.unsafe_buffer_pointer()) == places
    for found, expected in zip((a, b), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    x, y = placed_twice()
    for found, expected in zip(keeping(x, y, 6), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(x, normal(3000))
    np.testing.assert_array_equal(y, normal(3000, seed=1))
    misses = [device.memory().misses for device in gpus.devices]
    a, b = function(a, b, 6)
    assert [device.memory().misses for device in gpus.devices] == misses


def test_an_argument_that_is_a_result_and_one_result_twice(gpus):
    """No two arrays share memory, so that one of them may be given away."""

    @hl.jit
    def f(x, y):
        with hl.device("cuda:0"):
            a = x * 2
        with hl.device("cpu:1"):
            b = y + a
        return x, a, a, b

    x = hl.device_put(normal(100), "cuda:0")
    made = f(x, normal(100, seed=1))
    assert len({x._data.buffer.address, *(m._data.buffer.address for m in made[:3])}) == 4
    result = hl.jit(lambda v: v + 1, donate_argnums=0)(made[1])
    np.testing.assert_array_equal(made[2], normal(100) * 2)
    np.testing.assert_array_equal(result, normal(100) * 2 + 1)


def test_a_value_for_gpus_and_cpus_is_sent_to_each(gpus):
    @hl.jit
    def f(x):
        def step(k, state):
            a, b, c, d = state
            with hl.device("cuda:0"):
                a = a * 0.5 + 1
            with hl.device("cuda:1"):
                b = b + a
            with hl.device("cpu:0"):
                c = c - a
            with hl.device("cpu:1"):
                d = d + a * hnp.float32(k)
            return a, b, c, d

        return lax.fori_loop(0, 4, step, (x, x, x, x))

    found = f(normal(30))
    a = b = c = d = normal(30)
    for k in range(4):
        a = a * np.float32(0.5) + 1
        b, c, d = b + a, c - a, d + a * np.float32(k)
    for got, want in zip(found, (a, b, c, d), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert [str(v.device) for v in found] == ["cuda:0", "cuda:1", "cpu:0", "cpu:1"]


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_counted_loop_of_gpus_waits_for_nothing(gpus, steps):
    """The host counts, values go from GPU to GPU: it is done before the first step is."""

    @hl.jit
    def f(x, y, n):
        def step(state):
            k, odd, a, b = state
            with hl.device("cuda:0"):
                a = a * 0.5 + 1
            with hl.device("cuda:1"):
                b = b + a
            return k + odd, 2 - odd, a, b

        return lax.while_loop(lambda state: state[0] < n, step, (0, 1, x, y))[2:]

    x, y = (hl.device_put(normal(10), device) for device in ("cuda:0", "cuda:1"))
    n = hl.device_put(np.int32(steps), "cuda:0")
    for _ in range(3):
        start = len(gpus.calls)
        a, b = f(x, y, n)
        waited = [name for name, _ in gpus.calls[start:] if "Synchronize" in name]
    assert len(waited) == 2  # each GPU reads n, and no step is waited for
    want, total = normal(10), normal(10)
    for _ in range(steps):
        want = want * np.float32(0.5) + 1
        total = total + want
    np.testing.assert_allclose(a, want, rtol=1e-6)
    np.testing.assert_allclose(b, total, rtol=1e-6)


def test_a_condition_that_a_gpu_decides(gpus):
    @hl.jit
    def f(x):
        def step(state):
            a, b = state
            with hl.device("cuda:0"):
                a = a * 2
            with hl.device("cpu:1"):
                b = b + a.sum()
            return a, b

        def goes_on(state):
            with hl.device("cuda:0"):
                return state[0].sum() < 100

        return lax.while_loop(goes_on, step, (x, x))

    a, b = f(np.ones(4, np.float32))
    assert a.tolist() == [32.0] * 4 and b.tolist() == [1.0 + 4 * (2 + 4 + 8 + 16 + 32)] * 4


def test_branches_across_a_gpu_and_a_cpu(gpus):
    @hl.jit
    def f(k, x):
        def branch(factor):
            def made(x):
                with hl.device("cuda:0"):
                    y = x * factor
                with hl.device("cpu:1"):
                    return y + 1

            return made

        return lax.switch(k, [branch(2.0), branch(3.0), branch(4.0)], x)

    for k, factor in ((0, 2), (1, 3), (2, 4), (9, 4), (-3, 2)):
        np.testing.assert_allclose(f(np.int32(k), normal(5)), normal(5) * factor + 1, rtol=1e-6)


def test_a_known_branch_that_sends_stays_a_branch(gpus):
    """One device knows which branch is taken and another does not: they have to agree about the channel's places."""

    @hl.jit
    def f(x):
        def step(k, state):
            a, b = state

            def branch(factor):
                def made(v):
                    with hl.device("cpu:1"):
                        v = v * factor
                    with hl.device("cuda:0"):
                        return v + 1

                return made

            with hl.device("cpu:1"):
                b = b + 1
            a = lax.cond(k * 0 == 0, branch(2.0), branch(3.0), a)  # a CPU's passes find out, a GPU's part is not asked
            return a, b

        return lax.fori_loop(0, 4, step, (x, x))

    a, b = f(np.zeros(3, np.float32))
    assert a.tolist() == [15.0] * 3 and b.tolist() == [4.0] * 3


def test_what_a_part_does_beside_its_results_is_done(gpus):
    seen = []

    @hl.jit
    def f(x):
        with hl.device("cpu:1"):
            y = x + 1
        with hl.device("cuda:0"):
            hl.debug.callback(lambda v: seen.append(float(v.sum())), y)
        with hl.device("cpu:1"):
            return y * 2

    for _ in range(2):
        np.testing.assert_allclose(f(np.ones(4, np.float32)), 4.0)
    assert seen == [8.0, 8.0]


def across(x):
    """A loop on cuda:0, cuda:1 and cpu:1."""

    def step(_, state):
        a, b, c = state
        with hl.device("cuda:0"):
            a = a * 0.5
        with hl.device("cuda:1"):
            b = b + a
        with hl.device("cpu:1"):
            c = c + b
        return a, b, c

    return lax.fori_loop(0, 3, step, (x, x, x))


def test_any_call_of_the_driver_may_fail(gpus):
    """The error is typed, no device waits for ever, and the next call is as it should be."""
    function, x = hl.jit(across), normal(10)
    want = [np.asarray(v) for v in function(x)]
    start = len(gpus.calls)
    function(x)
    names = [name for name, _ in gpus.calls[start:]]
    assert {"cuMemcpyPeerAsync", "cuGraphLaunch", "cuMemcpyAsync"} <= set(names)
    failed = 0
    for number in range(0, len(names), 7):
        gpus.inject(number, 999)
        try:
            function(x)
        except CudaError as error:
            failed += 1
            assert error.asked and error.found and error.repair
        gpus.refusals.clear()
        for found, expected in zip(function(x), want, strict=True):
            np.testing.assert_array_equal(found, expected)
    assert failed > len(names) // 14


def test_a_failing_python_function_stops_the_gpus(gpus):
    def fails(v):
        raise KeyError("not today")

    @hl.jit
    def f(x):
        def step(_, state):
            a, b = state
            with hl.device("cuda:0"):
                a = a * 0.5
            with hl.device("cuda:1"):
                b = b + hl.pure_callback(fails, hl.ShapeDtypeStruct((4,), np.float32), a)
            return a, b

        return lax.fori_loop(0, 3, step, (x, x))

    for _ in range(2):
        with pytest.raises(KeyError, match="not today"):
            f(np.ones(4, np.float32))


def test_callers_in_several_threads(gpus):
    function, x = hl.jit(across), normal(10)
    want = [np.asarray(v) for v in function(x)]
    wrong = []

    def call():
        for _ in range(10):
            if any(not np.array_equal(a, b) for a, b in zip(function(x), want, strict=True)):
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not wrong and not any(caller.is_alive() for caller in callers)
