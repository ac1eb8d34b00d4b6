"""Kernels as object code for another machine: the same LLVM IR under another triple.

    object_code(kernel, machine) -> bytes      one object file, whose only global symbol is `symbol(kernel, machine)`

The math library is compiled for the host's architecture, but its IR holds no instruction of it. What remains to change
is the triple, and `llvm.fma` where the machine has no such instruction: LLVM would call the C library's function for
every element, which was 40 times slower for LeNet on wasm32. A product and a sum in float64 stand for float32's, where
the product is exact; in float64 the sum of a product and its error, as Dekker computes it. Register tiles and passes of
Fourier transforms say `llvm.fmuladd`, which rounds twice there.

Source: T. J. Dekker, "A floating-point technique for extending the available precision", 1971.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np

from hloom.compiler.cache import Cache
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import backend, library
from hloom.compiler.targets.cpu.interface import code_version, kernel_key
from hloom.compiler.targets.cpu.llvm_emitter import emitter
from hloom.compiler.targets.cpu.machine import Machine
from hloom.ir.process import forking
from hloom.ir.records import record

__all__ = ["CrossMachine", "assembly", "data_object", "object_code", "symbol"]

_VERSION = "4"  # of this file: part of the cache keys


@record(frozen=True)
class CrossMachine(Machine):
    """A machine that programs are exported for. triple: LLVM's name of its architecture and system. has_fma: whether
    it multiplies and adds in one instruction."""

    triple: str = ""
    has_fma: bool = True

    @property
    def identity(self) -> str:
        return f"{self.triple} {self.cpu} {self.features} {self.has_fma}"


def symbol(kernel: KernelSource, machine: CrossMachine) -> str:
    """The C name of a kernel's entry. Equal kernels have equal names, different ones different names, so that any
    number of exported programs can be linked into one."""
    return f"hloom_{kernel.name}_{_key(kernel, machine)[-12:]}"


@functools.lru_cache(4096)
def _key(kernel: KernelSource, machine: CrossMachine) -> str:
    digest = hashlib.sha256(f"{_VERSION} {code_version()} {kernel_key(kernel, machine)}".encode()).hexdigest()
    return f"exported-{digest}"


def object_code(kernel: KernelSource, machine: CrossMachine, cache: Cache | None = None) -> bytes:
    """The object file of a kernel, from the cache where it has it. Any number of threads may be inside."""
    key = _key(kernel, machine)
    data = cache.get(key) if cache is not None else None
    if data is None:
        with forking.no_fork():
            data = _emitted(_module(kernel, machine), machine)
        if cache is not None:
            cache.put(key, data)
    return data


def assembly(kernel: KernelSource, machine: CrossMachine) -> str:
    """The assembly text of a kernel."""
    return _target_machine(machine).emit_assembly(_module(kernel, machine))


def data_object(name: str, data: bytes, machine: CrossMachine) -> bytes:
    """The object file of constant bytes `name`, aligned to a cache line, with a global symbol that shared libraries do
    not export."""
    text = (
        f'target triple = "{machine.triple}"\n'
        f'@{name} = hidden constant [{len(data)} x i8] c"{_escaped(data)}", align 64\n'
    )  # fmt: skip
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    target = _target_machine(machine)
    module.data_layout = str(target.target_data)
    return target.emit_object(module)


def _escaped(data: bytes) -> str:
    """Bytes as LLVM writes them in a string: a backslash and two digits each."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    values = np.frombuffer(data, np.uint8)
    text = np.full((len(values), 3), ord("\\"), np.uint8)
    text[:, 1], text[:, 2] = digits[values >> 4], digits[values & 15]
    return text.tobytes().decode("ascii")


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def _target_machine(machine: CrossMachine) -> llvm.TargetMachine:
    """The target machine of the current thread, which the passes of `backend` find too."""
    made = backend._threads.by_machine
    if machine not in made:
        with backend._lock:
            _initialize()
            made[machine] = llvm.Target.from_triple(machine.triple).create_target_machine(
                cpu=machine.cpu,
                features=machine.features,
                opt=2,
                reloc="pic",
                codemodel="small" if machine.arch == "x86_64" else "default",
                abiname=_ABI.get(machine.arch, ""),
            )
    return made[machine]


