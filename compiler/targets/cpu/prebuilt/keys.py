"""Keys of kernels and native functions in the file of prebuilt code.

The kernels that all contractions or Fourier transforms share are prebuilt for two levels of x86-64. Their results have
the same bits as those of kernels compiled for the very processor: these kernels name each fused multiply-add.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.interface import NativeFunction, compiled_by_numba
from hloom.compiler.targets.cpu.llvm_emitter.scratch import guarded
from hloom.compiler.targets.cpu.machine import NATIVE, host_name, runs_level
from hloom.compiler.targets.cpu.prebuilt import archive

__all__ = ["LEVELS", "functions_code", "functions_key", "kernel_code", "kernel_key"]

LEVELS = ("x86-64-v3", "x86-64-v4")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def kernel_key(kernel: KernelSource, level: str) -> str:
    return f"kernel {level} {_digest(kernel.name, ','.join(kernel.params), kernel.identity)}"


def functions_key(functions: Sequence[NativeFunction]) -> str:
    return f"functions {_digest(*map(repr, functions))}"


def kernel_code(kernel: KernelSource, name: str | None = None) -> bytes | None:
    """The prebuilt object code of a kernel for a processor of `machine.CHOICES` (None: `host_name()`); None where there
    is none."""
    if kernel.parts or kernel.checks is not None or guarded() or compiled_by_numba():
        return None
    name = name or host_name()
    levels = reversed(LEVELS) if name == NATIVE else (name,)
    level = next((level for level in levels if level in LEVELS and (level == name or runs_level(level))), None)
    return archive.get(kernel_key(kernel, level)) if level else None


def functions_code(functions: Sequence[NativeFunction]) -> bytes | None:
    """The prebuilt object code of native functions, for every processor of this architecture."""
    return archive.get(functions_key(functions))
