"""fit: metrics, ends, resuming, faults; what it trains is what a loop by hand trains."""

import json
import math
import os
import signal
import threading

import numpy as np
import pytest
from silence import no_warnings

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim, training
from hloom.errors import (
    ArgumentError,
    CheckpointError,
    DonationWarning,
    FileError,
    NonFiniteError,
    NonFiniteWarning,
    ShapeError,
    TreeError,
)
from hloom.training import callbacks, encoding, history, inputs

X = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
Y = X @ np.array([1.0, -2.0, 3.0], np.float32)


def batches(epoch=0, size=8):
    order = np.random.default_rng(epoch).permutation(len(X))
    return [(X[b], Y[b]) for b in np.split(order, len(X) // size)]


def loss(model, batch):
    x, y = batch
    return hnp.mean((model(x)[:, 0] - y) ** 2)


def linear():
    return nn.Linear(3, 1, key=hl.random.key(0))


def fresh(optimizer=None, **options):
    optimizer = optimizer or optim.adam(0.05)
    return training.TrainState.of(linear(), optimizer, **options), training.train_step(loss, optimizer)


def run(data=batches, **options):
    state, step = fresh()
    return training.fit(state, step, data, progress=False, **options)


def same(a, b):
    return hl.tree.structure(a) == hl.tree.structure(b) and all(
        np.array_equal(np.asarray(x), np.asarray(y)) for x, y in zip(hl.tree.leaves(a), hl.tree.leaves(b), strict=True)
    )


@pytest.mark.quick
def test_it_trains_and_counts():
    found = run(epochs=40, evaluate=lambda s: loss(s.model, (X, Y)))
    assert found.step == 320 and found.epoch == 40 and found.stopped == "epochs" and found.skipped == 0
    assert found.metrics["eval_metric"] < 1e-3 and set(found.metrics) == {"loss", "grad_norm", "eval_metric"}
    assert [r["step"] for r in found.history if "loss" in r] == list(range(10, 321, 10))
    assert int(found.state.step) == 320 and 0 < found.waited < found.seconds


def test_it_is_the_loop_by_hand():
    state, step = fresh()
    for epoch in range(3):
        for batch in batches(epoch):
            state, _ = step(state, batch)
    assert same(run(epochs=3).state, state)


@pytest.mark.parametrize("options, steps, why", [
    ({}, 8, "epochs"), ({"steps": 20}, 20, "steps"), ({"epochs": 2, "steps": 11}, 11, "steps"),
    ({"epochs": 2}, 16, "epochs"),
])  # fmt: skip
def test_ends(options, steps, why):
    found = run(**options)
    assert (found.step, found.stopped) == (steps, why)


def test_kinds_of_data():
    assert run(batches(), epochs=2).step == 16  # a list, read twice
    assert run(iter(batches()), steps=20).stopped == "the data ended"
    with pytest.raises(ArgumentError, match=r"(?s)epochs=2.*read once.*a function of the epoch"):
        run(iter(batches()), epochs=2)
    with pytest.raises(ArgumentError, match="epoch 0 has none"):
        run([])
    with pytest.raises(ArgumentError, match="found:  int"):
        run(3)


def test_the_callers_model_stays():
    """A cell of a notebook runs twice: the step donates a copy."""
    model, optimizer = hl.nn.Linear(3, 1, key=hl.random.key(0)), hl.optim.adam(0.1)
    step = training.train_step(lambda m, b: hnp.mean((m(b[0])[:, 0] - b[1]) ** 2), optimizer)
    state = training.TrainState.of(model, optimizer, key=hl.random.key(1))
    before = np.asarray(model.kernel).copy()
    found = [training.fit(state, step, batches, epochs=2, progress=False).state for _ in range(2)]
    np.testing.assert_array_equal(model.kernel, before)
    np.testing.assert_array_equal(found[0].model.kernel, found[1].model.kernel)
    assert not np.array_equal(found[0].model.kernel, before) and int(state.step) == 0


def test_steps_of_ones_own():
    @hl.jit
    def step(w, batch):
        value, g = hl.value_and_grad(lambda w: hnp.mean((batch[0] @ w - batch[1]) ** 2))(w)
        return w - 0.1 * g, value

    found = training.fit(hnp.zeros(3), step, batches, epochs=20, progress=False)
    np.testing.assert_allclose(np.asarray(found.state), [1, -2, 3], atol=1e-3)

    def by_numpy(w, batch):
        error = batch[0] @ w - batch[1]
        return w - 0.1 * batch[0].T @ error / len(error), {"loss": float(np.mean(error**2))}

    assert np.allclose(
        training.fit(np.zeros(3), by_numpy, batches, epochs=20, progress=False).state, [1, -2, 3], atol=0.1
    )


def test_mistakes_of_steps():
    for step, error, words in (
        (lambda s, b: s, ArgumentError, "a tuple of 6"),
        (lambda s, b: (s, X), ArgumentError, "'loss': ndarray"),
        (lambda s, b: (s, {"loss": "text"}), ArgumentError, "'loss': str"),
        (hl.jit(lambda s, b: (hnp.sum(s.model.kernel), s)), ArgumentError, "scalars by name"),
        (hl.jit(lambda s, b: (s.model, 1.0)), TreeError, "the structure that it was given"),
        (3, ArgumentError, "takes a function step"),
    ):
        with pytest.raises(error, match=words):
            training.fit(fresh()[0], step, batches, progress=False)
    for options, words in (
        ({"epochs": 0}, "epochs=0"), ({"on_nan": "never"}, "'never'"), ({"log": "metrics.txt"}, "metrics.jsonl"),
        ({"callbacks": [training.EarlyStopping]}, "create the object"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=words):
            run(**options)


# --- what is not finite ---


def poisoned(at=5):
    found = batches()
    found[at] = (found[at][0] * np.float32(np.nan), found[at][1])
    return found


def test_a_nan_stops_with_the_users_line(tmp_path):
    def log_loss(model, batch):
        return hnp.mean(hnp.log(hnp.abs(model(batch[0])) - 1e9)) if batch[0].shape[0] == 8 else 0.0

    state, _ = fresh()
    step = training.train_step(log_loss, optim.sgd(0.1))
    with pytest.raises(NonFiniteError) as caught:
        training.fit(training.TrainState.of(linear(), optim.sgd(0.1)), step, batches, progress=False)
    text = str(caught.value)
    assert "step 1 of fit" in text and "log made an invalid value" in text and "in log_loss" in text
    assert caught.value.result.step == 0 and same(caught.value.result.state.model, state.model)


def test_a_nan_saves_the_state_before_it(tmp_path):
    with pytest.raises(NonFiniteError, match="is saved as step 5"):
        run(poisoned(), checkpoints=tmp_path)
    state, step = fresh()
    for batch in batches()[:5]:
        state, _ = step(state, batch)
    assert same(hl.checkpoints.Manager(tmp_path).restore(like=state), state)
    # The repaired data go on with the batch.
    assert same(run(batches(), checkpoints=tmp_path).state, run(batches()).state)


def test_skipped_steps_leave_no_trace():
    with pytest.warns(NonFiniteWarning, match="batch 5 of epoch 0 was skipped") as caught:
        found = run(poisoned(), on_nan="skip")
    assert caught[0].filename == __file__ and found.skipped == 1 and found.step == 8
    clean = batches()
    del clean[5]
    assert same(found.state.model, run(clean).state.model)
    assert math.isnan(float(run(poisoned(), on_nan="ignore").state.model.bias[0]))


def test_plain_functions_keep_their_state_too():
    def step(w, batch):
        return w + 1, float(batch)

    with pytest.warns(NonFiniteWarning):
        found = training.fit(np.zeros(1), step, [1.0, math.nan, 2.0], on_nan="skip", progress=False)
    assert found.state[0] == 2 and found.step == 3
    other = hl.jit(lambda w, b: (w, hnp.sum(b)), device="cpu:0")
    with pytest.raises(ArgumentError, match="apply_if_finite"):
        training.fit(hnp.zeros(1), other, [hnp.ones(1)], on_nan="skip", progress=False)


# --- checkpoints ---


@pytest.mark.quick
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path):
    class Fault(Exception):
        pass

    def fault_at(step):
        def callback(loop):
            if loop.step == step:
                raise Fault

        return callback

    whole = run(epochs=4)
    stops = [fault_at(13), fault_at(14), fault_at(29)]
    for stop in stops:
        with pytest.raises(Fault):
            run(epochs=4, checkpoints=tmp_path, checkpoint_every=3, callbacks=[stop])
    found = run(epochs=4, checkpoints=tmp_path, checkpoint_every=3)
    assert same(found.state, whole.state) and (found.step, found.epoch) == (32, 4)
    rows = history.read(tmp_path / "metrics.jsonl")
    assert [(r["step"], r["loss"]) for r in rows] == [(r["step"], r["loss"]) for r in whole.history]
    again = run(epochs=4, checkpoints=tmp_path, checkpoint_every=3)
    assert same(again.state, whole.state) and again.step == 32  # nothing is left to do
    assert run(epochs=5, checkpoints=tmp_path).step == 40


def test_iterators_with_a_state_go_on_without_reading_again(tmp_path):
    class Numbers:
        reads = 0

        def __init__(self):
            self.position = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.position == 12:
                raise StopIteration
            Numbers.reads += 1
            self.position += 1
            return np.float32(self.position)

        def state(self):
            return {"position": self.position, "noise": np.arange(3)}

        def restore(self, state):
            assert np.array_equal(state["noise"], np.arange(3))
            self.position = state["position"]

    step = hl.jit(lambda total, x: (total + x, x))
    zero = hnp.zeros(())
    first = training.fit(zero, step, lambda epoch: Numbers(), steps=5, checkpoints=tmp_path, progress=False)
    assert Numbers.reads == 5 and float(first.state) == 15
    second = training.fit(zero, step, lambda epoch: Numbers(), epochs=1, checkpoints=tmp_path, progress=False)
    assert Numbers.reads == 12 and float(second.state) == 78


def test_data_that_end_before_the_place_to_go_on(tmp_path):
    run(steps=6, checkpoints=tmp_path)
    with pytest.raises(ArgumentError, match="the data end after 3"):
        run(batches()[:3], epochs=2, checkpoints=tmp_path)


def test_checkpoints_of_another_model_are_named(tmp_path):
    run(checkpoints=tmp_path)
    other = nn.Linear(4, 1, key=hl.random.key(0))
    state = training.TrainState.of(other, optim.adam(0.05))
    with pytest.raises(CheckpointError, match=r"model/kernel: expected f32\[4,1\], found f32\[3,1\]"):
        training.fit(state, training.train_step(loss, optim.adam(0.05)), batches, checkpoints=tmp_path, progress=False)
    with pytest.raises(CheckpointError, match="it has step 8"):
        run(checkpoints=tmp_path, resume=False)


def test_the_best_checkpoint_by_an_evaluation(tmp_path):
    manager = hl.checkpoints.Manager(tmp_path, keep=1, best=("eval_loss", "min"))
    values = iter([3.0, 1.0, 2.0, 4.0])
    run(epochs=4, checkpoints=manager, evaluate=lambda s: {"loss": next(values)})
    assert manager.best() == 16 and manager.steps() == [16, 32]


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
def test_signals_save_and_leave(tmp_path, number):
    before = signal.getsignal(number)

    def send(loop):
        if loop.step == 11:
            os.kill(os.getpid(), number)

    with pytest.raises(SystemExit if number == signal.SIGTERM else KeyboardInterrupt) as caught:
        run(epochs=3, checkpoints=tmp_path, callbacks=[send])
    assert caught.value.result.step == 11 and signal.getsignal(number) is before
    if number == signal.SIGTERM:
        assert caught.value.code == 143
    assert same(run(epochs=3, checkpoints=tmp_path, callbacks=[send]).state, run(epochs=3).state)


def test_it_runs_in_other_threads():
    found = []
    thread = threading.Thread(target=lambda: found.append(run().step))
    thread.start()
    thread.join()
    assert found == [8]


# --- callbacks, metrics ---


def test_early_stopping_and_its_state(tmp_path):
    values = [5.0, 4.0, 4.5, 4.4, 4.3, 1.0]

    def evaluate(state):
        return {"loss": values[int(state.step) // 8 - 1]}

    whole = run(epochs=6, evaluate=evaluate, callbacks=[training.EarlyStopping(patience=3)])
    assert whole.epoch == 5 and "eval_loss did not improve in 3" in whole.stopped
    run(epochs=3, evaluate=evaluate, checkpoints=tmp_path, callbacks=[training.EarlyStopping(patience=3)])
    found = run(epochs=6, evaluate=evaluate, checkpoints=tmp_path, callbacks=[training.EarlyStopping(patience=3)])
    assert found.epoch == 5
    with pytest.raises(ArgumentError, match=r"watches 'eval_loss'.*\n.*no evaluate="):
        run(callbacks=[training.EarlyStopping()])
    with pytest.raises(ArgumentError, match="did you mean 'eval_loss'"):
        run(evaluate=evaluate, callbacks=[training.EarlyStopping("eval_los")])
    for wrong in ({"order": "up"}, {"patience": 0}, {"min_delta": -1}):
        with pytest.raises(ArgumentError):
            training.EarlyStopping(**wrong)


def test_callbacks_are_called_in_order(tmp_path):
    calls = []

    class Recorder(training.Callback):
        def __getattribute__(self, name):
            if name.startswith("on_"):
                return lambda loop: calls.append((name, loop.step))
            return object.__getattribute__(self, name)

    run(batches()[:2], evaluate=lambda s: 1.0, checkpoints=tmp_path, callbacks=[Recorder()])
    assert calls == [
        ("on_start", 0), ("on_step", 1), ("on_step", 2), ("on_evaluation", 2), ("on_epoch", 2), ("on_checkpoint", 2),
        ("on_end", 2),
    ]  # fmt: skip


def test_summaries_of_a_run(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'hloom[train]'")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    summaries = [training.Summaries(tmp_path / "logs", every=2)]
    run(steps=6, evaluate=lambda s: {"error": 0.5}, checkpoints=tmp_path / "run", callbacks=summaries)
    summaries = [training.EarlyStopping("eval_error"), training.Summaries(tmp_path / "logs", every=2)]
    run(steps=10, evaluate=lambda s: {"error": 0.5}, checkpoints=tmp_path / "run", callbacks=summaries)
    found = accumulator.EventAccumulator(str(tmp_path / "logs"))
    found.Reload()
    assert [e.step for e in found.Tensors("loss")] == [2, 4, 6, 8, 10]
    assert [e.step for e in found.Tensors("eval_error")] == [6, 8, 10]


@pytest.mark.parametrize("suffix", ("csv", "jsonl"))
def test_metrics_in_files(tmp_path, suffix):
    path = tmp_path / f"metrics.{suffix}"
    found = run(epochs=2, log=path, log_every=4, evaluate=lambda s: {"error": 0.5})
    assert history.read(path) == found.history
    assert [r["step"] for r in found.history] == [4, 8, 8, 12, 16, 16]
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"step": 99' if suffix == "jsonl" else "99,1")  # cut by a kill
    assert history.read(path) == found.history
    path.write_text("text\nmore\n")
    with pytest.raises(FileError, match="name a file that fit wrote"):
        history.read(path)


def test_curves(tmp_path):
    pytest.importorskip("matplotlib")
    run(epochs=2, curves=tmp_path / "a" / "curves.png", evaluate=lambda s: {"loss": 0.5})
    assert (tmp_path / "a" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_progress_in_lines(capsys, monkeypatch):
    from hloom.training import progress

    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    state, step = fresh()
    training.fit(state, step, batches, steps=3)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and lines[-1].startswith("step 3/3  ")
    for words in ("examples/s", "ms/step", "input ", "loss ", " MB"):
        assert words in lines[-1]


def test_progress_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    state, step = fresh()
    training.fit(state, step, batches, steps=3, evaluate=lambda s: 2.0)
    text = capsys.readouterr().err
    assert "examples/s" in text and "eval_metric 2" in text


def test_evaluation_over_batches():
    assert training.evaluate(lambda s, b: {"a": float(len(b)) + s}, 1.0, [np.ones(3), np.ones(1)]) == {"a": 3.5}
    auc = training.evaluate(
        hl.jit(lambda s, b: {"auc": hl.metrics.AUC.empty().update(b[0], b[1])}), 0,
        [(np.float32([0.1, 0.9]), np.float32([0, 1])), (np.float32([0.4, 0.6]), np.float32([1, 0]))],
    )  # fmt: skip
    assert auc["auc"] == pytest.approx(0.75, abs=1e-3)
    with pytest.raises(ArgumentError, match="the data have none"):
        training.evaluate(lambda s, b: 1.0, 0, [])


def test_states_as_json():
    value = {"a": [1, 2.5, None, (True, "x")], 3: b"\x00\xff", "n": np.arange(6, dtype=np.int16).reshape(2, 3)}
    found = encoding.decoded(json.loads(json.dumps(encoding.encoded(value))))
    assert np.array_equal(found.pop("n"), value.pop("n")) and found == value
    with pytest.raises(CheckpointError, match="plain values"):
        encoding.encoded({"f": print})
    with pytest.raises(CheckpointError, match="KeyError"):
        encoding.decoded({"other": 1})


def test_examples_of_a_batch():
    assert inputs.examples_in({"x": np.ones((5, 2)), "n": 3}) == 5 and inputs.examples_in(3.0) == 1
    assert isinstance(callbacks.callback_of(print), training.Callback)


# --- the usual step ---


def test_accumulation_is_the_whole_batch():
    optimizer = optim.sgd(0.1)
    state = training.TrainState.of(linear(), optimizer)
    whole, _ = training.train_step(loss, optimizer, donate=False)(state, (X, Y))
    parts, metrics = training.train_step(loss, optimizer, accumulate=4, donate=False)(state, (X, Y))
    np.testing.assert_allclose(parts.model.kernel, whole.model.kernel, rtol=1e-5)
    assert float(metrics["loss"]) == pytest.approx(float(loss(linear(), (X, Y))), rel=1e-5)
    with pytest.raises(ShapeError, match="a multiple of 3"):
        training.train_step(loss, optimizer, accumulate=3)(state, (X, Y))
    many = optim.multi_steps(optimizer, 2)
    w, s = {"w": hnp.zeros(2)}, many.init({"w": hnp.zeros(2)})
    for g in ([2.0, 0.0], [4.0, 2.0]):
        u, s = many.update({"w": hnp.asarray(g)}, s, w)
        w = optim.apply_updates(w, u)
    np.testing.assert_allclose(w["w"], [-0.3, -0.1], rtol=1e-6)


@pytest.mark.parametrize("precision", ("bf16", "f16"))
def test_mixed_precision(precision):
    optimizer = optim.adam(0.05)
    state = training.TrainState.of(linear(), optimizer, precision=precision)
    seen = []

    def checked(model, batch):
        seen.append((model.kernel.dtype, batch[0].dtype))
        return loss(model, batch)

    step = training.train_step(checked, optimizer, precision=precision)
    found = training.fit(state, step, batches, epochs=40, progress=False)
    assert seen[0] == (hl.numpy.dtype("bfloat16" if precision == "bf16" else "float16"),) * 2
    assert found.state.model.kernel.dtype == np.float32
    assert float(loss(found.state.model, (X, Y))) < 0.01
    assert ("loss_scale" in found.metrics) == (precision == "f16")


def test_an_overflow_halves_the_scale_and_skips_the_step():
    optimizer = optim.sgd(0.1)
    state = training.TrainState.of(linear(), optimizer, precision="f16")
    step = training.train_step(loss, optimizer, precision="f16", donate=False)
    new, _ = step(state, (X * 1e3, Y))
    assert float(new.loss_scale.scale) == 2.0**14 and same(new.model, state.model) and int(new.step) == 1
    scale = optim.DynamicLossScale.of(8.0, period=2)
    for expected in (8.0, 16.0, 16.0, 32.0):
        scale = scale.update(hnp.asarray(True))
        assert float(scale.scale) == expected


def test_dropout_and_statistics_in_the_state():
    keys = hl.random.split(hl.random.key(1), 2)
    model = nn.Sequential(
        nn.Linear(3, 16, key=keys[0]), nn.BatchNorm(16), nn.Dropout(0.5), nn.Linear(16, 1, key=keys[1])
    )
    optimizer = optim.adam(0.01)
    for precision in (None, "bf16"):
        for accumulate in (1, 2):
            state = training.TrainState.of(model, optimizer, average=0.9, key=hl.random.key(2))
            step = training.train_step(loss, optimizer, precision=precision, accumulate=accumulate, donate=False)
            one, _ = step(state, (X, Y))
            two, _ = step(one, (X, Y))
            assert not np.array_equal(hl.random.key_data(one.key), hl.random.key_data(two.key))
            mean = np.asarray(two.model.layers[1].mean)
            assert mean.dtype == np.float32 and np.abs(mean).max() > 0
            assert not same(two.average.value(), two.model)


def test_the_average_starts_at_the_weights_and_follows_faster_at_first():
    w = {"w": np.float32([1.0])}
    average = optim.ExponentialMovingAverage.at(w, 0.9)
    np.testing.assert_allclose(average.value()["w"], [1.0])
    expected = 1.0
    for n, value in enumerate((2.0, 5.0, 7.0)):
        average = average.update({"w": np.float32([value])}, n)
        decay = min(0.9, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * value
    np.testing.assert_allclose(average.value()["w"], [expected], rtol=1e-6)


def test_counts_of_steps_are_no_donation_to_warn_of():
    with no_warnings(DonationWarning):
        state, step = fresh(average=0.9)
        step(state, batches()[0])
