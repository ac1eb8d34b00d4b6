"""`jax.scipy.cluster`."""

from hloom.scipy.cluster import vq

__all__ = ["vq"]
__dir__ = __all__.copy
