"""What compiling for the CPU takes and gives: native functions, object code, the cache keys of kernels, errors."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.machine import host, version_file
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

    name: str
    text: str
    params: tuple[str, ...]
    result: str
    calls: Mapping[str, tuple[tuple[str, ...], str]]
    exported: bool
    constants: Mapping[str, int]


class KernelCompileError(Exception):
    """A kernel text that does not compile. Carries `name`, `text` and `message`; prints the text with line numbers."""

    def __init__(self, name: str, text: str, message: str):
        self.name, self.text, self.message = name, text, message
        numbered = "\n".join(f"{number:4d}  {line}" for number, line in enumerate(text.splitlines(), 1))
        super().__init__(f"kernel {name} does not compile: {message}\n{numbered}")


class Store(Protocol):
    """Where object code is kept between processes (`compiler.cache.Cache`)."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...


@functools.cache
def fingerprint() -> str:
    """Hash over the machine, the versions of the compilers and our own sources that kernels are made of."""
    kernels = Path(__file__).resolve().parents[2] / "kernels"
    ours = [
        *Path(__file__).parent.rglob("*.py"),
        *kernels.glob("math/**/*.py"),
        kernels / "contractions/tile_shapes.py",
    ]
    digest = hashlib.sha256()
    digest.update(f"{host().identity} {sys.version_info[:2]} {sys.platform}".encode())
    for package in ("numba", "llvmlite"):
        digest.update(version_file(package))
    for path in sorted(ours):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def kernel_key(kernel: KernelSource) -> str:
    """The cache key of a kernel's object code: equal text, parameters, machine and versions give equal keys."""
    parts = [fingerprint(), kernel.name, ",".join(kernel.params), kernel.text]
    for name, part in kernel.parts:
        parts += [name, kernel_key(part)]
    return "kernel-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()
