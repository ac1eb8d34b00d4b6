"""Names that libraries import from `jax.interpreters`."""

from hloom.interpreters import partial_eval

__all__ = ["partial_eval"]
