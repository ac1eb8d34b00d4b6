"""Where arrays lie: meshes, specs and shardings, in the words of `jax.sharding`."""

from hloom.sharding.shardings import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    P,
    PartitionSpec,
    Shard,
    Sharding,
    SingleDeviceSharding,
    get_abstract_mesh,
    get_mesh,
    make_mesh,
    set_mesh,
    use_mesh,
)

__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "P",
    "PartitionSpec",
    "Shard",
    "Sharding",
    "SingleDeviceSharding",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "set_mesh",
    "use_mesh",
]
__dir__ = __all__.copy
