"""The scatter nest: updates combined in place, those of one element in the order of the indexes.

Work items are what never meets in one element: batching dimensions, the windows themselves where the indexes are
promised to be distinct, blocks of a window dimension that windows hold whole, and bands of the result, each of which
looks at all indexes. All else is loops inside of an item.
Where the updates are many more than the elements they go to (histograms, sums of segments) they are cut into parts,
each combined in a table of its own, and a second kernel joins the tables in order. Parts depend on the shape only.
"""

from __future__ import annotations

import math

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.builder import (
    compared,
    constant,
    least,
    load,
    minus,
    operation,
    plus,
    store,
    terms_of,
    times,
)
from hloom.compiler.kernel_ir.nodes import Expr, Stmt, Var
from hloom.compiler.kernels.codegen.affine import ZERO, Affine, Index, linear, variables
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.description import Block, Branch, Items, Nest, Serial
from hloom.compiler.kernels.codegen.guards import all_of
from hloom.compiler.kernels.codegen.writer import Writer, extend_variables, start_value
from hloom.compiler.kernels.loops.accumulators import inline_scalars
from hloom.compiler.kernels.request import KernelRequest, finish
from hloom.ir.build import combiner_opcode
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.ops.indexing.scatter import combiner_kind, windows_of
from hloom.ir.ops.indexing.windows import Windows
from hloom.ir.sizes.guards import typical
from hloom.ir.types import HLO_NAME, HOST_DTYPES

BLOCK = 256  # elements of a window dimension in one item, where windows are cut for several threads
LITERAL = 16  # sizes of windows up to this are numbers in the text: a short loop costs less if its length is known
ENOUGH = 1 << 17  # update elements from which cutting windows pays, and of a part
# Elements of a window from which looking at its index in each thread costs less than the window, and bands at most.
BAND, BANDS = 32, 8
PARTS = 16  # at most so many: each has a table
TABLES = 8  # so many times a table's elements a part has of updates: the table is begun, and joined
JOINED = 4096  # elements of the result in one item
STRIP = 1024  # indexes that are looked at together, by vectors, before what they lead to


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
        return [_Scatter(request).nest()]
    return [_Scatter(request, parts).nest(), _join_nest(request, parts)]


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


def place_of(w: Windows, index: Index, begin: dict[int, Affine]) -> Index:
    """Where the element `index` of the updates goes; begin: the start of its window along indexed dimensions."""
    place = [begin.get(d, ZERO) for d in range(len(w.operand))]
    for d, k in zip(w.operand_batching, w.indices_batching, strict=True):
        place[d] = index[w.places[w.index_dimensions.index(k)]]
    for d, k in zip(w.window_dimensions, w.offset, strict=True):
        place[d] = place[d] + index[k]
    return tuple(place)


