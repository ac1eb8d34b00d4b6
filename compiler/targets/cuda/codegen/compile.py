"""CUDA texts to cubins, with no GPU and no driver: Numba's CUDA target, NVVM and nvJitLink.

Everything comes from Python packages (the extra `cuda`). A driver is given cubins, never PTX: PTX of a newer toolkit is
refused by an older driver, a cubin of the same architecture is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.errors import HloomError
from hloom.ir.process import forking
from hloom.ir.records import record

_lock = forking.lock()
_REPAIR = 'pip install "hloom[cuda]" (numba-cuda, nvJitLink, and NVVM 13.0)'


class CudaNotInstalledError(HloomError, ImportError):
    """CUDA code was asked for, and the packages of the extra `cuda` are not there."""


class CudaCompileError(HloomError):
    """A kernel text that Numba, NVVM or nvJitLink refused."""


@record(frozen=True)
class CudaCode:
    """A compiled kernel.

    name: the entry in the cubin. cubin: machine code for `arch`. ptx: the text it was assembled from.
    registers: 32-bit registers a thread. spills: bytes a thread stores and loads because registers ran out.
    stack: bytes of local memory a thread; shared: bytes of static shared memory a block.
    """

    name: str
    arch: str
    cubin: bytes
    ptx: str
    registers: int
    spills: int
    stack: int
    shared: int


def available() -> bool:
    """Whether the packages that compile for CUDA are installed. Says nothing about a GPU."""
    try:
        _packages()
    except CudaNotInstalledError:
        return False
    return True


def compile_cuda(sources: Iterable[KernelSource], arch: str = "sm_90", lower=None) -> list[CudaCode]:
    """Compiles CUDA kernel sources (of `render`) for an architecture from sm_80 on ('sm_90a' too).

    lower: what returns a source's LLVM IR, by default `lowering.lower_cuda`; the IR is the same for every architecture.
    Raises CudaNotInstalledError where the extra `cuda` is missing, CudaCompileError for a source that does not compile.
    """
    _packages()
    from hloom.compiler.targets.cuda.codegen import lowering  # saves start-up time: Numba

    return [_compile(source, arch, lower or lowering.lower_cuda, lowering.ptx_of) for source in sources]


def _packages() -> None:
    try:
        import cuda.bindings.nvjitlink  # noqa: F401
        import numba.cuda.compiler  # noqa: F401
        from cuda.pathfinder import load_nvidia_dynamic_lib  # saves start-up time: NVIDIA's bindings

        load_nvidia_dynamic_lib("nvvm")
        load_nvidia_dynamic_lib("nvJitLink")
    except Exception as error:  # each package has its own error for a library that is missing
        raise CudaNotInstalledError("compile for CUDA", f"{type(error).__name__}: {error}", _REPAIR) from error


def _compile(source: KernelSource, arch: str, lower, ptx_of) -> CudaCode:
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if not found or int(found[1]) < 8:
        raise CudaCompileError(
            f"compile {source.name} for {arch!r}", repair="name an architecture from sm_80 on: 'sm_90'"
        )
    with forking.no_fork(), _lock:
        try:
            ptx = ptx_of(lower(source), arch)
        except LookupError:
            raise
        except Exception as error:
            raise CudaCompileError(f"compile {source.name} for {arch}", f"{error}\n{source.text}") from error
    made = _code(source.name, ptx, arch)
    # Registers are not bounded for the sake of further blocks where that would spill some.
    if made.spills and getattr(source, "together", 1) > 1:
        return min(made, _code(source.name, ptx, arch, _ONE_BLOCK), key=lambda code: code.spills)
    return made


# In place of what the text says of how many blocks a processor has at a time.
_ONE_BLOCK = ("-Xptxas=--override-directive-values", "-Xptxas=--minnctapersm=1")


def _code(name: str, ptx: str, arch: str, options: tuple[str, ...] = ()) -> CudaCode:
    cubin, log = _assemble(name, ptx, arch, options)
    return CudaCode(
        name, arch, cubin, ptx, _number(r"Used (\d+) registers", log),
        _number(r"(\d+) bytes spill stores", log) + _number(r"(\d+) bytes spill loads", log),
        _number(r"(\d+) bytes stack frame", log), _number(r"(\d+) bytes smem", log),
    )  # fmt: skip


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _assemble(name: str, ptx: str, arch: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """The cubin of PTX text, and the assembler's report."""
    from cuda.bindings import nvjitlink  # saves start-up time: NVIDIA's bindings

    handle = nvjitlink.create(2 + len(options), [f"-arch={arch}", "-verbose", *options])
    try:
        data = ptx.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), name)
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            report = bytearray(nvjitlink.get_error_log_size(handle))
            nvjitlink.get_error_log(handle, report)
            raise CudaCompileError(f"assemble {name} for {arch}", f"{error}\n{report.decode()}") from error
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin), log.decode().rstrip("\0")
