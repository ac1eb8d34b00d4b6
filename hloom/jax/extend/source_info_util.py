"""Where instructions come from, under the names of `jax.extend.source_info_util`."""

from hloom.jax.traceback_util import register_exclusion

__all__ = ["register_exclusion"]
__dir__ = __all__.copy
