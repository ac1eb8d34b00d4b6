"""Wide and deep models: a linear model of categories and their combinations in parallel with a network (Cheng et al.,
2016)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hloom import nn, random
from hloom.errors import ArgumentError
from hloom.training import feature_columns as columns
from hloom.training.estimators.base import GradientClassifier, GradientRegressor
from hloom.training.estimators.networks import dense_layers


class _Model(nn.Module):
    wide: columns.LinearFeatures
    dense: columns.DenseFeatures
    deep: nn.Sequential

    def __call__(self, batch):
        return self.wide(batch) + self.deep(self.dense(batch))


class _WideAndDeep:
    def __init__(
        self,
        hidden_layer_sizes=(64, 32),
        *,
        wide_columns=None,
        deep_columns=None,
        buckets=8,
        crossed=5,
        activation="relu",
        optimizer="adam",
        learning_rate=0.01,
        l1=0.0,
        l2=1e-4,
        batch_size=64,
        max_iter=200,
        tol=1e-4,
        n_iter_no_change=10,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.wide_columns = wide_columns
        self.deep_columns = deep_columns
        self.buckets = buckets
        self.crossed = crossed
        self.activation = activation
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state

    @property
    def _has_columns(self) -> bool:
        if (self.wide_columns is None) != (self.deep_columns is None):
            raise ArgumentError(
                "a wide and deep model has columns of both parts",
                f"wide_columns={self.wide_columns!r:.40}, deep_columns={self.deep_columns!r:.40}",
                "pass both, or none for a table of numbers",
            )
        return self.wide_columns is not None

    def _validated(self, x: Any, **options) -> Any:
        if not self._has_columns:
            return super()._validated(x, **options)  # type: ignore[misc]  # of the class beside
        if not hasattr(x, "keys"):
            raise ArgumentError(
                "an estimator with feature columns takes features by name",
                type(x).__name__,
                "pass a dict of arrays or a data frame",
            )
        return (x, np.asarray(options["y"])) if options.get("y") is not None else x

    def _learn_inputs(self, x) -> None:
        if self._has_columns:
            self._wide, self._deep = list(self.wide_columns), list(self.deep_columns)
            return
        super()._learn_inputs(x)  # type: ignore[misc]  # of the class beside
        standardized = super()._inputs(x)  # type: ignore[misc]
        numbers = [columns.numeric_column(str(k)) for k in range(x.shape[1])]
        categories = []
        for column, values in zip(numbers, standardized.T, strict=True):
            edges = np.unique(np.quantile(values, np.arange(1, self.buckets) / self.buckets)).tolist()
            if edges and edges[0] < values.max():
                categories.append(columns.bucketized_column(column, edges))
        pairs = itertools.combinations(categories[: self.crossed], 2)
        crosses = [columns.crossed_column(pair, 4 * self.buckets**2) for pair in pairs]
        self._wide = [*numbers, *categories, *crosses]
        self._deep = [*numbers, *(columns.embedding_column(c, 4) for c in categories)]

    def _inputs(self, x: Any) -> dict[str, np.ndarray]:
        if not self._has_columns:
            standardized = super()._inputs(x)  # type: ignore[misc]  # of the class beside
            x = {str(k): values for k, values in enumerate(standardized.T)}
        return columns.encode([*self._wide, *self._deep], x)

    def _model(self, outputs: int, key):
        first, second = random.split(key)
        dense = columns.DenseFeatures(self._deep, key=first)
        width = sum(c.width for c in self._deep)
        deep = dense_layers(width, self.hidden_layer_sizes, outputs, self.activation, second)
        return _Model(columns.LinearFeatures(self._wide, outputs), dense, deep)


class WideAndDeepRegressor(_WideAndDeep, GradientRegressor):
    """A linear model and a network, trained together, for regression.

    wide_columns, deep_columns: feature columns of the two parts (`hl.training.feature_columns`); X is then a dict of
    arrays or a data frame. Without them X is a numeric table: the wide part reads the values, their buckets (as many as
    `buckets`, by quantiles) and combinations of the buckets of the first `crossed` features; the deep part the values
    and embedded buckets. The other options are those of DNNRegressor.
    """


class WideAndDeepClassifier(_WideAndDeep, GradientClassifier):
    """A linear model and a network, trained together, for classification; options as of WideAndDeepRegressor."""


__all__ = ["WideAndDeepClassifier", "WideAndDeepRegressor"]
