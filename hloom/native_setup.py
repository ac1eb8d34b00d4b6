"""Joins compiler and runtime: the driver of this process, and kernels as addresses.

    driver() -> Driver
    load_kernels(kernels) -> list[int]      one address for each kernel
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Sequence

from hloom.compiler.cache import default_cache
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.targets.cpu import codegen
from hloom.runtime import driver_source, native
from hloom.runtime.driver import Driver, install

_lock = threading.RLock()
_addresses: dict[KernelSource, int] = {}


@functools.cache
def _driver_key() -> str:
    digest = hashlib.sha256(codegen.fingerprint().encode())
    for function in driver_source.FUNCTIONS:
        digest.update(repr(function).encode())
    return "driver-" + digest.hexdigest()


@functools.cache
def _driver() -> Driver:
    cache = default_cache()
    exported = [function.name for function in driver_source.FUNCTIONS if function.exported]
    data = cache.get(_driver_key())
    if data is None:
        data = codegen.compile_functions(driver_source.FUNCTIONS).data
        cache.put(_driver_key(), data)
    return install(native.load(data, exported))


def driver() -> Driver:
    """The driver of this process, compiled or taken from the disk cache on the first call."""
    with _lock:
        return _driver()


def load_kernels(kernels: Sequence[KernelSource]) -> list[int]:
    """Addresses of the kernels' C entries `void (int64_t *args, int64_t lo, int64_t hi)`.

    Kernels already loaded in this process cost a dictionary look-up, those in the disk cache 0.2 ms, others a compile.
    Raises codegen.KernelCompileError.
    """
    with _lock:
        missing = list(dict.fromkeys(kernel for kernel in kernels if kernel not in _addresses))
        if missing:
            made = codegen.compile_kernels(missing, default_cache())
            loaded = native.load_all([(code.data, code.symbols) for code in made])
            for kernel, addresses in zip(missing, loaded, strict=True):
                _addresses[kernel] = addresses[kernel.name]
        return [_addresses[kernel] for kernel in kernels]
