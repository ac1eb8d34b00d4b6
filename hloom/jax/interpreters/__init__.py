"""Names that libraries import from `jax.interpreters`."""

from hloom.jax.interpreters import ad, batching, mlir, partial_eval

__all__ = ["ad", "batching", "mlir", "partial_eval"]
__dir__ = __all__.copy
