"""RNN, GRU and LSTM: a product for the inputs of all times, then a scan over the states."""

from __future__ import annotations

from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import lax, nn
from hloom.errors import UnsupportedError
from hloom.onnx.table import op

ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x, a, b: hnp.maximum(x, 0),
    "tanh": lambda x, a, b: hnp.tanh(x),
    "sigmoid": lambda x, a, b: nn.sigmoid(x),
    "affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: hnp.where(x < 0, (0.01 if a is None else a) * x, x),
    "thresholdedrelu": lambda x, a, b: hnp.where(x > (1.0 if a is None else a), x, 0),
    "scaledtanh": lambda x, a, b: a * hnp.tanh(b * x),
    "hardsigmoid": lambda x, a, b: hnp.clip((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
    "elu": lambda x, a, b: hnp.where(x < 0, (1.0 if a is None else a) * hnp.expm1(hnp.minimum(x, 0)), x),
    "softsign": lambda x, a, b: nn.soft_sign(x),
    "softplus": lambda x, a, b: nn.softplus(x),
}


def _activations(names, alphas, betas, default: list[str], directions: int, limit) -> list[list]:
    """The functions of each direction; inputs are clipped where the model asks for it."""
    names = list(names or default * directions)
    alphas, betas = list(alphas or ()), list(betas or ())
    made = []
    for name in names:
        function = ACTIVATIONS.get(name.lower())
        if function is None:
            raise UnsupportedError(
                "a recurrent layer of an ONNX model", f"the activation {name!r}", f"use one of {', '.join(ACTIVATIONS)}"
            )
        takes_a = name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        takes_b = name.lower() in ("affine", "scaledtanh", "hardsigmoid")
        a = alphas.pop(0) if takes_a and alphas else None
        b = betas.pop(0) if takes_b and betas else None

        def applied(x, function=function, a=a, b=b):
            return function(x if limit is None else hnp.clip(x, -limit, limit), a, b).astype(x.dtype)

        made.append(applied)
    return [made[k * len(default) : (k + 1) * len(default)] for k in range(directions)]


def _directions(cell, x, states, lengths, direction: str, layout: int):
    """Runs cell(k) -> (inputs of all times, step) in each direction; (outputs of all times, last states)."""
    if layout:
        x = hnp.swapaxes(x, 0, 1)
        states = [None if s is None else hnp.swapaxes(s, 0, 1) for s in states]
    count = 2 if direction == "bidirectional" else 1
    times = hnp.arange(x.shape[0], dtype=np.int64)
    outputs, lasts = [], []
    for k in range(count):
        backwards = direction == "reverse" or k == 1
        prepared, step, size = cell(k, x)
        start = [hnp.zeros((x.shape[1], size), x.dtype) if s is None else s[k] for s in states]

        def advance(state, inputs, step=step):
            time, gates = inputs
            fresh = step(state, gates)
            if lengths is None:
                return fresh, fresh[0]
            inside = hnp.reshape(time < lengths, (-1, 1))
            kept = [hnp.where(inside, new, old) for new, old in zip(fresh, state, strict=True)]
            return kept, hnp.where(inside, fresh[0], hnp.zeros((), fresh[0].dtype))

        last, made = lax.scan(advance, start, (times, prepared), reverse=backwards)
        outputs.append(made)
        lasts.append(last)
    y = hnp.stack(outputs, 1)
    finals = [hnp.stack(values) for values in zip(*lasts, strict=True)]
    if layout:
        y, finals = hnp.transpose(y, (2, 0, 1, 3)), [hnp.swapaxes(f, 0, 1) for f in finals]
    return (y, *finals)


def _weights(k: int, w, r, b, gates: int):
    size = r.shape[2]
    bias = hnp.zeros(2 * gates * size, w.dtype) if b is None else b[k]
    return w[k].T, r[k].T, bias[: gates * size], bias[gates * size :], size


@op("RNN")
def rnn(x, w, r, b=None, lengths=None, initial=None, *, activation_alpha=None, activation_beta=None, activations=None,
        clip=None, direction="forward", hidden_size=None, layout=0, output_sequence=0):  # fmt: skip
    count = 2 if direction == "bidirectional" else 1
    functions = _activations(activations, activation_alpha, activation_beta, ["Tanh"], count, clip)

    def cell(k, x):
        inputs, hidden, first, second, size = _weights(k, w, r, b, 1)
        (f,) = functions[k]
        return hnp.matmul(x, inputs) + first + second, lambda s, g: [f(g + hnp.matmul(s[0], hidden))], size

    return _directions(cell, x, [initial], lengths, direction, layout)


@op("GRU")
def gru(x, w, r, b=None, lengths=None, initial=None, *, activation_alpha=None, activation_beta=None, activations=None,
        clip=None, direction="forward", hidden_size=None, layout=0, linear_before_reset=0,
        output_sequence=0):  # fmt: skip
    count = 2 if direction == "bidirectional" else 1
    functions = _activations(activations, activation_alpha, activation_beta, ["Sigmoid", "Tanh"], count, clip)

    def cell(k, x):
        inputs, hidden, first, second, size = _weights(k, w, r, b, 3)
        f, g = functions[k]
        both, own = hidden[:, : 2 * size], hidden[:, 2 * size :]

        def step(state, gates):
            (h,) = state
            parts = f(gates[:, : 2 * size] + hnp.matmul(h, both) + second[: 2 * size])
            update, reset = parts[:, :size], parts[:, size:]
            if linear_before_reset:
                inner = reset * (hnp.matmul(h, own) + second[2 * size :])
            else:
                inner = hnp.matmul(reset * h, own) + second[2 * size :]
            fresh = g(gates[:, 2 * size :] + inner)
            return [(1 - update) * fresh + update * h]

        return hnp.matmul(x, inputs) + first, step, size

    return _directions(cell, x, [initial], lengths, direction, layout)


@op("LSTM")
def lstm(x, w, r, b=None, lengths=None, initial=None, memory=None, peepholes=None, *, activation_alpha=None,
         activation_beta=None, activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0,
         layout=0, output_sequence=0):  # fmt: skip
    return lstm_of(x, w, r, b, lengths, initial, memory, peepholes, activation_alpha=activation_alpha,
                   activation_beta=activation_beta, activations=activations, clip=clip, direction=direction,
                   input_forget=input_forget, layout=layout)  # fmt: skip


def lstm_of(x, w, r, b, lengths, initial, memory, peepholes, *, activation_alpha, activation_beta, activations, clip,
            direction, input_forget, layout, rounded=lambda value: value):  # fmt: skip
    """The outputs of an LSTM. rounded: applied to the multiplicands of the weights."""
    count = 2 if direction == "bidirectional" else 1
    default = ["Sigmoid", "Tanh", "Tanh"]
    functions = _activations(activations, activation_alpha, activation_beta, default, count, clip)

    def cell(k, x):
        inputs, hidden, first, second, size = _weights(k, w, r, b, 4)
        f, g, h = functions[k]
        peep = hnp.zeros(3 * size, x.dtype) if peepholes is None else peepholes[k]
        at_input, at_output, at_forget = peep[:size], peep[size : 2 * size], peep[2 * size :]

        def step(state, gates):
            output, c = state
            enter, leave, forget, fresh = hnp.split(gates + hnp.matmul(rounded(output), hidden), 4, axis=-1)
            enter = f(enter + at_input * c)
            forget = 1 - enter if input_forget else f(forget + at_forget * c)
            c = forget * c + enter * g(fresh)
            return [f(leave + at_output * c) * h(c), c]

        return hnp.matmul(rounded(x), inputs) + first + second, step, size

    return _directions(cell, x, [initial, memory], lengths, direction, layout)
