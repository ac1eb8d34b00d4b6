"""The scatter nest: updates combined in place, those of one place in the order of the indexes.

Work items are what never meets in one element: batching dimensions, the windows themselves where the indexes are
promised to be distinct, blocks of a window dimension that windows hold whole, and bands of the result, each of which
looks at all indexes. All else is loops inside of an item.
Where the updates are many more than the elements they go to (histograms, sums of segments) they are cut into parts,
each combined in a table of its own, and a second kernel joins the tables in order. Parts depend on the shape only.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.affine import Affine, linear, variables
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.description import Block, Branch, Items, Nest, Serial
from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.codegen.writer import extend_variables, start_value
from hloom.compiler.kernels.loops.accumulators import inline_scalars
from hloom.compiler.kernels.request import KernelRequest, finish
from hloom.ir.build import combiner_opcode
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.ops.indexing.scatter import combiner_kind, windows_of
from hloom.ir.types import HLO_NAME, HOST_DTYPES

BLOCK = 256  # elements of a window dimension in one item, where windows are cut for several threads
LITERAL = 16  # extents of windows up to this are numbers in the text: a short loop costs less if its length is known
ENOUGH = 1 << 17  # update elements from which cutting windows pays, and of a part
# Elements of a window from which looking at its index in each thread costs less than the window, and bands at most. The
# gradient of 32,768 rows of 64 elements of a table of 8,192 took 0.82 of the time by two threads (Xeon).
BAND, BANDS = 32, 8
PARTS = 16  # at most so many: each has a table
TABLES = 8  # so many times a table's elements a part has of updates: the table is begun, and joined
JOINED = 4096  # elements of the result in one item
# Indexes that are looked at together, by vectors, before what they lead to. Counts of 4M numbers in 256 bins took
# 2.1 ms index by index, 1.3 so (Xeon, two cores; 8.6 and 1.9 by one, which then expected each count to need the last).
STRIP = 1024


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


def scatter_nests(request: KernelRequest) -> list[Nest]:
    """The nests of a scatter whose output overwrites its operand: one, or parts and what joins them."""
    parts = _parts(request)
    if parts < 2:
        return [_scatter_nest(request)]
    return [_scatter_nest(request, parts), _join_nest(request, parts)]


def _parts(request: KernelRequest) -> int:
    """Into how many parts the updates are cut; 1 where a table for each would cost too much, or for want of a neutral
    element to begin it with."""
    root = request.outputs[0]
    w, dims = windows_of(root), root.operands[2].dims
    serial = [k for k in w.places if dims[k] != 1]
    alone = not w.indices_batching and not root.attributes.get("unique_indices")
    if not (request.supports_loop_splitting and alone and serial and combiner_opcode(root["to_apply"])):
        return 1
    return min(PARTS, dims[serial[0]], math.prod(dims) // max(TABLES * root.shape.size, ENOUGH))


def _scatter_nest(request: KernelRequest, parts: int = 1) -> Nest:
    """The updates' way into their places; parts: into as many tables, one work item each."""
    root = request.outputs[0]
    operand, indices, updates = root.operands
    w = windows_of(root)
    dims = updates.dims
    writer = request.writer(dims)
    index = list(variables(dims))
    which = [index[k] for k in w.places]
    batching = {w.places[w.index_dimensions.index(d)] for d in w.indices_batching}
    free = {k for k in w.places if k in batching or root.attributes.get("unique_indices")}
    parallel = [k for k in w.places if k in free and dims[k] != 1]
    loops = [k for k in w.places if k not in free and dims[k] != 1]
    inner = [k for k in w.offset if dims[k] != 1]
    cut = _cut(w, dims, inner, parallel) if parts == 1 else None
    bands = _bands(request, w, dims, inner) if parts == 1 and cut is None and not parallel else 1

    named = [(f"i{k}", writer.integer(f"n{k}", dims[k])) for k in parallel]
    items = 1
    for k in parallel:
        items *= dims[k]
    if cut is not None:
        blocks = -(-dims[cut] // BLOCK)
        named.append(("block", writer.integer("blocks", blocks)))
        items *= blocks
    if parts > 1:
        named.append(("part", writer.integer("parts", parts)))
        items = parts
    if bands > 1:
        named.append(("band", writer.integer("bands", bands)))
        items = bands
    if not named:
        named.append(("once", writer.integer("one", 1)))
    outer = block = writer.root.child(*(name for name, _ in named))
    # What a node is computed from comes before it, so nodes are put into their blocks when all is written.
    nodes = []
    pointer, shift = request.output_name(0), ""
    if parts > 1:
        pointer, shift = "table", "first + "
        size = writer.integer("size", root.shape.size)
        begin = block.child("x")
        begin.body.append(store(pointer, "first + x", root.dtype, neutral_of(root)))
        nodes.append((block, f"first = part * {size}"))
        nodes.append((block, Serial("x", "0", size, begin)))
    within = None
    if bands > 1:
        (room,) = w.limits()
        height = writer.integer("height", room // bands + 1)
        within = "low", "high"
        nodes.append((block, f"low = band * {height}"))
        nodes.append((block, f"high = min(low + {height} - 1, {writer.integer('q_n', room)})"))
    strips = request.supports_loop_splitting and len(loops) == len(w.mapped) == 1 and dims[loops[0]] > STRIP
    strips = strips and (bands > 1 or not inner)  # else the windows are the work
    for number, k in enumerate(loops):
        start, stop = "0", writer.integer(f"n{k}", dims[k])
        if parts > 1 and not number:
            start, stop = f"{stop} * part // parts", f"{stop} * (part + 1) // parts"
        if strips:
            block, start, stop = _strip(writer, nodes, block, start, stop)
        inside = block.child(f"i{k}")
        nodes.append((block, Serial(f"i{k}", start, stop, inside)))
        block = inside
    conditions, begin = window_begin(writer, indices, w, which, block, within)
    if strips:
        conditions, block = _taken(writer, nodes, block, f"i{loops[0]}", conditions, begin, bands > 1)
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
    combine_update(writer, root, (pointer, shift), linear(tuple(place), operand.dims), tuple(index), block)
    # Of nodes of one block the later ones come later; those around others have been made before them.
    for around, node in nodes:
        around.body.append(node)
    writer.root.body.append(Items(named, outer))
    work = request.flops() * updates.shape.size / max(items, 1)
    nest = finish(request, writer, "scatter", writer.root, items if updates.shape.size else 0, work)
    return _with_table(nest, root, parts) if parts > 1 else nest


def _strip(writer, nodes, block: Block, start: str, stop: str) -> tuple[Block, str, str]:
    """(the block of a strip of the indexes from start to stop, where the strip starts, where it stops)."""
    writer.root.body.append(f"places = scratch_s64({STRIP})")
    strip = block.child("strip")
    nodes.append((block, f"first_place = {start}"))
    nodes.append((block, f"last_place = {stop}"))
    nodes.append((block, Serial("strip", "0", f"(last_place - first_place + {STRIP - 1}) // {STRIP}", strip)))
    nodes.append((strip, f"low_place = first_place + strip * {STRIP}"))
    nodes.append((strip, f"high_place = min(low_place + {STRIP}, last_place)"))
    return strip, "low_place", "high_place"


def _taken(writer, nodes, asked: Block, variable: str, conditions, begin, sparse: bool) -> tuple[list[str], Block]:
    """(what is left to ask, the block of an update), where `asked` says of each index of a strip where it leads to.

    Asked together the indexes are vectors. sparse: many lead nowhere, and a branch for each could not be predicted: a
    list is made of the others.
    """
    (name,) = (v for affine in begin.values() for v in affine.terms)
    strip, holds = asked.parent, " & ".join(f"({condition})" for condition in conditions)
    asked.body.append(f"places[{variable} - low_place] = {name} if {holds} else s64(-1)")
    if not sparse:
        taken = strip.child(variable, name)
        nodes.append((strip, Serial(variable, "low_place", "high_place", taken)))
        taken.body.append(f"{name} = places[{variable} - low_place]")
        return [f"{name} >= 0"], taken
    writer.root.body.append(f"kept = scratch_s64({STRIP})")
    listed = strip.child("place")
    listed.body += ["kept[count] = place", "count += s64(places[place] >= 0)"]
    nodes.append((strip, "count = 0"))
    nodes.append((strip, Serial("place", "0", "high_place - low_place", listed)))
    taken = strip.child("place", variable, name)
    nodes.append((strip, Serial("number", "0", "count", taken)))
    taken.body += ["place = kept[number]", f"{variable} = low_place + place", f"{name} = places[place]"]
    return [], taken


def _join_nest(request: KernelRequest, parts: int) -> Nest:
    """The tables' way into the result: an item is a block of its elements."""
    root = request.outputs[0]
    writer = request.writer(root.dims)
    blocks = -(-root.shape.size // JOINED)
    item = writer.root.child("block")
    size = writer.integer("size", root.shape.size)
    each = item.child("part")
    inside = each.child("x")
    pointer = request.output_name(0)
    inside.body += [
        f"old = {load(pointer, 'x', root.dtype)}", f"new = {load('table', f'part * {size} + x', root.dtype)}"
    ]  # fmt: skip
    (value,) = inline_scalars(writer, inside, root["to_apply"], ["old", "new"])
    inside.body.append(store(pointer, "x", root.dtype, value))
    each.body.append(Serial("x", f"block * {JOINED}", f"min(block * {JOINED} + {JOINED}, {size})", inside))
    item.body.append(Serial("part", "0", writer.integer("parts", parts), each))
    writer.root.body.append(Items([("block", writer.integer("blocks", blocks))], item))
    nest = finish(request, writer, "scatter_join", writer.root, blocks, 2.0 * parts * min(JOINED, root.shape.size))
    return _with_table(nest, root, parts, joins=True)


def _with_table(nest: Nest, root: Instruction, parts: int, joins: bool = False) -> Nest:
    """With the tables of the parts, which take the place of the result where they are not joined."""
    table = ("table", HLO_NAME[root.dtype])
    nest.pointers = [table, *(p for p in nest.pointers if joins or p[0] not in nest.outputs)]
    nest.outputs = nest.outputs if joins else frozenset({"table"})
    nest.temporaries = {"table": parts * root.shape.bytes}
    return nest


def neutral_of(root: Instruction) -> str:
    return literal(OPS[combiner_opcode(root["to_apply"])].identity(root.dtype), root.dtype)


def _cut(w, dims, inner, parallel) -> int | None:
    """The dimension of the updates that is cut into blocks, one item each; None where that does not pay."""
    if parallel or not inner or math.prod(dims) < ENOUGH:
        return None
    last = inner[-1]
    d = w.window_dimensions[w.offset.index(last)]
    whole = w.sizes[d] == w.operand[d]
    return last if whole and dims[last] > BLOCK else None


def _bands(request: KernelRequest, w, dims, inner) -> int:
    """Into how many bands of the only indexed dimension the result is cut, one item each; a window is in one of them.

    As many as there are cores, since each item looks at all indexes: what is added where, and when, does not change."""
    if (
        not request.supports_loop_splitting
        or len(w.mapped) != 1
        or w.sizes[w.mapped[0]] != 1
        or math.prod(dims) < ENOUGH
    ):
        return 1
    wide = math.prod(dims[k] for k in inner) >= BAND
    return min(request.target.machine.cores, BANDS) if wide else 1


def window_begin(
    writer, indices, w, which, block: Block, within: tuple[str, str] | None = None
) -> tuple[list[str], dict[int, Affine]]:
    """(the conditions for a window to be inside, its start along each dimension that has one).

    within: the first and the last start that count, where only one dimension has any."""
    begin: dict[int, Affine] = {}
    conditions = []
    for component, (d, room) in enumerate(zip(w.mapped, w.limits(), strict=True)):
        value, where = start_value(writer, indices, w, which, component, block)
        name = writer.fresh("q")
        where.body.append(f"{name} = s64({value})")
        where.variables = where.variables | {name}
        extend_variables(block, where)
        low, high = within or ("0", writer.integer("q_n", room))
        conditions += [f"{name} >= {low}", f"{name} <= {high}"]
        begin[d] = Affine(0, {name: 1})
    return conditions, begin


def combine_update(writer, root, target: tuple[str, str], place: Affine, index, block: Block) -> None:
    """Puts one element of the updates into its place. target: the pointer, and what its indexes begin with."""
    pointer, shift = target
    value = writer.value(root.operands[2], index, block)
    at = shift + writer.text(place, pointer)
    if combiner_kind(root["to_apply"]) != "overwrite":
        old = writer.fresh()
        block.body.append(f"{old} = {load(pointer, at, root.dtype)}")
        (value,) = inline_scalars(writer, block, root["to_apply"], [old, value])
    block.body.append(store(pointer, at, root.dtype, value))
