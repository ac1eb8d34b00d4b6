"""Joins compiler and runtime: the driver of this process, and kernels as addresses.

    driver() -> Driver
    load_kernels(kernels) -> list[int]      one address for each kernel

`python -m hloom.native_setup` writes the driver's LLVM IR beside this module, and the library of the kernel dialect
(`dialect_file`). Where that file was made from the
driver's present source, for this architecture, the first call with an empty cache need not take the driver through
Numba (0.45 s of a processor); otherwise the source is compiled as it stands.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from hloom.compiler.cache import default_cache, use_folder
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.stages import stage
from hloom.compiler.targets.cpu import codegen, dialect_file
from hloom.compiler.targets.cpu.machine import host
from hloom.config import config
from hloom.runtime import driver_source, native
from hloom.runtime.driver import Driver, default_num_threads, install

config.on_change("cache_dir", use_folder)

_lock = threading.RLock()
_addresses: dict[KernelSource, int] = {}


@functools.cache
def _driver_key() -> str:
    digest = hashlib.sha256(codegen.fingerprint().encode())
    for function in driver_source.FUNCTIONS:
        digest.update(repr(function).encode())
    return "driver-" + digest.hexdigest()


def _ir_file() -> Path:
    return Path(__file__).with_name(f"driver_{sys.platform}_{host().arch}.ll")


def _ir_header() -> str:
    """The first line of a stored driver: says which source it was made from."""
    digest = hashlib.sha256(Path(codegen.__file__).with_name("intrinsics.py").read_bytes())
    for function in driver_source.FUNCTIONS:
        digest.update(repr(function).encode())
    return f"; the driver of hloom as LLVM IR, made by python -m hloom.native_setup from source {digest.hexdigest()}"


def _stored_ir() -> str | None:
    """The stored driver, or None where there is none of this source."""
    try:
        header, text = _ir_file().read_text().split("\n", 1)
    except OSError:
        return None
    return text if header == _ir_header() else None


def write_driver_ir() -> Path:
    """Writes the driver's LLVM IR for this architecture; see the module's docstring."""
    text = codegen.functions_ir(driver_source.FUNCTIONS)
    _ir_file().write_text(f"{_ir_header()}\n{text}")
    return _ir_file()


@functools.cache
def _driver() -> Driver:
    cache = default_cache()
    exported = [function.name for function in driver_source.FUNCTIONS if function.exported]
    data = cache.get(_driver_key())
    if data is None:
        stored = _stored_ir()
        if stored is None:
            data = codegen.compile_functions(driver_source.FUNCTIONS).data
        else:
            data = codegen.compile_ir(stored, exported).data
        cache.put(_driver_key(), data)
    made = install(native.load(data, exported))
    config.on_change("num_threads", lambda count: made.set_num_threads(count or default_num_threads()))
    if config.num_threads:
        made.set_num_threads(config.num_threads)
    return made


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
            with stage("load"):
                loaded = native.load_all([(code.data, code.symbols) for code in made])
            for kernel, addresses in zip(missing, loaded, strict=True):
                _addresses[kernel] = addresses[kernel.name]
        return [_addresses[kernel] for kernel in kernels]


if __name__ == "__main__":
    print(write_driver_ir())
    print(dialect_file.write())
