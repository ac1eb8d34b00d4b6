"""An estimator for a user-defined model function, as in TensorFlow: `model_fn(features, labels, mode, params)`.

    def model_fn(features, labels, mode, params):
        logits = features["x"] @ get_variable("w", [64, params["classes"]])
        if mode == PREDICT:
            return EstimatorSpec(mode, predictions={"class": hnp.argmax(logits, axis=1)})
        loss = hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(logits, labels))
        train = minimize(optim.adam(params["rate"]), loss, global_step=global_step())
        accuracy = hl.metrics.Accuracy.empty().update(logits, labels)
        return EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"accuracy": accuracy})

    estimator = Estimator(model_fn, model_dir="run", params={"classes": 10, "rate": 1e-3})
    estimator.train(lambda: train_set.batch(100), steps=1000).evaluate(lambda: test_set.batch(100))

Each call builds a program: the input's nodes, the model's, and a global step. The variables go from call to call.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hloom.checkpoints import Manager
from hloom.data import Dataset
from hloom.errors import ArgumentError, OutOfRangeError
from hloom.ir.records import field, record
from hloom.metrics import Mean
from hloom.sessions.graph import HostRecord, Node
from hloom.sessions.program import GLOBAL_VARIABLES, QUEUE_RUNNERS, Program
from hloom.sessions.queues import Coordinator, from_dataset, start_queue_runners
from hloom.sessions.session import Session
from hloom.sessions.training import global_step
from hloom.tree import pytrees as tree

TRAIN, EVAL, PREDICT = "train", "eval", "predict"
_STEP = "global_step"


class ModeKeys:
    """The purpose for which a model is built, under TensorFlow's names. INFER is PREDICT's name in TensorFlow 1.0."""

    TRAIN, EVAL, PREDICT, INFER = TRAIN, EVAL, PREDICT, PREDICT


@record(frozen=True, eq=False)
class EstimatorSpec:
    """The result of a model function.

    predictions: a tensor, or a tree of them, of one row for each example; PREDICT needs it. loss: a scalar; TRAIN and
    EVAL need it. train_op: the operation of one step; TRAIN needs it. eval_metric_ops: by name, a streaming metric of
    `hl.metrics` that was updated with this batch; a tensor, whose mean over all examples is taken; or TensorFlow's pair
    (value, update), of variables in a collection other than GLOBAL_VARIABLES.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] = field(default_factory=dict)


