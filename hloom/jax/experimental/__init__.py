"""Names that programs import from `jax.experimental`."""

from __future__ import annotations

from hloom.contexts import enable_x64


def disable_x64():
    """`with disable_x64():` Python numbers alone are of 32 bits."""
    return enable_x64(False)


def __getattr__(name: str):
    if name == "io_callback":
        from hloom.tracing.callback import io_callback

        return io_callback
    raise AttributeError(f"module 'hloom.jax.experimental' has no attribute '{name}'")


__all__ = ["disable_x64", "enable_x64", "io_callback"]
