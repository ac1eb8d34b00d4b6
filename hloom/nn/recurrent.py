"""Recurrent layers: cells (state, x) -> (state, output), and layers that scan a cell over (batch, time, features)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import hloom.numpy as hnp
from hloom import lax, random, tree
from hloom.errors import ArgumentError, ShapeError
from hloom.lax.operands import as_operand
from hloom.nn import initializers
from hloom.nn.functional import sigmoid
from hloom.nn.layers import checked_features
from hloom.nn.module import Module, static


class _Cell(Module):
    """The gates from an input and a hidden state: x @ input_kernel + h @ hidden_kernel + bias."""

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
        """The part of the gates that is independent of the state: one product for all time steps."""
        x = checked_features(x, self.input_kernel.shape[0], type(self).__name__, self.input_kernel)
        return hnp.matmul(x, self.input_kernel) + self.bias

    def initial_state(self, *batch: int):
        return hnp.zeros((*batch, self.features), self.bias.dtype)

    @abstractmethod
    def step(self, state, gates):
        """(the next state, the output) from the `gates` that `prepare` returns."""

    def __call__(self, state, x):
        return self.step(state, self.prepare(x))


class RNNCell(_Cell, init=False):
    """h' = tanh(x W + h U + b) (Elman, 1990).

    >>> cell = hl.nn.RNNCell(4, 8, key=hl.random.key(0))
    >>> state, output = cell(cell.initial_state(2), hnp.ones((2, 4)))
    >>> output.shape
    (2, 8)
    """

    def step(self, state, gates):
        hidden = hnp.tanh(gates + hnp.matmul(state, self.hidden_kernel))
        return hidden, hidden


class LSTMCell(_Cell):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; with a forget gate, Gers et al., 2000).

    The state is (c, h), each (..., features). Gates are in the order input, forget, cell, output; the forget gate's
    bias starts at 1.

    >>> cell = hl.nn.LSTMCell(4, 8, key=hl.random.key(0))
    >>> (c, h), output = cell(cell.initial_state(2), hnp.ones((2, 4)))
    >>> output.shape
    (2, 8)
    """

    _gates = 4

    def __init__(self, inputs: int, features: int, *, key, dtype="f32"):
        super().__init__(inputs, features, key=key, dtype=dtype)
        self.bias = hnp.concatenate(
            [hnp.zeros(features, dtype), hnp.ones(features, dtype), hnp.zeros(2 * features, dtype)]
        )

    def initial_state(self, *batch: int):
        """(c, h), both zeros of shape (*batch, features)."""
        zeros = super().initial_state(*batch)
        return zeros, zeros

    def step(self, state, gates):
        memory, hidden = state
        enter, forget, cell, output = hnp.split(gates + hnp.matmul(hidden, self.hidden_kernel), 4, axis=-1)
        memory = sigmoid(forget) * memory + sigmoid(enter) * hnp.tanh(cell)
        hidden = sigmoid(output) * hnp.tanh(memory)
        return (memory, hidden), hidden


