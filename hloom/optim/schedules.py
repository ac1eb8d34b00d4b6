"""Schedules: functions from the step count (an int32 scalar, starting at 0) to a step size."""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom.errors import ArgumentError
from hloom.optim.hyperparameters import Number


def constant_schedule(value: Number):
    """The same value at every step.

    >>> hl.optim.constant_schedule(0.1)(1000)
    0.1
    """
    return lambda count: value


def polynomial_schedule(
    init_value: Number, end_value: Number, power: Number, transition_steps: int, transition_begin: int = 0
):
    """From init_value to end_value over `transition_steps`: (init - end) (1 - t / steps)^power + end.

    >>> schedule = hl.optim.polynomial_schedule(1.0, 0.0, 2, 10)
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 10)]
    [1.0, 0.25, 0.0]
    """
    if transition_steps <= 0:
        return constant_schedule(init_value)

    def schedule(count):
        step = hnp.clip(hnp.asarray(count) - transition_begin, 0, transition_steps)
        return (init_value - end_value) * (1 - step / transition_steps) ** power + end_value

    return schedule


def linear_schedule(init_value: Number, end_value: Number, transition_steps: int, transition_begin: int = 0):
    """Linear from init_value to end_value.

    >>> schedule = hl.optim.linear_schedule(1.0, 0.0, 10)
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 20)]
    [1.0, 0.5, 0.0]
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def piecewise_constant_schedule(init_value: Number, boundaries_and_scales: dict[int, float] | None = None):
    """init_value, multiplied by each scale from its boundary (a step count) on.

    >>> schedule = hl.optim.piecewise_constant_schedule(1.0, {10: 0.1, 20: 0.5})
    >>> [round(float(schedule(step)), 3) for step in (0, 15, 25)]
    [1.0, 0.1, 0.05]
    """

    def schedule(count):
        value = hnp.asarray(init_value, "f32")
        for boundary, scale in sorted((boundaries_and_scales or {}).items()):
            value = hnp.where(hnp.asarray(count) >= boundary, value * scale, value)
        return value

    return schedule


def exponential_decay(
    init_value: Number,
    transition_steps: int,
    decay_rate: Number,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Number = None,
):
    """init_value * decay_rate ** (t / transition_steps); staircase: with an integer exponent; end_value: a bound.

    >>> schedule = hl.optim.exponential_decay(1.0, 10, 0.5)
    >>> [round(float(schedule(step)), 3) for step in (0, 10, 20)]
    [1.0, 0.5, 0.25]
    """
    if transition_steps <= 0 or decay_rate == 0:
        return constant_schedule(init_value)

    def schedule(count):
        step = hnp.asarray(count) - transition_begin
        power = step / transition_steps
        if staircase:
            power = hnp.floor(power)
        value = hnp.where(step <= 0, init_value, init_value * hnp.power(hnp.asarray(decay_rate, "f32"), power))
        if end_value is None:
            return value
        return hnp.maximum(value, end_value) if decay_rate < 1.0 else hnp.minimum(value, end_value)

    return schedule


def cosine_decay_schedule(init_value: Number, decay_steps: int, alpha: Number = 0.0, exponent: Number = 1.0):
    """Half a cosine from init_value to alpha * init_value (Loshchilov and Hutter, SGDR, 2017).

    >>> schedule = hl.optim.cosine_decay_schedule(1.0, 100)
    >>> [round(float(schedule(step)), 3) for step in (0, 50, 100)]
    [1.0, 0.5, 0.0]
    """
    if decay_steps <= 0:
        raise ArgumentError("cosine_decay_schedule takes a positive decay_steps", f"{decay_steps}", "pass at least 1")

    def schedule(count):
        step = hnp.minimum(hnp.asarray(count), decay_steps)
        cosine = 0.5 * (1 + hnp.cos(math.pi * step / decay_steps))
        return init_value * ((1 - alpha) * cosine**exponent + alpha)

    return schedule


def join_schedules(schedules, boundaries):
    """Schedules in sequence; each starts counting at its boundary.

    >>> warmup = hl.optim.linear_schedule(0.0, 1.0, 10)
    >>> schedule = hl.optim.join_schedules([warmup, hl.optim.constant_schedule(1.0)], [10])
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 50)]
    [0.0, 0.5, 1.0]
    """
    if len(boundaries) != len(schedules) - 1:
        raise ArgumentError(
            "join_schedules takes one boundary between each two schedules",
            f"{len(schedules)} schedules and {len(boundaries)} boundaries",
            "pass one boundary fewer than schedules",
        )

    def schedule(count):
        count = hnp.asarray(count)
        value = schedules[0](count)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            value = hnp.where(count < boundary, value, following(count - boundary))
        return value

    return schedule


def warmup_constant_schedule(init_value: Number, peak_value: Number, warmup_steps: int):
    """Linear from init_value to peak_value, then constant.

    >>> schedule = hl.optim.warmup_constant_schedule(0.0, 1.0, 10)
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 50)]
    [0.0, 0.5, 1.0]
    """
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(
    init_value: Number,
    peak_value: Number,
    warmup_steps: int,
    decay_steps: int,
    end_value: Number = 0.0,
    exponent: Number = 1.0,
):
    """Linear up to peak_value, then half a cosine to end_value. decay_steps includes the warm-up.

    >>> schedule = hl.optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)
    >>> [round(float(schedule(step)), 3) for step in (0, 10, 55, 100)]
    [0.0, 1.0, 0.5, 0.0]
    """
    alpha = 0.0 if peak_value == 0.0 else end_value / peak_value
    falling = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), falling], [warmup_steps])


def warmup_exponential_decay_schedule(
    init_value: Number,
    peak_value: Number,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: Number,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Number = None,
):
    """Linear up to peak_value, then exponential decay.

    >>> schedule = hl.optim.warmup_exponential_decay_schedule(0.0, 1.0, 10, 10, 0.5)
    >>> [round(float(schedule(step)), 3) for step in (0, 10, 20)]
    [0.0, 1.0, 0.5]
    """
    falling = exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value)
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), falling], [warmup_steps])


def sgdr_schedule(cosine_kwargs):
    """Warm restarts: a sequence of warmup_cosine_decay_schedules, one per dictionary of arguments.

    >>> cycle = {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 5, "decay_steps": 20}
    >>> schedule = hl.optim.sgdr_schedule([cycle, cycle])
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 20, 25)]
    [0.0, 1.0, 0.0, 1.0]
    """
    schedules, boundaries, total = [], [], 0
    for arguments in cosine_kwargs:
        schedules.append(warmup_cosine_decay_schedule(**arguments))
        total += arguments["decay_steps"]
        boundaries.append(total)
    return join_schedules(schedules, boundaries[:-1])


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: Number,
    pct_start: Number = 0.3,
    div_factor: Number = 25.0,
    final_div_factor: Number = 1e4,
):
    """Up to peak_value and down again, each half a cosine (Smith and Topin, Super-convergence, 2018).

    >>> schedule = hl.optim.cosine_onecycle_schedule(100, 1.0)
    >>> [round(float(schedule(step)), 3) for step in (0, 30, 100)]
    [0.04, 1.0, 0.0]
    """
    first = int(pct_start * transition_steps)
    start, end = peak_value / div_factor, peak_value / (div_factor * final_div_factor)

    def between(a, b, steps):
        def schedule(count):
            share = hnp.clip(count / max(steps, 1), 0, 1)
            return b + (a - b) * 0.5 * (1 + hnp.cos(math.pi * share))

        return schedule

    return join_schedules(
        [between(start, peak_value, first), between(peak_value, end, transition_steps - first)], [first]
    )
