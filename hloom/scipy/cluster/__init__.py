"""`jax.scipy.cluster`."""

from hloom.scipy.cluster import vq

__all__ = ["vq"]
