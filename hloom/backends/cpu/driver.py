"""Joins compiler and runtime: the driver of this process, and kernels as addresses.

driver() -> Driver
loaded_kernels(kernels) -> list[Kernel]   one for each kernel source, loaded while it is referred to
load_or_fall_back(kernels, fallbacks)     the same, without compiling kernels that have a fallback
load_kernels(kernels) -> list[int]        their addresses, loaded for good

Programs hold the Kernels whose addresses are in them, so a kernel is freed with the last program that calls it. The
kernels used last are kept beyond that, as a function that is compiled again mostly needs the same ones.
"""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from hloom.compiler.cache import default_cache, use_folder
from hloom.compiler.compile_timings import stage
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.interface import kernel_key, use_numba
from hloom.compiler.targets.cpu.llvm_emitter.scratch import use_guards
from hloom.compiler.targets.cpu.machine import available_cores, host_name, use_cpu
from hloom.config import config
from hloom.ir.process import forking, memory
from hloom.runtime import driver_source, native, numbers_source, team_source
from hloom.runtime.driver import Driver, default_num_threads, install

config.on_change("cache_dir", use_folder)
if config.cache_dir is not None:  # set before this module was needed
    use_folder(config.cache_dir)
use_cpu(config.cpu)  # set before this module was needed, by the program or by HLOOM_CPU
if config.guard_scratch:
    use_guards(True)
use_numba(config.codegen == "numba")

_lock = forking.rlock()
_RECENT = 256  # kernels kept though no program uses them


class Kernel:
    """A kernel in this process's memory. address: of its C entry `void (int64_t *args, int64_t lo, int64_t hi)`, which
    is valid as long as anything refers to the Kernel."""

    __slots__ = ("__weakref__", "_code", "address")

    def __init__(self, code: native.Code, name: str):
        self.address, self._code = code.addresses[name], code


_kernels: weakref.WeakValueDictionary[KernelSource, Kernel] = weakref.WeakValueDictionary()
_recent: OrderedDict[KernelSource, Kernel] = OrderedDict()
_kept: list[Kernel] = []  # for good


def _change_cpu(name: str | None) -> None:
    with _lock:
        use_cpu(name)
        _kernels.clear()  # of kernels for another processor
        _recent.clear()


config.on_change("cpu", _change_cpu)


def _change_guards(on: bool) -> None:
    with _lock:
        use_guards(on)
        _kernels.clear()
        _recent.clear()


config.on_change("guard_scratch", _change_guards)


def _change_codegen(name: str) -> None:
    with _lock:
        use_numba(name == "numba")
        _kernels.clear()
        _recent.clear()


config.on_change("codegen", _change_codegen)


def load_functions(functions: Sequence[driver_source.NativeFunction]) -> dict[str, int]:
    """Addresses of native functions that call each other: compiled, or from the disk cache; loaded for good."""

    def loaded() -> dict[str, int]:
        code = codegen.compile_functions(functions, default_cache())
        return native.load(code.data, code.symbols)

    try:
        return loaded()
    except native.LoadError as error:
        default_cache().discard(codegen.functions_key(functions), f"does not load ({error})")
        return loaded()


@functools.cache
def _entry_points() -> dict[str, int]:
    """Addresses of the driver's native functions."""
    return load_functions(driver_source.FUNCTIONS)


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
    """The driver of the device cpu:index, compiled or taken from the disk cache on the first call. Each has separate
    threads."""
    with _lock:
        return _driver(index)


@functools.cache
def _serial_driver() -> Driver:
    return install(_entry_points(), 1)


@functools.cache
def _team_driver(threads: int) -> Driver:
    return install(_entry_points(), threads)


def team_drivers(devices: Sequence[int], threads: int | None = None) -> tuple[Driver, list[Driver]]:
    """For a program that several CPU devices run together: the driver whose threads run the devices, as many as there
    are for all kernels together (or `threads`), and each device's own."""
    total = config.num_threads or default_num_threads()
    with _lock:
        team = _team_driver(threads or min(total, len(devices)))
        alone = len(devices) >= total
        return team, [_serial_driver() if alone else _driver(index) for index in devices]


