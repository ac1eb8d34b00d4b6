"""hloom as a device of jax: `JAX_PLATFORMS=hloom python program.py` runs on hloom what jax compiles.

jax finds the package by its entry point (group `jax_plugins`) and calls `initialize`. Native code answers its C
interface, PJRT (`interface`, `native`); Python compiles (`client`, `programs`) and is not called between.
"""

from __future__ import annotations

import jax

__all__ = ["initialize"]


def initialize() -> None:
    """Registers the device, unless jax's setting `jax_platforms` names others only. jax calls it."""
    chosen = jax.config.jax_platforms  # type: ignore[attr-defined]  # jax enters its settings by name
    if chosen and "hloom" not in chosen.split(","):
        return
    from hloom.bridges.pjrt import plugin  # saves start-up time of programs that run on other devices

    plugin.register()
