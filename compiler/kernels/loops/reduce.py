"""The reduce nest: any dimensions, in deterministic chunks.

Stage 1 reduces a chunk of the outermost reduced dimension for each kept index into `part` buffers; stage 2 joins the
chunks, the initial value, and whatever consumes the result. How the work is cut depends on the shape only, so the bits
do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    cast,
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
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernels.codegen.affine import Affine, Index, linear, variables
from hloom.compiler.kernels.codegen.description import Block, Items, Lanes, Nest, Pieces, Serial
from hloom.compiler.kernels.codegen.guards import bound, bounds
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.compiler.kernels.loops.domain import Domain, store_outputs, written
from hloom.compiler.kernels.loops.short_rows import ROWS, SHORT, STATEMENTS, places
from hloom.compiler.kernels.request import KernelRequest, finish
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.sizes.guards import typical
from hloom.ir.types import HLO_NAME, compute_dtype

CHUNK = 32768  # elements that are worth a work item of their own: about 5 microseconds
FLOPS = 8  # of an element that reading it hides
CHUNKS = 64  # at most so many for each kept index: stage 2 joins them one after the other
STRIP = 32768  # elements that one accumulator adds before their sum goes to one of double precision
RUN = 4096  # elements: longer runs of reduced elements may lie as far apart as they like
JOINED = 256  # kept indexes of an item that joins chunks of them
COLUMNS = 1024  # accumulators of a block of columns: 4 KiB of float32 stay in the first-level cache
# Where items are threads: so many keep a GPU busy, with so many elements each at least. The join's lanes share the
# chunks of a kept index from SHARED on.
THREADS, EACH, SHARED = 1 << 17, 16, 32
WHOLE = 4  # times EACH elements are still one thread's
LANES = 256  # that share a kept index where the fast dimension is reduced


def reduce_nests(request: KernelRequest) -> list[Nest]:
    """The stages. Outputs have the kept dimensions, or the operand's (written along the way in stage 1)."""
    shape = _Shape(request)
    if shape.threads and shape.chunks == 1:
        return [_whole_stage(request, shape)]
    if shape.few_columns:
        first = _few_columns_stage(request, shape)
    elif shape.between:
        first = _between_stage(request, shape)
    else:
        blocks = shape.columns and not shape.threads
        first = _columns_stage(request, shape) if blocks else _lanes_stage(request, shape)
    if shape.splittable and not shape.threads and (shape.columns or shape.between):
        return [first, _join_columns_stage(request, shape)]
    return [first, _join_stage(request, shape)]


