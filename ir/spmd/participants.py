"""The references of collectives on the device that a thread interprets.

While `run_spmd` (`hloom.ir.spmd.interpret`) runs, each thread has a `Participant`, which the references of collectives
look up (`current`). Otherwise a program runs on one device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.ir.interpret import evaluate
from hloom.ir.records import record
from hloom.ir.spmd.groups import device_groups, device_pairs, in_pairs


@record(frozen=True)
class Participant:
    """A device that runs a program. meet(name, group, what, value) -> the values of the group's members, in order;
    `what` must be equal for all of them."""

    number: int
    replicas: int
    partitions: int
    meet: Callable[[str, tuple[int, ...], Any, Any], list]


class _Current(threading.local):
    participant: Participant | None = None


_current = _Current()


def current() -> Participant | None:
    """The device that this thread interprets; None for a program on one device."""
    return _current.participant


def set_current(participant: Participant | None) -> None:
    _current.participant = participant


def exchange(participant: Participant, opcode: str, operands, shape, attributes) -> Any:
    """The result of a collective on one device, once all others of its group have arrived."""
    if opcode == "partition-id":
        return np.asarray(participant.number % participant.partitions, np.uint32)
    if opcode == "replica-id":
        return np.asarray(participant.number // participant.partitions, np.uint32)
    given = tuple(np.asarray(o) for o in operands)
    what = [(o.dtype, o.shape) for o in given], shape
    groups = device_groups(opcode, attributes, participant.replicas, participant.partitions)
    group = next((g for g in groups if participant.number in g), None)
    if group is None:  # a collective-broadcast or -permute may leave devices out
        return np.zeros_like(given[0])
    if opcode == "collective-permute":
        pairs = device_pairs(attributes, participant.replicas, participant.partitions)
        source = {t: s for s, t in pairs}.get(participant.number)
        found = participant.meet(opcode, group, (what, pairs), given)
        return np.zeros_like(given[0]) if source is None else found[group.index(source)][0]
    found = participant.meet(opcode, group, what, given)
    return _RESULTS[opcode](found, group.index(participant.number), shape, attributes)


def _combined(values, to_apply):
    """All values combined pairwise in device order."""

    def combine(x, y):
        return np.asarray(evaluate(to_apply, [x, y], lifted=x.shape)).astype(x.dtype, copy=False)

    return in_pairs(values, combine)


def _all_reduce(found, position, shape, attributes):
    results = [_combined(values, attributes["to_apply"]) for values in zip(*found, strict=True)]
    return results[0] if len(results) == 1 else tuple(results)


def _all_gather(found, position, shape, attributes):
    return np.concatenate([values[0] for values in found], attributes["dimensions"][0])


def _reduce_scatter(found, position, shape, attributes):
    total = _combined([values[0] for values in found], attributes["to_apply"])
    return np.split(total, len(found), attributes["dimensions"][0])[position]


def _all_to_all(found, position, shape, attributes):
    if "dimensions" not in attributes:  # an operand for each participant
        return tuple(values[position] for values in found)
    d = attributes["dimensions"][0]
    return np.concatenate([np.split(values[0], len(found), d)[position] for values in found], d)


def _broadcast(found, position, shape, attributes):
    return found[0][0]


_RESULTS: dict[str, Callable] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
}
