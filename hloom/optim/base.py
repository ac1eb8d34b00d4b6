"""Gradient transformations, the parts of an optimizer, and their composition.

A transformation is a pair of pure functions on trees, with Optax's names and argument order:

    init(parameters) -> state
    update(updates, state, parameters=None) -> (updates, state)

The updates of the last one are added to the parameters (`apply_updates`). States are named tuples of arrays, and work
with `jit`, checkpoints and `tree.map` like any other tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom.errors import ArgumentError, TreeError
from hloom.ir.types import INEXACT
from hloom.numpy.foreign import OF_OPTIMIZERS, answer
from hloom.tree import pytrees as tree


class GradientTransformation(NamedTuple):
    """init(parameters) -> state; update(updates, state, parameters=None) -> (updates, state).

    >>> halved = hl.optim.GradientTransformation(
    ...     init=lambda parameters: (),
    ...     update=lambda updates, state, parameters=None: (hl.tree.map(lambda u: u / 2, updates), state),
    ... )
    >>> optimizer = hl.optim.chain(halved, hl.optim.sgd(1.0))
    >>> optimizer.update(hnp.array([4.0]), optimizer.init(hnp.zeros(1)))[0]
    Array([-2.], dtype=float32)
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


answer(GradientTransformation, OF_OPTIMIZERS)


class EmptyState(NamedTuple):
    """The state of a stateless transformation."""


class ChainState(NamedTuple):
    """The states of the transformations of a chain, in order."""

    states: tuple


def check_state(state, kind: type, name: str) -> None:
    """Raises ArgumentError if `update` is passed the state of another transformation."""
    if not isinstance(state, kind):
        raise ArgumentError(
            f"the update of {name} takes the state that its init made, {kind.__name__}",
            f"{type(state).__name__}, the state of another optimizer",
            "pass optimizer.init(parameters) of this optimizer, then the state that each update returns",
        )


def identity() -> GradientTransformation:
    """Returns the updates unchanged.

    >>> transform = hl.optim.identity()
    >>> transform.update(hnp.array([2.0]), transform.init(None))[0]
    Array([2.], dtype=float32)
    """
    return stateless(lambda updates, parameters: updates)


