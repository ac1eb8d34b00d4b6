"""`serve`: checks what is to be served, and runs the server."""

from __future__ import annotations

import asyncio
import sys

from hloom.errors import import_extra
from hloom.serving.options import ServerOptions

LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(options: ServerOptions) -> int:
    """Serves the models until SIGINT or SIGTERM; the exit status. Raises before it listens: UnsupportedError without
    MLServer, ArgumentError for models and options that do not fit, ExportError and MissingFileError for libraries,
    FileError for ports in use and certificates that cannot be read."""
    server = import_extra("serving models with MLServer", "serve", "mlserver.utils")
    application = import_extra("serving models with MLServer", "serve", "hloom.serving.application")
    application.check(options)
    if options.host not in LOCAL and options.key is None:
        print(f"hloom serve: who reaches {options.host} may use it; --key-file asks for a key", file=sys.stderr)
    server.install_uvloop_event_loop()
    return asyncio.run(application.run(options))
