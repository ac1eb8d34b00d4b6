"""Handling of non-finite losses: the state before such a step is kept, and the report names the operation.

A step made by `hl.jit` is compiled together with the choice between its new and previous state, so that it may still
donate its state. A donating step that cannot be wrapped loses the previous state.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Literal

import hloom.numpy as hnp
from hloom.config import config
from hloom.dispatch.jit import JitFunction, jit
from hloom.errors import ArgumentError, DonationWarning, NonFiniteError, TreeError
from hloom.training.batch_sizes import sized
from hloom.tree import pytrees as tree

Policy = Literal["stop", "skip", "ignore"]
POLICIES = ("stop", "skip", "ignore")
WATCHED = ("loss", "grad_norm")  # a step whose watched metrics are not finite is a bad one
_wrapped: weakref.WeakKeyDictionary[JitFunction, JitFunction] = weakref.WeakKeyDictionary()


class Step:
    """step(state, batch) -> (state, metrics by name), with the state kept where a watched metric is not finite."""

    def __init__(self, step: Callable[[Any, Any], Any], policy: Policy):
        if not callable(step):
            raise ArgumentError(
                "fit takes a function step(state, batch) -> (state, metrics)",
                type(step).__name__,
                "pass hl.training.train_step(loss, optimizer) or your own function",
            )
        if policy not in POLICIES:
            raise ArgumentError("a policy for losses that are not finite", repr(policy), f"one of {POLICIES}")
        self._step = step
        self._called = False
        self.keeps = False  # whether a bad step returns the state before it
        self._call: Callable = step
        # Whether it overwrites the state that it is given.
        self.donates = isinstance(step, JitFunction) and bool(
            0 in step.options.donate_argnums or step.options.donate_argnames
        )
        if policy != "ignore" and isinstance(step, JitFunction) and _is_plain(step):
            self.keeps = True
            if step not in _wrapped:  # so that a second run with this step compiles nothing
                _wrapped[step] = jit(_guarded(step.function), donate_argnums=0 if self.donates else ())
            self._call = sized(_wrapped[step], begins=True)
        elif policy != "ignore" and not isinstance(step, JitFunction):
            self.keeps = True
            self._call = _kept(step)
        else:
            self._call = sized(step, begins=True)

    def __call__(self, state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        if self._called:
            found = self._call(state, batch)
        else:
            with warnings.catch_warnings():
                # The choice between two states reads buffers that the step alone would overwrite.
                warnings.simplefilter("ignore", DonationWarning)
                found = self._call(state, batch)
            self._called = True
        if not (isinstance(found, tuple) and len(found) == 2):
            raise _wrong_result(found)
        return found[0], named(found[1])

    def explain(self, state: Any, batch: Any) -> str:
        """The operation that made the first NaN or infinity in a step, with the user's line; '' if none did."""
        function = self._step.function if isinstance(self._step, JitFunction) else self._step
        for setting in ("debug_nans", "debug_infs"):  # infinities alone may be meant, as those of masks
            # Without donation: the state is still needed.
            again = jit(lambda state, batch: function(state, batch))
            try:
                with config(**{setting: True}):
                    again(state, batch)
            except NonFiniteError as error:
                return str(error)
            except Exception as error:  # the report is of use without it
                return f"(no operation found: {type(error).__name__}: {error})"
        return ""


def _is_plain(step: JitFunction) -> bool:
    """Whether a jitted step means the same inside of another program."""
    o = step.options
    settled = (o.device, o.target, o.in_shardings, o.out_shardings)
    return all(x is None for x in settled) and not (o.autotune or o.static_argnums or o.static_argnames)


def _guarded(step):
    def guarded(state, batch):
        found = step(state, batch)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise _wrong_result(found)
        new, metrics = found
        good = hnp.asarray(True)
        for name, value in named(metrics).items():
            if name in WATCHED:
                good = hnp.logical_and(good, hnp.isfinite(value))
        if tree.structure(new) != tree.structure(state):
            raise TreeError(
                "a step returns a state of the structure that it was given",
                f"{tree.written(tree.structure(new))}, given {tree.written(tree.structure(state))}",
                "return (state, metrics), the state first",
            )
        return tree.map(lambda a, b: a if a is b else hnp.where(good, a, b), new, state), metrics

    guarded.__name__ = guarded.__qualname__ = getattr(step, "__name__", "step")
    return guarded


def _kept(step):
    """The same for a step that is not an `hl.jit` function: the previous state is held until the metrics are known."""

    def kept(state, batch):
        found = step(state, batch)
        if isinstance(found, tuple) and len(found) == 2:
            metrics = named(found[1])
            if not all(math.isfinite(as_number(name, metrics[name])) for name in WATCHED if name in metrics):
                return state, metrics
        return found

    return kept


def named(metrics: Any) -> dict[str, Any]:
    """Metrics by name; a single scalar is the loss. Raises ArgumentError for others than scalars."""
    found = metrics if isinstance(metrics, dict) else {"loss": metrics}
    for name, value in found.items():
        shape = getattr(value, "shape", () if isinstance(value, (int, float)) else None)
        if shape is None or math.prod(shape) != 1 or not isinstance(name, str):
            raise ArgumentError(
                "a step returns (state, metrics): a scalar loss, or a dict of scalars by name",
                f"{name!r}: {type(value).__name__} {getattr(value, '_shape', '')!r}",
                "take the mean over the batch",
            )
    return found


def as_number(name: str, value: Any) -> float:
    """A metric as a number. Raises ArgumentError."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"the metric {name!r} as a number", f"{value!r:.60}", "return a scalar") from error


def _wrong_result(found) -> ArgumentError:
    kind = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
    return ArgumentError(
        "a step returns (state, metrics): the new state, and a loss or a dict of scalars",
        kind,
        "put everything that changes into one tree: return (model, optimizer_state), loss",
    )


__all__ = ["POLICIES", "WATCHED", "Policy", "Step", "as_number", "named"]
