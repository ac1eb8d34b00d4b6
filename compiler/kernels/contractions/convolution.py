"""Convolution as a contraction nest: windows are read while a block of the left operand is packed, never copied whole.

    out[b, i, j] = sum over p of x[b, i, p] * w[b, p, j]

i walks the places of the window (and the batch), p the elements of the window (and the features), j the output
features, b groups of features, or the batch where the result has it before the features. An element of x lies at
`place * stride + tap * dilation - padding` along each spatial dimension: the packing copies runs along whichever of i
and p is contiguous in memory, and writes zeros where a run leaves the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    address,
    cast,
    compared,
    constant,
    do,
    greatest,
    increased,
    least,
    minus,
    plus,
    quotient,
    store,
    times,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Assign, Expr, For, If, Stmt, Var, While
from hloom.compiler.kernels.codegen.guards import all_of
from hloom.compiler.kernels.contractions.convolution_dims import Component, ConvolutionRoles
from hloom.compiler.kernels.contractions.im2col import image_of
from hloom.compiler.kernels.contractions.operands import ContractionParts, epilogue_of, extra_params
from hloom.compiler.kernels.contractions.spec import ContractionSpec, FilledOperand, PlainOperand, StagedOperand
from hloom.compiler.kernels.contractions.tile_shapes import ITEMSIZES
from hloom.compiler.kernels.contractions.writer import load_plain
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.ir.module import Instruction
from hloom.ir.types import HLO_NAME

SHORT = 128  # elements of a run that is copied without a loop


def convolution_parts(request: KernelRequest, instruction: Instruction, machine) -> ContractionParts:
    """What a fused computation with this convolution, in normal form, contracts."""
    roles = ConvolutionRoles(instruction)
    integers: dict[str, int] = {}
    accumulate = accumulation_dtype(instruction)
    left, right = instruction.operands
    fast = roles.fast()
    dtype = HLO_NAME[left.dtype]
    filled: StagedOperand | FilledOperand | None = None
    if dtype == accumulate and (image := image_of(roles, request.names[left], dtype, integers)):
        filled = image.operand(machine)
    if filled is None:
        filled = FilledOperand(_Packing(roles, request.names[left], dtype, accumulate, fast, integers).fill)
    rhs = PlainOperand(request.names[right], HLO_NAME[right.dtype])
    epilogue = epilogue_of(request, instruction, roles, integers, accumulate)
    params = extra_params(request, integers, rhs, epilogue)
    last = "i" if roles.result[-1] == "i" else "j"
    spec = ContractionSpec(
        request.title("product"), accumulate, filled, rhs, epilogue, params, fast, "j", roles.groups > 1, last
    )
    return ContractionParts(spec, roles.extents, (0, 0, 0), roles.rhs_strides, integers)


class _Packing:
    """Writes the statements that fill a block of the left operand, run by run."""

    def __init__(self, roles: ConvolutionRoles, pointer: str, dtype: str, accumulate: str, fast: str, integers):
        self.roles, self.pointer, self.dtype, self.accumulate = roles, pointer, dtype, accumulate
        self.integers = integers
        rows = [c for c in roles.rows if c.extent != 1] or [Component(1, 1)]
        depths = [c for c in roles.depths if c.extent != 1] or [Component(1, 1)]
        # The slow index is walked one by one, along the fast one whole runs of its innermost component are copied.
        self.slow, self.fast = (rows, depths) if fast == "p" else (depths, rows)
        self.slow_name, self.fast_name = ("i", "p") if fast == "p" else ("p", "i")
        probe = Names(by_name)
        for name in ("t_i0", "t_rows", "t_p0", "t_depth", "t_b", "k"):
            probe.index(name)
        for name, kind in ((pointer, dtype), ("t_left", accumulate)):
            probe.declare(name, f"*{kind}")
        self.fill(probe, ZERO)  # the integer arguments are known from now on

    def number(self, name: str, value: int) -> Var:
        self.integers[name] = value
        return self.names.index(name)

    def digits(self, rest: Expr, components: Sequence[Component], prefix: str) -> list[Stmt]:
        """Statements that take an index apart: prefix0, prefix1, ... from the outermost component on."""
        v, made = self.names, list[Stmt]()
        for k in range(len(components) - 1, 0, -1):
            extent = self.number(f"c_{prefix}{k}", components[k].extent)
            made.append(v.let("w_q", quotient(rest, extent)))
            made.append(v.let(f"w_{prefix}{k}", minus(rest, times(v["w_q"], extent))))
            rest = v["w_q"]
            if k > 1:
                made.append(v.let("w_r", rest))
                rest = v["w_r"]
        return [*made, v.let(f"w_{prefix}0", rest)]

    def offset(self, components: Sequence[Component], prefix: str, space: int | None) -> list[Expr]:
        """The terms of the components along one spatial dimension (None: in memory)."""
        terms: list[Expr] = []
        for k, c in enumerate(components):
            if c.space == space:
                digit = self.names.index(f"w_{prefix}{k}")
                terms.append(digit if c.step == 1 else times(digit, self.number(f"c_{prefix}{k}_step", c.step)))
        return terms

    def fill(self, names: Names, row: Expr) -> list[Stmt]:
        """The statements; `row`: elements of scratch memory from one slow index to the next."""
        self.names = v = names
        begin, count = {"i": (v["t_i0"], v["t_rows"]), "p": (v["t_p0"], v["t_depth"])}[self.fast_name]
        slow_begin, slow_count = {"i": (v["t_i0"], v["t_rows"]), "p": (v["t_p0"], v["t_depth"])}[self.slow_name]
        made = [*self.digits(begin, self.fast, "first"), v.let("w_end", plus(begin, count))]
        slow = v.index(f"t_{self.slow_name}")
        body: list[Stmt] = [v.let("t_at", minus(times(minus(slow, slow_begin), row), begin))]
        body += self.digits(slow, self.slow, "s")
        memory = [times(v["t_b"], self.number("c_batch", self.roles.batch_stride)), *self.offset(self.slow, "s", None)]
        body.append(v.let("w_base", plus(*memory)))
        for d, space in enumerate(self.roles.spaces):
            terms = self.offset(self.slow, "s", d)
            if space.start:
                terms.append(self.number(f"c_start{d}", space.start))
            body.append(v.let(f"w_x{d}", plus(*terms) if terms else ZERO))
        runs: list[Stmt] = [v.let(f"w_f{k}", v[f"w_first{k}"]) for k in range(len(self.fast))]
        runs.append(v.let("w_at", begin))
        runs.append(While(compared("<", v["w_at"], v["w_end"]), self.run()))
        if self.fast_name == "p" and len(self.fast) > 1 and self.adjacent():
            asked: list[Expr] = [compared("==", v["t_depth"], v["k"])]
            for d, space in enumerate(self.roles.spaces):
                if space.checked:
                    reach = sum((c.extent - 1) * c.step for c in self.fast if c.space == d)
                    asked += self.between(v[f"w_x{d}"], self.number(f"c_last{d}", space.extent - reach))
            body.append(If(all_of(asked), self.window(), runs))
        else:
            body += runs
        return [*made, For(slow, slow_begin, plus(slow_begin, slow_count), ONE, body)]

    def between(self, position: Expr, extent: Expr) -> list[Expr]:
        """The conditions that a position is inside."""
        return [compared(">=", position, ZERO), compared("<", position, extent)]

    def adjacent(self) -> bool:
        """Whether the elements of a run are copied as they are, one after another."""
        return self.roles.memory_step(self.fast[-1]) == 1 and self.dtype == self.accumulate

    def window(self) -> list[Stmt]:
        """All of a window that lies inside of the array: nothing but the copies of its runs."""
        v = self.names
        *outer, inner = self.fast
        digits = [v.index(f"w_g{k}") for k in range(len(outer))]
        memory = [v["w_base"], *self.offset(outer, "g", None)]
        for d, space in enumerate(self.roles.spaces):
            position = plus(v[f"w_x{d}"], *self.offset(outer, "g", d))
            stride = space.stride != 1
            memory.append(times(position, self.number(f"c_stride{d}", space.stride)) if stride else position)
        extent = self.number(f"c_first{len(outer)}", inner.extent)
        to, start = v.let("w_to", v["t_at"]), v.let("w_from", plus(*memory))
        copy = self.copied() or [self.over(ZERO, extent, lambda e: self.put(e, self.element(plus(v["w_from"], e))))]
        made: list[Stmt] = [start, *copy, increased(v["w_to"], extent)]
        for k in range(len(outer) - 1, -1, -1):
            made = [For(digits[k], ZERO, self.number(f"c_first{k}", outer[k].extent), ONE, made)]
        return [to, *made]

    def over(self, start: Expr, stop: Expr, body: Callable[[Var], Stmt]) -> For:
        """A loop over elements of a run."""
        e = self.names.index("w_e")
        return For(e, start, stop, ONE, [body(e)])

    def put(self, e: Expr, value: Expr) -> Stmt:
        """Writes element e of a run."""
        return store(self.names["t_left"], plus(self.names["w_to"], e), value)

    def memory_at(self, e: Expr | None = None) -> tuple[Expr, Expr]:
        """The addresses of a run in memory and in scratch memory, or of its element e."""
        v, size = self.names, constant(ITEMSIZES[self.accumulate])
        source, target = (v["w_from"], v["w_to"]) if e is None else (plus(v["w_from"], e), plus(v["w_to"], e))
        return plus(address(v[self.pointer]), times(source, size)), plus(address(v["t_left"]), times(target, size))

    def copied(self) -> list[Stmt]:
        """A whole run by a few vectors, where it is short: LLVM makes calls of the C library of loops that copy and
        clear, which take longer than a short run does."""
        inner = self.fast[-1]
        if not self.adjacent() or not 1 < inner.extent <= SHORT:
            return []
        return [do(f"copy_{self.dtype}_{inner.extent}", self.memory_at())]

    def run(self) -> list[Stmt]:
        """One run along the innermost component of the fast index, and the step to the next."""
        v, last = self.names, len(self.fast) - 1
        inner, digit = self.fast[last], v[f"w_f{last}"]
        extent = self.number(f"c_first{last}", inner.extent)
        made: list[Stmt] = [v.let("w_run", least(minus(extent, digit), minus(v["w_end"], v["w_at"])))]
        memory = [v["w_base"], *self.offset(self.fast, "f", None)]
        asked: list[Expr] = []
        for d, space in enumerate(self.roles.spaces):
            made.append(v.let(f"w_y{d}", plus(v[f"w_x{d}"], *self.offset(self.fast, "f", d))))
            position: Expr = v[f"w_y{d}"]
            stride = space.stride != 1
            memory.append(times(position, self.number(f"c_stride{d}", space.stride)) if stride else position)
            if space.checked and inner.space != d:
                asked += self.between(position, self.number(f"c_extent{d}", space.extent))
        made += [v.let("w_from", plus(*memory)), v.let("w_to", plus(v["t_at"], v["w_at"]))]
        step = self.roles.memory_step(inner)
        jump = None if step == 1 else self.number("c_jump", step)

        def copy(e: Var) -> Stmt:
            return self.put(e, self.element(plus(v["w_from"], e if jump is None else times(e, jump))))

        made += self.clipped(inner, asked, copy)
        return [*made, increased(v["w_at"], v["w_run"]), v.let(f"w_f{last}", ZERO), *self.carry(last - 1)]

    def clipped(self, inner: Component, asked: list[Expr], copy: Callable[[Var], Stmt]) -> list[Stmt]:
        """The loop over a run. What is outside of the array is zero: all of the run where a condition does not hold,
        and the part that is outside along the run's own spatial dimension."""
        v, run = self.names, self.names["w_run"]
        clear = self.over(ZERO, run, lambda e: self.put(e, cast(self.accumulate, ZERO)))
        if inner.space is None or not self.roles.spaces[inner.space].checked:
            lines = self.whole(run, [self.over(ZERO, run, copy)])
            return [If(all_of(asked), lines, [clear])] if asked else lines
        d = inner.space
        size, y = self.number(f"c_extent{d}", self.roles.spaces[d].extent), v[f"w_y{d}"]
        made: list[Stmt] = []
        if asked:
            made += [v.let("w_e0", ZERO), v.let("w_e1", ZERO), If(all_of(asked), self.inside(inner, size, y))]
        else:
            made += self.inside(inner, size, y)
        e0, e1 = v["w_e0"], v["w_e1"]
        count = minus(e1, e0)
        # Few loops: each takes LLVM as long as the rest of a run.
        parts: list[Stmt] = [If(compared("<", count, run), [clear]), self.over(e0, e1, copy)]
        if self.copied():
            extent = inner.extent
            some = [
                do(f"zero_{self.dtype}_{extent}", self.memory_at()[1:]),
                do(f"copy_first_{self.dtype}_{extent}", (*self.memory_at(e0), count)),
            ]
            parts = [If(compared("==", run, constant(extent)), some, parts)]
        return made + self.whole(count, parts)

    def inside(self, inner: Component, size: Expr, y: Expr) -> list[Stmt]:
        """The bounds of the part of a run that is inside of the array along its own spatial dimension."""
        v, run = self.names, self.names["w_run"]
        if inner.step == 1:
            first: Assign = v.let("w_e0", least(greatest(minus(ZERO, y), ZERO), run))
            return [first, v.let("w_e1", greatest(least(minus(size, y), run), v["w_e0"]))]
        step = self.number("c_every", inner.step)
        before = greatest(minus(minus(step, ONE), y), ZERO)
        behind = greatest(minus(plus(minus(size, y), step), ONE), ZERO)
        first = v.let("w_e0", least(quotient(before, step), run))
        return [first, v.let("w_e1", greatest(least(quotient(behind, step), run), v["w_e0"]))]

    def whole(self, count: Expr, parts: list[Stmt]) -> list[Stmt]:
        """`parts`, but quicker where `count`, the elements inside of the array, are those of a whole run."""
        if not (copy := self.copied()):
            return parts
        return [If(compared("==", count, constant(self.fast[-1].extent)), copy, parts)]

    def carry(self, k: int) -> list[Stmt]:
        if k < 0:
            return []
        digit = self.names[f"w_f{k}"]
        made: list[Stmt] = [increased(digit, ONE)]
        if k > 0:
            extent = self.number(f"c_first{k}", self.fast[k].extent)
            made.append(If(compared("==", digit, extent), [self.names.let(f"w_f{k}", ZERO), *self.carry(k - 1)]))
        return made

    def element(self, at: Expr) -> Expr:
        return load_plain(self.names[self.pointer], at, self.accumulate)
