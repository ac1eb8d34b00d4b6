"""Recurrent layers: cells (state, x) -> (state, output), and layers that scan a cell over (batch, time, features)."""

from __future__ import annotations

from typing import Any, ClassVar

import hloom.numpy as hnp
from hloom import lax, random
from hloom.nn import initializers
from hloom.nn.functional import sigmoid
from hloom.nn.layers import checked_features
from hloom.nn.module import Module


class _Cell(Module):
    """Gates of an input and a hidden state: x @ input_kernel + h @ hidden_kernel + bias."""

    input_kernel: Any
    hidden_kernel: Any
    bias: Any

    _gates = 1

    def __init__(self, inputs: int, features: int, *, key, dtype="f32"):
        first, second = random.split(key)
        gates = self._gates
        self.input_kernel = initializers.lecun_normal()(first, (inputs, gates * features), dtype)
        keys = random.split(second, gates)
        parts = [initializers.orthogonal()(k, (features, features), dtype) for k in keys]
        self.hidden_kernel = hnp.concatenate(parts, axis=1)
        self.bias = hnp.zeros(gates * features, dtype)

    @property
    def features(self) -> int:
        return self.hidden_kernel.shape[0]

    def prepare(self, x):
        """The part of the gates that needs no state: for all times in one product."""
        x = checked_features(x, self.input_kernel.shape[0], type(self).__name__, self.input_kernel)
        return hnp.matmul(x, self.input_kernel) + self.bias

    def initial_state(self, *batch: int):
        return hnp.zeros((*batch, self.features), self.bias.dtype)

    def __call__(self, state, x):
        return self.step(state, self.prepare(x))


class RNNCell(_Cell, init=False):
    """h' = tanh(x W + h U + b) (Elman, 1990)."""

    def step(self, state, gates):
        hidden = hnp.tanh(gates + hnp.matmul(state, self.hidden_kernel))
        return hidden, hidden


class LSTMCell(_Cell):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; with a forget gate, Gers et al., 2000).

    The state is (c, h), each (..., features). Gates stand in the order input, forget, cell, output; the forget gate's
    bias starts at 1.
    """

    _gates = 4

    def __init__(self, inputs: int, features: int, *, key, dtype="f32"):
        super().__init__(inputs, features, key=key, dtype=dtype)
        self.bias = hnp.concatenate(
            [hnp.zeros(features, dtype), hnp.ones(features, dtype), hnp.zeros(2 * features, dtype)]
        )

    def initial_state(self, *batch: int):
        zeros = super().initial_state(*batch)
        return zeros, zeros

    def step(self, state, gates):
        memory, hidden = state
        enter, forget, cell, output = hnp.split(gates + hnp.matmul(hidden, self.hidden_kernel), 4, axis=-1)
        memory = sigmoid(forget) * memory + sigmoid(enter) * hnp.tanh(cell)
        hidden = sigmoid(output) * hnp.tanh(memory)
        return (memory, hidden), hidden


class GRUCell(_Cell, init=False):
    """Gated recurrent unit (Cho et al., 2014). Gates stand in the order reset, update, candidate."""

    _gates = 3

    def step(self, state, gates):
        features = self.features
        both = hnp.matmul(state, self.hidden_kernel[:, : 2 * features])
        reset = sigmoid(gates[..., :features] + both[..., :features])
        update = sigmoid(gates[..., features : 2 * features] + both[..., features:])
        candidate = gates[..., 2 * features :] + hnp.matmul(reset * state, self.hidden_kernel[:, 2 * features :])
        hidden = update * state + (1 - update) * hnp.tanh(candidate)
        return hidden, hidden


class Recurrent(Module):
    """A cell scanned over time: (batch, time, features) to (outputs, last state).

    One product computes all time steps of the input; the loop computes the product with the state only.
    """

    cell: Any

    def __init__(self, cell):
        self.cell = cell

    def __call__(self, x, state=None, *, reverse: bool = False):
        """x: (batch, time, inputs). state: by default zeros. Returns ((batch, time, features), state)."""
        gates = self.cell.prepare(x)
        state = self.cell.initial_state(*gates.shape[:-2]) if state is None else state
        state, outputs = lax.scan(self.cell.step, state, hnp.moveaxis(gates, -2, 0), reverse=reverse)
        return hnp.moveaxis(outputs, 0, -2), state


class _CellLayer(Recurrent):
    """`Recurrent` over a cell of its own."""

    _cell: ClassVar[type[_Cell]]

    def __init__(self, inputs: int, features: int, *, key, dtype="f32"):
        self.cell = self._cell(inputs, features, key=key, dtype=dtype)


class LSTM(_CellLayer, init=False):
    """`Recurrent` over an LSTMCell."""

    _cell = LSTMCell


class GRU(_CellLayer, init=False):
    """`Recurrent` over a GRUCell."""

    _cell = GRUCell


class RNN(_CellLayer, init=False):
    """`Recurrent` over an RNNCell."""

    _cell = RNNCell
