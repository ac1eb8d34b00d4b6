"""The attention nest: a block of rows of scores is computed, reduced and multiplied again while it stays in cache.

For each batch and block of query rows:

1. scores = queries keys^T, by the register tiles of the contraction, into scratch memory: whole rows of them.
2. The row nest as it was written: sweeps over a row that reduce it, then the weights in the place of the scores.
3. sums = weights values, by the same tiles, and what consumes them.

Keys and values are packed into panels once, before, as for any contraction. Where the weights are a quotient by one
number of the row (softmax), the sums are divided instead of the weights: a row of sums is shorter than a row of
weights, and the numerators have been rounded once less. That is right where the divisor is at least 1, so that no
product underflows that would not have before, and where no sum overflows; both are looked at for every row, and rows
where it is not so are divided as written.

Where a mask of indexes hides the rest of the rows (`attention_masks.py`) scores behind it are not computed: all of them
have one value in the row, whose share of maxima and sums is added. Values whose weights are exactly zero in all rows of
a block are left out too, if they are finite.

Every sum has the order of the contraction, every decision is one about a row: results have the same bits for every
size of the blocks and any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    address,
    both,
    cast,
    compared,
    constant,
    least,
    load,
    minus,
    plus,
    quotient,
    times,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, Stmt, Var
from hloom.compiler.kernel_ir.rewrite import assigned
from hloom.compiler.kernels.attention.rows import RowNest, added
from hloom.compiler.kernels.attention.structure import SCORES, SUMS, Attention, attention_of
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.serial import block_statements
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.codegen.streamed_stores import fallbacks, with_stores
from hloom.compiler.kernels.contractions import room
from hloom.compiler.kernels.contractions.blocking import PERIOD, PRODUCT_WORK, SERIAL_WORK, step_plan
from hloom.compiler.kernels.contractions.operands import Operand, Roles, operand_of
from hloom.compiler.kernels.contractions.product import launch_of_step
from hloom.compiler.kernels.contractions.render import render
from hloom.compiler.kernels.contractions.shared import PRODUCT_PARAMS
from hloom.compiler.kernels.contractions.spec import (
    PRODUCT,
    ContractionKernels,
    ContractionSpec,
    KernelAddress,
    PlainOperand,
    PlainStore,
)
from hloom.compiler.kernels.contractions.tile_shapes import ITEMSIZES, tile_shape
from hloom.compiler.kernels.contractions.writer import call_kernel, declare, with_used
from hloom.compiler.kernels.launch import Launch, launch_by_grain
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.compiler.targets.cpu.machine import Machine
from hloom.ir.module import Instruction
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical
from hloom.ir.types import HLO_NAME

ROWS = 128  # rows of a block at most
MANY = 1 << 16  # rows
# Columns that the tile is chosen for, of both contractions: keys are many, features mostly so few. Always the same, so
# that other features need no new text.
FEATURES = 64
PART = 64  # keys of which it is known whether their values are finite
TEMPORARIES = ("t_packed1", "t_packed2", "t_open")
# Parameters of the product that are zero for a block, unless it says otherwise.
_NOTHING = (
    "lhs_sb", "rhs_sb", "packed_sb", "out_sb", "pack_lhs", "accumulate", "line_rows", "line_start", "line_offsets",
    "run", "run_offsets", "soon", "soon_bytes",
)  # fmt: skip
WANTED = 4  # a block's scores are such a part of the second cache, where that is some rows: keys and values stay beside


def attention_launches(request: KernelRequest, machine: Machine) -> list[Launch]:
    """The launches: packing of keys, packing of values, and the kernel of all rows."""
    attention = attention_of(request.computation)
    assert attention is not None, "the kind of an attention kernel matches only these"
    return _Kernel(request, attention, machine).launches()


@record
class _Contraction:
    """One of the two contractions. number: 1 or 2. right: its right operand. arguments: what the shared product gets,
    by its parameters' names; this kernel's parameters for them end with the number."""

    number: int
    kernels: ContractionKernels
    right: Operand
    arguments: Mapping[str, int | KernelAddress]
    packing: list[Launch]

    def product(self, v: Names, values: dict[str, Expr]) -> Stmt:
        """The call of the shared product for one block. values: of its parameters; of others this contraction's own."""
        code, number, size = self.right.code, self.number, constant(self.kernels.blocking.size)
        packed = pointer = v[f"t_packed{number}"]
        if isinstance(code, PlainOperand) and code.dtype == self.kernels.spec.accumulate:
            pointer = v[code.pointer]  # read in place
        given = dict.fromkeys(_NOTHING, ZERO) | {
            "rhs": plus(address(pointer), times(times(v["t_b"], v[f"t_rhs_sb{number}"]), size)),
            "packed": plus(address(packed), times(times(v["t_b"], v[f"t_packed_sb{number}"]), size)),
            "lhs_sp": ONE, "row_blocks": ONE, "column_blocks": ONE, "block_rows": v["t_rows"], "m": v["t_rows"],
            "block_panels": v[f"t_panels{number}"], "full_panels": v[f"t_panels{number}"],
        } | values  # fmt: skip
        named = [given[name] if name in given else v[f"t_{name}{number}"] for name in list(PRODUCT_PARAMS)[:-2]]
        return call_kernel(v["t_product"], ZERO, ONE, named)


