"""CUDA texts to LLVM IR by Numba's CUDA target, with the passes that kernels need, and LLVM IR to PTX by NVVM.

Importing this imports numba-cuda.
"""

from __future__ import annotations

import contextlib
from typing import Any

from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.functions import BaseFunction
from numba.cuda import compiler as numba_cuda
from numba.cuda.core import typed_passes, untyped_passes
from numba.cuda.core.compiler_machinery import PassManager
from numba.cuda.cudadrv import nvvm
from numba.cuda.descriptor import cuda_target

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.math import CASTS
from hloom.compiler.targets.cuda.codegen.intrinsics import namespace

compiler: Any = numba_cuda  # numba-cuda's, which is in the place of the one that Numba's types describe
_BETWEEN = "\0"  # separates the modules of a kernel: its own, and those of functions that it calls
_OLDEST = (8, 0)  # lowering asks only whether the architecture is older than this
# fma=0: a * b + c is rounded twice, as HLO says and as the CPU does; `fma_f32` and libdevice stay fused.
_OPTIONS = {"fastmath": False, "opt": 3, "fma": 0}


def lower_cuda(source: KernelSource) -> str:
    """The LLVM IR of a kernel source, which NVVM compiles for any architecture. Most of the time of a compilation."""
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
        limits = (bounds, together) if together > 1 else bounds
        nvvm.set_launch_bounds(kernel, limits)  # type: ignore[attr-defined]  # numba-cuda's
        for argument, param in zip(kernel.args, source.params, strict=True):
            if param.endswith("*"):
                # Different pointers of a kernel never overlap: what is only read may go through the read-only cache.
                argument.add_attribute("noalias")
        ir = _BETWEEN.join(library.llvm_strs)
    # Numba's names differ from one compile to the next.
    return ir.replace(result.fndesc.llvm_func_name, source.name)


def ptx_of(ir: str, arch: str) -> str:
    """PTX of LLVM IR for an architecture such as "sm_90a". Numba's `cuda.compile` is `lower_cuda` and this, without a
    way to switch contraction off."""
    ptx = nvvm.compile_ir(ir.split(_BETWEEN), **_OPTIONS, arch=f"compute_{arch.removeprefix('sm_')}")
    return ptx.decode().strip("\0").strip()


def _numba_type(param: str):
    if not param.endswith("*"):
        return CASTS[param]
    element = {"pred": types.uint8, "f16": types.uint16, "bf16": types.uint16}.get(param[:-1])
    return types.CPointer(element or CASTS[param[:-1]])


_overloads: dict[tuple, object] = {}  # by method, what it is asked about, and the types of the arguments


def _remembering(method):
    """A method of Numba, `(.., keywords)`, that resolves each call without keywords once per process."""

    def remembered(*arguments):
        *call, keywords = arguments
        try:
            known = None if keywords else _overloads.get((method.__name__, *call))
        except TypeError:  # arguments that have no hash
            return method(*arguments)
        if known is None:
            known = method(*arguments)
            if known is not None and not keywords:
                _overloads[method.__name__, *call] = known
        return known

    return remembered


@contextlib.contextmanager
def _remembered_overloads():
    """Within it, type inference and lowering resolve each overload once per process."""
    context, get_call_type = cuda_target.typing_context, BaseFunction.get_call_type
    context.resolve_function_type = _remembering(context.resolve_function_type)
    BaseFunction.get_call_type = _remembering(get_call_type)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del context.resolve_function_type
        BaseFunction.get_call_type = get_call_type  # type: ignore[method-assign]


class _Compiler(compiler.CUDACompiler):
    """The passes that a kernel text needs: it has no closures, no `with` blocks, no branches on constants and no
    objects of Python, for which the usual pipeline has twenty more."""

    def define_pipelines(self):
        manager = PassManager("kernels")
        for step in (
            compiler.CUDATranslateBytecode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
            untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
            compiler.IRLegalization, compiler.CreateLibrary, compiler.CUDANativeLowering, compiler.CUDABackend,
        ):  # fmt: skip
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


@contextlib.contextmanager
def _few_passes():
    """Within it, numba-cuda, which offers no choice, compiles by `_Compiler`."""
    usual, compiler.CUDACompiler = compiler.CUDACompiler, _Compiler
    try:
        yield
    finally:
        compiler.CUDACompiler = usual
