"""The stages of a compiled function under `jax.stages`' names."""

from hloom.jit import JitFunction
from hloom.lowered import Compiled, Lowered

Wrapped = JitFunction

__all__ = ["Compiled", "Lowered", "Wrapped"]
