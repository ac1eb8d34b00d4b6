"""Optimizers with Optax's names and arguments. `learning_rate` is a number or a schedule over the step count."""

from __future__ import annotations

from hloom.optim import transforms as t
from hloom.optim.base import GradientTransformation, chain, identity
from hloom.optim.hyperparameters import Number, Rate


def sgd(
    learning_rate: Rate, momentum: Number = None, nesterov: bool = False, accumulator_dtype=None
) -> GradientTransformation:
    """Stochastic gradient descent, with (Nesterov) momentum if `momentum` is given.

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.sgd(0.1, momentum=0.9)
    >>> updates, state = optimizer.update(2 * w, optimizer.init(w))
    >>> hl.optim.apply_updates(w, updates)
    Array([ 0.8, -1.6], dtype=float32)
    """
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
    """Adam (Kingma and Ba, 2015).

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.adam(0.1)
    >>> state = optimizer.init(w)
    >>> for _ in range(100):
    ...     updates, state = optimizer.update(hl.grad(lambda w: hnp.sum(w**2))(w), state)
    ...     w = hl.optim.apply_updates(w, updates)
    >>> bool(hnp.abs(w).max() < 0.1)
    True
    """
    return chain(
        t.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov), t.scale_by_learning_rate(learning_rate)
    )


def nadam(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, eps_root: Number = 0.0, mu_dtype=None
) -> GradientTransformation:
    """Adam with Nesterov momentum (Dozat, 2016).

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.nadam(0.1)
    >>> updates, state = optimizer.update(w, optimizer.init(w))
    >>> updates.shape
    (2,)
    """
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
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019). The update needs the parameters.

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.adamw(0.1, weight_decay=0.01)
    >>> updates, state = optimizer.update(2 * w, optimizer.init(w), w)
    >>> hl.optim.apply_updates(w, updates).round(3)
    Array([ 0.899, -1.898], dtype=float32)
    """
    return chain(
        t.scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        t.add_decayed_weights(weight_decay, mask),
        t.scale_by_learning_rate(learning_rate),
    )


def amsgrad(
    learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, eps_root: Number = 0.0, mu_dtype=None
) -> GradientTransformation:
    """AMSGrad (Reddi et al., 2018).

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.amsgrad(0.1)
    >>> updates, state = optimizer.update(w, optimizer.init(w))
    >>> updates.round(3)
    Array([-0.1,  0.1], dtype=float32)
    """
    return chain(t.scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype), t.scale_by_learning_rate(learning_rate))


def adamax(learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8) -> GradientTransformation:
    """Adamax (Kingma and Ba, 2015).

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.adamax(0.1)
    >>> updates, state = optimizer.update(w, optimizer.init(w))
    >>> updates.round(3)
    Array([-0.1,  0.1], dtype=float32)
    """
    return chain(t.scale_by_adamax(b1, b2, eps), t.scale_by_learning_rate(learning_rate))


def adagrad(learning_rate: Rate, initial_accumulator_value: Number = 0.1, eps: Number = 1e-7) -> GradientTransformation:
    """Adagrad (Duchi et al., 2011).

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.adagrad(0.1)
    >>> updates, state = optimizer.update(w, optimizer.init(w))
    >>> updates.round(3)
    Array([-0.095,  0.099], dtype=float32)
    """
    return chain(t.scale_by_rss(initial_accumulator_value, eps), t.scale_by_learning_rate(learning_rate))


def adadelta(
    learning_rate: Rate, rho: Number = 0.9, eps: Number = 1e-6, weight_decay: Number = 0.0, weight_decay_mask=None
) -> GradientTransformation:
    """Adadelta (Zeiler, 2012).

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.adadelta(1.0)
    >>> updates, state = optimizer.update(w, optimizer.init(w), w)
    >>> updates.shape
    (2,)
    """
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
    """RMSProp (Tieleman and Hinton, 2012), optionally centred and with momentum.

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.rmsprop(0.1)
    >>> updates, state = optimizer.update(w, optimizer.init(w))
    >>> updates.round(3)
    Array([-0.316,  0.316], dtype=float32)
    """
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
    """Lion (Chen et al., 2023). The update needs the parameters.

    >>> w = hnp.array([1.0, -2.0])
    >>> optimizer = hl.optim.lion(0.1, weight_decay=0.0)
    >>> updates, state = optimizer.update(w, optimizer.init(w), w)
    >>> updates.round(3)
    Array([-0.1,  0.1], dtype=float32)
    """
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
    """LAMB: Adam with a trust ratio for each leaf (You et al., 2020). The update needs the parameters.

    >>> w = hnp.array([3.0, 4.0])
    >>> optimizer = hl.optim.lamb(0.1)
    >>> updates, state = optimizer.update(w, optimizer.init(w), w)
    >>> updates.shape
    (2,)
    """
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
    """LARS: momentum with a trust ratio for each leaf (You et al., 2017). The update needs the parameters.

    >>> w = hnp.array([3.0, 4.0])
    >>> optimizer = hl.optim.lars(1.0)
    >>> updates, state = optimizer.update(w, optimizer.init(w), w)
    >>> updates.shape
    (2,)
    """
    return chain(
        t.add_decayed_weights(weight_decay),
        t.scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps),
        t.scale_by_learning_rate(learning_rate),
        t.trace(momentum, nesterov),
    )
