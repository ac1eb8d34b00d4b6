"""CUDA texts to cubins, with no GPU and no driver: Numba's CUDA target, NVVM and nvJitLink.

Everything comes from Python packages (the extra `cuda`). A driver is given cubins, never PTX: PTX of a newer toolkit is
refused by an older driver, a cubin of the same architecture is not.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.errors import HloomError
from hloom.ir.records import record

_lock = threading.Lock()
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

    lower: what returns a source's LLVM IR, by default `lower_cuda`; the IR is the same for every architecture.
    Raises CudaNotInstalledError where the extra `cuda` is missing, CudaCompileError for a source that does not compile.
    """
    _packages()
    return [_compile(source, arch, lower or lower_cuda) for source in sources]


def _packages() -> None:
    try:
        import cuda.bindings.nvjitlink  # noqa: F401
        import numba.cuda.compiler  # noqa: F401
        from cuda.pathfinder import load_nvidia_dynamic_lib  # saves start-up time: NVIDIA's bindings

        load_nvidia_dynamic_lib("nvvm")
        load_nvidia_dynamic_lib("nvJitLink")
    except Exception as error:  # each package has its own error for a library that is missing
        raise CudaNotInstalledError("compile for CUDA", f"{type(error).__name__}: {error}", _REPAIR) from error


def _compile(source: KernelSource, arch: str, lower) -> CudaCode:
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if not found or int(found[1]) < 8:
        raise CudaCompileError(
            f"compile {source.name} for {arch!r}", repair="name an architecture from sm_80 on: 'sm_90'"
        )
    with _lock:
        try:
            ptx = _ptx(source.name, lower(source), (int(found[1]), int(found[2])))
        except LookupError:
            raise
        except Exception as error:
            raise CudaCompileError(f"compile {source.name} for {arch}", f"{error}\n{source.text}") from error
    if found[3]:
        ptx = re.sub(r"^\.target sm_\d+", f".target {arch}", ptx, flags=re.MULTILINE)
    made = _code(source.name, ptx, arch)
    # Registers are not bounded for the sake of further blocks where that would spill some.
    unbounded = re.sub(r"\.minnctapersm \d+", "", ptx)
    if made.spills and unbounded != ptx:
        return min(made, _code(source.name, unbounded, arch), key=lambda code: code.spills)
    return made


def _code(name: str, ptx: str, arch: str) -> CudaCode:
    cubin, log = _assemble(name, ptx, arch)
    return CudaCode(
        name, arch, cubin, ptx, _number(r"Used (\d+) registers", log),
        _number(r"(\d+) bytes spill stores", log) + _number(r"(\d+) bytes spill loads", log),
        _number(r"(\d+) bytes stack frame", log), _number(r"(\d+) bytes smem", log),
    )  # fmt: skip


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _numba_type(param: str):
    from numba import types  # saves start-up time: Numba

    from hloom.compiler.kernels.math import CASTS  # saves start-up time: Numba

    if not param.endswith("*"):
        return CASTS[param]
    element = {"pred": types.uint8, "f16": types.uint16, "bf16": types.uint16}.get(param[:-1])
    return types.CPointer(element or CASTS[param[:-1]])


_BETWEEN = "\0"  # separates the modules of a kernel: its own, and those of functions that it calls
_OLDEST = (8, 0)  # lowering asks only whether the architecture is older than this


