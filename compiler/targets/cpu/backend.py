"""LLVM IR to object code for the host, through llvmlite alone."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable

import llvmlite.binding as llvm

from .machine import Machine, host
from .streaming import is_streamed, past_caches

# Measured on Zen 3 with a gelu-like kernel (ms, optimizing + emitting): level 1 10 + 10, level 2 10 + 10, level 3
# 12 + 10 with the same vector loop, so the standard level. The superword vectorizer finds nothing in kernels whose
# loops the loop vectorizer has widened, and costs 1 ms.
_OPTIMIZATION = 2
_lock = threading.RLock()


@functools.cache
def _target_machine(machine: Machine) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # the driver has a line of inline assembly
    # Position-independent code of the small model addresses constants relative to the instruction pointer; the JIT's
    # default (large) model needs a 10-byte move for each. Loaders put code and constants of one object side by side.
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=_OPTIMIZATION, reloc="pic", codemodel="small"
    )


def _optimize(module: llvm.ModuleRef, machine: Machine, vectorize: bool) -> None:
    options = llvm.create_pipeline_tuning_options(_OPTIMIZATION)
    options.loop_vectorization = vectorize
    options.loop_interleaving = vectorize
    options.loop_unrolling = vectorize
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_target_machine(machine), options)
    # Running a pipeline uses it up, so each module gets its own (0.1 ms).
    builder.getModulePassManager().run(module, builder)


def bitcode(text: str, libraries: Iterable[bytes] = (), machine: Machine | None = None) -> bytes:
    """Bitcode of a module of small functions that kernels inline: simplified, not vectorized."""
    with _lock:
        module = _linked(text, libraries, machine or host())
        _optimize(module, machine or host(), vectorize=False)
        for function in module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
                function.add_function_attribute("alwaysinline")
        return module.as_bitcode()


def optimized(text: str, libraries: Iterable[bytes] = (), machine: Machine | None = None) -> llvm.ModuleRef:
    """The module in `text` linked with `libraries` (bitcode, all of it inlined or dropped) and optimized."""
    machine = machine or host()
    with _lock:
        module = _linked(text, libraries, machine)
        _optimize(module, machine, vectorize=True)
        if is_streamed(text):
            module = past_caches(module, _target_machine(machine), machine.vector_bytes)
        return module


def object_code(module: llvm.ModuleRef, machine: Machine | None = None) -> bytes:
    with _lock:
        return _target_machine(machine or host()).emit_object(module)


def assembly(module: llvm.ModuleRef, machine: Machine | None = None) -> str:
    with _lock:
        return _target_machine(machine or host()).emit_assembly(module)


def _linked(text: str, libraries: Iterable[bytes], machine: Machine) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.data_layout = str(_target_machine(machine).target_data)
    for library in libraries:
        module.link_in(llvm.parse_bitcode(library))
    return module


def optimized_together(texts: Iterable[str], exported: Iterable[str], machine: Machine | None = None) -> llvm.ModuleRef:
    """One optimized module of several; functions that are not `exported` become internal to it."""
    machine = machine or host()
    with _lock:
        first, *others = (llvm.parse_assembly(text) for text in texts)
        first.data_layout = str(_target_machine(machine).target_data)
        for other in others:
            first.link_in(other)
        for function in first.functions:
            if not function.is_declaration and function.name not in set(exported):
                function.linkage = "internal"
        _optimize(first, machine, vectorize=False)
        return first
