"""The common base of estimators that train by gradients: batches of one size, the loop, predictions."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import hloom.numpy as hnp
from hloom import optim, random, tree
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError
from hloom.nn import losses, regularizers
from hloom.training.loop import fit
from hloom.training.running import Loop
from hloom.training.state import TrainState, train_step

OPTIMIZERS = ("adam", "adagrad", "ftrl", "sgd")
_SMALLEST, _LARGEST = 64, 4096  # rows that are predicted in one call


@functools.lru_cache(maxsize=64)
def _optimizer(name: str, rate: float, l1: float, l2: float) -> optim.GradientTransformation:
    if name == "ftrl":
        return optim.ftrl(rate, l1=l1, l2=l2)
    if name == "sgd":
        return optim.sgd(rate, momentum=0.9)
    return optim.adagrad(rate) if name == "adagrad" else optim.adam(rate)


@functools.lru_cache(maxsize=64)
def _step(kind: str, name: str, rate: float, l1: float, l2: float):
    """The step of all estimators with these options: programs are compiled once for each shape of model and batch."""

    def loss(model, batch):
        inputs, targets, weights = batch
        outputs = model(inputs)
        if kind == "regression":
            values = losses.squared_error(outputs[:, 0], targets)
        else:
            values = losses.softmax_cross_entropy_with_integer_labels(outputs, targets)
        total = losses.compute_weighted_loss(values, weights)
        if (l1 or l2) and name != "ftrl":
            penalty = regularizers.l1_l2(l1, l2)
            total = total + sum(penalty(w) for w in tree.leaves(model) if w.ndim > 1)
        return total

    return train_step(loss, _optimizer(name, rate, l1, l2))


@jit
def _outputs(model, inputs):
    return model(inputs)


class GradientEstimator(BaseEstimator):
    """Training and prediction. Subclasses make inputs of data (`_inputs`) and a model (`_model`)."""

    def _checked_options(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ArgumentError("an optimizer", repr(self.optimizer), f"one of {', '.join(OPTIMIZERS)}")
        for name in ("learning_rate", "max_iter", "batch_size", "n_iter_no_change"):
            if getattr(self, name) <= 0:
                raise ArgumentError(
                    f"{type(self).__name__} takes {name} above 0", f"{getattr(self, name)!r}", "pass a larger one"
                )

    def _train(self, inputs: dict[str, np.ndarray] | np.ndarray, targets: np.ndarray, kind: str, outputs: int) -> None:
        """Mini-batch gradient descent until the loss of an epoch does not improve any more."""
        count, seed = len(targets), check_random_state(self.random_state).randint(2**31 - 1)
        size = min(self.batch_size, count)
        optimizer = _optimizer(self.optimizer, self.learning_rate, self.l1, self.l2)
        model = self._model(outputs, random.key(int(seed)))
        state = TrainState.of(model, optimizer)
        epoch_losses: list[float] = []
        best, waited = math.inf, 0

        def batches(epoch: int):
            order = np.random.default_rng((seed, epoch)).permutation(count)
            for start in range(0, count, size):
                rows = order[start : start + size]
                weights = np.zeros(size, np.float32)
                weights[: len(rows)] = 1
                rows = np.resize(rows, size)  # the last batch has the size of the others, and weights of 0
                yield tree.map(lambda x, rows=rows: x[rows], inputs), targets[rows], weights

        def watch(loop: Loop) -> None:
            nonlocal best, waited
            epoch_losses.append(loop.metrics["loss"])
            if len(epoch_losses) % -(-count // size):
                return
            mean = float(np.mean(epoch_losses))
            epoch_losses.clear()
            self.loss_curve_.append(mean)
            waited = 0 if mean < best - self.tol else waited + 1
            best = min(best, mean)
            if waited >= self.n_iter_no_change:
                loop.stop("the loss did not improve")

        self.loss_curve_: list[float] = []
        step = _step(kind, self.optimizer, self.learning_rate, self.l1, self.l2)
        found = fit(state, step, batches, epochs=self.max_iter, callbacks=[watch], progress=False)
        self.model_ = found.state.model
        self.n_iter_ = len(self.loss_curve_)
        if found.stopped == "epochs" and self.max_iter > 1:
            warnings.warn(
                f"{type(self).__name__} has not converged in max_iter={self.max_iter} epochs; the loss still falls",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _predicted(self, x: Any) -> np.ndarray:
        """The model's outputs, f64[n, outputs], by calls of a few sizes, so that few programs are compiled."""
        inputs = self._inputs(x)
        model = tree.map(lambda w: np.asarray(w, np.float64), self.model_)
        count = len(tree.leaves(inputs)[0])
        found = []
        for start in range(0, count, _LARGEST):
            part = tree.map(lambda v: v[start : start + _LARGEST], inputs)  # noqa: B023  (called here)
            rows = len(tree.leaves(part)[0])
            size = max(_SMALLEST, 1 << (rows - 1).bit_length())
            part = tree.map(lambda v: np.resize(v, (size, *v.shape[1:])), part)  # noqa: B023  (called here)
            wide = tree.map(lambda v: v.astype(np.float64) if v.dtype.kind == "f" else v, part)
            found.append(np.asarray(_outputs(model, wide))[:rows])
        return np.concatenate(found)

    # --- numeric tables: the inputs of all but those with feature columns ---

    def _validated(self, x: Any, **options) -> Any:
        return validate_data(self, x, dtype=[np.float64, np.float32], **options)

    def _learn_inputs(self, x: np.ndarray) -> None:
        self._mean = x.mean(axis=0, dtype=np.float64)
        deviation = x.std(axis=0, dtype=np.float64)
        self._deviation = np.where(deviation > 1e-12 * np.maximum(1, np.abs(self._mean)), deviation, 1)

    def _inputs(self, x: Any) -> Any:
        """Standardized values, f32[n, features]."""
        return ((x - self._mean) / self._deviation).astype(np.float32)

    def _model(self, outputs: int, key: Any) -> Any:
        raise TypeError(f"{type(self).__name__} has no model")


