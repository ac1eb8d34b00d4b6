"""Checks before either server starts: models, options, ports."""

from __future__ import annotations

import socket
from collections import Counter
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, FileError
from hloom.export.loading import Function, Library
from hloom.serving.options import LOCAL, Model, ServerOptions

# By dtype: names of the Open Inference Protocol.
DATATYPES = {
    np.dtype(name): kind
    for name, kind in {
        "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
        "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
    }.items()
}  # fmt: skip


def chosen_function(library: Library, name: str | None) -> Function:
    """The function that is served: the named one, the only one, or `predict`. Raises ArgumentError."""
    if name is None and len(library.functions) == 1:
        return next(iter(library.functions.values()))
    found = library.functions.get(name or "predict")
    if found is None:
        raise ArgumentError(
            f"a function of {library.path}",
            f"there is no {name or 'predict'!r}; it has {', '.join(library.functions)}",
            "name one: PATH:FUNCTION",
        )
    return found


def checked_function(function: Function) -> None:
    """Raises ArgumentError for dtypes that the protocol does not have, and functions that change their state."""
    for value in (*function.inputs, *function.outputs):
        if value.dtype not in DATATYPES:
            raise ArgumentError(
                f"serving '{function.name}'",
                f"{value.name} is {value.dtype}, which the Open Inference Protocol does not have",
                "convert it in the exported function, such as to float32",
            )
    if function.updates_state:
        raise ArgumentError(
            f"serving '{function.name}'",
            "it changes the state that all clients share",
            "serve a function that only reads it",
        )


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
    limits = [
        ("--threads", options.threads, 0), ("--max-batch", options.max_batch, 1), ("--max-wait", options.max_wait, 0),
        ("--max-body", options.max_body, 1), ("--timeout", options.timeout, 1e-3),
        ("--max-connections", options.max_connections, 1),
    ]  # fmt: skip
    for name, value, least in limits:
        if value is not None and not least <= value < float("inf"):
            raise ArgumentError(f"serving with {name}", f"{value:g}", f"pass a finite number of at least {least:g}")
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


def check_access(options: ServerOptions) -> None:
    """Raises ArgumentError if keys leave management open to more than it should be."""
    if options.management_key is not None and not options.management:
        raise ArgumentError("a key for management", "management is off", "--management turns it on")
    if not options.management:
        return
    if options.server == "triton":
        raise ArgumentError(
            "--management with Triton", "its repository is closed to clients", "--server mlserver, or start it anew"
        )
    if options.management_key is None and (options.key is not None or options.host not in LOCAL):
        raise ArgumentError(
            f"--management on {options.host}",
            "no key for it: who may use models could unload them",
            "--management-key-file FILE, with another key than that of --key-file",
        )
    if options.management_key is not None and options.management_key == options.key:
        raise ArgumentError("two keys", "the key for management is that for use", "make another key")


def check_ports(host: str, ports: tuple[int, ...], metrics_host: str, metrics_port: int) -> None:
    """Raises ArgumentError for a port that is there twice, FileError for one that is in use."""
    if len({*ports, metrics_port}) < len(ports) + 1:
        raise ArgumentError(
            "different ports for HTTP, gRPC and metrics",
            f"{(*ports, metrics_port)}",
            "--port, --grpc-port, --metrics-port",
        )
    for host, port in (*((host, port) for port in ports), (metrics_host, metrics_port)):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as test:
            test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                test.bind((host, port))
            except OSError as error:
                raise FileError(f"listening on {host}, port {port}", str(error), "choose another port") from None


def _require_batches(model: Model, library: Library, function: Any, most: int) -> None:
    """Raises ArgumentError if requests cannot be joined along the first dimension."""
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
