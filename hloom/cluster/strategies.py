"""Strategies by which several workers train one model: the step of each of them.

A strategy makes a `step(state, batch) -> (state, metrics)` for `hl.training.fit`, on a `TrainState`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import distributed, random
from hloom.cluster.parameters import ParameterServers
from hloom.config import config
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError, DistributedError, ShapeError
from hloom.lax.transfer import device_put
from hloom.nn.module import apply_function
from hloom.optim import GradientTransformation, apply_updates
from hloom.platforms.device import device, find_device
from hloom.training.state import TrainState
from hloom.transforms.gradient import value_and_grad
from hloom.tree import pytrees as tree

Loss = Callable[[Any, Any], Any]
# Seconds that a worker polls for the others without a pause, and more for each byte; and of the pauses after that.
_SPIN, _SPIN_BYTE, _PAUSE = 0.001, 4e-10, 5e-5


def gradient_of(loss: Loss) -> Callable:
    """(gradients, model with the statistics that layers recorded, metrics) of (model, batch, key)."""

    def run(model, batch, key):
        def scalar(model):
            value, updated = apply_function(loss, model, batch, key=key)
            value, metrics = value if isinstance(value, tuple) else (value, {})
            return value, (updated, {**metrics, "loss": value})

        (_, (updated, metrics)), gradients = value_and_grad(scalar, has_aux=True)(model)
        return gradients, updated, metrics

    return run


class AllReduce:
    """Synchronous data-parallel training: the gradients of all processes are averaged by MPI.

    Each process has the whole state. The gradients of a step are one array per dtype, made by the same program that
    computes them; metrics are averaged too. Sums are made in an order that depends on the number of processes only.
    """

    together = True  # all processes make each step

    def __init__(self, loss: Loss, optimizer: GradientTransformation):
        self._compute = gradient_of(loss)
        self._optimizer = optimizer
        self._gradients = jit(self._flat)
        self._update = jit(self._updated, donate_argnums=0)
        self._sums: list[np.ndarray] = []
        self._meta: Any = None
        self.waited = 0.0

    def _flat(self, model, batch, key):
        gradients, updated, metrics = self._compute(model, batch, key)
        leaves, structure = tree.flatten((gradients, metrics))
        # One array per dtype: one message each.
        kinds = sorted({str(leaf.dtype) for leaf in leaves})
        self._meta = structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves], kinds
        flat = [hnp.concatenate([hnp.ravel(x) for x in leaves if str(x.dtype) == kind]) for kind in kinds]
        return flat, updated

    def _updated(self, state: TrainState, model, flat, key):
        structure, shapes, kinds = self._meta
        count = distributed.group().count if distributed.is_initialized() else 1
        mean = {kind: array / count for kind, array in zip(kinds, flat, strict=True)}
        at = dict.fromkeys(kinds, 0)
        leaves = []
        for shape, kind in shapes:
            size = int(np.prod(shape, dtype=np.int64))
            leaves.append(hnp.reshape(mean[kind][at[kind] : at[kind] + size], shape))
            at[kind] += size
        gradients, metrics = tree.unflatten(structure, leaves)
        return _applied(state, model, gradients, self._optimizer, key), metrics

    def __call__(self, state: TrainState, batch):
        key, own = _keys(state, distributed.group().index if distributed.is_initialized() else 0)
        flat, model = self._gradients(state.model, batch, own)
        if distributed.is_initialized() and distributed.group().count > 1:
            flat = [self._sum(k, np.asarray(array)) for k, array in enumerate(flat)]
        return self._update(state, model, flat, key)

    def _sum(self, number: int, own: np.ndarray) -> np.ndarray:
        if number == len(self._sums):
            self._sums.append(np.empty_like(own))
        if self._sums[number].shape != own.shape:
            self._sums[number] = np.empty_like(own)
        started = time.monotonic()
        all_reduce(own, self._sums[number])
        self.waited += time.monotonic() - started
        return self._sums[number]


def all_reduce(own: np.ndarray, total: np.ndarray) -> None:
    """The sum over all processes of an array, in `total`. Raises DistributedError if a process does not come within
    `hl.config.distributed_timeout`."""
    group = distributed.group()
    request = group.communicator.Iallreduce(own, total)
    started = time.monotonic()
    while not request.Test():
        waited = time.monotonic() - started
        if waited > config.distributed_timeout:
            raise DistributedError(
                "the sum of the gradients over all processes",
                f"some of the {group.count} processes did not arrive within {waited:.0f} s",
                "check their status (hloom cluster status), or set hl.config.distributed_timeout",
            )
        # MPI makes progress only while it is polled. Yielding at each poll, instead of switching to short sleeps after
        # a while, would queue behind all other processes of a busy machine.
        if waited > _SPIN + own.nbytes * _SPIN_BYTE:
            time.sleep(_PAUSE)


class Towers:
    """In-graph replication: one program computes the gradients of a part of the batch on each device and averages them.

    devices: of this process, or of tasks of a cluster that it is connected to. variables: the device that keeps the
    state.
    """

    def __init__(self, loss: Loss, optimizer: GradientTransformation, devices: Sequence, variables=None):
        if not devices:
            raise ArgumentError("towers need devices", "devices=[]", "pass at least one, such as ['cpu:0', 'cpu:1']")
        self._compute, self._optimizer = gradient_of(loss), optimizer
        self.devices = [str(find_device(d)) for d in devices]
        self.variables = str(find_device(devices[0] if variables is None else variables))
        self._step = jit(self._whole, donate_argnums=0)
        self.waited = 0.0

    def _whole(self, state: TrainState, batch):
        key, own = _keys(state, 0)
        parts = [tree.map(lambda x, k=k: _part(x, k, len(self.devices)), batch) for k in range(len(self.devices))]
        found = []
        for k, (name, part) in enumerate(zip(self.devices, parts, strict=True)):
            with device(name):
                found.append(self._compute(state.model, part, None if own is None else random.fold_in(own, k)))
        with device(self.variables):
            gradients, metrics = (
                tree.map(lambda *x: sum(x[1:], x[0]) / len(x), *[one[n] for one in found]) for n in (0, 2)
            )
            return _applied(state, found[0][1], gradients, self._optimizer, key), metrics

    def __call__(self, state: TrainState, batch):
        return self._step(device_put(state, self.variables), batch)


class Servers:
    """Between-graph replication: the variables are on parameter servers, each worker has its own program.

    A worker's state is its step and the model that it pulled last.
    """

    def __init__(self, loss: Loss, servers: ParameterServers):
        self._gradients = jit(gradient_of(loss))
        self.servers = servers

    @property
    def waited(self) -> float:
        return self.servers.waited

    def __call__(self, state: TrainState, batch):
        step = int(state.step)
        key, own = _keys(state, self.servers.worker)
        model = self.servers.pull(step)
        gradients, _, metrics = self._gradients(model, batch, own)
        self.servers.push(step, gradients)
        following = self.servers.step() if self.servers.synchronous else step + 1
        return state._replace(step=np.asarray(following, np.int32), model=model, key=key), metrics


def _keys(state: TrainState, worker: int):
    """The key of the next step, the same on all workers, and that of this step's dropout on this worker."""
    if state.key is None:
        return None, None
    key, own = random.split(state.key)
    return key, random.fold_in(own, worker)


def _applied(state: TrainState, model, gradients, optimizer: GradientTransformation, key) -> TrainState:
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, model)
    new = state._replace(step=state.step + 1, model=apply_updates(model, updates), optimizer=optimizer_state, key=key)
    if state.average is not None:
        new = new._replace(average=state.average.update(new.model, state.step))
    return new


def _part(x, number: int, parts: int):
    """A part of a batch along its first dimension."""
    x = hnp.asarray(x)
    if x.ndim == 0 or x.shape[0] % parts:
        raise ShapeError(
            f"a batch for {parts} towers is divided by its first dimension", repr(x._shape),
            f"use batches of a multiple of {parts} examples",
        )  # fmt: skip
    size = x.shape[0] // parts
    return x[number * size : (number + 1) * size]


__all__ = ["AllReduce", "Servers", "Towers", "all_reduce", "gradient_of"]
