"""Joins compiler and runtime: the driver of this process, and kernels as addresses.

driver() -> Driver
load_kernels(kernels) -> list[int]      one address for each kernel
load_or_fall_back(kernels, fallbacks)   the same, without compiling kernels that have a fallback
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from hloom.compiler.cache import default_cache, use_folder
from hloom.compiler.compile_timings import stage
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.interface import kernel_key
from hloom.compiler.targets.cpu.machine import available_cores, host_name, use_cpu
from hloom.config import config
from hloom.ir.process import forking
from hloom.runtime import driver_source, native
from hloom.runtime.driver import Driver, default_num_threads, install

config.on_change("cache_dir", use_folder)
if config.cache_dir is not None:  # set before this module was needed
    use_folder(config.cache_dir)
use_cpu(config.cpu)  # set before this module was needed, by the program or by HLOOM_CPU

_lock = forking.rlock()
_addresses: dict[KernelSource, int] = {}


def _change_cpu(name: str | None) -> None:
    with _lock:
        use_cpu(name)
        _addresses.clear()  # of kernels for another processor


config.on_change("cpu", _change_cpu)


@functools.cache
def _entry_points() -> dict[str, int]:
    """Addresses of the driver's native functions."""
    functions = driver_source.FUNCTIONS

    def loaded() -> dict[str, int]:
        code = codegen.compile_functions(functions, default_cache())
        return native.load(code.data, code.symbols)

    try:
        return loaded()
    except native.LoadError as error:
        default_cache().discard(codegen.functions_key(functions), f"does not load ({error})")
        return loaded()


def threads_of_device() -> int:
    """Threads of each CPU device: its share of `hl.config.num_threads`, at least one."""
    return max(1, (config.num_threads or default_num_threads()) // config.num_cpu_devices)


@functools.cache
def _driver(index: int) -> Driver:
    made = install(_entry_points())

    def divide(_=None) -> None:
        made.set_num_threads(threads_of_device())
        made.share_cores(config.num_cpu_devices > available_cores())

    divide()
    for name in ("num_threads", "num_cpu_devices"):
        config.on_change(name, divide)
    return made


def driver(index: int = 0) -> Driver:
    """The driver of the device cpu:index, compiled or taken from the disk cache on the first call. Each has threads of
    its own."""
    with _lock:
        return _driver(index)


def load_kernels(kernels: Sequence[KernelSource]) -> list[int]:
    """Addresses of the kernels' C entries `void (int64_t *args, int64_t lo, int64_t hi)`.

    Kernels already loaded in this process cost a dictionary look-up, those in the disk cache 0.2 ms, others a compile.
    Raises interface.KernelCompileError.
    """
    with _lock:
        missing = list(dict.fromkeys(kernel for kernel in kernels if kernel not in _addresses))
        if missing:
            try:
                loaded = _loaded(missing)
            except native.LoadError:  # cached code that is not code: compiled anew, or an error of the compiler
                for kernel in missing:
                    _discard_if_unloadable(kernel)
                loaded = _loaded(missing)
            for kernel, addresses in zip(missing, loaded, strict=True):
                _addresses[kernel] = addresses[kernel.name]
        return [_addresses[kernel] for kernel in kernels]


def _loaded(kernels: Sequence[KernelSource]) -> list[dict[str, int]]:
    made = codegen.compile_kernels(kernels, default_cache())
    with stage("load"):
        return native.load_all([(code.data, code.symbols) for code in made])


def _discard_if_unloadable(kernel: KernelSource) -> None:
    key = kernel_key(kernel)
    data = default_cache().get(key)
    if data is not None:
        try:
            native.load(data, (kernel.name,))
        except native.LoadError as error:
            default_cache().discard(key, f"does not load ({error})")


def load_or_fall_back(
    kernels: Sequence[KernelSource], fallbacks: Mapping[KernelSource, Callable[[], list[KernelSource]]]
) -> tuple[list[int], frozenset[KernelSource]]:
    """As `load_kernels`, but for a kernel that is not compiled yet one of its fallbacks is loaded where there is a
    compiled one; and the kernels that are missing therefore."""
    cache = default_cache()

    def is_there(kernel: KernelSource) -> bool:
        return kernel in _addresses or cache.get(kernel_key(kernel)) is not None

    with _lock:
        taken = {}
        for kernel in kernels:
            if kernel in fallbacks and not is_there(kernel):
                found = next(filter(is_there, fallbacks[kernel]()), None)
                if found is not None:
                    taken[kernel] = found
        return load_kernels([taken.get(kernel, kernel) for kernel in kernels]), frozenset(taken)


def load_kernel_unlocked(kernel: KernelSource, name: str) -> int:
    """The address of a kernel that is compiled, if it must be, while other threads may load others. name: of the
    processor it is for, one of `machine.CHOICES`, which need not be the one of `hl.config.cpu` any more."""
    with _lock:
        if name == host_name() and kernel in _addresses:
            return _addresses[kernel]
    (code,) = codegen.compile_kernels([kernel], default_cache(), name)
    with _lock:
        if name == host_name():
            return load_kernels([kernel])[0]
    return native.load(code.data, code.symbols)[kernel.name]
