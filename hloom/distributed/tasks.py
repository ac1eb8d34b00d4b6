"""The names of processes: a process is a task of a job, `/job:worker/task:1`, as in TensorFlow's clusters."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hloom.errors import DistributedError

DEFAULT_JOB = "worker"


def tasks_of_cluster(cluster: Any) -> list[tuple[str, int]]:
    """The tasks of a cluster, job by job: a mapping from the names of jobs to how many tasks they have, to the
    addresses of these (a list, or a mapping by the number of the task), or an object whose `as_dict()` returns one.

    Raises DistributedError.
    """
    given = cluster.as_dict() if hasattr(cluster, "as_dict") else cluster
    if not isinstance(given, Mapping) or not given:
        raise _bad(cluster, "a cluster maps the names of jobs to their tasks")
    found = []
    for job, tasks in given.items():
        if not isinstance(job, str) or not re.fullmatch(r"\w+", job):
            raise _bad(cluster, f"{job!r} is not a job name: letters, digits and underscores")
        if isinstance(tasks, int) and not isinstance(tasks, bool) and tasks >= 0:
            numbers: list = list(range(tasks))
        elif isinstance(tasks, Mapping):
            numbers = sorted(tasks)
        elif isinstance(tasks, Sequence) and not isinstance(tasks, str):
            numbers = list(range(len(tasks)))
        else:
            raise _bad(cluster, f"the tasks of {job!r} are {tasks!r}")
        found += [(job, int(number)) for number in numbers]
    return found


def _bad(cluster, found: str) -> DistributedError:
    return DistributedError(
        f"the cluster {cluster!r:.200}",
        found,
        'write it as {"ps": 1, "worker": 2}, or with the addresses of the tasks: {"ps": ["host:2222"], ...}',
    )


def assigned(claims: Sequence[tuple[str | None, int | None]], cluster: Sequence[tuple[str, int]] | None):
    """The task of each process: the claimed one, or the first free task. claims: (job, task) of each process, with None
    for an unspecified entry. cluster: all tasks; None: those that are claimed.

    Raises DistributedError if two processes are one task, a task does not exist, or has no process.
    """
    if cluster is not None and len(cluster) != len(claims):
        raise DistributedError(
            f"a cluster of {len(cluster)} tasks",
            f"{len(claims)} processes",
            f"start as many processes as it has tasks: hloom launch -n {len(cluster)} program.py",
        )
    taken = [(job or DEFAULT_JOB, task) for job, task in claims if task is not None]
    for k, count in Counter(taken).items():
        if count > 1:
            raise DistributedError(
                "a task for each process", f"{count} processes are /job:{k[0]}/task:{k[1]}", "number them by job"
            )
    found: list[tuple[str, int]] = []
    for job, task in claims:
        found.append((job or DEFAULT_JOB, task) if task is not None else _left(job, claims, [*taken, *found], cluster))
    if cluster is not None:
        _check_places(found, cluster)
    return found


def _left(job: str | None, claims: Sequence, taken: list[tuple[str, int]], cluster) -> tuple[str, int]:
    """The first free task for a process of a job, or of any (None). An index beyond all tasks if the cluster has none
    left."""
    if cluster is not None:
        left = [t for t in cluster if t not in taken and job in (None, t[0])]
        return left[0] if left else (job or DEFAULT_JOB, len(claims))
    name = job or DEFAULT_JOB
    numbers = {number for other, number in taken if other == name}
    return name, next(n for n in range(len(claims) + len(taken) + 1) if n not in numbers)


def _check_places(found: list[tuple[str, int]], cluster: Sequence[tuple[str, int]]) -> None:
    """Raises DistributedError for a task that the cluster does not have."""
    for job, task in found:
        if (job, task) in cluster:
            continue
        names = sorted({name for name, _ in cluster})
        near = difflib.get_close_matches(job, names, 1) or names
        raise DistributedError(
            f"this process is /job:{job}" + (f"/task:{task}" if task < len(found) else ""),
            f"the cluster has {', '.join(f'/job:{j}/task:{t}' for j, t in cluster)}",
            f"name a task of it, such as job={near[0]!r}",
        )


__all__ = ["DEFAULT_JOB", "assigned", "tasks_of_cluster"]
