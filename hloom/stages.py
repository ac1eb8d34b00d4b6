"""The stages of a compiled function under `jax.stages`' names."""

from hloom.jit import Compiled, JitFunction, Lowered

Wrapped = JitFunction

__all__ = ["Compiled", "Lowered", "Wrapped"]
