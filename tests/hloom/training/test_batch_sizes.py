"""fit and evaluate with batches of several sizes: few programs, and what a program for each size computes."""

from __future__ import annotations

import gc
import re
import warnings
import weakref

import numpy as np
import pytest
from silence import no_warnings
from simulated_gpus import simulated_gpus

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim, training
from hloom.errors import (
    DonationWarning,
    FallbackWarning,
    NonFiniteError,
    NonFiniteWarning,
    ShapeError,
)
from hloom.runtime.buffer import address
from hloom.sharding import NamedSharding, PartitionSpec
from hloom.training import batch_sizes

SIZES = (8, 8, 5, 6, 7, 8, 3, 12, 5)
FEW = batch_sizes.ALONE + 1  # traces: of the sizes that have programs of their own, and of the one for the others


def data(sizes=SIZES, seed=0):
    drawn = np.random.default_rng(seed).standard_normal
    return [(drawn((n, 3)).astype(np.float32), drawn(n).astype(np.float32)) for n in sizes]


def error(w, batch):
    return hnp.mean((batch[0] @ w - batch[1]) ** 2)


def counted(function):
    """A function(w, batch) as a step of gradient descent, and the list of its traces."""
    traces = []

    def step(w, batch):
        traces.append(None)
        value, gradient = hl.value_and_grad(lambda w: function(w, batch))(w)
        return w - 0.1 * gradient, value

    return step, traces


def trained(step, batches, state=None, **options):
    options = {"progress": False, "log_every": 1} | options
    return training.fit(hnp.ones(3) if state is None else state, step, batches, **options)


@pytest.fixture
def two_devices():
    with hl.config(num_cpu_devices=2):
        yield


@pytest.fixture
def each_alone(monkeypatch):
    """Compiles for each size."""
    return lambda: monkeypatch.setattr(batch_sizes, "ALONE", 10_000)


def agrees(function, batches, each_alone, *, traces=FEW):
    """Compares a fit with one that compiles for each size, by rows of metrics and final states."""
    step, made = counted(function)
    found = trained(hl.jit(step), batches)
    assert len(made) == traces
    each_alone()
    step, made = counted(function)
    wanted = trained(hl.jit(step), batches)
    assert len(made) == len({str(hl.tree.map(np.shape, batch)) for batch in batches})
    assert [r["loss"] for r in found.history] == pytest.approx([r["loss"] for r in wanted.history], rel=1e-5)
    np.testing.assert_allclose(found.state, wanted.state, rtol=1e-5, atol=1e-6)


# --- few programs ---

