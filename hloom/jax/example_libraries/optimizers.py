"""`jax.example_libraries.optimizers`: optimizers as (init, update, get_params) on trees of parameters.

init(params) -> state; update(step, gradients, state) -> state; get_params(state) -> params. `step_size` is a number or
a schedule: a function of the step number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom.errors import ArgumentError, TreeError
from hloom.ir.records import record
from hloom.tree import pytrees as tree


class Optimizer(NamedTuple):
    """The three functions of an optimizer: initial state, update, current parameters."""

    init_fn: Callable[[Any], Any]
    update_fn: Callable[[Any, Any, Any], Any]
    params_fn: Callable[[Any], Any]


@record(frozen=True)
class OptimizerState:
    """The states of all leaves. packed_state: a list of tuples of arrays, one per leaf; the structures of the
    parameters and of each tuple are part of this object's structure."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any

    def unpacked(self) -> list:
        """The state of each leaf."""
        return [tree.unflatten(s, x) for s, x in zip(self.subtree_defs, self.packed_state, strict=True)]


tree.register(
    OptimizerState,
    lambda s: ([s.packed_state], (s.tree_def, s.subtree_defs)),
    lambda metadata, children: OptimizerState(children[0], *metadata),
)


def optimizer(make):
    """Extends an optimizer on single arrays to trees.

    make(*args) returns (init(array) -> state, update(step, gradient, state) -> state, get_params(state) -> array), a
    state being any tree of arrays.
    """

    @functools.wraps(make)
    def on_trees(*args, **kwargs) -> Optimizer:
        init, update, get_params = make(*args, **kwargs)

        def init_tree(parameters):
            leaves, structure = tree.flatten(parameters)
            flat = [tree.flatten(init(x)) for x in leaves]
            return OptimizerState([tuple(x) for x, _ in flat], structure, tuple(s for _, s in flat))

        def update_tree(step, gradients, state):
            leaves, structure = tree.flatten(gradients)
            if structure != state.tree_def:
                raise TreeError(
                    "the update of an optimizer requires gradients with the structure of the parameters",
                    f"{tree.written(structure)}, parameters {tree.written(state.tree_def)}",
                    "differentiate with respect to the parameters passed to init",
                )
            states = state.unpacked()
            new = [tree.flatten(update(step, g, s)) for g, s in zip(leaves, states, strict=True)]
            for (_, found), expected in zip(new, state.subtree_defs, strict=True):
                if found != expected:
                    raise TreeError(
                        "the update of an optimizer must keep the structure of its state",
                        f"{found}, {expected}",
                        "return a state with the same structure",
                    )
            return OptimizerState([tuple(x) for x, _ in new], state.tree_def, state.subtree_defs)

        def get_tree(state):
            states = state.unpacked()
            return tree.unflatten(state.tree_def, [get_params(s) for s in states])

        return Optimizer(init_tree, update_tree, get_tree)

    return on_trees


# --- optimizers ---------------------------------------------------------------------------------------------------


@optimizer
def sgd(step_size):
    """Stochastic gradient descent."""
    rate = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - rate(i) * g, lambda x: x


def _with_momentum(step_size, mass, nesterov: bool):
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, velocity = state
        velocity = mass * velocity + g
        direction = mass * velocity + g if nesterov else velocity
        return x - rate(i) * direction, velocity

    return lambda x: (x, hnp.zeros_like(x)), update, lambda state: state[0]


@optimizer
def momentum(step_size, mass: float):
    """Gradient descent with momentum."""
    return _with_momentum(step_size, mass, False)


@optimizer
def nesterov(step_size, mass: float):
    """Gradient descent with Nesterov's momentum."""
    return _with_momentum(step_size, mass, True)


@optimizer
def adagrad(step_size, momentum=0.9):
    """Adagrad (Duchi et al., 2011) with momentum."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, squares, average = state
        squares = squares + g * g
        scaled = hnp.where(squares > 0, g / hnp.sqrt(hnp.where(squares > 0, squares, 1.0)), 0.0)
        average = (1.0 - momentum) * scaled + momentum * average
        return x - rate(i) * average, squares, average

    return lambda x: (x, hnp.zeros_like(x), hnp.zeros_like(x)), update, lambda state: state[0]


@optimizer
def rmsprop(step_size, gamma=0.9, eps=1e-8):
    """RMSProp (Tieleman and Hinton, 2012)."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, squares = state
        squares = gamma * squares + (1.0 - gamma) * g * g
        return x - rate(i) * g / hnp.sqrt(squares + eps), squares

    return lambda x: (x, hnp.zeros_like(x)), update, lambda state: state[0]


@optimizer
def rmsprop_momentum(step_size, gamma=0.9, eps=1e-8, momentum=0.9):
    """RMSProp with momentum: each step adds to a decaying sum of steps."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, squares, velocity = state
        squares = gamma * squares + (1.0 - gamma) * g * g
        velocity = momentum * velocity + rate(i) * g / hnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return lambda x: (x, hnp.zeros_like(x), hnp.zeros_like(x)), update, lambda state: state[0]


@optimizer
def adam(step_size, b1=0.9, b2=0.999, eps=1e-8):
    """Adam (Kingma and Ba, 2015)."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, m, v = state
        m, v = (1 - b1) * g + b1 * m, (1 - b2) * g * g + b2 * v
        count = hnp.asarray(i + 1, m.dtype)
        m_hat, v_hat = m / (1 - hnp.asarray(b1, m.dtype) ** count), v / (1 - hnp.asarray(b2, m.dtype) ** count)
        return x - rate(i) * m_hat / (hnp.sqrt(v_hat) + eps), m, v

    return lambda x: (x, hnp.zeros_like(x), hnp.zeros_like(x)), update, lambda state: state[0]


