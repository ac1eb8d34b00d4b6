"""The training loop: steps, evaluation, checkpoints, and the ways out of it."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import hloom.numpy as hnp
from hloom.arrays.array import Array
from hloom.arrays.keys import KeyArray
from hloom.checkpoints import Checkpoint, Manager
from hloom.errors import ArgumentError, CheckpointError, NonFiniteError, NonFiniteWarning
from hloom.ir.records import field, record
from hloom.training.callbacks import Callback, callback_of
from hloom.training.encoding import decoded, encoded
from hloom.training.guard import WATCHED, Policy, Step, as_number, named
from hloom.training.history import History, Row, plot_curves, require_matplotlib
from hloom.training.inputs import Input, examples_in
from hloom.training.processes import Members
from hloom.training.progress import Progress
from hloom.training.running import Loop
from hloom.training.signals import Signals
from hloom.tree import pytrees as tree

METADATA = "training"  # the key of a run's position in a checkpoint's metadata
MOST_REPORTS = 5  # of skipped steps
EXPLAINED = 1  # reports with a search for the operation


@record(eq=False)
class Result:
    """The result of `fit`. state: after the last step. step, epoch: completed so far, including those before a resume.

    metrics: the last ones. history: rows of metrics. stopped: why it ended, such as "steps" or "epochs". skipped: steps
    whose loss was not finite. seconds: of training, including those before a resume. waited: the part of them spent
    waiting for input.
    """

    state: Any
    step: int
    epoch: int
    metrics: dict[str, float]
    history: list[Row]
    stopped: str
    skipped: int = 0
    seconds: float = 0.0
    waited: float = 0.0


@record(eq=False)
class Options:
    """The arguments of `fit` that are the loop's."""

    epochs: int | None
    steps: int | None
    evaluate: Callable[[Any], Any] | None
    evaluate_every: int | None
    checkpoint_every: int | None
    on_nan: Policy
    log_every: int
    curves: str | os.PathLike | None
    callbacks: list[Callback] = field(default_factory=list)


