"""MLServer with hloom's models, limits, keys and TLS; this module needs MLServer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlserver.grpc.server as grpc_module
from grpc import aio, ssl_server_credentials
from mlserver import MLServer
from mlserver.settings import ModelParameters, ModelSettings, Settings

from hloom.serving.connections import limited
from hloom.serving.grpc_requests import Servicer
from hloom.serving.limits import Access, AccessInterceptor, Limits
from hloom.serving.options import LOCAL, ServerOptions
from hloom.serving.repository import Started, readiness

MAX_BODY = 64 << 20  # bytes
TIMEOUT = 30.0  # seconds
HEADER = 10.0  # seconds of a request's header, and of the beginning of a connection of gRPC


async def run(options: ServerOptions) -> int:
    """Serves until a signal ends it."""
    models = _models(options)
    settings = Settings(
        debug=False,
        host=options.host,
        http_port=options.port,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        grpc_max_message_length=options.max_body or MAX_BODY,
        parallel_workers=0,  # kernels have their own threads, and calls release the GIL
        load_models_at_startup=False,
        server_name="hloom",
        model_repository_root="",
        model_repository_implementation=Started,
        model_repository_implementation_args={"models": models},
    )
    await _server(settings, options, models).start(models)
    return 0


def _models(options: ServerOptions) -> list[ModelSettings]:
    return [
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


def _server(settings: Any, options: ServerOptions, models: list[ModelSettings]) -> Any:
    """MLServer's server, with our limits in front of it."""
    credentials = None
    if options.certificate is not None:
        assert options.private_key is not None
        pair = (Path(options.private_key).read_bytes(), Path(options.certificate).read_bytes())
        credentials = ssl_server_credentials([pair])

    access = Access(options.key, options.management, options.management_key, options.host)
    connections = options.max_connections

    def guarded(pool: Any, interceptors: list, options: Any = None) -> Any:
        made = aio.server(
            pool, interceptors=[AccessInterceptor(access), *interceptors], maximum_concurrent_rpcs=connections,
            options=[
                *(options or ()),
                ("grpc.max_allowed_incoming_connections", connections),
                ("grpc.max_concurrent_streams", connections),
                ("grpc.server_handshake_timeout_ms", int(1000 * HEADER)),
            ],
        )  # fmt: skip
        if credentials is not None:
            made.add_insecure_port = lambda address: made.add_secure_port(address, credentials)
        return made

    # MLServer has no settings for keys, limits and TLS of gRPC: the server that it makes is made by this function.
    grpc_module.aio = SimpleNamespace(server=guarded)
    grpc_module.InferenceServicer = Servicer
    server = MLServer(settings)
    server._data_plane.ready = readiness(server._model_registry, models)
    _count_known_models(server._data_plane, server._model_registry)
    limits = {"max_body": options.max_body or MAX_BODY, "timeout": options.timeout or TIMEOUT}
    server._rest_server._app.add_middleware(Limits, access=access, **limits)
    protocol = {"http": limited(connections, HEADER), "ws": "none"}
    files: dict[str, Any] = {}
    if options.certificate is not None:
        files = {"ssl_certfile": str(options.certificate), "ssl_keyfile": str(options.private_key)}
    _configure(server._rest_server, {**protocol, **files})
    # Beyond this machine, metrics need the key too.
    metrics = server._metrics_server
    local = options.metrics_host in LOCAL
    metrics._app.add_middleware(Limits, access=Access(None if local else options.key), **limits)
    _configure(metrics, {**protocol, **({} if local else files), "host": options.metrics_host})
    return server


def _count_known_models(data_plane: Any, registry: Any) -> None:
    """Answers 404 before requests are counted by the names of models: clients could make up any number of them."""
    made = data_plane.infer

    async def infer(payload: Any, name: str, version: str | None = None) -> Any:
        await registry.get_model(name, version)
        return await made(payload, name, version)

    data_plane.infer = infer


def _configure(server: Any, changes: dict[str, Any]) -> None:
    """Changes the configuration that one of MLServer's servers makes for uvicorn when it starts."""
    made = server._get_config

    def configuration() -> Any:
        found = made()
        for name, value in changes.items():
            setattr(found, name, value)
        return found

    server._get_config = configuration
