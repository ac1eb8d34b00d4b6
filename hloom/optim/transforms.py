"""The building blocks of optimizers: scaling by schedules, moments and norms, and clipping."""

from __future__ import annotations

from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import tree
from hloom.errors import ArgumentError
from hloom.optim.base import GradientTransformation, check_state, global_norm, leafwise, masked, stateless, zeros_like
from hloom.optim.hyperparameters import Number, Rate

# --- scalings -----------------------------------------------------------------------------------------------------


def scale(step_size: Number) -> GradientTransformation:
    """The updates times a scalar.

    >>> transform = hl.optim.scale(-0.1)
    >>> transform.update(hnp.array([1.0, 2.0]), transform.init(None))[0]
    Array([-0.1, -0.2], dtype=float32)
    """
    return leafwise(lambda g: (step_size * g).astype(g.dtype))


class ScheduleState(NamedTuple):
    """count: int32 scalar, the steps so far."""

    count: Any


def scale_by_schedule(step_size_fn) -> GradientTransformation:
    """The updates times step_size_fn(count), with count starting at 0.

    >>> transform = hl.optim.scale_by_schedule(hl.optim.linear_schedule(1.0, 0.0, 2))
    >>> first, state = transform.update(hnp.array([4.0]), transform.init(None))
    >>> second, state = transform.update(hnp.array([4.0]), state)
    >>> first, second
    (Array([4.], dtype=float32), Array([2.], dtype=float32))
    """

    def update(updates, state, parameters=None):
        check_state(state, ScheduleState, "scale_by_schedule")
        size = step_size_fn(state.count)
        return tree.map(lambda g: (size * g).astype(g.dtype), updates), ScheduleState(state.count + 1)

    return GradientTransformation(lambda parameters: ScheduleState(hnp.zeros((), "s32")), update)


def scale_by_learning_rate(learning_rate: Rate, *, flip_sign: bool = True) -> GradientTransformation:
    """The updates times the learning rate (a number or a schedule), with the sign of descent.

    >>> transform = hl.optim.scale_by_learning_rate(0.5)
    >>> transform.update(hnp.array([2.0]), transform.init(None))[0]
    Array([-1.], dtype=float32)
    """
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    return scale(sign * learning_rate)


class TraceState(NamedTuple):
    """trace: the decaying sum of updates."""

    trace: Any


def trace(decay: Number, nesterov: bool = False, accumulator_dtype=None) -> GradientTransformation:
    """Momentum: t <- g + decay t; with `nesterov` the result is g + decay t (Sutskever et al., 2013).

    >>> transform = hl.optim.trace(0.9)
    >>> first, state = transform.update(hnp.array([1.0]), transform.init(hnp.zeros(1)))
    >>> second, state = transform.update(hnp.array([1.0]), state)
    >>> second
    Array([1.9], dtype=float32)
    """

    def update(updates, state, parameters=None):
        check_state(state, TraceState, "trace")
        traced = tree.map(lambda g, t: g + decay * t, updates, state.trace)
        result = tree.map(lambda g, t: g + decay * t, updates, traced) if nesterov else traced
        result = tree.map(lambda g, u: u.astype(g.dtype), updates, result)
        return result, TraceState(_cast(traced, accumulator_dtype))

    return GradientTransformation(lambda parameters: TraceState(zeros_like(parameters, accumulator_dtype)), update)


def _cast(values, dtype):
    return values if dtype is None else tree.map(lambda x: x.astype(dtype), values)


class EmaState(NamedTuple):
    """count: int32 scalar. ema: the moving average."""

    count: Any
    ema: Any


def ema(decay: Number, debias: bool = True, accumulator_dtype=None) -> GradientTransformation:
    """The exponential moving average of the updates.

    >>> transform = hl.optim.ema(0.9)
    >>> updates, state = transform.update(hnp.array([2.0]), transform.init(hnp.zeros(1)))
    >>> updates.round(3)
    Array([2.], dtype=float32)
    """

    def update(updates, state, parameters=None):
        check_state(state, EmaState, "ema")
        average = moment(updates, state.ema, decay, 1)
        count = state.count + 1
        result = bias_correction(average, decay, count) if debias else average
        return result, EmaState(count, _cast(average, accumulator_dtype))

    def init(parameters):
        return EmaState(hnp.zeros((), "s32"), zeros_like(parameters, accumulator_dtype))

    return GradientTransformation(init, update)


# --- moments ------------------------------------------------------------------------------------------------------


