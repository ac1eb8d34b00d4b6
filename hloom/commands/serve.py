"""Serves exported libraries with the Open Inference Protocol v2, over HTTP and gRPC.

A model is [NAME[@VERSION]=]PATH[:FUNCTION]: a library that hl.export wrote. The server is
MLServer (pip install 'hloom[serve]') or NVIDIA's Triton (pip install --no-deps nvidia-pytriton; five times as many
requests); metrics for Prometheus are at http://HOST:METRICS_PORT/metrics.

Examples:
    hloom serve build/libmnist.so --port 8080
    hloom serve mnist@1=old/libmnist.so mnist@2=new/libmnist.so:predict --threads 2
    hloom serve build/libmnist.so --server triton --max-batch 32 --max-wait 0
    hloom serve build/libmnist.so --max-batch 32 --max-wait 2 --host 0.0.0.0 --key-file key.txt

"""

from __future__ import annotations

import argparse
from pathlib import Path

from hloom.errors import ArgumentError, file_error
from hloom.serving.options import ServerOptions, parse_model
from hloom.serving.server import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="[NAME[@VERSION]=]PATH[:FUNCTION]")
    parser.add_argument("--server", choices=("mlserver", "triton"), default="mlserver", help="what listens")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all")
    parser.add_argument("--port", type=int, default=8080, help="of HTTP; 0: none (Triton only)")
    parser.add_argument("--grpc-port", type=int, default=8081, help="of gRPC")
    parser.add_argument("--metrics-port", type=int, default=8082, help="of metrics for Prometheus")
    parser.add_argument("--metrics-host", default="127.0.0.1", help="address of metrics; 0.0.0.0: all, with the key")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of a model's kernels")
    parser.add_argument("--max-batch", type=int, default=1, metavar="N", help="rows that are computed together")
    parser.add_argument("--max-wait", type=float, default=2.0, metavar="MS", help="that a request waits for others")
    parser.add_argument("--max-body", type=float, metavar="MB", help="of a request; 64 (MLServer only)")
    parser.add_argument("--timeout", type=float, metavar="S", help="that a request may take; 30 (Triton: may wait)")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="holds the key that clients send")
    parser.add_argument("--max-connections", type=int, default=1024, metavar="N", help="of HTTP, and of gRPC")
    parser.add_argument("--management", action="store_true", help="clients may list, load and unload models")
    parser.add_argument("--management-key-file", type=Path, metavar="FILE", help="holds the key for that, another one")
    parser.add_argument("--tls-certificate", type=Path, metavar="FILE", help="PEM file")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM file")
    parser.add_argument("--repository", type=Path, metavar="FOLDER", help="where Triton's models are written, and stay")


def run(options: argparse.Namespace) -> int:
    return serve(
        ServerOptions(
            models=[parse_model(text) for text in options.models],
            host=options.host,
            port=options.port,
            grpc_port=options.grpc_port,
            metrics_port=options.metrics_port,
            threads=options.threads,
            max_batch=options.max_batch,
            max_wait=options.max_wait / 1000,
            max_body=int(options.max_body * (1 << 20)) if options.max_body is not None else None,
            timeout=options.timeout,
            key=_key(options.key_file),
            metrics_host=options.metrics_host,
            max_connections=options.max_connections,
            management=options.management,
            management_key=_key(options.management_key_file),
            certificate=options.tls_certificate,
            private_key=options.tls_key,
            server=options.server,
            repository=options.repository,
        )
    )


def _key(file: Path | None) -> str | None:
    """The key in a file. Raises FileError, ArgumentError for a file without one."""
    if file is None:
        return None
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise file_error("reading the key", error) from None
    if not found or not found.isprintable():
        raise ArgumentError(
            f"the key in {file}", "it is empty, or has characters that a header does not have", "write one"
        )
    return found
