"""Linear models and networks of dense layers."""

from __future__ import annotations

from hloom import nn, random
from hloom.errors import ArgumentError
from hloom.nn import initializers
from hloom.training.estimators.base import GradientClassifier, GradientRegressor

_ACTIVATIONS = {"relu": nn.relu, "tanh": nn.tanh, "gelu": nn.gelu, "sigmoid": nn.sigmoid, "elu": nn.elu}


class _Linear:
    n_features_in_: int  # `fit` sets it

    def __init__(
        self,
        *,
        optimizer="adam",
        learning_rate=0.05,
        l1=0.0,
        l2=0.0,
        batch_size=64,
        max_iter=200,
        tol=1e-4,
        n_iter_no_change=5,
        random_state=None,
    ):
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state

    def _model(self, outputs, key):
        return nn.Linear(self.n_features_in_, outputs, key=key, kernel_init=initializers.zeros)


class LinearRegressor(_Linear, GradientRegressor):
    """Linear regression by stochastic gradients.

    optimizer: "adam", "adagrad", "ftrl" (whose l1 makes weights exactly 0) or "sgd". l1, l2: regularization of the
    weights of standardized features. max_iter: epochs at most. tol: an epoch's loss that is not smaller by it
    n_iter_no_change times in a row ends the training. random_state: as scikit-learn's.
    """


class LinearClassifier(_Linear, GradientClassifier):
    """Logistic regression by stochastic gradients; the options are those of LinearRegressor."""


class _Network:
    n_features_in_: int  # `fit` sets it

    def __init__(
        self,
        hidden_layer_sizes=(64, 32),
        *,
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

    def _model(self, outputs, key):
        return dense_layers(self.n_features_in_, self.hidden_layer_sizes, outputs, self.activation, key)


def dense_layers(inputs: int, sizes, outputs: int, activation: str, key) -> nn.Sequential:
    """Dense layers of these sizes, each with the activation, and the last one. Raises ArgumentError."""
    if activation not in _ACTIVATIONS:
        raise ArgumentError("an activation", repr(activation), f"one of {', '.join(_ACTIVATIONS)}")
    layers: list = []
    for k, size in enumerate(sizes):
        layers += [
            nn.Linear(inputs, size, key=random.fold_in(key, k), kernel_init=initializers.he_normal()),
            _ACTIVATIONS[activation],
        ]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs, key=random.fold_in(key, len(layers))))


class DNNRegressor(_Network, GradientRegressor):
    """A network of dense layers for regression.

    hidden_layer_sizes: of the layers before the last. activation: "relu", "tanh", "gelu", "sigmoid" or "elu". The other
    options are those of LinearRegressor.
    """


class DNNClassifier(_Network, GradientClassifier):
    """A network of dense layers for classification; the options are those of DNNRegressor."""


__all__ = ["DNNClassifier", "DNNRegressor", "LinearClassifier", "LinearRegressor", "dense_layers"]
