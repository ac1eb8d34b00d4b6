"""Nests as Python text for CUDA: work items by thread, warp or block, lanes strided, collectives as shuffles.

The text is what Numba's CUDA target compiles and what `lockstep` simulates, letter for letter. It differs from the
CPU's text in what surrounds the statements only; docs/reference/cuda_kernels.md shows both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hloom.compiler.kernel_ir import printer
from hloom.compiler.kernel_ir.builder import ZERO
from hloom.compiler.kernel_ir.nodes import Assign, Binary, Call, Expr, Stmt, Store, Var
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
from hloom.compiler.kernels.codegen.serial import indent
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.math import FUNCTIONS
from hloom.compiler.targets.cuda.codegen.names import meaning, split
from hloom.compiler.targets.cuda.codegen.staging import PITCH, SIDE, stages
from hloom.compiler.targets.cuda.codegen.wide_rows import VECTOR, Aligned, Wide, in_rows, is_variable
from hloom.ir.ops import OPS
from hloom.ir.records import record
from hloom.ir.types import DTYPES, Shape

WARP = 32
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
_DIVISOR = re.compile(r"(?://|%) *\(?(\w+)")


@record(frozen=True)
class CudaSource(KernelSource):
    """A kernel's text with what a launch needs to know.

    params: types of the pointers and of the integers that are arguments, in order; no lo and hi.
    parameters: their names.
    arguments: names of the integers that are arguments, the last parameters. The others, by which something is divided,
        are literals in the text: a 64-bit division by a run-time value costs some hundred instructions, one by a
        literal a multiplication.
    grain: 'element', 'serial', 'warp', 'block', 'tile' or 'product': what one work item is given to.
    threads: threads a block; a multiple of 32, and fixed, as the text counts with it.
    items: work items of this launch; not part of the text.
    alignment: bytes to which the addresses of all pointers have to be aligned (1: nothing beyond the element's own).
        Allocations are; a view into one may not be, and needs the text of `render(nest, vectors=False)`.
    shared: bytes of dynamic shared memory that a block needs.
    together: blocks that a multiprocessor is to have room for at once, which bounds the registers of a thread.
    """

    parameters: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    grain: str = "element"
    threads: int = 256
    items: int = 0
    alignment: int = 1
    shared: int = 0
    together: int = 1

    def blocks(self, most: int = 2112) -> int:
        """Blocks to launch.

        'element' and 'serial': so many that each thread has one item. The others loop over their items in strides of
        the grid, so any number is right: at most `most`, by default 16 for each of an H100's 132 cores. 'product':
        a block for each item.
        """
        if self.grain == "product":
            return self.items
        if self.grain in ("element", "serial"):
            return max(1, -(-self.items // self.threads))
        return max(1, min(-(-self.items // (self.threads // WARP if self.grain == "warp" else 1)), most))


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


def text_divisors(lines: Sequence[str]) -> set[str]:
    """The names by which something is divided in the text of a kernel that is not of nodes."""
    return {name for line in lines for name in _DIVISOR.findall(line)}


def divisors(statements: Sequence[Stmt]) -> set[str]:
    """The names by which something is divided."""
    return {
        name
        for statement in statements
        for one in statement.walk()
        for expression in one.expressions()
        for name in divisors_of(expression)
    }


def divisors_of(expression: Expr) -> Iterator[str]:
    """The names by which something is divided in an expression."""
    for part in expression.walk():
        if isinstance(part, Binary) and part.op in ("//", "%"):
            yield from (one.name for one in part.right.walk() if isinstance(one, Var))


class _Renderer:
    def __init__(self, nest: Nest, threads: int | None, vectors: bool):
        self.nest, self.vectors = nest, vectors
        self.alignment = 1
        self.integers = dict(nest.integers)
        *self.head, self.top = nest.root.body
        self.grain = self._grain()
        self.threads = threads or THREADS[self.grain]
        if self.threads % WARP or not 0 < self.threads <= 1024:
            raise ValueError(f"{self.threads} threads a block: a block is 1 to 32 whole warps of 32 threads")
        self.shared: dict[str, str] = {}  # name of a shared array -> the expression that makes it
        self.divisors: set[str] = set()
        self.total = 1

    def source(self) -> CudaSource:
        nest = self.nest
        if self.grain == "tile":
            lines = self._tiles(self.top)
        elif self.grain in ("warp", "block"):
            lines = self._rows(self.top)
        else:
            lines = self._elements(self.top)
        literal = [name for name in nest.integers if name in self.divisors]
        arguments = tuple(name for name in nest.integers if name not in self.divisors)
        parameters = [name for name, _ in nest.pointers] + list(arguments)
        body = [
            *(f"{name} = {nest.integers[name]}" for name in literal),
            *(f"{name} = {made}" for name, made in self.shared.items()),
            *lines,
        ]
        text = "\n".join([f"def {nest.name}({', '.join(parameters)}):", *indent(body)]) + "\n"
        types = tuple(f"{dtype}*" for _, dtype in nest.pointers) + ("s64",) * len(arguments)
        return CudaSource(
            nest.name,
            text,
            types,
            (),
            tuple(parameters),
            arguments,
            self.grain,
            self.threads,
            self.total,
            self.alignment,
        )

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

    def _head(self) -> list[str]:
        """What all items have in common, in each of them: a thread without an item may not read what another writes."""
        return self._lines(self.head)

    def _decode(self, dims: Sequence[tuple[object, object]], item: str) -> list[str]:
        """Statements that take the flat work item apart, the last dimension fastest."""
        lines, rest = [], item
        for k, (variable, size) in enumerate(reversed(dims)):
            extent = str(size)
            if k == len(dims) - 1:
                lines.append(f"{variable} = {rest}")
                break
            above = f"rest{k}"
            self.divisors.add(extent)
            quotient = f"s64(div_u32(u32({rest}), u32({extent})))" if self.total < 2**32 else f"{rest} // {extent}"
            lines += [f"{above} = {quotient}", f"{variable} = {rest} - {above} * {extent}"]
            rest = above
        return lines

    def _count(self, dims: Sequence[tuple[object, object]]) -> str:
        extents = [str(extent) for _, extent in dims]
        for extent in extents:
            self.total *= self.integers[extent]
        return " * ".join(extents) or "1"

    def _loop(self, dims, first: str, stride: str, body) -> list[str]:
        """`body()` for each item of this thread, warp or block."""
        count = self._count(dims)
        variable = dims[0][0] if len(dims) == 1 else "item"
        decoded = self._decode(dims, "item") if len(dims) > 1 else []
        return [
            f"{variable} = {first}",
            f"stride = {stride}",
            f"total = {count}",
            f"while {variable} < total:",
            *indent([*decoded, *self._head(), *body(), f"{variable} += stride"]),
        ]

    def _elements(self, node: Items) -> list[str]:
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
            lines = self._wide_rows(dims, [n for n in node.body.body if n is not inner[0]], inner[0].body.body)
            if lines is not None:
                return lines
        # One item a thread and no loop: LLVM would unroll it four times, with a 64-bit division for the trip count.
        count = self._count(dims)
        variable = dims[0][0] if len(dims) == 1 else "item"
        decoded = self._decode(dims, "item") if len(dims) > 1 else []
        return [
            f"{variable} = s64(cuda.blockIdx.x) * {self.threads} + cuda.threadIdx.x",
            f"if {variable} < {count}:",
            *indent([*decoded, *self._head(), *self._lines(body.body)]),
        ]

    def _wide_rows(self, dims, outer: list, body: list) -> list[str] | None:
        """Four elements of a row a thread, where rows are multiples of four long and read in order."""
        variable, extent = dims[-1]
        if self.integers[extent.name] % VECTOR:
            return None
        wide = self._wide(body, variable, in_rows(variable, self.integers))
        if wide is None or not wide.statements or not wide.writes or len(wide.reads) + len(wide.writes) > MOST_VECTORS:
            return None
        self.alignment = 16
        self.divisors.add(extent.name)
        self.integers["fours"] = self.integers[extent.name] // VECTOR
        dims = [*dims[:-1], ("four", "fours")]
        count = self._count(dims)
        return [
            f"fours = {extent} >> 2",
            f"item = s64(cuda.blockIdx.x) * {self.threads} + cuda.threadIdx.x",
            f"if item < {count}:",
            *indent([*self._decode(dims, "item"), f"{variable} = four * {VECTOR}", *self._head()]),
            *indent(self._lines(outer)),
            *indent(_by_fours(wide, {at: str(at[1]) for at in (*wide.reads, *wide.writes)})),
        ]

    def _wide(self, body: list, variable: Var, aligned: Aligned) -> Wide | None:
        """The statements for an element of four; None where they need more than vectors, or take too long."""
        if any(dtype in ("c64", "c128") for _, dtype in self.nest.pointers):
            return None
        wide = Wide(body, variable, aligned)
        if wide.statements is None or sum(map(_weight, wide.statements)) > UNROLLED:
            return None
        for statement in wide.statements:
            self.divisors |= divisors([statement])
        return wide

    def _vectors(self, variable: Var, extent: Var, wide: Wide, body: Block) -> list[str]:
        """Four elements a thread, and one each for the threads after those that have four."""
        self.alignment = 16
        count = self.integers[extent.name]
        self.total = count // VECTOR + count % VECTOR
        return [
            f"four = s64(cuda.blockIdx.x) * {self.threads} + cuda.threadIdx.x",
            f"if four < {extent} >> 2:",
            *indent(self._head()),
            *indent(_by_fours(wide, dict.fromkeys((*wide.reads, *wide.writes), f"four * {VECTOR}"))),
            f"{variable} = ({extent} >> 2) * {VECTOR - 1} + four",
            f"if four >= {extent} >> 2 and {variable} < {extent}:",
            *indent([*self._head(), *self._lines(body.body)]),
        ]

    def _rows(self, node: Items) -> list[str]:
        if self.grain == "warp":
            warps = self.threads // WARP
            self.lanes = WARP
            lines = ["lane = cuda.threadIdx.x & 31"]
            first, stride = f"cuda.blockIdx.x * {warps} + (cuda.threadIdx.x >> 5)", f"cuda.gridDim.x * {warps}"
        else:
            self.lanes = self.threads
            lines = ["lane = cuda.threadIdx.x"]
            first, stride = "cuda.blockIdx.x", "cuda.gridDim.x"
        return lines + self._loop(node.dims, f"s64({first})", stride, lambda: self._row_lines(node.body.body))

    def _row_lines(self, body: list) -> list[str]:
        """As _lines, but what the whole row stores is stored by one lane."""
        lines: list[str] = []
        stores: list[Store] = []
        for node in [*body, None]:
            if isinstance(node, Store):
                stores.append(node)
                continue
            if stores:
                if any(str(s.pointer).startswith("io") for s in stores):
                    # The other lanes may not have read yet what this store overwrites.
                    lines.append("cuda.syncwarp()" if self.grain == "warp" else "cuda.syncthreads()")
                lines += ["if lane == 0:", *indent(self._lines(stores))]
                stores = []
            if node is not None:
                lines += self._node(node)
        return lines

    # --- statements ---

    def _lines(self, body: Sequence) -> list[str]:
        return [line for node in body for line in self._node(node)]

    def _node(self, node) -> list[str]:
        if isinstance(node, Stmt):
            self.divisors |= divisors([node])
            return printer.lines([node])
        if isinstance(node, Branch):
            self.divisors |= {*divisors_of(node.condition)}
            return [f"if {node.condition}:", *indent(self._lines(node.body.body))]
        if isinstance(node, Serial):
            return self._while(node.variable, node.start, node.stop, "1", node.body)
        if isinstance(node, Inner):
            return self._while(node.variable, ZERO, node.extent, "1", node.body)
        if isinstance(node, Lanes):
            if self.grain not in ("warp", "block"):
                return self._while(node.variable, node.start, node.extent, "1", node.body)
            start = "lane" if node.start == ZERO else f"{node.start} + lane"
            return self._while(node.variable, start, node.extent, str(self.lanes), node.body)
        if isinstance(node, Collective):
            return self._collective(node) if self.grain in ("warp", "block") else []
        raise TypeError(f"{self.nest.name}: no place for {type(node).__name__} inside of an item")

    def _while(self, variable: Var, start: Expr | str, stop: Expr, step: str, body: Block) -> list[str]:
        # Not `for ... in range(...)`, whose trip count is computed first: softmax by warps has 66 registers with it, 47
        # with this (sm_90). LLVM unrolls both by four, which puts four loads in flight.
        for bound in (start, stop):
            self.divisors |= set() if isinstance(bound, str) else {*divisors_of(bound)}
        inside = [*self._lines(body.body), f"{variable} += {step}"]
        return [f"{variable} = s64({start})", f"while {variable} < {stop}:", *indent(inside)]

    def _collective(self, node: Collective) -> list[str]:
        name, lines = node.variable.name, shuffled(node)
        warps = self.threads // WARP
        if self.grain == "warp" or warps == 1:
            return lines
        box = f"box_{node.dtype}"
        self.shared[box] = f"cuda.shared.array({warps}, {shared_type(node.dtype)})"
        value, read = through_shared(node.dtype)
        return [
            *lines,
            "if lane & 31 == 0:",
            f"    {box}[lane >> 5] = {value.format(name)}",
            "cuda.syncthreads()",
            f"{name} = {read.format(f'{box}[0]')}",
            "warp = 1",
            f"while warp < {warps}:",
            f"    {name} = {_join(node, name, read.format(f'{box}[warp]'))}",
            "    warp += 1",
            "cuda.syncthreads()",
        ]

    # --- tiles ---

    def _tiles(self, node: Tiles) -> list[str]:
        """Block for a tile: what is staged is read along `across`, all else along the outputs' fast dimension."""
        (row, rows), (column, columns) = ((str(name), str(size)) for name, size in (node.across, node.along))
        self.divisors |= {rows, columns}
        staged, body = stages(self.nest, node)
        for stage in staged:
            self.shared[stage.name] = f"cuda.shared.array({SIDE * PITCH}, {stage.dtype})"

        def cells(fast: str, slow: str, lines: list[str]) -> list[str]:
            return [
                "cell = cuda.threadIdx.x",
                f"while cell < {SIDE * SIDE}:",
                f"    {fast} = {fast}_first + (cell & {SIDE - 1})",
                f"    {slow} = {slow}_first + (cell >> {SIDE.bit_length() - 1})",
                f"    if {row} < {rows} and {column} < {columns}:",
                *indent(indent(lines)),
                f"    cell += {self.threads}",
            ]

        def item() -> list[str]:
            lines = [f"{row}_first = band * {SIDE}", f"{column}_first = tile * {SIDE}"]
            if staged:
                lines += cells(row, column, self._lines([stage.fill for stage in staged]))
                lines.append("cuda.syncthreads()")
            lines += cells(column, row, self._lines(body))
            return [*lines, "cuda.syncthreads()"] if staged else lines

        # In the text these follow from literals.
        self.integers |= {"bands": -(-self.integers[rows] // SIDE), "tiles": -(-self.integers[columns] // SIDE)}
        head = [f"tiles = ({columns} + {SIDE - 1}) // {SIDE}", f"bands = ({rows} + {SIDE - 1}) // {SIDE}"]
        dims = [*node.outer, ("band", "bands"), ("tile", "tiles")]
        return head + self._loop(dims, "s64(cuda.blockIdx.x)", "cuda.gridDim.x", item)


def shuffled(node: Collective) -> list[str]:
    """The statements that combine an accumulator over the lanes of a warp."""
    name = node.variable.name
    return [f"{name} = {_join(node, name, f'shuffle_xor({name}, {distance})')}" for distance in _SHUFFLES]


def _join(node: Collective, left: str, right: str) -> str:
    shape = Shape(DTYPES[node.dtype], ())
    return OPS[node.operation].expression([shape, shape], shape, {}, [left, right])


def shared_type(dtype: str) -> str:
    """The element type of a shared array that holds registers of a dtype."""
    return {"pred": "u8", "f16": "f32", "bf16": "f32"}.get(dtype, dtype)


def through_shared(dtype: str) -> tuple[str, str]:
    """How a register is written to shared memory and read from it."""
    return ("u8({0})", "({0} != u8(0))") if dtype == "pred" else ("{0}", "{0}")


def _walk(block: Block):
    """All nodes and statements of a block and the blocks in it."""
    for node in block.body:
        yield node
        if not isinstance(node, Stmt) and hasattr(node, "body"):
            yield from _walk(node.body)


def _by_fours(wide: Wide, places: Mapping[tuple[Var, Expr], str]) -> list[str]:
    """The statements for four elements, between copies of what they read and write at these places."""
    assert wide.statements is not None
    arrays = [*wide.reads.items(), *wide.writes.items()]
    return [
        *(f"{array} = scratch_{array.type[1:]}({VECTOR})" for _, array in arrays),
        *(f"copy4({array}, 0, {pointer}, {places[pointer, at]})" for (pointer, at), array in wide.reads.items()),
        "k = 0",
        f"while k < {VECTOR}:",
        *indent([*printer.lines(wide.statements), "k += 1"]),
        *(f"copy4({pointer}, {places[pointer, at]}, {array}, 0)" for (pointer, at), array in wide.writes.items()),
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
