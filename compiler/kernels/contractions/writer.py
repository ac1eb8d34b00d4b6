"""The kernels of one `ContractionSpec`: rhs evaluated into panels, blocks of lhs, epilogues, the joining of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    address,
    both,
    call,
    cast,
    chosen,
    compared,
    constant,
    do,
    greatest,
    least,
    load,
    minus,
    operation,
    plus,
    quotient,
    store,
    times,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Assign, Expr, For, If, Kernel, Scratch, Stmt, Together, Var
from hloom.compiler.kernel_ir.rewrite import variables_of, with_distinct_variables
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

NamedKernel = tuple[KernelSource, tuple[str, ...]]  # with the names of its parameters


def _integers(names: str) -> list[tuple[str, str]]:
    return [(name, "s64") for name in names.split()]


def load_plain(pointer: Expr, index: Expr, accumulate: str) -> Expr:
    """The element of a plain operand at `index`, in the accumulation dtype."""
    value = load(pointer, index)
    return value if value.type == accumulate else cast(accumulate, value)


def together(names: Names, **values: Expr) -> Together:
    """`a, b = x, y`."""
    return Together([names.let(name, value) for name, value in values.items()])


def with_used(name: str, given: Mapping[str, str], names: Names, body: list[Stmt]) -> tuple[Kernel, tuple[str, ...]]:
    """The kernel of a body, with those parameters which it uses, and their names. given: types by name, of variables
    that `names` has."""
    used = variables_of(body)
    params = [names[param] for param in given if names[param] in used] + [names["lo"], names["hi"]]
    return Kernel(name, tuple(params), body), tuple([param.name for param in params])


def declare(names: Names, given: Mapping[str, str]) -> None:
    """Gives parameters their names. given: types by name, as in `KernelSource.params`."""
    for name, kind in given.items():
        names.declare(name, f"*{kind[:-1]}" if kind[-1] == "*" else kind)
    names.index("lo")
    names.index("hi")


def call_kernel(function: Expr, item: Expr, after: Expr, arguments: Iterable[Expr]) -> Stmt:
    """A call of a shared kernel for one item."""
    return do("call_kernel", (function, item, after, *arguments))


class Writer:
    """Writes the kernels of one spec."""

    def __init__(self, spec: ContractionSpec, blocking: Blocking):
        self.spec, self.blocking = spec, blocking
        self.dtype, self.columns = spec.accumulate, blocking.tile.columns
        self.size = constant(blocking.size)
        self.panel, self.line = constant(self.columns), constant(self.columns * blocking.size)  # elements, bytes
        self.adjacent = False  # whether lhs_sp is known to be 1
        self.last = False  # whether it is the last word, which may lack elements
        self.names = Names(by_name)
        self.given: dict[str, str] = {}

    def begin(self, own: Sequence[tuple[str, str]]) -> Names:
        """Begins a kernel. own: parameters that it may have besides those of the spec."""
        plain = [(x.pointer, f"{x.dtype}*") for x in (self.spec.lhs, self.spec.rhs) if isinstance(x, PlainOperand)]
        if isinstance(self.spec.epilogue, PlainStore):
            plain.append((self.spec.epilogue.pointer, f"{self.dtype}*"))
        self.given, self.names = dict([*plain, *self.spec.extra_params, *own]), Names(by_name)
        declare(self.names, self.given)
        return self.names

    def kernel(self, name: str, body: list[Stmt]) -> NamedKernel:
        """The kernel of a body, with the parameters which it uses."""
        kernel, params = with_used(name, self.given, self.names, body)
        return KernelSource.of(with_distinct_variables(kernel)), params

    def scratch(self, name: str, count: int, dtype: str = "") -> Scratch:
        """Scratch memory, of the accumulation dtype unless another one is given."""
        return Scratch(self.names.declare(name, f"*{dtype or self.dtype}"), count)

    def call(self, function: Expr, params: Iterable[str], values: Mapping[str, Expr], item: Expr = ZERO) -> Stmt:
        """A call of a shared kernel for one item, the arguments given by name (the others are zero)."""
        listed = [values.get(name, ZERO) for name in list(params)[:-2]]
        return call_kernel(function, item, plus(item, ONE), listed)

    def over(self, name: str, start: Expr, stop: Expr, body: Callable[[], list[Stmt]], step: Expr = ONE) -> For:
        """A loop, whose body is written once its variable has a name."""
        return For(self.names.index(name), start, stop, step, body())

    # --- rhs -----------------------------------------------------------------------------------------------------

    def rhs_kernel(self) -> NamedKernel:
        """Evaluates rhs into panels; items are (batch element, group of panels, step of p)."""
        spec, group = self.spec, max(1, GROUP_COLUMNS // self.columns)
        own = _integers("batch m n k rhs_sb rhs_sp rhs_sj t_panels t_groups t_chunks t_step t_pack t_k")
        v = self.begin([("t_packed", f"{self.dtype}*"), *own])
        sizes = {"t_line": group * self.columns, "t_turn": self.blocking.scratch.turned}
        scratch = [self.scratch(name, size) for name, size in sizes.items()]
        item, k, step = v.index("t_item"), v["k"], v["t_step"]
        body: list[Stmt] = [
            v.let("t_strip", quotient(item, v["t_chunks"])),
            v.let("t_b", quotient(v["t_strip"], v["t_groups"])),
            v.let("t_q0", times(minus(v["t_strip"], times(v["t_b"], v["t_groups"])), constant(group))),
            v.let("t_q1", least(plus(v["t_q0"], constant(group)), v["t_panels"])),
            v.let("t_p0", times(minus(item, times(v["t_strip"], v["t_chunks"])), step)),
            v.let("t_p1", least(plus(v["t_p0"], step), k)),
            v.let("t_depth", minus(v["t_p1"], v["t_p0"])),
        ]
        row = minus(times(plus(times(v["t_b"], k), v["t_p0"]), v["t_panels"]), v["t_p0"])
        body.append(v.let("t_base", plus(address(v["t_packed"]), times(row, self.line))))
        lines, turned = self.rhs_lines(group), self.rhs_turned()
        if isinstance(spec.rhs, PlainOperand):
            by_depth = both("and", [compared("==", v["rhs_sp"], ONE), compared("!=", v["rhs_sj"], ONE)])
            body.append(If(by_depth, [turned], lines))
        else:
            body += [turned] if spec.rhs_fast == "p" else lines
        used = variables_of(body)
        needed = [area for area in scratch if area.var in used]
        return self.kernel(f"{spec.name}_rhs", [*needed, For(item, v["lo"], v["hi"], ONE, body)])

    def rhs_element(self, fast: str) -> tuple[list[Stmt], Expr]:
        """The element of rhs at t_b, t_p, t_j; of a plain rhs of another dtype, along p with the stride known to be
        one."""
        rhs, v = self.spec.rhs, self.names
        if not isinstance(rhs, PlainOperand):
            return rhs(v, "t_b", "t_p", "t_j")

        def place(p: Expr) -> Expr:
            along = p if fast == "p" else times(p, v["rhs_sp"])
            return plus(times(v["t_b"], v["rhs_sb"]), along, times(v["t_j"], v["rhs_sj"]))

        return [], self.load(rhs, place)

    def load(self, operand: PlainOperand, at: Callable[[Expr], Expr]) -> Expr:
        """The element of a plain operand at t_p; of words the two or four elements from 2 t_p or 4 t_p on, zeros where
        there are no more."""
        count, pointer, p = self.blocking.in_word, self.names[operand.pointer], self.names["t_p"]
        if count == 1:
            return load_plain(pointer, at(p), self.dtype)
        bits, word = 32 // count, None
        for e in range(count):
            q = plus(times(constant(count), p), constant(e))
            value: Expr = cast("s64", self.bits(load_plain(pointer, at(q), self.dtype)))
            if e and self.last:
                value = chosen(compared("<", q, self.names["t_k"]), value, ZERO)
            if e < count - 1:
                value = operation("&", value, constant((1 << bits) - 1))
            if e:
                value = operation("<<", value, constant(e * bits))
            word = value if word is None else operation("|", word, value)
        assert word is not None
        return call("bitcast_s32_f32", (cast("s32", word),), by_name) if self.dtype == "f32" else cast(self.dtype, word)

    def bits(self, value: Expr) -> Expr:
        """The integer that represents a value in a word."""
        if self.dtype != "f32":
            return value
        return operation(">>", call("bitcast_f32_u32", (value,), by_name), cast("u32", constant(16)))

    def over_p(
        self, start: Expr, stop: Expr, body: Callable[[], list[Stmt]], copied: tuple[Expr, Expr] | None = None
    ) -> list[Stmt]:
        """`body` for every p; of words the last may lack elements. copied: addresses (source, target) of words from 0
        on that are the elements as they lie in memory."""
        if self.blocking.in_word == 1:
            return [self.over("t_p", start, stop, body)]
        v = self.names
        lines: list[Stmt] = [v.let("t_whole", least(stop, quotient(v["t_k"], constant(self.blocking.in_word))))]
        whole = v["t_whole"]
        if copied:
            lines.append(together(v, t_source=copied[0], t_target=copied[1]))

            def copy() -> list[Stmt]:
                offset = times(v["t_p"], self.size)
                return [self.copy(plus(v["t_source"], offset), plus(v["t_target"], offset))]

            lines.append(self.over("t_p", start, minus(whole, constant(self.columns - 1)), copy, self.panel))
            done = times(quotient(greatest(minus(whole, start), ZERO), self.panel), self.panel)
            start = plus(start, done)
        lines.append(self.over("t_p", start, whole, body))
        self.last = True
        lines.append(self.over("t_p", whole, stop, body))
        self.last = False
        return lines

    def copy(self, source: Expr, target: Expr) -> Stmt:
        """Copies a row of a panel."""
        return do(f"copy_{self.dtype}_{self.columns}", (source, target))

    def words_of(self, operand: object, begin: Expr, scratch: str) -> tuple[Expr, Expr] | None:
        """The addresses (in memory, in scratch memory) of the words of an operand from its element `begin` on, where
        elements that lie side by side are words as they are."""
        if not isinstance(operand, PlainOperand):
            return None
        size, v = DTYPES[operand.dtype].itemsize, self.names
        if self.blocking.in_word * size != self.blocking.size:
            return None
        source = plus(address(v[operand.pointer]), times(begin, constant(size)))
        return source, plus(address(v[scratch]), times(v["t_at"], self.size))

    def rhs_lines(self, group: int) -> list[Stmt]:
        """Elements along j: a line of several panels is computed in one long loop, then cut into panels."""
        v = self.names

        def compute() -> list[Stmt]:
            statements, value = self.rhs_element("j")
            return [*statements, store(v["t_line"], minus(v["t_j"], v["t_j0"]), value)]

        def cut() -> list[Stmt]:
            source = plus(address(v["t_line"]), times(minus(v["t_q"], v["t_q0"]), self.line))
            return [self.copy(source, self.panel_row(v["t_p"]))]

        def line() -> list[Stmt]:
            stop = least(times(v["t_q1"], self.panel), v["n"])
            return [self.over("t_j", v["t_j0"], stop, compute), self.over("t_q", v["t_q0"], v["t_q1"], cut)]

        def clear() -> list[Stmt]:
            return [store(v["t_line"], v["t_x"], cast(self.dtype, ZERO))]

        return [
            v.let("t_j0", times(v["t_q0"], self.panel)),
            self.over("t_x", ZERO, constant(group * self.columns), clear),
            *self.over_p(v["t_p0"], v["t_p1"], line),
        ]

    def panel_row(self, p: Expr) -> Expr:
        """The address of row p of panel t_q."""
        v = self.names
        return plus(v["t_base"], times(plus(times(v["t_q"], v["t_depth"]), p), self.line))

    def rhs_turned(self) -> Stmt:
        """Elements along p: the columns of a panel are computed one after another, then transposed into the panel."""
        v, line = self.names, constant(room.DEPTH + room.GAP)

        def element() -> list[Stmt]:
            statements, value = self.rhs_element("p")
            return [*statements, store(v["t_turn"], plus(v["t_at"], v["t_p"]), value)]

        def column() -> list[Stmt]:
            j, first = v["t_j"], times(v["t_q"], self.panel)
            at = v.let("t_at", minus(times(minus(j, first), line), v["t_p0"]))
            begin = plus(times(v["t_b"], v["rhs_sb"]), times(j, v["rhs_sj"]))
            return [at, *self.over_p(v["t_p0"], v["t_p1"], element, self.words_of(self.spec.rhs, begin, "t_turn"))]

        def panel() -> list[Stmt]:
            first = times(v["t_q"], self.panel)
            pack = {
                "rhs": address(v["t_turn"]), "packed": self.panel_row(v["t_p0"]),
                "n": least(self.panel, minus(v["n"], first)), "k": v["t_depth"], "rhs_sp": ONE, "rhs_sj": line,
                "panels": ONE, "groups": ONE, "chunks": ONE, "step": v["t_depth"],
            }  # fmt: skip
            columns = self.over("t_j", first, least(plus(first, self.panel), v["n"]), column)
            return [columns, self.call(v["t_pack"], PACK_PARAMS, pack)]

        return self.over("t_q", v["t_q0"], v["t_q1"], panel)

    # --- lhs and epilogue ----------------------------------------------------------------------------------------

    def fused_kernel(self) -> NamedKernel:
        """Evaluates blocks of lhs, multiplies them with panels, runs the epilogue; items are blocks of the result.

        The columns of a panel are an argument, so that other tiles have the same text."""
        spec, epilogue = self.spec, self.spec.epilogue
        integers = _integers(
            "t_product batch m n k lhs_sb lhs_si lhs_sp rhs_sb rhs_sp rhs_sj t_row_blocks t_column_blocks t_block_rows"
            " t_block_panels t_panels t_direct t_packed_sb t_packed_sp t_pack_lhs t_copy_rhs t_step t_k t_full_panels"
            " t_sums_row t_columns t_part t_part_items t_out_part"
        )
        v = self.begin([("t_packed", f"{self.dtype}*"), *integers])
        item = v.index("t_item")
        body = self.place(item)
        # The product gets our item of the same blocks, and addresses moved so that its block lies in scratch memory.
        blocks = (
            "row_blocks column_blocks block_rows block_panels panels packed_sb packed_sp copy_rhs step part part_items"
        )
        product: dict[str, Expr] = {name: v[f"t_{name}"] for name in blocks.split()}
        product |= {"m": v["m"], "direct_panels": v["t_direct"]}
        scratch: list[Stmt] = []
        if isinstance(epilogue, PlainStore):
            first = plus(times(v["t_number"], v["t_out_part"]), times(times(v["t_b"], v["m"]), v["n"]))
            out = plus(address(v[epilogue.pointer]), times(first, self.size))
            product |= {"out": out, "out_si": v["n"], "n": v["n"], "full_panels": v["t_full_panels"]}
        else:
            scratch.append(self.scratch("t_sums", self.blocking.scratch.sums))
            first = plus(times(v["t_i0"], v["t_sums_row"]), times(v["t_q0"], v["t_columns"]))
            out = minus(address(v["t_sums"]), times(first, self.size))
            product |= {"out": out, "out_si": v["t_sums_row"], "full_panels": v["t_panels"]}
        if is_same(spec.rhs, self.dtype):
            product |= {name: v[name] for name in ("rhs_sb", "rhs_sp", "rhs_sj")}
            product["rhs"] = address(v[spec.rhs.pointer])
        if is_same(spec.lhs, self.dtype):
            product |= {name: v[name] for name in ("lhs_sb", "lhs_si", "lhs_sp", "k")} | {
                "lhs": address(v[spec.lhs.pointer]), "packed": address(v["t_packed"]), "pack_lhs": v["t_pack_lhs"],
            }  # fmt: skip
            body.append(self.call(v["t_product"], PRODUCT_PARAMS, product, item))
        else:
            arrays, multiply = self.evaluated_product(product)
            scratch += arrays
            body.append(multiply)
        if not isinstance(epilogue, PlainStore):
            body.append(self.epilogue(epilogue))
        return self.kernel(spec.name, [*scratch, For(item, v["lo"], v["hi"], ONE, body)])

    def place(self, item: Var) -> list[Stmt]:
        """Which block of the result an item is."""
        v = self.names
        return [
            v.let("t_row", plus(v["t_step"], constant(room.GAP))),
            v.let("t_number", quotient(item, v["t_part_items"])),
            v.let("t_first", times(v["t_number"], v["t_part"])),
            v.let("t_last", least(plus(v["t_first"], v["t_part"]), v["k"])),
            v.let("t_block", minus(item, times(v["t_number"], v["t_part_items"]))),
            v.let("t_line", quotient(v["t_block"], v["t_row_blocks"])),
            v.let("t_b", quotient(v["t_line"], v["t_column_blocks"])),
            v.let("t_i0", times(minus(v["t_block"], times(v["t_line"], v["t_row_blocks"])), v["t_block_rows"])),
            v.let("t_rows", least(v["t_block_rows"], minus(v["m"], v["t_i0"]))),
            v.let("t_q0", times(minus(v["t_line"], times(v["t_b"], v["t_column_blocks"])), v["t_block_panels"])),
            v.let("t_j1", least(times(plus(v["t_q0"], v["t_block_panels"]), v["t_columns"]), v["n"])),
        ]

    def evaluated_product(self, product: dict[str, Expr]) -> tuple[list[Stmt], Stmt]:
        """(scratch memory, the loop) of the product of a block of lhs that is evaluated step by step."""
        lhs, v, sizes = self.spec.lhs, self.names, self.blocking.scratch
        staged = isinstance(lhs, StagedOperand)
        scratch: list[Stmt] = [self.scratch("t_left", sizes.staged if staged else sizes.evaluated)]
        if staged:
            scratch += [self.scratch(table, sizes.offsets, "s64") for table in ("t_lines", "t_runs")]

        def multiply() -> list[Stmt]:
            p0 = v["t_p0"]
            depth = v.let("t_depth", least(v["t_step"], minus(v["t_last"], p0)))
            given = product | {
                "packed": plus(address(v["t_packed"]), times(times(p0, v["t_packed_sp"]), self.size)),
                "k": v["t_depth"], "accumulate": minus(p0, v["t_first"]), "part": v["t_depth"],
            }  # fmt: skip
            if "rhs" in product:
                given["rhs"] = plus(product["rhs"], times(times(p0, v["rhs_sp"]), self.size))
            strides, evaluate = self.lhs_block()
            return [depth, *evaluate, self.call(v["t_product"], PRODUCT_PARAMS, given | strides, v["t_block"])]

        stop = greatest(v["t_last"], plus(v["t_first"], ONE))
        return scratch, self.over("t_p0", v["t_first"], stop, multiply, v["t_step"])

    def lhs_block(self) -> tuple[dict[str, Expr], list[Stmt]]:
        """(arguments of the product, statements that write `t_left`) of a block of lhs in one step."""
        lhs, v, left, i0 = self.spec.lhs, self.names, address(self.names["t_left"]), self.names["t_i0"]
        if isinstance(lhs, StagedOperand):
            statements = lhs.fill(v)
            row_step, line, run = v[lhs.row_step], v[lhs.line_name], v[lhs.run_name]
            return {
                "lhs": minus(plus(left, v["t_origin"]), times(times(i0, row_step), self.size)), "lhs_si": row_step,
                "lhs_sp": v[lhs.depth_step], "line_rows": line, "line_offsets": address(v["t_lines"]),
                "line_start": minus(i0, times(quotient(i0, line), line)), "run": run,
                "run_offsets": address(v["t_runs"]), "soon": v["t_soon"], "soon_bytes": v["t_soon_bytes"],
            }, statements  # fmt: skip
        if isinstance(lhs, PlainOperand):
            return self.plain_lhs_block(lhs)
        if self.spec.lhs_fast == "i":
            rows = v["t_block_rows"]
            statements = lhs.fill(v, rows) if isinstance(lhs, FilledOperand) else self.lhs_columns(lhs)
            first = minus(left, times(i0, self.size))
            return {"lhs": first, "lhs_si": ONE, "lhs_sp": rows, "pack_lhs": v["t_pack_lhs"]}, statements
        row = v["t_row"]
        statements = lhs.fill(v, row) if isinstance(lhs, FilledOperand) else self.lhs_rows(lhs)
        return {"lhs": minus(left, times(times(i0, row), self.size)), "lhs_si": row, "lhs_sp": ONE}, statements

    def plain_lhs_block(self, lhs: PlainOperand) -> tuple[dict[str, Expr], list[Stmt]]:
        """`lhs_block` of an array of another dtype."""
        v = self.names
        evaluate: list[Stmt] = [together(v, t_turned=ZERO, t_si=v["t_row"], t_sp=ONE), *self.lhs_any_rows(lhs)]
        if not self.blocking.by_matrix:
            turned = together(v, t_turned=v["t_pack_lhs"], t_si=ONE, t_sp=v["t_block_rows"])
            by_rows = both("and", [compared("==", v["lhs_si"], ONE), compared("!=", v["lhs_sp"], ONE)])
            evaluate = [If(by_rows, [turned, *self.lhs_columns(lhs)], evaluate)]
        first = minus(address(v["t_left"]), times(times(v["t_i0"], v["t_si"]), self.size))
        return {"lhs": first, "lhs_si": v["t_si"], "lhs_sp": v["t_sp"], "pack_lhs": v["t_turned"]}, evaluate

    def join_kernel(self) -> NamedKernel:
        """Adds the parts of every sum and runs the epilogue; items are rows of the result."""
        epilogue = self.spec.epilogue
        v = self.begin([("t_parts", f"{self.dtype}*"), *_integers("batch m n k t_splits t_out_part")])
        item, parts = v.index("t_item"), v["t_parts"]

        def add() -> list[Stmt]:
            at = plus(v["t_at"], v["t_j"])
            total = plus(load(parts, at), load(parts, plus(v["t_from"], v["t_j"])))
            return [store(parts, at, cast(self.dtype, total))]

        def add_part() -> list[Stmt]:
            start = v.let("t_from", plus(v["t_at"], times(v["t_number"], v["t_out_part"])))
            return [start, self.over("t_j", ZERO, v["n"], add)]

        def consume() -> list[Stmt]:
            at = plus(v["t_at"], v["t_j"])
            if isinstance(epilogue, PlainStore):
                return [v.let("t_sum", load(parts, at)), store(v[epilogue.pointer], at, v["t_sum"])]
            return self.consumed(epilogue, load(parts, at))

        body = [
            v.let("t_b", quotient(item, v["m"])),
            v.let("t_i", minus(item, times(v["t_b"], v["m"]))),
            v.let("t_at", times(item, v["n"])),
            self.over("t_number", ONE, v["t_splits"], add_part),
            self.over("t_j", ZERO, v["n"], consume),
        ]
        return self.kernel(f"{self.spec.name}_join", [For(item, v["lo"], v["hi"], ONE, body)])

    def lhs_element(self, lhs: Element | PlainOperand, fast: str) -> tuple[list[Stmt], Expr]:
        """The element of lhs at t_b, t_i, t_p; of a plain lhs of another dtype, along i with the stride known to be
        one."""
        v, adjacent = self.names, self.adjacent
        if not isinstance(lhs, PlainOperand):
            return lhs(v, "t_b", "t_i", "t_p")

        def place(p: Expr) -> Expr:
            row = v["t_i"] if fast == "i" else times(v["t_i"], v["lhs_si"])
            return plus(times(v["t_b"], v["lhs_sb"]), row, p if adjacent else times(p, v["lhs_sp"]))

        return [], self.load(lhs, place)

    def lhs_rows(self, lhs: Element | PlainOperand) -> list[Stmt]:
        v = self.names

        def element() -> list[Stmt]:
            statements, value = self.lhs_element(lhs, "p")
            return [*statements, store(v["t_left"], plus(v["t_at"], v["t_p"]), value)]

        def row() -> list[Stmt]:
            i, p0 = v["t_i"], v["t_p0"]
            at = v.let("t_at", minus(times(minus(i, v["t_i0"]), v["t_row"]), p0))
            copied = None
            if self.adjacent:
                begin = plus(times(v["t_b"], v["lhs_sb"]), times(i, v["lhs_si"]))
                copied = self.words_of(lhs, begin, "t_left")
            return [at, *self.over_p(p0, plus(p0, v["t_depth"]), element, copied)]

        return [self.over_rows(row)]

    def over_rows(self, body: Callable[[], list[Stmt]]) -> Stmt:
        """A loop over the rows of a block."""
        i0 = self.names["t_i0"]
        return self.over("t_i", i0, plus(i0, self.names["t_rows"]), body)

    def lhs_any_rows(self, lhs: PlainOperand) -> list[Stmt]:
        # The vectorizer makes two versions of a loop with an unknown step by itself, but not of one with words.
        if self.blocking.in_word == 1:
            return self.lhs_rows(lhs)
        self.adjacent = True
        adjacent = self.lhs_rows(lhs)
        self.adjacent = False
        return [If(compared("==", self.names["lhs_sp"], ONE), adjacent, self.lhs_rows(lhs))]

    def lhs_columns(self, lhs: Element | PlainOperand) -> list[Stmt]:
        v = self.names

        def element() -> list[Stmt]:
            statements, value = self.lhs_element(lhs, "i")
            return [*statements, store(v["t_left"], plus(v["t_at"], v["t_i"]), value)]

        def column() -> list[Stmt]:
            at = minus(times(minus(v["t_p"], v["t_p0"]), v["t_block_rows"]), v["t_i0"])
            return [v.let("t_at", at), self.over_rows(element)]

        return self.over_p(v["t_p0"], plus(v["t_p0"], v["t_depth"]), column)

    def epilogue(self, epilogue: Epilogue) -> Stmt:
        """The epilogue of all sums of a block."""
        v, row = self.names, self.names["t_sums_row"]
        first = times(v["t_q0"], v["t_columns"])
        if self.spec.epilogue_fast == "i":

            def down() -> list[Stmt]:
                return self.consumed(epilogue, load(v["t_sums"], plus(v["t_at"], times(v["t_i"], row))))

            def column() -> list[Stmt]:
                at = minus(minus(v["t_j"], first), times(v["t_i0"], row))
                return [v.let("t_at", at), self.over_rows(down)]

            return self.over("t_j", first, v["t_j1"], column)

        def across() -> list[Stmt]:
            return self.consumed(epilogue, load(v["t_sums"], plus(v["t_at"], v["t_j"])))

        def line() -> list[Stmt]:
            at = v.let("t_at", minus(times(minus(v["t_i"], v["t_i0"]), row), first))
            return [at, self.over("t_j", first, v["t_j1"], across)]

        return self.over_rows(line)

    def consumed(self, epilogue: Epilogue, value: Expr) -> list[Stmt]:
        """The epilogue of one sum, at t_b, t_i, t_j."""
        total: Assign = self.names.let("t_sum", value)
        return [total, *epilogue(self.names, "t_sum", "t_b", "t_i", "t_j")]
