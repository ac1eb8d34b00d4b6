"""Scatters without atomics: updates of one place in the order of their indexes, whoever runs first.

Four ways, by what the indexes may do:

- distinct indexes (or none but batching ones): a thread for each element of the updates;
- many updates of few elements with a combiner that has a neutral element: parts of the updates with a table each, which
  a second kernel joins in order;
- otherwise chains: a first kernel computes where each window goes, a second one finds for each the next window that
  goes to the same place and whether there is one before it, and the third walks the chains, a thread for each element
  of a window, from those that are first. The next one is found by comparing each window with those behind it, or in the
  sorted order of the places where there are many windows;
- windows that overlap in part (their extents along an indexed dimension are more than one): a thread does all of the
  updates, but for the dimensions along which nothing meets.
"""

from __future__ import annotations

import math

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    both,
    cast,
    chosen,
    compared,
    constant,
    element,
    minus,
    operation,
    plus,
    times,
)
from hloom.compiler.kernel_ir.nodes import Assign, Expr, If, Stmt, Var
from hloom.compiler.kernels.codegen.affine import Affine, linear, variables
from hloom.compiler.kernels.codegen.description import Block, Branch, Serial
from hloom.compiler.kernels.codegen.guards import all_of
from hloom.compiler.kernels.codegen.serial import block_statements
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.loops.accumulators import inline_scalars
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.scatter import bounds_of_part, combine_update, neutral_of, place_of, window_begin
from hloom.compiler.targets.cuda.launches import CudaLaunch, cuda_source, launch_of_source
from hloom.compiler.targets.cuda.sorting.bitonic import Sort
from hloom.compiler.targets.cuda.sorting.choice import launches_by
from hloom.compiler.targets.cuda.sorting.radix import Ordinal, RadixSort, width_of
from hloom.ir.build import combiner_opcode
from hloom.ir.ops.indexing.scatter import windows_of
from hloom.ir.types import HLO_NAME, Shape

PART = 32  # updates that a part has at least
TABLES = 1 << 22  # elements of all tables at most
PARTS = 1024
COMPARED = 4096  # windows up to which each is compared with all behind it
FEW = 16  # updates an element of the result from which tables pay


def scatter_launches(request: KernelRequest, processors: int) -> list[CudaLaunch]:
    """The launches of a scatter whose output overwrites its operand; none without updates."""
    return _Scatter(request, processors).launches()


class _Places(Sort):
    """Windows by their places, of which there are `size`, and -1."""

    def __init__(self, request: KernelRequest, windows: int, arrays, size: int, processors: int):
        self.request, self.processors, self.given, self.size = request, processors, arrays, size
        self.set_rows(windows, 1, 1)

    def arrays(self) -> dict[str, tuple[str, int, int]]:
        return self.given | super().arrays()

    def pointers(self, outputs: bool) -> list[tuple[str, str]]:
        return [(name, dtype) for name, (dtype, _, _) in self.arrays().items()]

    def comparison(self, block: Block, a: Var, b: Var) -> tuple[Expr, Expr]:
        places = block.names["places"]
        x, y = block.let("x", element(places, a)), block.let("y", element(places, b))
        return block.let("less", x < y), block.let("more", y < x)


class _PlacesByDigits(_Places, RadixSort):
    """The same, by digits."""

    def ordinals(self) -> list[Ordinal]:
        bits = self.size.bit_length()

        def make(block: Block, place: Var) -> None:
            block.let("key", cast(f"u{width_of(bits)}", element(block.names["places"], place) + 1))

        return [Ordinal(bits, make)]


