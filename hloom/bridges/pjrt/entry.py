"""What jax imports and calls when it looks for plugins."""

from __future__ import annotations

import jax

__all__ = ["initialize"]


def initialize() -> None:
    """Registers the device where jax's setting `jax_platforms` names it; other programs stay as they are."""
    chosen = (jax.config.jax_platforms or "").split(",")  # type: ignore[attr-defined]  # jax enters settings by name
    if "hloom" not in chosen:
        return
    if "cpu" not in chosen:  # where jax puts the arguments of callbacks
        jax.config.update("jax_platforms", ",".join([*chosen, "cpu"]))
    from hloom.bridges.pjrt import plugin  # saves start-up time of programs that run on other devices

    plugin.register()
