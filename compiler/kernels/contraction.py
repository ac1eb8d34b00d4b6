"""The contraction nest: matrix products with whatever makes their operands and whatever consumes their result.

out[b, i, j] = epilogue(sum over p of lhs(b, i, p) * rhs(b, p, j)) for b < batch, i < m, j < n, p < k.

Two kernel texts (`contraction_shared`) serve every contraction of one accumulation dtype, for all shapes and strides:
`pack_T` copies rhs into *panels* of as many columns as the register tile has, and `product_T` multiplies blocks of
rows with panels. What is special to one `ContractionSpec` is small, because it is compiled for each: a kernel that
evaluates rhs into panels, and one that evaluates a block of lhs into scratch memory, calls `product_T` on it (by its
address, as every kernel can be called) and runs the epilogue over the rows of the sums, which are still in the cache.

- Where an operand is a function of its indices, that runs while the operand is packed; a plain array is read in place
  where that is as fast (`step_plan` decides). A plain result is summed in place in the output.
- Every element is summed in the order of p, in partial sums of `depth_step(k)` products: its bits do not depend on the
  blocks, the threads, the width of the machine's vectors, or on which operand was packed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .contraction_shared import (
    DEPTH,
    GAP,
    GROUP_COLUMNS,
    MOST_ROWS,
    PACK_PARAMS,
    PRODUCT_PARAMS,
    Blocking,
    indent,
    pack_kernel,
    product_kernel,
)
from .source import KernelSource
from .tile_shapes import ITEMSIZES, tile_shape

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
class FilledOperand:
    """A lhs that fills a block of scratch memory itself.

    lines(row) -> the statements that write, for t_i0 <= i < t_i0 + t_rows and t_p0 <= p < t_p0 + t_depth of batch t_b,
    the element (i, p) to `t_left`: at (i - t_i0) * row + p - t_p0 where the spec's `lhs_fast` is "p", at
    (p - t_p0) * row + i - t_i0 where it is "i".
    """

    lines: Callable[[str], list[str]]


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
    rhs_batched:  False where the rhs element does not depend on b, so that it is packed once.
    epilogue_fast: index along which the epilogue's memory is contiguous, "j" or "i".

    The kernels' own variables begin with `t_`; the names in texts must not.
    """

    name: str
    accumulate: str
    lhs: Element | PlainOperand | FilledOperand
    rhs: Element | PlainOperand
    epilogue: Epilogue | PlainStore
    extra_params: tuple[tuple[str, str], ...] = ()
    lhs_fast: str = "p"
    rhs_fast: str = "j"
    rhs_batched: bool = True
    epilogue_fast: str = "j"


@dataclass(frozen=True)
class KernelAddress:
    """As the value of an argument: the native address of `kernels[kernel]`."""

    kernel: int


@dataclass(frozen=True)
class Step:
    """One launch: `items` work items of `kernels[kernel]`, handed out in chunks of `grain`.

    arguments:   value of every s64 parameter that is not in the spec's `extra_params`, by name.
    pointers:    for parameters that are named otherwise than in the spec (those of the shared kernels): the name of the
                 spec's pointer, or of the temporary, that goes there.
    temporaries: bytes of every temporary buffer the kernel gets, by name, 64-byte aligned. The same name in another
                 step of the plan is the same buffer. 0 bytes: never touched, any address will do.
    """

    kernel: int
    items: int
    grain: int
    arguments: dict[str, int | KernelAddress]
    pointers: dict[str, str]
    temporaries: dict[str, int]


