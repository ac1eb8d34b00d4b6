"""Nests as kernels for CUDA: work items by thread, warp or block, lanes strided, collectives as shuffles.

The text is what Numba's CUDA target compiles and what `simulator` executes, letter for letter. It differs from the
CPU's text in what surrounds the statements only; docs/reference/cuda_kernels.md shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    assign,
    both,
    cast,
    compared,
    element,
    increased,
    store,
)
from hloom.compiler.kernel_ir.nodes import Assign, Binary, Call, Do, Expr, If, Scratch, Stmt, Store, Var, While
from hloom.compiler.kernel_ir.of_ops import expression
from hloom.compiler.kernel_ir.rewrite import assigned
from hloom.compiler.kernels.codegen.description import (
    Block,
    Branch,
    Collective,
    Inner,
    Items,
    Lanes,
    Nest,
    Serial,
    Tiles,
)
from hloom.compiler.kernels.math import FUNCTIONS
from hloom.compiler.targets.cuda.codegen.names import meaning, split
from hloom.compiler.targets.cuda.codegen.source import (
    BLOCK,
    BLOCKS,
    THREAD,
    WARP,
    CudaSource,
    barrier,
    divided,
    divisors,
    from_shared,
    shared_array,
    shuffled,
    thread_of_grid,
    to_shared,
    warp_barrier,
)
from hloom.compiler.targets.cuda.codegen.staging import PITCH, SIDE, stages
from hloom.compiler.targets.cuda.codegen.wide_rows import VECTOR, Aligned, Wide, in_rows, is_variable
from hloom.ir.types import DTYPES

WARP_ROW = 1024  # rows up to this width are given to a warp: 32 elements a lane; longer ones to a block
# Instructions of an element up to which LLVM writes the four of a thread one after the other; a loop over them would
# keep them in local memory. More of them hide the time of scalar loads.
UNROLLED = 90
MOST_VECTORS = 10  # of four elements, each in registers of a thread
PLAIN = {"abs", "ceil", "copysign", "floor", "fma", "round_even", "sqrt", "trunc"}  # one instruction or a few
# More than UNROLLED instructions each: alone in a loop over four elements they leave the four in local memory.
_STEMS = ("bessel_i0e", "bessel_i1e", "digamma", "erfcx", "lgamma", "rem")
LONG = {f"{stem}_{dtype}" for stem in _STEMS for dtype in ("f32", "f64")} | {"erf_inv_f64", "erfc_f64"}
THREADS = {"element": 256, "serial": 128, "warp": 128, "block": 256, "tile": 256}
_SHUFFLES = (16, 8, 4, 2, 1)
_Dims = Sequence[tuple[Var, Var]]


def render(nest: Nest, threads: int | None = None, vectors: bool = True) -> CudaSource:
    """The CUDA text of a nest.

    threads: threads a block, in place of the usual number for its grain. vectors: whether a thread of an element-wise
    kernel over contiguous arrays does four elements, with loads and stores of four.
    """
    return _Renderer(nest, threads, vectors).source()


def _weight(statement: Stmt) -> int:
    """About how many instructions a statement is."""
    calls = [name for name in statement.called() if name in FUNCTIONS and split(name)[0] not in PLAIN]
    known = [name for name in calls if meaning(name).how in ("libdevice", "composed") or "logistic" in name]
    return 2 + sum(UNROLLED if name in LONG else 15 for name in known)


class _Renderer:
    def __init__(self, nest: Nest, threads: int | None, vectors: bool):
        self.nest, self.vectors = nest, vectors
        self.names = nest.root.names
        self.alignment = 1
        self.integers = dict(nest.integers)
        *self.head, self.top = nest.root.body
        self.grain = self._grain()
        self.threads = threads or THREADS[self.grain]
        if self.threads % WARP or not 0 < self.threads <= 1024:
            raise ValueError(f"{self.threads} threads a block: a block is 1 to 32 whole warps of 32 threads")
        self.shared: dict[str, Scratch] = {}
        self.literal: set[str] = set()  # by which something is divided in other words than `//`
        self.total = 1

    def source(self) -> CudaSource:
        nest = self.nest
        if self.grain == "tile":
            body = self._tiles(self.top)
        elif self.grain in ("warp", "block"):
            body = self._rows(self.top)
        else:
            body = self._elements(self.top)
        return CudaSource.made(
            nest.name, nest.pointers, nest.integers, self.literal | divisors(body), [*self.shared.values(), *body],
            grain=self.grain, threads=self.threads, items=self.total, alignment=self.alignment,
        )  # fmt: skip

    def _index(self, name: str) -> Var:
        return self.names.declare(name, "s64")

    # --- which grain ---

    def _grain(self) -> str:
        if isinstance(self.top, Tiles):
            return "tile"
        if not isinstance(self.top, Items):
            raise TypeError(f"{self.nest.name}: a nest ends in Items or Tiles, not in {type(self.top).__name__}")
        if self.top.grain != "row":
            return self.top.grain
        if not _lanes_are_sound(self.top.body):
            return "serial"
        widths = [self._width(node) for node in _walk(self.top.body) if isinstance(node, Lanes)]
        return "warp" if max(widths) <= WARP_ROW else "block"

    def _width(self, node: Lanes) -> int:
        """About how many steps a Lanes loop has in this launch."""
        integers = self.nest.integers
        if isinstance(node.extent, Var) and node.extent.name in integers:
            return integers[node.extent.name]
        for statement in _walk(self.top.body):
            if not isinstance(statement, Assign) or statement.var is not node.extent:
                continue
            match statement.value:
                case Call(function="min", arguments=(Binary(op="+", right=Var() as most), Var() as end)):
                    if {most.name, end.name} <= integers.keys():
                        return min(integers[most.name], integers[end.name])
        return WARP_ROW + 1

    # --- the loop over the items ---

    def _head(self) -> list[Stmt]:
        """What all items have in common, in each of them: a thread without an item may not read what another writes."""
        return self._statements(self.head)

    def _decode(self, dims: _Dims, item: Var) -> list[Stmt]:
        """Statements that take the flat work item apart, the last dimension fastest."""
        made: list[Stmt] = []
        rest = item
        for k, (variable, extent) in enumerate(reversed(dims)):
            if k == len(dims) - 1:
                made.append(assign(variable, rest))
                break
            above = self._index(f"rest{k}")
            self.literal.add(extent.name)
            made.append(assign(above, divided(rest, extent) if self.total < 2**32 else rest // extent))
            made.append(assign(variable, rest - above * extent))
            rest = above
        return made

    def _count(self, dims: _Dims) -> Expr:
        """How many items there are."""
        count: Expr | None = None
        for _, extent in dims:
            self.total *= self.integers[extent.name]
            count = extent if count is None else count * extent
        return ONE if count is None else count

    def _item(self, dims: _Dims) -> tuple[Var, Expr, list[Stmt]]:
        """(the variable of the work items, how many there are, the statements that take one apart)."""
        count = self._count(dims)
        if len(dims) == 1:
            return dims[0][0], count, []
        item = self._index("item")
        return item, count, self._decode(dims, item) if dims else []

    def _loop(self, dims: _Dims, first: Expr, stride: Expr, body: Callable[[], list[Stmt]]) -> list[Stmt]:
        """`body()` for each item of this thread, warp or block."""
        variable, count, decoded = self._item(dims)
        step, total = self._index("stride"), self._index("total")
        return [
            assign(variable, cast("s64", first)),
            assign(step, stride),
            assign(total, count),
            While(variable < total, [*decoded, *self._head(), *body(), increased(variable, step)]),
        ]

    def _elements(self, node: Items) -> list[Stmt]:
        """Thread for an item; a vector loop inside becomes further threads."""
        dims, body = list(node.dims), node.body
        if node.grain == "element":
            inner = [n for n in body.body if isinstance(n, Inner)]
            if len(inner) == 1:
                dims.append((inner[0].variable, inner[0].extent))
                flat = [inner[0].body.body if n is inner[0] else [n] for n in body.body]
                body = Block(body.parent, body.variables, [statement for part in flat for statement in part])
        wide = self._wide(body.body, dims[0][0], is_variable(dims[0][0])) if self.vectors and len(dims) == 1 else None
        if wide is not None:
            return self._vectors(*dims[0], wide, body)
        if self.vectors and node.grain == "element" and len(dims) > 1 and len(inner) == 1:
            made = self._wide_rows(dims, [n for n in node.body.body if n is not inner[0]], inner[0].body.body)
            if made is not None:
                return made
        # One item a thread and no loop: LLVM would unroll it four times, with a 64-bit division for the trip count.
        variable, count, decoded = self._item(dims)
        return [
            assign(variable, thread_of_grid(self.threads)),
            If(variable < count, [*decoded, *self._head(), *self._statements(body.body)]),
        ]

    def _wide_rows(self, dims: _Dims, outer: list, body: list) -> list[Stmt] | None:
        """Four elements of a row a thread, where rows are multiples of four long and read in order."""
        variable, extent = dims[-1]
        if self.integers[extent.name] % VECTOR:
            return None
        wide = self._wide(body, variable, in_rows(variable, self.integers))
        if wide is None or not wide.statements or not wide.writes or len(wide.reads) + len(wide.writes) > MOST_VECTORS:
            return None
        self.alignment = 16
        self.literal.add(extent.name)
        self.integers["fours"] = self.integers[extent.name] // VECTOR
        four, fours = self._index("four"), self._index("fours")
        item, count, decoded = self._item([*dims[:-1], (four, fours)])
        inside = [*decoded, assign(variable, four * VECTOR), *self._head(), *self._statements(outer)]
        inside += _by_fours(wide, {at: at[1] for at in (*wide.reads, *wide.writes)})
        return [
            assign(fours, extent >> 2),
            assign(item, thread_of_grid(self.threads)),
            If(item < count, inside),
        ]

    def _wide(self, body: list, variable: Var, aligned: Aligned) -> Wide | None:
        """The statements for an element of four; None where they need more than vectors, or take too long."""
        if any(dtype in ("c64", "c128") for _, dtype in self.nest.pointers):
            return None
        wide = Wide(body, variable, aligned)
        if wide.statements is None or sum(map(_weight, wide.statements)) > UNROLLED:
            return None
        return wide

    def _vectors(self, variable: Var, extent: Var, wide: Wide, body: Block) -> list[Stmt]:
        """Four elements a thread, and one each for the threads after those that have four."""
        self.alignment = 16
        count = self.integers[extent.name]
        self.total = count // VECTOR + count % VECTOR
        four, fours = self._index("four"), extent >> 2
        vectors = _by_fours(wide, dict.fromkeys((*wide.reads, *wide.writes), four * VECTOR))
        rest = [*self._head(), *self._statements(body.body)]
        return [
            assign(four, thread_of_grid(self.threads)),
            If(four < fours, [*self._head(), *vectors]),
            assign(variable, fours * (VECTOR - 1) + four),
            If(both("and", (four >= fours, variable < extent)), rest),
        ]

    def _rows(self, node: Items) -> list[Stmt]:
        self.lane = self._index("lane")
        first: Expr = BLOCK
        stride: Expr = BLOCKS
        if self.grain == "warp":
            warps = self.threads // WARP
            self.lanes = WARP
            lane: Expr = THREAD & 31
            first, stride = BLOCK * warps + (THREAD >> 5), BLOCKS * warps
        else:
            self.lanes, lane = self.threads, THREAD
        return [assign(self.lane, lane), *self._loop(node.dims, first, stride, lambda: self._row(node.body.body))]

    def _row(self, body: list) -> list[Stmt]:
        """As _statements, but what the whole row stores is stored by one lane."""
        made: list[Stmt] = []
        stores: list[Store] = []
        for node in [*body, None]:
            if isinstance(node, Store):
                stores.append(node)
                continue
            if stores:
                if any(str(s.pointer).startswith("io") for s in stores):
                    # The other lanes may not have read yet what this store overwrites.
                    made.append(warp_barrier() if self.grain == "warp" else barrier())
                made.append(If(compared("==", self.lane, ZERO), self._statements(stores)))
                stores = []
            if node is not None:
                made += self._node(node)
        return made

    # --- statements ---

    def _statements(self, body: Sequence) -> list[Stmt]:
        return [statement for node in body for statement in self._node(node)]

    def _node(self, node) -> list[Stmt]:
        if isinstance(node, Stmt):
            return [node]
        if isinstance(node, Branch):
            return [If(node.condition, self._statements(node.body.body))]
        if isinstance(node, Serial):
            return self._while(node.variable, node.start, node.stop, 1, node.body)
        if isinstance(node, Inner):
            return self._while(node.variable, ZERO, node.extent, 1, node.body)
        if isinstance(node, Lanes):
            if self.grain not in ("warp", "block"):
                return self._while(node.variable, node.start, node.extent, 1, node.body)
            start = self.lane if node.start == ZERO else node.start + self.lane
            return self._while(node.variable, start, node.extent, self.lanes, node.body)
        if isinstance(node, Collective):
            return self._collective(node) if self.grain in ("warp", "block") else []
        raise TypeError(f"{self.nest.name}: no place for {type(node).__name__} inside of an item")

    def _while(self, variable: Var, start: Expr, stop: Expr, step: int, body: Block) -> list[Stmt]:
        # Not `for ... in range(...)`, whose trip count is computed first: softmax by warps has 66 registers with it, 47
        # with this (sm_90). LLVM unrolls both by four, which puts four loads in flight.
        inside = [*self._statements(body.body), increased(variable, step)]
        return [assign(variable, cast("s64", start)), While(variable < stop, inside)]

    def _collective(self, node: Collective) -> list[Stmt]:
        made, warps = over_warp(node), self.threads // WARP
        if self.grain == "warp" or warps == 1:
            return made
        box = self.shared.setdefault(node.dtype, shared_array(f"box_{node.dtype}", node.dtype, warps)).var
        warp = self._index("warp")
        joined = _joined(node, from_shared(element(box, warp), node.dtype))
        return [
            *made,
            If(compared("==", self.lane & 31, ZERO), [store(box, self.lane >> 5, to_shared(node.variable))]),
            barrier(),
            assign(node.variable, from_shared(element(box, ZERO), node.dtype)),
            assign(warp, ONE),
            While(warp < warps, [joined, increased(warp, 1)]),
            barrier(),
        ]

    # --- tiles ---

    def _tiles(self, node: Tiles) -> list[Stmt]:
        """Block for a tile: what is staged is read along `across`, all else along the outputs' fast dimension."""
        (row, rows), (column, columns) = node.across, node.along
        self.literal |= {rows.name, columns.name}
        staged, body = stages(self.nest, node)
        for stage in staged:
            self.shared[stage.name] = Scratch(Var(f"*{stage.dtype}", stage.name), SIDE * PITCH, shared=True)
        band, tile, bands, tiles, cell = map(self._index, ("band", "tile", "bands", "tiles", "cell"))
        first = {variable: self._index(f"{variable.name}_first") for variable in (row, column)}
        inside = both("and", (row < rows, column < columns))

        def cells(fast: Var, slow: Var, statements: list[Stmt]) -> list[Stmt]:
            cell_of_thread = [
                assign(fast, first[fast] + (cell & (SIDE - 1))),
                assign(slow, first[slow] + (cell >> (SIDE.bit_length() - 1))),
                If(inside, statements),
                increased(cell, self.threads),
            ]
            return [assign(cell, THREAD), While(cell < SIDE * SIDE, cell_of_thread)]

        def item() -> list[Stmt]:
            made: list[Stmt] = [assign(first[row], band * SIDE), assign(first[column], tile * SIDE)]
            if staged:
                made += [*cells(row, column, self._statements([stage.fill for stage in staged])), barrier()]
            made += cells(column, row, self._statements(body))
            return [*made, barrier()] if staged else made

        # In the text these follow from literals.
        self.integers |= {
            "bands": -(-self.integers[rows.name] // SIDE), "tiles": -(-self.integers[columns.name] // SIDE)
        }  # fmt: skip
        head = [assign(tiles, (columns + (SIDE - 1)) // SIDE), assign(bands, (rows + (SIDE - 1)) // SIDE)]
        return [*head, *self._loop([*node.outer, (band, bands), (tile, tiles)], BLOCK, BLOCKS, item)]


def over_warp(node: Collective) -> list[Stmt]:
    """The statements that combine an accumulator over the lanes of a warp."""
    return [_joined(node, shuffled(node.variable, distance)) for distance in _SHUFFLES]


def _joined(node: Collective, other: Expr) -> Assign:
    """An accumulator becomes what its operation makes of it and another one."""
    variable, dtype = node.variable, DTYPES[node.dtype]
    return assign(variable, expression(node.operation, [(dtype, variable), (dtype, other)], dtype, lambda e: e))


def _walk(block: Block):
    """All nodes and statements of a block and the blocks in it."""
    for node in block.body:
        yield node
        if not isinstance(node, Stmt) and hasattr(node, "body"):
            yield from _walk(node.body)


def _by_fours(wide: Wide, places: Mapping[tuple[Var, Expr], Expr]) -> list[Stmt]:
    """The statements for four elements, between copies of what they read and write at these places."""
    assert wide.statements is not None
    arrays = [*wide.reads.items(), *wide.writes.items()]
    k = wide.element
    return [
        *(Scratch(array, VECTOR) for _, array in arrays),
        *(Do("copy4", (array, ZERO, at[0], places[at])) for at, array in wide.reads.items()),
        assign(k, ZERO),
        While(k < VECTOR, [*wide.statements, increased(k, 1)]),
        *(Do("copy4", (at[0], places[at], array, ZERO)) for at, array in wide.writes.items()),
    ]


def _lanes_are_sound(item: Block) -> bool:
    """Whether lanes may share an item's Lanes loops: every accumulator in them is combined over the lanes, and nothing
    is combined that every lane has computed alike."""
    inside: set[Var] = set()
    outside: set[Var] = set()
    loops = 0

    def visit(block: Block, names: set[Var]) -> None:
        nonlocal loops
        for node in block.body:
            if isinstance(node, Stmt):
                names.update(assigned([node]))
            elif hasattr(node, "body"):
                loops += isinstance(node, Lanes)
                visit(node.body, inside if isinstance(node, Lanes) else names)

    visit(item, outside)
    combined = {node.variable for node in _walk(item) if isinstance(node, Collective)}
    return loops > 0 and inside & outside == combined
