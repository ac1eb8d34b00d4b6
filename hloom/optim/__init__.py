"""Optimizers, schedules, clipping and averages, with Optax's interface.

optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(optim.cosine_decay_schedule(1e-3, 1000)))
state = optimizer.init(parameters)
updates, state = optimizer.update(gradients, state, parameters)
parameters = optim.apply_updates(parameters, updates)
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from hloom.ir.process import lazy as _lazy

if _TYPE_CHECKING:  # the names of _HOMES, for type checkers
    # fmt: off
    # isort: off
    from hloom.nn.losses import (
        cosine_distance, cosine_similarity, ctc_loss, hinge_loss, huber_loss, kl_divergence, l2_loss, log_cosh,
        sigmoid_binary_cross_entropy, smooth_labels, softmax_cross_entropy, softmax_cross_entropy_with_integer_labels,
        squared_error,
    )
    from hloom.optim.averages import ExponentialMovingAverage
    from hloom.optim.base import (
        ChainState, EmptyState, GradientTransformation, all_finite, apply_if_finite, apply_updates, chain, global_norm,
        identity, incremental_update, masked, multi_steps, multi_transform, partition, periodic_update, set_to_zero,
        stateless,
    )
    from hloom.optim.loss_scale import DynamicLossScale
    from hloom.optim.optimizers import (
        adadelta, adagrad, adam, adamax, adamw, amsgrad, lamb, lars, lion, nadam, rmsprop, sgd,
    )
    from hloom.optim.proximal import adagrad_da, ftrl, proximal_adagrad, proximal_gradient_descent
    from hloom.optim.schedules import (
        constant_schedule, cosine_decay_schedule, cosine_onecycle_schedule, exponential_decay, join_schedules,
        linear_schedule, piecewise_constant_schedule, polynomial_schedule, sgdr_schedule, warmup_constant_schedule,
        warmup_cosine_decay_schedule, warmup_exponential_decay_schedule,
    )
    from hloom.optim.transforms import (
        add_decayed_weights, bias_correction, centralize, clip, clip_by_block_rms, clip_by_global_norm, ema, scale,
        scale_by_adadelta, scale_by_adam, scale_by_adamax, scale_by_amsgrad, scale_by_learning_rate, scale_by_lion,
        scale_by_rms, scale_by_rss, scale_by_schedule, scale_by_stddev, scale_by_trust_ratio, trace,
    )
    # isort: on
    # fmt: on

# Where the public names are defined.
_HOMES = {
    "hloom.nn.losses": (
        "cosine_distance cosine_similarity ctc_loss hinge_loss huber_loss kl_divergence l2_loss log_cosh "
        "sigmoid_binary_cross_entropy smooth_labels softmax_cross_entropy softmax_cross_entropy_with_integer_labels "
        "squared_error"
    ),
    "hloom.optim.averages": "ExponentialMovingAverage",
    "hloom.optim.base": (
        "ChainState EmptyState GradientTransformation all_finite apply_if_finite apply_updates chain global_norm "
        "identity incremental_update masked multi_steps multi_transform partition periodic_update set_to_zero stateless"
    ),
    "hloom.optim.loss_scale": "DynamicLossScale",
    "hloom.optim.optimizers": "adadelta adagrad adam adamax adamw amsgrad lamb lars lion nadam rmsprop sgd",
    "hloom.optim.proximal": "adagrad_da ftrl proximal_adagrad proximal_gradient_descent",
    "hloom.optim.schedules": (
        "constant_schedule cosine_decay_schedule cosine_onecycle_schedule exponential_decay join_schedules "
        "linear_schedule piecewise_constant_schedule polynomial_schedule sgdr_schedule warmup_constant_schedule "
        "warmup_cosine_decay_schedule warmup_exponential_decay_schedule"
    ),
    "hloom.optim.transforms": (
        "add_decayed_weights bias_correction centralize clip clip_by_block_rms clip_by_global_norm ema scale "
        "scale_by_adadelta scale_by_adam scale_by_adamax scale_by_amsgrad scale_by_learning_rate scale_by_lion "
        "scale_by_rms scale_by_rss scale_by_schedule scale_by_stddev scale_by_trust_ratio trace"
    ),
}
_hyperparameters = _lazy.LazyModule("hloom.optim.hyperparameters")


def _prepared(name: str, value):
    """Constructors of optimizers and schedules check their arguments."""
    return _hyperparameters.checked(value) if _hyperparameters.makes_optimizers(value) else value


__getattr__ = _lazy.lazy_names(globals(), _HOMES, prepare=_prepared)

__all__ = " ".join(_HOMES.values()).split()
__dir__ = __all__.copy
