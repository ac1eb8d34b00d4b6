"""Devices chosen inside of functions: where things run, gradients through it, and what goes wrong."""

from __future__ import annotations

import threading
import warnings
from collections import Counter

import numpy as np
import pytest
from device_programs import deep_lstm

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.interpreted import InterpretedKind
from hloom.errors import DeviceError, PlacementWarning, SettingError
from hloom.platforms import processes
from hloom.platforms.kinds import _kinds, device_kinds, register_device_kind
from hloom.platforms.names import parse_device_name


@pytest.fixture
def four_devices():
    with hl.config(num_cpu_devices=4):
        yield hl.devices("cpu")


def normal(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "index", "job", "task"),
    [
        ("cpu:0", "cpu", 0, None, None),
        ("cpu", "cpu", 0, None, None),
        ("gpu:1", "cuda", 1, None, None),
        ("/cpu:3", "cpu", 3, None, None),
        ("/device:GPU:0", "cuda", 0, None, None),
        ("/job:worker/task:1/cpu:0", "cpu", 0, "worker", 1),
        ("/job:localhost/replica:0/task:0/device:CPU:2", "cpu", 2, "localhost", 0),
    ],
)
def test_names(text, kind, index, job, task):
    name = parse_device_name(text)
    assert (name.kind, name.index, name.job, name.task) == (kind, index, job, task)


@pytest.mark.parametrize("text", ["", "cpu:", "cpu:x", "/job:worker", "cpu:0/cpu:1", "0", "cpu:-1", "a b"])
def test_what_is_no_name(text):
    with pytest.raises(DeviceError, match="a name is a kind and an index"):
        hl.device(text)


def test_devices_that_are_not_here(four_devices):
    with pytest.raises(DeviceError, match="cpu:0, cpu:1, cpu:2, cpu:3"):
        hl.device("cpu:7")
    with pytest.raises(DeviceError, match="soft_placement"):
        hl.device("strange:0")
    with pytest.raises(DeviceError, match="/job:localhost"):
        hl.device("/job:worker/task:1/cpu:0")
    with hl.config(soft_placement=True):
        assert str(hl.devices.__call__()[0]) == "cpu:0"
        with hl.device("strange:0") as found:
            assert str(found) == "cpu:0"


def test_soft_placement_of_another_tasks_work_says_so(four_devices):
    name = "/job:worker/task:1/cpu:2"
    with hl.config(soft_placement=True):
        with (
            pytest.warns(PlacementWarning, match=f"{name}.*another process.*cpu:0") as caught,
            hl.device(name) as found,
        ):
            assert str(found) == "cpu:0"
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with hl.device("/job:localhost/task:0/cpu:2") as found:
                assert str(found) == "cpu:2"


