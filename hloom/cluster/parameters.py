"""A worker's view of parameter servers: where each variable is, pulls and pushes, and what happens when one dies."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from hloom.cluster.peers import Peer, Peers, say
from hloom.cluster.spec import ClusterSpec, Task
from hloom.cluster.wire import PeerLost
from hloom.config import config
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError, DistributedError
from hloom.ir.text import print_module
from hloom.ir.types import FLOATS
from hloom.optim import GradientTransformation, apply_updates
from hloom.tree import pytrees as tree

Assignment = Literal["round_robin", "bytes"]


def assigned(sizes: Sequence[int], servers: int, how: Assignment | Callable[[Sequence[int], int], Sequence[int]]):
    """The server of each variable. sizes: bytes of the variables in their order.

    'round_robin': one after the other, as TensorFlow's replica_device_setter does. 'bytes': the largest first, each to
    the server that has the fewest bytes so far. Or a function of (sizes, servers). Raises ArgumentError.
    """
    if how == "round_robin":
        return [k % servers for k in range(len(sizes))]
    if how == "bytes":
        loads, found = [0] * servers, [0] * len(sizes)
        for k in sorted(range(len(sizes)), key=lambda k: (-sizes[k], k)):
            found[k] = loads.index(min(loads))
            loads[found[k]] += sizes[k]
        return found
    if not callable(how):
        raise ArgumentError("assign= of variables", repr(how), "pass 'round_robin', 'bytes' or a function")
    found = [int(k) for k in how(sizes, servers)]
    if len(found) != len(sizes) or not all(0 <= k < servers for k in found):
        raise ArgumentError(
            f"assign= returns a server from 0 to {servers - 1} for each of {len(sizes)} variables", f"{found}"[:100],
            "return one number for each",
        )  # fmt: skip
    return found


class _Share:
    """The variables of one server. numbers: their indices in the model. text: the optimizer's program for them."""

    def __init__(
        self, peer: Peer, numbers: list[int], names: list[str], leaves: list, optimizer: GradientTransformation
    ):
        self.peer, self.numbers = peer, numbers
        self.names = [names[k] for k in numbers]
        values = [leaves[k] for k in numbers]
        self.text, self.initial = "", [np.asarray(v) for v in values]
        if values:
            state = optimizer.init(values)

            def update(parameters, state, gradients):
                updates, state = optimizer.update(gradients, state, parameters)
                return apply_updates(parameters, updates), state

            self.text = print_module(jit(update).lower(values, state, values).module)
            self.initial += [np.asarray(leaf) for leaf in tree.leaves(state)]


