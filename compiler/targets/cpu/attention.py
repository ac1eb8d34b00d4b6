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

import re
from collections.abc import Mapping

from hloom.compiler.kernel_ir import printer
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernels.attention.rows import RowNest
from hloom.compiler.kernels.attention.structure import SCORES, SUMS, Attention, attention_of
from hloom.compiler.kernels.codegen.elements import fallbacks, load, with_stores
from hloom.compiler.kernels.codegen.serial import indent
from hloom.compiler.kernels.codegen.source import KernelSource
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
from hloom.compiler.kernels.launch import Launch, launch_by_grain
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.compiler.targets.cpu.machine import Machine
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

    def product(self, values: dict[str, str]) -> list[str]:
        """The call of the shared product for one block. values: of its parameters; of others this contraction's own."""
        code, number, size = self.right.code, self.number, self.kernels.blocking.size
        pointer = f"t_packed{number}"
        if isinstance(code, PlainOperand) and code.dtype == self.kernels.spec.accumulate:
            pointer = code.pointer  # read in place
        given = {
            "rhs": f"address({pointer}) + t_b * t_rhs_sb{number} * {size}",
            "packed": f"address(t_packed{number}) + t_b * t_packed_sb{number} * {size}",
            "lhs_sb": "0", "lhs_sp": "1", "rhs_sb": "0", "packed_sb": "0", "out_sb": "0", "row_blocks": "1",
            "column_blocks": "1", "block_rows": "t_rows", "m": "t_rows", "block_panels": f"t_panels{number}",
            "full_panels": f"t_panels{number}", "pack_lhs": "0", "accumulate": "0",
            "line_rows": "0", "line_start": "0", "line_offsets": "0", "run": "0", "run_offsets": "0", "soon": "0",
            "soon_bytes": "0",
        } | values  # fmt: skip
        words = [given.get(name, f"t_{name}{number}") for name in list(PRODUCT_PARAMS)[:-2]]
        return [f"call_kernel(t_product, 0, 1, {', '.join(words)})"]


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
        self.nest = RowNest(request, attention, self.dtype, self.integers)
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
        text, own = self._text()
        source, arguments = self._source(self.request.title("attention"), text, own)
        packing = [*self.one.packing, *self.two.packing]
        if self.nest.mask:
            packing.append(self._openness(own))
        words = set(source.text.split("(", 1)[1].split(")", 1)[0].split(", "))
        temporaries = {name: 0 for name in TEMPORARIES if name in words}
        for launch in packing:
            temporaries |= {name: size for name, size in launch.temporaries.items() if name in words}
        work = typical(self.block_rows * (self.n * self.k + self.n * self.d))
        items = self.batch * ceil(self.m, self.block_rows)
        grain = max(1, SERIAL_WORK // work)
        chosen = with_stores(source, self.request.past_caches(*self.request.outputs[0].dims[-1:]))
        launch = launch_by_grain(chosen, arguments, items, grain, temporaries, typical(items) * work * PRODUCT_WORK)
        launch.fallbacks = fallbacks(source, self.request.leaving_names)
        return [*packing, launch]

    def _source(self, name: str, lines: list[str], own: dict) -> tuple[KernelSource, list]:
        """A kernel of these lines, and the values of its parameters: those pointers and integers that it uses."""
        text = "\n".join(indent(lines)) + "\n"
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        pointers = {self.request.names[p]: f"{HLO_NAME[p.dtype]}*" for p in self.request.computation.parameters}
        pointers |= {self.request.output_name(k): f"{HLO_NAME[o.dtype]}*" for k, o in enumerate(self.request.outputs)}
        pointers |= dict.fromkeys(TEMPORARIES, f"{self.dtype}*")
        integers = self.integers | own
        names = [name for name in (*pointers, *integers) if name in words]
        types = [pointers.get(name, "s64") for name in names] + ["s64", "s64"]
        source = KernelSource(name, f"def {name}({', '.join([*names, 'lo', 'hi'])}):\n{text}", tuple(types))
        return source, [name if name in pointers else integers[name] for name in names]

    def _text(self) -> tuple[list[str], dict[str, object]]:
        """The body of the kernel, and the values of its own integer parameters."""
        size, columns, dtype, nest = self.size, self.tile.columns, self.dtype, self.nest
        scores = {
            "lhs": "address(t_left)", "lhs_si": "t_left_row", "k": "k", "n": "n",
            "out": "address(t_scores)", "out_si": "t_line",
        }  # fmt: skip
        queries = self._queries()
        if not queries:
            assert isinstance(self.queries.code, PlainOperand)
            at = f"(t_b * t_queries_sb + t_i0 * t_queries_si) * {size}"
            scores |= {"lhs": f"address({self.queries.code.pointer}) + {at}", "lhs_si": "t_queries_si"}
        row = ["t_r = t_i - t_i0", "t_at = t_r * t_line", *nest.row]
        rows = "for t_i in range(t_i0, t_i0 + t_rows):"
        scratch = [f"t_scores = scratch_{dtype}({SCORES // size})"]
        scratch += [
            f"{name} = scratch_{dtype}({SUMS // size})" for name in ("t_sums", *(("t_left",) if queries else ()))
        ]
        scratch += [f"t_kept{k} = scratch_{dtype}({ROWS})" for k in range(len(self.attention.needed))]
        if nest.mask:
            scratch += [f"t_tails = scratch_{dtype}({ROWS})", f"t_ends = scratch_s64({ROWS})"]
            scores["block_panels"] = f"quotient(t_limit + {columns - 1}, {columns})"
            attempt = [
                "t_limit = 0",
                *_loop(rows, nest.limit),
                "t_limit = min(t_limit, n)",
                *self.one.product(scores),
                "t_length = t_limit",
                *_loop(rows, row),
                *self._hidden(),
                *self._masked_sums(),
            ]
        else:
            attempt = [*self.one.product(scores), *_loop(rows, row), *self.two.product(self._sums("n"))]
        if nest.divides:
            scratch += [f"t_divisors = scratch_{dtype}({ROWS})", f"t_exact = scratch_s64({ROWS})"]
            body = [
                *_loop("for t_r in range(t_rows):", ["t_exact[t_r] = 0"]),
                "t_again = 1",
                *_loop("while t_again != 0:", [*attempt, "t_again = 0", *_loop(rows, nest.result)]),
            ]
        else:
            body = [*attempt, *_loop(rows, nest.result)]
        item = [
            "t_b = quotient(t_item, t_row_blocks)",
            "t_i0 = (t_item - t_b * t_row_blocks) * t_block_rows",
            "t_rows = min(t_block_rows, m - t_i0)",
            *nest.item,
            *queries,
            *body,
        ]
        return [*scratch, *_loop("for t_item in range(lo, hi):", item)], self._parameters()

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

    def _sums(self, length: str) -> dict[str, str]:
        """What the product is told to multiply weights with the first `length` values."""
        return {
            "lhs": "address(t_scores)", "lhs_si": "t_line", "k": length, "n": "d",
            "out": "address(t_sums)", "out_si": "t_width",
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

    def _element(self, operand: Operand, instruction, name: str, at: tuple[str, str, str]) -> tuple[list[str], str]:
        """(statements, the value of an operand's element)."""
        code = operand.code
        if not isinstance(code, PlainOperand):
            statements, value = code(Names(by_name), *at)
            return printer.lines(statements), str(value)
        roles = "bip" if name == "queries" else "bpj"
        steps = [f"{variable} * t_{name}_s{role}" for variable, role in zip(at, roles, strict=True)]
        if operand.strides[2] == 1:
            steps[2] = at[2]
        return [], self.nest.cast(load(code.pointer, " + ".join(steps), instruction.dtype), instruction)

    def _reads_queries(self) -> bool:
        """Whether tiles read the queries where they lie: rows that do not share sets of the caches."""
        code, (_, step, along) = self.queries.code, self.queries.strides
        plain = isinstance(code, PlainOperand) and code.dtype == self.dtype
        return plain and along == 1 and step * self.size % PERIOD != 0

    def _queries(self) -> list[str]:
        """Statements that compute or copy a block of queries; none where tiles read them where they lie."""
        first = self.attention.first.operands[0]
        if self._reads_queries():
            return []
        statements, value = self._element(self.queries, first, "queries", ("t_b", "t_i", "t_p"))
        inner = _loop("for t_p in range(k):", [*statements, f"t_left[t_at + t_p] = {value}"])
        return _loop("for t_i in range(t_i0, t_i0 + t_rows):", ["t_at = (t_i - t_i0) * t_left_row", *inner])

    # --- what a mask hides ---

    def _openness(self, own: dict) -> Launch:
        """The kernel that looks for infinities and NaN among the values, by parts of keys: 0 or NaN for each part.
        A weight of 0 makes NaN of them, so that hidden values are left out only where there are none."""
        second = self.attention.second.operands[1]
        statements, value = self._element(self.two.right, second, "values", ("t_b", "t_p", "t_j"))
        add = f"t_zero = sum_{self.dtype}(t_zero, {value} * {self.dtype}(0))"
        lines = _loop(
            "for t_item in range(lo, hi):",
            [
                "t_b = quotient(t_item, t_parts)",
                f"t_p0 = (t_item - t_b * t_parts) * {PART}",
                f"t_zero = {self.dtype}(0)",
                *_loop(
                    f"for t_p in range(t_p0, min(t_p0 + {PART}, n)):", _loop("for t_j in range(d):", [*statements, add])
                ),
                "t_open[t_item] = t_zero",
            ],
        )
        source, arguments = self._source(f"{self.request.title('attention')}_finite", lines, own)
        items = self.batch * own["t_parts"]
        grain = max(1, (1 << 16) // (PART * self.d))
        return launch_by_grain(source, arguments, items, grain, {"t_open": items * self.size})

    def _hidden(self) -> list[str]:
        """Statements that decide how many values are multiplied, and give the hidden ones among them their weights."""
        add = f"t_zero = sum_{self.dtype}(t_zero, t_open[t_b * t_parts + t_p])"
        fill = ["t_at = t_r * t_line", "t_tail = t_tails[t_r]"]
        fill += _loop("for t_j in range(t_ends[t_r], t_length):", ["t_scores[t_at + t_j] = t_tail"])
        return [
            f"t_zero = {self.dtype}(0)",
            *_loop(f"for t_p in range(quotient(t_length, {PART}), t_parts):", [add]),
            *_loop("if t_zero != 0 or t_direct_panels2 > 0:", ["t_length = n"]),
            *_loop("for t_r in range(t_rows):", fill),
        ]

    def _masked_sums(self) -> list[str]:
        """The second product over `t_length` values: whole steps of them at once, the rest of a step panel by panel,
        since a step's panels lie as far apart as all of it is long."""
        size, columns = self.size, self.tile.columns
        rest = self._sums("t_rest") | {
            "lhs": f"address(t_scores) + t_whole * {size}",
            "out": f"address(t_sums) + t_q * {columns * size}",
            "packed": "address(t_packed2) + (t_b * t_packed_sb2 + t_whole * t_packed_sp2 + "
            f"t_q * min(t_step2, n - t_whole) * {columns}) * {size}",
            "block_panels": "1", "panels": "1", "full_panels": "1", "accumulate": "1",
        }  # fmt: skip
        return [
            "t_whole = quotient(t_length, t_step2) * t_step2",
            *_loop("if t_length == n:", ["t_whole = n"]),
            "t_rest = t_length - t_whole",
            *self.two.product(self._sums("t_whole")),
            *_loop("if t_rest > 0:", _loop("for t_q in range(t_panels2):", self.two.product(rest))),
        ]


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


def _loop(header: str, body: list[str]) -> list[str]:
    return [header, *indent(body)]
