"""Which accesses of a launch are proved to be within its arrays: `kernel_ir.bounds` with what the launch knows."""

from __future__ import annotations

from collections.abc import Mapping

from hloom.compiler.kernel_ir.bounds.verifier import Access, Range, by_kernel
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.targets.cpu.microkernels.memory import memory_of
from hloom.ir.types import DTYPES

__all__ = ["accesses_of"]


def _parts(source: KernelSource) -> dict[str, KernelSource]:
    found: dict[str, KernelSource] = {}
    for name, part in source.parts:
        found |= {name: part, **_parts(part)}
    return found


def accesses_of(launch: Launch, extents: Mapping[str, object]) -> dict[KernelSource, list[Access]]:
    """The accesses of a launch, and of the kernels that it calls, by the kernel.

    extents: of its step (`KernelStep.least_extents`). What depends on sizes is not known. Raises KernelSyntaxError,
    which no kernel that the LLVM emitter compiles does.
    """
    source = launch.source
    kernel, parts = source.nodes, _parts(source)
    nodes = {source: kernel}
    sizes: dict[str, int | None] = {}
    ranges: dict[str, Range] = {}
    called: dict[str, KernelSource] = {}
    for var, argument in zip(kernel.params, launch.arguments, strict=False):
        if isinstance(argument, KernelSource):
            called[var.name] = argument
            parts |= _parts(argument)
        elif isinstance(argument, str):
            nbytes = extents.get(argument)
            sizes[var.name] = nbytes // DTYPES[var.type[1:]].itemsize if isinstance(nbytes, int) else None
        elif isinstance(argument, int):
            ranges[var.name] = argument
    if isinstance(launch.items, int):
        lo, hi = kernel.params[-2:]
        ranges |= {lo.name: (0, max(launch.items - 1, 0)), hi.name: (min(launch.items, 1), launch.items)}
    for one in (*called.values(), *parts.values()):
        nodes.setdefault(one, one.nodes)
    found = by_kernel(
        kernel, sizes, ranges, {name: nodes[one] for name, one in called.items()},
        {name: nodes[one] for name, one in parts.items()}, memory_of,
    )  # fmt: skip
    accesses = {id(one): of for one, of in found}
    return {one: accesses[id(kernel)] for one, kernel in nodes.items()}
