"""The variables of a parameter server, which workers pull and push gradients for.

A group is the variables of one model that this server has, with the optimizer's state for them. The optimizer is a
program in text: parameters, state, gradients -> parameters, state. Asynchronously each push is applied on arrival;
synchronously the gradients of a step wait until enough workers have committed theirs, and all servers count the same
first ones. A ledger of (worker, step) makes a repeated push count once; it is saved together with the variables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hloom.checkpoints import Checkpoint, Manager
from hloom.cluster.peers import Peers, say
from hloom.cluster.programs import NoTransfers, Part, read_part
from hloom.cluster.spec import parse_task
from hloom.errors import ArgumentError, DistributedError, HloomError
from hloom.ir.records import field, record

Answer = tuple[dict, Sequence[np.ndarray]]


@record(eq=False)
class Group:
    """names: of the variables. values: theirs, then those of the optimizer's state. step: applied updates. ledger:
    the last counted step of each worker. staged: gradients of steps that are not applied yet. committed: workers in
    order of arrival. active: the active workers, with the client of each."""

    text: str
    names: list[str]
    values: list[np.ndarray]
    update: Part | None
    synchronous: bool
    save_every: int
    manager: Manager | None
    step: int = 0
    saved: int = -1
    ready: bool = False
    failure: str = ""
    save_error: str = ""
    deciding: bool = False
    ledger: dict[int, int] = field(default_factory=dict)
    staged: dict[int, dict[int, list[np.ndarray]]] = field(default_factory=dict)
    committed: dict[int, list[int]] = field(default_factory=dict)
    active: dict[int, str] = field(default_factory=dict)
    late: int = 0
    repeated: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def apply(self, gradients: list[np.ndarray]) -> None:
        """One step of the optimizer: all variables, or none of them."""
        if self.update is not None:
            self.values = self.update.run([*self.values, *gradients], NoTransfers())
        self.step += 1

    def tree(self) -> dict[str, Any]:
        workers = sorted(self.ledger)
        return {
            "values": list(self.values), "step": self.step, "program": self.text,
            "workers": np.array(workers, np.int64), "steps": np.array([self.ledger[w] for w in workers], np.int64),
        }  # fmt: skip

    def save(self, *, wait: bool = False) -> None:
        """Starts to save the variables and the ledger. A failed save is reported and retried with the next one;
        training continues."""
        if self.manager is None or (self.step == self.saved and not self.save_error):
            if wait and self.manager is not None:
                self._try(self.manager.wait)
            return
        manager, step = self.manager, self.step
        if step in manager.steps():
            return
        if self._try(lambda: manager.save(step, self.tree(), wait=wait)):
            self.saved = step

    def _try(self, save: Callable[[], None]) -> bool:
        try:
            save()
        except (HloomError, OSError) as error:
            self.save_error = str(error)
            say(f"the variables were not saved: {error}")
            return False
        self.save_error = ""
        return True

    def restore(self, step: int) -> None:
        """Raises CheckpointError if the model has changed."""
        assert self.manager is not None
        found = Checkpoint(self.manager.path(step)).restore(like=self.tree() | _any_length(self.manager, step))
        self.values = [np.asarray(value) for value in found["values"]]
        self.step = self.saved = int(found["step"])
        self.ledger = dict(zip(found["workers"].tolist(), found["steps"].tolist(), strict=True))
        self.staged, self.committed = {}, {}


def _any_length(manager: Manager, step: int) -> dict:
    """The ledger of a checkpoint, whose length is the number of workers at that time; and its optimizer."""
    found = Checkpoint(manager.path(step)).restore()
    return {name: found[name] for name in ("workers", "steps", "program")}


class VariableStore:
    """The groups of one server."""

    def __init__(self, task: str, peers: Peers, folder=None):
        self._task, self._peers = task, peers
        self._folder = Path(folder) if folder is not None else None
        self._groups: dict[str, Group] = {}
        self._lock = threading.Lock()
        self._waits: dict[int, tuple[str, float]] = {}

    def operations(self) -> dict[str, Callable[[dict, list[np.ndarray]], Answer]]:
        found = (
            self.create, self.restore, self.join, self.leave, self.pull, self.push, self.commit, self.apply, self.turn,
            self.save,
        )  # fmt: skip
        return {f"variables.{one.__name__}": one for one in found}

    # --- the beginning ---

    def create(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """Creates a group, if there is none. The answer tells which steps are saved."""
        name = str(header["group"])
        with self._lock:
            found = self._groups.get(name)
            if found is None:
                found = self._groups[name] = self._made(name, header, arrays)
            elif found.text != header["program"] or found.names != header["names"]:
                raise DistributedError(
                    f"the variables {name!r} of {self._task}",
                    f"a client made them before, with another model or optimizer ({', '.join(found.names)})",
                    "let all workers run the same program, or restart the servers",
                )
        saved = found.manager.steps() if found.manager is not None else []
        return {"ready": found.ready, "saved": saved, "step": found.step}, ()

    def _made(self, name: str, header: dict, arrays: list[np.ndarray]) -> Group:
        update = Part(read_part(header["program"])) if header["names"] else None
        if update is not None:
            count = len(arrays) + len(header["names"])
            if len(update.parameters) != count or len(update.results) != len(arrays):
                raise ArgumentError(
                    "the program of an optimizer", f"it takes {len(update.parameters)} arrays, not {count}",
                    "lower update(parameters, state, gradients) -> (parameters, state)",
                )  # fmt: skip
            for number, value in enumerate(arrays):
                update.check(number, value)
        manager = Manager(self._folder / name, keep=3) if self._folder is not None else None
        return Group(
            header["program"], list(header["names"]), list(arrays), update, bool(header["synchronous"]),
            int(header["save_every"]), manager,
        )  # fmt: skip

    def restore(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """Lets workers in, after the values of a saved step were restored (None: of none)."""
        group = self._group(header)
        if group is None:
            return {"unknown": True}, ()
        with group.changed:
            if not group.ready:
                if header["step"] is not None:
                    group.restore(int(header["step"]))
                else:
                    group.save()
                group.ready = True
                group.changed.notify_all()
            return {"step": group.step}, ()

    def join(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """A worker joins. Waits until the variables are there."""
        deadline = time.monotonic() + header["timeout"]
        while (group := self._group(header)) is None or not group.ready:
            if time.monotonic() > deadline:
                raise DistributedError(
                    f"the variables {header['group']!r} of {self._task}",
                    f"the first worker did not make them within {header['timeout']:g} s",
                    "look at the log of worker 0",
                )
            if header.get("soon"):
                return {"unknown": True}, ()
            time.sleep(0.02)
        with group.changed:
            worker = int(header["worker"])
            group.active[worker] = str(header.get("client"))
            return {"step": group.step, "next": group.ledger.get(worker, -1) + 1}, ()

    def leave(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        group = self._group(header)
        if group is not None:
            with group.changed:
                group.active.pop(int(header["worker"]), None)
                group.changed.notify_all()
        return {}, ()

    def left(self, client: str) -> None:
        """A client's connection ended: its worker is no longer waited for."""
        for group in list(self._groups.values()):
            with group.changed:
                for worker in [w for w, c in group.active.items() if c == client]:
                    del group.active[worker]
                group.changed.notify_all()

    def _group(self, header: dict) -> Group | None:
        return self._groups.get(str(header["group"]))

    # --- training ---

    def pull(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """The current values of the variables."""
        group = self._group(header)
        if group is None or not group.ready:
            return {"unknown": True}, ()
        with group.changed:
            return {"step": group.step}, group.values[: len(group.names)]

    def push(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """The gradients of a step of a worker. Asynchronously they are applied immediately, and repeats are ignored; in
        synchronous training they wait for `commit`."""
        group = self._group(header)
        if group is None or not group.ready:
            return {"unknown": True}, ()
        worker, step = int(header["worker"]), int(header["step"])
        self._check(group, arrays)
        with group.changed:
            if group.synchronous:
                if step < group.step:
                    return {"counted": False, "late": True}, ()
                group.staged.setdefault(step, {})[worker] = arrays
                return {"counted": True}, ()
            if step <= group.ledger.get(worker, -1):
                group.repeated += 1
                return {"counted": False}, ()
            group.apply(arrays)
            group.ledger[worker] = step
            if group.save_every and group.step % group.save_every == 0:
                group.save()
            group.changed.notify_all()
            return {"counted": True}, ()

    def _check(self, group: Group, arrays: list[np.ndarray]) -> None:
        if group.update is None:
            return
        first = len(group.values)
        if len(arrays) != len(group.names):
            raise ArgumentError(
                f"gradients for {len(group.names)} variables", f"{len(arrays)} arrays", "push one for each"
            )
        for number, gradient in enumerate(arrays):
            group.update.check(first + number, gradient)

    def commit(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """A worker has pushed its gradients of a step to all servers. Waits until the step is applied, by the first
        `required` workers to arrive. Only called on the first server."""
        group = self._group(header)
        if group is None or not group.ready:
            return {"unknown": True}, ()
        worker, step, deadline = int(header["worker"]), int(header["step"]), time.monotonic() + header["timeout"]
        with group.changed:
            if step < group.step:
                group.late += 1
                return {"counted": False, "step": group.step}, ()
            came = group.committed.setdefault(step, [])
            if worker not in came:
                came.append(worker)
            group.changed.notify_all()
            while group.step <= step:
                self._decide(group, step, header)
                if group.step <= step:
                    self._wait(group, deadline, f"step {step}", self._missing(group, step, header))
            counted = group.ledger.get(worker, -1) >= step
            group.late += not counted
            return {"counted": counted, "step": group.step}, ()

    def _required(self, group: Group, header: dict) -> int:
        required = int(header["required"])
        return max(min(required, len(group.active)), 1) if header.get("elastic") else required

    def _missing(self, group: Group, step: int, header: dict) -> str:
        came = group.committed.get(step, [])
        others = [w for w in range(int(header["workers"])) if w not in came]
        return f"worker {', '.join(map(str, others))}" if others else self._task

    def _decide(self, group: Group, step: int, header: dict) -> None:
        """Applies a step on all servers, once enough workers have come. Called with the group locked."""
        came, required = group.committed.get(step, []), self._required(group, header)
        if group.deciding or step != group.step or len(came) < required:
            return
        group.deciding = True
        workers = sorted(came[:required])
        message = {"op": "variables.apply", "group": header["group"], "step": step, "workers": workers}
        group.changed.release()
        try:
            # Two phases are not needed: a server that fails here ends the job, which resumes from a saved step.
            for server in header["servers"]:
                if server != self._task:
                    self._peers.attached(parse_task(server)).request(message, (), header["timeout"])
        except DistributedError as error:
            group.failure = f"step {step} was not applied everywhere: {error.asked}: {error.found}"
        finally:
            group.changed.acquire()
            group.deciding = False
        if not group.failure:
            self._apply(group, step, workers)
        group.changed.notify_all()

    def apply(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """The first server has decided which workers count in a step."""
        group = self._group(header)
        if group is None:
            return {"unknown": True}, ()
        with group.changed:
            self._apply(group, int(header["step"]), [int(w) for w in header["workers"]])
        return {}, ()

    @staticmethod
    def _apply(group: Group, step: int, workers: list[int]) -> None:
        if step < group.step:
            return  # a repeat
        staged = group.staged.pop(step, {})
        missing = [w for w in workers if w not in staged]
        if missing or step > group.step:
            raise DistributedError(
                f"the gradients of step {step} from workers {workers}",
                f"this server is at step {group.step} and lacks those of {missing}",
                "restart the job from its last checkpoint",
            )
        # In order of the workers' indices, so that the result does not depend on arrival order.
        sums = [np.array(g) for g in staged[workers[0]]]
        for worker in workers[1:]:
            for total, gradient in zip(sums, staged[worker], strict=True):
                total += gradient
        for total in sums:
            total *= np.asarray(1 / len(workers), total.dtype)
        group.apply(sums)
        group.ledger.update(dict.fromkeys(workers, step))
        for old in [s for s in group.staged if s < group.step]:
            del group.staged[old]
        for old in [s for s in group.committed if s < group.step]:
            del group.committed[old]
        if group.save_every and group.step % group.save_every == 0:
            group.save()
        group.changed.notify_all()

    def turn(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """Bounded staleness: waits until no active worker is more than `staleness` steps behind this one."""
        group = self._group(header)
        if group is None or not group.ready:
            return {"unknown": True}, ()
        worker, step, bound = int(header["worker"]), int(header["step"]), int(header["staleness"])
        deadline, started = time.monotonic() + header["timeout"], time.monotonic()

        def behind() -> list[int]:
            return [w for w in group.active if w != worker and step - (group.ledger.get(w, -1) + 1) > bound]

        with group.changed:
            while slow := behind():
                self._wait(group, deadline, f"step {step}", f"worker {', '.join(map(str, slow))}")
        return {"seconds": time.monotonic() - started}, ()

    def _wait(self, group: Group, deadline: float, what: str, whom: str) -> None:
        if group.failure:
            raise DistributedError(what, group.failure, "restart the job from its last checkpoint")
        left, me = deadline - time.monotonic(), threading.get_ident()
        if left <= 0:
            raise DistributedError(what, f"{whom} did not arrive", "look at the log of that worker")
        self._waits.setdefault(me, (whom, time.monotonic()))
        try:
            group.changed.wait(min(left, 1.0))
        finally:
            self._waits.pop(me, None)

    # --- contents ---

    def save(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        group = self._group(header)
        if group is None:
            return {"unknown": True}, ()
        with group.changed:
            group.save(wait=True)
            return {"step": group.saved, "problem": group.save_error}, ()

    def waits(self) -> list[dict]:
        now = time.monotonic()
        return [{"for": w, "seconds": round(now - s, 3)} for w, s in list(self._waits.values())]

    def status(self) -> dict:
        return {
            "variables": {
                name: {
                    "step": g.step, "saved": g.saved, "workers": sorted(g.active), "late": g.late,
                    "repeated": g.repeated, "save_error": g.save_error, "bytes": sum(v.nbytes for v in g.values),
                }
                for name, g in list(self._groups.items())
            }
        }  # fmt: skip

    def unsaved(self) -> str:
        """Why the last save of a group failed; '' if none did."""
        return next((group.save_error for group in list(self._groups.values()) if group.save_error), "")

    def close(self) -> None:
        """Saves unsaved updates."""
        for group in list(self._groups.values()):
            with group.changed:
                if group.ready and not group.synchronous:
                    group.save(wait=True)
                elif group.manager is not None:
                    group._try(group.manager.wait)


__all__ = ["Group", "VariableStore"]
