"""shard_map under its older name, `jax.experimental.shard_map`."""

from hloom.transforms.shard_map import shard_map

__all__ = ["shard_map"]
__dir__ = __all__.copy