# Where the C library passes floats in registers, LLVM has to know it.
_ABI = {"riscv64": "lp64d"}


def _module(kernel: KernelSource, machine: CrossMachine) -> llvm.ModuleRef:
    """The optimized module of a kernel, with `symbol` as its only visible name."""
    text, libraries = _texts(kernel, machine)
    _target_machine(machine)  # the passes look for it under the machine
    module = backend.optimized(text, libraries, machine, lambda modules: _adapted(modules, machine))
    module.triple = machine.triple
    entry = symbol(kernel, machine)
    for function in module.functions:
        if function.is_declaration:
            continue
        if function.name == kernel.name:
            function.name = entry
            function.visibility = "hidden"
            if "linux" in machine.triple:
                function.linkage = "weak_odr"  # several objects may have it
        elif function.name:
            function.linkage = "internal"
    return module


def _texts(kernel: KernelSource, machine: CrossMachine) -> tuple[str, list[bytes | str]]:
    """LLVM IR of a kernel, and of the functions that it calls by name."""
    try:
        text, names = emitter.kernel_text(kernel, machine.triple, library.signature, library.shared_size)
        return text, [_for_machine(library.module_text(name), machine) for name in names]
    except (emitter.Unsupported, SyntaxError):  # unusual mixtures of types
        text, linked = library.numba_lowering().kernel_module(kernel, library.module_text)
        return text, [part if isinstance(part, bytes) else _for_machine(part, machine) for part in linked]


def _for_machine(text: str, machine: CrossMachine) -> str:
    """The text of a function of the math library, which was compiled for the host. A calling convention of x86 alone
    keeps its vector registers across rare calls."""
    return text if machine.arch == "x86_64" else text.replace("preserve_allcc ", "")


def _adapted(modules: list[llvm.ModuleRef], machine: CrossMachine) -> str:
    """Makes modules those of a machine. What LLVM cannot compile there, or not well, becomes calls of functions of our
    own, which the module in the text returned defines."""
    made: dict[str, str] = {}
    for module in modules:
        module.triple = machine.triple
        for function in list(module.functions):
            if (write := _replacement(function.name, machine)) is None:
                continue
            kind = _Kind.of(function.global_value_type.get_function_return())
            if write is _fma or kind.is_double:
                symbol = f"hloom.{function.name}"
                made[symbol] = write(symbol, kind)
                function.name = symbol
    return "\n".join(made.values())


def _replacement(name: str, machine: CrossMachine) -> Callable[[str, _Kind], str] | None:
    """What writes a function of ours in place of one of LLVM; None where LLVM's serves. Its code generator for 32-bit
    ARM ends the process for the extrema of float64."""
    if name.startswith("llvm.fma."):
        return None if machine.has_fma else _fma
    if machine.arch.startswith("arm"):
        if name.startswith("llvm.maximum."):
            return functools.partial(_extremum, "ogt", "and")
        if name.startswith("llvm.minimum."):
            return functools.partial(_extremum, "olt", "or")
    return None


@record(frozen=True)
class _Kind:
    """A float32 or float64, or a vector of them (lanes: 0 for a single one), with the types that go with it."""

    is_double: bool
    lanes: int

    @classmethod
    def of(cls, kind: llvm.TypeRef) -> _Kind:
        element, lanes = (next(iter(kind.elements)), kind.element_count) if kind.is_vector else (kind, 0)
        return cls(element.type_kind == llvm.TypeKind.double, lanes)

    def of_each(self, element: str) -> str:
        return f"<{self.lanes} x {element}>" if self.lanes else element

    def __str__(self) -> str:
        return self.of_each("double" if self.is_double else "float")


