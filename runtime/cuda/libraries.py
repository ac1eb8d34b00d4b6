"""NVIDIA's libraries in this process: found where pip or CUDA has installed them. That there is none is no error."""

from __future__ import annotations

import ctypes
import functools

MAJOR = {"cublasLt": 13}  # the name ends in it: that of the CUDA version that kernels are compiled for


class LibraryMissing(Exception):
    """A library is not installed, or does not load. Its text says why, in a line."""


@functools.cache
def load_library(name: str) -> ctypes.CDLL:
    """A library such as 'cublasLt'. Raises LibraryMissing."""
    file = f"lib{name}.so.{MAJOR[name]}"
    try:
        return ctypes.CDLL(_installed_by_pip(name) or file)
    except OSError as error:
        raise LibraryMissing(f"no {name}: {str(error).splitlines()[0]}") from None


def _installed_by_pip(name: str) -> str | None:
    """The path of a library that a wheel has brought, or that cuda-python finds elsewhere."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return None
    try:
        return load_nvidia_dynamic_lib(name).abs_path
    except RuntimeError:  # (DynamicLibNotFoundError is one)
        return None
