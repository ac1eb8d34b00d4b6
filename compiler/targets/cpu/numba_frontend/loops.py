"""Marks of the innermost loops of a module that Numba makes, as `loop_hints` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llvmlite import ir

from hloom.compiler.targets.cpu.loop_hints import OPTION, interleave_count
from hloom.compiler.targets.cpu.microkernels.ir_building import I32, name_loop

_OPERATIONS = ("fadd", "fsub", "fmul", "fdiv")


def interleave_loops(module: ir.Module) -> None:
    """Marks the innermost loops of every function of a module."""
    for function in module.functions:
        places = {block: number for number, block in enumerate(function.blocks)}
        for branch, header in _innermost(function, places):
            body = function.blocks[header : places[branch.parent] + 1]
            count = sum(one.opname in _OPERATIONS for block in body for one in block.instructions)
            name_loop(branch, [ir.MetaDataString(module, OPTION), ir.Constant(I32, interleave_count(count))])


def _innermost(function: ir.Function, places: Mapping[ir.Block, int]) -> Iterator[tuple[ir.Branch, int]]:
    """The branches back to the first blocks of innermost loops, and the numbers of those blocks."""
    last = -1  # the first block of the last loop that was found
    for number, block in enumerate(function.blocks):
        branch = block.terminator
        if not isinstance(branch, ir.Branch) or len(branch.operands) != 1:
            continue
        header = places[branch.operands[0]]
        if last < header <= number:
            yield branch, header
        if header <= number:
            last = max(last, header)
