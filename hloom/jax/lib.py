"""Versions, under the names of `jax.lib`."""

from hloom.jax.version import __version__, __version_info__

__all__ = ["__version__", "__version_info__"]
__dir__ = __all__.copy
