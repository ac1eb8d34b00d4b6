"""Optimizers that solve a proximal problem in each step, which yields sparse parameters for wide linear models.

Their updates are differences to the new parameters, so `update` needs the parameters, and they must be last in a chain.
learning_rate: a number or a schedule over the step count. With l1 = l2 = 0 the proximal ones are plain Adagrad and
gradient descent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import tree
from hloom.errors import ArgumentError
from hloom.optim.base import GradientTransformation, check_state, zeros_like
from hloom.optim.hyperparameters import Number, Rate


class ProximalState(NamedTuple):
    """count: int32 scalar. accumulator: sums of squared gradients, or an empty tuple. linear: sums of gradients, or an
    empty tuple."""

    count: Any
    accumulator: Any
    linear: Any


def _proximal(step, learning_rate, initial_accumulator_value: float | None, linear: bool, name: str):
    """The transformation of step(rate, count, parameter, gradient, accumulator, linear) -> (parameter, accumulator,
    linear) on each leaf."""

    def init(parameters):
        squares: Any = ()
        if initial_accumulator_value is not None:
            squares = tree.map(lambda p: hnp.full_like(p, initial_accumulator_value), parameters)
        return ProximalState(hnp.zeros((), "s32"), squares, zeros_like(parameters) if linear else ())

    def update(updates, state, parameters=None):
        check_state(state, ProximalState, name)
        if parameters is None:
            raise ArgumentError(
                f"the update of {name} takes the parameters",
                "none",
                "write optimizer.update(gradients, state, parameters)",
            )
        rate = learning_rate(state.count) if callable(learning_rate) else learning_rate
        leaves, structure = tree.flatten(updates)
        nothing = [None] * len(leaves)
        squares = nothing if initial_accumulator_value is None else tree.leaves(state.accumulator)
        sums = tree.leaves(state.linear) if linear else nothing
        olds = tree.leaves(parameters)
        new = [step(rate, state.count + 1, *of) for of in zip(olds, leaves, squares, sums, strict=True)]
        changes = tree.unflatten(
            structure, [(p - old).astype(old.dtype) for (p, _, _), old in zip(new, olds, strict=True)]
        )
        squares = () if initial_accumulator_value is None else tree.unflatten(structure, [n[1] for n in new])
        sums = tree.unflatten(structure, [n[2] for n in new]) if linear else ()
        return changes, ProximalState(state.count + 1, squares, sums)

    return GradientTransformation(init, update)


def _shrunk(x, threshold):
    """Soft thresholding, x shrunk towards 0: the proximal map of threshold * |x|."""
    return hnp.sign(x) * hnp.maximum(hnp.abs(x) - threshold, 0)


def ftrl(
    learning_rate: Rate,
    learning_rate_power: Number = -0.5,
    initial_accumulator_value: Number = 0.1,
    l1: Number = 0.0,
    l2: Number = 0.0,
    l2_shrinkage: Number = 0.0,
    beta: Number = 0.0,
) -> GradientTransformation:
    """Follow the regularized leader, by coordinates (McMahan et al., Ad click prediction, 2013). Update and arguments
    are those of TensorFlow's Ftrl.

    l1, l2: strengths of the regularization; l1 makes weights exactly zero. l2_shrinkage: l2 on the current weights
    only, which is not accumulated. learning_rate_power: the accumulator's power, at most 0. Raises ArgumentError.

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.ftrl(0.1, l1=0.01)
    >>> updates, state = optimizer.update(w, optimizer.init(w), w)
    >>> updates.shape
    (2,)
    """
    if learning_rate_power > 0:
        raise ArgumentError("Ftrl takes a power of at most 0", f"{learning_rate_power}", "pass -0.5")
    _not_negative("ftrl", initial_accumulator_value=initial_accumulator_value, l1=l1, l2=l2)

    def step(rate, count, p, g, squares, linear):
        shrunk = g + 2 * l2_shrinkage * p
        total = squares + g * g
        before, after = squares**-learning_rate_power, total**-learning_rate_power
        linear = linear + shrunk - (after - before) / rate * p
        quadratic = (after + beta) / rate + 2 * l2
        return -_shrunk(linear, l1) / quadratic, total, linear

    return _proximal(step, learning_rate, initial_accumulator_value, True, "ftrl")


def proximal_adagrad(
    learning_rate: Rate, initial_accumulator_value: Number = 0.1, l1: Number = 0.0, l2: Number = 0.0
) -> GradientTransformation:
    """Forward-backward splitting with Adagrad's rates (Duchi and Singer, 2009; Duchi et al., 2011).

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.proximal_adagrad(0.1, l1=0.01)
    >>> updates, state = optimizer.update(w, optimizer.init(w), w)
    >>> updates.shape
    (2,)
    """
    _not_negative("proximal_adagrad", initial_accumulator_value=initial_accumulator_value, l1=l1, l2=l2)

    def step(rate, count, p, g, squares, linear):
        total = squares + g * g
        own = rate / hnp.sqrt(total)
        return _shrunk(p - own * g, own * l1) / (1 + l2 * own), total, None

    return _proximal(step, learning_rate, initial_accumulator_value, False, "proximal_adagrad")


def proximal_gradient_descent(learning_rate: Rate, l1: Number = 0.0, l2: Number = 0.0) -> GradientTransformation:
    """Gradient descent, then the proximal map of l1 |p| + l2 p^2 / 2 (Duchi and Singer, 2009).

    >>> w = hnp.array([1.0, 0.05])
    >>> optimizer = hl.optim.proximal_gradient_descent(0.1, l1=1.0)
    >>> updates, state = optimizer.update(hnp.zeros(2), optimizer.init(w), w)
    >>> hl.optim.apply_updates(w, updates).round(3)
    Array([0.9, 0. ], dtype=float32)
    """
    _not_negative("proximal_gradient_descent", l1=l1, l2=l2)

    def step(rate, count, p, g, squares, linear):
        return _shrunk(p - rate * g, rate * l1) / (1 + l2 * rate), None, None

    return _proximal(step, learning_rate, None, False, "proximal_gradient_descent")


def adagrad_da(
    learning_rate: Rate, initial_accumulator_value: Number = 0.1, l1: Number = 0.0, l2: Number = 0.0
) -> GradientTransformation:
    """Adagrad with dual averaging: the parameters are a function of the sums of all gradients (Duchi et al., 2011,
    equation 24). They are 0 without gradients, so a model must be linear, or start near 0.

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.adagrad_da(0.1)
    >>> updates, state = optimizer.update(w, optimizer.init(w), w)
    >>> updates.shape
    (2,)
    """
    _not_negative("adagrad_da", initial_accumulator_value=initial_accumulator_value, l1=l1, l2=l2)

    def step(rate, count, p, g, squares, linear):
        total, summed = squares + g * g, linear + g
        steps = hnp.asarray(count).astype(p.dtype)
        return -rate * _shrunk(summed, l1 * steps) / (hnp.sqrt(total) + l2 * steps * rate), total, summed

    return _proximal(step, learning_rate, initial_accumulator_value, True, "adagrad_da")


def _not_negative(name: str, **values: float) -> None:
    for argument, value in values.items():
        if value < 0:
            raise ArgumentError(f"{name} takes {argument} of at least 0", f"{argument}={value}", "pass 0 or more")
