"""A deep LSTM with a layer on each device."""

from __future__ import annotations

import hloom as hl
import hloom.numpy as hnp
from hloom import lax


def lstm_layer(w, b, state, x):
    h, c = state
    i, f, g, o = hnp.split(hnp.concatenate([x, h], axis=1) @ w + b, 4, axis=1)
    c = hl.nn.sigmoid(f) * c + hl.nn.sigmoid(i) * hnp.tanh(g)
    return hl.nn.sigmoid(o) * hnp.tanh(c), c


def deep_lstm(devices, unrolled: bool):
    """A layer on each device, as in a scan or step by step."""

    def loss(parameters, xs):
        batch, hidden = xs.shape[1], parameters[0][1].shape[0] // 4
        zero = hnp.zeros((batch, hidden), xs.dtype)
        states = [(zero, zero) for _ in parameters]

        def step(states, x):
            made = []
            for (w, b), state, device in zip(parameters, states, devices, strict=True):
                with hl.device(device):
                    state = lstm_layer(w, b, state, x)
                x = state[0]
                made.append(state)
            return made, x

        if unrolled:
            for x in xs:
                states, last = step(states, x)
        else:
            _, outputs = lax.scan(step, states, xs)
            last = outputs[-1]
        return hnp.sum(last**2)

    return loss
