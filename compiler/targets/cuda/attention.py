"""Attention for CUDA: a block of rows of scores stays in shared memory from the first product to the second.

    scores = queries keys^T, a tile of keys after the other; the row nest as it was written, a warp a row;
    sums = weights values, a tile of features after the other; what consumes them

What is attention, and the blocks of the row nest, are the CPU's (`kernels.attention`). Both products are those of
`contractions.kernel`, within one block. Scores of whole rows need room: `has_attention_kernel` says
where there is none. Each sum is taken in the order of p, each reduction of a row by the same 32
lanes: results have the same bits for every number of rows in a block.
"""

from __future__ import annotations

from functools import partial

from hloom.compiler.kernel_ir.builder import ZERO, assign, both, cast, compared, constant, increased, load
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Call, Expr, If, Stmt, Store, Var, While
from hloom.compiler.kernel_ir.rewrite import assigned
from hloom.compiler.kernels.attention.rows import RowNest
from hloom.compiler.kernels.attention.structure import Attention
from hloom.compiler.kernels.codegen.description import Block, Branch, Collective, Lanes
from hloom.compiler.kernels.contractions.operands import Roles, operand_of
from hloom.compiler.kernels.contractions.spec import ContractionSpec, PlainOperand
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.compiler.targets.cuda.codegen.render import over_warp
from hloom.compiler.targets.cuda.codegen.source import BLOCK, THREAD, WARP, barrier, divided
from hloom.compiler.targets.cuda.contractions.kernel import Products, ProductWriter, make_source, shared_memory
from hloom.compiler.targets.cuda.contractions.launches import tensor_dtype
from hloom.compiler.targets.cuda.contractions.operands import TENSOR_INPUTS, Side, make_side
from hloom.compiler.targets.cuda.contractions.products import tensor_products, thread_products
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.compiler.targets.cuda.launches import CudaLaunch, launch_of_source
from hloom.compiler.targets.cuda.machine import CudaMachine
from hloom.ir.records import record, replace
from hloom.ir.types import DTYPES, HLO_NAME

THREADS = 256
# By rows of a block: (columns of a tile of scores, part) and the same of a tile of features; 256 threads each.
_TENSOR = {64: ((128, 32, 32), (64, 32, 16)), 32: ((128, 16, 32), (64, 16, 16)), 16: ((128, 16, 16), (128, 16, 16))}
_THREAD = {64: ((64, 4, 4), (64, 4, 4)), 32: ((128, 4, 4), (128, 4, 4)), 16: ((256, 4, 4), (256, 4, 4))}
LONG = 64  # features from which on a tile of tensor cores is 128 wide
STAGED = 36 << 10  # bytes of two steps of any tile of 16 rows, at most
GAP = 4  # elements beyond a row of scores, so that columns lie in different banks


def attention_sources(
    request: KernelRequest, attention: Attention, machine: CudaMachine, rows: int | None = None, vectors: bool = True
) -> list[CudaLaunch]:
    """The launch of a fused computation that is attention, for which `has_attention_kernel` says that there is one.

    rows: of a block, 64, 32 or 16, in place of the most that leave every multiprocessor some. vectors: as of
    `contraction_sources`.
    """
    for count in (rows,) if rows else sorted(_THREAD, reverse=True):
        made = _Kernel(request, attention, machine, count, vectors)
        enough = made.blocks >= machine.multiprocessors and made.bytes <= machine.dynamic_bytes
        if enough or count == min(_THREAD) or rows:
            break
    return [made.launch()]


def has_attention_kernel(attention: Attention, machine: CudaMachine) -> bool:
    """Whether a block has room for 16 rows of scores, and both products are of the same dtype with sums of float32."""
    dots = (attention.first, attention.second)
    kinds = {tensor_dtype(dot, accumulation_dtype(dot), False) for dot in dots}
    if len(kinds) > 1 or any(accumulation_dtype(dot) != "f32" for dot in dots):
        return False
    features, wide = Roles(attention.second).extents[2], 256 if kinds == {None} else 128
    elements = _up(attention.extent, wide) + _up(features, wide) + 2 * GAP + len(attention.needed)
    return STAGED + 16 * 4 * elements <= machine.dynamic_bytes


@record
class _Part:
    """One of the two products within the kernel."""

    spec: ContractionSpec
    tile: Tile
    left: Side
    right: Side
    products: Products


