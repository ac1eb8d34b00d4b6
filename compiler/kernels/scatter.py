"""The scatter nest: updates combined in place, those of one place in the order of the indexes.

Work items are what never meets in one element: batching dimensions, the windows themselves where the indexes are
promised to be distinct, and blocks of a window dimension that windows hold whole. All else is loops inside of an item.
"""

from __future__ import annotations

from hloom.compiler.kernels.affine import Affine, linear, variables
from hloom.compiler.kernels.combine import inline_scalars
from hloom.compiler.kernels.description import Block, Branch, Items, Nest, Serial
from hloom.compiler.kernels.request import KernelRequest, finish
from hloom.compiler.kernels.writer import extend_variables, load, start_value
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.ops.scatter import combiner_kind, windows_of
from hloom.ir.types import HOST_DTYPES

BLOCK = 256  # elements of a window dimension in one item, where windows are cut for several threads
LITERAL = 128  # extents of windows up to this are numbers in the text: a short loop costs less if its length is known
ENOUGH = 1 << 17  # update elements from which cutting windows pays


def has_scatter_kernel(scatter: Instruction) -> bool:
    """Whether a scatter is a kernel: one array that is nothing else's operand, and a combiner of element-wise ops."""
    if len(scatter.operands) != 3 or not scatter.dims:
        return False
    operand, indices, updates = scatter.operands
    if operand in (indices, updates) or any(o.dtype in HOST_DTYPES for o in scatter.operands):
        return False
    return all(
        i.opcode in ("parameter", "constant") or (OPS[i.opcode].family == "elementwise" and not i.dims)
        for i in scatter["to_apply"].instructions
    )


def scatter_nest(request: KernelRequest) -> Nest:
    """One nest for a scatter whose output overwrites its operand."""
    root = request.outputs[0]
    operand, indices, updates = root.operands
    w = windows_of(root)
    dims = updates.dims
    writer = request.writer(dims)
    writer.set_domain_plain()
    index = list(variables(dims))
    which = [index[k] for k in w.places]
    batching = {w.places[w.index_dimensions.index(d)] for d in w.indices_batching}
    free = {k for k in w.places if k in batching or root.attributes.get("unique_indices")}
    parallel = [k for k in w.places if k in free and dims[k] != 1]
    loops = [k for k in w.places if k not in free and dims[k] != 1]
    inner = [k for k in w.offset if dims[k] != 1]
    cut = _cut(w, dims, inner, parallel)

    named = [(f"i{k}", writer.integer(f"n{k}", dims[k])) for k in parallel]
    items = 1
    for k in parallel:
        items *= dims[k]
    if cut is not None:
        blocks = -(-dims[cut] // BLOCK)
        named.append(("block", writer.integer("blocks", blocks)))
        items *= blocks
    if not named:
        named.append(("once", writer.integer("one", 1)))
    outer = block = writer.root.child(*(name for name, _ in named))
    # What a node is computed from comes before it, so nodes are put into their blocks when all is written.
    nodes = []
    for k in loops:
        inside = block.child(f"i{k}")
        nodes.append((block, Serial(f"i{k}", "0", writer.integer(f"n{k}", dims[k]), inside)))
        block = inside
    conditions, begin = _starts(writer, indices, w, which, block)
    if conditions:
        branch = block.child()
        branch.guarded = True
        nodes.append((block, Branch(" and ".join(conditions), branch)))
        block = branch
    for k in inner:
        inside = block.child(f"i{k}")
        extent = str(dims[k]) if dims[k] <= LITERAL else writer.integer(f"n{k}", dims[k])
        start, stop = ("0", extent) if k != cut else (f"block * {BLOCK}", f"min(block * {BLOCK} + {BLOCK}, {extent})")
        nodes.append((block, Serial(f"i{k}", start, stop, inside)))
        block = inside
    place = [Affine()] * len(operand.dims)
    for d, start in begin.items():
        place[d] = start
    for d, k in zip(w.operand_batching, w.indices_batching, strict=True):
        place[d] = which[w.index_dimensions.index(k)]
    for d, k in zip(w.window_dimensions, w.offset, strict=True):
        place[d] = place[d] + index[k]
    _combine(writer, request, root, linear(tuple(place), operand.dims), tuple(index), block)
    for around, node in reversed(nodes):
        around.body.append(node)
    writer.root.body.append(Items(named, outer))
    work = request.flops() * updates.shape.size / max(items, 1)
    return finish(request, writer, "scatter", writer.root, items if updates.shape.size else 0, work)


def _cut(w, dims, inner, parallel) -> int | None:
    """The dimension of the updates that is cut into blocks, one item each; None where that does not pay."""
    size = 1
    for extent in dims:
        size *= extent
    if parallel or not inner or size < ENOUGH:
        return None
    last = inner[-1]
    d = w.window_dimensions[w.offset.index(last)]
    whole = w.sizes[d] == w.operand[d]
    return last if whole and dims[last] > BLOCK else None


def _starts(writer, indices, w, which, block: Block) -> tuple[list[str], dict[int, Affine]]:
    """(the conditions for a window to be inside, its start along each dimension that has one)."""
    begin: dict[int, Affine] = {}
    conditions = []
    for component, (d, room) in enumerate(zip(w.mapped, w.limits(), strict=True)):
        value, where = start_value(writer, indices, w, which, component, block)
        name = writer.fresh("q")
        where.body.append(f"{name} = s64({value})")
        where.variables = where.variables | {name}
        extend_variables(block, where)
        conditions.append(f"{name} >= 0 and {name} <= {writer.integer('q_n', room)}")
        begin[d] = Affine(0, {name: 1})
    return conditions, begin


def _combine(writer, request, root, place: Affine, index, block: Block) -> None:
    """Puts one element of the updates into its place."""
    pointer = request.output_name(0)
    value = writer.value(root.operands[2], index, block)
    if combiner_kind(root["to_apply"]) != "overwrite":
        old = writer.fresh()
        block.body.append(f"{old} = {load(pointer, writer.text(place, pointer), root.dtype)}")
        (value,) = inline_scalars(writer, block, root["to_apply"], [old, value])
    writer.store(pointer, place, root.dtype, value, block)
