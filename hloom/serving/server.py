"""`serve`: checks the models and options, and runs the server."""

from __future__ import annotations

import asyncio
import sys

from hloom.errors import ArgumentError, import_extra
from hloom.serving import triton
from hloom.serving.checks import check, check_access, check_ports
from hloom.serving.options import LOCAL, ServerOptions


def serve(options: ServerOptions) -> int:
    """Serves the models until SIGINT or SIGTERM; the exit status. Raises before it listens: UnsupportedError without
    the server, ArgumentError for models and options that do not fit, ExportError and MissingFileError for libraries,
    FileError for ports in use and certificates that cannot be read."""
    check_access(options)
    if options.host not in LOCAL and options.key is None:
        print(f"hloom serve: who reaches {options.host} may use it; --key-file asks for a key", file=sys.stderr)
    if options.server == "triton":
        return triton.run(options)
    if options.repository is not None:
        raise ArgumentError("--repository with MLServer", "it has no model repository", "--server triton")
    server = import_extra("serving models with MLServer", "serve", "mlserver.utils")
    application = import_extra("serving models with MLServer", "serve", "hloom.serving.application")
    check(options)
    check_ports(options.host, (options.port, options.grpc_port), options.metrics_host, options.metrics_port)
    server.install_uvloop_event_loop()
    return asyncio.run(application.run(options))