class GradientClassifier(ClassifierMixin, GradientEstimator):
    """fit, predict, predict_proba, decision_function."""

    def fit(self, X, y):
        """X: (n, features). y: (n,) labels of any kind. Returns self. Raises ValueError for anything but such a
        table."""
        self._checked_options()
        X, y = self._validated(X, y=y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} requires 2 classes at least; the data have 1 class only")
        self._learn_inputs(X)
        self._train(self._inputs(X), labels.astype(np.int32), "classification", len(self.classes_))
        return self

    def predict_proba(self, X):
        """(n, classes): probabilities in the order of `classes_`."""
        logits = self._logits(X)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def predict(self, X):
        """(n,): the most probable labels."""
        best = self._logits(X).argmax(axis=1)
        return self.classes_[best]

    def decision_function(self, X):
        """Logits (n, classes); for two classes (n,), positive for the second."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def _logits(self, X):
        check_is_fitted(self)
        return self._predicted(self._validated(X, reset=False))


class GradientRegressor(RegressorMixin, GradientEstimator):
    """fit, predict."""

    def fit(self, X, y):
        """X: (n, features). y: (n,) numeric targets. Returns self. Raises ValueError for anything but such a table."""
        self._checked_options()
        X, y = self._validated(X, y=y, y_numeric=True)
        y = y.astype(np.float64)
        self._target_mean = y.mean()
        self._target_deviation = y.std() or 1.0
        self._learn_inputs(X)
        targets = ((y - self._target_mean) / self._target_deviation).astype(np.float32)
        self._train(self._inputs(X), targets, "regression", 1)
        return self

    def predict(self, X):
        """(n,): numbers."""
        check_is_fitted(self)
        return self._predicted(self._validated(X, reset=False))[:, 0] * self._target_deviation + self._target_mean


def zeros(*shape: int):
    """Weights that start at 0."""
    return hnp.zeros(shape, "f32")


__all__ = ["GradientClassifier", "GradientEstimator", "GradientRegressor", "zeros"]
