"""NCCL through NVIDIA's Python package (nccl4py): communicators of groups of GPUs, collectives as work on streams.

    nccl = Nccl(load_nccl())       or of a module that has the same functions
    made = nccl.connect(size, id, {rank: device})      communicators of this process's members, by rank
    nccl.split(made, colors, keys)                     those of parts of the group
    with nccl.group(): nccl.all_reduce(...)            several calls as one

Calls go to `nccl.bindings.nccl`, whose functions are those of nccl.h with addresses as integers. Communicators among
processes are made without blocking, so that a process that does not come can be named when the time is over.

Source: NCCL user guide, "Creating a communicator", "Group calls", "Fault tolerance".
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hloom.ir.records import record
from hloom.ir.types import HLO_NAME
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.errors import CudaLibraryError

# ncclDataType_t and ncclRedOp_t, by the names of HLO.
TYPES = {"s8": 0, "u8": 1, "s32": 2, "u32": 3, "s64": 4, "u64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
OPERATIONS = {"add": 0, "multiply": 1, "maximum": 2, "minimum": 3}
BYTES = TYPES["u8"]
IN_PROGRESS, NO_COLOR = 7, -1
POLL = 0.0005  # seconds
REPAIR = "set NCCL_DEBUG=INFO for NCCL's log, and check that it sees all GPUs"


def load_nccl() -> Any:
    """The module of NCCL's functions. Raises CudaLibraryError if the extra `nccl` is missing."""
    try:
        nccl = importlib.import_module("nccl.bindings.nccl")  # only programs over several GPUs pay for it
        nccl.get_version()  # finds the library
    except (ImportError, OSError, RuntimeError) as error:
        raise CudaLibraryError(
            "a program over several GPUs, which exchange values through NCCL",
            f"no NCCL: {str(error).splitlines()[0]}",
            "pip install 'hloom[nccl]'",
        ) from error
    return nccl


def reduces(combiner: str, dtype: np.dtype) -> bool:
    """Whether NCCL has a reduction with HLO's results. Its maximum of floats may lose a NaN."""
    name = HLO_NAME.get(dtype)
    return combiner in OPERATIONS and name in TYPES and (combiner in ("add", "multiply") or dtype.kind in "iu")


@record(eq=False)
class Communicator:
    """A member of a group: the library's handle, its rank and the size of the group, its GPU."""

    handle: Any
    rank: int
    size: int
    device: Device