@optimizer
def adamax(step_size, b1=0.9, b2=0.999, eps=1e-8):
    """Adamax (Kingma and Ba, 2015)."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, m, u = state
        m, u = (1 - b1) * g + b1 * m, hnp.maximum(b2 * u, hnp.abs(g))
        count = hnp.asarray(i + 1, m.dtype)
        return x - rate(i) / (1 - hnp.asarray(b1, m.dtype) ** count) * m / (u + eps), m, u

    return lambda x: (x, hnp.zeros_like(x), hnp.zeros_like(x)), update, lambda state: state[0]


@optimizer
def sm3(step_size, momentum=0.9):
    """SM3 (Anil et al., 2019): Adagrad with one sum per slice of an array instead of one per element."""
    rate = make_schedule(step_size)

    def along(sums, axis, ndim):
        return hnp.reshape(sums, tuple(-1 if k == axis else 1 for k in range(ndim)))

    def init(x):
        x = hnp.asarray(x)
        return x, hnp.zeros_like(x), [hnp.zeros(n, x.dtype) for n in x.shape]

    def update(i, g, state):
        x, m, sums = state
        cover = functools.reduce(hnp.minimum, [along(s, k, g.ndim) for k, s in enumerate(sums)])
        total = cover + g * g
        scaled = g * hnp.where(total > 0, 1 / hnp.sqrt(hnp.where(total > 0, total, 1.0)), 0.0)
        m = (1.0 - momentum) * scaled + momentum * m
        sums = [hnp.max(total, axis=tuple(d for d in range(g.ndim) if d != k)) for k in range(g.ndim)]
        return x - rate(i) * m, m, sums

    return init, update, lambda state: state[0]


# --- schedules ----------------------------------------------------------------------------------------------------


def constant(step_size):
    """The schedule step -> step_size."""
    return lambda i: step_size


def exponential_decay(step_size, decay_steps, decay_rate):
    """The schedule step_size * decay_rate ** (step / decay_steps)."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size, decay_steps, decay_rate, staircase=False):
    """The schedule step_size / (1 + decay_rate * step / decay_steps); staircase: changes every decay_steps steps."""

    def schedule(i):
        periods = hnp.floor(i / decay_steps) if staircase else i / decay_steps
        return step_size / (1 + decay_rate * periods)

    return schedule


def polynomial_decay(step_size, decay_steps, final_step_size, power=1.0):
    """The schedule from step_size to final_step_size in decay_steps steps, a polynomial of this power."""

    def schedule(i):
        share = (1 - hnp.minimum(i, decay_steps) / decay_steps) ** power
        return share * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries, values):
    """The schedule values[k] between boundaries[k - 1] and boundaries[k]. Raises ArgumentError."""
    boundaries, values = hnp.asarray(boundaries), hnp.asarray(values)
    if values.shape[0] != boundaries.shape[0] + 1:
        raise ArgumentError(
            "piecewise_constant requires one more value than boundaries",
            f"{boundaries.shape[0]} boundaries and {values.shape[0]} values",
            "add or remove a value",
        )
    return lambda i: values[hnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule):
    """A schedule: itself, or the constant one of a number. Raises ArgumentError for anything else."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if hnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise ArgumentError(
        "a step size", f"{type(scalar_or_schedule).__name__}", "pass a number or a function of the step"
    )


# --- gradients ----------------------------------------------------------------------------------------------------


def l2_norm(values):
    """The Euclidean norm of all leaves together."""
    return hnp.sqrt(sum(hnp.vdot(x, x) for x in tree.leaves(values)))


def clip_grads(gradients, max_norm):
    """The gradients scaled down where their norm is above max_norm."""
    norm = l2_norm(gradients)
    return tree.map(lambda g: hnp.where(norm < max_norm, g, g * (max_norm / norm)), gradients)


# --- as plain trees, for checkpoints ------------------------------------------------------------------------------


class JoinPoint:
    """Marks where the tree of parameters ends and the tree of one parameter's state begins."""

    def __init__(self, subtree):
        self.subtree = subtree

    def __iter__(self):
        yield self.subtree


def unpack_optimizer_state(state):
    """The state as a tree like the parameters, with a JoinPoint of each parameter's state at its leaves."""
    states = state.unpacked()
    return tree.unflatten(state.tree_def, [JoinPoint(s) for s in states])


def pack_optimizer_state(marked):
    """The inverse of `unpack_optimizer_state`."""
    points, structure = tree.flatten(marked, is_leaf=lambda x: isinstance(x, JoinPoint))
    if not all(isinstance(p, JoinPoint) for p in points):
        raise TreeError("a tree of JoinPoints", "another leaf", "pass the result of unpack_optimizer_state")
    flat = [tree.flatten(p.subtree) for p in points]
    return OptimizerState([tuple(x) for x, _ in flat], structure, tuple(s for _, s in flat))


__all__ = [
    "JoinPoint", "Optimizer", "OptimizerState", "adagrad", "adam", "adamax", "clip_grads", "constant",
    "exponential_decay", "inverse_time_decay", "l2_norm", "make_schedule", "momentum", "nesterov", "optimizer",
    "pack_optimizer_state", "piecewise_constant", "polynomial_decay", "rmsprop", "rmsprop_momentum", "sgd", "sm3",
    "unpack_optimizer_state",
]  # fmt: skip
__dir__ = __all__.copy