def moment(updates, moments, decay, order: int):
    """decay * moments + (1 - decay) * |updates|^order, leaf by leaf."""

    def of(g, m):
        power = g if order == 1 else hnp.real(g * hnp.conj(g)) if order == 2 else hnp.abs(g) ** order
        return (1 - decay) * power + decay * m

    return tree.map(of, updates, moments)


def bias_correction(moments, decay, count):
    """moments / (1 - decay^count): corrects the bias of an average that started at zero (Kingma and Ba, 2015).

    >>> hl.optim.bias_correction(hnp.array([0.1]), 0.9, 1).round(3)
    Array([1.], dtype=float32)
    """
    share = 1 - hnp.asarray(decay, "f32") ** count
    return tree.map(lambda m: m / share.astype(m.dtype), moments)


class AdamState(NamedTuple):
    """count: int32 scalar. mu, nu: first and second moments."""

    count: Any
    mu: Any
    nu: Any


def _adam_init(mu_dtype):
    def init(parameters):
        return AdamState(hnp.zeros((), "s32"), zeros_like(parameters, mu_dtype), zeros_like(parameters))

    return init


def scale_by_adam(
    b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, eps_root: Number = 0.0, mu_dtype=None, *, nesterov=False
) -> GradientTransformation:
    """mu / (sqrt(nu + eps_root) + eps) with bias-corrected moments (Kingma and Ba, Adam, 2015; nesterov: Dozat, 2016).

    >>> transform = hl.optim.scale_by_adam()
    >>> updates, state = transform.update(hnp.array([5.0, -0.1]), transform.init(hnp.zeros(2)))
    >>> updates.round(3)
    Array([ 1., -1.], dtype=float32)
    """

    def update(updates, state, parameters=None):
        check_state(state, AdamState, "scale_by_adam")
        mu = moment(updates, state.mu, b1, 1)
        nu = moment(updates, state.nu, b2, 2)
        count = state.count + 1
        if nesterov:
            ahead = bias_correction(mu, b1, count + 1)
            now = bias_correction(updates, b1, count)
            first = tree.map(lambda m, g: b1 * m + (1 - b1) * g, ahead, now)
        else:
            first = bias_correction(mu, b1, count)
        second = bias_correction(nu, b2, count)
        result = tree.map(lambda g, m, v: (m / (hnp.sqrt(v + eps_root) + eps)).astype(g.dtype), updates, first, second)
        return result, AdamState(count, _cast(mu, mu_dtype), nu)

    return GradientTransformation(_adam_init(mu_dtype), update)


class AmsgradState(NamedTuple):
    """As AdamState, with the maximum of the corrected second moments so far."""

    count: Any
    mu: Any
    nu: Any
    nu_max: Any


def scale_by_amsgrad(
    b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, eps_root: Number = 0.0, mu_dtype=None
) -> GradientTransformation:
    """Adam with non-decreasing second moments (Reddi et al., On the convergence of Adam and beyond, 2018)."""

    def init(parameters):
        count, mu, nu = _adam_init(mu_dtype)(parameters)
        return AmsgradState(count, mu, nu, zeros_like(parameters))

    def update(updates, state, parameters=None):
        check_state(state, AmsgradState, "scale_by_amsgrad")
        mu = moment(updates, state.mu, b1, 1)
        nu = moment(updates, state.nu, b2, 2)
        count = state.count + 1
        first, second = bias_correction(mu, b1, count), bias_correction(nu, b2, count)
        largest = tree.map(hnp.maximum, state.nu_max, second)
        result = tree.map(lambda m, v: m / (hnp.sqrt(v + eps_root) + eps), first, largest)
        return result, AmsgradState(count, _cast(mu, mu_dtype), nu, largest)

    return GradientTransformation(init, update)


def scale_by_adamax(b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8) -> GradientTransformation:
    """Adam with the largest absolute update in place of the second moment (Kingma and Ba, 2015, section 7.1)."""

    def update(updates, state, parameters=None):
        check_state(state, AdamState, "scale_by_adamax")
        count = state.count + 1
        mu = moment(updates, state.mu, b1, 1)
        nu = tree.map(lambda g, v: hnp.maximum(hnp.abs(g) + eps, b2 * v), updates, state.nu)
        result = tree.map(lambda m, v: m / v, bias_correction(mu, b1, count), nu)
        return result, AdamState(count, mu, nu)

    return GradientTransformation(_adam_init(None), update)


class SquaresState(NamedTuple):
    """nu: running second moments, or sums of squares."""

    nu: Any