class _Scatter:
    """Writes the updates' way into their places; parts: into as many tables, one work item each."""

    def __init__(self, request: KernelRequest, parts: int = 1):
        self.request, self.parts, self.root = request, parts, request.outputs[0]
        _, self.indices, updates = self.root.operands
        self.w, self.dims = windows_of(self.root), updates.dims
        self.writer = request.writer(self.dims)
        # What a node is computed from comes before it, so nodes are put into their blocks when all is written.
        self.nodes: list[tuple[Block, Stmt | Serial | Branch]] = []
        w, dims = self.w, self.dims
        batching = {w.places[w.index_dimensions.index(d)] for d in w.indices_batching}
        free = {k for k in w.places if k in batching or self.root.attributes.get("unique_indices")}
        self.parallel = [k for k in w.places if k in free and dims[k] != 1]
        self.loops = [k for k in w.places if k not in free and dims[k] != 1]
        self.inner = [k for k in w.offset if dims[k] != 1]
        whole = parts > 1 or bool(self.parallel)
        self.cut = None if whole else _cut(w, dims, self.inner)
        self.bands = 1 if whole or self.cut is not None else _bands(request, w, dims, self.inner)
        strips = request.supports_loop_splitting and len(self.loops) == len(w.mapped) == 1
        # Where windows have several elements and are not in bands, the windows are the work.
        self.strips = strips and dims[self.loops[0]] > STRIP and (self.bands > 1 or not self.inner)

    def nest(self) -> Nest:
        request, writer, w, dims = self.request, self.writer, self.w, self.dims
        named = self._items()
        items = math.prod(count for _, _, count in named)
        outer = block = writer.root.child(*(variable.name for variable, _, _ in named))
        target, within = self._table(block), self._limits(block)
        for number, k in enumerate(self.loops):
            ends: tuple[Expr, Expr] = (builder.ZERO, writer.integer(f"n{k}", dims[k]))
            if self.parts > 1 and not number:
                ends = bounds_of_part(writer, ends[1])
            if self.strips:
                block, ends = self._strip(block, *ends)
            block = self._loop(block, f"i{k}", *ends)
        index = variables(dims)
        conditions, begin = window_begin(writer, self.indices, w, [index[k] for k in w.places], block, within)
        if self.strips:
            conditions, block = self._taken(block, f"i{self.loops[0]}", conditions, begin)
        if conditions:
            branch = block.child()
            branch.guarded = True
            self.nodes.append((block, Branch(all_of(conditions), branch)))
            block = branch
        for k in self.inner:
            size = constant(dims[k]) if dims[k] <= LITERAL else writer.integer(f"n{k}", dims[k])
            ends = _blocks_of(writer, BLOCK, size) if k == self.cut else (builder.ZERO, size)
            block = self._loop(block, f"i{k}", *ends)
        combine_update(writer, self.root, target, linear(place_of(w, index, begin), w.operand), index, block)
        # Of nodes of one block the later ones come later; those around others have been made before them.
        for around, node in self.nodes:
            around.body.append(node)
        writer.root.body.append(Items([(variable, count) for variable, count, _ in named], outer))
        elements = math.prod(dims)
        flops = request.flops() * typical(elements) / max(typical(items), 1)
        nest = finish(request, writer, "scatter", writer.root, items if elements else 0, flops)
        return _with_table(nest, self.root, self.parts) if self.parts > 1 else nest

    def _items(self) -> list[tuple[Var, Var, int]]:
        """(variable, argument of the size, size) of the dimensions of the work items."""
        found = [(f"i{k}", f"n{k}", self.dims[k]) for k in self.parallel]
        if self.cut is not None:
            found.append(("block", "blocks", -(-self.dims[self.cut] // BLOCK)))
        if self.parts > 1:
            found.append(("part", "parts", self.parts))
        if self.bands > 1:
            found.append(("band", "bands", self.bands))
        found = found or [("once", "one", 1)]
        return [(self.writer.index(name), self.writer.integer(size, count), count) for name, size, count in found]

    def _loop(self, block: Block, variable: str, start: Expr, stop: Expr) -> Block:
        """The body of a loop in `block`."""
        inside = block.child(variable)
        self.nodes.append((block, Serial(self.writer.index(variable), start, stop, inside)))
        return inside

    def _let(self, block: Block, name: str, value: Expr) -> Var:
        """A value that `block` has when all is written."""
        var = self.writer.names.declare(name, value.type)
        self.nodes.append((block, builder.assign(var, value)))
        return var

    def _table(self, block: Block) -> tuple[Var, Expr | None]:
        """(the pointer that updates go to, what its indexes begin with); a table starts with neutral elements."""
        writer = self.writer
        if self.parts == 1:
            return writer.names[self.request.output_name(0)], None
        size = writer.integer("size", self.root.shape.size)
        first = self._let(block, "first", times(writer.index("part"), size))
        begin = self._loop(block, "x", builder.ZERO, size)
        table = writer.pointer("table", self.root.dtype)
        begin.body.append(store(table, plus(first, writer.index("x")), neutral_of(self.root)))
        return table, first

    def _limits(self, block: Block) -> tuple[Expr, Expr] | None:
        """The first and the last start that a band has, where there are bands."""
        if self.bands == 1:
            return None
        (room,) = self.w.limits()
        height = self.writer.integer("height", room // self.bands + 1)
        low = self._let(block, "low", times(self.writer.index("band"), height))
        last = minus(plus(low, height), builder.ONE)
        return low, self._let(block, "high", least(last, self.writer.integer("q_n", room)))

    def _strip(self, block: Block, start: Expr, stop: Expr) -> tuple[Block, tuple[Expr, Expr]]:
        """(the block of a strip of the indexes from start to stop, the bounds of the strip)."""
        self.writer.root.scratch("places", "s64", STRIP)
        first, last = self._let(block, "first_place", start), self._let(block, "last_place", stop)
        length = constant(STRIP)
        strips = operation("//", plus(minus(last, first), constant(STRIP - 1)), length)
        strip = self._loop(block, "strip", builder.ZERO, strips)
        low = self._let(strip, "low_place", plus(first, times(self.writer.index("strip"), length)))
        return strip, (low, self._let(strip, "high_place", least(plus(low, length), last)))

    def _taken(
        self, asked: Block, variable: str, conditions: list[Expr], begin: dict[int, Affine]
    ) -> tuple[list[Expr], Block]:
        """(what is left to ask, the block of an update), where `asked` says of each index of a strip where it leads to.

        Asked together the indexes are vectors. In bands many lead nowhere, and a branch for each could not be
        predicted: a list is made of the others.
        """
        (name,) = (str(v) for affine in begin.values() for v in affine.terms)
        strip, holds, names = asked.parent, conditions[0], self.writer.names
        assert strip is not None
        for condition in conditions[1:]:
            holds = operation("&", holds, condition)
        index, low, high, places = (names[word] for word in (variable, "low_place", "high_place", "places"))
        place, found = minus(index, low), names[name]
        nowhere = builder.cast("s64", builder.unary("-", builder.ONE))
        asked.store(places, place, builder.chosen(holds, found, nowhere))
        if self.bands == 1:
            taken = strip.child(variable, name)
            self.nodes.append((strip, Serial(index, low, high, taken)))
            taken.let(name, load(places, place))
            return [compared(">=", found, builder.ZERO)], taken
        kept = self.writer.root.scratch("kept", "s64", STRIP)
        count = self._let(strip, "count", builder.ZERO)
        listed = self._loop(strip, "place", builder.ZERO, minus(high, low))
        each = names["place"]
        listed.store(kept, count, each)
        listed.increase(count, builder.cast("s64", compared(">=", load(places, each), builder.ZERO)))
        taken = strip.child("place", variable, name)
        number = self.writer.index("number")
        self.nodes.append((strip, Serial(number, builder.ZERO, count, taken)))
        taken.let("place", load(kept, number))
        taken.let(variable, plus(low, each))
        taken.let(name, load(places, each))
        return [], taken


def bounds_of_part(writer: Writer, stop: Expr) -> tuple[Expr, Expr]:
    """The bounds of the item's part of 0..stop."""
    part, parts = writer.index("part"), writer.index("parts")
    after = plus(part, builder.ONE)
    return operation("//", times(stop, part), parts), operation("//", times(stop, after), parts)


def _blocks_of(writer: Writer, length: int, size: Expr) -> tuple[Expr, Expr]:
    """The bounds of the item's block of so many elements of 0..size."""
    first = times(writer.index("block"), constant(length))
    return first, least(plus(first, constant(length)), size)


def _join_nest(request: KernelRequest, parts: int) -> Nest:
    """The tables' way into the result: an item is a block of its elements."""
    root = request.outputs[0]
    writer = request.writer(root.dims)
    blocks = -(-root.shape.size // JOINED)
    item = writer.root.child("block")
    size = writer.integer("size", root.shape.size)
    each = item.child("part")
    inside = each.child("x")
    pointer, table = writer.names[request.output_name(0)], writer.pointer("table", root.dtype)
    part, x = writer.index("part"), writer.index("x")
    old = inside.let("old", load(pointer, x))
    new = inside.let("new", load(table, plus(times(part, size), x)))
    (value,) = inline_scalars(writer, inside, root["to_apply"], [old, new])
    inside.body.append(store(pointer, x, value))
    each.body.append(Serial(x, *_blocks_of(writer, JOINED, size), inside))
    item.body.append(Serial(part, builder.ZERO, writer.integer("parts", parts), each))
    writer.root.body.append(Items([(writer.index("block"), writer.integer("blocks", blocks))], item))
    nest = finish(request, writer, "scatter_join", writer.root, blocks, 2.0 * parts * min(JOINED, root.shape.size))
    return _with_table(nest, root, parts, joins=True)


def _with_table(nest: Nest, root: Instruction, parts: int, joins: bool = False) -> Nest:
    """With the tables of the parts, which take the place of the result where they are not joined."""
    table = ("table", HLO_NAME[root.dtype])
    nest.pointers = [table, *(p for p in nest.pointers if joins or p[0] not in nest.outputs)]
    nest.outputs = nest.outputs if joins else frozenset({"table"})
    nest.temporaries = {"table": parts * root.shape.bytes}
    return nest


def neutral_of(root: Instruction) -> Expr:
    """The neutral element of a scatter's combiner, which has one."""
    opcode = combiner_opcode(root["to_apply"])
    identity = opcode and OPS[opcode].identity
    assert identity
    return literal(identity(root.dtype), root.dtype)


def _cut(w: Windows, dims: tuple[int, ...], inner: list[int]) -> int | None:
    """The dimension of the updates that is cut into blocks, one item each; None where that does not pay."""
    if not inner or math.prod(dims) < ENOUGH:
        return None
    last = inner[-1]
    d = w.window_dimensions[w.offset.index(last)]
    whole = w.sizes[d] == w.operand[d]
    return last if whole and dims[last] > BLOCK else None


def _bands(request: KernelRequest, w: Windows, dims: tuple[int, ...], inner: list[int]) -> int:
    """Into how many bands of the only indexed dimension the result is cut, one item each; a window is in one of them.

    As many as there are cores, since each item looks at all indexes: what is added where, and when, does not change."""
    single = len(w.mapped) == 1 and w.sizes[w.mapped[0]] == 1
    if not (request.supports_loop_splitting and single and math.prod(dims) >= ENOUGH):
        return 1
    wide = math.prod(dims[k] for k in inner) >= BAND
    return min(request.target.cores, BANDS) if wide else 1


def window_begin(
    writer, indices, w, which, block: Block, within: tuple[Expr, Expr] | None = None
) -> tuple[list[Expr], dict[int, Affine]]:
    """(the conditions for a window to be inside, its start along each dimension that has one).

    within: the first and the last start that count, where only one dimension has any."""
    begin: dict[int, Affine] = {}
    conditions: list[Expr] = []
    for component, (d, room) in enumerate(zip(w.mapped, w.limits(), strict=True)):
        value, where = start_value(writer, indices, w, which, component, block)
        name = writer.fresh("q")
        start = where.let(name, builder.cast("s64", value))
        where.variables = where.variables | {name}
        extend_variables(block, where)
        low, high = within or (builder.ZERO, writer.integer("q_n", room))
        conditions += [compared(">=", start, low), compared("<=", start, high)]
        begin[d] = Affine(0, {name: 1})
    return conditions, begin


def combine_update(
    writer: Writer, root, target: tuple[Var, Expr | None], place: Affine, index: Index, block: Block
) -> None:
    """Puts one element of the updates into its place. target: the pointer, and what its indexes begin with."""
    pointer, shift = target
    value = writer.value(root.operands[2], index, block)
    at = writer.position(place, pointer.name)
    if shift is not None:
        at = plus(shift, *terms_of(at))
    if combiner_kind(root["to_apply"]) != "overwrite":
        old = block.let(writer.fresh(), load(pointer, at))
        (value,) = inline_scalars(writer, block, root["to_apply"], [old, value])
    block.body.append(store(pointer, at, value))
