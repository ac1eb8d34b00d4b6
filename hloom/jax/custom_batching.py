"""Batching rules of one's own under `jax.custom_batching`'s names."""

from hloom.lax.control.sequential import sequential_vmap
from hloom.transforms.custom_batching import custom_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
__dir__ = __all__.copy