def _extremum(order: str, bits: str, symbol: str, kind: _Kind) -> str:
    """The larger or the smaller float64: NaN where one is NaN, and 0 is more than -0."""
    vector, words, mask = str(kind), kind.of_each("i64"), kind.of_each("i1")
    return f"""define {vector} @{symbol}({vector} %a, {vector} %b) alwaysinline nounwind {{
  %unordered = fcmp uno {vector} %a, %b
  %nan = fadd {vector} %a, %b
  %first = fcmp {order} {vector} %a, %b
  %other = select {mask} %first, {vector} %a, {vector} %b
  %equal = fcmp oeq {vector} %a, %b
  %x = bitcast {vector} %a to {words}
  %y = bitcast {vector} %b to {words}
  %z = {bits} {words} %x, %y
  %same = bitcast {words} %z to {vector}
  %number = select {mask} %equal, {vector} %same, {vector} %other
  %r = select {mask} %unordered, {vector} %nan, {vector} %number
  ret {vector} %r
}}
"""


def _fma(symbol: str, kind: _Kind) -> str:
    """a * b + c, rounded once."""
    vector, wide = str(kind), kind.of_each("double")
    if kind.is_double:
        body = _dekker(kind)
    else:
        body = "\n".join(
            [f"  %w{x} = fpext {vector} %{x} to {wide}" for x in "abc"]
            + [f"  %p = fmul {wide} %wa, %wb", f"  %s = fadd {wide} %p, %wc"]
            + [f"  %r = fptrunc {wide} %s to {vector}", f"  ret {vector} %r"]
        )
    head = f"define {vector} @{symbol}({vector} %a, {vector} %b, {vector} %c) alwaysinline nounwind"
    return f"{head} {{\n{body}\n}}\n"


def _dekker(kind: _Kind) -> str:
    """a*b + c of float64: the product with its error, then their sum with c, whose error is added as well."""
    split = "0x41A0000002000000"  # 2^27 + 1
    factor = f"<{', '.join([f'double {split}'] * kind.lanes)}>" if kind.lanes else split
    lines = [f"  %p = fmul {kind} %a, %b"]
    for x in "ab":
        lines += [
            f"  %{x}t = fmul {kind} %{x}, {factor}",
            f"  %{x}d = fsub {kind} %{x}t, %{x}",
            f"  %{x}h = fsub {kind} %{x}t, %{x}d",
            f"  %{x}l = fsub {kind} %{x}, %{x}h",
        ]
    steps = (
        ("hh", "fmul", "ah", "bh"), ("e1", "fsub", "hh", "p"), ("hl", "fmul", "ah", "bl"), ("e2", "fadd", "e1", "hl"),
        ("lh", "fmul", "al", "bh"), ("e3", "fadd", "e2", "lh"), ("ll", "fmul", "al", "bl"), ("e", "fadd", "e3", "ll"),
        ("s", "fadd", "p", "c"), ("v", "fsub", "s", "p"), ("u", "fsub", "s", "v"), ("y", "fsub", "p", "u"),
        ("z", "fsub", "c", "v"), ("d", "fadd", "y", "z"), ("t", "fadd", "d", "e"), ("r0", "fadd", "s", "t"),
    )  # fmt: skip
    lines += [f"  %{name} = {how} {kind} %{x}, %{y}" for name, how, x, y in steps]
    # Numbers so large that their halves overflow, and infinities: rounded twice.
    lines += [
        f"  %ok = fcmp oeq {kind} %t, %t",
        f"  %r = select {kind.of_each('i1')} %ok, {kind} %r0, {kind} %s",
        f"  ret {kind} %r",
    ]
    return "\n".join(lines)


def _emitted(module: llvm.ModuleRef, machine: CrossMachine) -> bytes:
    with backend._strength_reduction_off:
        return _target_machine(machine).emit_object(module)
