"""The text of a matrix product for CUDA: operands through shared memory, steps of p in turn, sums to an epilogue.

    out[b, i, j] = epilogue(sum over p of lhs(b, i, p) * rhs(b, p, j))

A block does a tile of the result. `stages` steps of p have room in shared memory: while one is multiplied, the next are
on their way. What multiplies, `thread_products` or `tensor_products`, leaves the sums in registers; they go through
shared memory once more, so that neighbouring threads have neighbouring columns when the epilogue loads and stores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernels.codegen.serial import indent
from hloom.compiler.kernels.contractions.spec import ContractionSpec, PlainOperand, PlainStore
from hloom.compiler.targets.cuda.codegen.source import CudaSource
from hloom.compiler.targets.cuda.contractions.operands import Side, element_text, epilogue_text, plain_text
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.compiler.targets.cuda.contractions.windows import Gathered
from hloom.ir.records import record
from hloom.ir.types import DTYPES

STRIP = 8  # rows of tiles that are done column by column: their operands stay in the second-level cache
JOIN_THREADS = 256
_DIVISOR = re.compile(r"(?://|%) *\(?(\w+)")


def text_divisors(lines: Iterable[str]) -> set[str]:
    """The names by which something is divided in a text."""
    return {name for line in lines for name in _DIVISOR.findall(line)}


@record(frozen=True)
class Products:
    """What multiplies.

    start: statements before the loop over p. step(left, right): the statements for one step, whose stages begin at
    these expressions. slabs: the statements that put sums into `t_sums`, one list for each of several equal shares of
    the tile's rows. row(line, slab): the row of the tile that line `line` of `t_sums` has in a slab. lines: of a slab.
    direct(to, first, pitch): the statements that put all sums into a shared array, each row at its place: `first` is
    where the tile begins, and `pitch` elements are from a row to the next.
    """

    start: list[str]
    step: Callable[[str, str], list[str]]
    slabs: list[list[str]]
    row: Callable[[str, str], str]
    lines: int
    direct: Callable[[str, str, int], list[str]]


def log2(value: int) -> int:
    return value.bit_length() - 1


class Text:
    """Writes the kernel of one spec for one tile."""

    def __init__(self, spec: ContractionSpec, tile: Tile, left: Side, right: Side, products: Products, several: bool,
                 wide_stores: bool):  # fmt: skip
        self.spec, self.tile, self.left, self.right, self.products = spec, tile, left, right, products
        self.several = several  # batch elements, or parts of sums
        self.wide_stores = wide_stores  # whether rows of a plain result begin at 16 bytes
        self.ahead = "ahead" in (left.how, right.how)
        self.around = Names(by_name)  # of what has a value while operands are evaluated

    def source(self, integers: dict[str, int], blocks: int) -> CudaSource:
        """The source. integers: values of all integer parameters that the text may have; those by which something is
        divided become literals."""
        spec, tile = self.spec, self.tile
        elements = tile.stages * (self.left.area + self.right.area)
        body = [f"t_shared = shared_{self.left.dtype}({elements})"]
        sums = "t_shared" if self.left.dtype == spec.accumulate else f"shared_as_{spec.accumulate}(t_shared)"
        body += [f"t_sums = {sums}", *self.decode(), *self.products.start, *self.fill(), *self.loop(), *self.finish()]
        plain = [(x.pointer, f"{x.dtype}*") for x in (spec.lhs, spec.rhs) if isinstance(x, PlainOperand)]
        if isinstance(spec.epilogue, PlainStore):
            plain.append((spec.epilogue.pointer, f"{spec.accumulate}*"))
        shared = elements * DTYPES[self.left.dtype].itemsize
        return make_source(
            spec.name, body, [*plain, *spec.extra_params], integers, "product", tile.threads, blocks, shared,
            self.alignment(),
        )  # fmt: skip

    def alignment(self) -> int:
        """Bytes to which pointers have to be aligned."""
        moved = self.left.how != "element" or self.right.how != "element"
        return 16 if moved or (self.wide_stores and isinstance(self.spec.epilogue, PlainStore)) else 1

    # --- where the block is ---

    def decode(self) -> list[str]:
        lines = ["t_thread = s64(cuda.threadIdx.x)", "t_tile = s64(cuda.blockIdx.x)"]
        if self.several:
            lines += [
                "t_slot = s64(div_u32(u32(t_tile), u32(t_row_tiles * t_column_tiles)))",
                "t_tile = t_tile - t_slot * (t_row_tiles * t_column_tiles)",
                "t_part = s64(div_u32(u32(t_slot), u32(batch)))",
                "t_b = t_slot - t_part * batch",
                "t_start = t_part * t_length",
                "t_stop = min(t_start + t_length, k)",
            ]
        else:
            lines += ["t_slot = s64(0)", "t_b = s64(0)", "t_start = s64(0)", "t_stop = k"]
        return [
            *lines,
            f"t_strip = s64(div_u32(u32(t_tile), u32(t_column_tiles * {STRIP}))) * {STRIP}",
            f"t_strip_rows = min(t_row_tiles - t_strip, {STRIP})",
            "t_tile = t_tile - t_strip * t_column_tiles",
            "t_column = s64(div_u32(u32(t_tile), u32(t_strip_rows)))",
            f"t_i0 = (t_strip + t_tile - t_column * t_strip_rows) * {self.tile.rows}",
            f"t_j0 = t_column * {self.tile.columns}",
        ]

    # --- staging ---

    def offsets(self, side: Side, number: str, width: int) -> list[str]:
        """Where piece `number` of a tile lies: t_fast and t_slow, offsets along the two indexes of the operand."""
        pieces = side.sizes()[0] // width
        fast = f"({number} & {pieces - 1})" if pieces > 1 else "0"
        return [
            f"t_fast = {fast} * {width}" if width > 1 else f"t_fast = {fast}",
            f"t_slow = {number} >> {log2(pieces)}",
        ]

    def names(self, side: Side) -> tuple[str, str]:
        """The names of the offsets along the operand's own index and along p."""
        return ("t_slow", "t_fast") if side.fast == "p" else ("t_fast", "t_slow")

    def inside(self, side: Side, stop: str = "t_stop") -> str:
        """The condition that an element exists; '' where all do."""
        role, p = self.names(side)
        asked = []
        if not side.whole_role:
            count = side.count or ("m" if side.role == "i" else "n")
            asked.append(f"t_{side.role}0 + {role} < {count}")
        # Registers are loaded for a step beyond the end too, where nothing is.
        if not side.whole_depth or side.how == "wide":
            asked.append(f"t_ahead + {p} < {stop}")
        return " and ".join(asked)

    def access(self, side: Side) -> tuple[list[str], str, str]:
        """(statements, condition, address) of an operand's element in memory; the condition is '' where all exist. The
        stride along `fast` is one where 16 bytes are moved."""
        role, p = self.names(side)
        inside = self.inside(side)
        if isinstance(side.code, Gathered):
            head = [f"t_{side.role} = t_{side.role}0 + {role}", f"t_p = t_ahead + {p}"]
            statements, conditions, address = side.code.place("t_b", f"t_{side.role}", "t_p")
            return [*head, *statements], " and ".join(part for part in (inside, *conditions) if part), address
        step = {index: f" * {side.name}_s{index}" for index in (side.role, "p")}
        if side.how != "element":
            step[side.fast] = ""
        batch = f"t_b * {side.name}_sb + " if self.several else ""
        return [], inside, f"{batch}(t_{side.role}0 + {role}){step[side.role]} + (t_ahead + {p}){step['p']}"

    def place(self, side: Side, stage: str) -> str:
        role, p = self.names(side)
        return f"{stage} + {side.place(role, p)}"

    def copies(self, side: Side, stage: str) -> list[str]:
        """Asks for a tile; it has arrived after `wait_ahead`."""
        width = side.width
        pieces = side.extent * side.depth // width
        statements, condition, address = self.access(side)
        copy = f"copy_ahead(t_shared, {self.place(side, stage)}, {side.pointer}, {address}, {condition or 'True'})"
        return self.pieces(pieces, [*self.offsets(side, "t_piece", width), *statements, copy])

    def pieces(self, count: int, body: list[str]) -> list[str]:
        """`body` for each of the pieces of this thread, called t_piece."""
        threads = self.tile.threads
        if count <= threads:
            lines = ["t_piece = t_thread", *body]
            return lines if count == threads else [f"if t_thread < {count}:", *indent(lines)]
        turns = -(-count // threads)
        lines = [f"t_piece = t_thread + t_turn * {threads}", *body]
        if count % threads:
            lines = [lines[0], f"if t_piece < {count}:", *indent(body)]
        return ["t_turn = 0", f"while t_turn < {turns}:", *indent([*lines, "t_turn += 1"])]

    def elements(self, side: Side, stage: str) -> list[str]:
        """Evaluates a tile element by element; what lies beyond the ends is zero."""
        if isinstance(side.code, PlainOperand):
            head, condition, address = self.access(side)
            statements: list[str] = []
            value = plain_text(side.code, address, self.spec.accumulate)
        else:
            role, p = self.names(side)
            head, condition = [f"t_{side.role} = t_{side.role}0 + {role}", f"t_p = t_ahead + {p}"], self.inside(side)
            assert callable(side.code)  # CUDA has neither filled nor staged operands
            order = ("t_b", "t_i", "t_p") if side.role == "i" else ("t_b", "t_p", "t_j")
            statements, value = element_text(side.code, self.around, *order)
        at = self.place(side, stage)
        if condition:
            given = [f"t_value = {self.spec.accumulate}(0)", f"if {condition}:"]
            given += indent([*statements, f"t_value = {value}"])
        else:
            given = [*statements, f"t_value = {value}"]
        narrow = side.dtype in ("f16", "bf16")
        put = f"store_{side.dtype}(t_shared, {at}, t_value)" if narrow else f"t_shared[{at}] = t_value"
        return self.pieces(side.extent * side.depth, [*self.offsets(side, "t_piece", 1), *head, *given, put])

    def fetch(self, side: Side) -> list[str]:
        """Loads a tile into registers, 16 bytes at a time."""
        width, lines = side.width, []
        for x in range(self.turns(side)):
            name = f"t_{side.name}{x}"
            statements, inside, address = self.access(side)
            load = f"{name} = load{width}_{side.dtype}({side.pointer}, {address})"
            condition = " and ".join(part for part in (self.fits(side, x), inside) if part)
            lines += [*self.offsets(side, self.piece(x), width), *statements]
            # Registers are loaded for a step beyond the end too, where nothing is: there is always a condition.
            lines += [f"{name} = zeros_{side.dtype}({width})", f"if {condition}:", f"    {load}"]
        return lines

    def put(self, side: Side, stage: str) -> list[str]:
        """Stores the registers of `fetch`, transposed."""
        lines = []
        role, p = self.names(side)
        for x in range(self.turns(side)):
            lines += self.offsets(side, self.piece(x), side.width)
            store = f"scatter_{side.dtype}(t_shared, {stage} + {side.place(role, p)}, {side.pitch}, t_{side.name}{x})"
            guard = self.fits(side, x)
            lines += [f"if {guard}:", f"    {store}"] if guard else [store]
        return lines

    def turns(self, side: Side) -> int:
        """How many times 16 bytes a thread moves, the last time perhaps nothing."""
        return -(-side.extent * side.depth // side.width // self.tile.threads)

    def piece(self, x: int) -> str:
        """The number of a thread's piece in turn x."""
        return f"(t_thread + {x * self.tile.threads})" if x else "t_thread"

    def fits(self, side: Side, x: int) -> str:
        """The condition that a thread has a piece in turn x; '' where all have."""
        count = side.extent * side.depth // side.width
        return "" if (x + 1) * self.tile.threads <= count else f"t_thread + {x * self.tile.threads} < {count}"

    def stage(self, slot: str) -> dict[str, str]:
        """Where the stage `slot` of each side begins."""
        return {side.name: _sum(side.first, slot, side.area) for side in (self.left, self.right)}

    def ask(self, stage: dict[str, str]) -> list[str]:
        """What is done about the step at t_ahead before a step is multiplied."""
        lines, inside = [], []
        for side in (self.left, self.right):
            if side.how != "wide":
                make = self.copies if side.how == "ahead" else self.elements
                inside += make(side, stage[side.name])
        if inside:
            lines += ["if t_ahead < t_stop:", *indent(inside)]
        if self.ahead:
            lines.append("close_ahead()")
        # Registers have to have values, so these are loaded, or zero, for a step beyond the end too.
        for side in (self.left, self.right):
            if side.how == "wide":
                lines += self.fetch(side)
        return lines

    def take(self, stage: dict[str, str]) -> list[str]:
        """What is done about the step at t_ahead after that."""
        return [line for s in (self.left, self.right) if s.how == "wide" for line in self.put(s, stage[s.name])]

    def arrived(self) -> list[str]:
        """The step after the one just multiplied is in shared memory, for all threads."""
        return [*([f"wait_ahead({self.tile.stages - 2})"] if self.ahead else []), "cuda.syncthreads()"]

    # --- the kernel ---

    def fill(self) -> list[str]:
        """The steps before the first that is multiplied."""
        stage = self.stage("t_write")
        return [
            "t_write = 0",
            f"while t_write < {self.tile.stages - 1}:",
            *indent([
                f"t_ahead = t_start + t_write * {self.tile.depth}",
                *self.ask(stage),
                *self.take(stage),
                "t_write += 1",
            ]),
            *self.arrived(),
        ]  # fmt: skip

    def loop(self) -> list[str]:
        tile, last = self.tile, self.tile.stages - 1
        read, write = self.stage("t_read"), self.stage("t_write")
        turn = []
        for name in ("t_read", "t_write"):
            turn.append(f"{name} = {name} + 1 if {name} < {last} else 0")
        return [
            "t_read = 0",
            "t_first = t_start",
            "while t_first < t_stop:",
            *indent([
                f"t_ahead = t_first + {last * tile.depth}",
                *self.ask(write),
                *self.products.step(read[self.left.name], read[self.right.name]),
                *self.take(write),
                *self.arrived(),
                *turn,
                f"t_first += {tile.depth}",
            ]),
        ]  # fmt: skip

    def finish(self) -> list[str]:
        """The epilogue, slab by slab."""
        slabs, spec = self.products.slabs, self.spec
        body = list(slabs[0])
        if len(slabs) > 1:
            body = []
            for number, slab in enumerate(slabs):
                body += [f"{'elif' if number else 'if'} t_slab == {number}:", *indent(slab)]
        columns, pitch = self.tile.columns, sums_pitch(self.tile)
        # Four columns are stored at a time where they lie side by side in the result, and rows begin at 16 bytes.
        wide = isinstance(spec.epilogue, PlainStore) and self.wide_stores and columns % 4 == 0
        width = 4 if wide else 1
        pieces = columns // width
        across = f"(t_piece & {pieces - 1})" + (f" * {width}" if wide else "")
        head = [
            f"t_line = t_piece >> {log2(pieces)}",
            f"t_across = {across}" if pieces > 1 else "t_across = 0",
            f"t_i = t_i0 + {self.products.row('t_line', 't_slab')}",
            "t_j = t_j0 + t_across",
        ]
        if isinstance(spec.epilogue, PlainStore):
            out = "(t_slot * m + t_i) * n + t_j"
            if wide:
                inside = [f"copy4({spec.epilogue.pointer}, {out}, t_sums, t_line * {pitch} + t_across)"]
            else:
                inside = [f"{spec.epilogue.pointer}[{out}] = t_sums[t_line * {pitch} + t_across]"]
        else:
            inside = [f"t_sum = t_sums[t_line * {pitch} + t_across]", *epilogue_text(spec.epilogue)]
        asked = []
        if not self.left.whole_role:
            asked.append("t_i < m")
        if not self.right.whole_role:
            asked.append("t_j < n")
        guarded = [f"if {' and '.join(asked)}:", *indent(inside)] if asked else inside
        body += ["cuda.syncthreads()", *self.pieces(self.products.lines * pieces, [*head, *guarded])]
        if len(slabs) == 1:
            return ["t_slab = 0", *body]
        body += ["cuda.syncthreads()", "t_slab += 1"]
        return ["t_slab = 0", f"while t_slab < {len(slabs)}:", *indent(body)]


def sums_pitch(tile: Tile) -> int:
    """Elements from one line of sums in shared memory to the next. Fragments of sums are pairs in eight rows."""
    return tile.columns + (8 if tile.kind == "tensor" else 4)


def _sum(first: int, slot: str, area: int) -> str:
    return f"{first} + {slot} * {area}" if first else f"{slot} * {area}"


def join_source(spec: ContractionSpec, integers: dict[str, int], size: int) -> CudaSource:
    """The kernel that adds the parts of every sum in their order and runs the epilogue, an element a thread.

    integers: as of `Text.source`, with t_size, the elements of a part, and t_all, those of all parts.
    """
    epilogue = spec.epilogue
    if isinstance(epilogue, PlainStore):
        statements = [f"{epilogue.pointer}[t_at] = t_sum"]
    else:
        statements = epilogue_text(epilogue)
    add = "t_sum + t_parts[t_from]"
    body = [
        f"t_at = s64(cuda.blockIdx.x) * {JOIN_THREADS} + cuda.threadIdx.x",
        "if t_at < t_size:",
        *indent([
            "t_row = s64(div_u32(u32(t_at), u32(n)))" if size < 2**32 else "t_row = t_at // n",
            "t_b = s64(div_u32(u32(t_row), u32(m)))" if size < 2**32 else "t_b = t_row // m",
            "t_i = t_row - t_b * m",
            "t_j = t_at - t_row * n",
            "t_sum = t_parts[t_at]",
            "t_from = t_at + t_size",
            "while t_from < t_all:",
            f"    t_sum = {add if spec.accumulate[0] == 'f' else f'{spec.accumulate}({add})'}",
            "    t_from += t_size",
            *statements,
        ]),
    ]  # fmt: skip
    plain = [("t_parts", f"{spec.accumulate}*")]
    if isinstance(epilogue, PlainStore):
        plain.append((epilogue.pointer, f"{spec.accumulate}*"))
    given = [*plain, *spec.extra_params]
    return make_source(f"{spec.name}_join", body, given, integers, "element", JOIN_THREADS, size, 0, 1)


def make_source(
    title: str, body: list[str], given: Iterable[tuple[str, str]], integers: dict[str, int], grain: str, threads: int,
    items: int, shared: int, alignment: int,
) -> CudaSource:  # fmt: skip
    """The source of a body, with the pointers and integers that it uses as parameters. given: (name, type) of all."""
    words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(body)))
    pointers = [(name, kind) for name, kind in dict(given).items() if kind.endswith("*") and name in words]
    literal = text_divisors(body) & integers.keys()
    arguments = tuple(name for name in integers if name in words and name not in literal)
    parameters = (*(name for name, _ in pointers), *arguments)
    lines = [*(f"{name} = {integers[name]}" for name in integers if name in literal), *body]
    text = "\n".join([f"def {title}({', '.join(parameters)}):", *indent(lines)]) + "\n"
    types = (*(kind for _, kind in pointers), *("s64" for _ in arguments))
    return CudaSource(title, text, types, (), parameters, arguments, grain, threads, items, alignment, shared)