LOSSES = {
    "mean": error,
    "sum over the size": lambda w, b: ((b[0] @ w - b[1]) ** 2).sum() / b[0].shape[0] + 1e-3 * b[0].shape[0] ** 2,
    "zeros": lambda w, b: error(w, b) + (hnp.zeros(b[0].shape[0]) + b[1]).mean(),
    "vmap": lambda w, b: hl.vmap(lambda x, y: (x @ w - y) ** 2)(*b).mean(),
    "scan": lambda w, b: hl.lax.scan(lambda s, row: (s + (row[0] @ w - row[1]) ** 2, None), 0.0, b)[0] / len(b),
    "dropout": lambda w, b: hnp.mean(hl.random.bernoulli(hl.random.key(1), 0.5, b[1].shape) * (b[0] @ w - b[1]) ** 2),
    "nested": lambda w, b: hl.jit(error)(w, b),
    "checkpoint": lambda w, b: hl.checkpoint(error)(w, b),
    "callback": lambda w, b: (
        error(w, b) + hl.lax.stop_gradient(hl.pure_callback(np.sum, hl.ShapeDtypeStruct((), "float32"), b[1]))
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_few_programs_train_what_many_do(name, each_alone):
    agrees(LOSSES[name], data(), each_alone)


@pytest.mark.parametrize("seed", range(4))
def test_random_sizes(seed, each_alone):
    sizes = np.random.default_rng(seed).integers(2, 70, 12)
    agrees(error, data(sizes, seed), each_alone, traces=min(FEW, len(set(sizes))))


def test_a_network_with_all_that_a_state_has():
    """Dropout, statistics, a moving average, a schedule, accumulation: from one state, one step of each size."""
    keys = hl.random.split(hl.random.key(1), 2)
    model = nn.Sequential(
        nn.Linear(3, 16, key=keys[0]), nn.BatchNorm(16), nn.relu, nn.Dropout(0.5), nn.Linear(16, 1, key=keys[1])
    )
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(optim.cosine_decay_schedule(0.1, 100)))
    state = training.TrainState.of(model, optimizer, average=0.9, key=hl.random.key(2))
    traces = []

    def loss(model, batch):
        traces.append(None)
        return hnp.mean((model(batch[0])[:, 0] - batch[1]) ** 2), {"rows": batch[0].shape[0]}

    for accumulate in (1, 2):
        traces.clear()
        runs = batch_sizes.BatchSizes(training.train_step(loss, optimizer, accumulate=accumulate, donate=False))
        batches = data([8, 6, 4, 12])
        found = [runs(state, batch) for batch in batches]
        assert len(traces) == FEW
        other = training.train_step(loss, optimizer, accumulate=accumulate, donate=False)
        for one, batch in zip(found, batches, strict=True):
            wanted = other(state, batch)
            assert hl.tree.structure(one) == hl.tree.structure(wanted)
            for x, y in zip(hl.tree.leaves(one), hl.tree.leaves(wanted), strict=True):
                assert x.dtype == y.dtype and x.shape == y.shape
                if hl.dtypes.issubdtype(x.dtype, hl.dtypes.prng_key):
                    x, y = hl.random.key_data(x), hl.random.key_data(y)
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_smaller_last_batch_is_one_more_program():
    step, traces = counted(error)
    with no_warnings():
        trained(hl.jit(step), data([8, 8, 8, 5]), epochs=3)
    assert len(traces) == 2


def test_other_runs_of_a_step():
    step, traces = counted(error)
    compiled = hl.jit(step)
    trained(compiled, data())
    assert len(traces) == FEW
    trained(compiled, data())
    trained(compiled, data([8, 4, 9, 8, 33]))
    assert len(traces) == FEW
    trained(compiled, data([32, 32, 4, 20]))  # whose first size most batches have
    assert len(traces) == FEW + 1


@pytest.mark.parametrize("sizes", [(8, 5, 1, 6, 1, 7), (1, 8, 5, 6, 7), (8, 5, 6, 0, 1)])
def test_sizes_of_which_a_function_asks_whether_they_are_one(sizes, each_alone):
    """A trace of open sizes takes them to be at least 2."""

    def loss(w, batch):
        return error(w, batch) if batch[0].shape[0] > 1 else 0.5 * hnp.sum(batch[0]) * w.sum()

    agrees(loss, data(sizes), each_alone, traces=FEW + len({0, 1} & {*sizes} - {*sizes[: batch_sizes.ALONE]}))


def test_trees_constants_and_numbers_in_batches(each_alone):
    classes = np.float32([1, 2, 3, 4, 5, 6, 7, 8])
    batches = [{"x": x, "more": [y, None], "classes": classes, "scale": 2.0, 3: len(y)} for x, y in data()]

    def loss(w, b):
        return hnp.mean((b["x"] @ w - b["more"][0]) ** 2) * b["scale"] + b["classes"].sum() * b[3]

    agrees(loss, batches, each_alone)


def test_arrays_of_keys_in_batches(each_alone):
    batches = [(*batch, hl.random.split(hl.random.key(0), len(batch[1]))) for batch in data()]
    agrees(lambda w, b: error(w, b) + hl.vmap(hl.random.normal)(b[2]).mean() * w.sum(), batches, each_alone)


def test_lengths_that_change_too_are_compiled_one_by_one(each_alone):
    drawn = np.random.default_rng(0).standard_normal
    sizes = [(8, 4), (8, 6), (8, 5), (8, 7), (8, 4), (6, 4), (5, 4), (3, 4), (7, 6)]
    batches = [drawn(dims).astype(np.float32) for dims in sizes]
    step, traces = counted(lambda w, b: (b.mean(0) ** 2).sum() * w.sum())
    with no_warnings():
        trained(hl.jit(step), batches)
    # A program for each of 4 lengths; of length 4 one more size, and the open one; of length 6 one more size.
    assert len(traces) == 4 + 2 + 1


def test_two_sizes_that_change_are_compiled_one_by_one():
    step, traces = counted(lambda w, b: b[0].mean() * w.sum() + b[1].mean())
    with no_warnings():
        trained(hl.jit(step), [(np.ones(n, np.float32), np.ones(2 * n, np.float32)) for n in (8, 5, 6, 7)])
    assert len(traces) == 4


def test_evaluation_of_several_sizes(each_alone):
    traces = []

    def measure(state, batch):
        traces.append(None)
        x, y = batch
        return {"error": error(state, batch), "auc": hl.metrics.AUC.empty().update(hnp.abs(x[:, 0]) / 4, y > 0)}

    batches, compiled = data([8, 8, 5, 6, 7, 40]), hl.jit(measure)
    found = [training.evaluate(compiled, hnp.ones(3), batches) for _ in range(2)]
    assert len(traces) == FEW
    wanted = training.evaluate(measure, hnp.ones(3), batches)
    for one in found:
        assert one == pytest.approx(wanted, rel=1e-5)


# --- what stays as it is ---


def test_the_state_is_updated_in_place():
    places, kept = set(), []

    def note(loop):
        places.add(address(loop.state._value()))
        kept.append(loop.state)

    start = hnp.ones((64, 64))
    step, traces = counted(lambda w, b: ((b @ w) ** 2).mean())
    with no_warnings(DonationWarning):
        batches = [np.full((n, 64), 0.01, np.float32) for n in SIZES]
        trained(hl.jit(step, donate_argnums=0), batches, start, on_nan="ignore", callbacks=[note])
        assert len(traces) == FEW and len(places) == 1
        assert all(state.is_deleted() for state in kept[:-1]) and not start.is_deleted()
        trained(hl.jit(step, donate_argnums=0), batches, start)


def test_losses_that_are_not_finite():
    batches = data([8, 5, 6, 7, 9])
    batches[3] = (batches[3][0] * np.float32(np.nan), batches[3][1])
    for donate in ((), (0,)):
        step, traces = counted(error)
        with pytest.warns(NonFiniteWarning, match="batch 3 of epoch 0 was skipped"):
            found = trained(hl.jit(step, donate_argnums=donate), batches, on_nan="skip")
        assert len(traces) >= FEW and found.skipped == 1
        wanted = trained(hl.jit(counted(error)[0]), batches[:3] + batches[4:])
        np.testing.assert_allclose(found.state, wanted.state, rtol=1e-5)
        step, traces = counted(error)
        with pytest.raises(NonFiniteError, match=r"(?s)step 4 of fit.*test_batch_sizes.py") as caught:
            trained(hl.jit(step, donate_argnums=donate), batches)
        assert caught.value.result.step == 3
        before = trained(hl.jit(counted(error)[0]), batches[:3])
        np.testing.assert_allclose(caught.value.result.state, before.state, rtol=1e-5)


def test_functions_that_are_not_compiled_and_those_with_dims():
    seen = []

    def plain(w, batch):
        seen.append(batch[0].shape[0])
        return w, float(error(w, batch))

    trained(plain, data())
    assert tuple(seen) == SIZES
    step, traces = counted(error)
    opened = hl.jit(step, abstracted_axes=(None, {0: "n"}))
    trained(opened, data(), on_nan="ignore")
    assert len(traces) == 1


def test_programs_are_freed_with_their_function():
    step, _ = counted(error)
    compiled = hl.jit(step)
    trained(compiled, data())
    training.evaluate(compiled_too := hl.jit(error), hnp.ones(3), data())
    gone = weakref.ref(compiled), weakref.ref(compiled_too)
    del compiled, compiled_too
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_it_says_no_more_than_compiling_for_each_size(capsys, each_alone):
    with hl.config(debug=1):
        trained(hl.jit(counted(error)[0]), data())
        few = capsys.readouterr().err.count("is compiled again")
        each_alone()
        trained(hl.jit(counted(error)[0]), data())
    assert few <= capsys.readouterr().err.count("is compiled again")


@pytest.mark.parametrize("setting", ["debug_nans", "debug_infs", "disable_jit", "debug_checks"])
def test_settings_that_check(setting, each_alone):
    with hl.config(**{setting: True}):
        found = trained(hl.jit(counted(error)[0]), data())
    each_alone()
    np.testing.assert_allclose(found.state, trained(hl.jit(counted(error)[0]), data()).state, rtol=1e-5)


# --- what is compiled for each size, as without open sizes ---


def decides(w, b):
    return error(w, b) * (2 if b[0].shape[0] == 7 else 1)


REFUSED = {
    "a decision": (decides, r"a decision by batch == 7.*, at .*test_batch_sizes.py:\d+ in decides"),
    "an array of NumPy": (lambda w, b: error(w, b) + np.zeros(b[0].shape[0]).sum(), "TypeError"),
    "a length": (lambda w, b: error(w, b) / len(b[0]), "a Python integer of the size batch"),
    "a range": (lambda w, b: sum((b[0][k] @ w - b[1][k]) ** 2 for k in range(b[0].shape[0])), "a Python integer"),
    "a mask": (lambda w, b: hnp.mean((b[0][b[1] > 0] @ w) ** 2), "boolean index"),
    "a set": (lambda w, b: error(w, b) * (2 if b[0].shape[0] in {7, 3} else 1), "a dict or set looked up by the size"),
    "a default": (lambda w, b: error(w, b) * {7: 3.0, 3: 2.0}.get(b[1].shape[0], 1.0), "a dict or set looked up"),
    "an FFT": (lambda w, b: hnp.abs(hnp.fft.fft(b[0] @ w - b[1])).mean(), "most sizes need a separate program"),
    "a shape": (lambda w, b: error(w, b) * {(7, 3): 3.0}.get(b[0].shape, 1.0), "a dict or set looked up"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_without_a_program_for_all_sizes(name, each_alone):
    function, reason = REFUSED[name]
    step, traces = counted(function)
    compiled = hl.jit(step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = trained(compiled, data())
        trained(compiled, data())
        trained(compiled, data([9, 4, 10]))
    (warning,) = [w for w in caught if w.category is FallbackWarning]
    assert warning.filename == __file__
    assert str(warning.message).startswith("'step' is compiled for each size of batches: ")
    assert re.search(reason, str(warning.message), re.DOTALL)
    assert len(traces) == 1 + 6 + 3  # one that was refused, and one for each size
    each_alone()
    np.testing.assert_array_equal(found.state, trained(hl.jit(counted(function)[0]), data()).state)


def over(axis):
    mesh = hl.make_mesh((2,), ("data",), axis_types=(hl.sharding.AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec(*axis))


def placed(batches, place):
    return [tuple(hl.device_put(part, place) for part in batch) for batch in batches]


EVEN = (8, 8, 4, 6, 12, 2)
DEVICES = {
    "static arguments": (lambda f: hl.jit(f, static_argnames="factor"), lambda x: x, lambda x: x, "static arguments"),
    "shardings": (lambda f: hl.jit(f, in_shardings=over(())), lambda x: x, lambda x: x, "it has shardings"),
    "a split batch": (hl.jit, lambda x: x, lambda x: placed(x, over(("data",))), "on several devices"),
    "a state on a mesh": (hl.jit, lambda x: hl.device_put(x, over(())), lambda x: x, "on several devices"),
    "both on a mesh": (
        hl.jit, lambda x: hl.device_put(x, over(())), lambda x: placed(x, over(("data",))), "on several devices",
    ),
    "autotuning": (lambda f: hl.jit(f, autotune=True), lambda x: x, lambda x: x, "tuned for the sizes"),
    "two devices": (
        lambda f: hl.jit(lambda w, b: (hl.device_put(f(w, b)[0], "cpu:0"), hl.device_put(error(w, b), "cpu:1") * 2)),
        lambda x: x, lambda x: x, "one CPU device",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("name", DEVICES)
def test_options_and_devices_without_a_program_for_all_sizes(name, each_alone):
    jit, state, batches, reason = DEVICES[name]

    def step(w, batch, factor=0.1):
        return w - factor * hl.grad(error)(w, batch), error(w, batch)

    def run():
        return trained(jit(step), batches(data(EVEN)), state(hnp.ones(3)), on_nan="ignore").state

    with pytest.warns(FallbackWarning, match=reason) as caught:
        found = run()
    assert len(caught) == 1
    each_alone()
    wanted = run()
    assert found.sharding == wanted.sharding
    np.testing.assert_array_equal(found, wanted)


def test_a_gpu_has_a_program_for_each_size():
    with simulated_gpus():
        step, traces = counted(error)
        batches, state = placed(data([4, 3, 2, 4]), "cuda:0"), hl.device_put(hnp.ones(3), "cuda:0")
        with pytest.warns(FallbackWarning, match="one CPU device"):
            found = trained(hl.jit(step), batches, state).state
        assert len(traces) == 1 + 3 and "cuda" in str(found.sharding)
        wanted = trained(hl.jit(counted(error)[0]), data([4, 3, 2, 4])).state
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.usefixtures("two_devices")
def test_a_batch_that_alone_says_where_it_is():
    def run(measure, batches):
        return measure(np.ones(3, np.float32), batches)

    measure, batches = batch_sizes.BatchSizes(hl.jit(error)), placed(data(), "cpu:1")
    with no_warnings():
        found = [run(measure, batch) for batch in batches]
    assert {str(one.device) for one in found} == {"cpu:1"}
    np.testing.assert_allclose(found, [run(error, batch) for batch in data()], rtol=1e-5)


@pytest.mark.usefixtures("two_devices")
def test_a_device_that_all_is_on(each_alone):
    def run():
        step = hl.jit(counted(error)[0])
        return trained(step, placed(data(), "cpu:1"), hl.device_put(hnp.ones(3), "cpu:1")).state

    with no_warnings():
        found = run()
    each_alone()
    wanted = run()
    assert found.sharding == wanted.sharding
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_batch_that_cannot_be_divided_is_the_same_error():
    optimizer = optim.sgd(0.1)
    model = nn.Linear(3, 1, key=hl.random.key(0))

    def loss(model, batch):
        return hnp.mean((model(batch[0])[:, 0] - batch[1]) ** 2)

    step = training.train_step(loss, optimizer, accumulate=2)
    state = training.TrainState.of(model, optimizer)
    with no_warnings(FallbackWarning), pytest.raises(ShapeError, match=r"(?s)test_batch_sizes.py.*a multiple of 2"):
        trained(step, data([8, 6, 4, 10, 7]), state)
    assert not model.kernel.is_deleted()


def test_an_error_of_a_function_is_the_same_error():
    def loss(w, batch):
        return error(w, batch) if batch[0].shape[0] != 7 else batch[0] @ hnp.ones(2)

    with no_warnings(FallbackWarning), pytest.raises(ShapeError, match=r"(?s)f32\[7,3\].*test_batch_sizes.py"):
        trained(hl.jit(counted(loss)[0]), data([8, 5, 7]))
