"""The contraction nest: matrix products with whatever makes their operands and whatever consumes their result.

out[b, i, j] = epilogue(sum over p of lhs(b, i, p) * rhs(b, p, j)) for b < batch, i < m, j < n, p < k.

`render` writes two kernel texts for a `ContractionSpec`; they hold for every shape and stride. `NAME_pack` copies rhs
into *panels* of as many columns as the register tile has, zeros behind the last column: panels[b, panel, p, column].
`NAME` does blocks of the result: for one block of rows and panels it goes through p in steps of `DEPTH`; in a step, one
panel of rhs (which stays in the first-level cache) meets the rows of lhs (which stay in the second-level cache).

- Where lhs or rhs is a function of its indices, it runs while the operand is packed; the lhs is packed by each block
  into scratch memory on the stack. A plain array is read in place where that is as fast (`step_plan` decides).
- A plain result is summed in place in the output. Where an epilogue consumes it, the sums of a block stay in scratch
  memory, and the epilogue runs over their rows when the last step is done.
- Every element is summed in the order of p, in partial sums of `DEPTH` products: its bits do not depend on the blocks,
  the threads, the machine's vectors or on which operand was packed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .source import KernelSource
from .tiles import ELEMENTS, TileShape, tile_shape

DEPTH = 256  # products in a partial sum: a panel of 16 float32 columns is then 16 KiB, half of a small L1 cache
GROUP_COLUMNS = 128  # columns packed together: enough for long vector loops in an element's code

Element = Callable[[str, str, str], tuple[list[str], str]]
Epilogue = Callable[[str, str, str, str], list[str]]


@dataclass(frozen=True)
class PlainOperand:
    """An operand that is an array in memory: `pointer` names the kernel's parameter, `dtype` its elements (HLO).

    Its strides, in elements, are arguments of the kernels: `lhs_sb, lhs_si, lhs_sp` or `rhs_sb, rhs_sp, rhs_sj`. They
    may be zero or negative.
    """

    pointer: str
    dtype: str


@dataclass(frozen=True)
class PlainStore:
    """The result goes as it is, in the accumulation dtype, to `pointer[(b*m + i)*n + j]`."""

    pointer: str


@dataclass(frozen=True)
class ContractionSpec:
    """What to contract.

    name:         name of the kernels.
    accumulate:   HLO dtype of the sums: f32, f64, s32, s64, u32 or u64 (integers wrap).
    lhs, rhs:     `PlainOperand`, or element(b, i, p) / element(b, p, j) -> (statements, expression): given the names of
                  index variables, the text of the operand's element, of dtype `accumulate`.
    epilogue:     `PlainStore`, or epilogue(value, b, i, j) -> statements that consume the sum named `value`.
    extra_params: (name, type) of every parameter that those texts use; types as in `KernelSource.params`. `batch`, `m`,
                  `n` and `k` need not be listed, the texts may use them.
    lhs_fast:     index along which the lhs element's memory is contiguous, "p" or "i": the loop to vectorize.
    rhs_fast:     the same for rhs, "j" or "p".

    The kernels' own variables begin with `t_`; the names in texts must not.
    """

    name: str
    accumulate: str
    lhs: Element | PlainOperand
    rhs: Element | PlainOperand
    epilogue: Epilogue | PlainStore
    extra_params: tuple[tuple[str, str], ...] = ()
    lhs_fast: str = "p"
    rhs_fast: str = "j"


@dataclass(frozen=True)
class Step:
    """One launch: `items` work items of `kernels[kernel]`, handed out in chunks of `grain`.

    arguments:   value of every s64 parameter that is not in the spec's `extra_params`, by name.
    temporaries: bytes of every temporary buffer the kernel gets, by parameter name, 64-byte aligned. The same name in
                 another step of the plan is the same buffer. 0 bytes: never touched, any address will do.
    """

    kernel: int
    items: int
    grain: int
    arguments: dict[str, int]
    temporaries: dict[str, int]


@dataclass(frozen=True)
class ContractionKernels:
    """The kernel texts (pack, contraction), the parameter names of each, and the shape of its blocks."""

    kernels: tuple[KernelSource, ...]
    parameters: tuple[tuple[str, ...], ...]
    spec: ContractionSpec
    tile: TileShape
    block_rows: int
    block_sums: int
    cores: int
    l1_bytes: int

    def step_plan(
        self,
        batch: int,
        m: int,
        n: int,
        k: int,
        lhs_strides: Sequence[int] = (0, 0, 0),
        rhs_strides: Sequence[int] = (0, 0, 0),
    ) -> list[Step]:
        """The launches that do a contraction of this shape; none when the result is empty.

        lhs_strides: (sb, si, sp) in elements, of a plain lhs. rhs_strides: (sb, sp, sj) of a plain rhs.
        """
        return _step_plan(self, batch, m, n, k, tuple(lhs_strides), tuple(rhs_strides))


def render(spec: ContractionSpec, machine) -> ContractionKernels:
    """The kernels of `spec` for a machine (`vector_bytes`, `vector_registers`, `l1_bytes`, `l2_bytes`, `cores`)."""
    tile = tile_shape(spec.accumulate, machine.vector_bytes, machine.vector_registers)
    size = ELEMENTS[spec.accumulate][2]
    # A block of lhs takes about a third of the second-level cache, and no more stack than threads surely have.
    rows = min(machine.l2_bytes // 3, 256 << 10) // (DEPTH * size)
    rows = max(tile.rows, rows // tile.rows * tile.rows)
    sums = max(min(machine.l2_bytes // 4, 128 << 10) // size, tile.rows * tile.columns)
    writer = _Writer(spec, tile, rows, sums, size)
    pack, contraction = writer.pack_kernel(), writer.contraction_kernel()
    return ContractionKernels(
        (pack[0], contraction[0]), (pack[1], contraction[1]), spec, tile, rows, sums, machine.cores, machine.l1_bytes
    )


def _indent(lines: Sequence[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line for line in lines]


def _loop(header: str, body: Sequence[str]) -> list[str]:
    return [header, *_indent(body)]


def _if(condition: str, then: Sequence[str], otherwise: Sequence[str] = ()) -> list[str]:
    return [f"if {condition}:", *_indent(then), *(["else:", *_indent(otherwise)] if otherwise else [])]


def _load(operand: PlainOperand, index: str, accumulate: str) -> str:
    """The element of a plain operand at `index`, in the accumulation dtype."""
    if operand.dtype == accumulate:
        return f"{operand.pointer}[{index}]"
    if operand.dtype in ("f16", "bf16", "pred"):
        value = f"load_{operand.dtype}({operand.pointer}, {index})"
        return value if (operand.dtype, accumulate) in (("f16", "f32"), ("bf16", "f32")) else f"{accumulate}({value})"
    return f"{accumulate}({operand.pointer}[{index}])"


class _Writer:
    """Writes the two kernels of one spec. `T` below stands for the accumulation dtype."""

    def __init__(self, spec: ContractionSpec, tile: TileShape, rows: int, sums: int, size: int):
        self.spec, self.tile, self.rows, self.sums, self.size = spec, tile, rows, sums, size
        self.dtype = spec.accumulate
        for name, _ in spec.extra_params:
            if re.match(r"t_|(lhs|rhs)_s[bijp]$|(batch|m|n|k|lo|hi)$", name):
                raise ValueError(f"contraction {spec.name}: the kernel has a variable {name!r} of its own")

    def in_place(self, operand) -> bool:
        return isinstance(operand, PlainOperand) and operand.dtype == self.dtype

    def kernel(self, name: str, own: Sequence[tuple[str, str]], body: Sequence[str]):
        """The KernelSource of a body, with those parameters of the spec and of `own` which it uses."""
        words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(body)))
        plain = [(x.pointer, f"{x.dtype}*") for x in (self.spec.lhs, self.spec.rhs) if isinstance(x, PlainOperand)]
        if isinstance(self.spec.epilogue, PlainStore):
            plain.append((self.spec.epilogue.pointer, f"{self.dtype}*"))
        given = dict([*plain, *self.spec.extra_params, *own])
        params = [(name, kind) for name, kind in given.items() if name in words] + [("lo", "s64"), ("hi", "s64")]
        text = "\n".join([f"def {name}({', '.join(name for name, _ in params)}):", *_indent(body)]) + "\n"
        return KernelSource(name, text, tuple(kind for _, kind in params)), tuple(name for name, _ in params)

    # --- packing rhs ---------------------------------------------------------------------------------------------

    def pack_kernel(self):
        spec, columns = self.spec, self.tile.columns
        group = max(1, GROUP_COLUMNS // columns)
        scratch = []
        if self.in_place(spec.rhs):
            along_j, along_p = self.copy_rows(), self.turn_rows(self.plain_turn())
            body = _if("rhs_sj == 1", along_j, along_p)
        else:
            lines_j = self.evaluate_rows(self.rhs_element("j"))
            lines_p = self.turn_rows(self.evaluated_turn(self.rhs_element("p")))
            if isinstance(spec.rhs, PlainOperand):
                body = _if("rhs_sp == 1 and rhs_sj != 1", lines_p, lines_j)
            else:
                body = lines_p if spec.rhs_fast == "p" else lines_j
            if body is not lines_p:
                scratch.append(f"t_line = scratch_{self.dtype}({group * columns})")
            if body is not lines_j:
                scratch.append(f"t_turn = scratch_{self.dtype}({columns * DEPTH})")
        item = [
            "t_b = t_item // (t_groups * t_chunks)",
            "t_rest = t_item - t_b * t_groups * t_chunks",
            f"t_q0 = t_first_panel + t_rest // t_chunks * {group}",
            f"t_q1 = min(t_q0 + {group}, t_panels)",
            f"t_p0 = t_rest % t_chunks * {DEPTH}",
            f"t_p1 = min(t_p0 + {DEPTH}, k)",
            # Panel q of this batch element begins at t_base + q * k * columns.
            f"t_base = (t_b * (t_panels - t_first_panel) - t_first_panel) * k * {columns}",
            *body,
        ]
        own = [("t_packed", f"{self.dtype}*")]
        own += [(x, "s64") for x in ("batch", "m", "n", "k", "rhs_sb", "rhs_sp", "rhs_sj")]
        own += [(x, "s64") for x in ("t_first_panel", "t_panels", "t_groups", "t_chunks")]
        text = [*scratch, "t_packed_at = address(t_packed)"]
        if self.in_place(spec.rhs):
            text.append(f"t_rhs_at = address({spec.rhs.pointer})")
        return self.kernel(f"{spec.name}_pack", own, [*text, *_loop("for t_item in range(lo, hi):", item)])

    def rhs_element(self, fast: str) -> Element:
        """The element code of rhs; of a plain rhs of another dtype, along p with the stride known to be one."""
        rhs = self.spec.rhs
        if not isinstance(rhs, PlainOperand):
            return rhs
        step = "" if fast == "p" else " * rhs_sp"
        return lambda b, p, j: ([], _load(rhs, f"{b} * rhs_sb + {p}{step} + {j} * rhs_sj", self.dtype))

    def copy_rows(self) -> list[str]:
        """Rows of rhs lie as panels want them: whole panels by vector copies, the edge of the last one by elements."""
        columns, size = self.tile.columns, self.size
        return [
            f"t_full = min(t_q1, n // {columns})",
            *_loop("for t_p in range(t_p0, t_p1):", [
                "t_row = t_b * rhs_sb + t_p * rhs_sp",
                *_loop("for t_q in range(t_q0, t_full):", [
                    f"copy_{self.dtype}_{columns}(t_rhs_at + (t_row + t_q * {columns}) * {size}, "
                    f"t_packed_at + (t_base + (t_q * k + t_p) * {columns}) * {size})",
                ]),
                *_if("t_full < t_q1", [
                    f"t_at = t_base + (t_full * k + t_p) * {columns}",
                    f"zero_{self.dtype}_{columns}(t_packed_at + t_at * {size})",
                    f"copy_first_{self.dtype}_{columns}(t_rhs_at + (t_row + t_full * {columns}) * {size},",
                    f"    t_packed_at + t_at * {size}, n - t_full * {columns})",
                ]),
            ]),
        ]

    def evaluate_rows(self, element: Element) -> list[str]:
        """Elements along j: a line of several panels is computed in one long loop, then cut into panels."""
        columns, size = self.tile.columns, self.size
        statements, value = element("t_b", "t_p", "t_j")
        return [
            "t_line_at = address(t_line)",
            f"t_j0 = t_q0 * {columns}",
            f"for t_x in range((t_q1 - t_q0) * {columns}):",
            f"    t_line[t_x] = {self.dtype}(0)",
            *_loop("for t_p in range(t_p0, t_p1):", [
                *_loop(f"for t_j in range(t_j0, min(t_q1 * {columns}, n)):", [
                    *statements, f"t_line[t_j - t_j0] = {value}",
                ]),
                *_loop("for t_q in range(t_q0, t_q1):", [
                    f"copy_{self.dtype}_{columns}(t_line_at + (t_q * {columns} - t_j0) * {size}, "
                    f"t_packed_at + (t_base + (t_q * k + t_p) * {columns}) * {size})",
                ]),
            ]),
        ]

    def turn_rows(self, source: tuple[list[str], str]) -> list[str]:
        """Memory is contiguous along p: square blocks are transposed in registers, their edges go by elements."""
        columns, size, lanes = self.tile.columns, self.size, self.tile.lanes
        prepare, (at, row, limit, element) = source[0], source[1]
        square = f"transpose_{self.dtype}_{lanes}x{lanes}"
        return [
            *_loop("for t_q in range(t_q0, t_q1):", [
                *prepare,
                *_loop(f"for t_x in range(0, {columns}, {lanes}):", [
                    "t_whole = t_p0",
                    *_if(f"{limit} >= t_q * {columns} + t_x + {lanes}", [
                        f"t_whole = t_p0 + (t_p1 - t_p0) // {lanes} * {lanes}",
                        *_loop(f"for t_p in range(t_p0, t_whole, {lanes}):", [
                            f"{square}({at}, {row}, "
                            f"t_packed_at + (t_base + (t_q * k + t_p) * {columns} + t_x) * {size}, {columns * size})",
                        ]),
                    ]),
                    *_loop("for t_p in range(t_whole, t_p1):", [
                        *_loop(f"for t_j in range(t_q * {columns} + t_x, t_q * {columns} + t_x + {lanes}):", [
                            f"t_at = t_base + (t_q * k + t_p) * {columns} + t_j - t_q * {columns}",
                            *_if("t_j < n", [f"t_packed[t_at] = {element}"], [f"t_packed[t_at] = {self.dtype}(0)"]),
                        ]),
                    ]),
                ]),
            ]),
        ]

    def plain_turn(self):
        """Where `turn_rows` finds a plain rhs; with no unit stride at all, every element goes alone."""
        columns, size = self.tile.columns, self.size
        at = f"t_rhs_at + (t_b * rhs_sb + (t_q * {columns} + t_x) * rhs_sj + t_p) * {size}"
        element = f"{self.spec.rhs.pointer}[t_b * rhs_sb + t_p * rhs_sp + t_j * rhs_sj]"
        return ["t_limit = n if rhs_sp == 1 else 0"], (at, f"rhs_sj * {size}", "t_limit", element)

    def evaluated_turn(self, element: Element):
        """Elements along p: the columns of a panel are computed one after another into t_turn[column, p]."""
        columns, size = self.tile.columns, self.size
        statements, value = element("t_b", "t_p", "t_j")
        prepare = [
            "t_turn_at = address(t_turn)",
            *_loop(f"for t_j in range(t_q * {columns}, min(t_q * {columns} + {columns}, n)):", [
                f"t_line_base = (t_j - t_q * {columns}) * {DEPTH} - t_p0",
                *_loop("for t_p in range(t_p0, t_p1):", [*statements, f"t_turn[t_line_base + t_p] = {value}"]),
            ]),
        ]
        at = f"t_turn_at + (t_x * {DEPTH} + t_p - t_p0) * {size}"
        return prepare, (at, str(DEPTH * size), "n", f"t_turn[(t_j - t_q * {columns}) * {DEPTH} + t_p - t_p0]")

    # --- the contraction -----------------------------------------------------------------------------------------

    def contraction_kernel(self):
        spec, size, dtype = self.spec, self.size, self.dtype
        rows, columns = self.tile.rows, self.tile.columns
        plain_store = isinstance(spec.epilogue, PlainStore)
        scratch = [
            f"t_left_block = scratch_{dtype}({self.rows * DEPTH + columns})",
            f"t_sums = scratch_{dtype}({self.rows * columns if plain_store else self.sums})",
            "t_left_at, t_sums_at, t_packed_at = address(t_left_block), address(t_sums), address(t_packed)",
        ]
        for operand, name in ((spec.lhs, "t_lhs_at"), (spec.rhs, "t_rhs_at")):
            if self.in_place(operand):
                scratch.append(f"{name} = address({operand.pointer})")
        packed_right = [
            f"t_right = t_packed_at + (((t_b * t_packed_batch + t_q - t_direct_panels) * k) + t_p0) * {columns * size}",
            f"t_right_k = {columns * size}",
        ]
        right = packed_right
        if self.in_place(spec.rhs):
            right = _if("t_q < t_direct_panels", [
                f"t_right = t_rhs_at + (t_b * rhs_sb + t_p0 * rhs_sp + t_q * {columns}) * {size}",
                f"t_right_k = rhs_sp * {size}",
            ], packed_right)
        if plain_store:
            scratch.append(f"t_out_at = address({spec.epilogue.pointer})")
            target = _if("t_q < t_full_panels", [
                f"t_target = t_out_at + ((t_b * m + t_i0) * n + t_q * {columns}) * {size}",
                f"t_target_row = n * {size}",
            ], ["t_target = t_sums_at", f"t_target_row = {columns * size}"])
            finish = self.store_edge()
        else:
            target = [
                f"t_target = t_sums_at + (t_q - t_q0) * {columns * size}",
                f"t_target_row = (t_q1 - t_q0) * {columns * size}",
            ]
            finish = self.run_epilogue()
        item = [
            "t_b = t_item // (t_row_blocks * t_column_blocks)",
            "t_rest = t_item - t_b * t_row_blocks * t_column_blocks",
            "t_i0 = t_rest // t_column_blocks * t_block_rows",
            "t_rows = min(t_block_rows, m - t_i0)",
            "t_q0 = t_rest % t_column_blocks * t_block_panels",
            "t_q1 = min(t_q0 + t_block_panels, t_panels)",
            *_loop(f"for t_p0 in range(0, max(k, 1), {DEPTH}):", [
                f"t_depth = min({DEPTH}, k - t_p0)",
                *self.left(),
                *_loop("for t_q in range(t_q0, t_q1):", [
                    *right,
                    *target,
                    *_loop(f"for t_r in range(0, t_rows, {rows}):", [
                        f"tile_{dtype}_{rows}x{columns}(t_left + t_r * t_left_step, t_left_row, t_left_k, "
                        "t_right, t_right_k,",
                        "    t_target + t_r * t_target_row, t_target_row, "
                        f"t_depth, min({rows}, t_rows - t_r), t_p0)",
                    ]),
                ]),
            ]),
            *finish,
        ]
        own = [("t_packed", f"{dtype}*")]
        own += [(x, "s64") for x in ("batch", "m", "n", "k")]
        own += [(x, "s64") for x in ("lhs_sb", "lhs_si", "lhs_sp", "rhs_sb", "rhs_sp", "rhs_sj")]
        own += [(x, "s64") for x in ("t_row_blocks", "t_column_blocks", "t_block_rows", "t_block_panels", "t_panels")]
        own += [(x, "s64") for x in ("t_full_panels", "t_direct_panels", "t_packed_batch", "t_pack_lhs")]
        return self.kernel(spec.name, own, [*scratch, *_loop("for t_item in range(lo, hi):", item)])

    def left(self) -> list[str]:
        """Where the tiles find lhs: in place or packed, row by row or (contiguous along i) tile by tile."""
        spec, size, rows = self.spec, self.size, self.tile.rows
        by_row = ["t_left = t_left_at", f"t_left_step = {DEPTH * size}", f"t_left_row = {DEPTH * size}",
                  f"t_left_k = {size}"]
        by_tile = ["t_left = t_left_at", f"t_left_step = {DEPTH * size}", f"t_left_row = {size}",
                   f"t_left_k = {rows * size}"]
        if self.in_place(spec.lhs):
            in_place = [
                f"t_left = t_lhs_at + (t_b * lhs_sb + t_i0 * lhs_si + t_p0 * lhs_sp) * {size}",
                f"t_left_step = lhs_si * {size}",
                f"t_left_row = lhs_si * {size}",
                f"t_left_k = lhs_sp * {size}",
            ]
            source = f"t_lhs_at + (t_b * lhs_sb + t_p * lhs_sp + (t_i0 + t_r) * lhs_si) * {size}"
            element = f"{spec.lhs.pointer}[t_b * lhs_sb + t_p * lhs_sp + (t_i0 + t_r) * lhs_si]"
            pack = [
                *_loop("for t_p in range(t_p0, t_p0 + t_depth):", [
                    f"t_whole = t_rows // {rows} * {rows} if lhs_si == 1 else 0",
                    *_loop(f"for t_r in range(0, t_whole, {rows}):", [
                        f"copy_{self.dtype}_{rows}({source},",
                        f"    t_left_at + (t_r * {DEPTH} + (t_p - t_p0) * {rows}) * {size})",
                    ]),
                    *_loop("for t_r in range(t_whole, t_rows):", [
                        f"t_left_block[(t_r // {rows} * {DEPTH} + t_p - t_p0) * {rows} + t_r % {rows}] = {element}",
                    ]),
                ]),
                *by_tile,
            ]
            return _if("t_pack_lhs != 0", pack, in_place)
        if isinstance(spec.lhs, PlainOperand):
            return _if("lhs_si == 1 and lhs_sp != 1", [*self.evaluate_tiles(self.lhs_element("i")), *by_tile],
                       [*self.evaluate_left(self.lhs_element("p")), *by_row])
        if spec.lhs_fast == "i":
            return [*self.evaluate_tiles(spec.lhs), *by_tile]
        return [*self.evaluate_left(spec.lhs), *by_row]

    def lhs_element(self, fast: str) -> Element:
        """The element code of a plain lhs of another dtype; along i the stride is known to be one."""
        lhs = self.spec.lhs
        at = "{b} * lhs_sb + {i} + {p} * lhs_sp" if fast == "i" else "{b} * lhs_sb + {i} * lhs_si + {p} * lhs_sp"
        return lambda b, i, p: ([], _load(lhs, at.format(b=b, i=i, p=p), self.dtype))

    def evaluate_left(self, element: Element) -> list[str]:
        statements, value = element("t_b", "t_i", "t_p")
        return _loop("for t_i in range(t_i0, t_i0 + t_rows):", [
            f"t_line_base = (t_i - t_i0) * {DEPTH} - t_p0",
            *_loop("for t_p in range(t_p0, t_p0 + t_depth):", [
                *statements, f"t_left_block[t_line_base + t_p] = {value}",
            ]),
        ])

    def evaluate_tiles(self, element: Element) -> list[str]:
        rows, size = self.tile.rows, self.size
        statements, value = element("t_b", "t_i", "t_p")
        return [
            f"t_line = scratch_{self.dtype}({self.rows + rows})",
            "t_line_at = address(t_line)",
            *_loop("for t_p in range(t_p0, t_p0 + t_depth):", [
                *_loop("for t_i in range(t_i0, t_i0 + t_rows):", [*statements, f"t_line[t_i - t_i0] = {value}"]),
                *_loop(f"for t_r in range(0, t_rows, {rows}):", [
                    f"copy_{self.dtype}_{rows}(t_line_at + t_r * {size}, "
                    f"t_left_at + (t_r * {DEPTH} + (t_p - t_p0) * {rows}) * {size})",
                ]),
            ]),
        ]

    def store_edge(self) -> list[str]:
        columns, size = self.tile.columns, self.size
        return _if("t_q1 > t_full_panels", _loop("for t_r in range(t_rows):", [
            f"t_at = (t_b * m + t_i0 + t_r) * n + t_full_panels * {columns}",
            f"copy_first_{self.dtype}_{columns}(t_sums_at + t_r * {columns * size}, t_out_at + t_at * {size},",
            f"    n - t_full_panels * {columns})",
        ]))

    def run_epilogue(self) -> list[str]:
        columns = self.tile.columns
        return _loop("for t_i in range(t_i0, t_i0 + t_rows):", [
            f"t_at = ((t_i - t_i0) * (t_q1 - t_q0) - t_q0) * {columns}",
            *_loop(f"for t_j in range(t_q0 * {columns}, min(t_q1 * {columns}, n)):", [
                "t_sum = t_sums[t_at + t_j]",
                *self.spec.epilogue("t_sum", "t_b", "t_i", "t_j"),
            ]),
        ])


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _step_plan(kernels: ContractionKernels, batch, m, n, k, lhs_strides, rhs_strides) -> list[Step]:
    if min(batch, m, n) <= 0:
        return []
    spec, tile = kernels.spec, kernels.tile
    size = ELEMENTS[spec.accumulate][2]
    plain_lhs = isinstance(spec.lhs, PlainOperand) and spec.lhs.dtype == spec.accumulate
    plain_rhs = isinstance(spec.rhs, PlainOperand) and spec.rhs.dtype == spec.accumulate
    plain_store = isinstance(spec.epilogue, PlainStore)
    lhs_sb, lhs_si, lhs_sp = lhs_strides
    rhs_sb, rhs_sp, rhs_sj = rhs_strides
    if plain_store and isinstance(spec.lhs, PlainOperand) and isinstance(spec.rhs, PlainOperand) and batch > 1:
        if rhs_sb == 0 and lhs_sb == m * lhs_si:  # one rhs for rows that follow each other: a single matrix product
            batch, m = 1, batch * m

    panels, full = _ceil(n, tile.columns), n // tile.columns
    tiles = _ceil(m, tile.rows)
    row_blocks, block_rows, column_blocks, block_panels = _blocks(kernels, batch, m, n, k, plain_store)

    # Packing rhs costs a pass over it, and pays when several tiles of rows use a panel.
    direct = 0
    if plain_rhs and rhs_sj == 1 and (tiles <= 4 or _fits(kernels, k, rhs_sp, size)):
        direct = full
    pack_lhs = 0
    if plain_lhs and lhs_sp != 1:
        block = min(block_rows, m) * min(k, DEPTH)
        pack_lhs = int(block * size > kernels.l1_bytes and block_panels > 2)
    packed_batch = panels - direct
    same_rhs = isinstance(spec.rhs, PlainOperand) and rhs_sb == 0
    rhs_batch = 1 if same_rhs else batch

    shape = {"batch": batch, "m": m, "n": n, "k": k}
    names = ("lhs_sb", "lhs_si", "lhs_sp", "rhs_sb", "rhs_sp", "rhs_sj")
    strides = dict(zip(names, (*lhs_strides, *rhs_strides), strict=True))
    buffer = {"t_packed": rhs_batch * packed_batch * k * tile.columns * size}
    steps = []
    if packed_batch and k:
        groups = _ceil(packed_batch, max(1, GROUP_COLUMNS // tile.columns))
        chunks = _ceil(k, DEPTH)
        items = rhs_batch * groups * chunks
        own = {"t_first_panel": direct, "t_panels": panels, "t_groups": groups, "t_chunks": chunks}
        elements = min(n, GROUP_COLUMNS) * min(k, DEPTH)
        steps.append(_step(kernels, 0, items, max(1, _ceil(1 << 15, elements)), shape | strides | own, buffer))
    own = {
        "t_row_blocks": row_blocks,
        "t_column_blocks": column_blocks,
        "t_block_rows": block_rows,
        "t_block_panels": block_panels,
        "t_panels": panels,
        "t_full_panels": full,
        "t_direct_panels": direct,
        "t_packed_batch": 0 if same_rhs else packed_batch,
        "t_pack_lhs": pack_lhs,
    }
    items = batch * row_blocks * column_blocks
    work = block_rows * min(n, block_panels * tile.columns) * max(k, 1)
    steps.append(_step(kernels, 1, items, max(1, SERIAL_WORK // work), shape | strides | own, buffer))
    return steps


SERIAL_WORK = 1 << 18  # products (about 10 microseconds of one core) below which a chunk of work is not worth a thread


def _fits(kernels: ContractionKernels, k: int, row: int, size: int) -> bool:
    """Whether a panel read in place stays in the first-level cache while all tiles of rows use it."""
    depth = min(k, DEPTH)
    lines = kernels.l1_bytes // 64
    return depth * _ceil(kernels.tile.columns * size, 64) <= lines // 2 and (abs(row) * size % 1024 != 0 or depth <= 64)


def _blocks(kernels: ContractionKernels, batch: int, m: int, n: int, k: int, plain_store: bool):
    """(row blocks, rows of a block, column blocks, panels of a block)."""
    tile = kernels.tile
    panels = _ceil(n, tile.columns)
    block_rows, block_panels = min(kernels.block_rows, _ceil(m, tile.rows) * tile.rows), panels
    if not plain_store:
        # The sums of a block live in scratch memory.
        block_panels = min(panels, max(1, kernels.block_sums // (block_rows * tile.columns)))
        block_rows = min(block_rows, kernels.block_sums // (block_panels * tile.columns) // tile.rows * tile.rows)

    def count():
        return batch * _ceil(m, block_rows) * _ceil(panels, block_panels)

    def work():
        return block_rows * block_panels * tile.columns * max(k, 1)

    # Smaller blocks until every core has some, as long as a block is worth a thread.
    wanted = 4 * kernels.cores if kernels.cores > 1 else 1
    while count() < wanted and work() >= 2 * SERIAL_WORK:
        if block_panels * tile.columns >= 2 * block_rows and block_panels > 1 or block_rows <= tile.rows:
            if block_panels == 1:
                break
            block_panels = _ceil(block_panels, 2)
        else:
            block_rows = _ceil(block_rows // tile.rows, 2) * tile.rows
    # Blocks of about equal size.
    row_blocks, column_blocks = _ceil(m, block_rows), _ceil(panels, block_panels)
    block_rows = _ceil(_ceil(m, row_blocks), tile.rows) * tile.rows
    block_panels = _ceil(panels, column_blocks)
    return _ceil(m, block_rows), block_rows, _ceil(panels, block_panels), block_panels


def _step(kernels: ContractionKernels, kernel: int, items: int, grain: int, values: dict, buffer: dict) -> Step:
    names = kernels.parameters[kernel]
    arguments = {name: value for name, value in values.items() if name in names}
    return Step(kernel, items, grain, arguments, {name: x for name, x in buffer.items() if name in names})

