"""Optimizers with Optax's names and arguments. `learning_rate` is a number or a schedule of the step count."""

from __future__ import annotations

from hloom.optim import transforms as t
from hloom.optim.base import GradientTransformation, chain, identity
from hloom.optim.hyperparameters import Number, Rate


def sgd(
    learning_rate: Rate, momentum: Number = None, nesterov: bool = False, accumulator_dtype=None
) -> GradientTransformation:
    """Stochastic gradient descent, with (Nesterov) momentum where `momentum` is given."""
    first = identity() if momentum is None else t.trace(momentum, nesterov, accumulator_dtype)
    return chain(first, t.scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: Rate,
    b1: Number = 0.9,
    b2: Number = 0.999,
    eps: Number = 1e-8,
    eps_root: Number = 0.0,
    mu_dtype=None,
    *,
    nesterov=False,
) -> GradientTransformation:
    """Adam (Kingma and Ba, 2015)."""
    return chain(
        t.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov), t.scale_by_learning_rate(learning_rate)
    )


def nadam(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, eps_root: Number = 0.0, mu_dtype=None
) -> GradientTransformation:
    """Adam with Nesterov momentum (Dozat, 2016)."""
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=True)


def adamw(
    learning_rate: Rate,
    b1: Number = 0.9,
    b2: Number = 0.999,
    eps: Number = 1e-8,
    eps_root: Number = 0.0,
    mu_dtype=None,
    weight_decay: Number = 1e-4,
    mask=None,
    *,
    nesterov=False,
) -> GradientTransformation:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019). The update needs the parameters."""
    return chain(
        t.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        t.add_decayed_weights(weight_decay, mask),
        t.scale_by_learning_rate(learning_rate),
    )


def amsgrad(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, eps_root: Number = 0.0, mu_dtype=None
) -> GradientTransformation:
    """AMSGrad (Reddi et al., 2018)."""
    return chain(t.scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype), t.scale_by_learning_rate(learning_rate))


def adamax(learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8) -> GradientTransformation:
    """Adamax (Kingma and Ba, 2015)."""
    return chain(t.scale_by_adamax(b1, b2, eps), t.scale_by_learning_rate(learning_rate))


def adagrad(learning_rate: Rate, initial_accumulator_value: Number = 0.1, eps: Number = 1e-7) -> GradientTransformation:
    """Adagrad (Duchi et al., 2011)."""
    return chain(t.scale_by_rss(initial_accumulator_value, eps), t.scale_by_learning_rate(learning_rate))


def adadelta(
    learning_rate: Rate, rho: Number = 0.9, eps: Number = 1e-6, weight_decay: Number = 0.0, weight_decay_mask=None
) -> GradientTransformation:
    """Adadelta (Zeiler, 2012)."""
    parts = [t.scale_by_adadelta(rho, eps), t.scale_by_learning_rate(learning_rate)]
    if weight_decay:
        parts.insert(0, t.add_decayed_weights(weight_decay, weight_decay_mask))
    return chain(*parts)


def rmsprop(
    learning_rate: Rate,
    decay: Number = 0.9,
    eps: Number = 1e-8,
    initial_scale: Number = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: Number = None,
    nesterov: bool = False,
) -> GradientTransformation:
    """RMSProp (Tieleman and Hinton, 2012), optionally centred and with momentum."""
    if centered:
        first = t.scale_by_stddev(decay, eps, initial_scale)
    else:
        first = t.scale_by_rms(decay, eps, initial_scale, eps_in_sqrt)
    parts = [first, t.scale_by_learning_rate(learning_rate)]
    if momentum is not None:
        parts.append(t.trace(momentum, nesterov))
    return chain(*parts)


def lion(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.99, mu_dtype=None, weight_decay: Number = 1e-3, mask=None
) -> GradientTransformation:
    """Lion (Chen et al., 2023). The update needs the parameters."""
    return chain(
        t.scale_by_lion(b1, b2, mu_dtype),
        t.add_decayed_weights(weight_decay, mask),
        t.scale_by_learning_rate(learning_rate),
    )


def lamb(
    learning_rate: Rate,
    b1: Number = 0.9,
    b2: Number = 0.999,
    eps: Number = 1e-6,
    eps_root: Number = 0.0,
    weight_decay: Number = 0.0,
    mask=None,
) -> GradientTransformation:
    """LAMB: Adam with a trust ratio for each leaf (You et al., 2020). The update needs the parameters."""
    return chain(
        t.scale_by_adam(b1, b2, eps, eps_root),
        t.add_decayed_weights(weight_decay, mask),
        t.scale_by_trust_ratio(),
        t.scale_by_learning_rate(learning_rate),
    )


def lars(
    learning_rate: Rate,
    weight_decay: Number = 0.0,
    trust_coefficient: Number = 0.001,
    eps: Number = 0.0,
    momentum: Number = 0.9,
    nesterov: bool = False,
) -> GradientTransformation:
    """LARS: momentum with a trust ratio for each leaf (You et al., 2017). The update needs the parameters."""
    return chain(
        t.add_decayed_weights(weight_decay),
        t.scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps),
        t.scale_by_learning_rate(learning_rate),
        t.trace(momentum, nesterov),
    )