def scale_by_rms(
    decay: Number = 0.9, eps: Number = 1e-8, initial_scale: Number = 0.0, eps_in_sqrt: bool = True
) -> GradientTransformation:
    """g / sqrt(nu + eps), nu the moving average of g^2 (Tieleman and Hinton, RMSProp, 2012).

    >>> transform = hl.optim.scale_by_rms(decay=0.75)
    >>> transform.update(hnp.array([3.0, -0.1]), transform.init(hnp.zeros(2)))[0].round(3)
    Array([ 2., -2.], dtype=float32)
    """

    def init(parameters):
        return SquaresState(tree.map(lambda p: hnp.full_like(p, initial_scale), parameters))

    def update(updates, state, parameters=None):
        check_state(state, SquaresState, "scale_by_rms")
        nu = moment(updates, state.nu, decay, 2)
        root = (lambda v: hnp.sqrt(v + eps)) if eps_in_sqrt else (lambda v: hnp.sqrt(v) + eps)
        return tree.map(lambda g, v: g / root(v), updates, nu), SquaresState(nu)

    return GradientTransformation(init, update)


class DeviationState(NamedTuple):
    """mu, nu: running first and second moments."""

    mu: Any
    nu: Any


def scale_by_stddev(decay: Number = 0.9, eps: Number = 1e-8, initial_scale: Number = 0.0) -> GradientTransformation:
    """g / sqrt(nu - mu^2 + eps): centred RMSProp (Graves, Generating sequences, 2013)."""

    def init(parameters):
        return DeviationState(zeros_like(parameters), tree.map(lambda p: hnp.full_like(p, initial_scale), parameters))

    def update(updates, state, parameters=None):
        check_state(state, DeviationState, "scale_by_stddev")
        mu = moment(updates, state.mu, decay, 1)
        nu = moment(updates, state.nu, decay, 2)
        result = tree.map(lambda g, m, v: g / hnp.sqrt(v - hnp.real(m * hnp.conj(m)) + eps), updates, mu, nu)
        return result, DeviationState(mu, nu)

    return GradientTransformation(init, update)


def scale_by_rss(initial_accumulator_value: Number = 0.1, eps: Number = 1e-7) -> GradientTransformation:
    """g / sqrt(sum of g^2 + eps), 0 where the sum is 0 (Duchi et al., Adagrad, 2011)."""

    def init(parameters):
        return SquaresState(tree.map(lambda p: hnp.full_like(p, initial_accumulator_value), parameters))

    def update(updates, state, parameters=None):
        check_state(state, SquaresState, "scale_by_rss")
        sums = tree.map(lambda g, s: hnp.real(g * hnp.conj(g)) + s, updates, state.nu)
        result = tree.map(
            lambda g, s: hnp.where(s > 0, g / hnp.sqrt(hnp.where(s > 0, s + eps, 1)), 0).astype(g.dtype), updates, sums
        )
        return result, SquaresState(sums)

    return GradientTransformation(init, update)


class AdadeltaState(NamedTuple):
    """e_g, e_x: moving averages of squared gradients and squared updates."""

    e_g: Any
    e_x: Any


def scale_by_adadelta(rho: Number = 0.9, eps: Number = 1e-6) -> GradientTransformation:
    """Steps scaled by the ratio of the running magnitudes of steps and gradients (Zeiler, Adadelta, 2012)."""

    def update(updates, state, parameters=None):
        check_state(state, AdadeltaState, "scale_by_adadelta")
        e_g = moment(updates, state.e_g, rho, 2)
        result = tree.map(lambda g, s, x: hnp.sqrt(x + eps) / hnp.sqrt(s + eps) * g, updates, e_g, state.e_x)
        return result, AdadeltaState(e_g, moment(result, state.e_x, rho, 2))

    return GradientTransformation(
        lambda parameters: AdadeltaState(zeros_like(parameters), zeros_like(parameters)), update
    )


class LionState(NamedTuple):
    """count: int32 scalar. mu: the momentum."""

    count: Any
    mu: Any


