"""Convolution as a contraction nest: windows are read while a block of the left operand is packed, never copied whole.

    out[b, i, j] = sum over p of x[b, i, p] * w[b, p, j]

i walks the places of the window (and the batch), p the elements of the window (and the features), j the output
features, b groups of features, or the batch where the result has it before the features. An element of x lies at
`place * stride + tap * dilation - padding` along each spatial dimension: the packing copies runs along whichever of i
and p is contiguous in memory, and writes zeros where a run leaves the array.
"""

from __future__ import annotations

from hloom.compiler.kernels.codegen.serial import indent
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
        filled = FilledOperand(_Packing(roles, request.names[left], dtype, accumulate, fast, integers).lines)
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
        self.lines("0")  # the integer arguments are known from now on

    def number(self, name: str, value: int) -> str:
        self.integers[name] = value
        return name

    def digits(self, rest: str, components, prefix: str) -> list[str]:
        """Statements that take an index apart: prefix0, prefix1, ... from the outermost component on."""
        lines = []
        for k in range(len(components) - 1, 0, -1):
            extent = self.number(f"c_{prefix}{k}", components[k].extent)
            lines += [f"w_q = quotient({rest}, {extent})", f"w_{prefix}{k} = {rest} - w_q * {extent}"]
            if k > 1:
                lines.append("w_r = w_q")
                rest = "w_r"
            else:
                rest = "w_q"
        return [*lines, f"w_{prefix}0 = {rest}"]

    def offset(self, components, prefix: str, space: int | None) -> list[str]:
        """The terms of the components along one spatial dimension (None: in memory)."""
        terms = []
        for k, c in enumerate(components):
            if c.space == space:
                step = "" if c.step == 1 else f" * {self.number(f'c_{prefix}{k}_step', c.step)}"
                terms.append(f"w_{prefix}{k}{step}")
        return terms

    def lines(self, row: str) -> list[str]:
        """The statements; `row`: elements of scratch memory from one slow index to the next."""
        slow, fast = self.slow_name, self.fast_name
        begin, count = {"i": ("t_i0", "t_rows"), "p": ("t_p0", "t_depth")}[fast]
        slow_begin, slow_count = {"i": ("t_i0", "t_rows"), "p": ("t_p0", "t_depth")}[slow]
        lines = [*self.digits(begin, self.fast, "first"), f"w_end = {begin} + {count}"]
        body = [f"t_at = (t_{slow} - {slow_begin}) * {row} - {begin}", *self.digits(f"t_{slow}", self.slow, "s")]
        memory = [f"t_b * {self.number('c_batch', self.roles.batch_stride)}", *self.offset(self.slow, "s", None)]
        body.append(f"w_base = {' + '.join(memory)}")
        for d, space in enumerate(self.roles.spaces):
            terms = self.offset(self.slow, "s", d)
            if space.start:
                terms.append(self.number(f"c_start{d}", space.start))
            body.append(f"w_x{d} = {' + '.join(terms) or '0'}")
        runs = [f"w_f{k} = w_first{k}" for k in range(len(self.fast))]
        runs += [f"w_at = {begin}", "while w_at < w_end:", *indent(self.run())]
        if fast == "p" and len(self.fast) > 1 and self.adjacent():
            conditions = ["t_depth == k"]
            for d, space in enumerate(self.roles.spaces):
                if space.checked:
                    reach = sum((c.extent - 1) * c.step for c in self.fast if c.space == d)
                    last = self.number(f"c_last{d}", space.extent - reach)
                    conditions += [f"w_x{d} >= 0", f"w_x{d} < {last}"]
            body += [f"if {' and '.join(conditions)}:", *indent(self.window()), "else:", *indent(runs)]
        else:
            body += runs
        return [*lines, f"for t_{slow} in range({slow_begin}, {slow_begin} + {slow_count}):", *indent(body)]

    def adjacent(self) -> bool:
        """Whether the elements of a run are copied as they are, one after another."""
        return self.roles.memory_step(self.fast[-1]) == 1 and self.dtype == self.accumulate

    def window(self) -> list[str]:
        """All of a window that lies inside of the array: nothing but the copies of its runs."""
        *outer, inner = self.fast
        memory = ["w_base", *self.offset(outer, "g", None)]
        for d, space in enumerate(self.roles.spaces):
            position = " + ".join([f"w_x{d}", *self.offset(outer, "g", d)])
            stride = "" if space.stride == 1 else f" * {self.number(f'c_stride{d}', space.stride)}"
            memory.append(f"({position}){stride}")
        extent = self.number(f"c_first{len(outer)}", inner.extent)
        loop = [f"for w_e in range({extent}):", f"    t_left[w_to + w_e] = {self.element('w_from + w_e')}"]
        lines = [f"w_from = {' + '.join(memory)}", *(self.copied() or loop), f"w_to += {extent}"]
        for k in range(len(outer) - 1, -1, -1):
            extent = self.number(f"c_first{k}", outer[k].extent)
            lines = [f"for w_g{k} in range({extent}):", *indent(lines)]
        return ["w_to = t_at", *lines]

    def copied(self) -> list[str]:
        """A whole run by a few vectors, where it is short: LLVM makes calls of the C library of loops that copy and
        clear, which take longer than a short run does."""
        inner = self.fast[-1]
        if not self.adjacent() or not 1 < inner.extent <= SHORT:
            return []
        size = ITEMSIZES[self.accumulate]
        places = f"address({self.pointer}) + w_from * {size}, address(t_left) + w_to * {size}"
        return [f"copy_{self.dtype}_{inner.extent}({places})"]

    def run(self) -> list[str]:
        """One run along the innermost component of the fast index, and the step to the next."""
        last = len(self.fast) - 1
        inner = self.fast[last]
        extent = self.number(f"c_first{last}", inner.extent)
        lines = [f"w_run = min({extent} - w_f{last}, w_end - w_at)"]
        memory = ["w_base", *self.offset(self.fast, "f", None)]
        conditions = []
        for d, space in enumerate(self.roles.spaces):
            position = f"w_y{d}"
            lines.append(f"{position} = {' + '.join([f'w_x{d}', *self.offset(self.fast, 'f', d)])}")
            stride = "" if space.stride == 1 else f" * {self.number(f'c_stride{d}', space.stride)}"
            memory.append(f"{position}{stride}")
            if space.checked and inner.space != d:
                size = self.number(f"c_extent{d}", space.extent)
                conditions += [f"{position} >= 0", f"{position} < {size}"]
        lines += [f"w_from = {' + '.join(memory)}", "w_to = t_at + w_at"]
        step = self.roles.memory_step(inner)
        at = "w_from + w_e" if step == 1 else f"w_from + w_e * {self.number('c_jump', step)}"
        copy = f"t_left[w_to + w_e] = {self.element(at)}"
        zero = f"t_left[w_to + w_e] = {self.accumulate}(0)"
        lines += self.clipped(inner, conditions, copy, zero)
        return [*lines, "w_at += w_run", f"w_f{last} = 0", *self.carry(last - 1)]

    def clipped(self, inner: Component, conditions: list[str], copy: str, zero: str) -> list[str]:
        """The loop over a run. What is outside of the array is zero: all of the run where a condition does not hold,
        and the part that is outside along the run's own spatial dimension."""
        inside = f"if {' and '.join(conditions)}:"
        clear = ["for w_e in range(w_run):", f"    {zero}"]
        if inner.space is None or not self.roles.spaces[inner.space].checked:
            lines = self.whole("w_run", ["for w_e in range(w_run):", f"    {copy}"])
            return [inside, *indent(lines), "else:", *indent(clear)] if conditions else lines
        d = inner.space
        size = self.number(f"c_extent{d}", self.roles.spaces[d].extent)
        if inner.step == 1:
            lines = [f"w_e0 = min(max(0 - w_y{d}, 0), w_run)", f"w_e1 = max(min({size} - w_y{d}, w_run), w_e0)"]
        else:
            step = self.number("c_every", inner.step)
            lines = [
                f"w_e0 = min(quotient(max({step} - 1 - w_y{d}, 0), {step}), w_run)",
                f"w_e1 = max(min(quotient(max({size} - w_y{d} + {step} - 1, 0), {step}), w_run), w_e0)",
            ]
        if conditions:
            lines = ["w_e0 = 0", "w_e1 = 0", inside, *indent(lines)]
        # Few loops: each takes LLVM as long as the rest of a run.
        parts = ["if w_e1 - w_e0 < w_run:", *indent(clear), "for w_e in range(w_e0, w_e1):", f"    {copy}"]
        if self.copied():
            itemsize, extent = ITEMSIZES[self.accumulate], inner.extent
            parts = [
                f"if w_run == {extent}:",
                f"    zero_{self.dtype}_{extent}(address(t_left) + w_to * {itemsize})",
                f"    copy_first_{self.dtype}_{extent}(address({self.pointer}) + (w_from + w_e0) * {itemsize}, "
                f"address(t_left) + (w_to + w_e0) * {itemsize}, w_e1 - w_e0)",
                "else:",
                *indent(parts),
            ]
        return lines + self.whole("w_e1 - w_e0", parts)

    def whole(self, count: str, parts: list[str]) -> list[str]:
        """`parts`, but quicker where `count`, the elements inside of the array, are those of a whole run."""
        if not (copy := self.copied()):
            return parts
        return [f"if {count} == {self.fast[-1].extent}:", *indent(copy), "else:", *indent(parts)]

    def carry(self, k: int) -> list[str]:
        if k < 0:
            return []
        lines = [f"w_f{k} += 1"]
        if k > 0:
            extent = self.number(f"c_first{k}", self.fast[k].extent)
            lines += [f"if w_f{k} == {extent}:", f"    w_f{k} = 0", *indent(self.carry(k - 1))]
        return lines

    def element(self, at: str) -> str:
        return load_plain(PlainOperand(self.pointer, self.dtype), at, self.accumulate)
