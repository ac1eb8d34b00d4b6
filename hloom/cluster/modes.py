"""`hl.cluster.fit`: one training program, and one argument that says how several workers run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from hloom import distributed, training
from hloom.checkpoints import Manager
from hloom.cluster.parameters import Assignment, ParameterServers
from hloom.cluster.report import Report
from hloom.cluster.spec import ClusterSpec, TaskFile, own_task
from hloom.cluster.strategies import AllReduce, Loss, Servers, Towers
from hloom.distributed.environment import started_processes
from hloom.errors import ArgumentError
from hloom.optim import GradientTransformation
from hloom.platforms.device import local_devices
from hloom.training.loop import Result
from hloom.training.state import TrainState

Mode = Literal["sync", "async", "towers"]
MODES = ("sync", "async", "towers")


def worker() -> int:
    """The number of this worker in its job; 0 in a program that runs alone."""
    told = own_task()
    if told is not None and told.job != "all":
        return told.index
    return _meet()[0]


def workers() -> int:
    """How many workers the job has; 1 in a program that runs alone."""
    told = own_task()
    if told is not None and told.job != "all":
        return len(told.jobs["worker"])
    return _meet()[1]


def _meet() -> tuple[int, int]:
    """The number of this process among those that were started together, and how many they are."""
    if started_processes() > 1 and not distributed.is_initialized():
        distributed.initialize()
    return (distributed.group().index, distributed.group().count) if distributed.is_initialized() else (0, 1)


def fit(
    state: TrainState,
    loss: Loss,
    optimizer: GradientTransformation,
    data: Any,
    *,
    mode: Mode = "sync",
    steps: int | None = None,
    epochs: int | None = None,
    checkpoints: str | os.PathLike | None = None,
    checkpoint_every: int = 100,
    cluster: ClusterSpec | None = None,
    task: int | None = None,
    backup: int = 0,
    staleness: int | None = None,
    assign: Assignment | Callable = "round_robin",
    elastic: bool = False,
    devices: Sequence | None = None,
    callbacks: Iterable[Any] = (),
    **options: Any,
) -> Result:
    """Trains a model with several workers. Each of them runs this program, with its own part of the data.

    state: `TrainState.of(model, optimizer)`, the same everywhere. loss: loss(model, batch) -> a scalar, or (a scalar, a
    dict of scalar metrics). data: this worker's batches, as for `hl.training.fit`; `hl.cluster.worker()` and
    `hl.cluster.workers()` determine this worker's part. steps, epochs: where to end, counted from the very first step.

    mode: "sync": each step averages the gradients of all workers, by MPI; with parameter servers, by these. "async":
    each worker updates the variables on parameter servers independently. "towers": one process computes parts of each
    batch on several devices (`devices`, of tasks of a cluster too).

    checkpoints: a folder shared by all workers; they write one checkpoint together, and resume from the last complete
    one. Parameter servers save the variables themselves, every `checkpoint_every` updates, in separate folders.

    For parameter servers: cluster and task, unless set by `hloom cluster submit`; backup: how many workers a step does
    not wait for (their late gradients are dropped, by step number); staleness: how many steps an asynchronous worker
    may be ahead of the slowest; assign: 'round_robin', 'bytes' or a function (see `hloom.cluster.parameters.assigned`);
    elastic: workers that have left are not waited for.

    The other options are those of `hl.training.fit`. Raises ArgumentError, DistributedError, and the errors of `fit`.
    """
    told = own_task()
    spec = cluster if cluster is not None else (told.spec() if told is not None and "ps" in told.jobs else None)
    if told is not None:
        checkpoints = told.folder if checkpoints is None else checkpoints
        backup, elastic = backup or told.options.get("backup", 0), elastic or told.options.get("elastic", False)
    _check_mode(mode, spec is not None, backup, staleness)
    callbacks = list(callbacks)
    common = {"epochs": epochs, "steps": steps, **options}
    if mode != "towers" and spec is not None:
        number = worker() if task is None else task
        return _with_servers(
            state, loss, data, common, callbacks, told,
            ParameterServers(
                spec, state.model, optimizer, worker=number, workers=spec.num_tasks("worker"), assign=assign,
                synchronous=mode == "sync", required=spec.num_tasks("worker") - backup, staleness=staleness,
                elastic=elastic, save_every=checkpoint_every,
            ),
        )  # fmt: skip
    step: Any
    if mode == "towers":
        step = Towers(loss, optimizer, devices if devices is not None else _local_devices())
    else:
        _meet()
        step = AllReduce(loss, optimizer)
    manager = None
    if checkpoints is not None:
        manager = Manager(checkpoints, keep=3)  # one checkpoint of all processes
        common["checkpoint_every"] = checkpoint_every
    return training.fit(state, step, data, checkpoints=manager, callbacks=[*callbacks, Report(step, told)], **common)


def _check_mode(mode: str, has_servers: bool, backup: int, staleness: int | None) -> None:
    """Raises ArgumentError for options that a mode does not have."""
    if mode not in MODES:
        raise ArgumentError("mode= of a cluster fit", repr(mode), f"pass one of {', '.join(map(repr, MODES))}")
    if mode == "async" and not has_servers:
        raise ArgumentError(
            "asynchronous training keeps its variables on parameter servers", "there is no cluster",
            "hloom cluster submit --ps 1 ..., or pass cluster= and task=",
        )  # fmt: skip
    if backup and (not has_servers or mode != "sync"):
        raise ArgumentError(
            f"backup={backup}", "gradients of backup workers are dropped by parameter servers in mode='sync'",
            "add parameter servers (--ps 1), or leave out backup=",
        )  # fmt: skip
    if staleness is not None and mode != "async":
        raise ArgumentError(f"staleness={staleness}", f"mode={mode!r} has no stale gradients", "leave it out")


def _local_devices() -> list[str]:
    return [str(device) for device in local_devices(backend="cpu")]


def _with_servers(
    state: TrainState, loss: Loss, data, common: dict, callbacks: list, told: TaskFile | None,
    servers: ParameterServers,
) -> Result:  # fmt: skip
    epochs, steps = common.pop("epochs"), common.pop("steps")
    if steps is None:
        raise ArgumentError("training with parameter servers ends after a number of steps", "steps=None", "pass steps=")
    start = servers.start()
    step = Servers(loss, servers)
    try:
        state = state._replace(step=np.asarray(start, np.int32))
        if start >= steps:
            state = state._replace(model=servers.pull())
            return Result(state, start, 0, {}, [], "steps")
        ends = _UntilStep(steps)
        batches = _batches(data, start, epochs)
        if servers.worker:  # one worker shows the progress of all
            common["progress"] = False
        result = training.fit(state, step, batches, callbacks=[*callbacks, Report(step, told, start), ends], **common)
        result.step = int(result.state.step)
        result.state = result.state._replace(model=servers.pull())
        return result
    finally:
        servers.leave()


class _UntilStep(training.Callback):
    """Ends at a step of the job; a backup worker that was late has skipped some."""

    def __init__(self, steps: int):
        self._steps = steps

    def on_step(self, loop) -> None:
        if int(loop.state.step) >= self._steps:
            loop.stop("steps")


def _batches(data, start: int, epochs: int | None) -> Iterator:
    """The batches from a step on, epoch after epoch."""
    epoch, skipped = 0, 0
    while epochs is None or epoch < epochs:
        found = False
        for batch in data(epoch) if callable(data) else data:
            found = True
            if skipped < start:
                skipped += 1
                continue
            yield batch
        if not found or isinstance(data, Iterator):
            return
        epoch += 1


__all__ = ["fit", "worker", "workers"]
