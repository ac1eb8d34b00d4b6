"""Where arrays lie: meshes, partition specs and shardings, with `jax.sharding`'s names."""

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
    reshard,
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
    "reshard",
    "set_mesh",
    "use_mesh",
]
__dir__ = __all__.copy
