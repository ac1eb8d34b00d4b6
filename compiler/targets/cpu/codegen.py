"""Kernels and native functions to object code for the host CPU.

    compile_kernels(kernels, cache=None) -> list[ObjectCode]     one per kernel, in order
    compile_functions(functions, cache=None) -> ObjectCode       native functions that call each other (the driver)
    compile_ir(text, exported) -> ObjectCode                     LLVM IR
    assembly(kernel), llvm_ir(kernel) -> str                     for tests and tools

Every kernel becomes one exported C function `void NAME(int64_t *args, int64_t lo, int64_t hi)`. `args` holds one 64-bit
word for each parameter but the last two: the address for a pointer, the value for an integer, the bits for a float.

The LLVM emitter compiles kernel sources; what it does not know goes to Numba's front end, or all of them
(`hl.config.codegen`). Neither LLVM nor Numba is
imported before something has to be compiled, so a process with a warm cache starts without them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hloom.compiler.cache import Cache
from hloom.compiler.compile_timings import collecting, count, current, stage
from hloom.compiler.gil import fast_switching
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.interface import (
    KernelCompileError,
    NativeFunction,
    ObjectCode,
    code_version,
    compiled_by_numba,
    kernel_key,
)
from hloom.compiler.targets.cpu.machine import Machine, available_cores, host_name, machine_of, portable_machine
from hloom.compiler.targets.cpu.prebuilt import keys as prebuilt
from hloom.ir.process import forking

__all__ = [
    "assembly",
    "compile_for",
    "compile_functions",
    "compile_ir",
    "compile_kernels",
    "functions_key",
    "kernel_module",
    "llvm_ir",
]


def _backend():
    from hloom.compiler.targets.cpu import backend  # imports LLVM: 30 ms that a warm process does without

    return backend


def compile_kernels(
    kernels: Sequence[KernelSource], cache: Cache | None = None, name: str | None = None
) -> list[ObjectCode]:
    """Object code of each kernel: prebuilt, or from `cache` where it has it, else compiled. Raises KernelCompileError
    for a source with an error.

    name: of the processor, one of `machine.CHOICES`; None is `host_name()`.
    """
    name = name or host_name()
    machine = machine_of(name)
    made: dict[int, ObjectCode] = {}
    for index, kernel in enumerate(kernels):
        data = prebuilt.kernel_code(kernel, name)
        if data is None and cache is not None:
            data = cache.get(kernel_key(kernel, machine))
        if data is not None:
            made[index] = ObjectCode((kernel.name,), data)
    missing = [index for index in range(len(kernels)) if index not in made]
    if missing:
        count("kernels compiled", len(missing))
        for index, code in zip(missing, _compile([kernels[index] for index in missing], machine), strict=True):
            made[index] = code
            if cache is not None:
                cache.put(kernel_key(kernels[index], machine), code.data)
    return [made[index] for index in range(len(kernels))]


def _compile(kernels: Sequence[KernelSource], machine: Machine) -> list[ObjectCode]:
    stages = current()

    def front_end(kernel: KernelSource) -> tuple[str, list[bytes | str]]:
        with stage("front end"), forking.no_fork():
            return kernel_module(kernel)

    def emit(name: str, text: str, libraries: list[bytes | str]) -> ObjectCode:
        with collecting(stages), stage("llvm"), forking.no_fork():
            return ObjectCode((name,), _backend().compiled(text, libraries, machine))

    if len(kernels) == 1:
        return [emit(kernels[0].name, *front_end(kernels[0]))]
    # LLVM runs without the GIL: every core compiles a kernel. Long sources go first, so that none is left to wait for.
    with ThreadPoolExecutor(min(len(kernels), available_cores())) as workers, fast_switching:
        made = {}
        for kernel in sorted(kernels, key=lambda kernel: -len(kernel.text)):
            made[kernel] = workers.submit(emit, kernel.name, *front_end(kernel))
        return [made[kernel].result() for kernel in kernels]


def compile_for(kernel: KernelSource, machine: Machine) -> bytes:
    """Object code of a kernel for a machine that need not be the host."""
    return _backend().compiled(*kernel_module(kernel), machine)


def kernel_module(kernel: KernelSource) -> tuple[str, list[bytes | str]]:
    """LLVM IR of a kernel with its C entry, and the libraries (bitcode or IR) that it is linked with."""
    # These save start-up time: they import LLVM, which a warm process does without.
    from hloom.compiler.targets.cpu import library
    from hloom.compiler.targets.cpu.llvm_emitter import checks, emitter, scratch

    checked = kernel.checks is not None
    try:
        if compiled_by_numba() and not scratch.guarded() and not checked:  # Numba knows neither guards nor checks
            raise emitter.Unsupported("hl.config.codegen is 'numba'")
        text, names = emitter.kernel_text(kernel, _backend().triple(), library.signature, library.shared_size)
        guards = [scratch.GUARDS] * scratch.guarded()
        tables = [checks.TABLES] * checked
        return text, [*(library.module_text(name) for name in names), *guards, *tables]
    except (emitter.Unsupported, SyntaxError) as error:  # Numba's front end reports errors of the source
        if checked:
            raise KernelCompileError(kernel.name, kernel.text, f"no checks are compiled for it: {error}") from None
        count("kernels through Numba")
        text, linked = library.numba_lowering().kernel_module(kernel, library.module_text)
        return text, [*linked]


def compile_functions(functions: Sequence[NativeFunction], cache: Cache | None = None) -> ObjectCode:
    """One object file with all `functions`, which may call each other and the C library, for every processor of the
    host's architecture: prebuilt, or from `cache` where it has it, else compiled."""
    exported = tuple(function.name for function in functions if function.exported)
    data = prebuilt.functions_code(functions)
    key = functions_key(functions)
    if data is None and cache is not None:
        data = cache.get(key)
    if data is None:
        with forking.no_fork():
            from hloom.compiler.targets.cpu import library  # imports LLVM, which a warm process does without

            machine, backend, lower = portable_machine(), _backend(), library.numba_lowering()
            modules = [lower.function_module(function) for function in functions]
            data = backend.object_code(backend.optimized_together(modules, exported, machine), machine)
        if cache is not None:
            cache.put(key, data)
    return ObjectCode(exported, data)


def functions_key(functions: Sequence[NativeFunction]) -> str:
    """The cache key of what `compile_functions` returns."""
    return "functions-" + hashlib.sha256(f"{code_version()} {functions!r}".encode()).hexdigest()


def compile_ir(text: str, exported: Sequence[str]) -> ObjectCode:
    """Object code of LLVM IR for the host."""
    backend = _backend()
    return ObjectCode(tuple(exported), backend.object_code(backend.optimized_together([text], exported)))


def assembly(kernel: KernelSource, machine: Machine | None = None) -> str:
    """The assembly text of a kernel. machine: None is the host."""
    return _backend().assembly(_backend().optimized(*kernel_module(kernel), machine), machine)


def llvm_ir(kernel: KernelSource, optimized: bool = True, machine: Machine | None = None) -> str:
    """The LLVM IR of a kernel, after the optimizer or as the front end emits it. machine: None is the host."""
    text, libraries = kernel_module(kernel)
    return str(_backend().optimized(text, libraries, machine)) if optimized else text
