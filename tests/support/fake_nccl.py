"""NCCL without a GPU: the functions of `nccl.bindings.nccl` that hloom calls, on the memory of the fake driver.

What a communicator is asked for is done when the streams of all members get there; sums are NumPy's, rank by rank.
Calls are recorded in `calls`; `inject(name, status)` makes the next call of a function fail. What NCCL does not forgive
is noted in the driver's `violations`: a call after the end of its communicator, a collective outside of a group that
some members of this process do not join, members that disagree, a send that nobody receives. `leaks()` lists
communicators that were not given back.

A communicator among processes reaches the members elsewhere through `remote(key, own)`, a function that exchanges what
members post; without it these never come, as if their processes had died.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from fake_cuda_model import Stream, Work, reads, writes

TYPES = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64,
         ml_dtypes.bfloat16]  # fmt: skip
OPERATIONS = [np.add, np.multiply, np.maximum, np.minimum]


class NCCLError(Exception):
    def __init__(self, status: int):
        super().__init__(f"status {status}")
        self.status = status


class UniqueId:
    def __init__(self, data: bytes = bytes(128)):
        self.data = bytes(data)
        self.ptr = id(self)
        _ids[self.ptr] = self

    @classmethod
    def from_buffer(cls, data) -> UniqueId:
        assert len(data) == 128
        return cls(data)

    def __bytes__(self) -> bytes:
        return self.data


_ids: dict[int, UniqueId] = {}


class Config:
    def __init__(self):
        self.blocking = None
        self.ptr = id(self)
        _configs[self.ptr] = self


_configs: dict[int, Config] = {}


@dataclass
class Clique:
    """What the members of one group have in common."""

    key: tuple
    size: int
    members: dict[int, Comm] = field(default_factory=dict)
    posted: dict[int, list] = field(default_factory=dict)  # by rank: the operations of the group call


@dataclass(eq=False)
class Comm:
    clique: Clique
    rank: int
    gpu: int
    blocking: bool
    state: int = 0
    alive: bool = True


@dataclass
class Operation:
    kind: str
    source: int
    target: int
    count: int  # of the operand; of a reduce_scatter of the result
    dtype: np.dtype
    extra: int = 0  # the reduction, the root or the peer
    stream: object = None


class _Asked(threading.local):
    """What a thread has asked for in its open group, and how many groups are open."""

    def __init__(self):
        self.group: list = []
        self.depth = 0


class FakeNccl:
    """The module. driver: the fake driver. remote: as above."""

    NCCLError, UniqueId, Config = NCCLError, UniqueId, Config

    def __init__(self, driver, remote=None, process: int = 0):
        self.driver, self.remote, self.process = driver, remote, process
        self.calls: list[tuple] = []
        self.cliques: dict[tuple, Clique] = {}
        self.comms: list[Comm] = []
        self.failures: dict[str, int] = {}
        self._local = _Asked()
        self._count = 0

    def inject(self, name: str, status: int) -> None:
        self.failures[name] = status

    def leaks(self) -> list[str]:
        return [f"rank {c.rank} of {c.clique.key}" for c in self.comms if c.alive]

    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]

    def _enter(self, name: str, *facts) -> None:
        self.calls.append((name, *facts))
        if (status := self.failures.pop(name, None)) is not None:
            raise NCCLError(status)

    def _violation(self, text: str) -> None:
        self.driver.violations.append(f"NCCL: {text}")

    # --- what there is ---

    def get_version(self) -> int:
        return 23203

    def get_error_string(self, status: int) -> str:
        return f"the fake NCCL's words for {status}"

    def get_unique_id(self) -> UniqueId:
        self._enter("get_unique_id")
        self._count += 1
        return UniqueId(f"{self.process}.{self._count}".encode().ljust(128, b"\0"))

    def comm_init_rank_config(self, size: int, unique_id: int, rank: int, config: int) -> Comm:
        self._enter("comm_init_rank_config", size, rank)
        return self._member((_ids[unique_id].data.rstrip(b"\0"),), size, rank, config)

    def _member(self, key: tuple, size: int, rank: int, config: int) -> Comm:
        clique = self.cliques.setdefault(key, Clique(key, size))
        gpu = self.driver.need_context()
        made = Comm(clique, rank, gpu, bool(_configs[config].blocking))
        if rank in clique.members or any(c.gpu == gpu for c in clique.members.values()) or rank >= size:
            raise NCCLError(5)
        clique.members[rank] = made
        self.comms.append(made)
        return made

    def comm_split(self, comm: Comm, color: int, key: int, config: int) -> Comm | None:
        """key is the rank in the part, as hloom counts; the size is known at the end of the group."""
        self._enter("comm_split", comm.rank, color, key)
        if self.driver.need_context() != comm.gpu:
            self._violation("a communicator is divided in another GPU's context")
        if color < 0:
            return None
        turn = comm.clique.posted.setdefault(-1 - comm.rank, [])
        turn.append(color)
        made = self._member((*comm.clique.key, len(turn), color), 1 << 30, key, config)
        return made

    def comm_get_async_error(self, comm: Comm) -> int:
        return comm.state

    def comm_destroy(self, comm: Comm) -> None:
        self._end("comm_destroy", comm)

    def comm_abort(self, comm: Comm) -> None:
        self._end("comm_abort", comm)

    def _end(self, name: str, comm: Comm) -> None:
        self._enter(name, comm.rank)
        if not comm.alive:
            self._violation(f"{name} of a communicator that has ended")
        comm.alive = False

    # --- groups ---

    def group_start(self) -> None:
        self._enter("group_start")
        self._local.depth += 1

    def group_end(self) -> None:
        self._local.depth -= 1
        found, self._local.group = self._local.group, []
        self._enter("group_end", len(found))
        self._post(found)

    def _ask(self, comm: Comm, operation: Operation, stream: int) -> None:
        self._enter(operation.kind, comm.rank, operation.count, stream)
        operation.stream = self.driver.thing(stream, Stream)
        if not comm.alive:
            self._violation(f"{operation.kind} on a communicator that has ended")
        if operation.stream.gpu != comm.gpu or self.driver.need_context() != comm.gpu:
            self._violation(f"{operation.kind} of GPU {comm.gpu} on another GPU's stream or context")
        self._local.group.append((comm, operation))
        if not self._local.depth:
            found, self._local.group = self._local.group, []
            self._post(found)

    def _post(self, found: list) -> None:
        by_clique: dict[int, dict[int, list[Operation]]] = {}
        cliques = {}
        for comm, operation in found:
            cliques[id(comm.clique)] = comm.clique
            by_clique.setdefault(id(comm.clique), {}).setdefault(comm.rank, []).append(operation)
        for name, posted in by_clique.items():
            clique = cliques[name]
            missing = set(clique.members) - set(posted)
            if missing and not all(o.kind in ("send", "recv") for ops in posted.values() for o in ops):
                self._violation(f"members {sorted(missing)} of this process are not in the group call")
            Joint(self, clique, posted).enqueue()

    # --- collectives ---

    def all_reduce(self, source, target, count, dtype, op, comm, stream):
        self._ask(comm, Operation("all_reduce", source, target, count, np.dtype(TYPES[dtype]), op), stream)

    def reduce_scatter(self, source, target, count, dtype, op, comm, stream):
        self._ask(comm, Operation("reduce_scatter", source, target, count, np.dtype(TYPES[dtype]), op), stream)

    def all_gather(self, source, target, count, dtype, comm, stream):
        self._ask(comm, Operation("all_gather", source, target, count, np.dtype(TYPES[dtype])), stream)

    def broadcast(self, source, target, count, dtype, root, comm, stream):
        self._ask(comm, Operation("broadcast", source, target, count, np.dtype(TYPES[dtype]), root), stream)

    def send(self, source, count, dtype, peer, comm, stream):
        self._ask(comm, Operation("send", source, 0, count, np.dtype(TYPES[dtype]), peer), stream)

    def recv(self, target, count, dtype, peer, comm, stream):
        self._ask(comm, Operation("recv", 0, target, count, np.dtype(TYPES[dtype]), peer), stream)


class Joint:
    """The operations of one group call on one clique. They are done when all streams have come to them."""

    def __init__(self, nccl: FakeNccl, clique: Clique, posted: dict[int, list[Operation]]):
        self.nccl, self.clique, self.posted, self.done = nccl, clique, posted, False
        self.marks: list[Work] = []

    def sizes(self, operation: Operation) -> tuple[int, int]:
        """Bytes that it reads and writes."""
        size, n = len(self.everyone), operation.count * operation.dtype.itemsize
        return {"all_reduce": (n, n), "reduce_scatter": (n * size, n), "all_gather": (n, n * size),
                "broadcast": (n, n), "send": (n, 0), "recv": (0, n)}[operation.kind]  # fmt: skip

    @property
    def everyone(self) -> list[int]:
        return sorted(self.clique.members) if self.clique.size > 1 << 20 else list(range(self.clique.size))

    def enqueue(self) -> None:
        driver = self.nccl.driver
        for operations in self.posted.values():
            for o in operations:
                given, made = self.sizes(o)
                accesses = [reads(o.source, given)] * bool(given) + [writes(o.target, made)] * bool(made)
                handle = next(h for h, t in driver.things.items() if t is o.stream)
                self.marks.append(driver.enqueue(handle, accesses, None, o.kind))
                driver.enqueue(handle, [], self.run, o.kind)

    def run(self) -> None:
        if self.done:
            return
        self.done = True
        for mark in self.marks:
            mark.stream.run_to(mark)
        data = {
            rank: [(o.kind, o.count, o.dtype.str, o.extra, self._bytes(o)) for o in operations]
            for rank, operations in self.posted.items()
        }
        if len(data) < len(self.everyone) and self.nccl.remote is not None:
            data = self.nccl.remote(self.clique.key, data)
        if set(data) != set(self.everyone) and not all(d[0] in ("send", "recv") for ds in data.values() for d in ds):
            return  # the others never come
        results = self._results(data)
        for rank, operations in self.posted.items():
            for k, o in enumerate(operations):
                if (found := results.get((rank, k))) is not None:
                    self.nccl.driver.view(o.target, found.nbytes)[...] = found.view(np.uint8).reshape(-1)

    def _bytes(self, o: Operation) -> bytes:
        given, _ = self.sizes(o)
        return self.nccl.driver.view(o.source, given).tobytes() if given else b""

    def _results(self, data: dict) -> dict[tuple[int, int], np.ndarray]:
        found: dict[tuple[int, int], np.ndarray] = {}
        ranks = sorted(data)
        mail: dict[tuple[int, int], list[bytes]] = {}
        for rank in ranks:
            for kind, _, _, peer, given in data[rank]:
                if kind == "send":
                    mail.setdefault((rank, peer), []).append(given)
        for rank in ranks:
            for k, (kind, count, dtype, extra, _) in enumerate(data[rank]):
                if kind == "send":
                    continue
                if kind == "recv":
                    waiting = mail.get((extra, rank))
                    if not waiting:
                        self.nccl._violation(f"rank {rank} receives what rank {extra} does not send")
                        continue
                    given = waiting.pop(0)
                    if len(given) != count:
                        self.nccl._violation(f"rank {rank} receives {count} bytes of {len(given)}")
                    found[rank, k] = np.frombuffer(given, np.uint8)
                    continue
                theirs = [data[r][k] for r in ranks]
                if len({t[:4] for t in theirs}) > 1:
                    self.nccl._violation(f"members disagree: {[t[:4] for t in theirs]}")
                    continue
                values = [np.frombuffer(t[4], _dtype(dtype)) for t in theirs]
                found[rank, k] = _combined(kind, values, extra, ranks.index(rank))
        if any(waiting for waiting in mail.values()):
            self.nccl._violation("something was sent that nobody receives")
        return found


def _dtype(text: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if text == np.dtype(ml_dtypes.bfloat16).str else np.dtype(text)


def _combined(kind: str, values: list[np.ndarray], extra: int, rank: int) -> np.ndarray:
    if kind == "all_gather":
        return np.concatenate(values)
    if kind == "broadcast":
        return values[extra]
    total = values[0]
    for value in values[1:]:
        total = OPERATIONS[extra](total, value)
    return total if kind == "all_reduce" else np.split(total, len(values))[rank]