def test_a_step_whose_results_are_its_next_arguments_is_compiled_once(four_devices, capsys):
    def step(weights, x):
        def loss(weights):
            with hl.device("cpu:1"):
                hidden = hnp.tanh(x @ weights[0])
            with hl.device("cpu:2"):
                return ((hidden @ weights[1]) ** 2).mean()

        value, gradients = hl.value_and_grad(loss)(weights)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value

    traced = []
    function = hl.jit(lambda weights, x: traced.append(1) or step(weights, x))
    weights, x = [normal(8, 8), normal(8, 4, seed=1)], normal(5, 8, seed=2)
    first = weights
    with hl.config(debug=1):
        for _ in range(4):
            weights, value = function(weights, x)
    assert len(traced) == 1
    said = capsys.readouterr().err
    assert said.count(" sent") == 1 and "compiled again" not in said
    for _ in range(4):
        first, expected = step([hnp.asarray(w) for w in first], x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for w, e in zip(weights, first, strict=True):
        np.testing.assert_allclose(w, e, rtol=1e-5, atol=1e-6)


def test_arguments_on_a_device_without_a_part_are_compiled_for(four_devices):
    function = hl.jit(two_parts)
    x = normal(4, 4)
    expected = np.asarray(function(x, x))
    other = function(hl.device_put(x, four_devices[3]), x)
    np.testing.assert_allclose(other, expected, rtol=1e-6)
    assert len({id(s.executable) for s in function._specializations.values()}) == 2


# --- scopes -------------------------------------------------------------------------------------------------------


def two_parts(x, y):
    with hl.device("cpu:0"):
        a = hnp.tanh(x) @ y
    with hl.device("cpu:1"):
        b = hnp.sin(y) @ y
    return a, b, a + b


def test_parts_of_a_function(four_devices):
    x, y = normal(16, 16), normal(16, 16, seed=1)
    function = hl.jit(two_parts)
    for _ in range(3):
        a, b, both = function(x, y)
        assert [str(v.device) for v in (a, b)] == ["cpu:0", "cpu:1"]
        np.testing.assert_allclose(a, np.tanh(x) @ y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(both, np.tanh(x) @ y + np.sin(y) @ y, rtol=1e-4, atol=1e-4)
    compiled = function.lower(x, y).compile()
    assert "send" in compiled.as_text() and "recv" in compiled.as_text()
    assert "# --- cpu:1 ---" in compiled.source()


def test_inner_scopes_win_and_none_takes_back(four_devices):
    @hl.jit
    def f(x):
        with hl.device("cpu:1"):
            a = x + 1
            with hl.device("cpu:2"):
                b = a * 2
            with hl.device(None):
                c = x * 3
            d = b - 1
        return a, b, c, d

    assert [str(v.device) for v in f(normal(4))] == ["cpu:1", "cpu:2", "cpu:0", "cpu:1"]


def test_as_a_decorator_and_for_functions_called_inside(four_devices):
    double = hl.jit(lambda x: x * 2)

    @hl.device("cpu:2")
    def layer(x):
        return double(x) + 1

    def f(x):
        return layer(x), double(x), hl.jit(lambda v: v - 1, device="cpu:3")(x)

    assert [str(v.device) for v in hl.jit(f)(normal(4))] == ["cpu:2", "cpu:0", "cpu:3"]
    np.testing.assert_allclose(hl.jit(f)(np.ones(3, np.float32))[0], 3.0)


def test_outside_of_a_trace(four_devices):
    double = hl.jit(lambda x: x * 2)
    x = normal(4)
    assert str(double(x).device) == "cpu:0"
    with hl.device("cpu:1"):
        assert str(double(x).device) == "cpu:1"
        assert str((hnp.ones(3) + 1).device) == "cpu:1"
    assert str(double(x).device) == "cpu:0"


def test_the_gradient_of_a_part_is_where_the_part_is(four_devices):
    def loss(x, y):
        with hl.device("cpu:1"):
            hidden = hnp.tanh(x @ y)
        with hl.device("cpu:2"):
            return hnp.sum(hidden**2)

    x, y = normal(8, 8), normal(8, 8, seed=1)
    gradient = hl.jit(hl.grad(loss, argnums=(0, 1)))
    found = gradient(x, y)
    plain = hl.jit(hl.grad(lambda x, y: hnp.sum(hnp.tanh(x @ y) ** 2), argnums=(0, 1)))(x, y)
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert str(a.device) == "cpu:1"


def test_arguments_on_several_devices(four_devices):
    x, y = (hl.device_put(normal(8), f"cpu:{k}") for k in (1, 2))
    with pytest.raises(DeviceError, match="cpu:1 and cpu:2"):
        hl.jit(lambda a, b: a + b)(x, y)

    @hl.jit
    def f(a, b):
        with hl.device("cpu:3"):
            return a + b

    assert str(f(x, y).device) == "cpu:3"


def test_a_function_of_one_part_runs_on_its_device(four_devices):
    @hl.jit
    def f(x):
        with hl.device("cpu:2"):
            return hnp.exp(x)

    assert str(f(normal(5)).device) == "cpu:2"


def test_the_log_of_placements(four_devices, capsys):
    with hl.config(log_device_placement=True):
        hl.jit(two_parts)(normal(8, 8), normal(8, 8))
    lines = capsys.readouterr().err.splitlines()
    assert any("(sine) cpu:1 at" in line and "test_device_scopes.py" in line for line in lines)


@pytest.mark.quick
def test_the_log_names_the_hardware_each_time_and_the_task(capsys):
    for task in ("", "/job:worker/task:1"):
        with hl.config(log_device_placement=True), processes.acting_as(task):
            hl.jit(lambda x: hnp.exp(x))(normal(5))
        name = f"{task}/cpu:0" if task else "cpu:0"
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith(f"hloom: device {name}: name: ")
        assert lines[1].startswith(f"hloom: exponential: (exponential) {name} at ")


def test_text_has_the_devices(four_devices):
    x = normal(8, 8)
    text = hl.jit(two_parts).lower(x, x).as_text()
    assert 'device="cpu:1"' in text
    made = hl.from_hlo(text)
    assert made.lower(x, x).as_text().count('device="cpu:1"') == text.count('device="cpu:1"') == 2
    for found, want in zip(made(x, x), hl.jit(two_parts)(x, x), strict=True):
        np.testing.assert_array_equal(found, want)
        assert found.device == want.device


def test_what_is_told_of_a_program_of_several_devices(four_devices, capsys):
    x = normal(8, 8)
    with hl.config(debug=1):
        compiled = hl.jit(two_parts).lower(x, x).compile()
    assert "two_parts runs on cpu:0, cpu:1, with 1 values (256 bytes) sent" in capsys.readouterr().err
    assert compiled.cost_analysis()["bytes sent"] == 256 and "partition" in compiled.timings()
    assert compiled.memory_analysis()["channel bytes"] >= 0
    with pytest.raises(DeviceError, match="cpu:0, cpu:1"):
        compiled.plan  # noqa: B018


def test_donated_arguments_across_devices(four_devices):
    @hl.jit
    def plain(p, x):
        with hl.device("cpu:1"):
            g = x * 2.0
        with hl.device("cpu:0"):
            return p - g

    donating = hl.jit(plain.function, donate_argnums=0)
    p = hl.jit(lambda v: v * 1.5)(normal(64))
    where = p.unsafe_buffer_pointer()
    made = donating(p, normal(64, seed=1))
    np.testing.assert_allclose(made, 1.5 * normal(64) - 2.0 * normal(64, seed=1), rtol=1e-6)
    assert made.unsafe_buffer_pointer() == where and p.is_deleted()


def test_a_donated_argument_that_nobody_reads_is_given_to_one_device(four_devices):
    @hl.jit
    def plain(unused, x):
        with hl.device("cpu:0"):
            a = hnp.cumsum(x)
        with hl.device("cpu:1"):
            b = hnp.cumsum(x + 1)
        return a, b

    donating = hl.jit(plain.function, donate_argnums=0)
    want = plain(normal(64), normal(64, seed=1))
    for found, expected in zip(donating(normal(64) * 1, normal(64, seed=1)), want, strict=True):
        np.testing.assert_array_equal(found, expected)


# --- loops and branches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unrolled", [True, False])
@pytest.mark.parametrize("count", [2, 4])
def test_a_layer_per_device(four_devices, count, unrolled):
    hidden, batch, steps = 8, 3, 5
    parameters = [
        (normal(2 * hidden, 4 * hidden, seed=k) * 0.3, normal(4 * hidden, seed=9 + k) * 0.1) for k in range(count)
    ]
    xs = normal(steps, batch, hidden, seed=50)
    placed = deep_lstm([f"cpu:{k}" for k in range(count)], unrolled)
    plain = deep_lstm([None] * count, unrolled)
    want, want_gradient = hl.jit(hl.value_and_grad(plain))(parameters, xs)
    function = hl.jit(hl.value_and_grad(placed))
    for _ in range(3):
        found, gradient = function(parameters, xs)
        np.testing.assert_allclose(found, want, rtol=1e-5)
        for k in range(count):
            for a, b in zip(gradient[k], want_gradient[k], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
            assert str(gradient[k][0].device) == f"cpu:{k}"


@pytest.mark.parametrize("towers", [2, 4])
def test_towers(four_devices, towers):
    """TensorFlow 1.0's multi-GPU tutorial: parameters on one device, a tower with a share of the batch on each."""

    def loss(parameters, x, y):
        w, v = parameters
        return hnp.mean((hnp.tanh(x @ w) @ v - y) ** 2)

    def step(parameters, x, y):
        gradients = []
        for k, (xs, ys) in enumerate(zip(hnp.split(x, towers), hnp.split(y, towers), strict=True)):
            with hl.device(f"cpu:{k}"):
                gradients.append(hl.grad(loss)(parameters, xs, ys))
        with hl.device("cpu:0"):
            mean = hl.tree.map(lambda *g: sum(g) / towers, *gradients)
            return hl.tree.map(lambda p, g: p - 0.1 * g, parameters, mean)

    parameters = (normal(6, 16), normal(16, 2, seed=1))
    x, y = normal(32, 6, seed=2), normal(32, 2, seed=3)
    single = hl.jit(lambda p, x, y: hl.tree.map(lambda a, g: a - 0.1 * g, p, hl.grad(loss)(p, x, y)))
    function, want = hl.jit(step), parameters
    for _ in range(4):
        parameters, want = function(parameters, x, y), single(want, x, y)
        for a, b in zip(parameters, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            assert str(a.device) == "cpu:0"
    text = function.lower(parameters, x, y).compile().as_text()
    assert text.count("HloModule") == towers


def test_a_condition_that_one_device_decides(four_devices):
    def run(first, second):
        def step(state):
            x, y, n = state
            with hl.device(first):
                x = x * 0.5
            with hl.device(second):
                y = y + x
            return x, y, n + 1

        def go_on(state):
            with hl.device(first):
                return hnp.sum(hnp.abs(state[0])) > 0.01

        return hl.jit(lambda x, y: lax.while_loop(go_on, step, (x, y, 0)))

    x, y = normal(100), normal(100, seed=1)
    for a, b in zip(run("cpu:1", "cpu:2")(x, y), run(None, None)(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_branches_over_devices(four_devices):
    @hl.jit
    def f(flag, x):
        def first(x):
            with hl.device("cpu:1"):
                y = hnp.sin(x)
            with hl.device("cpu:2"):
                return y * 2

        return lax.cond(flag, first, lambda x: x - 1, x)

    x = normal(10)
    np.testing.assert_allclose(f(True, x), np.sin(x) * 2, rtol=1e-6)
    np.testing.assert_allclose(f(False, x), x - 1, rtol=1e-6)


# --- errors, threads ----------------------------------------------------------------------------------------------


def test_a_failing_part_stops_the_others(four_devices):
    def fail(x):
        raise ValueError("not today")

    def f(x, fails):
        with hl.device("cpu:1"):
            y = hl.pure_callback(fail if fails else np.sin, hl.ShapeDtypeStruct(x.shape, x.dtype), x)
        with hl.device("cpu:0"):
            return y + x

    bad, good = (hl.jit(lambda x, flag=flag: f(x, flag)) for flag in (True, False))
    x = normal(10)
    for _ in range(3):
        with pytest.raises(ValueError, match="not today"):
            bad(x)
        np.testing.assert_allclose(good(x), np.sin(x) + x, rtol=1e-6)


@pytest.mark.parametrize("device", ["cpu:0", "cpu:1"])
def test_a_python_step_that_calls_such_a_function(four_devices, device):
    inner = hl.jit(two_parts)

    @hl.jit
    def outer(x):
        with hl.device(device):
            y = hl.pure_callback(lambda v: np.asarray(inner(v, v)[2]), hl.ShapeDtypeStruct(x.shape, x.dtype), x)
        with hl.device("cpu:0" if device == "cpu:1" else "cpu:1"):
            return y + x

    x = normal(8, 8)
    found: list[np.ndarray] = []
    caller = threading.Thread(target=lambda: found.append(np.asarray(outer(x))), daemon=True)
    caller.start()
    caller.join(60)
    np.testing.assert_allclose(found, [np.asarray(inner(x, x)[2]) + x], rtol=1e-5)


def test_callers_in_several_threads(four_devices):
    function = hl.jit(two_parts)
    x, y = normal(16, 16), normal(16, 16, seed=1)
    want = np.asarray(function(x, y)[2])
    wrong = []

    def call():
        for _ in range(50):
            if not np.array_equal(function(x, y)[2], want):
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not wrong and not any(c.is_alive() for c in callers)


def test_a_forked_process(four_devices):
    import os

    function = hl.jit(two_parts)
    x = normal(8, 8)
    want = np.asarray(function(x, x)[2])
    child = os.fork()
    if not child:
        # An own list of threads; what goes wrong shows as the status.
        os._exit(0 if np.array_equal(function(x, x)[2], want) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_more_memory_than_a_device_has(four_devices):
    @hl.jit
    def f(samples):
        with hl.device("cpu:1"):
            wide = hnp.outer(samples, samples) @ hnp.outer(samples, samples)
            return hnp.sum(hnp.tanh(wide @ wide))

    with hl.config(cpu_memory="64k"), pytest.raises(DeviceError, match=r"cpu:1.*") as caught:
        f(normal(200))
    assert "bytes" in str(caught.value) and "test_device_scopes.py" in str(caught.value)
    assert np.isfinite(f(normal(20)))
    with pytest.raises(SettingError, match="512M"):
        hl.config.cpu_memory = "much"


# --- kinds of devices from outside ----------------------------------------------------------------------------------


class CountingKind(InterpretedKind):
    """Counts the operations that it computes; has no kernel for sine."""

    name = "counting"

    def __init__(self):
        self.computed = Counter()

    def count(self) -> int:
        return 2

    def has_kernel(self, instruction) -> bool:
        return instruction.opcode != "sine"

    def compute(self, instruction, operands):
        self.computed[instruction.opcode] += 1
        return super().compute(instruction, operands)


@pytest.fixture
def counting():
    kind = CountingKind()
    register_device_kind(kind)
    yield kind
    del _kinds["counting"]


def test_a_device_that_counts(four_devices, counting):
    assert "counting:1" in map(str, hl.devices())

    @hl.jit
    def f(x):
        with hl.device("counting:1"):
            y = hnp.tanh(x) * 2
        with hl.device("cpu:1"):
            return y @ x, hnp.cos(x)

    x = normal(8, 8)
    for calls in (1, 2):
        np.testing.assert_allclose(f(x)[0], (np.tanh(x) * 2) @ x, rtol=1e-4, atol=1e-5)
        assert counting.computed["tanh"] == calls and "cosine" not in counting.computed


def test_a_loop_between_kinds(four_devices, counting):
    def run(device):
        def step(state, x):
            a, b = state
            with hl.device(device):
                a = hnp.tanh(a + x)
            with hl.device("cpu:1" if device else None):
                b = b * 0.5 + a
            return (a, b), hnp.sum(b)

        return hl.jit(lambda xs: lax.scan(step, (xs[0], xs[0]), xs))

    xs = normal(6, 40)
    found, want = run("counting:0")(xs), run(None)(xs)
    np.testing.assert_allclose(found[1], want[1], rtol=1e-5)
    assert counting.computed["tanh"] >= 6


def test_an_operation_without_a_kernel(four_devices, counting):
    @hl.jit
    def f(x):
        with hl.device("counting:0"):
            y = hnp.sin(x) + 1
        return y

    with pytest.raises(DeviceError, match="counting") as caught:
        f(normal(4))
    assert "test_device_scopes.py" in str(caught.value)
    with hl.config(soft_placement=True):
        np.testing.assert_allclose(f(normal(4)), np.sin(normal(4)) + 1, rtol=1e-6)


def test_a_kind_comes_by_an_entry_point(monkeypatch):
    from importlib import metadata

    class Point:
        name, dist = "counting", None

        def load(self):
            return CountingKind

    class Broken(Point):
        name = "broken"

        def load(self):
            raise ImportError("no such thing")

    from hloom.platforms.kinds import _load_entry_points

    for points, expected in (([Point()], True), ([Broken()], False)):
        monkeypatch.setattr(metadata, "entry_points", lambda group, points=points: points)
        _load_entry_points.cache_clear()
        try:
            if expected:
                assert "counting" in device_kinds()
            else:
                with pytest.raises(DeviceError, match="no such thing"):
                    device_kinds()
        finally:
            _kinds.pop("counting", None)
            monkeypatch.undo()
            _load_entry_points.cache_clear()


def test_options_of_jit_reach_the_parts(four_devices):
    x, y = normal(16, 16), normal(16, 16, seed=1)
    fused, unfused, tuned = (
        hl.jit(two_parts, **options) for options in ({}, {"fusion": False}, {"autotune": True})
    )  # fmt: skip
    counts = [f.lower(x, y).compile().cost_analysis()["kernels"] for f in (fused, unfused)]
    assert counts[1] >= counts[0]
    for f in (unfused, tuned):
        np.testing.assert_allclose(f(x, y)[2], fused(x, y)[2], rtol=1e-4, atol=1e-4)
