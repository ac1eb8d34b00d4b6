"""The entry point that jax imports and calls when it discovers plugins."""

from __future__ import annotations

import functools
import os

import jax
import jaxlib
from jax._src import xla_bridge

from hloom.backends import preload
from hloom.errors import UnsupportedError
from hloom.ir.source import count_as_internal

__all__ = ["initialize"]


def initialize() -> None:
    """Registers the device if jax's setting `jax_platforms` names it; other programs are unaffected.

    If that fails, the first use of the device raises the reason: jax itself would only log it, and then report an
    unknown backend.
    """
    chosen = (jax.config.jax_platforms or "").split(",")  # type: ignore[attr-defined]  # jax enters settings by name
    if "hloom" not in chosen:
        return
    if "cpu" not in chosen:  # where jax puts the arguments of callbacks
        jax.config.update("jax_platforms", ",".join([*chosen, "cpu"]))
    for package in (jax, jaxlib):  # their frames are between the user's line and hloom's
        count_as_internal(os.path.realpath(package.__path__[0]))
    preload.finish()
    try:
        from hloom.bridges.pjrt import plugin  # saves start-up time of programs that run on other devices

        plugin.register()
    except Exception as error:
        xla_bridge.register_backend_factory("hloom", functools.partial(_refuse, error), fail_quietly=False)


def _refuse(error: Exception):
    if isinstance(error, ImportError):
        repair = "install the missing package: pip install --upgrade 'hloom[jax]'"
    else:
        repair = "install a jax that hloom is tested with: pip install --upgrade 'hloom[jax]'"
    raise UnsupportedError(
        "hloom's plugin for jax cannot be loaded", f"{type(error).__name__}: {error}", repair
    ) from error
