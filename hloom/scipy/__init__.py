"""Functions of SciPy on hloom's arrays, with `jax.scipy`'s names. Submodules are imported when they are first used."""

from __future__ import annotations

import importlib
import importlib.util

_SUBMODULES = "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats".split()


def __getattr__(name: str):
    if name in _SUBMODULES and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__():
    return [name for name in _SUBMODULES if importlib.util.find_spec(f"{__name__}.{name}") is not None]
