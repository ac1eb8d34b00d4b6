"""The configuration of a server: models as named on the command line, ports, limits, keys."""

from __future__ import annotations

import re
from pathlib import Path

from hloom.errors import ArgumentError
from hloom.ir.records import field, record

LOCAL = ("127.0.0.1", "localhost", "::1")
_MODEL = re.compile(r"(?:(?P<name>[\w.-]+)(?:@(?P<version>[\w.-]+))?=)?(?P<path>.+?)(?::(?P<function>[A-Za-z_]\w*))?")


@record(frozen=True)
class Model:
    """A function of an exported library. function: None is the only one, or 'predict'. version: of the protocol, None
    where there is one."""

    name: str
    path: Path
    function: str | None = None
    version: str | None = None


def parse_model(text: str) -> Model:
    """A model as `[NAME[@VERSION]=]PATH[:FUNCTION]`; the name is by default that of the file. Raises ArgumentError."""
    found = _MODEL.fullmatch(text)
    if found is None:
        raise ArgumentError(
            "a model is [NAME[@VERSION]=]PATH[:FUNCTION]", repr(text), "mnist@2=build/libmnist.so:predict"
        )
    path = Path(found["path"])
    name = found["name"] or path.stem.removeprefix("lib")
    if not re.fullmatch(r"[\w.-]+", name) or not name.strip("."):  # it becomes a part of addresses and paths
        raise ArgumentError(f"a model named {name!r}", "a name is letters, digits, '_', '.' and '-'", f"NAME={path}")
    return Model(name, path, found["function"], found["version"])


@record(frozen=True)
class ServerOptions:
    """How a server listens, and its limits.

    models: those it serves. host, port, grpc_port, metrics_port: where it listens. threads: of a model's kernels.
    max_batch, max_wait: requests that arrive within `max_wait` seconds are computed together, up to `max_batch`
    elements
        of the first dimension; 1: each separately. The library has to accept a range of sizes there (`hl.Dim`).
    server: "mlserver" or "triton". repository: a folder for Triton's models, which is kept; None: a temporary one.
    max_body: bytes of a request; None: MLServer's 64 MB. timeout: seconds that a request may take (MLServer; None: 30)
        or wait (Triton; None: any number). key: sent by clients as `Authorization: Bearer KEY`; None: no key.
    certificate, private_key: PEM files; None: no TLS.
    metrics_host: where metrics listen; beyond this machine they need the key. max_connections: of HTTP, and of gRPC.
    management: whether clients may list, load and unload models; management_key: the key for that, different from the
    one for use.
    """

    models: list[Model] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int = 8081
    metrics_port: int = 8082
    threads: int = 1
    max_batch: int = 1
    max_wait: float = 0.002
    max_body: int | None = None
    timeout: float | None = None
    key: str | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    server: str = "mlserver"
    repository: Path | None = None
    metrics_host: str = "127.0.0.1"
    max_connections: int = 1024
    management: bool = False
    management_key: str | None = None