class ParameterServers:
    """The variables of a model on the tasks of a job, for one worker.

    synchronous: gradients are applied when `required` of `workers` have come for a step (the others are backup
    workers), else each as it comes. staleness: of asynchronous training, how many steps a worker may be ahead of the
    slowest; None: any. save_every: applied updates between saves. elastic: workers that left are not waited for.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        model: Any,
        optimizer: GradientTransformation,
        *,
        worker: int,
        workers: int,
        job: str = "ps",
        assign: Assignment | Callable = "round_robin",
        synchronous: bool = False,
        required: int | None = None,
        staleness: int | None = None,
        elastic: bool = False,
        save_every: int = 0,
        group: str = "model",
    ):
        """Raises ArgumentError, DistributedError for a cluster without such a job."""
        self.worker, self.workers, self.group = worker, workers, group
        self.synchronous, self.staleness, self.elastic, self.save_every = synchronous, staleness, elastic, save_every
        self.required = workers if required is None else required
        if not 1 <= self.required <= workers:
            raise ArgumentError(
                f"{self.required} of {workers} workers count in each step", "it is at least 1 and at most all",
                "pass a backup= that is smaller than the number of workers",
            )  # fmt: skip
        leaves, self._structure = tree.flatten(model)
        names = [str(path) for path in tree.paths(model)]
        for name, leaf in zip(names, leaves, strict=True):
            if getattr(leaf, "dtype", None) not in FLOATS:
                raise ArgumentError(
                    f"variable {name} of a parameter server", f"{getattr(leaf, 'dtype', type(leaf).__name__)}",
                    "keep everything but float arrays out of the model",
                )  # fmt: skip
        self._peers = Peers(cluster, f"/job:worker/task:{worker}")
        servers = [Task(job, index) for index in range(cluster.num_tasks(job))]
        self.assigned = assigned([leaf.nbytes for leaf in leaves], len(servers), assign)
        numbers = [[k for k, home in enumerate(self.assigned) if home == s] for s in range(len(servers))]
        self._shares = [
            _Share(self._peers[task], own, names, leaves, optimizer) for task, own in zip(servers, numbers, strict=True)
        ]
        self._servers = [str(task) for task in servers]
        self._pool = ThreadPoolExecutor(len(servers), thread_name_prefix="hloom parameter servers")
        self._lock = threading.Lock()
        self.waited = 0.0  # seconds for other workers
        self.late = 0  # gradients that arrived too late to count

    # --- the beginning ---

    def start(self, timeout: float | None = None) -> int:
        """Waits for the servers, creates the variables if there are none, and joins. Returns the worker's next
        step."""
        seconds = config.distributed_timeout if timeout is None else timeout
        for reached in [self._pool.submit(share.peer.attach, seconds) for share in self._shares]:
            reached.result()
        if self.worker == 0 or not self.synchronous:
            # Asynchronously the first worker may have ended before a server and another worker were started again.
            self._make(self._shares, seconds)
        return self._join(seconds)

    def _make(self, shares: Sequence[_Share], timeout: float) -> None:
        found = [share.peer.request(self._creation(share), share.initial, timeout)[0] for share in shares]
        if all(one["ready"] for one in found):
            return
        chosen: list[int | None] = [max(one["saved"], default=None) for one in found]
        if self.synchronous:  # all servers continue from one step
            common = set(found[0]["saved"]).intersection(*[one["saved"] for one in found])
            chosen = [max(common, default=None)] * len(found)
        for share, step in zip(shares, chosen, strict=True):
            header = {"op": "variables.restore", "group": self.group, "step": step}
            share.peer.request(header, (), timeout)
            if step:
                say(f"the variables of {share.peer.task} continue from step {step}")

    def _creation(self, share: _Share) -> dict:
        return {
            "op": "variables.create", "group": self.group, "names": share.names, "program": share.text,
            "synchronous": self.synchronous, "save_every": self.save_every,
        }  # fmt: skip

    def _join(self, timeout: float) -> int:
        found = [self._joined(share, timeout) for share in self._shares]
        if self.synchronous:
            return max(one["step"] for one in found)
        # Gradients that some servers lack are pushed again; the others count them once.
        return min(one["next"] for one in found)

    def _joined(self, share: _Share, timeout: float) -> dict:
        header = {"op": "variables.join", "group": self.group, "worker": self.worker}
        return share.peer.request(header, (), timeout)[0]

    # --- training ---

    def pull(self, step: int | None = None) -> Any:
        """The current model on the servers. step: the worker's, where staleness is bounded. Raises
        DistributedError."""
        if self.staleness is not None and step is not None:
            started = time.monotonic()
            header = {"op": "variables.turn", "worker": self.worker, "step": step, "staleness": self.staleness}
            self._ask(self._shares[0], header)
            self.waited += time.monotonic() - started
        leaves: list[Any] = [None] * len(self.assigned)
        for share, (_, arrays) in zip(self._shares, self._all({"op": "variables.pull"}), strict=True):
            for number, value in zip(share.numbers, arrays, strict=True):
                leaves[number] = value
        return tree.unflatten(self._structure, leaves)

    def push(self, step: int, gradients: Any) -> bool:
        """Sends the gradients of a step. Whether they count: False for a repeat, and for a late one in synchronous
        training, which waits until the step is applied. Raises DistributedError."""
        leaves = [np.asarray(leaf) for leaf in tree.leaves(gradients)]
        header = {"op": "variables.push", "worker": self.worker, "step": step}
        answers = self._all(header, [[leaves[k] for k in share.numbers] for share in self._shares])
        if not self.synchronous:
            return any(answer["counted"] for answer, _ in answers)
        started = time.monotonic()
        commit = {
            "op": "variables.commit", "worker": self.worker, "step": step, "required": self.required,
            "workers": self.workers, "servers": self._servers, "elastic": self.elastic,
        }  # fmt: skip
        answer, _ = self._ask(self._shares[0], commit)
        self.waited += time.monotonic() - started
        self.late += not answer["counted"]
        return bool(answer["counted"])

    def step(self) -> int:
        """The updates that the first server has applied."""
        return int(self._ask(self._shares[0], {"op": "variables.pull"})[0]["step"])

    def save(self) -> list[int]:
        """Saves the variables now; the step that each server has saved. Raises DistributedError if one could not."""
        answers = [answer for answer, _ in self._all({"op": "variables.save"})]
        for share, answer in zip(self._shares, answers, strict=True):
            if answer["problem"]:
                raise DistributedError(
                    f"the variables of {share.peer.task} are saved", answer["problem"].replace("\n", "; "),
                    "free space on that disk; the servers continue and retry",
                )  # fmt: skip
        return [answer["step"] for answer in answers]

    def leave(self) -> None:
        """Leaves the training: the others no longer wait for this worker."""
        with contextlib.suppress(DistributedError):  # a server that is gone does not wait
            self._all({"op": "variables.leave", "worker": self.worker}, retry=False)
        self._peers.close()
        self._pool.shutdown(wait=False)

    # --- requests, again where a server was restarted ---

    def _all(self, header: dict, arrays: Sequence[Sequence] | None = None, retry: bool = True) -> list[tuple]:
        given = arrays if arrays is not None else [()] * len(self._shares)
        work = [self._pool.submit(self._ask, s, header, a, retry) for s, a in zip(self._shares, given, strict=True)]
        return [one.result() for one in work]

    def _ask(self, share: _Share, header: dict, arrays: Sequence = (), retry: bool = True) -> tuple[dict, list]:
        """Asynchronous training continues when a server comes back, from its last save. Every request may be repeated:
        the ledgers of the servers count a push once."""
        request = header | {"group": self.group}
        deadline = time.monotonic() + config.distributed_timeout
        while True:
            try:
                answer, found = share.peer.request(request, arrays)
                if "unknown" not in answer:
                    return answer, found
                problem = DistributedError(
                    f"the variables {self.group!r} of {share.peer.task}", "the server was restarted",
                    "restart the job: all resume from the last saved step",
                )  # fmt: skip
                if self.synchronous or not retry:
                    raise problem
                self._make([share], config.distributed_timeout)
                self._joined(share, config.distributed_timeout)
            except PeerLost:
                share.peer.detach()
                if self.synchronous or not retry or time.monotonic() > deadline:
                    raise
                share.peer.attach(deadline - time.monotonic())


__all__ = ["ParameterServers", "assigned"]
