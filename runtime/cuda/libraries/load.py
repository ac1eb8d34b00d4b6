"""NVIDIA's libraries in this process: found where pip or CUDA has installed them. A missing library is not an error."""

from __future__ import annotations

import ctypes
import functools

MAJOR = {"cublasLt": 13, "cublas": 13, "cusolver": 12, "cufft": 12}  # their names end in it: those of CUDA 13


class LibraryMissing(Exception):
    """A library is not installed, or does not load. The message says why, in one line."""


@functools.cache
def load_library(name: str) -> ctypes.CDLL:
    """A library such as 'cublasLt'. Raises LibraryMissing."""
    reasons = []
    for find in (_of_a_wheel, _by_its_name):
        try:
            return ctypes.CDLL(find(name))
        except (ImportError, OSError, RuntimeError) as error:  # (cuda-python's DynamicLibNotFoundError is the last)
            reasons.append(str(error).splitlines()[0])
    raise LibraryMissing(f"no {name}: {'; '.join(reasons)}")


def _of_a_wheel(name: str) -> str:
    """The path of a library that a wheel has brought, or that cuda-python finds elsewhere, with those that it needs."""
    from cuda.pathfinder import load_nvidia_dynamic_lib  # saves start-up time: NVIDIA's bindings

    return load_nvidia_dynamic_lib(name).abs_path


def _by_its_name(name: str) -> str:
    return f"lib{name}.so.{MAJOR[name]}"
