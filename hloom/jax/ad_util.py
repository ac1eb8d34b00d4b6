"""Names that libraries import from JAX's insides about derivatives."""

from hloom.jax.experimental.hijax import Zero
from hloom.lax import stop_gradient_p

__all__ = ["Zero", "stop_gradient_p"]
__dir__ = __all__.copy
