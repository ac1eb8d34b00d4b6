"""Placement rules for `hl.device(rule)`: where the variables and the work of a replicated program go."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hloom.errors import ArgumentError
from hloom.platforms.device import Operation


def replica_device_setter(
    ps_tasks: int = 0,
    *,
    cluster: Mapping[str, Sequence[str]] | Any = None,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker/task:0",
) -> Callable[[Operation], str | None]:
    """The rule that puts variables on the tasks of the parameter servers in turn, and all other operations on a worker.

        with hl.device(replica_device_setter(2, worker_device="/job:worker/task:1")): ...

    cluster: a ClusterSpec or its dict of jobs, in place of ps_tasks. Without parameter servers all is on the worker.
    """
    if cluster is not None:
        jobs = cluster.as_dict() if hasattr(cluster, "as_dict") else dict(cluster)
        ps_tasks = len(jobs.get(ps_device.removeprefix("/job:"), ()))
    if ps_tasks < 0:
        raise ArgumentError("replica_device_setter", f"ps_tasks={ps_tasks}", "pass the number of parameter servers")
    tasks = itertools.cycle(range(ps_tasks)) if ps_tasks else None

    def rule(operation: Operation) -> str | None:
        if operation.type == "variable" and tasks is not None:
            return f"{ps_device}/task:{next(tasks)}"
        return worker_device

    return rule


__all__ = ["replica_device_setter"]
