"""Serving: exported libraries behind MLServer or Triton, with the Open Inference Protocol v2 over HTTP and gRPC.

    python -m hloom serve mnist=build/libmnist.so --port 8080

The server speaks the protocol and shows the metrics; a library that `hl.export` wrote computes. `hloom.serving.model`
is MLServer's inference runtime, `hloom.serving.application` that server with our limits; `hloom.serving.triton` runs
Triton with our backend, `native/triton.c`.
"""

from __future__ import annotations

from hloom.ir.process import lazy as _lazy

_HOMES = {
    "hloom.serving.options": "Model ServerOptions parse_model",
    "hloom.serving.server": "serve",
}
__getattr__ = _lazy.lazy_names(globals(), _HOMES)
__all__ = sorted(" ".join(_HOMES.values()).split())
__dir__ = __all__.copy
