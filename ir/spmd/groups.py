"""The groups of a collective as device ids.

A device runs one replica of one partition; its id is replica * partitions + partition. The meaning of ids in
`replica_groups` depends on the attributes: with `use_global_device_ids` they are devices; without a channel they are
replicas, and each partition exchanges among its own; with a channel all-reduce, all-gather and reduce-scatter exchange
among those replicas of all partitions, and the other ops among partitions of one replica.

Source: StableHLO specification, "Process grouping strategies".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from hloom.ir.errors import ParticipantsError

T = TypeVar("T")

ALL_PARTITIONS = ("all-reduce", "all-gather", "reduce-scatter")  # with a channel: replicas of every partition


def device_groups(opcode: str, attributes: Mapping, replicas: int, partitions: int) -> tuple[tuple[int, ...], ...]:
    """The groups of devices that exchange values, each in member order.

    For a collective-permute: the whole set that its pairs refer to (`device_pairs`), once for each replica or
    partition. Raises ParticipantsError for an invalid device id.
    """
    if opcode == "collective-permute":
        return tuple(map(_members, _pairs(attributes, replicas, partitions)))
    groups = attributes.get("replica_groups") or ()
    _check(opcode, attributes, [m for g in groups for m in g], replicas, partitions)
    if attributes.get("use_global_device_ids"):
        return tuple(map(tuple, groups)) or (tuple(range(replicas * partitions)),)
    has_channel = (attributes.get("channel_id") or 0) > 0
    if has_channel and opcode not in ALL_PARTITIONS:
        return _partitions_of_each_replica(groups or (tuple(range(partitions)),), replicas, partitions)
    groups = groups or (tuple(range(replicas)),)
    if has_channel:
        return tuple(tuple(r * partitions + p for p in range(partitions) for r in group) for group in groups)
    return tuple(tuple(r * partitions + p for r in group) for group in groups for p in range(partitions))


def _members(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(sorted({member for pair in pairs for member in pair}))


def _partitions_of_each_replica(groups, replicas: int, partitions: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(r * partitions + p for p in group) for group in groups for r in range(replicas))


def device_pairs(attributes: Mapping, replicas: int, partitions: int) -> tuple[tuple[int, int], ...]:
    """The (source, target) devices of a collective-permute."""
    return tuple(pair for pairs in _pairs(attributes, replicas, partitions) for pair in pairs)


def in_pairs(values: Sequence[T], combine: Callable[[T, T], T]) -> T:
    """The values of a group's members combined in the order of all sums over devices: pairwise, as a binary tree. So
    combining both halves of a group separately yields the same bits, and the error of a sum grows with the logarithm of
    the number of members."""
    level = list(values)
    while len(level) > 1:
        level = [combine(*level[k : k + 2]) if k + 1 < len(level) else level[k] for k in range(0, len(level), 2)]
    return level[0]


def _pairs(attributes: Mapping, replicas: int, partitions: int) -> list[list[tuple[int, int]]]:
    pairs = attributes.get("source_target_pairs") or ()
    _check("collective-permute", attributes, [m for p in pairs for m in p], replicas, partitions)
    if attributes.get("use_global_device_ids"):
        return [[(s, t) for s, t in pairs]]
    if (attributes.get("channel_id") or 0) > 0:
        return [[(r * partitions + s, r * partitions + t) for s, t in pairs] for r in range(replicas)]
    return [[(s * partitions + p, t * partitions + p) for s, t in pairs] for p in range(partitions)]


def _check(opcode: str, attributes: Mapping, members, replicas: int, partitions: int) -> None:
    channel = (attributes.get("channel_id") or 0) > 0
    if attributes.get("use_global_device_ids"):
        count, what = replicas * partitions, "devices"
    elif channel and opcode not in ALL_PARTITIONS:
        count, what = partitions, "partitions"
    else:
        count, what = replicas, "replicas"
    highest = max(members, default=0)
    if highest >= count:
        raise ParticipantsError(
            f"{opcode} with participant {highest}",
            f"the program runs on {count} {what}",
            "give the module as many, or check the groups",
        )
