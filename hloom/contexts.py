"""Settings for a while: context managers under JAX's names."""

from __future__ import annotations

import contextlib

from hloom.config import config


def _setting(name: str, text: str):
    @contextlib.contextmanager
    def context(new_val: bool = True):
        with config(**{name: new_val}):
            yield

    context.__name__ = context.__qualname__ = name
    context.__doc__ = f"`with {name}():` {text}; {name}(False) takes it back."
    return context


enable_x64 = _setting("enable_x64", "Python numbers alone are of 64 bits")


debug_nans = _setting("debug_nans", "a NaN in a result raises FloatingPointError")


debug_infs = _setting("debug_infs", "an infinity in a result raises FloatingPointError")


def disable_jit(disable: bool = True):
    """`with disable_jit():` functions under `hl.jit` run step by step on values, so that they can be debugged."""
    return config(disable_jit=disable)
