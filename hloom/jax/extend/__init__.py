"""Names that libraries import from `jax.extend`."""

from hloom.jax.extend import core, linear_util, source_info_util

__all__ = ["core", "linear_util", "source_info_util"]
__dir__ = __all__.copy