class Run(Loop):
    """A run of `fit`."""

    def __init__(
        self,
        state: Any,
        step: Step,
        data: Any,
        options: Options,
        manager: Manager | None,
        history: History,
        members: Members,
    ):
        super().__init__(state, options.evaluate is not None, manager)
        self._step, self._input, self._options, self._log = step, Input(data), options, history
        self._before = 0.0  # seconds and waited seconds of the processes before this one
        self._waited_before = 0.0
        self._began = time.perf_counter()
        self._saved: int | None = None  # the last step in a checkpoint
        self._evaluated: int | None = None
        self._signals = Signals()
        self._leaving: int | None = None  # the signal that ends the run
        self._members = members
        self.progress: Progress | None = None

    @property
    def epoch(self) -> int:
        return self._input.epoch

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._began

    @property
    def history(self) -> list[Row]:
        return self._log.rows

    def say(self, text: str) -> None:
        if self.progress is not None:
            self.progress.message(text)

    # --- the run ---

    def run(self) -> Result:
        options = self._options
        self._began = time.perf_counter()
        if self.manager is not None:
            self.manager.prepare(self.state)
        if self.progress is not None:
            self.progress.start(self)
        with self._signals as signals:
            try:
                self._each("on_start")
                self._check_end()
                while not self._ends(signals):
                    self._one()
                self._finish()
            finally:
                if self.manager is not None:  # after an error too: the thread that writes belongs to this run
                    self.manager.wait()
                self._each("on_end")
                self._log.flush()
                if self.progress is not None:
                    self.progress.close(self)
        if options.curves is not None and self._members.first:
            plot_curves(self.history, options.curves)
        if signals.received is not None:
            leaving: Any = signals.exception()
            leaving.result = self.result("interrupted")
            raise leaving
        return self.result(self._stopped or "")

    def result(self, stopped: str) -> Result:
        waited = self._waited_before + self.waited
        return Result(
            self.state, self.step, self.epoch, dict(self.metrics), self.history, stopped, self.skipped, self.seconds,
            waited,
        )  # fmt: skip

    def _ends(self, signals: Signals) -> bool:
        """Whether the run ends here: in all its processes after the same step."""
        self._leaving, stopping = self._members.agree(self.step, signals.received, self._stopped is not None)
        if self._leaving is not None:
            signals.received = self._leaving
        if stopping is not None:
            self.stop(f"process {stopping} stopped")
        return self._leaving is not None or self._stopped is not None

    def _finish(self) -> None:
        if self._leaving is None and self._options.evaluate is not None and self._evaluated != self.step:
            self._evaluate()
        if self.manager is not None:
            if self.step != self._saved:
                self.save()
            self.manager.wait()
            if self._leaving is not None:
                self.say(f"saved {self.manager.path(self.step)}; run the program again to continue")

    def _one(self) -> None:
        """The next step, or the end of an epoch."""
        began = time.perf_counter()
        try:
            batch = self._input.next()
        except StopIteration:
            self._end_epoch()
            return
        self.waited += time.perf_counter() - began
        self.state, metrics = self._step(self.state, batch)
        self.step += 1
        self.examples += examples_in(batch)
        self.metrics.update((name, as_number(name, value)) for name, value in metrics.items())
        bad = [n for n in WATCHED if n in metrics and not math.isfinite(self.metrics[n])]
        if bad and self._options.on_nan != "ignore":
            self._not_finite(bad[0], batch)
        options = self._options
        if self.step % options.log_every == 0:
            self._record(metrics)
        self._each("on_step")
        if options.evaluate_every is not None and self.step % options.evaluate_every == 0:
            self._evaluate()
        if options.checkpoint_every is not None and self.step % options.checkpoint_every == 0:
            self.save()
        self._check_end()
        if self.progress is not None:
            self.progress.on_step(self, time.perf_counter())

    def _record(self, names: Iterable[str]) -> None:
        row: Row = {"step": self.step, "epoch": self.epoch, "seconds": round(self.seconds, 3)}
        self._log.add(row | {name: self.metrics[name] for name in names})

    def _check_end(self) -> None:
        options = self._options
        if options.steps is not None and self.step >= options.steps:
            self.stop("steps")
        elif options.epochs is not None and self.epoch >= options.epochs:
            self.stop("epochs")

    def _end_epoch(self) -> None:
        once = self._input.once
        self._input.next_epoch()
        if self._options.evaluate is not None and self._options.evaluate_every is None:
            self._evaluate()
        self._each("on_epoch")
        self._check_end()
        if once and self._stopped is None:
            self.stop("the data ended")
        if self.manager is not None and self._options.checkpoint_every is None:
            self.save()

    def _evaluate(self) -> None:
        assert self._options.evaluate is not None
        if self._evaluated == self.step:
            return
        found = self._options.evaluate(self.state)
        found = found if isinstance(found, dict) else {"metric": found}
        self._evaluated = self.step
        numbers = {f"eval_{name}": as_number(name, value) for name, value in named(found).items()}
        self.metrics.update(numbers)
        self._record(numbers)
        self._log.flush()
        self.say(f"step {self.step}  " + "  ".join(f"{name} {value:.4g}" for name, value in numbers.items()))
        self._each("on_evaluation")

    def _each(self, method: str) -> None:
        for callback in self._options.callbacks:
            getattr(callback, method)(self)

    def _not_finite(self, name: str, batch: Any) -> None:
        """A step whose loss is not finite: an error, or a warning with the operation."""
        self.skipped += 1
        stop = self._options.on_nan == "stop"
        kept = self._step.keeps and not any(_is_gone(leaf) for leaf in tree.leaves(self.state))
        if not stop and self.skipped > MOST_REPORTS:
            return
        report = self._step.explain(self.state, batch) if kept and (stop or self.skipped <= EXPLAINED) else ""
        place = f"step {self.step} of fit, batch {self._input.batch - 1} of epoch {self.epoch}"
        found = f"{name} is {self.metrics[name]}" + (f"; {report}" if report else "")
        if not stop:
            last = "; further ones are counted without a report" if self.skipped == MOST_REPORTS else ""
            warnings.warn(f"{place} was skipped: {found}{last}", NonFiniteWarning, stacklevel=5)
            return
        self.step -= 1  # the state is the one before
        saved = ""
        if self.manager is not None and kept:
            self._input.batch -= 1
            if self.step and self.step != self._saved:
                # Without the input's own state, which is one batch ahead: a resumed run reads the batch again.
                self.save(exact=False)
            self.manager.wait()
            saved = f"; the state before it is saved as step {self.step}"
        error: Any = NonFiniteError(
            f"{place} requires a finite loss",
            found + saved,
            "repair the operation, lower the learning rate, or pass on_nan='skip' to leave such batches out",
        )
        error.result = self.result("nan")
        raise error

    # --- checkpoints ---

    def save(self, *, exact: bool = True) -> None:
        """Saves a checkpoint of this step: the state, the place in the input, callbacks."""
        if self.manager is None or self.step == self._saved:
            return
        self._log.flush()
        place = self._input.state()
        if not exact:
            place.pop("iterator", None)
        training = {
            "input": place,
            "seconds": self.seconds,
            "waited": self._waited_before + self.waited,
            "skipped": self.skipped,
            "metrics": self.metrics,
            "callbacks": [[type(c).__name__, encoded(c.state())] for c in self._options.callbacks],
        }
        finite = {name: value for name, value in self.metrics.items() if math.isfinite(value)}
        self.manager.save(self.step, self.state, metrics=finite, metadata={METADATA: training})
        self._saved = self.step
        self._each("on_checkpoint")

    def begin(self) -> None:
        """Starts at step 0. Raises CheckpointError if another run has left checkpoints."""
        if self.manager is not None and (latest := self.manager.latest()) is not None:
            raise CheckpointError(
                f"start from step 0 with checkpoints in {self.manager.folder}",
                f"it has step {latest}",
                "choose another folder, delete this one, or omit resume=False to continue",
            )
        self._log.open(0)

    def resume(self) -> bool:
        """Resumes from the latest checkpoint; returns False if there is none. Raises CheckpointError."""
        latest = None if self.manager is None else self.manager.latest()
        if self.manager is None or latest is None:
            self._log.open(0)
            return False
        checkpoint = Checkpoint(self.manager.path(latest))
        self.state = checkpoint.restore(like=self.state)
        self.step = self._saved = latest
        training = checkpoint.metadata.get(METADATA)
        if training is not None:
            try:
                place = {"epoch": int(training["input"]["epoch"]), **training["input"]}
                self.metrics = dict(training["metrics"])
                self.skipped, self._before = training["skipped"], training["seconds"]
                self._waited_before = training["waited"]
                states = training["callbacks"]
            except (KeyError, TypeError) as error:
                raise CheckpointError(
                    f"resume from {checkpoint.path}", f"{type(error).__name__}: {error}", "restore an earlier one"
                ) from error
            skipped = self._input.restore(place)
            for callback in self._options.callbacks:  # each takes the first state that one of its class left
                mine = next((k for k, (name, _) in enumerate(states) if name == type(callback).__name__), None)
                if mine is not None:
                    callback.restore(decoded(states.pop(mine)[1]))
            self._evaluated = self.step if any(name.startswith("eval_") for name in self.metrics) else None
            if skipped:
                self.say(f"{skipped} batches of epoch {self.epoch} were read again and skipped")
        self._log.open(self.step)
        self.say(f"resumed from {checkpoint.path}")
        return True


