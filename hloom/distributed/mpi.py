"""MPI as the way between processes: the participants, small messages, and waits that time out and name the missing
processes.

Source: the MPI standard, version 4.1. mpi4py and a library (MPICH as a wheel) are the extra `cluster`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.config import config
from hloom.distributed.environment import installed_file, process_number, started_processes
from hloom.errors import DistributedError
from hloom.runtime.distributed.messages import TAGS, Limit, Transport

_POLL = 0.0002  # seconds between polls of messages, after an initial phase without pauses
_BUSY = 0.002
_TAG, _CHANNELS = 1, 1 << 14
_HEADER = struct.Struct("<qq")  # the index of a meeting of two processes, and the bytes of its purpose
_PROGRAMS = 1 << 10  # groups of tags, if MPI supports that many
LEAVES = "hl.distributed.shutdown()"


@functools.cache
def library() -> Any:
    """`mpi4py.MPI`, initialized for calls from any thread. Raises DistributedError if it is missing."""
    path = installed_file("libmpi.so.12") or installed_file("libmpi.so.40")
    if path is not None:
        os.environ.setdefault("MPI4PY_LIBMPI", str(path))
    try:
        # Initializes MPI: only programs in several processes pay for it.
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(
            "hl.distributed.initialize()"
            + (f" in process {process_number()} of {count}" if (count := started_processes()) > 1 else ""),
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
    """All processes of a program. Its messages are separate from the program's own use of MPI.

    index, count: of this process, and of all.
    """

    def __init__(self) -> None:
        self._mpi = library()
        self.communicator = self._mpi.COMM_WORLD.Dup()
        self.index, self.count = self.communicator.rank, self.communicator.size
        self.communicator.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._rounds: dict[tuple[int, int], int] = {}  # meetings with each process so far, by tag
        self._native = self.communicator.Dup()  # of compiled programs
        self._given_up: list = []  # messages that may still be read
        self._programs: dict[int, str] = {}  # their names, by group of tags
        largest = self._mpi.COMM_WORLD.Get_attr(self._mpi.TAG_UB)
        self._limit = Limit(config.distributed_timeout)
        config.on_change("distributed_timeout", self._limit.set)
        self._groups = max(min((largest + 1) // TAGS, _PROGRAMS), 1)

    def transport(self, addresses: Mapping[str, int]) -> Transport:
        """The data for native code to send messages on a separate communicator. addresses: of the native functions of
        `hloom.runtime.distributed.messages`."""
        functions = ctypes.CDLL(self._mpi.__file__)  # finds the functions of the library that mpi4py is linked to

        def address(*names: str) -> int:
            name = next(n for n in names if hasattr(functions, n))
            found = ctypes.cast(getattr(functions, name), ctypes.c_void_p).value
            assert found is not None
            return found

        # Those of MPI 4 take sizes of 64 bits.
        send, receive = address("MPI_Isend_c", "MPI_Isend"), address("MPI_Irecv_c", "MPI_Irecv")

        return Transport(
            send, receive, address("MPI_Test"), _word(self._native), _word(self._mpi.BYTE),
            self._mpi._sizeof(self._mpi.Request), _handle(self._mpi.REQUEST_NULL), self._limit,
            addresses["hloom_messages_start"], addresses["hloom_messages_poll"],
        )  # fmt: skip

    def tags(self, name: str, digest: bytes) -> int:
        """The first tag of the messages of a program, the same in all processes. digest: a hash of it. Different
        programs have different tags (nearly always), so that none receives another's messages."""
        number = int.from_bytes(digest[:8], "little") % self._groups
        self._programs[number] = name
        return number * TAGS

    def whereabouts(self, process: int, tag: int) -> str | None:
        """The known position of a process that does not send the message of a tag: the program of an unreceived message
        that it has sent, the meeting that it has reached, or the end."""
        if (data := self._next(process)) is not None:
            _, size = _HEADER.unpack_from(data)
            return json.loads(data[_HEADER.size : _HEADER.size + size])[0]
        status = self._mpi.Status()
        if not self._native.Iprobe(source=process, tag=self._mpi.ANY_TAG, status=status):
            return None
        number = status.Get_tag() // TAGS
        if number == tag // TAGS:
            return None
        return f"'{self._programs[number]}'" if number in self._programs else "a program that is not known here"

    def exchange(
        self,
        message: bytes,
        doing: str,
        timeout: float | None = None,
        members: Sequence[int] | None = None,
        channel: str = "",
    ) -> list[bytes]:
        """The messages of all processes, by rank, or of some of them (`members`), all of which call this.

        doing: the purpose; the same everywhere. timeout: seconds to wait for the others; None:
        `hl.config.distributed_timeout`. channel: meetings of different names may run concurrently, in different
        threads. Raises DistributedError that names the processes that did not arrive, or do something else.
        """
        everyone = list(range(self.count)) if members is None else sorted(set(members))
        others = [k for k in everyone if k != self.index]
        head = json.dumps([doing, everyone]).encode()
        sends, rounds = [], {}
        tag = _TAG + (1 + zlib.crc32(channel.encode()) % _CHANNELS if channel else 0)
        for k in others:
            rounds[k] = self._rounds[k, tag] = self._rounds.get((k, tag), 0) + 1
            data = _HEADER.pack(rounds[k], len(head)) + head + message
            sends.append(self.communicator.Isend([data, self._mpi.BYTE], dest=k, tag=tag))
        found: dict[int, bytes] = {self.index: message}

        def look() -> bool:
            for k in others:
                while k not in found:
                    data = self._next(k, tag)
                    if data is None:
                        break
                    number, size = _HEADER.unpack_from(data)
                    if number < rounds[k]:
                        continue  # from a meeting that this process has given up
                    start = _HEADER.size
                    self._check(k, data[start : start + size], head)
                    found[k] = data[start + size :]
            return len(found) == len(everyone)

        try:
            self._wait(look, doing, timeout, lambda: [k for k in others if k not in found])
            self._wait(lambda: self._mpi.Request.Testall(sends), doing, timeout, lambda: others)
        except BaseException:
            self._given_up.append(sends)
            raise
        return [found[k] for k in everyone]

    def largest(self, values: np.ndarray, doing: str, timeout: float | None = None) -> np.ndarray:
        """The largest of the values of all processes, element by element; all call this, in the same order.

        values: integers. doing, timeout: as of `exchange`. Raises DistributedError.
        """
        own, found = np.ascontiguousarray(values, np.int64), np.empty(values.shape, np.int64)
        request = self.communicator.Iallreduce(own, found, op=self._mpi.MAX)
        self._wait(request.Test, doing, timeout, lambda: [k for k in range(self.count) if k != self.index])
        return found

    def _next(self, process: int, tag: int = _TAG) -> bytes | None:
        """The next message of a process, if it is here."""
        status = self._mpi.Status()
        if not self.communicator.Iprobe(source=process, tag=tag, status=status):
            return None
        buffer = bytearray(status.Get_count(self._mpi.BYTE))
        self.communicator.Recv([buffer, self._mpi.BYTE], source=process, tag=tag)
        return bytes(buffer)

    @staticmethod
    def _check(process: int, theirs: bytes, mine: bytes) -> None:
        """Raises DistributedError if another process has reached a different meeting."""
        if theirs == mine:
            return
        (doing, members), (other, others) = json.loads(mine), json.loads(theirs)
        if other != doing:
            found = f"process {process} is at {other}"
        else:
            found = f"process {process} expects the processes {others}, this one {members}"
        raise DistributedError(f"all processes at {doing}", found, "let all processes call the same in one order")

    @staticmethod
    def _wait(
        done: Callable[[], bool], doing: str, timeout: float | None, missing: Callable[[], Sequence[int]]
    ) -> None:
        seconds = config.distributed_timeout if timeout is None else timeout
        started = time.monotonic()
        while not done():
            waited = time.monotonic() - started
            if waited > seconds:
                names = " or ".join(map(str, missing()))
                raise DistributedError(
                    f"{doing}: every process takes part",
                    f"nothing came from process {names} for {seconds:g} s",
                    "inspect that process (py-spy dump --pid), or set hl.config.distributed_timeout",
                )
            if waited > _BUSY:
                time.sleep(_POLL)

    def error_text(self, code: int) -> str:
        """MPI's description of an error."""
        return self._mpi.Get_error_string(code)

    def leave(self) -> None:
        """Tells the others that this process will join no more meetings."""
        head = json.dumps([LEAVES, [self.index]]).encode()
        for k in range(self.count):
            if k != self.index:
                data = _HEADER.pack(self._rounds.get((k, _TAG), 0) + 1, len(head)) + head
                self.communicator.Isend([data, self._mpi.BYTE], dest=k, tag=_TAG).Free()

    def close(self) -> None:
        self._native.Free()
        self.communicator.Free()