class _WarpRows(RowNest):
    """The row nest by warps: lanes share the loops over a row, accumulators are combined by shuffles."""

    def quotient(self):
        return self.attention.weights, None

    def find_mask(self, targets):
        return None

    def statements(self, block: Block) -> list[Stmt]:
        """What the lanes of a warp do about a block."""
        made: list[Stmt] = []
        lane = self.names.index("t_lane")
        for node in block.body:
            if isinstance(node, Store):  # what there is once a row is stored by one lane
                made.append(If(compared("==", lane, ZERO), [node]))
            elif isinstance(node, Stmt):
                made.append(node)
            elif isinstance(node, Branch):
                made.append(If(node.condition, self.statements(node.body)))
            elif isinstance(node, Collective):
                made += over_warp(node)
            elif isinstance(node, Lanes):
                variable = node.variable
                made.append(assign(variable, node.start + lane))
                made.append(While(variable < node.extent, [*_inner(node.body), increased(variable, WARP)]))
            else:
                raise TypeError(f"no place for {type(node).__name__} in a row of attention")
        return made


def _inner(block: Block) -> list[Stmt]:
    """What one lane does for an element."""
    return [node if isinstance(node, Stmt) else If(node.condition, _inner(node.body)) for node in block.body]


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


class _Kernel:
    def __init__(self, request: KernelRequest, attention: Attention, machine: CudaMachine, rows: int, vectors: bool):
        self.request, self.attention, self.machine = request, attention, machine
        self.rows, self.vectors = rows, vectors
        first, second = attention.first, attention.second
        one, two = Roles(first), Roles(second)
        self.batch, self.m, self.n, self.k = one.extents
        self.d = two.extents[2]
        self.tensor = tensor_dtype(first, "f32", False)
        self.dtype = self.tensor if self.tensor in TENSOR_INPUTS else "f32"
        self.integers: dict[str, int] = {}
        queries = operand_of(request, first.operands[0], one.left, self.integers, "f32", ("p", "i"))
        keys = operand_of(request, first.operands[1], one.right, self.integers, "f32", ("j", "p"))
        values = operand_of(request, second.operands[1], two.right, self.integers, "f32", ("j", "p"))
        self.plain = [x.code for x in (queries, keys, values) if isinstance(x.code, PlainOperand)]
        kind, table = ("tensor", _TENSOR) if self.tensor else ("thread", _THREAD)
        scores, features = table[rows]
        if self.tensor and self.d > LONG:
            features = scores
        depth = 32 if self.dtype in TENSOR_INPUTS else 16
        tiles = [Tile(kind, rows, entry[0], entry[1], entry[2], depth) for entry in (scores, features)]
        self.line = _up(self.n, tiles[0].columns) + GAP
        self.width = _up(self.d, tiles[1].columns) + GAP

        def weights(names: Names, b: str, i: str, p: str) -> tuple[list[Stmt], Expr]:
            row = (names.index(i) - names.index("t_i0")) * self.line
            return [], load(names.declare("t_scores", "*f32"), row + names.index(p))

        self.one = self._part(tiles[0], "1", queries.code, queries, keys, "n", self.n, self.k)
        self.two = self._part(tiles[1], "2", weights, None, values, "d", self.d, self.n)
        self.steps = {"lhs1": queries.strides, "rhs1": keys.strides, "rhs2": values.strides}
        self.nest = _WarpRows(request, attention, "f32", self.integers, Names(by_name))
        itemsize = DTYPES[self.dtype].itemsize
        staged = max(part.tile.stages * (part.left.area + part.right.area) for part in (self.one, self.two))
        # What is staged, then in elements of float32: scores, sums, and results of reductions.
        self.staged = _up(staged * itemsize, 16) // 4
        self.words = self.staged + rows * (self.line + self.width + len(attention.needed))
        self.bytes = self.words * 4
        self.blocks = self.batch * -(-self.m // rows)

    def _part(self, tile: Tile, number: str, code, left_operand, right_operand, count: str, columns: int, deep: int):
        """A product within the kernel; left_operand None: what `code` reads from shared memory."""
        strides = left_operand.strides if left_operand else (0, 0, 0)
        fast = left_operand.fast if left_operand else "p"
        make_operand = partial(
            make_side, tile=tile, dtype=self.dtype, batch=self.batch, deep=deep, vectors=self.vectors,
            whole_depth=deep % tile.depth == 0,
        )  # fmt: skip
        left = make_operand(f"lhs{number}", "i", code, strides, fast, self.m, 0)
        if left_operand is None:
            left = replace(left, whole_role=True)
        sb, sp, sj = right_operand.strides
        right = make_operand(f"rhs{number}", "j", right_operand.code, (sb, sj, sp), right_operand.fast, columns, 0)
        right = replace(right, count=count, first=left.area * tile.stages)
        make = tensor_products if self.tensor else thread_products
        products = make(tile, left, right, self.tensor or "f32", 0)
        spec = ContractionSpec(self.request.title("attention"), "f32", code, right_operand.code, lambda *_: [])
        return _Part(spec, tile, left, right, products)

    def launch(self) -> CudaLaunch:
        attention, request, nest = self.attention, self.request, self.nest
        item = [statement for block in nest.item for statement in nest.statements(block)]
        # What operands are made of has names besides those that have values before.
        block = Block(names=Names.of(by_name, assigned(item)))
        index = block.names.index
        memory = block.let("t_shared", shared_memory(self.dtype, self.words * 4 // DTYPES[self.dtype].itemsize))
        at = self.staged
        for name, count in (
            ("t_scores", self.rows * self.line),
            ("t_sums", self.rows * self.width),
            *((f"t_kept{k}", self.rows) for k in range(len(attention.needed))),
        ):
            block.let(name, Call("*f32", "shared_part_f32", (memory, constant(at))))
            at += count
        thread = block.let("t_thread", cast("s64", THREAD))
        block.let("t_lane", thread & (WARP - 1))
        number, tiles = block.let("t_block", cast("s64", BLOCK)), index("t_row_tiles")
        b = block.let("t_b", divided(number, tiles))
        block.let("t_i0", (number - b * tiles) * self.rows)
        block.let("t_width", constant(self.width))
        block.body += item
        self._product(block, self.one, index("k"), index("n"), block.names["t_scores"], self.line)
        self._over_rows(block, self.line, nest.statements(nest.row))
        block.body.append(barrier())
        self._product(block, self.two, index("n"), index("d"), block.names["t_sums"], self.width)
        self._over_rows(block, 0, nest.statements(nest.result))
        integers = self.integers | {"m": self.m, "n": self.n, "k": self.k, "d": self.d}
        integers["t_row_tiles"] = -(-self.m // self.rows)
        for name, strides in self.steps.items():
            roles = "bip" if name.startswith("lhs") else "bpj"
            integers |= {f"{name}_s{role}": stride for role, stride in zip(roles, strides, strict=True)}
        pointers = [(request.names[p], f"{HLO_NAME[p.dtype]}*") for p in request.computation.parameters]
        pointers = [p for p in pointers if p[0].startswith("in")]
        pointers += [(request.output_name(k), f"{HLO_NAME[o.dtype]}*") for k, o in enumerate(request.outputs)]
        moved = any(side.how != "element" for part in (self.one, self.two) for side in (part.left, part.right))
        source = make_source(
            request.title("attention"), block.statements(), pointers, integers, "product", THREADS, self.blocks,
            self.bytes, 16 if moved else 1,
        )  # fmt: skip
        work = 2.0 * self.batch * self.m * self.n * (self.k + self.d)
        launch = launch_of_source(source, integers, work, processors=self.machine.multiprocessors)
        return replace(launch, shared_bytes=self.bytes)

    def _over_rows(self, block: Block, line: int, statements: list[Stmt]) -> None:
        """Statements for each row of a warp. line: elements from a row of scores to the next; 0: nobody asks."""
        index = block.names.index
        r = block.let("t_r", index("t_thread") >> 5)
        row = block.repeat(both("and", [r < self.rows, index("t_i0") + r < index("m")]))
        row.let("t_i", index("t_i0") + r)
        if line:
            row.let("t_at", r * line)
        row.body += statements
        row.increase(r, THREADS // WARP)

    def _product(self, block: Block, part: _Part, depth: Var, columns: Var, to: Var, pitch: int) -> None:
        """A product of the block's rows, one tile of columns after the other, into shared memory."""
        writer = ProductWriter(
            part.spec, part.tile, part.left, part.right, part.products, self.batch > 1, False, block.names
        )
        block.let("t_start", cast("s64", ZERO))
        block.let("t_stop", depth)
        first = block.let("t_j0", cast("s64", ZERO))
        tile = block.repeat(first < columns)
        part.products.start(tile)
        writer.fill(tile)
        writer.loop(tile)
        part.products.direct(tile, to, first, pitch)
        tile.increase(first, part.tile.columns)
        block.body.append(barrier())