@functools.cache
def _team_functions() -> dict[str, int]:
    return load_functions(team_source.FUNCTIONS)


def team_entries() -> tuple[int, int]:
    """The addresses of `hloom_team_begin` and `hloom_team`."""
    with _lock:
        found = _team_functions()
    return found["hloom_team_begin"], found["hloom_team"]


@functools.cache
def number_functions() -> dict[str, int]:
    """Addresses of the functions of `numbers_source`, by name."""
    return load_functions(numbers_source.FUNCTIONS)


def load_kernels(kernels: Sequence[KernelSource]) -> list[int]:
    """Addresses of the kernels' C entries, valid until the process ends: for measurements. Raises
    interface.KernelCompileError."""
    found = loaded_kernels(kernels)
    _kept.extend(found)
    return [kernel.address for kernel in found]


def loaded_kernels(kernels: Sequence[KernelSource]) -> list[Kernel]:
    """The kernels in memory. Raises interface.KernelCompileError.

    Kernels already loaded in this process cost a dictionary look-up, those in the disk cache 0.2 ms, others a compile.
    """
    with _lock:
        found = {kernel: _kernels.get(kernel) for kernel in kernels}
        missing = [kernel for kernel, known in found.items() if known is None]
        if missing:
            try:
                codes = _loaded(missing)
            except native.LoadError:  # cached code that is not code: compiled anew, or an error of the compiler
                for kernel in missing:
                    _discard_if_unloadable(kernel)
                codes = _loaded(missing)
            for kernel, code in zip(missing, codes, strict=True):
                found[kernel] = _kernels[kernel] = Kernel(code, kernel.name)
        used = {kernel: known for kernel, known in found.items() if known is not None}
        for kernel, known in used.items():
            _recent[kernel] = known
            _recent.move_to_end(kernel)
        while len(_recent) > _RECENT:
            _recent.popitem(last=False)
        return [used[kernel] for kernel in kernels]


@memory.on_release
def _forget_kernels(everything: bool) -> None:
    """Frees the kernels that no program uses, and the object code that is on disk too."""
    with _lock:
        _recent.clear()
    if everything:
        default_cache().forget()


def _loaded(kernels: Sequence[KernelSource]) -> list[native.Code]:
    made = codegen.compile_kernels(kernels, default_cache())
    with stage("load"):
        return native.load_codes([(code.data, code.symbols) for code in made])


def _discard_if_unloadable(kernel: KernelSource) -> None:
    key = kernel_key(kernel)
    data = default_cache().get(key)
    if data is not None:
        try:
            native.load_codes([(data, (kernel.name,))])
        except native.LoadError as error:
            default_cache().discard(key, f"does not load ({error})")


def load_or_fall_back(
    kernels: Sequence[KernelSource], fallbacks: Mapping[KernelSource, Callable[[], list[KernelSource]]]
) -> tuple[list[Kernel], frozenset[KernelSource]]:
    """As `loaded_kernels`, but for a kernel that is not compiled yet one of its fallbacks is loaded where there is a
    compiled one; and the kernels that are missing therefore."""
    cache = default_cache()

    def is_there(kernel: KernelSource) -> bool:
        return kernel in _kernels or cache.get(kernel_key(kernel)) is not None

    with _lock:
        taken = {}
        for kernel in kernels:
            if kernel in fallbacks and not is_there(kernel):
                found = next(filter(is_there, fallbacks[kernel]()), None)
                if found is not None:
                    taken[kernel] = found
        return loaded_kernels([taken.get(kernel, kernel) for kernel in kernels]), frozenset(taken)


def load_kernel_unlocked(kernel: KernelSource, name: str) -> Kernel:
    """A kernel that is compiled, if it must be, while other threads may load others. name: of the processor it is for,
    one of `machine.CHOICES`, which need not be the one of `hl.config.cpu` any more."""
    with _lock:
        known = _kernels.get(kernel) if name == host_name() else None
        if known is not None:
            return known
    (code,) = codegen.compile_kernels([kernel], default_cache(), name)
    with _lock:
        if name == host_name():
            return loaded_kernels([kernel])[0]
    (made,) = native.load_codes([(code.data, code.symbols)])
    return Kernel(made, kernel.name)