def lower_cuda(source: KernelSource) -> str:
    """The LLVM IR of a kernel source, which NVVM compiles for any architecture. Most of the time of a compilation."""
    # These save start-up time: Numba.
    from numba.core import types
    from numba.core.compiler_lock import global_compiler_lock
    from numba.cuda import compiler
    from numba.cuda.cudadrv import nvvm

    from hloom.compiler.targets.cuda.codegen.intrinsics import namespace  # saves start-up time: Numba

    code = compile(source.text, f"<{source.name}>", "exec")
    (inner,) = (constant for constant in code.co_consts if hasattr(constant, "co_names"))
    scope = namespace(inner.co_names)
    exec(code, scope)
    arguments = tuple(_numba_type(param) for param in source.params)
    with global_compiler_lock, _remembered_overloads(), _few_passes():
        result = compiler.compile_cuda(
            scope[source.name], types.void, arguments, fastmath=False, nvvm_options=_OPTIONS, cc=_OLDEST
        )
        library = result.library
        kernel = library.get_function(result.fndesc.llvm_func_name)
        library._entry_name = result.fndesc.llvm_func_name
        compiler.kernel_fixup(kernel, False)
        bounds, together = getattr(source, "threads", None), getattr(source, "together", 1)
        nvvm.set_launch_bounds(kernel, (bounds, together) if together > 1 else bounds)
        for argument, param in zip(kernel.args, source.params, strict=True):
            if param.endswith("*"):
                # Different pointers of a kernel never overlap: what is only read may go through the read-only cache.
                argument.add_attribute("noalias")
        ir = _BETWEEN.join(library.llvm_strs)
    # Numba's names differ from one compile to the next.
    return ir.replace(result.fndesc.llvm_func_name, source.name)


_overloads: dict[tuple, object] = {}  # by what is asked, the function, and the types of its arguments


def _remembering(method):
    """A method `(self, ..)` of Numba that answers each question about types without keywords once per process."""

    def remembered(*arguments):
        *question, keywords = arguments
        try:
            known = None if keywords else _overloads.get((method.__name__, *question))
        except TypeError:  # arguments that have no hash
            return method(*arguments)
        if known is None:
            known = method(*arguments)
            if known is not None and not keywords:
                _overloads[method.__name__, *question] = known
        return known

    return remembered


@contextlib.contextmanager
def _remembered_overloads():
    """Within it, Numba resolves each overload once per process, in type inference and in lowering: half of its time."""
    from numba.core.types.functions import BaseFunction  # saves start-up time: Numba
    from numba.cuda.descriptor import cuda_target  # numba-cuda takes 0.2 s

    context, get_call_type = cuda_target.typing_context, BaseFunction.get_call_type
    context.resolve_function_type = _remembering(context.resolve_function_type)
    BaseFunction.get_call_type = _remembering(get_call_type)
    try:
        yield
    finally:
        del context.resolve_function_type
        BaseFunction.get_call_type = get_call_type


@contextlib.contextmanager
def _few_passes():
    """Within it, Numba's compiler for CUDA runs the passes that a kernel text needs: no closures, no `with` blocks, no
    branches on constants, no arrays and none of Python's objects are in it. A third of the time of lowering."""
    # These save start-up time: Numba.
    from numba.cuda import compiler
    from numba.cuda.core import typed_passes, untyped_passes
    from numba.cuda.core.compiler_machinery import PassManager

    usual = compiler.CUDACompiler

    class Few(usual):
        def define_pipelines(self):
            manager = PassManager("hloom")
            for part in (
                compiler.CUDATranslateBytecode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
                untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
                compiler.IRLegalization, compiler.CreateLibrary, compiler.CUDANativeLowering, compiler.CUDABackend,
            ):  # fmt: skip
                manager.add_pass(part, part.__name__)
            manager.finalize()
            return [manager]

    compiler.CUDACompiler = Few
    try:
        yield
    finally:
        compiler.CUDACompiler = usual


# fma=0: a * b + c is rounded twice, as HLO says and as the CPU does; `fma_f32` and libdevice stay fused.
_OPTIONS = {"fastmath": False, "opt": 3, "fma": 0}


def _ptx(name: str, ir: str, capability: tuple[int, int]) -> str:
    """PTX of LLVM IR. Numba's `cuda.compile` is `lower_cuda` and this, without a way to switch contraction off."""
    from numba.cuda.cudadrv import nvvm  # saves start-up time: Numba

    major, minor = capability
    ptx = nvvm.compile_ir(ir.split(_BETWEEN), **_OPTIONS, arch=f"compute_{major}{minor}")
    return ptx.decode().strip("\0").strip()


def _assemble(name: str, ptx: str, arch: str) -> tuple[bytes, str]:
    """The cubin of PTX text, and the assembler's report."""
    from cuda.bindings import nvjitlink  # saves start-up time: NVIDIA's bindings

    handle = nvjitlink.create(2, [f"-arch={arch}", "-verbose"])
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
