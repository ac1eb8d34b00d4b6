"""Which accesses of a launch are proved to be within its arrays: `kernel_ir.bounds` with what the launch knows."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hloom.compiler.kernel_ir.bounds.verifier import Access, Range, verify
from hloom.compiler.kernel_ir.nodes import Kernel
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.targets.cpu import library
from hloom.compiler.targets.cpu.microkernels.memory import memory_of
from hloom.ir.types import DTYPES

__all__ = ["accesses_of", "nodes_of"]


@functools.lru_cache(256)
def nodes_of(source: KernelSource) -> Kernel:
    """The nodes of a kernel. Raises KernelSyntaxError."""
    return read(source.text, source.params, library.signature, [name for name, _ in source.parts])


def _parts(source: KernelSource) -> dict[str, Kernel]:
    found: dict[str, Kernel] = {}
    for name, part in source.parts:
        found |= {name: nodes_of(part), **_parts(part)}
    return found


def accesses_of(launch: Launch, extents: Mapping[str, object]) -> list[Access]:
    """The accesses of a launch, and of the kernels that it calls. extents: bytes of each pointer's array, as of a
    `KernelStep`. What depends on sizes is not known. Raises KernelSyntaxError, which no kernel that the LLVM emitter
    compiles does."""
    source = launch.source
    kernel, parts = nodes_of(source), _parts(source)
    sizes: dict[str, int | None] = {}
    ranges: dict[str, Range] = {}
    called: dict[str, Kernel] = {}
    for var, argument in zip(kernel.params, launch.arguments, strict=False):
        if isinstance(argument, KernelSource):
            called[var.name] = nodes_of(argument)
            parts |= _parts(argument)
        elif isinstance(argument, str):
            of_devices = extents.get(argument)
            numbers = of_devices if isinstance(of_devices, list) else [of_devices]
            known = [nbytes for nbytes in numbers if isinstance(nbytes, int)]
            some = len(known) == len(numbers)
            sizes[var.name] = min(known) // DTYPES[var.type[1:]].itemsize if some else None
        elif isinstance(argument, int):
            ranges[var.name] = argument
    if isinstance(launch.items, int):
        lo, hi = kernel.params[-2:]
        ranges |= {lo.name: (0, max(launch.items - 1, 0)), hi.name: (min(launch.items, 1), launch.items)}
    return verify(kernel, sizes, ranges, called=called, parts=parts, blocks=memory_of)