def stateless(function: Callable) -> GradientTransformation:
    """The stateless transformation that applies function(updates, parameters) -> updates.

    >>> transform = hl.optim.stateless(lambda updates, parameters: hl.tree.map(hnp.sign, updates))
    >>> transform.update(hnp.array([3.0, -0.1]), transform.init(None))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def update(updates, state, parameters=None):
        if state is not None and not (isinstance(state, tuple) and not state):
            check_state(state, EmptyState, "a transformation without a state")
        return function(updates, parameters), state

    return GradientTransformation(lambda parameters: EmptyState(), update)


def leafwise(function: Callable) -> GradientTransformation:
    """The stateless transformation that applies function(update) to each leaf."""
    return stateless(lambda updates, parameters: tree.map(function, updates))


def chain(*transformations: GradientTransformation) -> GradientTransformation:
    """The composition of transformations, in order. Raises ArgumentError for other objects.

    >>> w = hnp.array([3.0, 4.0])
    >>> optimizer = hl.optim.chain(hl.optim.clip_by_global_norm(1.0), hl.optim.sgd(1.0))
    >>> updates, state = optimizer.update(w, optimizer.init(w))
    >>> updates.round(3)
    Array([-0.6, -0.8], dtype=float32)
    """
    if len(transformations) == 1 and isinstance(transformations[0], (list, set)):
        raise ArgumentError(
            "chain takes gradient transformations one by one",
            f"one {type(transformations[0]).__name__} of {len(transformations[0])}",
            "write optim.chain(first, second), or optim.chain(*transformations)",
        )
    for k, transformation in enumerate(transformations):
        if not (callable(getattr(transformation, "init", None)) and callable(getattr(transformation, "update", None))):
            raise ArgumentError(
                f"chain takes gradient transformations; number {k} has no init and update",
                f"{type(transformation).__name__}",
                "call the optimizer first: optim.adam(1e-3), not optim.adam",
            )

    def init(parameters):
        return ChainState(tuple(t.init(parameters) for t in transformations))

    def update(updates, state, parameters=None):
        states = getattr(state, "states", None)
        if isinstance(updates, ChainState):
            raise ArgumentError(
                "update takes the gradients first, then the state",
                f"a state first, then {type(state).__name__}",
                "write optimizer.update(gradients, state, parameters)",
            )
        if states is None or len(states) != len(transformations):
            raise ArgumentError(
                f"the update of a chain of {len(transformations)} requires the state that its init created",
                f"{type(state).__name__}" + (f" of {len(states)}" if states is not None else ""),
                "pass optimizer.init(parameters), then the state that each update returns",
            )
        new = []
        for transformation, own in zip(transformations, states, strict=True):
            updates, own = transformation.update(updates, own, parameters)
            new.append(own)
        return updates, ChainState(tuple(new))

    return GradientTransformation(init, update)


def apply_updates(parameters, updates):
    """parameters + updates, leaf by leaf, in the parameters' dtypes. None among the updates leaves a parameter as is.

    Raises TreeError when the trees differ.

    >>> hl.optim.apply_updates({"w": hnp.array([1.0, 2.0])}, {"w": hnp.array([-0.5, 0.5])})
    {'w': Array([0.5, 2.5], dtype=float32)}
    """
    return tree.map(_added, parameters, updates)


def _added(parameter, update):
    if update is None:
        return parameter
    parameter = hnp.asarray(parameter)
    return (parameter + update).astype(parameter.dtype)


def incremental_update(new_tensors, old_tensors, step_size):
    """old + step_size * (new - old), leaf by leaf: an exponential moving average with decay 1 - step_size.

    >>> hl.optim.incremental_update(hnp.array([2.0]), hnp.array([0.0]), 0.25)
    Array([0.5], dtype=float32)
    """
    return tree.map(lambda new, old: step_size * new + (1.0 - step_size) * old, new_tensors, old_tensors)


def periodic_update(new_tensors, old_tensors, steps, update_period: int):
    """The new tensors where `steps` is a multiple of `update_period`, otherwise the old ones.

    >>> hl.optim.periodic_update(hnp.array([2.0]), hnp.array([1.0]), hnp.array(4), 2)
    Array([2.], dtype=float32)
    """
    now = hnp.equal(hnp.remainder(hnp.asarray(steps), update_period), 0)
    return tree.map(lambda new, old: hnp.where(now, new, old), new_tensors, old_tensors)


def global_norm(updates):
    """The Euclidean norm of all leaves together, a scalar.

    >>> hl.optim.global_norm({"a": hnp.array([3.0]), "b": hnp.array([4.0])})
    Array(5., dtype=float32)
    """
    return hnp.sqrt(sum(hnp.sum(hnp.real(x * hnp.conj(x))) for x in tree.leaves(updates)))


def zeros_like(parameters, dtype=None):
    """A tree of zeros like the parameters; all with `dtype` if given."""
    return tree.map(lambda p: hnp.zeros_like(p, dtype=dtype), parameters)


class MaskedState(NamedTuple):
    """The state of the transformation inside of `masked`."""

    inner_state: Any


def masked(inner: GradientTransformation, mask) -> GradientTransformation:
    """Applies `inner` to the leaves where `mask` is true; the others pass unchanged.

    mask: a tree of bools like the parameters, or a function of the parameters that returns one.

    >>> transform = hl.optim.masked(hl.optim.scale(0.0), {"w": True, "b": False})
    >>> gradients = {"w": hnp.array([1.0]), "b": hnp.array([1.0])}
    >>> transform.update(gradients, transform.init(gradients))[0]
    {'w': Array([0.], dtype=float32), 'b': Array([1.], dtype=float32)}
    """

    def chosen(values):
        return tree.map(bool, _resolved(mask, values))

    def picked(flags, values):
        return [v for flag, v in zip(tree.leaves(flags), tree.leaves(values), strict=True) if flag]

    def init(parameters):
        flags = chosen(parameters)
        _same_structure(flags, parameters)
        return MaskedState(inner.init(picked(flags, parameters)))

    def update(updates, state, parameters=None):
        check_state(state, MaskedState, "masked")
        flags = chosen(updates if parameters is None else parameters)
        _same_structure(flags, updates)
        known = None if parameters is None else picked(flags, parameters)
        changed, inner_state = inner.update(picked(flags, updates), state.inner_state, known)
        values = iter(changed)
        leaves, structure = tree.flatten(updates)
        result = [next(values) if flag else leaf for flag, leaf in zip(tree.leaves(flags), leaves, strict=True)]
        return tree.unflatten(structure, result), MaskedState(inner_state)

    return GradientTransformation(init, update)


def _resolved(given, values):
    """A tree like `values`: the argument, or the result of the argument as a function. A tree may be callable, like a
    layer."""
    if callable(given) and tree.structure(given) != tree.structure(values):
        return given(values)
    return given


def _same_structure(flags, values) -> None:
    if tree.structure(flags) != tree.structure(values):
        raise TreeError(
            "masked takes a mask of the parameters' structure",
            f"{tree.written(tree.structure(flags))}, parameters {tree.written(tree.structure(values))}",
            "build the mask with hl.tree.map over the parameters",
        )


class PartitionState(NamedTuple):
    """The states of the transformations of `partition`, by label."""

    inner_states: dict


def partition(transformations: dict, labels) -> GradientTransformation:
    """Different transformations for different leaves (Optax also calls it multi_transform).

    labels: a tree like the parameters with a key of `transformations` at each leaf, or a function that returns one.
    Raises ArgumentError for a label without a transformation.

    >>> optimizer = hl.optim.partition(
    ...     {"train": hl.optim.sgd(1.0), "freeze": hl.optim.set_to_zero()}, {"w": "train", "b": "freeze"}
    ... )
    >>> gradients = {"w": hnp.array([1.0]), "b": hnp.array([1.0])}
    >>> optimizer.update(gradients, optimizer.init(gradients))[0]["w"]
    Array([-1.], dtype=float32)
    """

    def label_leaves(values):
        found = tree.leaves(_resolved(labels, values))
        unknown = [x for x in found if x not in transformations]
        if unknown:
            raise ArgumentError(
                f"a transformation for the label {unknown[0]!r}",
                f"transformations for {', '.join(map(repr, transformations))}",
                "add one under that label; optim.set_to_zero() freezes parameters",
            )
        if len(found) != tree.structure(values).num_leaves:
            raise TreeError(
                "partition takes one label for each parameter",
                f"{len(found)} labels for {tree.structure(values).num_leaves} parameters",
                "build the labels with hl.tree.map over the parameters",
            )
        return found

    def parts(found, values):
        leaves = tree.leaves(values)
        return {k: [v for v, x in zip(leaves, found, strict=True) if x == k] for k in transformations}

    def init(parameters):
        groups = parts(label_leaves(parameters), parameters)
        return PartitionState({k: t.init(groups[k]) for k, t in transformations.items()})

    def update(updates, state, parameters=None):
        check_state(state, PartitionState, "partition")
        found = label_leaves(updates if parameters is None else parameters)
        groups = parts(found, updates)
        known = None if parameters is None else parts(found, parameters)
        results, states = {}, {}
        for k, transformation in transformations.items():
            own = None if known is None else known[k]
            changed, states[k] = transformation.update(groups[k], state.inner_states[k], own)
            results[k] = iter(changed)
        structure = tree.structure(updates)
        return tree.unflatten(structure, [next(results[k]) for k in found]), PartitionState(states)

    return GradientTransformation(init, update)


multi_transform = partition


def set_to_zero() -> GradientTransformation:
    """Updates of zero: frozen parameters.

    >>> transform = hl.optim.set_to_zero()
    >>> transform.update(hnp.array([2.0]), transform.init(None))[0]
    Array([0.], dtype=float32)
    """
    return leafwise(hnp.zeros_like)


def all_finite(values):
    """Whether all floating-point elements of a tree are finite, pred[].

    >>> hl.optim.all_finite({"w": hnp.array([1.0, hnp.nan])})
    Array(False, dtype=bool)
    """
    found = hnp.asarray(True)
    for leaf in tree.leaves(values):
        if leaf.dtype in INEXACT:
            found = hnp.logical_and(found, hnp.all(hnp.isfinite(leaf)))
    return found


class FiniteState(NamedTuple):
    """Counts of `apply_if_finite` (int32 scalars) and the inner state."""

    notfinite_count: Any
    total_notfinite: Any
    inner_state: Any


def apply_if_finite(inner: GradientTransformation, max_consecutive_errors: int) -> GradientTransformation:
    """Skips updates that contain an infinity or NaN, up to `max_consecutive_errors` times in a row.

    >>> w = hnp.array([1.0])
    >>> optimizer = hl.optim.apply_if_finite(hl.optim.sgd(0.1), max_consecutive_errors=3)
    >>> updates, state = optimizer.update(hnp.array([hnp.nan]), optimizer.init(w))
    >>> updates
    Array([0.], dtype=float32)
    """

    def init(parameters):
        zero = hnp.zeros((), "s32")
        return FiniteState(zero, zero, inner.init(parameters))

    def update(updates, state, parameters=None):
        check_state(state, FiniteState, "apply_if_finite")
        finite = all_finite(updates)
        count = hnp.where(finite, 0, state.notfinite_count + 1)
        accepted = hnp.logical_or(finite, count > max_consecutive_errors)
        changed, inner_state = inner.update(updates, state.inner_state, parameters)
        changed = tree.map(lambda u: hnp.where(accepted, u, hnp.zeros_like(u)), changed)
        inner_state = tree.map(lambda new, old: hnp.where(accepted, new, old), inner_state, state.inner_state)
        total = state.total_notfinite + hnp.where(finite, 0, 1)
        return changed, FiniteState(count.astype("s32"), total.astype("s32"), inner_state)

    return GradientTransformation(init, update)


class MultiStepsState(NamedTuple):
    """count: int32 scalar, gradients since the last step. total: their mean so far. inner_state: the optimizer's."""

    count: Any
    total: Any
    inner_state: Any


