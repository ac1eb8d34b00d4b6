"""MPI as the way between processes: who takes part, small messages, and waits that end and name who is missing.

Source: the MPI standard, version 4.1. mpi4py and a library (MPICH as a wheel) are the extra `cluster`.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hloom.config import config
from hloom.distributed.environment import process_number, started_processes
from hloom.errors import DistributedError
from hloom.runtime.distributed.messages import Transport

_POLL = 0.0002  # seconds between looks at messages, after a first while without a pause
_BUSY = 0.002


@functools.cache
def library() -> Any:
    """`mpi4py.MPI`, initialized for calls from any thread. Raises DistributedError where it is missing."""
    try:
        # Initializes MPI: only programs in several processes pay for it.
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(
            f"a program in {started_processes()} processes: this is process {process_number()}",
            f"no MPI: {error}",
            "pip install 'hloom[cluster]'",
        ) from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DistributedError(
            "calls of MPI from several threads",
            f"{MPI.Get_library_version().splitlines()[0]} was initialized without them",
            "import hloom before mpi4py, or set mpi4py.rc.thread_level = 'multiple'",
        )
    return MPI


def _handle(handle) -> bytes:
    """The bytes of an MPI handle: an int or a pointer, as the library has it."""
    mpi = library()
    return ctypes.string_at(mpi._addressof(handle), mpi._sizeof(handle))


def _word(handle) -> int:
    return int.from_bytes(_handle(handle), "little")


class Group:
    """All processes of a program. Its messages do not meet those of the program's own use of MPI.

    index, count: of this process, and of all.
    """

    def __init__(self) -> None:
        self._mpi = library()
        self.communicator = self._mpi.COMM_WORLD.Dup()
        self.index, self.count = self.communicator.rank, self.communicator.size
        self.communicator.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._round = 0
        self._native: Any = None  # the communicator of compiled programs

    def transport(self, addresses: Mapping[str, int]) -> Transport:
        """What native code needs to send messages on a communicator of its own. addresses: of the native functions of
        `hloom.runtime.distributed.messages`."""
        if self._native is None:
            self._native = self.communicator.Dup()
        functions = ctypes.CDLL(self._mpi.__file__)  # finds the functions of the library that mpi4py is linked to

        def address(name: str) -> int:
            found = ctypes.cast(getattr(functions, name), ctypes.c_void_p).value
            assert found is not None
            return found

        return Transport(
            address("MPI_Isend"), address("MPI_Irecv"), address("MPI_Test"), _word(self._native), _word(self._mpi.BYTE),
            self._mpi._sizeof(self._mpi.Request), _handle(self._mpi.REQUEST_NULL), config.distributed_timeout,
            addresses["hloom_messages_start"], addresses["hloom_messages_poll"],
        )  # fmt: skip

    def exchange(self, message: bytes, doing: str, timeout: float | None = None) -> list[bytes]:
        """The messages of all processes, by number. doing: what for, for errors. timeout: seconds to wait for the
        others; None: `hl.config.distributed_timeout`. Raises DistributedError that names who did not come."""
        self._round = tag = (self._round + 1) % 16384
        others = [k for k in range(self.count) if k != self.index]
        sends = [self.communicator.Isend([message, self._mpi.BYTE], dest=k, tag=tag) for k in others]
        found: dict[int, bytes] = {self.index: message}

        def look() -> bool:
            for k in others:
                if k not in found:
                    status = self._mpi.Status()
                    if self.communicator.Iprobe(source=k, tag=tag, status=status):
                        buffer = bytearray(status.Get_count(self._mpi.BYTE))
                        self.communicator.Recv([buffer, self._mpi.BYTE], source=k, tag=tag)
                        found[k] = bytes(buffer)
            return len(found) == self.count

        self._wait(look, doing, timeout, lambda: [k for k in others if k not in found])
        self._wait(lambda: self._mpi.Request.Testall(sends), doing, timeout, lambda: others)
        return [found[k] for k in range(self.count)]

    @staticmethod
    def _wait(
        done: Callable[[], bool], doing: str, timeout: float | None, missing: Callable[[], Sequence[int]]
    ) -> None:
        seconds = config.distributed_timeout if timeout is None else timeout
        started = time.monotonic()
        while not done():
            waited = time.monotonic() - started
            if waited > seconds:
                names = ", ".join(map(str, missing()))
                raise DistributedError(
                    f"{doing}: every process takes part",
                    f"nothing came from process {names} for {seconds:g} s",
                    "look at what that process does (py-spy dump --pid), or set hl.config.distributed_timeout",
                )
            if waited > _BUSY:
                time.sleep(_POLL)

    def error_text(self, code: int) -> str:
        """What MPI says of an error."""
        return self._mpi.Get_error_string(code)

    def close(self) -> None:
        if self._native is not None:
            self._native.Free()
        self.communicator.Free()
