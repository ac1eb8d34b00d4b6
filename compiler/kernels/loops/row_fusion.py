"""The row nest: softmax, layer norm, log-sum-exp, sums of rows.

Reductions over the trailing dimensions with what comes before, between and after them, in rows that stay in cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hloom.compiler.kernel_ir.builder import ZERO, load
from hloom.compiler.kernels.codegen.affine import linear
from hloom.compiler.kernels.codegen.description import Block, Items, Lanes, Nest, Serial
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.compiler.kernels.loops.domain import Domain, store_outputs, written
from hloom.compiler.kernels.loops.short_rows import is_short, short_nest
from hloom.compiler.kernels.request import KernelRequest, finish
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.sizes.guards import typical
from hloom.ir.types import compute_dtype

EXPENSIVE = 8  # flops from which a value that two sweeps over the row need is kept in an output's row between them


def row_nest(request: KernelRequest) -> Nest:
    """One work item per row. Outputs have the dimensions of the domain, or those of them that are kept."""
    if is_short(request.computation):
        return short_nest(request)
    rows = _Rows(request)
    domain, row = written(request, rows.dims, rows.write, barriers=(rows.kept,))
    named, sizes = domain.named(), domain.sizes
    outer, inner = rows.outer_and_inner(domain)
    width = math.prod(sizes[g] for g in inner)
    # Lanes can share a row only where there is a loop over it, and its parts can be joined.
    shared = bool(inner) and all(Reduction(r).splittable for r in rows.reduces)
    root = domain.writer.root
    root.body.append(Items([named[g] for g in outer], row, "row" if shared else "serial"))
    items = math.prod(sizes[g] for g in outer)
    return finish(request, domain.writer, "row", root, items, request.flops() * typical(width), width)


class _Rows:
    """A computation by rows: which sweep over a row computes and stores what.

    levels: of each value, how many reductions it depends on, one after the other.
    early: outputs that a reduction's sweep computes anyway, and stores -> the level of that sweep.
    last: full-size outputs that only the last sweep can store.
    stashed: expensive values that a reduction's sweep and a later one need -> the output that holds them meanwhile.
    """

    def __init__(self, request: KernelRequest):
        self.request = request
        self.reduces = [i for i in request.computation.instructions if i.opcode == "reduce"]
        self.dims = self.reduces[0].operands[0].dims
        self.kept = len(self.dims) - len(self.reduces[0]["dimensions"])
        self.levels = reduction_levels(request.computation, set(self.reduces))
        self.depth = max(self.levels[r] for r in self.reduces)
        full = [k for k, o in enumerate(request.outputs) if o.dims == self.dims]
        self.others = [k for k in range(len(request.outputs)) if k not in full]
        self.early = self._early(full)
        self.last = [k for k in full if k not in self.early]
        self.stashed = self._stashed()

    def outer_and_inner(self, domain: Domain) -> tuple[list[int], list[int]]:
        """The merged dimensions of the rows, and those along a row."""
        outer = [g for g, group in enumerate(domain.groups) if group[0] < self.kept]
        return outer, list(range(len(outer), len(domain.groups)))

    def write(self, domain: Domain) -> Block:
        """The block of a row."""
        request, writer = self.request, domain.writer
        row = writer.root.child(*(f"i{g}" for g in self.outer_and_inner(domain)[0]))
        held: dict[Instruction, str] = {}  # values that an earlier sweep has left in an output's row -> the output
        for level in range(1, self.depth + 1):
            self._write_reductions(domain, row, level, held)
        block = self._sweep(domain, row, held)
        # A row in which values were stashed is in the cache already.
        stashed = self.stashed.values()
        streamed = [k for k in self.last if request.streamed(k) and request.output_name(k) not in stashed]
        store_outputs(request, writer, self.last, domain.index, block, streamed)
        if self.last:
            self._add_loops(domain, row, block)
        store_outputs(request, writer, self.others, domain.index, row)
        return row

    def _write_reductions(self, domain: Domain, row: Block, level: int, held: dict[Instruction, str]) -> None:
        """The sweep with the reductions of a level, and what else it stores."""
        request, writer, index = self.request, domain.writer, domain.index
        here = [Reduction(r, keys=request.supports_loop_splitting) for r in self.reduces if self.levels[r] == level]
        for reduction in here:
            reduction.start(writer, row)
        block = self._sweep(domain, row, held)
        for reduction in here:
            reduction.take(writer, block, [writer.value(array, index, block) for array in reduction.arrays])
        for value, pointer in self.stashed.items():
            if value not in held and any((value, index) in b.memo for b in block.chain()):
                element = writer.value(value, index, block)
                writer.store(pointer, linear(index, self.dims), element, block)
                held[value] = pointer
        for k in [k for k in self.early if self.early[k] == level]:
            read_again = level < self.depth or self.last
            store_outputs(request, writer, [k], index, block, [k] if request.streamed(k) and not read_again else [])
            output = request.outputs[k]
            if compute_dtype(output.dtype) == output.dtype:
                held[output] = request.output_name(k)
        self._add_loops(domain, row, block)
        for reduction in here:
            reduction.settle(writer, row)
            if reduction.opcode is not None:
                row.body.append(reduction.collective())
            reduction.define(writer, row)

    def _sweep(self, domain: Domain, row: Block, held: dict[Instruction, str]) -> Block:
        """The block of a sweep over the row, which reads the values that are held there."""
        writer = domain.writer
        block = row.child(*(f"i{g}" for g in self.outer_and_inner(domain)[1]))
        for value, pointer in held.items():
            name, place = writer.fresh(), writer.position(linear(domain.index, self.dims), pointer)
            block.memo[(value, domain.index)] = (block.let(name, load(writer.names[pointer], place)), block)
        return block

    def _add_loops(self, domain: Domain, row: Block, block: Block) -> None:
        """Puts `block` into the loops over the row: Lanes over the innermost merged dimension, Serial over others."""
        named = domain.named()
        _, inner = self.outer_and_inner(domain)
        if not inner:
            row.body.extend(block.body)
            return
        node: Lanes | Serial = Lanes(*named[inner[-1]], block)
        for g in reversed(inner[:-1]):
            variable, size = named[g]
            node = Serial(variable, ZERO, size, Block(row, row.variables | {variable.name}, [node]))
        row.body.append(node)

    def _early(self, full: list[int]) -> dict[int, int]:
        found = {}
        for k in full:
            level = self.levels[self.request.outputs[k]] + 1
            operands = [operand for r in self.reduces if self.levels[r] == level for operand in r.operands]
            if k not in self.request.shared and self.request.outputs[k] in self._needed(operands):
                found[k] = level
        return found

    def _stashed(self) -> dict[Instruction, str]:
        request = self.request
        free = [k for k in self.last if k not in request.shared]
        needed = self._needed(request.outputs[k] for k in self.last)
        needed &= set().union(*(self._needed(reduce.operands) for reduce in self.reduces))
        result: dict[Instruction, str] = {}
        for value in reversed(request.computation.instructions):  # the last ones contain the work of those before them
            if value in needed and OPS[value.opcode].flops >= EXPENSIVE and compute_dtype(value.dtype) == value.dtype:
                k = next((k for k in free if request.outputs[k].dtype == value.dtype), None)
                if k is not None:
                    result[value] = request.output_name(k)
                    free.remove(k)
        return result

    def _needed(self, roots: Iterable[Instruction]) -> set[Instruction]:
        """The full-size values that an evaluation of the roots computes for each element (not through reductions)."""
        seen: set[Instruction] = set()
        stack = list(roots)
        while stack:
            instruction = stack.pop()
            if instruction not in seen and instruction.opcode not in ("reduce", "parameter"):
                seen.add(instruction)
                stack.extend(instruction.operands)
        return {i for i in seen if i.dims == self.dims}


def reduction_levels(computation: Computation, reduces: set[Instruction]) -> dict[Instruction, int]:
    """How many reductions, one after the other, each value depends on (a reduction counts itself)."""
    levels: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        below = max((levels[o] for o in instruction.operands), default=0)
        levels[instruction] = below + (instruction in reduces)
    return levels