def _is_gone(leaf: Any) -> bool:
    return isinstance(leaf, Array) and leaf.is_deleted()


def _copied(state: Any) -> Any:
    def copied(leaf: Any) -> Any:
        if isinstance(leaf, KeyArray):
            return KeyArray(copied(leaf._data), leaf._implementation)
        return hnp.copy(leaf) if isinstance(leaf, Array) and leaf.is_fully_addressable else leaf

    return tree.map(copied, state)


def fit(
    state: Any,
    step: Callable[[Any, Any], Any],
    data: Any,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    evaluate: Callable[[Any], Any] | None = None,
    evaluate_every: int | None = None,
    checkpoints: str | os.PathLike | Manager | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    callbacks: Iterable[Any] = (),
    on_nan: Policy = "stop",
    progress: bool = True,
    log: str | os.PathLike | None = None,
    log_every: int = 10,
    curves: str | os.PathLike | None = None,
) -> Result:
    """Trains: state, metrics = step(state, batch) for the batches of the data.

    state: any tree; its arrays are unchanged, since a step that donates its argument gets a copy. step: step(state,
    batch) -> (state, metrics), a scalar loss or a dict of scalars; usually made by `train_step` or `hl.jit`. data: an
    iterable of batches, which is read once for each epoch; or a function of the epoch's number (from 0 on) that returns
    one, for a different order in each. The first two sizes of batches get dedicated programs, and one program serves
    all others, if the step allows one (docs/guides/training.md, "Batches of several sizes").

    epochs, steps: where to end, counted from the very first step; one epoch by default. evaluate: a function of the
    state that returns a metric or a dict of them, which become `eval_...`; it is called after each epoch, or each
    `evaluate_every` steps, and at the end.

    checkpoints: a folder or a `Manager`. The state, the position in the data and the counters of the loop are saved
    after each epoch, or each `checkpoint_every` steps, and at the end; a run that finds checkpoints there resumes from
    the latest, unless `resume` is False. SIGTERM and Ctrl-C save and leave: KeyboardInterrupt or SystemExit is raised,
    with the run so far as its `result`.

    callbacks: `Callback` objects, or functions of the loop that are called after each step. on_nan: the response to a
    non-finite loss: "stop" raises NonFiniteError with the operation and the user's line, "skip" discards the step with
    a warning, "ignore" continues. progress: a bar on the terminal, lines elsewhere. log: a file for metrics, .jsonl or
    .csv; by default metrics.jsonl next to the checkpoints. log_every: steps between rows. curves: a PNG with the
    curves of the metrics, drawn at the end.

    Raises ArgumentError, CheckpointError (for checkpoints of another model), NonFiniteError, and the step's exceptions.

    >>> batches = [(hnp.array([[0.0], [1.0]]), hnp.array([1.0, 3.0]))] * 200
    >>> def step(w, batch):
    ...     x, y = batch
    ...     error = lambda w: hnp.mean((x[:, 0] * w[0] + w[1] - y) ** 2)
    ...     value, gradient = hl.value_and_grad(error)(w)
    ...     return w - 0.3 * gradient, {"loss": value}
    >>> result = hl.training.fit(hnp.zeros(2), hl.jit(step), batches, epochs=1, progress=False)
    >>> result.state.round(2)
    Array([2., 1.], dtype=float32)
    """
    _check_counts(
        epochs=epochs, steps=steps, evaluate_every=evaluate_every, log_every=log_every,
        checkpoint_every=checkpoint_every,
    )  # fmt: skip
    if curves is not None:
        require_matplotlib()
    guarded = Step(step, on_nan)
    if on_nan == "skip" and not guarded.keeps:
        raise ArgumentError(
            "on_nan='skip' keeps the state of before a step",
            "a step compiled with its own device, shardings or static arguments, which cannot be wrapped",
            "wrap the optimizer in optim.apply_if_finite, and pass on_nan='ignore'",
        )
    if epochs is not None and epochs > 1:
        _check_repeatable(data, epochs)
    epochs = 1 if epochs is None and steps is None else epochs
    manager = checkpoints if isinstance(checkpoints, Manager) or checkpoints is None else Manager(checkpoints)
    if log is None and manager is not None:
        log = manager.folder / "metrics.jsonl"
    options = Options(
        epochs, steps, evaluate, evaluate_every, checkpoint_every, on_nan, log_every, curves,
        [callback_of(c) for c in callbacks],
    )  # fmt: skip
    members = Members(state, step)
    if guarded.donates:
        state = _copied(state)  # the caller's arrays stay as they are
    loop = Run(state, guarded, data, options, manager, History(log, writes=members.first), members)
    if progress and members.first:
        loop.progress = Progress(steps)
    if resume:
        loop.resume()
    else:
        loop.begin()
    return loop.run()


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ArgumentError(f"fit takes {name} of at least 1", f"{name}={value}", "leave it out for the default")


def _check_repeatable(data: Any, epochs: int) -> None:
    if not callable(data) and iter(data) is data:
        raise ArgumentError(
            f"fit with epochs={epochs}",
            f"an iterator, which is read once: {type(data).__name__}",
            "pass a function of the epoch's number that returns one, or a list, or steps= in place of epochs=",
        )


__all__ = ["Result", "fit"]
