"""Where operations go: rules for `hl.device(rule)`, and the options of a session."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hloom.config import config
from hloom.errors import ArgumentError, UnsupportedError
from hloom.ir.records import asdict, record
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


@record(frozen=True)
class SessionConfig:
    """The options of a session, under TensorFlow's names.

    log_device_placement: print the device of each operation. allow_soft_placement: operations whose device does not
    exist or has no kernel for them run on cpu:0. None: as set in `hl.config`. allow_growth: hloom takes the memory of a
    GPU as it needs it, so True is the only value. per_process_gpu_memory_fraction: 1.0 is the only value.
    Raises UnsupportedError.
    """

    log_device_placement: bool | None = None
    allow_soft_placement: bool | None = None
    allow_growth: bool = True
    per_process_gpu_memory_fraction: float = 1.0

    def settings(self) -> dict[str, bool]:
        """The settings of `hl.config` that hold while the session runs."""
        if not self.allow_growth or self.per_process_gpu_memory_fraction != 1.0:
            raise UnsupportedError(
                "a share of a GPU's memory for a session",
                f"allow_growth={self.allow_growth}, "
                f"per_process_gpu_memory_fraction={self.per_process_gpu_memory_fraction}",
                "leave both out: memory is taken as it is needed, and none is reserved",
            )
        found = {"log_device_placement": self.log_device_placement, "soft_placement": self.allow_soft_placement}
        return {name: value for name, value in found.items() if value is not None}


def settings_of(given: Any) -> dict[str, bool]:
    """Of `Session(config=...)`: a SessionConfig, a mapping of its fields, or None. Raises ArgumentError,
    UnsupportedError."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        known = asdict(SessionConfig())
        if unknown := next((name for name in given if name not in known), None):
            repair = f"the options are {', '.join(known)}"
            raise ArgumentError("config= of a session", f"the option {unknown!r}", repair)
        given = SessionConfig(**given)
    if not isinstance(given, SessionConfig):
        found = type(given).__name__
        raise ArgumentError("config= of a session", found, "pass SessionConfig(log_device_placement=True)")
    return given.settings()


def within(settings: Mapping[str, bool]) -> contextlib.AbstractContextManager:
    """The scope in which a session with these settings loads and runs."""
    return config(**settings) if settings else contextlib.nullcontext()


__all__ = ["SessionConfig", "replica_device_setter", "settings_of", "within"]
