"""MLServer with hloom's models, limits, keys and TLS; this module needs MLServer."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlserver.grpc.server as grpc_module
from grpc import aio, ssl_server_credentials
from mlserver import MLServer
from mlserver.settings import ModelParameters, ModelSettings, Settings

from hloom.errors import ArgumentError, FileError
from hloom.export.loading import Library
from hloom.serving.limits import KeyInterceptor, Limits
from hloom.serving.model import checked_function, chosen_function
from hloom.serving.options import Model, ServerOptions


def check(options: ServerOptions) -> None:
    """Raises before anything listens: see `hloom.serving.server.serve`."""
    if not options.models:
        raise ArgumentError("serving models", "none is named", "hloom serve [NAME=]PATH")
    twice = [pair for pair, count in Counter((m.name, m.version) for m in options.models).items() if count > 1]
    if twice:
        name, version = twice[0]
        raise ArgumentError(
            "models of different names or versions",
            f"two are {name!r}, version {version}",
            "name them: a@1=PATH a@2=PATH",
        )
    if (options.certificate is None) != (options.private_key is None):
        raise ArgumentError(
            "TLS needs a certificate and its private key", "one of them", "--tls-certificate FILE --tls-key FILE"
        )
    for model in options.models:
        with Library(model.path, num_threads=1) as library:
            function = chosen_function(library, model.function)
            checked_function(function)
            if options.max_batch > 1:
                _require_batches(model, library, function, options.max_batch)
    ports = (options.port, options.grpc_port, options.metrics_port)
    if len(set(ports)) < len(ports):
        raise ArgumentError(
            "different ports for HTTP, gRPC and metrics", f"{ports}", "--port, --grpc-port, --metrics-port"
        )
    for port in ports:
        with socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET) as test:
            test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                test.bind((options.host, port))
            except OSError as error:
                raise FileError(
                    f"listening on {options.host}, port {port}", str(error), "choose another port"
                ) from None


def _require_batches(model: Model, library: Library, function: Any, most: int) -> None:
    """Raises ArgumentError where requests cannot be joined along the first dimension."""
    first = {value.shape[0] if value.shape else None for value in (*function.inputs, *function.outputs)}
    name = next(iter(first))
    if len(first) == 1 and isinstance(name, str) and library.dimensions[name][1] >= most:
        return
    found = ", ".join(f"{v.name} {list(v.shape)}" for v in (*function.inputs, *function.outputs))
    limits = ", ".join(f"{k} {a} to {b}" for k, (a, b) in library.dimensions.items())
    raise ArgumentError(
        f"batches of {most} for model {model.name!r}",
        f"{found}" + (f"; {limits}" if limits else ""),
        f'export it with hl.Dim("batch", 1, {most}) as the first dimension of all inputs and results',
    )


async def run(options: ServerOptions) -> int:
    """Serves until a signal ends it."""
    settings = Settings(
        debug=False,
        host=options.host,
        http_port=options.port,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        grpc_max_message_length=options.max_body,
        parallel_workers=0,  # kernels have threads of their own, and calls release the GIL
        load_models_at_startup=False,
        server_name="hloom",
        model_repository_root=str(Path(options.models[0].path).parent),
    )
    if options.certificate is not None:
        files = {"ssl_certfile": str(options.certificate), "ssl_keyfile": str(options.private_key)}
        settings._custom_rest_server_settings = files
    models = [
        ModelSettings(
            name=model.name,
            implementation="hloom.serving.model.LibraryModel",
            platform="hloom",
            parameters=ModelParameters(
                uri=str(model.path.resolve()),
                version=model.version,
                extra={
                    "function": model.function,
                    "threads": options.threads,
                    "max_batch": options.max_batch,
                    "max_wait": options.max_wait,
                },
            ),
        )
        for model in options.models
    ]
    server = _server(settings, options)
    await server.start(models)
    return 0


def _server(settings: Any, options: ServerOptions) -> Any:
    """MLServer's server, with our limits in front of it."""
    credentials = None
    if options.certificate is not None:
        assert options.private_key is not None
        pair = (Path(options.private_key).read_bytes(), Path(options.certificate).read_bytes())
        credentials = ssl_server_credentials([pair])

    def guarded(pool: Any, interceptors: list, options: Any = None) -> Any:
        first = [KeyInterceptor(key)] if key is not None else []
        made = aio.server(pool, interceptors=[*first, *interceptors], options=options)
        if credentials is not None:
            made.add_insecure_port = lambda address: made.add_secure_port(address, credentials)
        return made

    key = options.key
    # MLServer has no settings for keys and TLS of gRPC: the server that it makes is made by this function.
    grpc_module.aio = SimpleNamespace(server=guarded)
    server = MLServer(settings)
    server._rest_server._app.add_middleware(Limits, key=key, max_body=options.max_body, timeout=options.timeout)
    return server
