"""The reduce nest: any dimensions, in deterministic chunks.

Stage 1 reduces a chunk of the outermost reduced dimension for each kept index into `part` buffers; stage 2 joins the
chunks, the initial value, and whatever consumes the result. How the work is cut depends on the shape only, so the bits
do not depend on the number of threads.
"""

from __future__ import annotations

import itertools

from hloom.compiler.kernels.codegen.affine import Affine, linear, variables
from hloom.compiler.kernels.codegen.description import Block, Collective, Items, Lanes, Nest, Pieces, Serial
from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.codegen.guards import bound_text, bounds
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.compiler.kernels.loops.short_rows import ROWS, SHORT, STATEMENTS, places
from hloom.compiler.kernels.request import KernelRequest, extents, finish, group_sizes, with_merged
from hloom.ir.types import HLO_NAME, PRED, compute_dtype

CHUNK = 32768  # elements that are worth a work item of their own: about 5 microseconds
FLOPS = 8  # of an element that reading it hides
CHUNKS = 64  # at most so many for each kept index: stage 2 joins them one after the other
RUN = 4096  # elements: longer runs of reduced elements may lie as far apart as they like
JOINED = 256  # kept indexes of an item that joins chunks of them
COLUMNS = 1024  # accumulators of a block of columns: 4 KiB of float32 stay in the first-level cache
# Where items are threads: so many keep a GPU busy, with so many elements each at least. The join's lanes share the
# chunks of a kept index from SHARED on.
THREADS, EACH, SHARED = 1 << 17, 16, 32
WHOLE = 4  # times EACH elements are still one thread's
LANES = 256  # that share a kept index where the fast dimension is reduced


