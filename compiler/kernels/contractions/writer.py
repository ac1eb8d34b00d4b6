"""The kernels of one `ContractionSpec`: rhs evaluated into panels, blocks of lhs, epilogues, the joining of parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from hloom.compiler.kernels.codegen.serial import indent
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions import room
from hloom.compiler.kernels.contractions.shared import GROUP_COLUMNS, PACK_PARAMS, PRODUCT_PARAMS, Blocking
from hloom.compiler.kernels.contractions.spec import (
    ContractionSpec,
    Element,
    Epilogue,
    FilledOperand,
    PlainOperand,
    PlainStore,
    StagedOperand,
    is_same,
)
from hloom.ir.types import DTYPES

Kernel = tuple[KernelSource, tuple[str, ...]]  # with the names of its parameters


def _integers(names: str) -> list[tuple[str, str]]:
    return [(name, "s64") for name in names.split()]


def _loop(header: str, *body: str | list[str]) -> list[str]:
    lines = [line for part in body for line in ([part] if isinstance(part, str) else part)]
    return [header, *indent(lines)]


def load_plain(operand: PlainOperand, index: str, accumulate: str) -> str:
    """The element of a plain operand at `index`, in the accumulation dtype."""
    if operand.dtype == accumulate:
        return f"{operand.pointer}[{index}]"
    if operand.dtype in ("f16", "bf16", "pred"):
        value = f"load_{operand.dtype}({operand.pointer}, {index})"
        return value if (operand.dtype, accumulate) in (("f16", "f32"), ("bf16", "f32")) else f"{accumulate}({value})"
    return f"{accumulate}({operand.pointer}[{index}])"


class Writer:
    """Writes the kernels of one spec."""

    def __init__(self, spec: ContractionSpec, blocking: Blocking):
        self.spec, self.blocking = spec, blocking
        self.dtype, self.size, self.columns = spec.accumulate, blocking.size, blocking.tile.columns
        self.adjacent = False  # whether lhs_sp is known to be 1
        self.last = False  # whether it is the last word, which may lack elements

    def kernel(self, name: str, own: Sequence[tuple[str, str]], body: list[str]) -> Kernel:
        """The kernel of a body, with those parameters of the spec and of `own` which it uses."""
        words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(body)))
        plain = [(x.pointer, f"{x.dtype}*") for x in (self.spec.lhs, self.spec.rhs) if isinstance(x, PlainOperand)]
        if isinstance(self.spec.epilogue, PlainStore):
            plain.append((self.spec.epilogue.pointer, f"{self.dtype}*"))
        given = dict([*plain, *self.spec.extra_params, *own])
        params = [(name, kind) for name, kind in given.items() if name in words] + [("lo", "s64"), ("hi", "s64")]
        text = "\n".join([f"def {name}({', '.join(name for name, _ in params)}):", *indent(body)]) + "\n"
        return KernelSource(name, text, tuple(kind for _, kind in params)), tuple(name for name, _ in params)

    def call(self, function: str, params: Iterable[str], values: dict[str, str], item: str = "0") -> list[str]:
        """A call of a shared kernel for one item, the arguments given by name (the others are zero)."""
        listed = ", ".join(values.get(name, "0") for name in list(params)[:-2])
        return [f"call_kernel({function}, {item}, {item} + 1, {listed})"]

    # --- rhs -----------------------------------------------------------------------------------------------------

    def rhs_kernel(self) -> Kernel:
        """Evaluates rhs into panels; items are (batch element, group of panels, step of p)."""
        spec, columns = self.spec, self.columns
        group = max(1, GROUP_COLUMNS // columns)
        lines, turned = self.rhs_lines(group), self.rhs_turned()
        if isinstance(spec.rhs, PlainOperand):
            body = [*_loop("if rhs_sp == 1 and rhs_sj != 1:", turned), *_loop("else:", lines)]
        else:
            body = turned if spec.rhs_fast == "p" else lines
        used = "\n".join(body)
        sizes = {"t_line": group * columns, "t_turn": self.blocking.scratch.turned}
        text = [
            *(f"{name} = scratch_{self.dtype}({size})" for name, size in sizes.items() if name in used),
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
        own = _integers("batch m n k rhs_sb rhs_sp rhs_sj t_panels t_groups t_chunks t_step t_pack t_k")
        return self.kernel(f"{spec.name}_rhs", [("t_packed", f"{self.dtype}*"), *own], text)

    def rhs_element(self, fast: str) -> Element:
        """The element code of rhs; of a plain rhs of another dtype, along p with the stride known to be one."""
        rhs = self.spec.rhs
        if not isinstance(rhs, PlainOperand):
            return rhs
        step = "" if fast == "p" else " * rhs_sp"
        return lambda b, p, j: self.load(rhs, lambda p: f"{b} * rhs_sb + {p}{step} + {j} * rhs_sj", p)

    def load(self, operand: PlainOperand, at: Callable[[str], str], p: str) -> tuple[list[str], str]:
        """The element of a plain operand at p; of words the two or four elements from 2 p or 4 p on, zeros where there
        are no more."""
        count = self.blocking.in_word
        if count == 1:
            return [], load_plain(operand, at(p), self.dtype)
        bits, parts = 32 // count, []
        for e in range(count):
            q = f"({count} * {p} + {e})"
            value = f"s64({self.bits(load_plain(operand, at(q), self.dtype))})"
            if e and self.last:
                value = f"({value} if {q} < t_k else 0)"
            if e < count - 1:
                value = f"({value} & {(1 << bits) - 1})"
            parts.append(f"({value} << {e * bits})" if e else value)
        word = " | ".join(parts)
        return [], f"bitcast_s32_f32(s32({word}))" if self.dtype == "f32" else f"{self.dtype}({word})"

    def bits(self, value: str) -> str:
        """The integer that represents a value in a word."""
        return f"bitcast_f32_u32({value}) >> u32(16)" if self.dtype == "f32" else value

    def over_p(
        self, start: str, stop: str, body: Callable[[], list[str]], copied: tuple[str, str] | None = None
    ) -> list[str]:
        """`body` for every p; of words the last may lack elements. copied: addresses (source, target) of words from 0
        on that are the elements as they lie in memory."""
        if self.blocking.in_word == 1:
            return _loop(f"for t_p in range({start}, {stop}):", body())
        lines, columns = [f"t_whole = min({stop}, quotient(t_k, {self.blocking.in_word}))"], self.columns
        if copied:
            source, target = copied
            lines += [
                f"t_source, t_target = {source}, {target}",
                *_loop(
                    f"for t_p in range({start}, t_whole - {columns - 1}, {columns}):",
                    f"copy_{self.dtype}_{columns}(t_source + t_p * {self.size}, t_target + t_p * {self.size})",
                ),
            ]
            start = f"{start} + quotient(max(t_whole - ({start}), 0), {columns}) * {columns}"
        lines += _loop(f"for t_p in range({start}, t_whole):", body())
        self.last = True
        lines += _loop(f"for t_p in range(t_whole, {stop}):", body())
        self.last = False
        return lines

    def words_of(self, operand: Element | PlainOperand, begin: str, scratch: str) -> tuple[str, str] | None:
        """The addresses (in memory, in scratch memory) of the words of an operand from its element `begin` on, where
        elements that lie side by side are words as they are."""
        if not isinstance(operand, PlainOperand):
            return None
        size = DTYPES[operand.dtype].itemsize
        if self.blocking.in_word * size != self.size:
            return None
        return f"address({operand.pointer}) + ({begin}) * {size}", f"address({scratch}) + t_at * {self.size}"

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

        copied = self.words_of(self.spec.rhs, "t_b * rhs_sb + t_j * rhs_sj", "t_turn")
        pack = {
            "rhs": "address(t_turn)", "packed": f"t_base + (t_q * t_depth + t_p0) * {columns * size}",
            "n": f"min({columns}, n - t_q * {columns})", "k": "t_depth", "rhs_sp": "1",
            "rhs_sj": str(room.DEPTH + room.GAP), "panels": "1", "groups": "1", "chunks": "1", "step": "t_depth",
        }  # fmt: skip
        return _loop(
            "for t_q in range(t_q0, t_q1):",
            _loop(
                f"for t_j in range(t_q * {columns}, min(t_q * {columns} + {columns}, n)):",
                f"t_at = (t_j - t_q * {columns}) * {room.DEPTH + room.GAP} - t_p0",
                self.over_p("t_p0", "t_p1", element, copied),
            ),
            self.call("t_pack", PACK_PARAMS, pack),
        )

    # --- lhs and epilogue ----------------------------------------------------------------------------------------

    def fused_kernel(self) -> Kernel:
        """Evaluates blocks of lhs, multiplies them with panels, runs the epilogue; items are blocks of the result.

        The columns of a panel are an argument, so that other tiles have the same text."""
        spec, epilogue = self.spec, self.spec.epilogue
        # The product gets our item of the same blocks, and addresses moved so that its block lies in scratch memory.
        blocks = (
            "row_blocks column_blocks block_rows block_panels panels packed_sb packed_sp copy_rhs step part part_items"
        )
        product = {name: f"t_{name}" for name in blocks.split()} | {"m": "m", "direct_panels": "t_direct"}
        scratch, consume = [], []
        if isinstance(epilogue, PlainStore):
            out = f"address({epilogue.pointer}) + (t_number * t_out_part + t_b * m * n) * {self.size}"
            product |= {"out": out, "out_si": "n", "n": "n", "full_panels": "t_full_panels"}
        else:
            scratch.append(f"t_sums = scratch_{self.dtype}({self.blocking.scratch.sums})")
            out = f"address(t_sums) - (t_i0 * t_sums_row + t_q0 * t_columns) * {self.size}"
            product |= {"out": out, "out_si": "t_sums_row", "full_panels": "t_panels"}
            consume = self.epilogue(epilogue)
        if is_same(spec.rhs, self.dtype):
            product |= {name: name for name in ("rhs_sb", "rhs_sp", "rhs_sj")}
            product["rhs"] = f"address({spec.rhs.pointer})"
        if is_same(spec.lhs, self.dtype):
            product |= {name: name for name in ("lhs_sb", "lhs_si", "lhs_sp", "k")} | {
                "lhs": f"address({spec.lhs.pointer})", "packed": "address(t_packed)", "pack_lhs": "t_pack_lhs",
            }  # fmt: skip
            multiply = self.call("t_product", PRODUCT_PARAMS, product, "t_item")
        else:
            arrays, multiply = self.evaluated_product(product)
            scratch += arrays
        body = [
            *scratch,
            *_loop(
                "for t_item in range(lo, hi):",
                f"t_row = t_step + {room.GAP}",
                "t_number = quotient(t_item, t_part_items)",
                "t_first = t_number * t_part",
                "t_last = min(t_first + t_part, k)",
                "t_block = t_item - t_number * t_part_items",
                "t_line = quotient(t_block, t_row_blocks)",
                "t_b = quotient(t_line, t_column_blocks)",
                "t_i0 = (t_block - t_line * t_row_blocks) * t_block_rows",
                "t_rows = min(t_block_rows, m - t_i0)",
                "t_q0 = (t_line - t_b * t_column_blocks) * t_block_panels",
                "t_j1 = min((t_q0 + t_block_panels) * t_columns, n)",
                multiply,
                consume,
            ),
        ]
        integers = _integers(
            "t_product batch m n k lhs_sb lhs_si lhs_sp rhs_sb rhs_sp rhs_sj t_row_blocks t_column_blocks t_block_rows"
            " t_block_panels t_panels t_direct t_packed_sb t_packed_sp t_pack_lhs t_copy_rhs t_step t_k t_full_panels"
            " t_sums_row t_columns t_part t_part_items t_out_part"
        )
        return self.kernel(spec.name, [("t_packed", f"{self.dtype}*"), *integers], body)

    def evaluated_product(self, product: dict[str, str]) -> tuple[list[str], list[str]]:
        """(scratch memory, statements) of the product of a block of lhs that is evaluated step by step."""
        lhs, size, sizes = self.spec.lhs, self.size, self.blocking.scratch
        area, tables = sizes.evaluated, []
        if isinstance(lhs, StagedOperand):
            area = sizes.staged
            tables = [f"{table} = scratch_s64({sizes.offsets})" for table in ("t_lines", "t_runs")]
        product = product | {
            "packed": f"address(t_packed) + t_p0 * t_packed_sp * {size}", "k": "t_depth",
            "accumulate": "t_p0 - t_first", "part": "t_depth",
        }  # fmt: skip
        if "rhs" in product:
            product["rhs"] += f" + t_p0 * rhs_sp * {size}"
        strides, evaluate = self.lhs_block()
        multiply = _loop(
            "for t_p0 in range(t_first, max(t_last, t_first + 1), t_step):",
            "t_depth = min(t_step, t_last - t_p0)",
            evaluate,
            self.call("t_product", PRODUCT_PARAMS, product | strides, "t_block"),
        )
        return [f"t_left = scratch_{self.dtype}({area})", *tables], multiply

    def lhs_block(self) -> tuple[dict[str, str], list[str]]:
        """(arguments of the product, statements that write `t_left`) of a block of lhs in one step."""
        lhs, size = self.spec.lhs, self.size
        if isinstance(lhs, StagedOperand):
            return {
                "lhs": f"address(t_left) + t_origin - t_i0 * {lhs.row_step} * {size}", "lhs_si": lhs.row_step,
                "lhs_sp": lhs.depth_step, "line_rows": lhs.line_text, "line_offsets": "address(t_lines)",
                "line_start": f"t_i0 - quotient(t_i0, {lhs.line_text}) * {lhs.line_text}",
                "run": lhs.run_text, "run_offsets": "address(t_runs)", "soon": "t_soon", "soon_bytes": "t_soon_bytes",
            }, lhs.lines()  # fmt: skip
        if isinstance(lhs, PlainOperand):
            evaluate = ["t_turned, t_si, t_sp = 0, t_row, 1", *self.lhs_any_rows(lhs)]
            if not self.blocking.by_matrix:
                turned = ["t_turned, t_si, t_sp = t_pack_lhs, 1, t_block_rows", *self.lhs_columns(lhs)]
                evaluate = [*_loop("if lhs_si == 1 and lhs_sp != 1:", turned), *_loop("else:", evaluate)]
            first = f"address(t_left) - t_i0 * t_si * {size}"
            return {"lhs": first, "lhs_si": "t_si", "lhs_sp": "t_sp", "pack_lhs": "t_turned"}, evaluate
        if self.spec.lhs_fast == "i":
            first, pack = f"address(t_left) - t_i0 * {size}", {"pack_lhs": "t_pack_lhs"}
            lines = lhs.lines("t_block_rows") if isinstance(lhs, FilledOperand) else self.lhs_columns(lhs)
            return {"lhs": first, "lhs_si": "1", "lhs_sp": "t_block_rows"} | pack, lines
        first = f"address(t_left) - t_i0 * t_row * {size}"
        lines = lhs.lines("t_row") if isinstance(lhs, FilledOperand) else self.lhs_rows(lhs)
        return {"lhs": first, "lhs_si": "t_row", "lhs_sp": "1"}, lines

    def join_kernel(self) -> Kernel:
        """Adds the parts of every sum and runs the epilogue; items are rows of the result."""
        epilogue, add = self.spec.epilogue, f"{self.dtype}(t_parts[t_at + t_j] + t_parts[t_from + t_j])"
        if isinstance(epilogue, PlainStore):
            statements = [f"{epilogue.pointer}[t_at + t_j] = t_sum"]
        else:
            statements = epilogue("t_sum", "t_b", "t_i", "t_j")
        body = _loop(
            "for t_item in range(lo, hi):",
            "t_b = quotient(t_item, m)",
            "t_i = t_item - t_b * m",
            "t_at = t_item * n",
            _loop(
                "for t_number in range(1, t_splits):",
                "t_from = t_at + t_number * t_out_part",
                _loop("for t_j in range(n):", f"t_parts[t_at + t_j] = {add}"),
            ),
            _loop("for t_j in range(n):", ["t_sum = t_parts[t_at + t_j]", *statements]),
        )
        own = [("t_parts", f"{self.dtype}*"), *_integers("batch m n k t_splits t_out_part")]
        return self.kernel(f"{self.spec.name}_join", own, body)

    def lhs_element(self, lhs: Element | PlainOperand, fast: str) -> Element:
        """The element code of lhs; of a plain lhs of another dtype, along i with the stride known to be one."""
        if not isinstance(lhs, PlainOperand):
            return lhs
        step = "" if fast == "i" else " * lhs_si"
        p_step = "" if self.adjacent else " * lhs_sp"
        return lambda b, i, p: self.load(lhs, lambda p: f"{b} * lhs_sb + {i}{step} + {p}{p_step}", p)

    def lhs_rows(self, lhs: Element | PlainOperand) -> list[str]:
        def element() -> list[str]:
            statements, value = self.lhs_element(lhs, "p")("t_b", "t_i", "t_p")
            return [*statements, f"t_left[t_at + t_p] = {value}"]

        copied = self.words_of(lhs, "t_b * lhs_sb + t_i * lhs_si", "t_left") if self.adjacent else None
        return _loop(
            "for t_i in range(t_i0, t_i0 + t_rows):",
            "t_at = (t_i - t_i0) * t_row - t_p0",
            self.over_p("t_p0", "t_p0 + t_depth", element, copied),
        )

    def lhs_any_rows(self, lhs: PlainOperand) -> list[str]:
        # The vectorizer makes two versions of a loop with an unknown step by itself, but not of one with words.
        if self.blocking.in_word == 1:
            return self.lhs_rows(lhs)
        self.adjacent = True
        adjacent = self.lhs_rows(lhs)
        self.adjacent = False
        return [*_loop("if lhs_sp == 1:", adjacent), *_loop("else:", self.lhs_rows(lhs))]

    def lhs_columns(self, lhs: Element | PlainOperand) -> list[str]:
        def column() -> list[str]:
            statements, value = self.lhs_element(lhs, "i")("t_b", "t_i", "t_p")
            return [
                "t_at = (t_p - t_p0) * t_block_rows - t_i0",
                *_loop("for t_i in range(t_i0, t_i0 + t_rows):", [*statements, f"t_left[t_at + t_i] = {value}"]),
            ]

        return self.over_p("t_p0", "t_p0 + t_depth", column)

    def epilogue(self, epilogue: Epilogue) -> list[str]:
        statements = epilogue("t_sum", "t_b", "t_i", "t_j")
        if self.spec.epilogue_fast == "i":
            return _loop(
                "for t_j in range(t_q0 * t_columns, t_j1):",
                "t_at = t_j - t_q0 * t_columns - t_i0 * t_sums_row",
                _loop(
                    "for t_i in range(t_i0, t_i0 + t_rows):",
                    ["t_sum = t_sums[t_at + t_i * t_sums_row]", *statements],
                ),
            )
        return _loop(
            "for t_i in range(t_i0, t_i0 + t_rows):",
            "t_at = (t_i - t_i0) * t_sums_row - t_q0 * t_columns",
            _loop(
                "for t_j in range(t_q0 * t_columns, t_j1):",
                ["t_sum = t_sums[t_at + t_j]", *statements],
            ),
        )
