"""Solvers of sparse linear systems, with `jax.scipy.sparse`'s names."""

from hloom.scipy.sparse import linalg

__all__ = ["linalg"]
__dir__ = __all__.copy
