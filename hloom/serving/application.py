"""MLServer with hloom's models, limits, keys and TLS; this module needs MLServer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlserver.grpc.server as grpc_module
from grpc import aio, ssl_server_credentials
from mlserver import MLServer
from mlserver.settings import ModelParameters, ModelSettings, Settings

from hloom.serving.limits import KeyInterceptor, Limits
from hloom.serving.options import ServerOptions

MAX_BODY = 64 << 20  # bytes
TIMEOUT = 30.0  # seconds


async def run(options: ServerOptions) -> int:
    """Serves until a signal ends it."""
    settings = Settings(
        debug=False,
        host=options.host,
        http_port=options.port,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        grpc_max_message_length=options.max_body or MAX_BODY,
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
    server._rest_server._app.add_middleware(
        Limits, key=key, max_body=options.max_body or MAX_BODY, timeout=options.timeout or TIMEOUT
    )
    return server
