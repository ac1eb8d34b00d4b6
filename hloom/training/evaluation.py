"""Metrics over all batches of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hloom.errors import ArgumentError
from hloom.training.batch_sizes import sized
from hloom.training.inputs import examples_in


def evaluate(function: Callable[[Any, Any], Any], state: Any, data: Iterable[Any]) -> dict[str, float]:
    """The means of metrics over batches, each weighted by its examples.

    function: function(state, batch) -> a scalar or a dict of scalars; streaming metrics (objects of `hl.metrics`, such
    as AUC) in it are merged over the batches, and computed at the end. One of `hl.jit` is compiled for few sizes of
    batches, as the step of `fit`. Raises ArgumentError for data without batches.

    >>> batches = [hnp.array([1.0, 2.0]), hnp.array([6.0])]
    >>> hl.training.evaluate(lambda state, batch: {"mean": batch.mean()}, None, batches)
    {'mean': 3.0}
    """
    measure, totals = sized(function), dict[str, Any]()
    examples = 0
    for batch in data:
        count = examples_in(batch)
        found = measure(state, batch)
        for name, value in (found if isinstance(found, dict) else {"loss": found}).items():
            if hasattr(value, "merge"):
                totals[name] = totals[name].merge(value) if name in totals else value
            else:
                totals[name] = totals.get(name, 0.0) + count * float(value)
        examples += count
    if not examples:
        raise ArgumentError("evaluate takes the mean over batches", "the data have none", "pass data that can be read")
    return {
        name: float(value.compute()) if hasattr(value, "compute") else value / examples
        for name, value in totals.items()
    }


__all__ = ["evaluate"]
