"""A server in this process: sessions at its target share its variables."""

from __future__ import annotations

import itertools
import weakref

from hloom.errors import SessionError
from hloom.sessions.executor import LocalExecutor, register

SCHEME = "local"
_numbers = itertools.count()
_servers: weakref.WeakValueDictionary[str, LocalServer] = weakref.WeakValueDictionary()


class LocalServer:
    """A cluster of one task, in this process (`hl.cluster.Server` is one for others).

        server = LocalServer()
        with Session(program, server.target) as session: ...

    Variables live as long as the server: a session that ends leaves them to the next one.
    """

    def __init__(self) -> None:
        self.target = f"{SCHEME}://{next(_numbers)}"
        self.executor = LocalExecutor()
        _servers[self.target] = self

    @classmethod
    def create_local_server(cls) -> LocalServer:
        """A new one, under TensorFlow's name for it."""
        return cls()

    def stop(self) -> None:
        """Ends the server and frees its variables; runs of its sessions raise SessionError."""
        _servers.pop(self.target, None)
        self.executor.close()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *exception) -> None:
        self.stop()


def _connect(target: str) -> LocalExecutor:
    server = _servers.get(target)
    if server is None:
        raise SessionError(
            f"a session at {target!r}", "no server of this process has this target, or it has stopped",
            "pass server.target of a running server",
        )  # fmt: skip
    return server.executor


register(SCHEME, _connect)

__all__ = ["LocalServer"]