@dataclass(frozen=True)
class ContractionKernels:
    """The kernel texts of a spec. A plan may use only some of them.

    kernels:    `pack_T` and `product_T`, equal texts for all specs of a dtype, then the spec's own.
    parameters: the parameter names of each, in the order of its `params`.
    fused:      index of the kernel with the spec's lhs and epilogue; `product_T` itself where both are plain.
    packing:    index of the kernel that packs rhs.
    """

    kernels: tuple[KernelSource, ...]
    parameters: tuple[tuple[str, ...], ...]
    spec: ContractionSpec
    blocking: Blocking
    fused: int
    packing: int

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
        from .contraction_plan import step_plan

        return step_plan(self, batch, m, n, k, tuple(lhs_strides), tuple(rhs_strides))


PACK, PRODUCT = 0, 1
NARROW = ("s8", "u8", "s16", "pred")  # dtypes whose values are 16-bit integers with a sign


def render(spec: ContractionSpec, machine) -> ContractionKernels:
    """The kernels of `spec` for a machine (`vector_bytes`, `vector_registers`, `l1_bytes`, `l2_bytes`, `cores`)."""
    for name, _ in spec.extra_params:
        if re.match(r"t_|(lhs|rhs)_s[bijp]$|(batch|m|n|k|lo|hi)$", name):
            raise ValueError(f"contraction {spec.name}: the kernel has a variable {name!r} of its own")
    tile = tile_shape(spec.accumulate, machine.vector_bytes, machine.vector_registers)
    size = ITEMSIZES[spec.accumulate]
    # A block of lhs takes about a third of the second-level cache. Larger ones were slower even where they fitted: the
    # same rows of the result have to stay there too, from one partial sum to the next.
    area = min(machine.l2_bytes // 3, 144 << 10) // size
    sums = max(min(machine.l2_bytes // 4, 128 << 10) // size, tile.rows * tile.columns)
    narrow = all(isinstance(x, PlainOperand) and x.dtype in NARROW for x in (spec.lhs, spec.rhs))
    pairs = narrow and spec.accumulate in ("s32", "u32")
    blocking = Blocking(spec.accumulate, size, tile, area, sums, machine.l1_bytes, machine.cores, pairs)
    kernels = [pack_kernel(blocking), product_kernel(blocking)]
    parameters = [tuple(PACK_PARAMS), tuple(PRODUCT_PARAMS)]
    fused, packing = PRODUCT, PACK
    writer = _Writer(spec, blocking)
    if not (is_same(spec, spec.lhs) and isinstance(spec.epilogue, PlainStore)):
        fused = len(kernels)
        kernel, names = writer.fused_kernel()
        kernels.append(kernel)
        parameters.append(names)
    if not is_same(spec, spec.rhs):
        packing = len(kernels)
        kernel, names = writer.rhs_kernel()
        kernels.append(kernel)
        parameters.append(names)
    return ContractionKernels(tuple(kernels), tuple(parameters), spec, blocking, fused, packing)


def is_same(spec: ContractionSpec, operand: Element | PlainOperand) -> bool:
    """Whether an operand is an array of the accumulation dtype, which tiles can read in place."""
    return isinstance(operand, PlainOperand) and operand.dtype == spec.accumulate


def _loop(header: str, *body: str | list[str]) -> list[str]:
    lines = [line for part in body for line in ([part] if isinstance(part, str) else part)]
    return [header, *indent(lines)]


def _load(operand: PlainOperand, index: str, accumulate: str) -> str:
    """The element of a plain operand at `index`, in the accumulation dtype."""
    if operand.dtype == accumulate:
        return f"{operand.pointer}[{index}]"
    if operand.dtype in ("f16", "bf16", "pred"):
        value = f"load_{operand.dtype}({operand.pointer}, {index})"
        return value if (operand.dtype, accumulate) in (("f16", "f32"), ("bf16", "f32")) else f"{accumulate}({value})"
    return f"{accumulate}({operand.pointer}[{index}])"


class _Writer:
    """Writes the kernels of one spec."""

    def __init__(self, spec: ContractionSpec, blocking: Blocking):
        self.spec, self.blocking = spec, blocking
        self.dtype, self.size, self.columns = spec.accumulate, blocking.size, blocking.tile.columns
        self.adjacent = False  # whether lhs_sp is known to be 1
        self.alone = False  # the last of an odd number of elements, without a second one for its pair

    def kernel(self, name: str, own: Sequence[tuple[str, str]], body: Sequence[str]):
        """The KernelSource of a body, with those parameters of the spec and of `own` which it uses, and their names."""
        words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(body)))
        plain = [(x.pointer, f"{x.dtype}*") for x in (self.spec.lhs, self.spec.rhs) if isinstance(x, PlainOperand)]
        if isinstance(self.spec.epilogue, PlainStore):
            plain.append((self.spec.epilogue.pointer, f"{self.dtype}*"))
        given = dict([*plain, *self.spec.extra_params, *own])
        params = [(name, kind) for name, kind in given.items() if name in words] + [("lo", "s64"), ("hi", "s64")]
        text = "\n".join([f"def {name}({', '.join(name for name, _ in params)}):", *indent(body)]) + "\n"
        return KernelSource(name, text, tuple(kind for _, kind in params)), tuple(name for name, _ in params)

    def call(self, function: str, params: Sequence[str], values: dict[str, str], item: str = "0") -> list[str]:
        """A call of a shared kernel for one item, the arguments given by name (the others are zero)."""
        listed = ", ".join(values.get(name, "0") for name in list(params)[:-2])
        return [f"call_kernel({function}, {item}, {item} + 1, {listed})"]

    # --- rhs -----------------------------------------------------------------------------------------------------

    def rhs_kernel(self):
        """Evaluates rhs into panels; items are (batch element, group of panels, step of p)."""
        spec, columns = self.spec, self.columns
        group = max(1, GROUP_COLUMNS // columns)
        lines, turned = self.rhs_lines(group), self.rhs_turned()
        if isinstance(spec.rhs, PlainOperand):
            body = ["if rhs_sp == 1 and rhs_sj != 1:", *indent(turned), "else:", *indent(lines)]
        else:
            body = turned if spec.rhs_fast == "p" else lines
        used = "\n".join(body)
        scratch = []
        if "t_line" in used:
            scratch += [f"t_line = scratch_{self.dtype}({group * columns})"]
        if "t_turn" in used:
            scratch += [f"t_turn = scratch_{self.dtype}({columns * (DEPTH + GAP)})"]
        text = [
            *scratch,
            *_loop(
                "for t_item in range(lo, hi):",
                "t_strip = quotient(t_item, t_chunks)",
                "t_b = quotient(t_strip, t_groups)",
                f"t_q0 = (t_strip - t_b * t_groups) * {group}",
                f"t_q1 = min(t_q0 + {group}, t_panels)",
                "t_p0 = (t_item - t_strip * t_chunks) * t_step",
                "t_p1 = min(t_p0 + t_step, k)",
                "t_depth = t_p1 - t_p0",
                f"t_base = address(t_packed) + ((t_b * k + t_p0) * t_panels - t_p0) * {columns * self.size}",
                body,
            ),
        ]
        own = [("t_packed", f"{self.dtype}*")]
        own += [(x, "s64") for x in ("batch", "m", "n", "k", "rhs_sb", "rhs_sp", "rhs_sj")]
        own += [(x, "s64") for x in ("t_panels", "t_groups", "t_chunks", "t_step", "t_pack", "t_k")]
        return self.kernel(f"{spec.name}_rhs", own, text)

    def rhs_element(self, fast: str) -> Element:
        """The element code of rhs; of a plain rhs of another dtype, along p with the stride known to be one."""
        rhs = self.spec.rhs
        if not isinstance(rhs, PlainOperand):
            return rhs
        step = "" if fast == "p" else " * rhs_sp"
        return lambda b, p, j: self.load(rhs, lambda p: f"{b} * rhs_sb + {p}{step} + {j} * rhs_sj", p)

    def load(self, operand: PlainOperand, at: Callable[[str], str], p: str) -> tuple[list[str], str]:
        """The element of a plain operand at p; of pairs the word of elements 2 p and 2 p + 1, or of the first alone."""
        if not self.blocking.pairs:
            return [], _load(operand, at(p), self.dtype)
        first = f"s64({_load(operand, at(f'(2 * {p})'), self.dtype)}) & 65535"
        if self.alone:
            return [], f"{self.dtype}({first})"
        second = f"s64({_load(operand, at(f'(2 * {p} + 1)'), self.dtype)})"
        return [], f"{self.dtype}(({first}) | ({second} << 16))"

    def over_p(self, start: str, stop: str, body: Callable[[], list[str]]) -> list[str]:
        """`body` for every p; of pairs the last may be a single element."""
        if not self.blocking.pairs:
            return _loop(f"for t_p in range({start}, {stop}):", body())
        both = _loop(f"for t_p in range({start}, t_even):", body())
        self.alone = True
        last = _loop(f"for t_p in range(t_even, {stop}):", body())
        self.alone = False
        return [f"t_even = min({stop}, quotient(t_k, 2))", *both, *last]

    def rhs_lines(self, group: int) -> list[str]:
        """Elements along j: a line of several panels is computed in one long loop, then cut into panels."""
        columns, size = self.columns, self.size

        def line() -> list[str]:
            statements, value = self.rhs_element("j")("t_b", "t_p", "t_j")
            return [
                *_loop(
                    f"for t_j in range(t_j0, min(t_q1 * {columns}, n)):",
                    [*statements, f"t_line[t_j - t_j0] = {value}"],
                ),
                *_loop(
                    "for t_q in range(t_q0, t_q1):",
                    f"copy_{self.dtype}_{columns}(address(t_line) + (t_q - t_q0) * {columns * size}, "
                    f"t_base + (t_q * t_depth + t_p) * {columns * size})",
                ),
            ]

        return [
            f"t_j0 = t_q0 * {columns}",
            *_loop(f"for t_x in range({group * columns}):", f"t_line[t_x] = {self.dtype}(0)"),
            *self.over_p("t_p0", "t_p1", line),
        ]

    def rhs_turned(self) -> list[str]:
        """Elements along p: the columns of a panel are computed one after another, then transposed into the panel."""
        columns, size = self.columns, self.size

        def element() -> list[str]:
            statements, value = self.rhs_element("p")("t_b", "t_p", "t_j")
            return [*statements, f"t_turn[t_at + t_p] = {value}"]

        pack = {
            "rhs": "address(t_turn)", "packed": f"t_base + (t_q * t_depth + t_p0) * {columns * size}",
            "n": f"min({columns}, n - t_q * {columns})", "k": "t_depth", "rhs_sp": "1", "rhs_sj": str(DEPTH + GAP),
            "panels": "1", "groups": "1", "chunks": "1", "step": "t_depth",
        }  # fmt: skip
        return _loop(
            "for t_q in range(t_q0, t_q1):",
            _loop(
                f"for t_j in range(t_q * {columns}, min(t_q * {columns} + {columns}, n)):",
                f"t_at = (t_j - t_q * {columns}) * {DEPTH + GAP} - t_p0",
                self.over_p("t_p0", "t_p1", element),
            ),
            self.call("t_pack", PACK_PARAMS, pack),
        )

    # --- lhs and epilogue ----------------------------------------------------------------------------------------

    def fused_kernel(self):
        """Evaluates blocks of lhs, multiplies them with panels, runs the epilogue; items are blocks of the result."""
        spec, columns, size = self.spec, self.columns, self.size
        scratch = []
        # The product gets our item of the same blocks, and addresses moved so that its block lies in scratch memory.
        blocks = ("row_blocks", "column_blocks", "block_rows", "block_panels", "panels", "packed_sb", "packed_sp")
        product = {name: f"t_{name}" for name in blocks} | {
            "m": "m", "direct_panels": "t_direct", "copy_rhs": "t_copy_rhs", "step": "t_step",
        }  # fmt: skip
        if isinstance(spec.epilogue, PlainStore):
            out = f"address({spec.epilogue.pointer}) + t_b * m * n * {size}"
            product |= {"out": out, "out_si": "n", "n": "n", "full_panels": "t_full_panels"}
            epilogue = []
        else:
            scratch.append(f"t_sums = scratch_{self.dtype}({self.blocking.sums})")
            out = f"address(t_sums) - (t_i0 * t_sums_row + t_q0 * {columns}) * {size}"
            product |= {"out": out, "out_si": "t_sums_row", "full_panels": "t_panels"}
            epilogue = self.epilogue()
        if is_same(spec, spec.rhs):
            product |= {"rhs": f"address({spec.rhs.pointer})", "rhs_sb": "rhs_sb", "rhs_sp": "rhs_sp"}
        if is_same(spec, spec.lhs):
            product |= {
                "lhs": f"address({spec.lhs.pointer})", "packed": "address(t_packed)", "pack_lhs": "t_pack_lhs",
                "lhs_sb": "lhs_sb", "lhs_si": "lhs_si", "lhs_sp": "lhs_sp", "k": "k",
            }  # fmt: skip
            multiply = self.call("t_product", PRODUCT_PARAMS, product, "t_item")
        else:
            area = max(self.blocking.area, DEPTH * self.blocking.tile.rows) + MOST_ROWS * GAP
            scratch.append(f"t_left = scratch_{self.dtype}({area})")
            product |= {
                "packed": f"address(t_packed) + t_p0 * t_packed_sp * {size}", "k": "t_depth", "accumulate": "t_p0",
            }  # fmt: skip
            if "rhs" in product:
                product["rhs"] += f" + t_p0 * rhs_sp * {size}"
            for_rows = f"address(t_left) - t_i0 * t_row * {size}"
            for_columns = f"address(t_left) - t_i0 * {size}"
            by_row = {"lhs": for_rows, "lhs_si": "t_row", "lhs_sp": "1"}
            by_column = {"lhs": for_columns, "lhs_si": "1", "lhs_sp": "t_block_rows", "pack_lhs": "1"}
            if isinstance(spec.lhs, PlainOperand):
                strides = {
                    "lhs": f"address(t_left) - t_i0 * t_si * {size}", "lhs_si": "t_si", "lhs_sp": "t_sp",
                    "pack_lhs": "t_turned",
                }  # fmt: skip
                evaluate = [
                    *_loop(
                        "if lhs_si == 1 and lhs_sp != 1:",
                        "t_turned, t_si, t_sp = 1, 1, t_block_rows",
                        self.lhs_columns(),
                    ),
                    *_loop("else:", "t_turned, t_si, t_sp = 0, t_row, 1", self.lhs_any_rows()),
                ]
            elif spec.lhs_fast == "i":
                strides, evaluate = by_column, self.lhs_columns()
            else:
                strides, evaluate = by_row, self.lhs_rows()
            multiply = _loop(
                "for t_p0 in range(0, max(k, 1), t_step):",
                "t_depth = min(t_step, k - t_p0)",
                evaluate,
                self.call("t_product", PRODUCT_PARAMS, product | strides, "t_item"),
            )
        body = [
            *scratch,
            *_loop(
                "for t_item in range(lo, hi):",
                f"t_row = t_step + {GAP}",
                "t_line = quotient(t_item, t_column_blocks)",
                "t_b = quotient(t_line, t_row_blocks)",
                "t_i0 = (t_line - t_b * t_row_blocks) * t_block_rows",
                "t_rows = min(t_block_rows, m - t_i0)",
                "t_q0 = (t_item - t_line * t_column_blocks) * t_block_panels",
                f"t_j1 = min((t_q0 + t_block_panels) * {columns}, n)",
                multiply,
                epilogue,
            ),
        ]
        own = [("t_packed", f"{self.dtype}*"), ("t_product", "s64")]
        own += [(x, "s64") for x in ("batch", "m", "n", "k")]
        own += [(x, "s64") for x in ("lhs_sb", "lhs_si", "lhs_sp", "rhs_sb", "rhs_sp", "rhs_sj")]
        own += [(x, "s64") for x in ("t_row_blocks", "t_column_blocks", "t_block_rows", "t_block_panels", "t_panels")]
        own += [(x, "s64") for x in ("t_direct", "t_packed_sb", "t_packed_sp", "t_pack_lhs", "t_copy_rhs")]
        own += [(x, "s64") for x in ("t_step", "t_k", "t_full_panels", "t_sums_row")]
        return self.kernel(spec.name, own, body)

    def lhs_element(self, fast: str) -> Element:
        """The element code of lhs; of a plain lhs of another dtype, along i with the stride known to be one."""
        lhs = self.spec.lhs
        if not isinstance(lhs, PlainOperand):
            return lhs
        step = "" if fast == "i" else " * lhs_si"
        p_step = "" if self.adjacent else " * lhs_sp"
        return lambda b, i, p: self.load(lhs, lambda p: f"{b} * lhs_sb + {i}{step} + {p}{p_step}", p)

    def lhs_rows(self) -> list[str]:
        if isinstance(self.spec.lhs, FilledOperand):
            return self.spec.lhs.lines("t_row")

        def element() -> list[str]:
            statements, value = self.lhs_element("p")("t_b", "t_i", "t_p")
            return [*statements, f"t_left[t_at + t_p] = {value}"]

        return _loop(
            "for t_i in range(t_i0, t_i0 + t_rows):",
            "t_at = (t_i - t_i0) * t_row - t_p0",
            self.over_p("t_p0", "t_p0 + t_depth", element),
        )

    def lhs_any_rows(self) -> list[str]:
        # The vectorizer makes two versions of a loop with an unknown step by itself, but not of one with pairs.
        if not self.blocking.pairs:
            return self.lhs_rows()
        self.adjacent = True
        adjacent = self.lhs_rows()
        self.adjacent = False
        return [*_loop("if lhs_sp == 1:", adjacent), *_loop("else:", self.lhs_rows())]

    def lhs_columns(self) -> list[str]:
        if isinstance(self.spec.lhs, FilledOperand):
            return self.spec.lhs.lines("t_block_rows")

        def column() -> list[str]:
            statements, value = self.lhs_element("i")("t_b", "t_i", "t_p")
            return [
                "t_at = (t_p - t_p0) * t_block_rows - t_i0",
                *_loop("for t_i in range(t_i0, t_i0 + t_rows):", [*statements, f"t_left[t_at + t_i] = {value}"]),
            ]

        return self.over_p("t_p0", "t_p0 + t_depth", column)

    def epilogue(self) -> list[str]:
        columns = self.columns
        statements = self.spec.epilogue("t_sum", "t_b", "t_i", "t_j")
        if self.spec.epilogue_fast == "i":
            return _loop(
                f"for t_j in range(t_q0 * {columns}, t_j1):",
                f"t_at = t_j - t_q0 * {columns} - t_i0 * t_sums_row",
                _loop(
                    "for t_i in range(t_i0, t_i0 + t_rows):",
                    ["t_sum = t_sums[t_at + t_i * t_sums_row]", *statements],
                ),
            )
        return _loop(
            "for t_i in range(t_i0, t_i0 + t_rows):",
            f"t_at = (t_i - t_i0) * t_sums_row - t_q0 * {columns}",
            _loop(
                f"for t_j in range(t_q0 * {columns}, t_j1):",
                ["t_sum = t_sums[t_at + t_j]", *statements],
            ),
        )
