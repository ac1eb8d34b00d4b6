"""The update nest: dynamic-update-slice in place. Only the window is written."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.affine import linear
from hloom.compiler.kernels.codegen.description import Block, Inner, Items, Nest
from hloom.compiler.kernels.codegen.writer import window_starts
from hloom.compiler.kernels.loops.domain import Domain, written
from hloom.compiler.kernels.request import KernelRequest, finish


def is_update(request: KernelRequest) -> bool:
    """Whether the computation is an update whose output overwrites the updated array."""
    (root, *others) = request.outputs
    if others or root.opcode != "dynamic-update-slice" or 0 not in request.shared:
        return False
    return request.computation.parameters[request.shared[0]] is root.operands[0]


def update_nest(request: KernelRequest) -> Nest:
    """One element of the update for each of its indexes, stored in the window."""
    root = request.outputs[0]
    operand, update, *starts = root.operands

    def write(domain: Domain) -> tuple[Block, Block]:
        writer, names = domain.writer, domain.names
        outer = writer.root.child(*(names[:-1] if len(names) > 1 else names))
        inner = outer.child(*names[-1:]) if len(names) > 1 else outer
        value = writer.value(update, domain.index, inner)
        begin = window_starts(writer, starts, operand.dims, update.dims, inner)
        place = tuple(a + b for a, b in zip(domain.index, begin, strict=True))
        writer.store(request.output_name(0), linear(place, operand.dims), value, inner)
        return outer, inner

    domain, (outer, inner) = written(request, update.dims, write)
    named, width = domain.named(), 1
    if outer is not inner:
        outer.body.append(Inner(*named.pop(), inner))
        width = domain.sizes[-1]
    root_block = domain.writer.root
    root_block.body.append(Items(named, outer))
    items = update.shape.size // max(width, 1)
    return finish(request, domain.writer, "update", root_block, items, request.flops() * width)
