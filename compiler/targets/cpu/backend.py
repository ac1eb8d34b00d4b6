"""LLVM IR to object code for the host, through llvmlite alone."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterable

import llvmlite.binding as llvm

from hloom.compiler.targets.cpu.half_floats import CONVERSIONS
from hloom.compiler.targets.cpu.llvm_emitter.analysis import EXPLICIT
from hloom.compiler.targets.cpu.llvm_emitter.shared import is_shared_symbol
from hloom.compiler.targets.cpu.machine import Machine, architecture, host, level_machine, native_machine
from hloom.compiler.targets.cpu.microkernels.names import is_block_symbol
from hloom.compiler.targets.cpu.nontemporal_stores import is_streamed, past_caches
from hloom.ir.process import forking

# Level 3 generates the same vector loops in more time. The superword vectorizer is off: it finds nothing in kernels
# whose loops the loop vectorizer has widened.
_OPTIMIZATION = 2
_lock = forking.rlock()


class _TargetMachines(threading.local):
    """The target machines of each thread: LLVM changes them during code generation."""

    def __init__(self) -> None:
        self.by_machine: dict[Machine, llvm.TargetMachine] = {}


_threads = _TargetMachines()


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # the driver has a line of inline assembly


def triple() -> str:
    """LLVM's name of the system that this process runs on."""
    return llvm.get_process_triple()


def _target_machine(machine: Machine) -> llvm.TargetMachine:
    """The target machine of the current thread."""
    if (made := _threads.by_machine.get(machine)) is not None:
        return made
    with _lock:
        _initialize()
        # Position-independent code of the small model addresses constants relative to the instruction pointer; the
        # JIT's default (large) model needs a 10-byte move for each. Loaders put both of one object side by side.
        made = _threads.by_machine[machine] = llvm.Target.from_triple(triple()).create_target_machine(
            cpu=machine.cpu, features=machine.features, opt=_OPTIMIZATION, reloc="pic", codemodel="small"
        )
        return made


def _optimize(module: llvm.ModuleRef, machine: Machine, vectorize: bool, alone: bool = False) -> None:
    options = llvm.create_pipeline_tuning_options(_OPTIMIZATION)
    options.loop_vectorization = vectorize
    options.loop_interleaving = vectorize
    options.loop_unrolling = vectorize
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_target_machine(machine), options)
    # Running a pipeline uses it up, so each module gets its own (0.1 ms).
    _run(builder.getModulePassManager(), module, builder, alone)


def _run(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder, alone: bool = True) -> None:
    """Runs a pipeline on a module, and frees the pipeline. alone: the module has a context of its own.

    llvmlite never frees pipelines: the method that would is hidden by an empty one of the class before it in the method
    resolution order. One is 35 KB.
    """
    try:
        if alone:
            _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
        else:
            passes.run(module, builder)
    finally:
        if type(passes)._dispose is llvm.ffi.ObjectRef._dispose and not passes.closed:
            llvm.ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
            passes.detach()


def _simplify(module: llvm.ModuleRef, machine: Machine) -> None:
    """The few passes that a kernel needs whose vectors are written out, contractions and their packing: the standard
    pipeline takes much longer for code of the same speed."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_simplify_pass()
    passes.add_loop_rotate_pass()
    passes.add_new_gvn_pass()
    passes.add_loop_unroll_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    builder = llvm.create_pass_builder(_target_machine(machine), llvm.create_pipeline_tuning_options(_OPTIMIZATION))
    _run(passes, module, builder)


@functools.cache
def _unlocked(name: str):
    """A function of llvmlite's library without the lock that llvmlite holds around each of its calls.

    LLVM's own rule is one thread at a time for each context and target machine; llvmlite, which mostly has one context,
    lets one thread in altogether. Kernels have a context each (`optimized`).
    """
    function = getattr(llvm.ffi.lib, name)
    return getattr(function, "_cfn", function)


class _StrengthReductionOff:
    """While code is made in this block, LLVM's loop strength reduction is off, which only an option of the process can
    say; what Numba compiles for the user at other times has it.

    Strides are variables in kernels, and it tries sums of their multiples: it takes most of the compile time and
    makes no loop faster, as x86 adds a base and a scaled index in a load.
    """

    def __init__(self) -> None:
        self._inside, self._lock = 0, forking.lock()

    def forget(self) -> None:
        """In a forked child, where no block runs."""
        if self._inside:
            self._inside = 0
            self._set(False)

    def _set(self, off: bool) -> None:
        llvm.set_option("", f"-disable-lsr={str(off).lower()}")

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._set(True)

    def __exit__(self, *_) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(False)


_strength_reduction_off = _StrengthReductionOff()


def _after_fork() -> None:
    """In a forked child: other threads may have been in llvmlite, to free a module, which `no_fork` does not cover."""
    with contextlib.suppress(AttributeError):
        llvm.ffi.lib._lock._lock._at_fork_reinit()
    _strength_reduction_off.forget()


forking.on_fork(child=_after_fork)


def compiled(text: str, libraries: Iterable[bytes | str] = (), machine: Machine | None = None) -> bytes:
    """Object code of a kernel's module, linked with `libraries`. Any number of threads may be inside."""
    machine = machine or host()
    module, target = optimized(text, libraries, machine), _target_machine(machine)
    error = ctypes.c_char_p()
    with _strength_reduction_off:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(target, module, 1, ctypes.byref(error))
    if not buffer:
        raise RuntimeError(f"LLVM cannot compile a kernel: {(error.value or b'').decode()}")
    start, size = llvm.ffi.lib.LLVMPY_GetBufferStart(buffer), llvm.ffi.lib.LLVMPY_GetBufferSize(buffer)
    try:
        return ctypes.string_at(start, size)
    finally:
        llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def bitcode(text: str, libraries: Iterable[bytes | str] = ()) -> bytes:
    """Bitcode of a module of small functions that kernels inline: simplified, not vectorized. Equal on every processor
    of an architecture."""
    machine = level_machine("x86-64-v3") if architecture() == "x86_64" else native_machine()
    with _lock:
        module = _linked(text, libraries, machine)
        _optimize(module, machine, vectorize=False)
        for function in module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
                function.add_function_attribute("alwaysinline")
        return module.as_bitcode()