class _Kernel:
    """The making of one attention kernel."""

    def __init__(self, request: KernelRequest, attention: Attention, machine: Machine):
        self.request, self.attention, self.machine = request, attention, machine
        self.dtype = accumulation_dtype(attention.first)
        self.integers: dict[str, int] = {}
        one, two = Roles(attention.first), Roles(attention.second)
        self.batch, self.m, self.n, self.k = one.extents
        self.d = two.extents[2]
        first, second = attention.first, attention.second

        def operand(array, roles, order) -> Operand:
            return operand_of(request, array, roles, self.integers, self.dtype, order)

        self.queries = operand(first.operands[0], one.left, ("p", "i"))
        keys = operand(first.operands[1], one.right, ("j", "p"))
        values = operand(second.operands[1], two.right, ("j", "p"))
        self.names = Names(by_name)
        self.nest = RowNest(request, attention, self.dtype, self.integers, self.names)
        self.tile = tile_shape(self.dtype, machine.vector_bytes, machine.vector_registers, FEATURES)
        self.size, columns = ITEMSIZES[self.dtype], self.tile.columns
        self.line = (ceil(self.n, columns) + 1) * columns  # one more panel: rows are no power of two apart
        self.width = ceil(self.d, columns) * columns
        self.block_rows = self._block_rows()
        self._check_room()
        self.one = self._contraction(1, one, keys)
        self.two = self._contraction(2, two, values)

    # --- the two contractions ---

    def _contraction(self, number: int, roles: Roles, right: Operand) -> _Contraction:
        """Its right operand is packed as that of any contraction of this shape; its left one lies in scratch memory."""
        pointers = [(self.request.names[p], f"{HLO_NAME[p.dtype]}*") for p in self.request.computation.parameters]
        own = {right.code.pointer} if isinstance(right.code, PlainOperand) else set()
        spec = ContractionSpec(
            f"{self.request.title('attention')}_{'keys' if number == 1 else 'values'}",
            self.dtype,
            PlainOperand("left", self.dtype),
            right.code,
            PlainStore("sums"),
            tuple(p for p in pointers if p[0] not in own) + tuple((name, "s64") for name in self.integers),
            "p",
            right.fast,
            roles.batch > 1 or not roles.right_has_no_batch,
        )
        kernels = render(spec, self.machine, columns=FEATURES)
        batch, m, n, k = roles.extents
        if not isinstance(m, int) or m > self.block_rows:
            m = MANY  # each panel is used by several blocks; of open sizes it may be
        steps = step_plan(kernels, batch, m, n, k, (k, k, 1), right.strides)
        packing = [self._packing(number, kernels, step) for step in steps[:-1]]
        return _Contraction(number, kernels, right, steps[-1].arguments, packing)

    def _packing(self, number: int, kernels: ContractionKernels, step) -> Launch:
        def rename(name: str) -> str:
            return f"{name}{number}" if name == "t_packed" else name

        return launch_of_step(kernels, step, self.integers, rename)

    # --- the kernel ---

    def launches(self) -> list[Launch]:
        own = self._parameters()
        source, arguments = self._source(self.request.title("attention"), self.names, self._write, own)
        packing = [*self.one.packing, *self.two.packing]
        if self.nest.mask:
            packing.append(self._openness(own))
        pointers = {name for name in arguments if isinstance(name, str)}
        temporaries = {name: 0 for name in TEMPORARIES if name in pointers}
        for launch in packing:
            temporaries |= {name: size for name, size in launch.temporaries.items() if name in temporaries}
        work = typical(self.block_rows * (self.n * self.k + self.n * self.d))
        items = self.batch * ceil(self.m, self.block_rows)
        grain = max(1, SERIAL_WORK // work)
        chosen = with_stores(source, self.request.past_caches(*self.request.outputs[0].dims[-1:]))
        launch = launch_by_grain(chosen, arguments, items, grain, temporaries, typical(items) * work * PRODUCT_WORK)
        launch.fallbacks = fallbacks(source, self.request.leaving_names)
        return [*packing, launch]

    def _source(
        self, name: str, names: Names, write: Callable[[Block, list[Var]], None], own: dict
    ) -> tuple[KernelSource, list]:
        """The kernel that `write` writes with the parameters that there are, and the values of those that it uses."""
        pointers = {self.request.names[p]: f"{HLO_NAME[p.dtype]}*" for p in self.request.computation.parameters}
        pointers |= {self.request.output_name(k): f"{HLO_NAME[o.dtype]}*" for k, o in enumerate(self.request.outputs)}
        pointers |= dict.fromkeys(TEMPORARIES, f"{self.dtype}*")
        integers = self.integers | own
        given = pointers | dict.fromkeys(integers, "s64")
        declare(names, given)
        root = Block(names=names)
        write(root, [names[name] for name in given])
        kernel, params = with_used(name, given, names, root.statements())
        return KernelSource.of(kernel), [name if name in pointers else integers[name] for name in params[:-2]]

    def _write(self, root: Block, params: list[Var]) -> None:
        """Writes the kernel."""
        v, dtype, nest = self.names, self.dtype, self.nest
        computed = not self._reads_queries()
        scores, sums = SCORES // self.size, SUMS // self.size
        areas = {"t_scores": scores, "t_sums": sums} | ({"t_left": sums} if computed else {})
        areas |= {f"t_kept{k}": ROWS for k in range(len(self.attention.needed))}
        areas |= {"t_tails": ROWS} if nest.mask else {}
        for name, size in areas.items():
            root.scratch(name, dtype, size)
        if nest.mask:
            root.scratch("t_ends", "s64", ROWS)
        if nest.divides:
            root.scratch("t_divisors", dtype, ROWS)
            root.scratch("t_exact", "s64", ROWS)
        item, block = root.loop("t_item", v["lo"], v["hi"])
        b = block.let("t_b", quotient(item, v["t_row_blocks"]))
        i0 = block.let("t_i0", times(minus(item, times(b, v["t_row_blocks"])), v["t_block_rows"]))
        rows = block.let("t_rows", least(v["t_block_rows"], minus(v["m"], i0)))
        for part in nest.item:
            block.body += block_statements(part)
        if computed:
            # What elements declare differs from what has a value here, not from what other loops declare.
            self._compute_queries(block, Names.of(by_name, [*params, *assigned(root.body)]))
        if not nest.divides:
            self._attempt(block)
            self._over_rows(block).body.extend(block_statements(nest.result))
            return
        r, every = block.loop("t_r", ZERO, rows)
        every.store(v["t_exact"], r, ZERO)
        again = block.let("t_again", ONE)
        attempt = block.repeat(compared("!=", again, ZERO))
        self._attempt(attempt)
        attempt.let("t_again", ZERO)
        self._over_rows(attempt).body.extend(block_statements(nest.result))

    def _over_rows(self, block: Block) -> Block:
        """The body of a loop over the rows of a block."""
        i0 = self.names["t_i0"]
        return block.loop("t_i", i0, plus(i0, self.names["t_rows"]))[1]

    def _attempt(self, block: Block) -> None:
        """Scores, rows and sums of a block."""
        v, nest = self.names, self.nest
        scores: dict[str, Expr] = {"k": v["k"], "n": v["n"], "out": address(v["t_scores"]), "out_si": v["t_line"]}
        if self._reads_queries():
            assert isinstance(self.queries.code, PlainOperand)
            at = plus(times(v["t_b"], v["t_queries_sb"]), times(v["t_i0"], v["t_queries_si"]))
            scores["lhs"] = plus(address(v[self.queries.code.pointer]), times(at, constant(self.size)))
            scores["lhs_si"] = v["t_queries_si"]
        else:
            scores |= {"lhs": address(v["t_left"]), "lhs_si": v["t_left_row"]}
        if nest.limit is not None:
            columns = self.tile.columns
            limit = block.let("t_limit", ZERO)
            self._over_rows(block).body.extend(block_statements(nest.limit))
            block.let("t_limit", least(limit, v["n"]))
            scores["block_panels"] = quotient(plus(limit, constant(columns - 1)), constant(columns))
        block.body.append(self.one.product(v, scores))
        if nest.mask:
            block.let("t_length", v["t_limit"])
        row = self._over_rows(block)
        r = row.let("t_r", minus(v["t_i"], v["t_i0"]))
        row.let("t_at", times(r, v["t_line"]))
        row.body += block_statements(nest.row)
        if nest.mask:
            self._multiply_hidden(block)
            self._masked_sums(block)
        else:
            block.body.append(self.two.product(v, self._sums(v["n"])))

    def _parameters(self) -> dict[str, object]:
        """The values of the kernel's own integer parameters."""
        own: dict[str, object] = {
            "m": self.m, "n": self.n, "k": self.k, "d": self.d,
            "t_row_blocks": ceil(self.m, self.block_rows), "t_block_rows": self.block_rows,
            "t_line": self.line, "t_width": self.width, "t_left_row": self._left_row(), "t_parts": ceil(self.n, PART),
            "t_product": self.one.kernels.kernels[PRODUCT],
        }  # fmt: skip
        own |= {f"t_queries_s{role}": stride for role, stride in zip("bip", self.queries.strides, strict=True)}
        own |= {f"t_values_s{role}": stride for role, stride in zip("bpj", self.two.right.strides, strict=True)}
        for contraction in (self.one, self.two):
            own |= {f"t_{name}{contraction.number}": value for name, value in contraction.arguments.items()}
        return own

    def _sums(self, length: Expr) -> dict[str, Expr]:
        """What the product is told to multiply weights with the first `length` values."""
        v = self.names
        return {
            "lhs": address(v["t_scores"]), "lhs_si": v["t_line"], "k": length, "n": v["d"],
            "out": address(v["t_sums"]), "out_si": v["t_width"],
        }  # fmt: skip

    def _left_row(self) -> int:
        return (ceil(self.k, self.tile.lanes) + 1) * self.tile.lanes

    def _block_rows(self) -> int:
        """Rows of a block: as many as scratch memory takes, fewer where every core should have some."""
        tile, size, m, batch = self.tile.rows, self.size, typical(self.m), typical(self.batch)
        line, width, left = map(_row_of, (self.line, self.width, self._left_row()))
        most = min(SCORES // size // line, SUMS // size // width, ROWS)
        if not self._reads_queries():
            most = min(most, SUMS // size // left)
        wanted = max(self.machine.l2_bytes // WANTED // size // line, 4 * tile)
        rows = max(min(most, wanted) // tile * tile, min(most, tile))
        while batch * ceil(m, rows) < 4 * self.machine.cores and rows >= 4 * tile:
            rows = ceil(rows, 2 * tile) * tile
        blocks = ceil(m, rows)
        return min(rows, ceil(ceil(m, blocks), tile) * tile)

    def _check_room(self) -> None:
        """Compares what the kernel writes to scratch memory with the sizes of `_text`."""
        rows, size = self.block_rows, self.size
        used = {
            "t_scores": (rows * self.line, SCORES // size),
            "t_sums": (rows * self.width, SUMS // size),
            "t_kept": (rows, ROWS),
        }
        if not self._reads_queries():
            used["t_left"] = rows * self._left_row(), SUMS // size
        room.check(self.request.title("attention"), used)

    def _element(
        self, v: Names, operand: Operand, instruction: Instruction, name: str, at: tuple[str, str, str]
    ) -> tuple[list[Stmt], Expr]:
        """(statements, the value of an operand's element)."""
        code = operand.code
        if not isinstance(code, PlainOperand):
            return code(v, *at)
        roles = "bip" if name == "queries" else "bpj"
        steps: list[Expr] = [times(v[index], v[f"t_{name}_s{role}"]) for index, role in zip(at, roles, strict=True)]
        if operand.strides[2] == 1:
            steps[2] = v[at[2]]
        return [], self.nest.cast(load(v[code.pointer], plus(*steps)), instruction)

    def _reads_queries(self) -> bool:
        """Whether tiles read the queries where they lie: rows that do not share sets of the caches."""
        code, (_, step, along) = self.queries.code, self.queries.strides
        plain = isinstance(code, PlainOperand) and code.dtype == self.dtype
        return plain and along == 1 and step * self.size % PERIOD != 0

    def _compute_queries(self, block: Block, v: Names) -> None:
        """Computes or copies a block of queries, where tiles do not read them where they lie."""
        first, begin = self.attention.first.operands[0], v["t_i0"]
        block = Block(block, body=block.body, names=v)
        i, row = block.loop("t_i", begin, plus(begin, v["t_rows"]))
        at = row.let("t_at", times(minus(i, begin), v["t_left_row"]))
        p, inside = row.loop("t_p", ZERO, v["k"])
        statements, value = self._element(v, self.queries, first, "queries", ("t_b", "t_i", "t_p"))
        inside.body += statements
        inside.store(v["t_left"], plus(at, p), value)

    # --- what a mask hides ---

    def _openness(self, own: dict) -> Launch:
        """The kernel that looks for infinities and NaN among the values, by parts of keys: 0 or NaN for each part.
        A weight of 0 makes NaN of them, so that hidden values are left out only where there are none."""
        second, v = self.attention.second.operands[1], Names(by_name)

        def write(root: Block, params: list[Var]) -> None:
            item, block = root.loop("t_item", v["lo"], v["hi"])
            part = constant(PART)
            b = block.let("t_b", quotient(item, v["t_parts"]))
            p0 = block.let("t_p0", times(minus(item, times(b, v["t_parts"])), part))
            zero = block.let("t_zero", cast(self.dtype, ZERO))
            _, along = block.loop("t_p", p0, least(plus(p0, part), v["n"]))
            _, across = along.loop("t_j", ZERO, v["d"])
            statements, value = self._element(v, self.two.right, second, "values", ("t_b", "t_p", "t_j"))
            across.body += statements
            across.set([zero], [added(zero, times(value, cast(self.dtype, ZERO)))])
            block.store(v["t_open"], item, zero)

        source, arguments = self._source(f"{self.request.title('attention')}_finite", v, write, own)
        items = self.batch * own["t_parts"]
        grain = max(1, (1 << 16) // (PART * self.d))
        return launch_by_grain(source, arguments, items, grain, {"t_open": items * self.size})

    def _multiply_hidden(self, block: Block) -> None:
        """Decides how many values are multiplied, and gives the hidden ones among them their weights."""
        v = self.names
        zero, length = block.let("t_zero", cast(self.dtype, ZERO)), v["t_length"]
        p, parts = block.loop("t_p", quotient(length, constant(PART)), v["t_parts"])
        parts.set([zero], [added(zero, load(v["t_open"], plus(times(v["t_b"], v["t_parts"]), p)))])
        every = both("or", [compared("!=", zero, ZERO), compared(">", v["t_direct_panels2"], ZERO)])
        block.branch(every).let("t_length", v["n"])
        r, row = block.loop("t_r", ZERO, v["t_rows"])
        at, tail = row.let("t_at", times(r, v["t_line"])), row.let("t_tail", load(v["t_tails"], r))
        j, hidden = row.loop("t_j", load(v["t_ends"], r), length)
        hidden.store(v["t_scores"], plus(at, j), tail)

    def _masked_sums(self, block: Block) -> None:
        """The second product over `t_length` values: whole steps of them at once, the rest of a step panel by panel,
        since a step's panels lie as far apart as all of it is long."""
        v, size, columns = self.names, constant(self.size), self.tile.columns
        length, step = v["t_length"], v["t_step2"]
        whole = block.let("t_whole", times(quotient(length, step), step))
        block.branch(compared("==", length, v["n"])).let("t_whole", v["n"])
        rest = block.let("t_rest", minus(length, whole))
        block.body.append(self.two.product(v, self._sums(whole)))
        q, panel = block.branch(compared(">", rest, ZERO)).loop("t_q", ZERO, v["t_panels2"])
        across = times(times(q, least(step, minus(v["n"], whole))), constant(columns))
        packed = plus(times(v["t_b"], v["t_packed_sb2"]), times(whole, v["t_packed_sp2"]), across)
        panel.body.append(self.two.product(v, self._sums(rest) | {
            "lhs": plus(address(v["t_scores"]), times(whole, size)),
            "out": plus(address(v["t_sums"]), times(q, constant(columns * self.size))),
            "packed": plus(address(v["t_packed2"]), times(packed, size)),
            "block_panels": ONE, "panels": ONE, "full_panels": ONE, "accumulate": ONE,
        }))  # fmt: skip


def _row_of(length: int) -> int:
    """The elements of a row that a block has room for: of an open length the next power of 2, which is a guard, so that
    a block serves lengths for which about as many rows are right."""
    if isinstance(length, int):
        return length
    most = 1 << (typical(length) - 1).bit_length()
    return most if length <= most else typical(length)


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
