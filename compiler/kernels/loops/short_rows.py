"""Rows of a few elements: reductions of points, colours, quaternions.

A row nest would walk each row by itself, a few scalar steps at a time. Here the elements of the row are written out,
one expression each, and the loop goes over the rows, so that LLVM makes vectors of rows.
"""

from __future__ import annotations

import itertools
import math

from hloom.compiler.kernels.codegen.affine import Affine, Index, linear, variables
from hloom.compiler.kernels.codegen.description import Block, Inner, Items, Nest
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.compiler.kernels.loops.domain import Domain, written
from hloom.compiler.kernels.request import KernelRequest, finish
from hloom.ir.module import Computation, Instruction
from hloom.ir.sizes.guards import typical

SHORT = 8  # elements of a row that are written out
STATEMENTS = 200  # that are written out in all: compile time grows with them
ROWS = 64  # fewer do not pay for a loop over vectors of rows


def is_short(computation: Computation) -> bool:
    """Whether the reductions of a computation are of trailing dimensions that are short, and of many rows."""
    reduces = [i for i in computation.instructions if i.opcode == "reduce"]
    dims = reduces[0].operands[0].dims
    kept = len(dims) - len(reduces[0]["dimensions"])
    width = math.prod(dims[kept:])
    return (
        1 < width <= SHORT
        and width * len(computation.instructions) <= STATEMENTS
        and math.prod(dims[:kept]) >= ROWS
        and all(Reduction(r).splittable and set(r["dimensions"]) == set(range(kept, len(dims))) for r in reduces)
    )


def places(dims: tuple[int, ...], first: int) -> list[Index]:
    """The indexes of a domain whose dimensions from `first` on are written out: numbers there, variables before."""
    index = variables(dims)
    ranges = [range(extent) for extent in dims[first:]]
    return [index[:first] + tuple(Affine(c) for c in constants) for constants in itertools.product(*ranges)]


def short_nest(request: KernelRequest) -> Nest:
    """One row of every output for each kept index. Outputs have the dimensions of the domain, or the kept ones."""
    reduces = [i for i in request.computation.instructions if i.opcode == "reduce"]
    dims = reduces[0].operands[0].dims
    return written_out_nest(request, dims, len(dims) - len(reduces[0]["dimensions"]))


def written_out_nest(request: KernelRequest, dims: tuple[int, ...], kept: int) -> Nest:
    """A loop over the first `kept` of the dimensions, in which each index of the others has its own expressions."""
    rows = dims[:kept]

    def write(domain: Domain) -> tuple[Block, Block]:
        writer, names = domain.writer, domain.names
        writer.literals = SHORT * SHORT
        outer = writer.root.child(*names[:-1])
        block = outer.child(*names[-1:])
        writer.expressions["reduce"] = _reduced
        # All values before all stores: an output may overwrite an input that another output still reads.
        values = []
        for k, output in enumerate(request.outputs):
            for index in places(dims, kept) if len(output.dims) > kept else [domain.index]:
                values.append((k, index, writer.value(output, index, block)))
        for k, index, value in values:
            output = request.outputs[k]
            writer.store(request.output_name(k), linear(index, output.dims), value, block)
        return outer, block

    domain, (outer, block) = written(request, rows, write)
    writer, named, sizes = domain.writer, domain.named(), domain.sizes
    work = request.flops() * math.prod(dims[kept:])
    if len(named) == 1:
        writer.root.body += [*outer.body, Items(named, block)]
        return finish(request, writer, "loop", writer.root, sizes[0], work)
    outer.body.append(Inner(*named[-1], block))
    writer.root.body.append(Items(named[:-1], outer))
    return finish(request, writer, "loop", writer.root, math.prod(sizes[:-1]), work * typical(sizes[-1]))


def _reduced(writer, instruction: Instruction, index: Index, block):
    """The element of a reduction: its operand's elements combined in order, as (name, block)."""
    reduction = Reduction(instruction)
    (array,) = reduction.arrays
    rank, reduced = len(array.dims), sorted(instruction["dimensions"])
    others = [d for d in range(rank) if d not in reduced]
    values, blocks = [], []
    for constants in itertools.product(*(range(array.dims[d]) for d in reduced)):
        at = dict(zip(others, index, strict=True)) | {d: Affine(c) for d, c in zip(reduced, constants, strict=True)}
        name, where = writer._value(array, tuple(at[d] for d in range(rank)), block)
        values.append(name)
        blocks.append(where)
    result, where = writer._value(reduction.initial[0], (), block)
    target = writer.place(block, (), [*blocks, where])
    for value in values:
        (result,) = reduction.join(writer, target, [result], [value])
    return result, target