# Of the modules of a kernel, its own first: changes them, and returns the text of a further one, or "".
Adapt = Callable[[list[llvm.ModuleRef]], str]


def optimized(
    text: str, libraries: Iterable[bytes | str] = (), machine: Machine | None = None, adapt: Adapt | None = None
) -> llvm.ModuleRef:
    """The module in `text`, in a context of its own, linked with `libraries` (all of it inlined or dropped) and
    optimized as `compiled` does it. adapt: as in `_linked`."""
    machine = machine or host()
    libraries = list(libraries)
    has_halves = any(isinstance(part, str) and "half" in part for part in (text, *libraries))
    context = llvm.create_context()
    module = _linked(text, libraries, machine, context, adapt)
    if text.startswith(EXPLICIT):
        _simplify(module, machine)
    else:
        _optimize(module, machine, vectorize=True, alone=True)
    streamed = is_streamed(text)
    if streamed:
        module = past_caches(module, machine.vector_bytes, context)
    names = [function.name for function in module.functions]
    shared = [name for name in names if is_shared_symbol(name)]
    if streamed or shared or any(name.startswith("hloom_huge_") for name in names):
        # The vectorizer, which comes after the inliner, calls the vector forms of those: a test of the lanes, which
        # costs less than the call.
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        for name in shared:  # of the variants, those that the vectorizer has called stay
            module.get_function(name).linkage = "internal"
        passes.add_global_dead_code_eliminate_pass()
        builder = llvm.create_pass_builder(_target_machine(machine), llvm.create_pipeline_tuning_options(0))
        _run(passes, module, builder)
    if machine.arch == "x86_64" and (has_halves or not machine.has("f16c")):
        module.link_in(llvm.parse_assembly(CONVERSIONS, context))
    return module


def object_code(module: llvm.ModuleRef, machine: Machine | None = None) -> bytes:
    with _lock:
        return _target_machine(machine or host()).emit_object(module)


def assembly(module: llvm.ModuleRef, machine: Machine | None = None) -> str:
    with _lock, _strength_reduction_off:
        return _target_machine(machine or host()).emit_assembly(module)


def _linked(
    text: str, libraries: Iterable[bytes | str], machine: Machine, context=None, adapt: Adapt | None = None
) -> llvm.ModuleRef:
    """The module in `text` with its libraries, which are bitcode or text themselves. adapt: changes each before they
    are linked, and returns a module of what they need then."""
    layout = str(_target_machine(machine).target_data)
    parts = []
    for part in (text, *libraries):
        parse = llvm.parse_bitcode if isinstance(part, bytes) else llvm.parse_assembly
        parts.append(parse(part, context))
        parts[-1].data_layout = layout
    module, *others = parts
    internal = [f.name for part in others for f in part.functions if not f.is_declaration and is_block_symbol(f.name)]
    if adapt is not None and (more := adapt(parts)):
        others.append(llvm.parse_assembly(more, context))
        others[-1].data_layout = layout
        internal += [function.name for function in others[-1].functions]
    for other in others:
        module.link_in(other)
    for name in internal:
        module.get_function(name).linkage = "internal"
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
