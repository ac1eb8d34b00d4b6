"""Arrays to and from other libraries, under `jax.dlpack`'s names."""

from hloom.numpy.creation import from_dlpack


def to_dlpack(x, stream=None, src_device=None, dl_device=None, max_version=None, copy=None):
    """A DLPack capsule of an array, without a copy. Newer libraries take the array itself (`from_dlpack`)."""
    return x.__dlpack__(stream=stream, dl_device=dl_device, max_version=max_version, copy=copy)


__all__ = ["from_dlpack", "to_dlpack"]
__dir__ = __all__.copy
