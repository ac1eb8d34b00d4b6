"""The kernel of a matrix product for CUDA: operands through shared memory, steps of p in turn, sums to an epilogue.

    out[b, i, j] = epilogue(sum over p of lhs(b, i, p) * rhs(b, p, j))

A block does a tile of the result. `stages` steps of p have room in shared memory: while one is multiplied, the next are
on their way. What multiplies, `thread_products` or `tensor_products`, leaves the sums in registers; they go through
shared memory once more, so that neighbouring threads have neighbouring columns when the epilogue loads and stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    both,
    cast,
    chosen,
    compared,
    constant,
    element,
    least,
    plus,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Call, Expr, Stmt, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.contractions.spec import ContractionSpec, PlainOperand, PlainStore
from hloom.compiler.kernels.contractions.writer import load_plain
from hloom.compiler.targets.cuda.codegen.source import (
    BLOCK,
    THREAD,
    CudaSource,
    barrier,
    divided,
    names_of,
    thread_of_grid,
)
from hloom.compiler.targets.cuda.contractions.operands import Side
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.compiler.targets.cuda.contractions.windows import Gathered
from hloom.ir.records import record
from hloom.ir.types import DTYPES

STRIP = 8  # rows of tiles that are done column by column: their operands stay in the second-level cache
JOIN_THREADS = 256
REGISTERS = "vector"  # the type of several numbers in the registers of a thread

Write = Callable[[Block], None]


@record(frozen=True)
class Products:
    """What multiplies.

    start: writes what comes before the loop over p. step(block, left, right): writes one step, whose stages begin at
    these places. slabs: each writes sums into `t_sums`, for one of several equal shares of the tile's rows.
    row(line, slab): the terms of the row of the tile that line `line` of `t_sums` has in a slab. lines: of a slab.
    direct(block, to, first, pitch): writes all sums into a shared array, each row at its place: `first` is where the
    tile begins, and `pitch` elements are from a row to the next.
    """

    start: Write
    step: Callable[[Block, Expr, Expr], None]
    slabs: list[Write]
    row: Callable[[Expr, Expr], list[Expr]]
    lines: int
    direct: Callable[[Block, Var, Expr, int], None]


def log2(value: int) -> int:
    return value.bit_length() - 1


def all_of(conditions: Sequence[Expr]) -> Expr:
    return both("and", conditions) if len(conditions) > 1 else conditions[0]


def where(block: Block, conditions: Sequence[Expr]) -> Block:
    """The block in which conditions hold."""
    return block.branch(all_of(conditions)) if conditions else block


def registers(function: str, *arguments: Expr) -> Call:
    """A call that returns several numbers."""
    return Call(REGISTERS, function, arguments)


class ProductWriter:
    """Writes the kernel of one spec for one tile.

    names: of the function that the product is a part of.
    """

    def __init__(self, spec: ContractionSpec, tile: Tile, left: Side, right: Side, products: Products, several: bool,
                 wide_stores: bool, names: Names | None = None):  # fmt: skip
        self.spec, self.tile, self.left, self.right, self.products = spec, tile, left, right, products
        self.several = several  # batch elements, or parts of sums
        self.wide_stores = wide_stores  # whether rows of a plain result begin at 16 bytes
        self.ahead = "ahead" in (left.how, right.how)
        self.names = Names(by_name) if names is None else names
        plain = [(x.pointer, f"{x.dtype}*") for x in (spec.lhs, spec.rhs) if isinstance(x, PlainOperand)]
        if isinstance(spec.epilogue, PlainStore):
            plain.append((spec.epilogue.pointer, f"{spec.accumulate}*"))
        self.given = [*plain, *spec.extra_params]
        for name, kind in self.given:
            self.names.declare(name, f"*{kind[:-1]}" if kind[-1] == "*" else kind)

    def source(self, integers: dict[str, int], blocks: int) -> CudaSource:
        """The source. integers: values of all integer parameters that the kernel may have; those by which something is
        divided become literals."""
        spec, tile, left = self.spec, self.tile, self.left.dtype
        elements = tile.stages * (self.left.area + self.right.area)
        block = Block(names=self.names)
        memory = block.let("t_shared", shared_memory(left, elements))
        same = left == spec.accumulate
        block.let("t_sums", memory if same else Call(f"*{spec.accumulate}", f"shared_as_{spec.accumulate}", (memory,)))
        self.decode(block)
        self.products.start(block)
        self.fill(block)
        self.loop(block)
        self.finish(block)
        shared = elements * DTYPES[left].itemsize
        return make_source(
            spec.name, block.statements(), self.given, integers, "product", tile.threads, blocks, shared,
            self.alignment(),
        )  # fmt: skip

    def alignment(self) -> int:
        """Bytes to which pointers have to be aligned."""
        moved = self.left.how != "element" or self.right.how != "element"
        return 16 if moved or (self.wide_stores and isinstance(self.spec.epilogue, PlainStore)) else 1

    def index(self, name: str) -> Var:
        return self.names.index(name)

    def indexes(self, names: str) -> list[Var]:
        return [self.names.index(name) for name in names.split()]

    # --- where the block is ---

    def decode(self, block: Block) -> None:
        block.let("t_thread", cast("s64", THREAD))
        tile = block.let("t_tile", cast("s64", BLOCK))
        rows, columns, batch, length, k = self.indexes("t_row_tiles t_column_tiles batch t_length k")
        if self.several:
            slot = block.let("t_slot", divided(tile, rows * columns))
            block.let("t_tile", tile - slot * (rows * columns))
            part = block.let("t_part", divided(slot, batch))
            block.let("t_b", slot - part * batch)
            start = block.let("t_start", part * length)
            block.let("t_stop", least(start + length, k))
        else:
            for name in ("t_slot", "t_b", "t_start"):
                block.let(name, cast("s64", ZERO))
            block.let("t_stop", k)
        strip = block.let("t_strip", divided(tile, columns * STRIP) * STRIP)
        high = block.let("t_strip_rows", least(rows - strip, constant(STRIP)))
        block.let("t_tile", tile - strip * columns)
        column = block.let("t_column", divided(tile, high))
        block.let("t_i0", (strip + tile - column * high) * self.tile.rows)
        block.let("t_j0", column * self.tile.columns)

    # --- staging ---

    def offsets(self, block: Block, side: Side, number: Expr, width: int) -> None:
        """Where piece `number` of a tile lies: t_fast and t_slow, offsets along the two indexes of the operand."""
        pieces = side.sizes()[0] // width
        fast = number & (pieces - 1) if pieces > 1 else ZERO
        block.let("t_fast", fast * width if width > 1 else fast)
        block.let("t_slow", number >> log2(pieces))

    def at(self, side: Side) -> tuple[Var, Var]:
        """The offsets along the operand's own index and along p."""
        fast, slow = self.indexes("t_fast t_slow")
        return (slow, fast) if side.fast == "p" else (fast, slow)

    def inside(self, side: Side) -> list[Expr]:
        """The conditions that an element exists; none where all do."""
        role, p = self.at(side)
        asked: list[Expr] = []
        if not side.whole_role:
            count = self.index(side.count or ("m" if side.role == "i" else "n"))
            asked.append(self.index(f"t_{side.role}0") + role < count)
        # Registers are loaded for a step beyond the end too, where nothing is.
        if not side.whole_depth or side.how == "wide":
            asked.append(self.index("t_ahead") + p < self.index("t_stop"))
        return asked

    def access(self, block: Block, side: Side) -> tuple[list[Expr], Expr]:
        """(conditions, place) of an operand's element in memory; none where all exist. The stride along `fast` is one
        where 16 bytes are moved."""
        role, p = self.at(side)
        inside = self.inside(side)
        own, depth, batch = self.index(f"t_{side.role}0") + role, self.index("t_ahead") + p, self.index("t_b")
        if isinstance(side.code, Gathered):
            at = block.let(f"t_{side.role}", own), block.let("t_p", depth)
            conditions, place = side.code.place(block, batch, *at)
            return [*inside, *conditions], place
        terms: list[Expr] = [batch * self.index(f"{side.name}_sb")] if self.several else []
        for index, number in ((side.role, own), ("p", depth)):
            unit = side.how != "element" and side.fast == index
            terms.append(number if unit else number * self.index(f"{side.name}_s{index}"))
        return inside, plus(*terms)

    def place(self, side: Side, stage: Expr) -> Expr:
        return plus(stage, *side.terms(*self.at(side)))

    @property
    def memory(self) -> Var:
        return self.names["t_shared"]

    def copies(self, block: Block, side: Side, stage: Expr) -> None:
        """Asks for a tile; it has arrived after `wait_ahead`."""

        def copy(block: Block, piece: Var) -> None:
            self.offsets(block, side, piece, side.width)
            conditions, place = self.access(block, side)
            inside = all_of(conditions) if conditions else constant(True)
            block.do("copy_ahead", self.memory, self.place(side, stage), self.names[side.pointer], place, inside)

        self.pieces(block, side.extent * side.depth // side.width, copy)

    def pieces(self, block: Block, count: int, body: Callable[[Block, Var], None]) -> None:
        """`body` for each of the pieces of this thread."""
        threads, thread = self.tile.threads, self.index("t_thread")
        if count <= threads:
            block = block if count == threads else block.branch(thread < count)
            body(block, block.let("t_piece", thread))
            return
        turn = block.let("t_turn", ZERO)
        each = block.repeat(turn < -(-count // threads))
        piece = each.let("t_piece", thread + turn * threads)
        body(each.branch(piece < count) if count % threads else each, piece)
        each.increase(turn, ONE)

    def elements(self, block: Block, side: Side, stage: Expr) -> None:
        """Evaluates a tile element by element; what lies beyond the ends is zero."""

        def evaluate(block: Block, piece: Var) -> None:
            self.offsets(block, side, piece, 1)
            code = side.code
            if isinstance(code, PlainOperand):
                conditions, place = self.access(block, side)
            else:
                role, p = self.at(side)
                block.let(f"t_{side.role}", self.index(f"t_{side.role}0") + role)
                block.let("t_p", self.index("t_ahead") + p)
                conditions = self.inside(side)
            inside = block
            if conditions:
                block.let("t_value", cast(self.spec.accumulate, ZERO))
                inside = where(block, conditions)
            if isinstance(code, PlainOperand):
                value = load_plain(self.names[code.pointer], place, self.spec.accumulate)
            else:
                assert callable(code)  # CUDA has neither filled nor staged operands
                statements, value = code(self.names, "t_b", *(("t_i", "t_p") if side.role == "i" else ("t_p", "t_j")))
                inside.body += statements
            block.store(self.memory, self.place(side, stage), inside.let("t_value", value))

        self.pieces(block, side.extent * side.depth, evaluate)

    def fetch(self, block: Block, side: Side) -> None:
        """Loads a tile into registers, 16 bytes at a time."""
        for x in range(self.turns(side)):
            name = f"t_{side.name}{x}"
            self.offsets(block, side, self.piece(x), side.width)
            inside, place = self.access(block, side)
            block.let(name, registers(f"zeros_{side.dtype}", constant(side.width)))
            # Registers are loaded for a step beyond the end too, where nothing is: there is always a condition.
            there = where(block, [*self.fits(side, x), *inside])
            there.let(name, registers(f"load{side.width}_{side.dtype}", self.names[side.pointer], place))

    def put(self, block: Block, side: Side, stage: Expr) -> None:
        """Stores the registers of `fetch`, transposed."""
        for x in range(self.turns(side)):
            self.offsets(block, side, self.piece(x), side.width)
            found, pitch = self.names[f"t_{side.name}{x}"], constant(side.pitch)
            there = where(block, self.fits(side, x))
            there.do(f"scatter_{side.dtype}", self.memory, self.place(side, stage), pitch, found)

    def turns(self, side: Side) -> int:
        """How many times 16 bytes a thread moves, the last time perhaps nothing."""
        return -(-side.extent * side.depth // side.width // self.tile.threads)

    def piece(self, x: int) -> Expr:
        """The number of a thread's piece in turn x."""
        thread = self.index("t_thread")
        return thread + x * self.tile.threads if x else thread

    def fits(self, side: Side, x: int) -> list[Expr]:
        """The condition that a thread has a piece in turn x; none where all have."""
        count = side.extent * side.depth // side.width
        return [] if (x + 1) * self.tile.threads <= count else [self.index("t_thread") + x * self.tile.threads < count]

    def stage(self, slot: Var) -> dict[str, Expr]:
        """Where the stage `slot` of each side begins."""
        sides = (self.left, self.right)
        return {s.name: constant(s.first) + slot * s.area if s.first else slot * s.area for s in sides}

    def ask(self, block: Block, stage: Mapping[str, Expr]) -> None:
        """What is done about the step at t_ahead before a step is multiplied."""
        sides = (self.left, self.right)
        if any(side.how != "wide" for side in sides):
            inside = block.branch(self.index("t_ahead") < self.index("t_stop"))
            for side in sides:
                if side.how != "wide":
                    (self.copies if side.how == "ahead" else self.elements)(inside, side, stage[side.name])
        if self.ahead:
            block.do("close_ahead")
        # Registers have to have values, so these are loaded, or zero, for a step beyond the end too.
        for side in sides:
            if side.how == "wide":
                self.fetch(block, side)

    def take(self, block: Block, stage: Mapping[str, Expr]) -> None:
        """What is done about the step at t_ahead after that."""
        for side in (self.left, self.right):
            if side.how == "wide":
                self.put(block, side, stage[side.name])

    def arrived(self, block: Block) -> None:
        """The step after the one just multiplied is in shared memory, for all threads."""
        if self.ahead:
            block.do("wait_ahead", constant(self.tile.stages - 2))
        block.body.append(barrier())

    # --- the kernel ---

    def fill(self, block: Block) -> None:
        """The steps before the first that is multiplied."""
        write = block.let("t_write", ZERO)
        step, stage = block.repeat(write < self.tile.stages - 1), self.stage(write)
        step.let("t_ahead", self.index("t_start") + write * self.tile.depth)
        self.ask(step, stage)
        self.take(step, stage)
        step.increase(write, ONE)
        self.arrived(block)

    def loop(self, block: Block) -> None:
        tile, last, write = self.tile, self.tile.stages - 1, self.index("t_write")
        read, first = block.let("t_read", ZERO), block.let("t_first", self.index("t_start"))
        stage, following = self.stage(read), self.stage(write)
        step = block.repeat(first < self.index("t_stop"))
        step.let("t_ahead", first + last * tile.depth)
        self.ask(step, following)
        self.products.step(step, stage[self.left.name], stage[self.right.name])
        self.take(step, following)
        self.arrived(step)
        for slot in (read, write):
            step.let(slot.name, chosen(slot < last, slot + 1, ZERO))
        step.increase(first, constant(tile.depth))

    def finish(self, block: Block) -> None:
        """The epilogue, slab by slab."""
        slabs = self.products.slabs
        slab = block.let("t_slab", ZERO)
        body = block.repeat(slab < len(slabs)) if len(slabs) > 1 else block
        which = body
        for number, write in enumerate(slabs):
            if len(slabs) > 1:
                here, which = which.branches(compared("==", slab, constant(number)))
                write(here)
            else:
                write(body)
        columns, spec = self.tile.columns, self.spec
        # Four columns are stored at a time where they lie side by side in the result, and rows begin at 16 bytes.
        wide = isinstance(spec.epilogue, PlainStore) and self.wide_stores and columns % 4 == 0
        pieces = columns // 4 if wide else columns
        body.body.append(barrier())
        self.pieces(body, self.products.lines * pieces, lambda block, piece: self.store(block, piece, pieces, wide))
        if len(slabs) > 1:
            body.body.append(barrier())
            body.increase(slab, ONE)

    def store(self, block: Block, piece: Var, pieces: int, wide: bool) -> None:
        """The epilogue of one piece of a line of sums, of which there are so many."""
        epilogue, slab, sums = self.spec.epilogue, self.index("t_slab"), self.names["t_sums"]
        line = block.let("t_line", piece >> log2(pieces))
        across = piece & (pieces - 1)
        column = block.let("t_across", (across * 4 if wide else across) if pieces > 1 else ZERO)
        i = block.let("t_i", plus(self.index("t_i0"), *self.products.row(line, slab)))
        j = block.let("t_j", self.index("t_j0") + column)
        m, n = self.indexes("m n")
        asked = [i < m] if not self.left.whole_role else []
        asked += [j < n] if not self.right.whole_role else []
        inside, place = where(block, asked), line * sums_pitch(self.tile) + column
        if isinstance(epilogue, PlainStore):
            pointer, out = self.names[epilogue.pointer], (self.index("t_slot") * m + i) * n + j
            if wide:
                inside.do("copy4", pointer, out, sums, place)
            else:
                inside.store(pointer, out, element(sums, place))
        else:
            inside.let("t_sum", element(sums, place))
            inside.body += epilogue(self.names, "t_sum", "t_b", "t_i", "t_j")


def sums_pitch(tile: Tile) -> int:
    """Elements from one line of sums in shared memory to the next. Fragments of sums are pairs in eight rows."""
    return tile.columns + (8 if tile.kind == "tensor" else 4)


def shared_memory(dtype: str, elements: int) -> Call:
    """The dynamic shared memory of a block."""
    return Call(f"*{dtype}", f"shared_{dtype}", (constant(elements),))


def join_source(spec: ContractionSpec, integers: dict[str, int], size: int) -> CudaSource:
    """The kernel that adds the parts of every sum in their order and runs the epilogue, an element a thread.

    integers: as of `ProductWriter.source`, with t_size, the elements of a part, and t_all, those of all parts.
    """
    epilogue, names = spec.epilogue, Names(by_name)
    given = [("t_parts", f"{spec.accumulate}*")]
    if isinstance(epilogue, PlainStore):
        given.append((epilogue.pointer, f"{spec.accumulate}*"))
    given += spec.extra_params
    for name, kind in given:
        names.declare(name, f"*{kind[:-1]}" if kind[-1] == "*" else kind)
    whole, total, m, n = (names.index(name) for name in ("t_size", "t_all", "m", "n"))
    block, parts = Block(names=names), names["t_parts"]
    at = block.let("t_at", thread_of_grid(JOIN_THREADS))
    inside = block.branch(at < whole)

    def over(value: Expr, by: Var) -> Expr:
        return divided(value, by) if size < 2**32 else value // by

    row = inside.let("t_row", over(at, n))
    b = inside.let("t_b", over(row, m))
    inside.let("t_i", row - b * m)
    inside.let("t_j", at - row * n)
    added = inside.let("t_sum", element(parts, at))
    place = inside.let("t_from", at + whole)
    each = inside.repeat(place < total)
    more = added + element(parts, place)
    each.let("t_sum", more if spec.accumulate[0] == "f" else cast(spec.accumulate, more))
    each.increase(place, whole)
    if isinstance(epilogue, PlainStore):
        inside.store(names[epilogue.pointer], at, added)
    else:
        inside.body += epilogue(names, "t_sum", "t_b", "t_i", "t_j")
    body = block.statements()
    return make_source(f"{spec.name}_join", body, given, integers, "element", JOIN_THREADS, size, 0, 1)


def make_source(
    title: str, body: list[Stmt], given: Iterable[tuple[str, str]], integers: dict[str, int], grain: str, threads: int,
    items: int, shared: int, alignment: int,
) -> CudaSource:  # fmt: skip
    """The source of a body, with the pointers and integers that it uses as parameters. given: (name, type) of all."""
    used, literal = names_of(body)
    pointers = [(name, kind[:-1]) for name, kind in dict(given).items() if kind[-1] == "*" and name in used]
    return CudaSource.made(
        title, pointers, {name: value for name, value in integers.items() if name in used}, literal, body, grain=grain,
        threads=threads, items=items, alignment=alignment, shared=shared,
    )  # fmt: skip