class _Scatter:
    def __init__(self, request: KernelRequest, processors: int):
        self.request, self.processors = request, processors
        self.root = request.outputs[0]
        self.operand, self.indices, self.updates = self.root.operands
        self.w = windows_of(self.root)
        self.dims = self.updates.dims
        w, dims = self.w, self.dims
        unique = bool(self.root.attributes.get("unique_indices"))
        batching = {w.places[w.index_dimensions.index(d)] for d in w.indices_batching}
        wide = [k for k in range(len(dims)) if dims[k] != 1]
        self.free = [k for k in wide if k in w.places and (unique or k in batching)]
        self.ordered = [k for k in wide if k in w.places and k not in self.free]
        along = dict(zip(w.offset, w.window_dimensions, strict=True))
        # Along an indexed dimension windows of several elements may meet in some of them.
        self.overlapping = [k for k in wide if k in along and along[k] in w.mapped and not unique]
        self.apart = [k for k in wide if k in along and k not in self.overlapping]

    def launches(self) -> list[CudaLaunch]:
        if not self.updates.shape.size:
            return []
        windows = math.prod(self.dims[k] for k in self.w.places)
        if not self.ordered or self.overlapping:
            return [self.updates_kernel()]
        parts = self.parts(windows)
        if parts > 1:
            return [self.begin_kernel(parts), self.updates_kernel(parts), self.join_kernel(parts)]
        if windows <= COMPARED:
            chains = [self.chains_kernel(windows)]
        else:
            size, given = self.operand.shape.size, self.arrays(windows, "places")
            given_places = self.request, windows, given, size, self.processors
            shapes = {
                name: (name, Shape(dtype, (count,)))
                for name, (dtype, _, count) in self.arrays(windows, "places", "following", "first").items()
            }
            chains = launches_by(
                _Places(*given_places), _PlacesByDigits(*given_places),
                lambda sort: [*sort.order_kernels(), self.links_kernel(windows, sort.width)],
                [shapes["places"]], [shapes["following"], shapes["first"]], (-1, size),
            )  # fmt: skip
        return [self.places_kernel(windows), *chains, self.combine_kernel(windows)]

    def parts(self, windows: int) -> int:
        """Into how many parts the updates are cut; 1 where a table for each would cost too much."""
        size = self.root.shape.size
        if self.free or not combiner_opcode(self.root["to_apply"]) or windows < FEW * size:
            return 1
        return min(PARTS, windows // PART, TABLES // size)

    # --- kernels ---

    def finish(
        self, kind, writer, body: list[Stmt], items, work, arrays, *, output=True, grain="element"
    ) -> CudaLaunch:  # fmt: skip
        """A kernel's launch. arrays: name -> (HLO dtype, bytes of an element, elements) of what is between kernels."""
        request = self.request
        pointers = [(name, HLO_NAME[p.dtype]) for p, name in request.names.items() if name.startswith("in")]
        pointers += [(name, dtype) for name, (dtype, _, _) in arrays.items()]
        if output:
            pointers.append((request.output_name(0), HLO_NAME[self.root.dtype]))
        source = cuda_source(request.title(kind), pointers, writer.integers, body, grain=grain, items=items)
        temporaries = {name: size * count for name, (_, size, count) in arrays.items()}
        values = {**writer.integers, "items": items}
        return launch_of_source(source, values, items * work, temporaries, processors=self.processors)

    def updates_kernel(self, parts: int = 1) -> CudaLaunch:
        """Each update into its place. parts: into as many tables, of which a thread has one (or a column of one)."""
        writer = self.request.writer(self.dims)
        index = variables(self.dims)
        which = [index[k] for k in self.w.places]
        parallel = sorted([*self.free, *self.apart])
        block = writer.root.child(*(f"i{k}" for k in parallel), *(["part"] if parts > 1 else []))
        head, items = block, 1
        rest = writer.index("item")
        for k in reversed(parallel):
            extent = writer.integer(f"n{k}", self.dims[k])
            above = head.let(f"rest{k}", operation("//", rest, extent))
            head.let(f"i{k}", minus(rest, times(above, extent)))
            rest, items = above, items * self.dims[k]
        pointer, shift, arrays = writer.names[self.request.output_name(0)], None, {}
        nodes: list[tuple[Block, Serial | Branch]] = []
        if parts > 1:
            size = writer.integer("size", self.root.shape.size)
            pointer = writer.pointer("table", self.root.dtype)
            shift = head.let("first", times(head.let("part", rest), size))
            arrays = self.tables(parts)
            items *= parts
        loops = [*self.ordered, *self.overlapping]
        for number, k in enumerate(loops):
            inside = block.child(f"i{k}")
            ends: tuple[Expr, Expr] = (ZERO, writer.integer(f"n{k}", self.dims[k]))
            if parts > 1 and not number:
                ends = bounds_of_part(writer, ends[1])
                writer.integer("parts", parts)
            nodes.append((block, Serial(writer.index(f"i{k}"), *ends, inside)))
            block = inside
        conditions, begin = window_begin(writer, self.indices, self.w, which, block)
        if conditions:
            branch = block.child()
            branch.guarded = True
            nodes.append((block, Branch(all_of(conditions), branch)))
            block = branch
        place = place_of(self.w, index, begin)
        combine_update(writer, self.root, (pointer, shift), linear(place, self.operand.dims), index, block)
        for around, node in nodes:
            around.body.append(node)
        body = block_statements(writer.root) + block_statements(head)
        work = self.updates.shape.size / items * self.request.flops()
        grain = "serial" if loops else "element"
        return self.finish("scatter", writer, body, items, work, arrays, output=parts == 1, grain=grain)

    def tables(self, parts: int) -> dict[str, tuple[str, int, int]]:
        dtype = self.root.dtype
        return {"table": (HLO_NAME[dtype], dtype.itemsize, parts * self.root.shape.size)}

    def begin_kernel(self, parts: int) -> CudaLaunch:
        """The neutral element into all tables."""
        writer = self.request.writer(())
        table, items = writer.pointer("table", self.root.dtype), parts * self.root.shape.size
        body: list[Stmt] = [builder.store(table, writer.index("item"), neutral_of(self.root))]
        return self.finish("scatter_begin", writer, body, items, 1.0, self.tables(parts), output=False)

    def join_kernel(self, parts: int) -> CudaLaunch:
        """The tables into the result, in order: a thread for each element."""
        writer = self.request.writer(())
        pointer, table = writer.names[self.request.output_name(0)], writer.pointer("table", self.root.dtype)
        block, inside = writer.root.child(), writer.root.child()
        size, count = writer.integer("size", self.root.shape.size), writer.integer("parts", parts)
        item, part = writer.index("item"), writer.index("part")
        old = block.let("old", builder.load(pointer, item))
        new = inside.let("new", builder.load(table, plus(times(part, size), item)))
        inside.set([old], inline_scalars(writer, inside, self.root["to_apply"], [old, new]))
        block.body += [Serial(part, ZERO, count, inside), builder.store(pointer, item, old)]
        arrays = self.tables(parts)
        return self.finish("scatter_join", writer, block_statements(block), self.root.shape.size, 2.0 * parts, arrays)

    # --- chains ---

    def arrays(self, windows: int, *names: str) -> dict[str, tuple[str, int, int]]:
        place = ("s32", 4) if self.operand.shape.size < 2**31 else ("s64", 8)
        kinds = {"places": place, "following": ("s32", 4), "first": ("s32", 4)}
        return {name: (*kinds[name], windows) for name in names}

    def decode(self, writer: Writer, block: Block, dims, item: str) -> Var:
        """Statements that take `item` apart into i<k>, the last of `dims` fastest; returns what is left of it."""
        rest = writer.index(item)
        for k in reversed(dims):
            extent = writer.integer(f"n{k}", self.dims[k])
            above = block.let(f"{item}_{k}", operation("//", rest, extent))
            block.let(f"i{k}", minus(rest, times(above, extent)))
            rest = above
        return rest

    def places_kernel(self, windows: int) -> CudaLaunch:
        """Where each window begins in the result, -1 where it is not inside."""
        writer = self.request.writer(self.dims)
        index = [Affine() if k in self.w.offset else a for k, a in enumerate(variables(self.dims))]
        which = [index[k] for k in self.w.places]
        block = writer.root.child(*(f"i{k}" for k in self.w.places))
        self.decode(writer, block, self.w.places, "item")
        conditions, begin = window_begin(writer, self.indices, self.w, which, block)
        at = writer.position(linear(place_of(self.w, tuple(index), begin), self.operand.dims), "o")
        arrays = self.arrays(windows, "places")
        (places,) = self.pointers(writer, arrays)
        kind = places.type[1:]
        where = block.let("at", cast(kind, constant(-1)))
        asked = all_of(conditions) if conditions else constant(True)
        body = [
            *block_statements(writer.root),
            *block_statements(block),
            If(asked, [builder.assign(where, cast(kind, at))]),
            builder.store(places, writer.index("item"), where),
        ]
        return self.finish("scatter_places", writer, body, windows, 8.0, arrays, output=False)

    def pointers(self, writer: Writer, arrays: dict[str, tuple[str, int, int]]) -> list[Var]:
        """The variables of `arrays`."""
        return [writer.names.declare(name, f"*{dtype}") for name, (dtype, _, _) in arrays.items()]

    def chains_kernel(self, windows: int) -> CudaLaunch:
        """For each window the next one with its place (their number for none), and whether it is the first with it."""
        writer = self.request.writer(())
        count, item, block = writer.integer("windows", windows), writer.index("item"), writer.root
        arrays = self.arrays(windows, "places", "following", "first")
        places, following, first = self.pointers(writer, arrays)
        mine = block.let("mine", element(places, item))
        m = block.let("m", item + 1)
        other = compared("!=", element(places, m), mine)
        block.repeat(both("and", (m < count, other))).increase(m, ONE)
        block.store(following, item, cast("s32", m))
        block.let("m", item - 1)
        block.repeat(both("and", (m >= 0, other))).body.append(Assign(m, m - 1, True))
        is_first = both("and", (m < 0, mine >= 0))
        block.store(first, item, chosen(is_first, cast("s32", ONE), cast("s32", ZERO)))
        body = block.statements()
        return self.finish("scatter_chains", writer, body, windows, windows / 2, arrays, output=False)

    def links_kernel(self, windows: int, width: int) -> CudaLaunch:
        """The same from the windows in the order of their places, equal ones in the order of the indexes."""
        writer = self.request.writer(())
        count, item, block = writer.integer("windows", windows), writer.index("item"), writer.root
        arrays = self.arrays(windows, "places", "following", "first") | {"order": ("s32", 4, width)}
        places, following, first, order = self.pointers(writer, arrays)
        n = block.let("n", element(order, item))
        mine = block.let("mine", element(places, n))
        following_one = block.let("next", cast("s32", count))
        inside = block.branch(item + 1 < count)
        m = inside.let("m", element(order, item + 1))
        inside.branch(compared("==", element(places, m), mine)).let("next", m)
        block.store(following, n, following_one)
        begins = block.let("begins", chosen(mine >= 0, cast("s32", ONE), cast("s32", ZERO)))
        before = element(places, element(order, item - 1))
        block.branch(item > 0).branch(compared("==", before, mine)).let("begins", cast("s32", ZERO))
        block.store(first, n, begins)
        return self.finish("scatter_links", writer, block.statements(), windows, 8.0, arrays, output=False)

    def combine_kernel(self, windows: int) -> CudaLaunch:
        """Chains from their first windows on: a thread for each element of a window."""
        writer = self.request.writer(self.dims)
        index, count = variables(self.dims), writer.integer("windows", windows)
        head = writer.root.child(*(f"i{k}" for k in self.apart))
        arrays = self.arrays(windows, "places", "following", "first")
        places, following, first = self.pointers(writer, arrays)
        m = head.let("m", self.decode(writer, head, self.apart, "item"))
        head.let("at", cast("s64", element(places, m)))
        head.variables = head.variables | {"at"}
        inside = head.child(*(f"i{k}" for k in self.w.places))
        inside.guarded = True
        self.decode(writer, inside, self.w.places, "m")
        place = [Affine()] * len(self.operand.dims)
        for d, k in zip(self.w.window_dimensions, self.w.offset, strict=True):
            place[d] = index[k]
        target = linear(tuple(place), self.operand.dims) + Affine(0, {"at": 1})
        pointer = writer.names[self.request.output_name(0)]
        combine_update(writer, self.root, (pointer, None), target, index, inside)
        begins = block_statements(writer.root) + block_statements(head)
        chain = Block(names=writer.names)
        steps = chain.branch(compared("!=", element(first, m), ZERO)).repeat(m < count)
        steps.body += block_statements(inside)
        steps.let("m", cast("s64", element(following, m)))
        items = windows * math.prod(self.dims[k] for k in self.apart)
        body = begins + chain.statements()
        return self.finish("scatter_chain", writer, body, items, self.request.flops(), arrays)