class Estimator:
    """Trains, evaluates and predicts with the program of a model function.

    model_fn: takes features, and those of labels, mode and params that its parameters name. Returns an EstimatorSpec.
    model_dir: a folder for checkpoints, from which further estimators and processes resume; without one the variables
    are kept in memory. params: passed to model_fn. config: of the sessions (`SessionConfig`).

    An `input_fn()` is called in the program and returns (features, labels), or features only for `predict`: trees of
    nodes, such as those of queues; trees of arrays, which are one batch; or a dataset of `hl.data`, or another
    iterator, of such pairs of arrays.
    """

    def __init__(self, model_fn: Callable, model_dir: Any = None, params: Any = None, *, config: Any = None):
        self.model_fn, self.model_dir, self.params, self.config = model_fn, model_dir, params, config
        self._state: dict[str, np.ndarray] | None = None

    def train(self, input_fn: Callable, steps: int | None = None, max_steps: int | None = None) -> Estimator:
        """Trains for `steps` steps more, until the global step is `max_steps`, or until the input ends. The last step
        is saved in model_dir. Returns the estimator. Raises ArgumentError."""
        program, spec = self._built(TRAIN, input_fn)
        _require(spec, "loss", "train_op")
        if steps is None and max_steps is None and not _has_end(program):
            raise ArgumentError("train without steps=", "the input is arrays, which do not end", "pass steps=")
        state = self._saved()
        with self._session(program, state) as session, Coordinator() as coordinator:
            start_queue_runners(session, coordinator)
            step = begin = int(session.run(_STEP))
            for count in itertools.count():
                if count == steps or (max_steps is not None and step >= max_steps):
                    break
                try:
                    session.run([spec.train_op, spec.loss])
                except OutOfRangeError:
                    break
                if max_steps is not None or (count == 0 and self.model_dir is not None):
                    step = int(session.run(_STEP))
                    if step <= begin:
                        raise ArgumentError(
                            "max_steps= or model_dir= of an estimator", "train_op does not count the global step",
                            "minimize(optimizer, loss, global_step=global_step())",
                        )  # fmt: skip
            kept = program.get_collection(GLOBAL_VARIABLES)
            names = {variable.name for variable in kept}
            new = {name: np.array(value) for name, value in session.state().items() if name in names}
            coordinator.request_stop()
        self._state = new
        if self.model_dir is not None and (state is None or int(new[_STEP]) > int(state[_STEP])):
            with Manager(self.model_dir) as checkpoints:
                checkpoints.save(int(new[_STEP]), new, wait=True)
        return self

    def evaluate(self, input_fn: Callable, steps: int | None = None) -> dict[str, Any]:
        """The mean loss, the metrics by name, and "global_step": over `steps` batches, or the whole input. Raises
        ArgumentError where nothing was trained."""
        program, spec = self._built(EVAL, input_fn)
        _require(spec, "loss")
        pairs = {name: m for name, m in spec.eval_metric_ops.items() if type(m) is tuple and len(m) == 2}
        streaming = {name: m for name, m in spec.eval_metric_ops.items() if hasattr(m, "merge")}
        plain = {n: m for n, m in spec.eval_metric_ops.items() if n not in pairs and n not in streaming}
        fetches = {
            "plain": {"loss": spec.loss, **plain}, "streaming": streaming,
            "updates": [update for _, update in pairs.values()], "rows": program["examples"],
        }  # fmt: skip
        found: dict[str, Any] = {}
        with self._session(program, self._trained()) as session:
            for batch in self._runs(session, fetches, steps):
                size = np.asarray(batch["rows"]).shape[:1]
                weight = float(size[0]) if size else 1.0
                new = {
                    name: Mean.empty().update(value, weight if np.ndim(value) == 0 else None)
                    for name, value in batch["plain"].items()
                } | batch["streaming"]
                found = {name: metric.merge(found[name]) if found else metric for name, metric in new.items()}
            if not found:
                raise ArgumentError("evaluate", "the input has no batch", "check input_fn and steps=")
            results = {name: np.asarray(metric.compute())[()] for name, metric in found.items()}
            values = session.run({name: value for name, (value, _) in pairs.items()}) if pairs else {}
            results |= {name: np.asarray(value)[()] for name, value in values.items()}
            return results | {_STEP: int(session.run(_STEP))}

    def predict(self, input_fn: Callable) -> Iterator[Any]:
        """The predictions of each example, in order. Raises ArgumentError if nothing was trained."""
        program, spec = self._built(PREDICT, input_fn)
        _require(spec, "predictions")
        with self._session(program, self._trained()) as session:
            for batch in self._runs(session, spec.predictions, None):
                values = tree.map(np.asarray, batch)
                for k in range(len(tree.leaves(values)[0])):
                    yield tree.map(lambda value: value[k], values)  # noqa: B023  (called here)

    def get_variable_names(self) -> list[str]:
        """The names of the variables. Raises ArgumentError if nothing was trained."""
        return list(self._trained())

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable. Raises ArgumentError."""
        state = self._trained()
        if name not in state:
            raise ArgumentError(
                f"the variable {name!r}", f"there are {', '.join(map(repr, state))}", "name one of these"
            )
        return state[name]

    # --- programs and sessions ---

    def _built(self, mode: str, input_fn: Callable) -> tuple[Program, EstimatorSpec]:
        with Program(f"{getattr(self.model_fn, '__name__', 'model')}_{mode}") as program:
            global_step()
            features, labels = _inputs(program, input_fn(), mode)
            given = {"features": features, "labels": labels, "mode": mode, "params": self.params}
            spec = self.model_fn(**_chosen(given, inspect.signature(self.model_fn).parameters))
            if type(spec) is tuple and len(spec) == 3:  # TensorFlow 1.0's short form
                predictions, loss, train = spec
                spec = EstimatorSpec(mode, predictions, loss, train)
            if not isinstance(spec, EstimatorSpec):
                raise ArgumentError(
                    "the result of a model function", type(spec).__name__, "return EstimatorSpec(mode, ...)"
                )
            program.initializer(name="init")
        return program, spec

    def _session(self, program: Program, state: dict[str, np.ndarray] | None) -> Session:
        session = Session(program, config=self.config)
        session.run("init")
        if state is not None:
            kept = program.get_collection(GLOBAL_VARIABLES)
            names = {variable.name for variable in kept}
            if missing := sorted(names - set(state)):
                raise ArgumentError(
                    f"variables of '{program.name}'", f"nothing was saved of {', '.join(map(repr, missing))}",
                    "make the same variables in all modes; those of metrics in collections=('local_variables',)",
                )  # fmt: skip
            session.restore({name: state[name] for name in names})
        return session

    def _runs(self, session: Session, fetches: Any, steps: int | None) -> Iterator[Any]:
        """The values of some fetches, batch by batch."""
        if steps is None and not _has_end(session.program):
            steps = 1
        with Coordinator() as coordinator:
            start_queue_runners(session, coordinator)
            for _ in itertools.count() if steps is None else range(steps):
                try:
                    found = session.run(fetches)
                except OutOfRangeError:
                    return
                yield found

    def _saved(self) -> dict[str, np.ndarray] | None:
        """The variables of the last step: of model_dir, else of this estimator; None before the first."""
        if self.model_dir is not None:
            with Manager(self.model_dir) as checkpoints:
                if checkpoints.latest() is not None:
                    return {name: np.asarray(value) for name, value in checkpoints.restore().items()}
        return self._state

    def _trained(self) -> dict[str, np.ndarray]:
        state = self._saved()
        if state is None:
            where = f"{self.model_dir} has no checkpoint" if self.model_dir is not None else "it has no variables yet"
            raise ArgumentError("an estimator that was trained", where, "call train(input_fn, steps=...) first")
        return state


def _chosen(given: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """The arguments that a model function has parameters for. Raises ArgumentError for others that it needs."""
    if any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
        return dict(given)
    for name, parameter in parameters.items():
        if name not in given and parameter.default is parameter.empty and parameter.kind != parameter.VAR_POSITIONAL:
            raise ArgumentError(
                "a model function of features, labels, mode and params", f"the parameter {name!r}",
                "pass your own options as params=",
            )  # fmt: skip
    return {name: value for name, value in given.items() if name in parameters}


def _require(spec: EstimatorSpec, *names: str) -> None:
    for name in names:
        if getattr(spec, name) is None:
            raise ArgumentError(
                f"the EstimatorSpec of mode {spec.mode!r}",
                f"it has no {name}",
                f"return EstimatorSpec(mode, {name}=...)",
            )


def _has_end(program: Program) -> bool:
    """Whether the input may end: it is fed by queues or datasets."""
    sources = program.sources.values()
    return bool(program.get_collection(QUEUE_RUNNERS)) or any(isinstance(s, HostRecord) for s in sources)


def _inputs(program: Program, found: Any, mode: str) -> tuple[Any, Any]:
    """(features, labels) as nodes, from the result of an input function."""
    if isinstance(found, Dataset) or hasattr(found, "__next__"):
        found = from_dataset(found, rows=None)
    features, labels = found if type(found) is tuple and len(found) == 2 else (found, None)
    if labels is None and mode != PREDICT:
        raise ArgumentError(f"an input function of mode {mode!r}", "no labels", "return a pair (features, labels)")
    made = tree.map(lambda leaf: leaf if isinstance(leaf, Node) else program.trace.node(leaf), (features, labels))
    program.target("examples", tree.leaves(made)[0])  # its rows are the examples of the batch
    return made


__all__ = ["EVAL", "Estimator", "EstimatorSpec", "ModeKeys", "PREDICT", "TRAIN"]
