"""LLVM IR of the functions that kernels call: the math library and the block functions.

    signature(name) -> (parameters, result) | None     of a function of the math library, for the LLVM emitter
    module_text(name) -> str                           a module that defines the function
    shared_size(name) -> int                           whether the function may be shared, and what that saves
    entries() -> {key: bytes}                          what the file of prebuilt code holds of them

Math functions are written in Python (`compiler.kernels.math`) and compiled by Numba; their IR is the same on every
processor of an architecture. It comes from the file of prebuilt code, else from the disk cache; where neither has a
function, it is compiled and put into the cache. Block functions are written with llvmlite (`microkernels`, `fft`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys

from hloom.compiler.cache import default_cache
from hloom.compiler.kernel_ir.types import REGISTER
from hloom.compiler.targets.cpu.interface import LibraryFunction, code_version
from hloom.compiler.targets.cpu.llvm_emitter.calls import CALLS
from hloom.compiler.targets.cpu.llvm_emitter.shared import SHARED, scalars, shared_text
from hloom.compiler.targets.cpu.llvm_emitter.values import LLVM
from hloom.compiler.targets.cpu.machine import architecture
from hloom.compiler.targets.cpu.microkernels.names import argument_count, block_of, prebuilt_blocks
from hloom.compiler.targets.cpu.prebuilt import archive
from hloom.ir.process import forking

__all__ = ["entries", "module_text", "numba_lowering", "shared_size", "signature"]

_lock = forking.rlock()


@functools.cache
def signature(name: str) -> tuple[tuple[str, ...], str] | None:
    """HLO dtypes of the parameters and of the result of a math function that kernels may call; None for other names."""
    function = _stored(name)
    if function is None:
        if archive.is_current() or name not in _callable():
            return None
        function = _compiled(name)
    return function.parameters, function.result


@functools.lru_cache(256)  # kernels of one program share functions
def module_text(name: str) -> str:
    """A module that defines a math function, with all that it calls inlined, a block function, or the shared form of
    a math function."""
    if argument_count(name) is not None:
        data = archive.get(f"block {name}")
        return data.decode() if data is not None else _block_text(name)
    if name.startswith(SHARED):
        function = name.removeprefix(SHARED)
        known = signature(function)
        assert known is not None
        return shared_text(function, *known)
    return (_stored(name) or _compiled(name)).text


def shared_size(name: str) -> int:
    """Instructions of a function of the math library that vectors can be passed to; 0 for other names."""
    known = None if name in CALLS else signature(name)
    if known is None or scalars((*known[0], known[1])) is None:
        return 0
    return (_stored(name) or _compiled(name)).size


def entries() -> dict[str, bytes]:
    """The entries of the file of prebuilt code, compiled anew."""

    @functools.cache
    def compiled(name: str) -> LibraryFunction:
        return numba_lowering().library_function(name, lambda called: compiled(called).text)

    made = {f"function {name}": _encoded(compiled(name)) for name in sorted(_callable())}
    return made | {f"block {name}": _block_text(name).encode() for name in prebuilt_blocks()}


def numba_lowering():
    """The module that lowers with Numba. One thread imports Numba: another would see its modules half initialized."""
    with forking.no_fork(), _lock:
        from hloom.compiler.targets.cpu.numba_frontend import lower  # imports Numba, which takes longer than all else

        return lower


@functools.cache
def _callable() -> frozenset[str]:
    """Names of the math functions that the LLVM emitter may call and does not write itself."""
    return frozenset(numba_lowering().library_names({*LLVM, *REGISTER} - {"*"})) - CALLS.keys()


def _stored(name: str) -> LibraryFunction | None:
    data = archive.get(f"function {name}")
    if data is not None:
        return _decoded(data)
    return None if archive.is_current() else default_cache().load(_cache_key(name), _decoded)


@functools.cache
def _cache_key(name: str) -> str:
    return "function-" + hashlib.sha256(f"{sys.platform} {architecture()} {code_version()} {name}".encode()).hexdigest()


@functools.cache
def _compiled(name: str) -> LibraryFunction:
    with forking.no_fork(), _lock:
        if not archive.is_current():
            _report()
        function = numba_lowering().library_function(name, module_text)
        default_cache().put(_cache_key(name), _encoded(function))
        return function


@functools.cache
def _report() -> None:
    print(
        "hloom: there is no prebuilt code of this version, so math functions are compiled when they are first used; "
        "`python -m hloom.backends.cpu.prebuild` compiles them all",
        file=sys.stderr,
    )


def _encoded(function: LibraryFunction) -> bytes:
    head = json.dumps([function.parameters, function.result, function.size])
    return f"{head}\n{function.text}".encode()


def _decoded(data: bytes) -> LibraryFunction:
    head, text = data.decode().split("\n", 1)
    parameters, result, size = json.loads(head)
    return LibraryFunction(tuple(parameters), result, text, size)


def _block_text(name: str) -> str:
    """A module with the block function of a name, as kernels link it."""
    import llvmlite.binding as llvm  # 30 ms of imports that a process with a warm cache does without
    from llvmlite import ir  # saves start-up time: LLVM

    # These save start-up time: they are needed only where the library is compiled.
    from hloom.compiler.targets.cpu.fft import butterflies
    from hloom.compiler.targets.cpu.microkernels import fma

    module = ir.Module(name)
    module.triple = llvm.get_process_triple()
    if block := block_of(name):
        if block.kind == "tile":
            function = fma.build_tile(module, block.dtype, block.rows, block.columns)
        else:
            function = fma.build_transpose(module, block.dtype, block.rows)
    else:
        function = butterflies.build(module, name)
    function.linkage = "linkonce_odr"
    return str(module)
