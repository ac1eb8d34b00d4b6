"""`lax.add_p` and the like are a `hloom.jax.extend.core.Primitive`."""

from __future__ import annotations

from hloom.lax import primitive_names


def _primitive(name: str, function):
    from hloom.jax.extend.primitive import named  # saves start-up time: few programs need primitives and hijax

    return named(name, function)


primitive_names.register(_primitive)