class GRUCell(_Cell, init=False):
    """Gated recurrent unit (Cho et al., 2014). Gates are in the order reset, update, candidate.

    >>> cell = hl.nn.GRUCell(4, 8, key=hl.random.key(0))
    >>> state, output = cell(cell.initial_state(2), hnp.ones((2, 4)))
    >>> output.shape
    (2, 8)
    """

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

    A single product handles all time steps of the input; only the product with the state is in the loop.

    >>> layer = hl.nn.Recurrent(hl.nn.RNNCell(4, 8, key=hl.random.key(0)))
    >>> layer(hnp.ones((2, 10, 4)))[0].shape
    (2, 10, 8)
    """

    cell: Any

    def __init__(self, cell):
        self.cell = cell

    def __call__(self, x, state=None, *, reverse: bool = False, lengths=None):
        """x: (batch, time, inputs). state: by default zeros. Returns ((batch, time, features), state).

        lengths: (batch,), the time steps of each sequence. Outputs after them are 0, and the state is the one after the
        last step; `reverse` begins with the last step of each sequence. Raises ShapeError.
        """
        gates = self.cell.prepare(x)
        state = self.cell.initial_state(*gates.shape[:-2]) if state is None else state
        if lengths is None:
            state, outputs = lax.scan(self.cell.step, state, hnp.moveaxis(gates, -2, 0), reverse=reverse)
            return hnp.moveaxis(outputs, 0, -2), state
        lengths = _checked_lengths(lengths, gates)

        def step(state, given):
            time, gates = given
            goes_on = time < lengths
            new, output = self.cell.step(state, gates)
            state = tree.map(lambda a, b: hnp.where(_rows(goes_on, a), a, b), new, state)
            return state, hnp.where(_rows(goes_on, output), output, 0)

        times = hnp.arange(gates.shape[1])
        state, outputs = lax.scan(step, state, (times, hnp.moveaxis(gates, 1, 0)), reverse=reverse)
        return hnp.moveaxis(outputs, 0, 1), state


def _checked_lengths(lengths, x):
    lengths = as_operand(lengths, "Recurrent")
    if x.ndim != 3 or lengths.shape != x.shape[:1]:
        raise ShapeError(
            "Recurrent takes sequences (batch, time, features) with one length for each",
            f"{x._shape!r}, lengths {lengths._shape!r}",
            "pass lengths of shape (batch,)",
        )
    return lengths


def _rows(flags, x):
    """(batch,) expanded to the rank of x."""
    return hnp.reshape(flags, flags.shape + (1,) * (x.ndim - 1))


class StackedCells(Module):
    """Cells stacked into one: each reads the output of the one below. The state is the tuple of their states.

    >>> first, second = hl.random.split(hl.random.key(0))
    >>> cell = hl.nn.StackedCells(hl.nn.GRUCell(4, 8, key=first), hl.nn.GRUCell(8, 8, key=second))
    >>> hl.nn.Recurrent(cell)(hnp.ones((2, 10, 4)))[0].shape
    (2, 10, 8)
    """

    cells: tuple

    def __init__(self, *cells):
        if not cells:
            raise ArgumentError("StackedCells takes cells", "none", "pass StackedCells(first, second)")
        self.cells = cells

    def prepare(self, x):
        """The part of the lowest cell that is computed for all inputs together."""
        return self.cells[0].prepare(x)

    def initial_state(self, *batch: int):
        """A tuple of the cells' states."""
        return tuple(cell.initial_state(*batch) for cell in self.cells)

    def step(self, state, gates):
        """(the new states, the output of the uppermost cell)."""
        first, x = self.cells[0].step(state[0], gates)
        new = [first]
        for cell, own in zip(self.cells[1:], state[1:], strict=True):
            own, x = cell(own, x)
            new.append(own)
        return tuple(new), x

    def __call__(self, state, x):
        return self.step(state, self.prepare(x))


class Bidirectional(Module):
    """A layer forward in time and one backward: (batch, time, inputs) to ((batch, time, features of both), both
    states).

    forward, backward: `Recurrent` layers, such as LSTM. merge: "concat" or "sum" of their outputs.

    >>> forward, backward = (hl.nn.GRU(4, 8, key=key) for key in hl.random.split(hl.random.key(0)))
    >>> outputs, states = hl.nn.Bidirectional(forward, backward)(hnp.ones((2, 10, 4)))
    >>> outputs.shape
    (2, 10, 16)
    """

    forward: Any
    backward: Any
    merge: str = static()

    def __init__(self, forward, backward, *, merge: str = "concat"):
        if merge not in ("concat", "sum"):
            raise ArgumentError("Bidirectional merges by 'concat' or 'sum'", repr(merge), "name one of them")
        self.forward, self.backward, self.merge = forward, backward, merge

    def __call__(self, x, states=(None, None), *, lengths=None):
        """lengths: as for `Recurrent`; padding stays after the sequences."""
        ahead, first = self.forward(x, states[0], lengths=lengths)
        back, second = self.backward(x, states[1], reverse=True, lengths=lengths)
        outputs = hnp.concatenate([ahead, back], axis=-1) if self.merge == "concat" else ahead + back
        return outputs, (first, second)


class _CellLayer(Recurrent):
    """`Recurrent` over a new cell."""

    _cell: ClassVar[type[_Cell]]

    def __init__(self, inputs: int, features: int, *, key, dtype="f32"):
        self.cell = self._cell(inputs, features, key=key, dtype=dtype)


class LSTM(_CellLayer, init=False):
    """`Recurrent` over an LSTMCell.

    >>> outputs, state = hl.nn.LSTM(4, 8, key=hl.random.key(0))(hnp.ones((2, 10, 4)))
    >>> outputs.shape
    (2, 10, 8)
    """

    _cell = LSTMCell


class GRU(_CellLayer, init=False):
    """`Recurrent` over a GRUCell.

    >>> outputs, state = hl.nn.GRU(4, 8, key=hl.random.key(0))(hnp.ones((2, 10, 4)))
    >>> outputs.shape, state.shape
    ((2, 10, 8), (2, 8))
    """

    _cell = GRUCell


class RNN(_CellLayer, init=False):
    """`Recurrent` over an RNNCell.

    >>> outputs, state = hl.nn.RNN(4, 8, key=hl.random.key(0))(hnp.ones((2, 10, 4)))
    >>> outputs.shape, state.shape
    ((2, 10, 8), (2, 8))
    """

    _cell = RNNCell
