"""Functions of SciPy on hloom's arrays, with `jax.scipy`'s names. Submodules are imported when they are first used."""

from __future__ import annotations

from importlib import import_module as _import_module


def __getattr__(name: str):
    if name in __all__:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


__all__ = [
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "special",
    "spatial", "stats",
]  # fmt: skip
__dir__ = __all__.copy
