"""Which version of JAX hloom's names and meanings follow: what programs for JAX compare with. hloom's own version is
`hloom.__version__`."""

__version_info__ = (0, 10, 2)
__version__ = ".".join(map(str, __version_info__))

__all__ = ["__version__", "__version_info__"]
__dir__ = __all__.copy