def scale_by_lion(b1: Number = 0.9, b2: Number = 0.99, mu_dtype=None) -> GradientTransformation:
    """sign(b1 mu + (1 - b1) g) (Chen et al., Symbolic discovery of optimization algorithms, 2023).

    >>> transform = hl.optim.scale_by_lion()
    >>> transform.update(hnp.array([3.0, -0.1]), transform.init(hnp.zeros(2)))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def update(updates, state, parameters=None):
        check_state(state, LionState, "scale_by_lion")
        result = tree.map(lambda g, m: hnp.sign((1 - b1) * g + b1 * m).astype(g.dtype), updates, state.mu)
        return result, LionState(state.count + 1, _cast(moment(updates, state.mu, b2, 1), mu_dtype))

    def init(parameters):
        return LionState(hnp.zeros((), "s32"), zeros_like(parameters, mu_dtype))

    return GradientTransformation(init, update)


# --- with the parameters ------------------------------------------------------------------------------------------


def _needed(parameters, name: str):
    if parameters is None:
        raise ArgumentError(
            f"the update of {name} takes the parameters",
            "none",
            "write optimizer.update(gradients, state, parameters)",
        )
    return parameters


def add_decayed_weights(weight_decay: Number = 0.0, mask=None) -> GradientTransformation:
    """Adds weight_decay * parameters to the updates. mask: as in `masked`. The update needs the parameters.

    >>> w = hnp.array([1.0, -2.0])
    >>> decay = hl.optim.add_decayed_weights(0.1)
    >>> updates, state = decay.update(hnp.zeros(2), decay.init(w), w)
    >>> updates
    Array([ 0.1, -0.2], dtype=float32)
    """

    def decayed(updates, parameters):
        _needed(parameters, "add_decayed_weights")
        return tree.map(lambda g, p: g + weight_decay * p, updates, parameters)

    transformation = stateless(decayed)
    return transformation if mask is None else masked(transformation, mask)


def scale_by_trust_ratio(
    min_norm: Number = 0.0, trust_coefficient: Number = 1.0, eps: Number = 0.0
) -> GradientTransformation:
    """Each leaf times |parameter| / |update| (You et al., LARS, 2017). The update needs the parameters.

    >>> w = hnp.array([3.0, 4.0])
    >>> transform = hl.optim.scale_by_trust_ratio()
    >>> transform.update(hnp.array([1.0, 0.0]), transform.init(w), w)[0].round(3)
    Array([5., 0.], dtype=float32)
    """

    def of(g, p):
        size = hnp.maximum(hnp.sqrt(hnp.sum(p * p)), min_norm)
        step = hnp.maximum(hnp.sqrt(hnp.sum(g * g)), min_norm)
        ratio = trust_coefficient * size / (step + eps)
        usable = hnp.logical_and(size > 0, step > 0)
        return g * hnp.where(usable, ratio, 1).astype(g.dtype)

    return stateless(lambda updates, parameters: tree.map(of, updates, _needed(parameters, "scale_by_trust_ratio")))


# --- clipping -----------------------------------------------------------------------------------------------------


def clip(max_delta: Number) -> GradientTransformation:
    """Every element clipped to [-max_delta, max_delta].

    >>> transform = hl.optim.clip(1.0)
    >>> transform.update(hnp.array([-3.0, 0.5]), transform.init(None))[0]
    Array([-1. ,  0.5], dtype=float32)
    """
    return leafwise(lambda g: hnp.clip(g, -max_delta, max_delta))


def clip_by_global_norm(max_norm: Number) -> GradientTransformation:
    """All updates scaled down jointly if their global norm exceeds max_norm (Pascanu et al., 2012).

    >>> transform = hl.optim.clip_by_global_norm(1.0)
    >>> updates, state = transform.update({"a": hnp.array([3.0]), "b": hnp.array([4.0])}, transform.init(None))
    >>> hl.optim.global_norm(updates).round(3)
    Array(1., dtype=float32)
    """

    def clipped(updates, parameters):
        norm = global_norm(updates)
        # Divided first, as the norm of large updates times max_norm could overflow.
        return tree.map(lambda g: hnp.where(norm < max_norm, g, (g / norm.astype(g.dtype)) * max_norm), updates)

    return stateless(clipped)


def clip_by_block_rms(threshold: Number) -> GradientTransformation:
    """Each leaf scaled down if its root mean square exceeds the threshold.

    >>> transform = hl.optim.clip_by_block_rms(1.0)
    >>> transform.update(hnp.array([2.0, -2.0]), transform.init(None))[0].round(3)
    Array([ 1., -1.], dtype=float32)
    """

    def of(g):
        return g / hnp.maximum(1.0, hnp.sqrt(hnp.mean(g * g)) / threshold)

    return leafwise(of)


def centralize() -> GradientTransformation:
    """Subtracts the mean over all dimensions but the first from arrays of rank two or more (Yong et al., 2020).

    >>> transform = hl.optim.centralize()
    >>> transform.update(hnp.array([[1.0, 3.0]]), transform.init(None))[0]
    Array([[-1.,  1.]], dtype=float32)
    """
    return leafwise(lambda g: g - hnp.mean(g, axis=tuple(range(1, g.ndim)), keepdims=True) if g.ndim > 1 else g)