def multi_steps(inner: GradientTransformation, every: int) -> GradientTransformation:
    """Gradient accumulation: `inner` takes a step with the mean of every `every` gradients; updates are zero in
    between.

    Schedules and moments of `inner` count one step per `every` calls. Raises ArgumentError.

    >>> w = hnp.array([0.0])
    >>> optimizer = hl.optim.multi_steps(hl.optim.sgd(1.0), every=2)
    >>> first, state = optimizer.update(hnp.array([1.0]), optimizer.init(w), w)
    >>> second, state = optimizer.update(hnp.array([3.0]), state, w)
    >>> first, second
    (Array([0.], dtype=float32), Array([-2.], dtype=float32))
    """
    if every < 1:
        raise ArgumentError("multi_steps accumulates at least one gradient", f"every={every}", "pass every=1 or more")

    def init(parameters):
        return MultiStepsState(hnp.zeros((), "s32"), zeros_like(parameters), inner.init(parameters))

    def update(updates, state, parameters=None):
        check_state(state, MultiStepsState, "multi_steps")
        total = tree.map(lambda t, g: t + g / every, state.total, updates)
        due = state.count + 1 >= every
        changed, inner_state = inner.update(total, state.inner_state, parameters)
        changed = tree.map(lambda u: hnp.where(due, u, hnp.zeros_like(u)), changed)
        inner_state = tree.map(lambda new, old: hnp.where(due, new, old), inner_state, state.inner_state)
        total = tree.map(lambda t: hnp.where(due, hnp.zeros_like(t), t), total)
        count = hnp.where(due, 0, state.count + 1).astype("s32")
        return changed, MultiStepsState(count, total, inner_state)

    return GradientTransformation(init, update)
