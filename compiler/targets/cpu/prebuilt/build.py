"""Compiles the entries of the file of prebuilt code: the math library, shared kernels and native functions."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hloom.compiler.gil import fast_switching
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions import render
from hloom.compiler.targets.cpu import codegen, library
from hloom.compiler.targets.cpu.fft import launches
from hloom.compiler.targets.cpu.interface import NativeFunction
from hloom.compiler.targets.cpu.machine import Machine, architecture, available_cores, level_machine
from hloom.compiler.targets.cpu.prebuilt import archive, keys

__all__ = ["build", "shared_kernels"]

DTYPES = ("f32", "f64", "s32", "s64")  # that products sum in; sums of unsigned integers are rare
TRANSFORMED = ("f32",)  # parts of the complex numbers of transforms


def shared_kernels(machine: Machine) -> list[KernelSource]:
    """The kernels that all contractions share, or all Fourier transforms."""
    kernels = [kernel for dtype in DTYPES for kernel in render.shared_kernels(dtype, machine)]
    return kernels + [kernel for dtype in TRANSFORMED for kernel in launches.shared_kernels(dtype, machine)]


def build(tables: Sequence[Sequence[NativeFunction]], target: Path | None = None) -> Path:
    """Compiles everything and writes the file. tables: native functions that are compiled together, such as the
    driver's. target: None is where hloom finds it."""
    entries = library.entries()
    for functions in tables:
        entries[keys.functions_key(functions)] = codegen.compile_functions(functions).data
    if architecture() == "x86_64":
        wanted = [(level, kernel) for level in keys.LEVELS for kernel in shared_kernels(level_machine(level))]
        with ThreadPoolExecutor(available_cores()) as workers, fast_switching:
            code = workers.map(lambda each: codegen.compile_for(each[1], level_machine(each[0])), wanted)
            for (level, kernel), data in zip(wanted, code, strict=True):
                entries[keys.kernel_key(kernel, level)] = data
    return archive.write(entries, target)