def reduce_nests(request: KernelRequest) -> list[Nest]:
    """The stages. Outputs have the kept extents, or the operand's (written along the way in stage 1)."""
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
    """How a reduction is cut into work items, from its extents only."""

    def __init__(self, request: KernelRequest):
        self.reduces = [i for i in request.computation.instructions if i.opcode == "reduce"]
        self.dims = self.reduces[0].operands[0].dims
        self.reduced = set(self.reduces[0]["dimensions"])
        self.kept = [k for k in range(len(self.dims)) if k not in self.reduced]
        self.kept_size = _product(self.dims[k] for k in self.kept)
        self.full_outputs = [k for k, o in enumerate(request.outputs) if o.dims == self.dims and self.reduced]
        self.splittable = all(Reduction(r).splittable for r in self.reduces)
        # Neighbours of one class may merge; a change from kept to reduced may not.
        last = [k for k, extent in enumerate(self.dims) if extent != 1]
        self.barriers = [b for a, b in itertools.pairwise(last) if (a in self.reduced) != (b in self.reduced)]
        self.columns = bool(last) and last[-1] not in self.reduced
        # Dimensions from here on are kept.
        self.first_column = max(self.reduced, default=-1) + 1
        self.few_columns = self.columns and self.splittable and self._has_few_columns(request)
        self.weight = max(1, int(request.flops() // FLOPS))
        self.threads = (
            not request.supports_loop_splitting
        )  # neighbouring items are neighbouring threads, which read together
        self.between = False
        groups = self._merged(request)
        self.between = self.splittable and request.supports_loop_splitting and self._is_between(groups)
        self.chunks = self.cut(groups, group_sizes(self.dims, groups))[2]

    def _has_few_columns(self, request: KernelRequest) -> bool:
        """Whether the columns are so few that each has a scalar accumulator, and vectors go along what is reduced."""
        columns = _product(self.dims[self.first_column :])
        steps = _product(self.dims[k] for k in self.reduced)
        work = columns * len(request.computation.instructions)
        return columns <= SHORT and work <= STATEMENTS and steps >= ROWS and not self.full_outputs

    def _is_between(self, groups) -> bool:
        """Whether what is kept stands between what is reduced, in short runs: memory is then walked in its order."""
        if [group[0] in self.reduced for group in groups] != [True, False, True] or self.full_outputs:
            return False
        return group_sizes(self.dims, groups)[-1] <= RUN

    def _merged(self, request: KernelRequest) -> list[list[int]]:
        """The merged dimensions of stage 1, which depend on its index expressions."""
        indexes = places(self.dims, self.first_column) if self.few_columns else [variables(self.dims)]

        def write(writer, groups):
            block = writer.root.child(*(f"i{g}" for g in range(len(groups))))
            for index in indexes:
                for reduce in self.reduces:
                    for array in Reduction(reduce).arrays:
                        writer.value(array, index, block)
                _store_full(request, self, writer, index, block)
                writer.text(self.kept_position(index), "part")

        return with_merged(request, self.dims, write, self.barriers)[1]

    def kept_position(self, index) -> Affine:
        """The position of a kept index in an array of the kept extents."""
        return linear(tuple(index[k] for k in self.kept), tuple(self.dims[k] for k in self.kept))

    def cut(self, groups, sizes) -> tuple[int, int, int]:
        """(the group that is chunked, steps a chunk, chunks)."""
        inner = [g for g, group in enumerate(groups) if group[0] in self.reduced]
        if not inner:
            return -1, 1, 1
        g = inner[0]
        if not self.splittable:
            return g, sizes[g], 1
        below, items = _product(sizes[h] for h in inner[1:]), self.kept_size
        if self.threads:
            lanes = 1 if self.columns and not self.few_columns else LANES
            steps = -(-EACH * lanes // max(below, 1))
            chunks = max(1, min(-(-sizes[g] // steps), THREADS // max(lanes * items, 1)))
            if sizes[g] * below <= WHOLE * EACH * lanes:
                chunks = 1  # a second kernel would take longer than the rest of the loop
            steps = -(-sizes[g] // chunks)
            return g, steps, -(-sizes[g] // steps)
        if self.columns or self.between:  # an item has a block of accumulators
            block = max(min(sizes[1] if self.between else sizes[-1], COLUMNS), 1)
            below, items = below * block, items // block
        steps = max(1, CHUNK // max(below * self.weight, 1))
        chunks = min(-(-sizes[g] // steps), max(1, CHUNKS // max(items, 1)))
        steps = -(-sizes[g] // chunks)
        return g, steps, -(-sizes[g] // steps)

    def parts(self, chunks: int) -> dict[str, tuple[str, int]]:
        """part name -> (dtype, bytes) for every array that is reduced."""
        result = {}
        for r, reduce in enumerate(self.reduces):
            for k, array in enumerate(reduce.operands[: len(reduce.operands) // 2]):
                dtype = PRED if array.dtype == PRED else compute_dtype(array.dtype)
                result[f"part{r}_{k}"] = (HLO_NAME[dtype], chunks * self.kept_size * dtype.itemsize)
        return result


def _product(values) -> int:
    total = 1
    for value in values:
        total *= value
    return total


def _store_full(request, shape, writer, index, block) -> None:
    # All values before all stores: an output may overwrite an input that another output still reads.
    values = {k: writer.value(request.outputs[k], index, block) for k in shape.full_outputs}
    for k, value in values.items():
        writer.store(request.output_name(k), linear(index, shape.dims), request.outputs[k].dtype, value, block)


def _with_parts(nest: Nest, shape: _Shape, drop) -> Nest:
    """Puts the part buffers into a nest's pointers, in the place of those that `drop` names."""
    parts = shape.parts(shape.chunks)
    nest.pointers = [p for p in nest.pointers if not drop(p[0])] + [(n, t) for n, (t, _) in parts.items()]
    nest.temporaries = {name: size for name, (_, size) in parts.items()}
    return nest


def _only_full(request, shape):
    full = {request.output_name(k) for k in shape.full_outputs}
    every = {request.output_name(k) for k in range(len(request.outputs))}
    return lambda name: name in every and name not in full


def _lanes_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where the fast dimension is reduced: a scalar accumulator for each kept index and chunk.

    Where items are threads it is that of columns too: neighbouring threads have neighbouring columns.
    """
    dims, state = shape.dims, {}

    def write(writer, groups):
        sizes = group_sizes(dims, groups)
        chunked, steps, chunks = shape.cut(groups, sizes)
        index = variables(dims)
        outer, inner, item, block, reductions = _taken(request, shape, writer, groups, index, "chunk")
        named = dict(extents(writer, dims, groups))
        first = _chunk_bounds(writer, item, named.get(f"i{chunked}"), steps) if chunked >= 0 else ("0", "1")
        _reduced_loops(item, block, named, inner, chunked, first)
        position = writer.text(shape.kept_position(index), "part")
        at = f"({position}) * {writer.integer('chunks', chunks)} + chunk"
        if shape.columns:
            at = f"chunk * {writer.integer('kept', shape.kept_size)} + {position}"
        for r, reduction in enumerate(reductions):
            reduction.settle(writer, item)
            for k, (name, array) in enumerate(zip(reduction.names, reduction.arrays, strict=True)):
                dtype = PRED if array.dtype == PRED else compute_dtype(array.dtype)
                if reduction.splittable and not shape.columns:
                    item.body.append(Collective(name, reduction.opcode, HLO_NAME[dtype]))
                item.body.append(store(f"part{r}_{k}", at, dtype, name))
        state.update(item=item, outer=outer, chunks=chunks)

    writer, groups = with_merged(request, dims, write, shape.barriers)
    named = dict(extents(writer, dims, groups))
    chunks = state["chunks"]
    pairs = [(f"i{g}", named[f"i{g}"]) for g in state["outer"]] + [("chunk", writer.integer("chunks", chunks))]
    if shape.columns:
        pairs = [*pairs[:-2], pairs[-1], pairs[-2]]
    grain = "row" if shape.splittable and not shape.columns else "serial"
    writer.root.body.append(Items(pairs, state["item"], grain))
    work = _product(dims) / max(shape.kept_size * chunks, 1) * request.flops()
    nest = finish(request, writer, "reduce", writer.root, shape.kept_size * chunks, work)
    assert chunks == shape.chunks, "the stages of a reduction are cut differently"
    return _with_parts(nest, shape, _only_full(request, shape))


def _taken(request: KernelRequest, shape: _Shape, writer, groups, index, *more: str):
    """One step of the loops over what an item reduces: (kept groups, reduced groups, the item's block with its
    accumulators, the block of the step, the reductions). more: further variables of the item."""
    outer = [g for g, group in enumerate(groups) if group[0] not in shape.reduced]
    inner = [g for g, group in enumerate(groups) if group[0] in shape.reduced]
    item = writer.root.child(*(f"i{g}" for g in outer), *more)
    reductions = [Reduction(r, keys=request.supports_loop_splitting) for r in shape.reduces]
    for reduction in reductions:
        reduction.start(writer, item)
    block = item.child(*(f"i{g}" for g in inner))
    for reduction in reductions:
        reduction.take(writer, block, [writer.value(a, index, block) for a in reduction.arrays])
    _store_full(request, shape, writer, index, block)
    return outer, inner, item, block, reductions


def _whole_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Both stages at once, where items are threads and nothing is cut."""
    dims, state = shape.dims, {}
    lanes = shape.splittable and not shape.columns

    def write(writer, groups):
        index = variables(dims)
        outer, inner, item, block, reductions = _taken(request, shape, writer, groups, index)
        _reduced_loops(item, block, dict(extents(writer, dims, groups)), inner, -1, ("0", "1"))
        for reduction in reductions:
            reduction.settle(writer, item)
            if lanes:
                item.body.append(Collective(reduction.names[0], reduction.opcode, reduction.kind))
            finals = reduction.finish(writer, item)
            if len(finals) == 1:
                writer.overrides[reduction.instruction] = (finals[0], item)
            else:
                writer.elements[reduction.instruction] = [(name, item) for name in finals]
        kept = tuple(index[k] for k in shape.kept)
        results = {k: o for k, o in enumerate(request.outputs) if k not in shape.full_outputs}
        values = {k: writer.value(output, kept, item) for k, output in results.items()}
        for k, value in values.items():
            writer.store(request.output_name(k), linear(kept, results[k].dims), results[k].dtype, value, item)
        state.update(item=item, outer=outer)

    writer, groups = with_merged(request, dims, write, shape.barriers)
    named = extents(writer, dims, groups)
    writer.root.body.append(Items([named[g] for g in state["outer"]], state["item"], "row" if lanes else "serial"))
    items = shape.kept_size
    return finish(request, writer, "reduce", writer.root, items, _product(dims) / max(items, 1) * request.flops())


def _columns_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where the fast dimension is kept: a row of accumulators for each block of columns and chunk."""
    dims, state = shape.dims, {"bounds": [0, 0]}

    def write(writer, groups):
        sizes = group_sizes(dims, groups)
        chunked, steps, chunks = shape.cut(groups, sizes)
        fast = len(groups) - 1
        outer = [g for g, group in enumerate(groups[:-1]) if group[0] not in shape.reduced]
        inner = [g for g, group in enumerate(groups[:-1]) if group[0] in shape.reduced]
        index = variables(dims)
        item = writer.root.child(*(f"i{g}" for g in outer), "chunk", "block")
        named = dict(extents(writer, dims, groups))
        columns = writer.integer("columns", COLUMNS)
        item.body.append(f"first = block * {columns}")
        item.body.append(f"last = min(first + {columns}, {named[f'i{fast}']})")
        position = shape.kept_position(index)
        reductions = [Reduction(r) for r in shape.reduces]
        begin = item.child(f"i{fast}")
        size = writer.integer("kept", shape.kept_size)
        for r, reduction in enumerate(reductions):
            for k, array in enumerate(reduction.arrays):
                dtype = PRED if array.dtype == PRED else compute_dtype(array.dtype)
                start = reduction.neutral(array) if reduction.splittable else None
                start = start or writer.value(reduction.initial[k], (), begin)
                at = f"chunk * {size} + {writer.text(position, 'part')}"
                begin.body.append(store(f"part{r}_{k}", at, dtype, start))
        at = f"chunk * {size} + {writer.text(position, 'part')}"
        places, blocks = state["bounds"], []
        outside = item.child(*(f"i{g}" for g in inner))
        for piece, (start, stop) in enumerate(itertools.pairwise(places)):
            writer.piece = piece
            if len(places) > 2:
                writer.ranges = {groups[-1][-1]: (start, stop - 1)}
            body = outside.child(f"i{fast}")
            for r, reduction in enumerate(reductions):
                values = [writer.value(a, index, body) for a in reduction.arrays]
                types = [PRED if a.dtype == PRED else compute_dtype(a.dtype) for a in reduction.arrays]
                reduction.names = [writer.fresh("a") for _ in reduction.arrays]
                for k, name in enumerate(reduction.names):
                    body.body.append(f"{name} = {load(f'part{r}_{k}', at, types[k])}")
                reduction.take(writer, body, values)
                for k, name in enumerate(reduction.names):
                    body.body.append(store(f"part{r}_{k}", at, types[k], name))
            _store_full(request, shape, writer, index, body)
            blocks.append(body)
        item.body.append(Lanes(f"i{fast}", "last", begin, "first"))
        chunk = _chunk_bounds(writer, item, named.get(f"i{chunked}"), steps) if chunked >= 0 else ("0", "1")
        node = Lanes(f"i{fast}", "last", blocks[0], "first")
        if len(blocks) > 1:
            texts = [bound_text(writer, place, named[f"i{fast}"], sizes[-1]) for place in places]
            node = Pieces(f"i{fast}", texts, blocks, ("first", "last"))
        outside.body.append(node)
        around = outside
        for g in reversed(inner):
            start, stop = chunk if g == chunked else ("0", named[f"i{g}"])
            loop = Serial(f"i{g}", start, stop, around, together=around is outside)
            around = Block(item, item.variables, [loop])
        item.body += around.body
        state.update(item=item, outer=outer, chunks=chunks, sizes=sizes)

    def between(writer, groups):
        if not (request.supports_loop_splitting and writer.guards):
            return False
        state["bounds"] = bounds(writer, groups, dims)
        return True

    writer, groups = with_merged(request, dims, write, shape.barriers, between)
    named = dict(extents(writer, dims, groups))
    chunks, sizes = state["chunks"], state["sizes"]
    blocks = -(-sizes[-1] // COLUMNS)
    pairs = [(f"i{g}", named[f"i{g}"]) for g in state["outer"]]
    pairs += [("chunk", writer.integer("chunks", chunks)), ("block", writer.integer("blocks", blocks))]
    writer.root.body.append(Items(pairs, state["item"], "row"))
    items = _product(sizes[g] for g in state["outer"]) * chunks * blocks
    nest = finish(request, writer, "reduce", writer.root, items, _product(dims) / max(items, 1) * request.flops())
    assert chunks == shape.chunks, "the stages of a reduction are cut differently"
    return _with_parts(nest, shape, _only_full(request, shape))


def _between_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where reduced dimensions stand before and after the kept ones: as columns, with a run for each place."""
    dims, state = shape.dims, {}

    def write(writer, groups):
        _, steps, chunks = shape.cut(groups, group_sizes(dims, groups))
        index = variables(dims)
        named = dict(extents(writer, dims, groups))
        item = writer.root.child("chunk", "block")
        columns = writer.integer("columns", COLUMNS)
        item.body.append(f"first = block * {columns}")
        item.body.append(f"last = min(first + {columns}, {named['i1']})")
        size = writer.integer("kept", shape.kept_size)
        at = f"chunk * {size} + {writer.text(shape.kept_position(index), 'part')}"
        begin, place = item.child("i1"), item.child("i0", "i1")
        run = place.child("i2")
        for r, reduce in enumerate(shape.reduces):
            reduction = Reduction(reduce)
            (array,) = reduction.arrays
            dtype = PRED if array.dtype == PRED else compute_dtype(array.dtype)
            begin.body.append(store(f"part{r}_0", at, dtype, reduction.neutral(array)))
            reduction.start(writer, place)
            reduction.take(writer, run, [writer.value(array, index, run)])
            state[r] = reduction, dtype
        place.body.append(Lanes("i2", named["i2"], run))
        for r in range(len(shape.reduces)):
            reduction, dtype = state[r]
            old = writer.fresh("a")
            place.body.append(f"{old} = {load(f'part{r}_0', at, dtype)}")
            (joined,) = reduction.join(writer, place, [old], reduction.names)
            place.body.append(store(f"part{r}_0", at, dtype, joined))
        item.body.append(Lanes("i1", "last", begin, "first"))
        start, stop = _chunk_bounds(writer, item, named["i0"], steps)
        around = Block(item, item.variables | {"i0"}, [Serial("i1", "first", "last", place)])
        item.body.append(Serial("i0", start, stop, around))
        state.update(item=item, chunks=chunks)

    writer, groups = with_merged(request, dims, write, shape.barriers)
    chunks, blocks = state["chunks"], -(-shape.kept_size // COLUMNS)
    pairs = [("chunk", writer.integer("chunks", chunks)), ("block", writer.integer("blocks", blocks))]
    writer.root.body.append(Items(pairs, state["item"], "serial"))
    items = chunks * blocks
    nest = finish(request, writer, "reduce", writer.root, items, _product(dims) / max(items, 1) * request.flops())
    assert chunks == shape.chunks, "the stages of a reduction are cut differently"
    return _with_parts(nest, shape, _only_full(request, shape))


def _few_columns_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 1 where a few fast columns are kept: a scalar accumulator for each, all in one loop along what is reduced.

    What the columns share is computed once, and a vector holds steps, not columns.
    """
    dims, state = shape.dims, {}

    def write(writer, groups):
        writer.literals = SHORT * SHORT
        chunked, steps, chunks = shape.cut(groups, group_sizes(dims, groups))
        groups_before = [g for g, group in enumerate(groups) if group[0] < shape.first_column]
        outer = [g for g in groups_before if groups[g][0] not in shape.reduced]
        inner = [g for g in groups_before if groups[g][0] in shape.reduced]
        item = writer.root.child(*(f"i{g}" for g in outer), "chunk")
        block = item.child(*(f"i{g}" for g in inner))
        columns = places(dims, shape.first_column)
        reductions = [(r, index, Reduction(r)) for index in columns for r in shape.reduces]
        for _, _, reduction in reductions:
            reduction.start(writer, item)
        for _, index, reduction in reductions:
            reduction.take(writer, block, [writer.value(a, index, block) for a in reduction.arrays])
        named = dict(extents(writer, dims, groups))
        bounds = _chunk_bounds(writer, item, named[f"i{chunked}"], steps)
        _reduced_loops(item, block, named, inner, chunked, bounds)
        size = writer.integer("kept", shape.kept_size)
        for reduce, index, reduction in reductions:
            dtype = PRED if reduction.arrays[0].dtype == PRED else compute_dtype(reduction.arrays[0].dtype)
            (name,) = reduction.names
            item.body.append(Collective(name, reduction.opcode, HLO_NAME[dtype]))
            at = f"chunk * {size} + {writer.text(shape.kept_position(index), 'part')}"
            item.body.append(store(f"part{shape.reduces.index(reduce)}_0", at, dtype, name))
        state.update(item=item, outer=outer, chunks=chunks)

    writer, groups = with_merged(request, dims, write, [*shape.barriers, shape.first_column])
    named = dict(extents(writer, dims, groups))
    chunks = state["chunks"]
    pairs = [(f"i{g}", named[f"i{g}"]) for g in state["outer"]] + [("chunk", writer.integer("chunks", chunks))]
    writer.root.body.append(Items(pairs, state["item"], "row"))
    items = _product(group_sizes(dims, [groups[g] for g in state["outer"]])) * chunks
    nest = finish(request, writer, "reduce", writer.root, items, _product(dims) / max(items, 1) * request.flops())
    assert chunks == shape.chunks, "the stages of a reduction are cut differently"
    return _with_parts(nest, shape, _only_full(request, shape))


def _chunk_bounds(writer, item: Block, extent: str, steps: int) -> tuple[str, str]:
    step = writer.integer("steps", steps)
    item.body.append(f"begin = chunk * {step}")
    item.body.append(f"end = min(begin + {step}, {extent})")
    return "begin", "end"


def _reduced_loops(item: Block, block: Block, named, inner, chunked, bounds) -> None:
    if not inner:
        item.body.extend(block.body)
        return
    last = inner[-1]
    start, stop = bounds if last == chunked else ("0", named[f"i{last}"])
    node = Lanes(f"i{last}", stop, block, start)
    for g in reversed(inner[:-1]):
        start, stop = bounds if g == chunked else ("0", named[f"i{g}"])
        node = Serial(f"i{g}", start, stop, Block(item, item.variables | {f"i{g}"}, [node]))
    item.body.append(node)


def _join_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 2: joins the chunks of each kept index and writes the outputs of the kept extents."""
    dims = tuple(shape.dims[k] for k in shape.kept)
    results = [k for k in range(len(request.outputs)) if k not in shape.full_outputs]
    shared = shape.threads and shape.splittable and shape.chunks >= SHARED
    state = {}

    def write(writer, groups):
        index = variables(dims)
        item = writer.root.child(*(f"i{g}" for g in range(len(groups))))
        position = linear(index, dims)
        reductions = [Reduction(r) for r in shape.reduces]
        count = writer.integer("chunks", shape.chunks)
        at = (
            f"chunk * {writer.integer('kept', shape.kept_size)} + {writer.text(position, 'part')}"
            if shape.columns or shape.between
            else f"({writer.text(position, 'part')}) * {count} + chunk"
        )
        for r, reduction in enumerate(reductions):
            block = item.child("chunk")
            types = [PRED if a.dtype == PRED else compute_dtype(a.dtype) for a in reduction.arrays]
            loads = [load(f"part{r}_{k}", at, t) for k, t in enumerate(types)]
            if reduction.splittable:
                reduction.start(writer, item)
                value = writer.fresh()
                block.body.append(f"{value} = {loads[0]}")
                joined = reduction.join(writer, block, reduction.names, [value])
                block.body.append(f"{reduction.names[0]} = {joined[0]}")
                item.body.append(Lanes("chunk", count, block) if shared else Serial("chunk", "0", count, block))
                if shared:
                    kind = HLO_NAME[compute_dtype(types[0])]
                    item.body.append(Collective(reduction.names[0], reduction.opcode, kind))
            else:
                reduction.names = [writer.fresh("a") for _ in loads]
                for name, text in zip(reduction.names, loads, strict=True):
                    item.body.append(f"{name} = {text.replace(' + chunk', '').replace('chunk * ', '0 * ')}")
            finals = reduction.finish(writer, item)
            if len(finals) == 1:
                writer.overrides[reduction.instruction] = (finals[0], item)
            else:
                writer.elements[reduction.instruction] = [(name, item) for name in finals]
        values = {k: writer.value(request.outputs[k], index, item) for k in results}
        for k, value in values.items():
            writer.store(request.output_name(k), linear(index, dims), request.outputs[k].dtype, value, item)
        state["item"] = item

    writer, groups = with_merged(request, dims, write)
    writer.root.body.append(Items(extents(writer, dims, groups), state["item"], "row" if shared else "serial"))
    nest = finish(request, writer, "join", writer.root, shape.kept_size, 4.0 * shape.chunks * len(shape.reduces))
    full = {request.output_name(k) for k in shape.full_outputs}
    return _with_parts(nest, shape, lambda name: name in full)


def _join_columns_stage(request: KernelRequest, shape: _Shape) -> Nest:
    """Stage 2 where the chunks of neighbouring kept indexes lie side by side: joined in the place of the first chunk,
    some columns at a time."""
    dims, state = tuple(shape.dims[k] for k in shape.kept), {}
    results = [k for k in range(len(request.outputs)) if k not in shape.full_outputs]

    def write(writer, groups):
        index, fast = variables(dims), f"i{len(groups) - 1}"
        item = writer.root.child(*(f"i{g}" for g in range(len(groups) - 1)), "block")
        columns, count = writer.integer("columns", JOINED), writer.integer("chunks", shape.chunks)
        size = writer.integer("kept", shape.kept_size)
        stop = dict(extents(writer, dims, groups))[fast]
        item.body += [f"first = block * {columns}", f"last = min(first + {columns}, {stop})"]
        steps, ends = item.child("chunk", fast), item.child(fast)
        for r, reduction in enumerate(Reduction(reduce) for reduce in shape.reduces):
            (array,) = reduction.arrays
            dtype = PRED if array.dtype == PRED else compute_dtype(array.dtype)
            part, at = f"part{r}_0", writer.text(linear(index, dims), "part")
            old, new = writer.fresh("a"), writer.fresh()
            steps.body += [
                f"{old} = {load(part, at, dtype)}", f"{new} = {load(part, f'chunk * {size} + {at}', dtype)}"
            ]  # fmt: skip
            (joined,) = reduction.join(writer, steps, [old], [new])
            steps.body.append(store(part, at, dtype, joined))
            reduction.start(writer, ends)
            ends.body.append(f"{new} = {load(part, at, dtype)}")
            (joined,) = reduction.join(writer, ends, reduction.names, [new])
            ends.body.append(f"{reduction.names[0]} = {joined}")
            (final,) = reduction.finish(writer, ends)
            writer.overrides[reduction.instruction] = (final, ends)
        values = {k: writer.value(request.outputs[k], index, ends) for k in results}
        for k, value in values.items():
            writer.store(request.output_name(k), linear(index, dims), request.outputs[k].dtype, value, ends)
        around = Block(item, item.variables | {"chunk"}, [Lanes(fast, "last", steps, "first")])
        item.body.append(Serial("chunk", "1", count, around, together=True))
        item.body.append(Lanes(fast, "last", ends, "first"))
        state["item"] = item

    writer, groups = with_merged(request, dims, write)
    named, sizes = extents(writer, dims, groups), group_sizes(dims, groups)
    blocks = -(-sizes[-1] // JOINED)
    writer.root.body.append(Items([*named[:-1], ("block", writer.integer("blocks", blocks))], state["item"], "serial"))
    work = 4.0 * shape.chunks * len(shape.reduces) * min(sizes[-1], JOINED)
    nest = finish(request, writer, "join", writer.root, _product(sizes[:-1]) * blocks, work)
    full = {request.output_name(k) for k in shape.full_outputs}
    return _with_parts(nest, shape, lambda name: name in full)
