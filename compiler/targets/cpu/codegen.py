"""Kernels to object code for the host CPU.

    compile_kernels(kernels, cache=None) -> list[ObjectCode]     one for each kernel, in order
    compile_functions(functions) -> ObjectCode                   native functions that call each other (the driver)
    assembly(kernel) -> str                                      for tests and tools
    kernel_key(kernel) -> str                                    names the object code in a cache
    fingerprint() -> str                                         hash of everything but the kernel that decides the code

Every kernel becomes one exported C function `void NAME(int64_t *args, int64_t lo, int64_t hi)`. `args` holds one 64-bit
word for each parameter but the last two: the address for a pointer, the value for an integer, the bits for a float.

Numba is imported by the first kernel that is not in the cache, so a process with a warm cache never pays for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hloom.compiler.compile_timings import collecting, count, current, stage
from hloom.compiler.gil import fast_switching
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import prebuilt_kernels
from hloom.compiler.targets.cpu.interface import NativeFunction, ObjectCode, Store, kernel_key
from hloom.compiler.targets.cpu.machine import Machine, available_cores


def compile_kernels(kernels: Sequence[KernelSource], cache: Store | None = None) -> list[ObjectCode]:
    """Object code of each kernel: of the file of stored kernels, or from `cache` where it has it. Raises
    KernelCompileError for a text with an error."""
    made: list[ObjectCode | None] = [None] * len(kernels)
    missing = []
    for index, kernel in enumerate(kernels):
        data = prebuilt_kernels.object_code(kernel)
        if data is None and cache is not None:
            data = cache.get(kernel_key(kernel))
        if data is None:
            missing.append(index)
        else:
            made[index] = ObjectCode((kernel.name,), data)
    if missing:
        count("kernels compiled", len(missing))
        for index, code in zip(missing, _compile([kernels[index] for index in missing], cache), strict=True):
            made[index] = code
            if cache is not None:
                cache.put(kernel_key(kernels[index]), code.data)
    return made


def _compile(kernels: Sequence[KernelSource], cache: Store | None) -> list[ObjectCode]:
    from hloom.compiler.targets.cpu import backend

    stages = current()

    def front_end(kernel: KernelSource) -> tuple[str, list[bytes | str]]:
        with stage("front end"):
            return kernel_module(kernel, cache)

    def emit(name: str, text: str, libraries: list[bytes | str]) -> ObjectCode:
        with collecting(stages), stage("llvm"):
            return ObjectCode((name,), backend.compiled(text, libraries))

    if len(kernels) == 1:
        return [emit(kernels[0].name, *front_end(kernels[0]))]
    # LLVM runs without the GIL: every processor compiles a kernel, long texts first, so that none is left to wait for.
    with ThreadPoolExecutor(min(len(kernels), available_cores())) as workers, fast_switching:
        made = {}
        for kernel in sorted(kernels, key=lambda kernel: -len(kernel.text)):
            made[kernel] = workers.submit(emit, kernel.name, *front_end(kernel))
        return [made[kernel].result() for kernel in kernels]


def kernel_module(kernel: KernelSource, cache: Store | None) -> tuple[str, list[bytes | str]]:
    """LLVM IR (text) of a kernel with its C entry, and the libraries (bitcode or text) that it is linked with."""
    from hloom.compiler.targets.cpu import backend
    from hloom.compiler.targets.cpu.llvm_emitter import emitter as direct
    from hloom.compiler.targets.cpu.numba_frontend import prebuilt_library

    try:
        text, names = direct.kernel_text(kernel, backend.triple())
        return text, [prebuilt_library.module_text(name) for name in names]
    except (direct.Unsupported, SyntaxError):  # a text with an error is reported by Numba's front end
        from hloom.compiler.targets.cpu.numba_frontend import lower

        count("kernels through Numba")
        return lower.kernel_module(kernel, cache)


def compile_functions(functions: Sequence[NativeFunction], machine: Machine | None = None) -> ObjectCode:
    """One object file with all `functions`, which may call each other and the C library. machine: None is the host."""
    from hloom.compiler.targets.cpu import backend
    from hloom.compiler.targets.cpu.numba_frontend import lower

    modules = [lower.function_module(function) for function in functions]
    exported = tuple(function.name for function in functions if function.exported)
    optimized = backend.optimized_together(modules, exported, machine)
    return ObjectCode(exported, backend.object_code(optimized, machine))


def compile_ir(text: str, exported: Sequence[str]) -> ObjectCode:
    """Object code of LLVM IR (text)."""
    from hloom.compiler.targets.cpu import backend

    return ObjectCode(tuple(exported), backend.object_code(backend.optimized_together([text], exported)))


def assembly(kernel: KernelSource) -> str:
    """The assembly text of a kernel, as the host would run it."""
    from hloom.compiler.targets.cpu import backend

    return backend.assembly(backend.optimized(*kernel_module(kernel, None)))


def llvm_ir(kernel: KernelSource, optimized: bool = True) -> str:
    """The LLVM IR of a kernel, after the optimizer or as the front end made it."""
    from hloom.compiler.targets.cpu import backend

    text, libraries = kernel_module(kernel, None)
    return str(backend.optimized(text, libraries)) if optimized else text
