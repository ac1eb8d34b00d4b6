"""The stages of a compiled function under `jax.stages`' names."""

from hloom.dispatch.jit import JitFunction
from hloom.dispatch.stages import Compiled, Lowered, TracedFunction

Traced = TracedFunction
Wrapped = JitFunction

__all__ = ["Compiled", "Lowered", "Traced", "Wrapped"]
__dir__ = __all__.copy