class Nccl:
    """module: of `load_nccl`, or one with the same functions."""

    def __init__(self, module: Any):
        self.module = module

    def new_id(self) -> bytes:
        """The unique id by which the members of a new group find each other. Raises CudaLibraryError."""
        return bytes(self._call("an id of a new group", self.module.get_unique_id))

    def connect(
        self, size: int, unique_id: bytes, members: Mapping[int, Device], wait: Callable[[list], None] | None = None
    ) -> list[Communicator]:
        """The communicators of this process's members of a new group, by rank. wait: of non-blocking communicators, as
        `until_ready`; None: blocking. Raises CudaLibraryError."""
        identifier = self.module.UniqueId.from_buffer(bytearray(unique_id))
        config = self._config(wait is not None)
        made = []
        with self.group(f"a group of {size} GPUs"):
            for rank, device in members.items():
                device.open()
                handle = self._call(
                    f"rank {rank} of a group of {size} GPUs", self.module.comm_init_rank_config, size, identifier.ptr,
                    rank, config.ptr,
                )  # fmt: skip
                made.append(Communicator(handle, rank, size, device))
        if wait is not None:
            wait(made)
        return made

    def split(
        self, whole: Sequence[Communicator], places: Sequence[tuple[int, int, int] | None],
        wait: Callable[[list], None] | None = None,
    ) -> list[Communicator | None]:  # fmt: skip
        """Communicators of parts of a group. places: for each given member the index of its part, its rank and the
        part's size; None if it is in no part. Every member of the group takes part. Raises CudaLibraryError."""
        config = self._config(wait is not None)
        made: list[Communicator | None] = []
        with self.group("a group of GPUs was divided"):
            for communicator, place in zip(whole, places, strict=True):
                communicator.device.open()
                color, rank, size = place or (NO_COLOR, 0, 0)
                asked = f"rank {communicator.rank} in a part of a group"
                handle = self._call(asked, self.module.comm_split, communicator.handle, color, rank, config.ptr)
                made.append(None if place is None else Communicator(handle, rank, size, communicator.device))
        if wait is not None:
            wait([*whole, *(c for c in made if c is not None)])
        return made

    def _config(self, non_blocking: bool):
        config = self.module.Config()
        config.blocking = 0 if non_blocking else 1
        return config

    # --- calls ---

    @contextmanager
    def group(self, asked: str = "a group of calls") -> Iterator[None]:
        """Calls inside are one: none waits for another, whatever their order."""
        self._call(asked, self.module.group_start)
        try:
            yield
        except BaseException:
            with contextlib.suppress(self.module.NCCLError):  # only a consequence
                self.module.group_end()
            raise
        self._call(asked, self.module.group_end)

    def all_reduce(self, to: Communicator, source: int, target: int, count: int, dtype: np.dtype, op: str) -> None:
        names = TYPES[HLO_NAME[dtype]], OPERATIONS[op]
        self._on(to, self.module.all_reduce, source, target, count, *names)

    def reduce_scatter(self, to: Communicator, source: int, target: int, count: int, dtype: np.dtype, op: str) -> None:
        """count: elements of the result."""
        names = TYPES[HLO_NAME[dtype]], OPERATIONS[op]
        self._on(to, self.module.reduce_scatter, source, target, count, *names)

    def all_gather(self, to: Communicator, source: int, target: int, nbytes: int) -> None:
        """nbytes: of the operand."""
        self._on(to, self.module.all_gather, source, target, nbytes, BYTES)

    def broadcast(self, to: Communicator, source: int, target: int, nbytes: int, root: int) -> None:
        self._on(to, self.module.broadcast, source, target, nbytes, BYTES, root)

    def send(self, to: Communicator, source: int, nbytes: int, peer: int, stream=None) -> None:
        """stream: None: the main stream of the GPU, as of the others."""
        self._on(to, self.module.send, source, nbytes, BYTES, peer, stream=stream)

    def receive(self, to: Communicator, target: int, nbytes: int, peer: int, stream=None) -> None:
        self._on(to, self.module.recv, target, nbytes, BYTES, peer, stream=stream)

    def _on(self, to: Communicator, function: Callable, *arguments, stream: Any = None) -> None:
        """A call on a stream of a member's GPU, whose context is current."""
        asked = f"{function.__name__} of {to.device}, rank {to.rank} of {to.size}"
        stream = to.device.main if stream is None else stream
        self._call(asked, function, *arguments, to.handle, int(stream))

    def _call(self, asked: str, function: Callable, *arguments) -> Any:
        try:
            return function(*arguments)
        except self.module.NCCLError as error:
            if error.status == IN_PROGRESS:
                return None
            raise self.error(asked, int(error.status)) from error

    def error(self, asked: str, status: int) -> CudaLibraryError:
        text = self.module.get_error_string(status)
        return CudaLibraryError(asked, f"NCCL's error {status}: {text}", REPAIR, "", status, f"ncclResult {status}")

    # --- the state of groups ---

    def state(self, communicator: Communicator) -> int:
        """0: all is well; IN_PROGRESS; or the number of an error that showed after its call."""
        return int(self.module.comm_get_async_error(communicator.handle))

    def until_ready(self, made: Sequence[Communicator], seconds: float, late: Callable[[], Exception]) -> None:
        """Waits for calls that do not block. late: the error when the time is over; the communicators are aborted."""
        ends = time.monotonic() + seconds
        for communicator in made:
            while (status := self.state(communicator)) == IN_PROGRESS:
                if time.monotonic() > ends:
                    self.abort(made)
                    raise late()
                time.sleep(POLL)
            if status:
                self.abort(made)
                raise self.error("a group of GPUs", status)

    def abort(self, made: Sequence[Communicator]) -> None:
        """Aborts pending operations. Raises nothing."""
        self._end(self.module.comm_abort, made)

    def destroy(self, made: Sequence[Communicator]) -> None:
        """Destroys communicators whose work is done. Raises nothing."""
        self._end(self.module.comm_destroy, made)

    def _end(self, function: Callable, made: Sequence[Communicator]) -> None:
        for communicator in made:
            handle, communicator.handle = communicator.handle, None
            if handle is not None:
                with contextlib.suppress(self.module.NCCLError):
                    function(handle)


__all__ = ["Communicator", "Nccl", "load_nccl", "reduces"]
