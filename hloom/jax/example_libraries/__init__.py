"""`jax.example_libraries` for programs written against it; new ones use `hloom.nn` and `hloom.optim`."""

from hloom.jax.example_libraries import optimizers, stax

__all__ = ["optimizers", "stax"]
__dir__ = __all__.copy
