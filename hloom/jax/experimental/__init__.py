"""Names that programs import from `jax.experimental`."""

from __future__ import annotations

from hloom.contexts import enable_x64
from hloom.tracing.callback import io_callback


def disable_x64():
    """`with disable_x64():` Python numbers alone have 32 bits."""
    return enable_x64(False)


__all__ = ["disable_x64", "enable_x64", "io_callback"]
__dir__ = __all__.copy
