"""Inputs and outputs of compiling for the CPU: native functions, object code, cache keys of kernels, errors."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.llvm_emitter.scratch import guarded
from hloom.compiler.targets.cpu.machine import Machine, host, version_file
from hloom.ir.records import record


@record(frozen=True)
class ObjectCode:
    """Relocatable object code. symbols: the C functions it exports; data: the bytes of one object file."""

    symbols: tuple[str, ...]
    data: bytes


class NativeFunction(Protocol):
    """A C function written in Python text: `result NAME(params...)`. result: an HLO dtype, or "void".

    calls: other functions the text calls by name, {name: (params, result)}: of the same batch or of the C library.
    exported: whether others may look the function up by name.
    constants: names of integers that the text uses.
    """

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def params(self) -> tuple[str, ...]: ...
    @property
    def result(self) -> str: ...
    @property
    def calls(self) -> Mapping[str, tuple[tuple[str, ...], str]]: ...
    @property
    def exported(self) -> bool: ...
    @property
    def constants(self) -> Mapping[str, int]: ...


@record(frozen=True)
class LibraryFunction:
    """A function of the math library: HLO dtypes of its parameters and result, and the LLVM IR of a module that defines
    `library_symbol(name)` with all that it calls inlined. size: the instructions in it."""

    parameters: tuple[str, ...]
    result: str
    text: str
    size: int


def library_symbol(name: str) -> str:
    """The C name of a function of the math library."""
    return f"math_{name}"


class KernelCompileError(Exception):
    """A kernel text that does not compile. Carries `name`, `text` and `message`; prints the text with line numbers."""

    def __init__(self, name: str, text: str, message: str):
        self.name, self.text, self.message = name, text, message
        numbered = "\n".join(f"{number:4d}  {line}" for number, line in enumerate(text.splitlines(), 1))
        super().__init__(f"kernel {name} does not compile: {message}\n{numbered}")


# What decides the code of a kernel source, from the folder of the compiler. A test holds the list complete.
CODE_SOURCES = (
    "kernels/codegen/source.py",
    "kernels/contractions/functions.py",
    "kernels/contractions/tile_shapes.py",
    "kernels/math/**/*.py",
    "targets/cpu/backend.py",
    "targets/cpu/codegen.py",
    "targets/cpu/half_floats.py",
    "targets/cpu/library.py",
    "targets/cpu/loop_hints.py",
    "targets/cpu/machine.py",
    "targets/cpu/nontemporal_stores.py",
    "targets/cpu/fft/butterflies.py",
    "targets/cpu/fft/names.py",
    "kernel_ir/*.py",
    "kernel_ir/generic/*.py",
    "kernel_ir/affine/*.py",
    "kernel_ir/transforms/nests.py",
    "kernel_ir/bounds/accesses.py",
    "kernel_ir/bounds/checks.py",
    "kernel_ir/bounds/chosen.py",
    "targets/cpu/llvm_emitter/*.py",
    "targets/cpu/microkernels/*.py",
    "targets/cpu/numba_frontend/*.py",
)


@functools.cache
def code_version() -> str:
    """Hash of the sources of the code generator and of the versions of Numba and LLVM: equal ones generate equal code
    for equal kernel sources and machines."""
    compiler = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for package in ("numba", "llvmlite"):
        digest.update(version_file(package))
    for pattern in CODE_SOURCES:
        for path in sorted(compiler.glob(pattern)):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


_numba = False


def use_numba(on: bool) -> None:
    """From now on Numba's front end compiles every kernel, or only those that the LLVM emitter does not know."""
    global _numba
    _numba = on


def compiled_by_numba() -> bool:
    """Whether Numba's front end compiles every kernel: part of the keys of code."""
    return _numba


def fingerprint(machine: Machine | None = None) -> str:
    """What decides the code of a kernel besides its source: the machine (None: the host) and the code generator."""
    others = " guarded" * guarded() + " numba" * compiled_by_numba()
    return f"{(machine or host()).identity} {sys.platform} {code_version()}{others}"


def kernel_key(kernel: KernelSource, machine: Machine | None = None) -> str:
    """The cache key of a kernel's object code: equal text, parameters, machine (None: the host) and versions give
    equal keys."""
    parts = [fingerprint(machine), kernel.name, ",".join(kernel.params), kernel.identity]
    if kernel.checks is not None:
        parts.append(repr(kernel.checks))
    for name, part in kernel.parts:
        parts += [name, kernel_key(part, machine)]
    return "kernel-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()
