"""The update nest: dynamic-update-slice in place. Only the window is written."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.affine import linear, variables
from hloom.compiler.kernels.codegen.description import Block, Inner, Items, Nest
from hloom.compiler.kernels.codegen.writer import window_starts
from hloom.compiler.kernels.request import KernelRequest, extents, finish, group_sizes, with_merged


def is_update(request: KernelRequest) -> bool:
    """Whether the computation is an update whose output overwrites the updated array."""
    (root, *others) = request.outputs
    if others or root.opcode != "dynamic-update-slice" or 0 not in request.shared:
        return False
    return request.computation.parameters[request.shared[0]] is root.operands[0]


def update_nest(request: KernelRequest) -> Nest:
    """One element of the update for each index of its extents, stored at the window's place."""
    root = request.outputs[0]
    operand, update, *starts = root.operands
    dims = update.dims
    state: dict[str, Block] = {}

    def write(writer, groups):
        names = [f"i{g}" for g in range(len(groups))]
        outer = writer.root.child(*(names[:-1] if len(groups) > 1 else names))
        inner = outer.child(*names[-1:]) if len(groups) > 1 else outer
        index = variables(dims)
        value = writer.value(update, index, inner)
        begin = window_starts(writer, starts, operand.dims, dims, inner)
        place = tuple(a + b for a, b in zip(index, begin, strict=True))
        writer.store(request.output_name(0), linear(place, operand.dims), root.dtype, value, inner)
        state.update(outer=outer, inner=inner)

    writer, groups = with_merged(request, dims, write)
    sizes = group_sizes(dims, groups)
    named = extents(writer, dims, groups)
    if len(groups) > 1:
        state["outer"].body.append(Inner(*named[-1], state["inner"]))
        named, width = named[:-1], sizes[-1]
    else:
        width = 1
    writer.root.body.append(Items(named, state["outer"]))
    items = update.shape.size // max(width, 1)
    return finish(request, writer, "update", writer.root, items, request.flops() * width)
