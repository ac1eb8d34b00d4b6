"""`jax.experimental.pjit`: jit under its older name."""

from hloom.dispatch.jit import jit as pjit
from hloom.lax import with_sharding_constraint

__all__ = ["pjit", "with_sharding_constraint"]
__dir__ = __all__.copy
