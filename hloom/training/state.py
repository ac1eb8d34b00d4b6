"""The usual training state and the step on it: optimizer, moving average, accumulation and mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import lax, random, tree
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError, DifferentiationError, ShapeError
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import FLOATS, as_dtype
from hloom.nn.module import apply_function
from hloom.optim import DynamicLossScale, ExponentialMovingAverage, GradientTransformation, apply_updates, global_norm
from hloom.tracing.active import assume
from hloom.tracing.signatures import function_name
from hloom.tracing.trace import as_array
from hloom.transforms.gradient import value_and_grad

F16 = as_dtype("f16")


class TrainState(NamedTuple):
    """All that a training step changes; a tree, which `fit` saves and restores.

    step: the global step, s32[]. model: a module or any tree of arrays. optimizer: the optimizer's state. average: the
    moving average of the model, or None. loss_scale: of float16, or None. key: for dropout, or None.

    >>> model = hl.nn.Linear(2, 1, key=hl.random.key(0))
    >>> state = hl.training.TrainState.of(model, hl.optim.sgd(0.1))
    >>> int(state.step), state.model.kernel.shape
    (0, (2, 1))
    """

    step: Any
    model: Any
    optimizer: Any
    average: ExponentialMovingAverage | None = None
    loss_scale: DynamicLossScale | None = None
    key: Any = None

    @classmethod
    def of(
        cls,
        model,
        optimizer: GradientTransformation,
        *,
        average: float | None = None,
        precision=None,
        key=None,
    ) -> TrainState:
        """The state before the first step.

        average: decay of a moving average of the model, which starts at its values and follows the first steps more
        closely (decay at most (1 + n) / (10 + n)). precision: that of `train_step`; "f16" adds a loss scale.
        key: random key, for models with dropout.
        """
        return cls(
            hnp.zeros((), "s32"),
            model,
            optimizer.init(model),
            None if average is None else ExponentialMovingAverage.at(model, average),
            DynamicLossScale.of() if precision is not None and as_dtype(precision) == F16 else None,
            key,
        )


def train_step(
    loss: Callable[..., Any],
    optimizer: GradientTransformation,
    *,
    accumulate: int = 1,
    precision=None,
    donate: bool = True,
) -> Callable[[TrainState, Any], tuple[TrainState, dict[str, Any]]]:
    """The compiled step(state, batch) -> (state, metrics) of a loss, for `fit` and for custom loops.

    loss: loss(model, batch) -> a scalar, or (a scalar, a dict of scalar metrics). It is called for training: dropout
    draws from the state's key, batch normalization records its statistics, which stay in the model.
    accumulate: the batch is processed in this many parts, one after the other, whose gradients are averaged, to save
    memory.
    precision: "bf16" or "f16" computes loss and gradients in it, with float32 parameters; float16 with a dynamic loss
    scale, whose overflowing steps are skipped. donate: the new state overwrites the old one.

    The metrics are those of the loss, and `loss`, `grad_norm` and with float16 `loss_scale`. Raises ArgumentError;
    ShapeError for a batch that cannot be divided.

    >>> def loss(model, batch):
    ...     return hnp.mean((model(batch["x"])[:, 0] - batch["y"]) ** 2)
    >>> optimizer = hl.optim.sgd(0.1)
    >>> state = hl.training.TrainState.of(hl.nn.Linear(1, 1, key=hl.random.key(0)), optimizer)
    >>> step = hl.training.train_step(loss, optimizer)
    >>> state, metrics = step(state, {"x": hnp.ones((4, 1)), "y": hnp.ones(4)})
    >>> sorted(metrics), int(state.step)
    (['grad_norm', 'loss'], 1)
    """
    half = None if precision is None else as_dtype(precision)
    if half is not None and (half not in FLOATS or half.itemsize != 2):
        raise ArgumentError("train_step computes in bf16 or f16", f"precision={precision!r}", "name one of them")
    if accumulate < 1:
        raise ArgumentError("train_step computes a batch in at least one part", f"accumulate={accumulate}", "pass 1")

    def cast(value):
        if half is None:
            return value
        return tree.map(lambda x: x.astype(half) if _is_float(x) else x, value)

    def gradients(model, batch, key, scale):
        """(gradients, (model with statistics, metrics)) of a part of the batch."""

        def scaled(full):
            narrow = cast(full)
            value, updated = apply_function(loss, narrow, cast(batch), key=key)
            value, metrics = _with_metrics(value, function_name(loss))
            # Only the values recorded by layers went through the narrow dtype.
            kept = tree.map(lambda new, n, f: f if new is n else new.astype(f.dtype), updated, narrow, full)
            value = value.astype("f32") if half is not None else value
            metrics = {**{k: hnp.asarray(v) for k, v in metrics.items()}, "loss": value}
            return (value if scale is None else scale.scaled(value)), (kept, metrics)

        scaled.__name__ = scaled.__qualname__ = function_name(loss)  # in errors
        (_, found), gradient = value_and_grad(scaled, has_aux=True)(model)
        return gradient, found

    def accumulated(model, batch, key, scale):
        if accumulate == 1:
            return gradients(model, batch, key, scale)
        parts = tree.map(lambda x: _divided(x, accumulate), batch)

        def part(carry, given):
            model, total = carry
            number, batch = given
            own = None if key is None else random.fold_in(key, number)
            gradient, (model, metrics) = gradients(model, batch, own, scale)
            return (model, tree.map(lambda t, g: t + g / accumulate, total, gradient)), metrics

        zeros = tree.map(hnp.zeros_like, model)
        (model, total), metrics = lax.scan(part, (model, zeros), (hnp.arange(accumulate), parts))
        return total, (model, tree.map(lambda m: hnp.mean(m, axis=0), metrics))

    def step(state: TrainState, batch):
        key, own = (None, None) if state.key is None else random.split(state.key)
        gradient, (model, metrics) = accumulated(state.model, batch, own, state.loss_scale)
        scale, finite = state.loss_scale, None
        if scale is not None:
            gradient, finite = scale.unscaled(gradient)
            metrics = {**metrics, "loss_scale": scale.scale}
        metrics = {**metrics, "grad_norm": global_norm(gradient)}
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, model)
        new = state._replace(
            step=state.step + 1, model=apply_updates(model, updates), optimizer=optimizer_state, key=key
        )
        if state.average is not None:
            new = new._replace(average=state.average.update(new.model, state.step))
        if scale is not None:
            # An overflow is how the scale is found, not a fault: the step is skipped, and its norm is 0.
            metrics["grad_norm"] = hnp.where(finite, metrics["grad_norm"], 0)
            kept = state._replace(step=new.step, key=key)
            new = tree.map(lambda a, b: hnp.where(finite, a, b), new, kept)
            new = new._replace(loss_scale=scale.update(finite))
        return new, metrics

    return jit(step, donate_argnums=0 if donate else ())


def _with_metrics(value, name: str) -> tuple[Any, dict]:
    """(loss, metrics) from the result of a loss. Raises ArgumentError, DifferentiationError."""
    repair = "return the loss, or (loss, {'accuracy': ...})"
    asked = f"the loss '{name}' returns a scalar, or (a scalar, a dict of scalars)"
    if isinstance(value, tuple) and (len(value) != 2 or not isinstance(value[1], dict)):
        raise ArgumentError(asked, f"({', '.join(type(v).__name__ for v in value)})", repair)
    value, metrics = value if isinstance(value, tuple) else (value, {})
    if value is None or isinstance(value, (dict, list)):
        raise ArgumentError(asked, "None" if value is None else type(value).__name__, repair)
    value = as_array(value, f"the loss that '{name}' returns")
    if value.shape != ():
        raise DifferentiationError(asked, f"{value._shape!r}", "reduce it over the batch: .mean()")
    return value, metrics


def _is_float(x) -> bool:
    dtype = getattr(x, "dtype", None)
    return dtype in FLOATS and dtype.itemsize > 2


def _divided(x, parts: int):
    """(batch, ...) as (parts, batch / parts, ...)."""
    x = hnp.asarray(x)
    if x.ndim and isinstance(x.shape[0], SizeExpression):
        assume(x.shape[0] % parts == 0)
    elif x.ndim == 0 or x.shape[0] % parts:
        raise ShapeError(
            f"train_step(accumulate={parts}) divides each array of the batch by its first dimension",
            repr(x._shape),
            f"use batches of a multiple of {parts} examples, and no scalars in them",
        )
    return hnp.reshape(x, (parts, x.shape[0] // parts, *x.shape[1:]))


__all__ = ["TrainState", "train_step"]