class _Shape:
    """How a reduction is cut into work items, from its dimensions only."""

    def __init__(self, request: KernelRequest):
        self.reduces = [i for i in request.computation.instructions if i.opcode == "reduce"]
        self.dims = self.reduces[0].operands[0].dims
        self.reduced = set(self.reduces[0]["dimensions"])
        self.kept = [k for k in range(len(self.dims)) if k not in self.reduced]
        self.kept_dims = tuple(self.dims[k] for k in self.kept)
        self.kept_size = math.prod(self.kept_dims)
        outputs = range(len(request.outputs))
        self.full_outputs = [k for k in outputs if request.outputs[k].dims == self.dims and self.reduced]
        self.kept_outputs = [k for k in outputs if k not in self.full_outputs]
        self.splittable = all(Reduction(r).splittable for r in self.reduces)
        # Neighbours of one class may merge; a change from kept to reduced may not.
        last = [k for k, extent in enumerate(self.dims) if extent != 1]
        self.barriers = [b for a, b in itertools.pairwise(last) if (a in self.reduced) != (b in self.reduced)]
        self.columns = bool(last) and last[-1] not in self.reduced
        # Dimensions from here on are kept.
        self.first_column = max(self.reduced, default=-1) + 1
        self.few_columns = self.columns and self.splittable and self._has_few_columns(request)
        self.weight = max(1, int(request.flops() // FLOPS))
        self.threads = not request.supports_loop_splitting  # neighbouring items are threads, which read together
        self.between = False
        domain = self._merged(request)
        self.between = self.splittable and request.supports_loop_splitting and self._is_between(domain)
        self.chunks = self.cut(domain)[2]

    def _has_few_columns(self, request: KernelRequest) -> bool:
        """Whether the columns are so few that each has a scalar accumulator, and vectors go along what is reduced."""
        columns = math.prod(self.dims[self.first_column :])
        steps = math.prod(self.dims[k] for k in self.reduced)
        work = columns * len(request.computation.instructions)
        return columns <= SHORT and work <= STATEMENTS and steps >= ROWS and not self.full_outputs

    def _is_between(self, domain: Domain) -> bool:
        """Whether what is kept stands between what is reduced, in short runs: memory is then walked in its order."""
        if [group[0] in self.reduced for group in domain.groups] != [True, False, True] or self.full_outputs:
            return False
        return domain.sizes[-1] <= RUN

    def _merged(self, request: KernelRequest) -> Domain:
        """The merged dimensions of stage 1, which depend on its index expressions."""
        indexes = places(self.dims, self.first_column) if self.few_columns else [variables(self.dims)]

        def write(domain: Domain) -> None:
            writer, block = domain.writer, domain.writer.root.child(*domain.names)
            for index in indexes:
                for reduce in self.reduces:
                    for array in Reduction(reduce).arrays:
                        writer.value(array, index, block)
                store_outputs(request, writer, self.full_outputs, index, block)
                writer.position(self.kept_position(index), "part")

        return written(request, self.dims, write, self.barriers)[0]

    def groups(self, domain: Domain) -> tuple[list[int], list[int]]:
        """The merged dimensions that are kept, and those that are reduced."""
        reduced = [g for g, group in enumerate(domain.groups) if group[0] in self.reduced]
        return [g for g in range(len(domain.groups)) if g not in reduced], reduced

    def kept_position(self, index: Index) -> Affine:
        """The position of a kept index in an array of the kept dimensions."""
        return linear(tuple(index[k] for k in self.kept), self.kept_dims)

    def cut(self, domain: Domain) -> tuple[int, int, int]:
        """(the group that is chunked, steps per chunk, chunks)."""
        sizes, (_, inner) = domain.sizes, self.groups(domain)
        if not inner:
            return -1, 1, 1
        g = inner[0]
        if not self.splittable:
            return g, sizes[g], 1
        below, items = math.prod(sizes[h] for h in inner[1:]), self.kept_size
        if self.threads:
            lanes = 1 if self.columns and not self.few_columns else LANES
            steps = -(-EACH * lanes // max(below, 1))
            chunks = max(1, min(-(-sizes[g] // steps), THREADS // max(lanes * items, 1)))
            if sizes[g] * below <= WHOLE * EACH * lanes:
                chunks = 1  # a second kernel would take longer than the rest of the loop
        else:
            if self.columns or self.between:  # an item has a block of accumulators
                block = max(min(sizes[1] if self.between else sizes[-1], COLUMNS), 1)
                below, items = below * block, items // block
            steps = max(1, CHUNK // max(typical(below) * self.weight, 1))
            if isinstance(sizes[g], SizeExpression):
                return g, steps, -(-sizes[g] // steps)
            items = typical(items)
            chunks = min(-(-sizes[g] // steps), max(1, CHUNKS // max(items, 1)))
        steps = -(-sizes[g] // chunks)
        return g, steps, -(-sizes[g] // steps)


def _parts(r: int, reduction: Reduction) -> list[tuple[str, np.dtype]]:
    """(name, dtype) of the part buffers of reduction number r, one for each of its arrays."""
    return [(f"part{r}_{k}", compute_dtype(array.dtype)) for k, array in enumerate(reduction.arrays)]


def _buffers(writer: Writer, r: int, reduction: Reduction) -> list[Var]:
    """The pointers to the part buffers of reduction number r."""
    return [writer.pointer(name, dtype) for name, dtype in _parts(r, reduction)]


def _in_chunk(writer: Writer, size: Expr, position: Expr) -> Expr:
    """The place of a kept index in a buffer of chunks of so many, one after the other."""
    return plus(times(writer.index("chunk"), size), *terms_of(position))


def _cut_into_blocks(item: Block, columns: Expr, extent: Expr) -> tuple[Expr, Expr]:
    """(the first column of the item's block, the end of the last one)."""
    first = item.let("first", times(item.names["block"], columns))
    return first, item.let("last", least(plus(first, columns), extent))


def _stage(
    request: KernelRequest, shape: _Shape, kind: str, domain: Domain, items: int, work: float, dropped: Iterable[int]
) -> Nest:
    """The nest that was written, with part buffers in the place of the outputs that it leaves out."""
    nest = finish(request, domain.writer, kind, domain.writer.root, items, work)
    names = {request.output_name(k) for k in dropped}
    nest.pointers = [pointer for pointer in nest.pointers if pointer[0] not in names]
    for r, reduce in enumerate(shape.reduces):
        for name, dtype in _parts(r, Reduction(reduce)):
            nest.pointers.append((name, HLO_NAME[dtype]))
            nest.temporaries[name] = shape.chunks * shape.kept_size * dtype.itemsize
    return nest


def _first_stage(request: KernelRequest, shape: _Shape, domain: Domain, node: Items, items: int) -> Nest:
    """Stage 1 with these work items, which leave the outputs of the kept dimensions to stage 2."""
    assert shape.cut(domain)[2] == shape.chunks, "the stages of a reduction are cut differently"
    domain.writer.root.body.append(node)
    work = typical(math.prod(shape.dims)) / max(typical(items), 1) * request.flops()
    return _stage(request, shape, "reduce", domain, items, work, shape.kept_outputs)


def _lanes_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where the fast dimension is reduced: a scalar accumulator for each kept index and chunk.

    Where items are threads it is that of columns too: neighbouring threads have neighbouring columns.
    """

    def write(domain: Domain) -> Block:
        writer = domain.writer
        item, block, reductions = _taken(request, shape, domain, "chunk")
        _reduced_loops(shape, domain, item, block, sums=[] if shape.threads else [r for r in reductions if r.is_sum])
        position = writer.position(shape.kept_position(domain.index), "part")
        at: Expr = plus(times(position, writer.integer("chunks", shape.chunks)), writer.index("chunk"))
        if shape.columns:
            at = _in_chunk(writer, writer.integer("kept", shape.kept_size), position)
        for r, reduction in enumerate(reductions):
            reduction.settle(writer, item)
            for part, value in zip(_buffers(writer, r, reduction), reduction.names, strict=True):
                if reduction.opcode is not None and not shape.columns:
                    item.body.append(reduction.collective())
                item.body.append(store(part, at, value))
        return item

    domain, item = written(request, shape.dims, write, shape.barriers)
    named = domain.named()
    pairs = [named[g] for g in shape.groups(domain)[0]]
    chunk = domain.writer.index("chunk"), domain.writer.integer("chunks", shape.chunks)
    pairs.insert(len(pairs) - shape.columns, chunk)
    grain = "row" if shape.splittable and not shape.columns else "serial"
    return _first_stage(request, shape, domain, Items(pairs, item, grain), shape.kept_size * shape.chunks)


def _taken(request: KernelRequest, shape: _Shape, domain: Domain, *more: str) -> tuple[Block, Block, list[Reduction]]:
    """One step of the loops over what an item reduces: (the item's block with its accumulators, the block of the step,
    the reductions). more: further variables of the item."""
    outer, inner = shape.groups(domain)
    writer, index = domain.writer, domain.index
    item = writer.root.child(*(f"i{g}" for g in outer), *more)
    reductions = [Reduction(r, keys=request.supports_loop_splitting) for r in shape.reduces]
    for reduction in reductions:
        reduction.start(writer, item)
    block = item.child(*(f"i{g}" for g in inner))
    for reduction in reductions:
        reduction.take(writer, block, [writer.value(a, index, block) for a in reduction.arrays])
    store_outputs(request, writer, shape.full_outputs, index, block)
    return item, block, reductions


def _whole_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Both stages at once, where items are threads and nothing is cut."""
    lanes = shape.splittable and not shape.columns

    def write(domain: Domain) -> Block:
        item, block, reductions = _taken(request, shape, domain)
        _reduced_loops(shape, domain, item, block, cut=False)
        for reduction in reductions:
            reduction.settle(domain.writer, item)
            if lanes and reduction.opcode is not None:
                item.body.append(reduction.collective())
            reduction.define(domain.writer, item)
        kept = tuple(domain.index[k] for k in shape.kept)
        store_outputs(request, domain.writer, shape.kept_outputs, kept, item)
        return item

    domain, item = written(request, shape.dims, write, shape.barriers)
    named, root = domain.named(), domain.writer.root
    outer = shape.groups(domain)[0]
    root.body.append(Items([named[g] for g in outer], item, "row" if lanes else "serial"))
    items = shape.kept_size
    work = typical(math.prod(shape.dims)) / max(typical(items), 1) * request.flops()
    return finish(request, domain.writer, "reduce", root, items, work)


def _columns_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where the fast dimension is kept: a row of accumulators for each block of columns and chunk."""
    cuts = [0, 0]

    def write(domain: Domain) -> Block:
        writer = domain.writer
        outer, inner = shape.groups(domain)
        item = writer.root.child(*(f"i{g}" for g in outer[:-1]), "chunk", "block")
        named = domain.named()
        fast, extent = named[-1]
        writer.index("block")
        first, last = _cut_into_blocks(item, writer.integer("columns", COLUMNS), extent)
        begin = _started_columns(shape, domain, item)
        outside = item.child(*(f"i{g}" for g in inner))
        blocks = [_taken_columns(request, shape, domain, outside) for _ in domain.pieces(cuts)]
        item.body.append(Lanes(fast, last, begin, first))
        chunked, chunk = _chunk(shape, domain, item)
        if len(blocks) > 1:
            ends = [bound(writer, place, extent, domain.sizes[-1]) for place in cuts]
            outside.body.append(Pieces(fast, ends, blocks, (first, last)))
        else:
            outside.body.append(Lanes(fast, last, blocks[0], first))
        around = outside
        for g in reversed(inner):
            variable, size = named[g]
            start, stop = chunk if g == chunked else (ZERO, size)
            loop = Serial(variable, start, stop, around, together=around is outside)
            around = Block(item, item.variables, [loop])
        item.body += around.body
        return item

    def between(domain: Domain) -> bool:
        nonlocal cuts
        if not (request.supports_loop_splitting and domain.writer.guards):
            return False
        cuts = bounds(domain.writer, domain.groups, domain.dims)
        return True

    domain, item = written(request, shape.dims, write, shape.barriers, between)
    writer, named, sizes = domain.writer, domain.named(), domain.sizes
    *outer, _ = shape.groups(domain)[0]
    blocks = -(-sizes[-1] // COLUMNS)
    pairs = [named[g] for g in outer]
    pairs += _chunks_and_blocks(shape, writer, blocks)
    items = math.prod(sizes[g] for g in outer) * shape.chunks * blocks
    return _first_stage(request, shape, domain, Items(pairs, item, "row"), items)


def _chunks_and_blocks(shape: _Shape, writer: Writer, blocks: int) -> list[tuple[Var, Var]]:
    """The dimensions of items that are a chunk and a block of columns."""
    chunk = writer.index("chunk"), writer.integer("chunks", shape.chunks)
    return [chunk, (writer.index("block"), writer.integer("blocks", blocks))]


def _started_columns(shape: _Shape, domain: Domain, item: Block) -> Block:
    """A step of the loop that gives the accumulators of a block of columns their first values."""
    writer, position = domain.writer, shape.kept_position(domain.index)
    begin = item.child(domain.names[-1])
    kept = writer.integer("kept", shape.kept_size)
    for r, reduction in enumerate(map(Reduction, shape.reduces)):
        for k, part in enumerate(_buffers(writer, r, reduction)):
            if reduction.splittable:
                start = reduction.neutral(reduction.arrays[k])
            else:
                start = writer.value(reduction.initial[k], (), begin)
            begin.body.append(store(part, _in_chunk(writer, kept, writer.position(position, "part")), start))
    return begin


def _taken_columns(request: KernelRequest, shape: _Shape, domain: Domain, outside: Block) -> Block:
    """A step of the loop that adds one element to the accumulator of each column."""
    writer, index = domain.writer, domain.index
    kept = writer.integer("kept", shape.kept_size)
    at = _in_chunk(writer, kept, writer.position(shape.kept_position(index), "part"))
    body = outside.child(domain.names[-1])
    for r, reduction in enumerate(map(Reduction, shape.reduces)):
        values = [writer.value(a, index, body) for a in reduction.arrays]
        names, parts = [writer.fresh("a") for _ in reduction.arrays], _buffers(writer, r, reduction)
        reduction.names = [body.let(name, load(part, at)) for name, part in zip(names, parts, strict=True)]
        reduction.take(writer, body, values)
        body.body += [store(part, at, value) for part, value in zip(parts, reduction.names, strict=True)]
    store_outputs(request, writer, shape.full_outputs, index, body)
    return body


def _between_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where reduced dimensions stand before and after the kept ones: as columns, with a run for each place."""

    def write(domain: Domain) -> Block:
        writer, index = domain.writer, domain.index
        _, (column, extent), (step, steps) = domain.named()
        item = writer.root.child("chunk", "block")
        writer.index("block")
        first, last = _cut_into_blocks(item, writer.integer("columns", COLUMNS), extent)
        size = writer.integer("kept", shape.kept_size)
        at = _in_chunk(writer, size, writer.position(shape.kept_position(index), "part"))
        begin, place = item.child("i1"), item.child("i0", "i1")
        run = place.child("i2")
        reductions = [Reduction(reduce) for reduce in shape.reduces]
        for r, reduction in enumerate(reductions):
            (part,) = _buffers(writer, r, reduction)
            (array,) = reduction.arrays
            begin.body.append(store(part, at, reduction.neutral(array)))
            reduction.start(writer, place)
            reduction.take(writer, run, [writer.value(array, index, run)])
        place.body.append(Lanes(step, steps, run))
        for r, reduction in enumerate(reductions):
            (part,) = _buffers(writer, r, reduction)
            old = place.let(writer.fresh("a"), load(part, at))
            (joined,) = reduction.join(writer, place, [old], reduction.names)
            place.body.append(store(part, at, joined))
        item.body.append(Lanes(column, last, begin, first))
        _, (start, stop) = _chunk(shape, domain, item)
        around = Block(item, item.variables | {"i0"}, [Serial(column, first, last, place)])
        item.body.append(Serial(writer.index("i0"), start, stop, around))
        return item

    domain, item = written(request, shape.dims, write, shape.barriers)
    blocks = -(-shape.kept_size // COLUMNS)
    pairs = _chunks_and_blocks(shape, domain.writer, blocks)
    return _first_stage(request, shape, domain, Items(pairs, item, "serial"), shape.chunks * blocks)


def _few_columns_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where a few fast columns are kept: a scalar accumulator for each, all in one loop along what is reduced.

    What the columns share is computed once, and a vector holds steps, not columns.
    """

    def outer(domain: Domain) -> list[int]:
        return [g for g in shape.groups(domain)[0] if domain.groups[g][0] < shape.first_column]

    def write(domain: Domain) -> Block:
        writer = domain.writer
        writer.literals = SHORT * SHORT
        item = writer.root.child(*(f"i{g}" for g in outer(domain)), "chunk")
        block = item.child(*(f"i{g}" for g in shape.groups(domain)[1]))
        columns = places(shape.dims, shape.first_column)
        reductions = [(r, index, Reduction(reduce)) for index in columns for r, reduce in enumerate(shape.reduces)]
        for _, _, reduction in reductions:
            reduction.start(writer, item)
        for _, index, reduction in reductions:
            reduction.take(writer, block, [writer.value(a, index, block) for a in reduction.arrays])
        _reduced_loops(shape, domain, item, block)
        size = writer.integer("kept", shape.kept_size)
        for r, index, reduction in reductions:
            (part,), (value,) = _buffers(writer, r, reduction), reduction.names
            item.body.append(reduction.collective())
            at = _in_chunk(writer, size, writer.position(shape.kept_position(index), "part"))
            item.body.append(store(part, at, value))
        return item

    domain, item = written(request, shape.dims, write, [*shape.barriers, shape.first_column])
    named = domain.named()
    pairs = [named[g] for g in outer(domain)]
    pairs.append((domain.writer.index("chunk"), domain.writer.integer("chunks", shape.chunks)))
    items = math.prod(domain.sizes[g] for g in outer(domain)) * shape.chunks
    return _first_stage(request, shape, domain, Items(pairs, item, "row"), items)


def _chunk(shape: _Shape, domain: Domain, item: Block) -> tuple[int, tuple[Expr, Expr]]:
    """(the group that is chunked, the bounds of the item's chunk), computed in `item`; (-1, ...) where nothing is."""
    chunked, steps, _ = shape.cut(domain)
    if chunked < 0:
        return chunked, (ZERO, ONE)
    step = domain.writer.integer("steps", steps)
    begin = item.let("begin", times(domain.writer.index("chunk"), step))
    return chunked, (begin, item.let("end", least(plus(begin, step), domain.named()[chunked][1])))


def _reduced_loops(
    shape: _Shape, domain: Domain, item: Block, block: Block, cut: bool = True, sums: Iterable[Reduction] = ()
) -> None:
    """Puts `block` into loops over the reduced dimensions, in `item`. cut: over its chunk of them only. sums: those
    that are added in strips where the innermost loop is long."""
    named = domain.named()
    chunked, chunk = _chunk(shape, domain, item) if cut else (-1, (ZERO, ONE))
    inner = shape.groups(domain)[1]
    if not inner:
        item.body.extend(block.body)
        return
    variable, size = named[inner[-1]]
    start, stop = chunk if inner[-1] == chunked else (ZERO, size)
    long = domain.sizes[inner[-1]] >= (2 * STRIP if inner[-1] != chunked else 2 * STRIP * shape.chunks)
    sums = list(sums) if long else []
    if sums:
        node: Lanes | Serial = _strips(item, variable, (start, stop), block, sums)
    else:
        node = Lanes(variable, stop, block, start)
    for g in reversed(inner[:-1]):
        variable, size = named[g]
        start, stop = chunk if g == chunked else (ZERO, size)
        node = Serial(variable, start, stop, Block(item, item.variables | {variable.name}, [node]))
    item.body.append(node)
    for r in sums:
        item.set(r.names, [cast(r.kind, _total(item, r))])


def _total(item: Block, reduction: Reduction) -> Var:
    """The total of double precision of a sum."""
    return item.names.declare(f"total_{reduction.names[0]}", "f64")


def _added_to_total(block: Block, reduction: Reduction, value: Expr) -> None:
    total = _total(block, reduction)
    block.set([total], [plus(total, cast("f64", value))])


def _strips(item: Block, variable: Var, bounds: tuple[Expr, Expr], block: Block, sums: list[Reduction]) -> Serial:
    """A long loop over what is added, in strips: the sum of each goes to a total of double precision, so that the error
    of a sum does not grow with its length."""
    start, stop = bounds
    for r in sums:
        item.set([_total(item, r)], [cast("f64", constant(0.0))])
    strip, number, length = item.child("strip"), item.names.declare("strip", "s64"), constant(STRIP)
    low = strip.let("low", plus(start, times(number, length)))
    high = strip.let("high", least(plus(low, length), stop))
    for r in sums:
        strip.set(r.names, [cast(r.kind, constant(0.0))])
    strip.body.append(Lanes(variable, high, block, low))
    for r in sums:
        _added_to_total(strip, r, r.names[0])
    return Serial(number, ZERO, operation("//", plus(minus(stop, start), constant(STRIP - 1)), length), strip)


def _join_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 2: joins the chunks of each kept index and writes the outputs of the kept dimensions."""
    shared = shape.threads and shape.splittable and shape.chunks >= SHARED

    def write(domain: Domain) -> Block:
        writer = domain.writer
        item = writer.root.child(*domain.names)
        position = linear(domain.index, shape.kept_dims)
        count = writer.integer("chunks", shape.chunks)
        chunk = writer.index("chunk")

        def place_in(chunk: Expr) -> Expr:
            if shape.columns or shape.between:
                before = times(chunk, writer.integer("kept", shape.kept_size))
                return plus(before, *terms_of(writer.position(position, "part")))
            return times(writer.position(position, "part"), count)

        at = place_in(chunk) if shape.columns or shape.between else plus(place_in(chunk), chunk)
        for r, reduction in enumerate(map(Reduction, shape.reduces)):
            block = item.child("chunk")
            parts = _buffers(writer, r, reduction)
            if reduction.is_sum and not shape.threads:
                _join_sum(writer, item, reduction, load(parts[0], at), count)
            elif reduction.opcode is not None:
                (part,) = parts
                reduction.start(writer, item)
                value = block.let(writer.fresh(), load(part, at))
                block.set(reduction.names, reduction.join(writer, block, reduction.names, [value]))
                item.body.append(Lanes(chunk, count, block) if shared else Serial(chunk, ZERO, count, block))
                if shared:
                    item.body.append(reduction.collective())
            else:  # there is one chunk
                names, only = [writer.fresh("a") for _ in parts], place_in(ZERO)
                reduction.names = [item.let(name, load(part, only)) for name, part in zip(names, parts, strict=True)]
            reduction.define(writer, item)
        store_outputs(request, writer, shape.kept_outputs, domain.index, item)
        return item

    domain, item = written(request, shape.kept_dims, write)
    domain.writer.root.body.append(Items(domain.named(), item, "row" if shared else "serial"))
    work = 4.0 * typical(shape.chunks) * len(shape.reduces)
    return _stage(request, shape, "join", domain, shape.kept_size, work, shape.full_outputs)


def _join_sum(writer: Writer, item: Block, reduction: Reduction, part: Expr, count: Expr) -> None:
    """The chunks of a sum added in double precision. part: the element of a chunk."""
    reduction.start(writer, item)
    block = item.child("chunk")
    item.set([_total(item, reduction)], [cast("f64", reduction.names[0])])
    _added_to_total(block, reduction, block.let(writer.fresh(), part))
    item.body.append(Serial(writer.index("chunk"), ZERO, count, block))
    item.set(reduction.names, [cast(reduction.kind, _total(item, reduction))])


def _join_columns_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 2 where the chunks of neighbouring kept indexes lie side by side: joined in the place of the first chunk,
    some columns at a time."""

    def write(domain: Domain) -> Block:
        writer = domain.writer
        item = writer.root.child(*domain.names[:-1], "block")
        columns, count = writer.integer("columns", JOINED), writer.integer("chunks", shape.chunks)
        size = writer.integer("kept", shape.kept_size)
        fast, stop = domain.named()[-1]
        writer.index("block")
        first, last = _cut_into_blocks(item, columns, stop)
        steps, ends = item.child("chunk", fast.name), item.child(fast.name)
        for r, reduction in enumerate(map(Reduction, shape.reduces)):
            (part,) = _buffers(writer, r, reduction)
            at = writer.position(linear(domain.index, shape.kept_dims), "part")
            before, behind = writer.fresh("a"), writer.fresh()
            old = steps.let(before, load(part, at))
            new = steps.let(behind, load(part, _in_chunk(writer, size, at)))
            (joined,) = reduction.join(writer, steps, [old], [new])
            steps.body.append(store(part, at, joined))
            reduction.start(writer, ends)
            new = ends.let(behind, load(part, at))
            ends.set(reduction.names, reduction.join(writer, ends, reduction.names, [new]))
            reduction.define(writer, ends)
        store_outputs(request, writer, shape.kept_outputs, domain.index, ends)
        around = Block(item, item.variables | {"chunk"}, [Lanes(fast, last, steps, first)])
        item.body.append(Serial(writer.index("chunk"), ONE, count, around, together=True))
        item.body.append(Lanes(fast, last, ends, first))
        return item

    domain, item = written(request, shape.kept_dims, write)
    *around, fast = domain.sizes
    blocks = -(-fast // JOINED)
    pairs = [*domain.named()[:-1], (domain.writer.index("block"), domain.writer.integer("blocks", blocks))]
    domain.writer.root.body.append(Items(pairs, item, "serial"))
    work = 4.0 * typical(shape.chunks) * len(shape.reduces) * min(typical(fast), JOINED)
    return _stage(request, shape, "join", domain, math.prod(around) * blocks, work, shape.full_outputs)
