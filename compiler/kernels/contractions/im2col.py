"""The left operand of a convolution as an image in scratch memory, in which tiles read the windows where they lie.

Copied one by one, the windows of a 3 x 3 convolution are nine times its operand. Here the rows of the operand that a
block needs are copied once, with the zeros around them. An element of the left operand, of row i and product p of the
contraction, then lies at

    lines[i // line] + i % line * row_step + runs[p // run] + p % run * depth_step

In convolutions and their gradients with respect to the operand, a line is a row of positions and a run the part of a
window that lies in one row of the image; in gradients with respect to the kernel it is the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    address,
    cast,
    compared,
    constant,
    greatest,
    increased,
    load,
    minus,
    plus,
    quotient,
    store,
    times,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, For, If, Stmt, Var
from hloom.compiler.kernels.codegen.guards import all_of
from hloom.compiler.kernels.contractions import room
from hloom.compiler.kernels.contractions.convolution_dims import Component, ConvolutionRoles
from hloom.compiler.kernels.contractions.room import ceil
from hloom.compiler.kernels.contractions.shared import block_area
from hloom.compiler.kernels.contractions.spec import StagedOperand
from hloom.compiler.kernels.contractions.tile_shapes import ITEMSIZES
from hloom.compiler.kernels.contractions.writer import together
from hloom.ir.records import record
from hloom.ir.sizes.expressions import SizeExpression

SHORTEST_LINE, SHORTEST_RUN = 6, 12
FEWEST = 96  # rows of a block, and products of a step: with fewer the panels of the kernel are read too often
NEAR_ROWS = 512  # of a block at most: longer ones copy fewer rows of the image twice, but cores wait for the last
PLACES = 192  # in a step of a gradient with respect to the kernel, whose panels then stay in the first cache
WHOLE = 16  # elements that rows of the image are a multiple of
SETS = 1024  # elements: rows that far apart share sets of the cache


@record(frozen=True)
class Side:
    """One index of the left operand. inner: (values, elements from one to the next) of its lines or runs. outer: the
    components above, the slowest first."""

    inner: tuple[int, int]
    outer: tuple[Component, ...]


_Sides = tuple[Side, Side]  # of the rows and of the products of the contraction


def image_of(roles: ConvolutionRoles, pointer: str, dtype: str, integers: dict[str, int]) -> Image | None:
    """The image of a convolution's operand; None where tiles cannot read the operand in one."""
    if roles.groups != 1 or not 1 <= len(roles.spaces) <= 2:
        return None
    if any([isinstance(c.extent, SizeExpression) for c in (*roles.rows, *roles.depths) if not roles.is_batch(c)]):
        return None  # lines of open sizes: the image of each size would be another one
    # All features of a position lie side by side, and positions after each other.
    features = [c.extent for c in (*roles.rows, *roles.depths) if c.space is None and c.step == 1]
    if math.prod(features) != roles.spaces[roles.along].stride:
        return None
    rows, depths = _side(roles, roles.rows), _side(roles, roles.depths)
    if rows is None or depths is None:
        return None
    of_rows, of_depths = (any(roles.is_batch(c) for c in side.outer) for side in (rows, depths))
    if of_rows and of_depths:
        return None
    by_rows = of_rows or (not of_depths and _height(roles, rows) >= _height(roles, depths))
    outer = (rows if by_rows else depths).outer
    kinds = [roles.is_batch(c) or c.space == roles.across for c in outer]
    if not all(kinds) or len(kinds) > 2 or any(roles.is_batch(c) for c in outer[1:]):
        return None
    return Image(roles, pointer, dtype, integers, (rows, depths), by_rows)


def _side(roles: ConvolutionRoles, components: Sequence[Component]) -> Side | None:
    wide = [c for c in components if c.extent != 1]
    if not wide or not roles.is_along(wide[-1]):
        return None
    extent, step = wide[-1].extent, roles.memory_step(wide[-1])
    outer = wide[:-1]
    while outer and roles.is_along(outer[-1]) and roles.memory_step(outer[-1]) == extent * step:
        extent *= outer.pop().extent
    if extent > room.DEPTH and step == 1:
        # A part of a run that has as many elements as all others.
        parts = next((q for q in range(ceil(extent, room.DEPTH), 17) if extent % q == 0), 1)
        if parts > 1:
            extent //= parts
            stride = roles.spaces[roles.along].stride
            if extent % stride:
                return None
            outer.append(Component(parts, extent // stride, roles.along))
    return Side((extent, step), tuple(outer))


def _is_across(roles: ConvolutionRoles, component: Component) -> bool:
    return component.space is not None and component.space == roles.across


def _height(roles: ConvolutionRoles, side: Side) -> int:
    """Rows of the image that a side walks."""
    return math.prod(c.extent for c in side.outer if _is_across(roles, c))


class Image:
    """Of a convolution's operand: what its rows are, and the statements that copy those of a block.

    taps, places: the sides that walk the window, and the positions of the result (with the batch). by_rows: whether the
    rows of the contraction are the positions. height: rows of positions. step: rows of the image between two of them.
    """

    def __init__(
        self, roles: ConvolutionRoles, pointer: str, dtype: str, integers: dict[str, int], sides: _Sides, by_rows: bool
    ):
        self.roles, self.pointer, self.dtype, self.integers = roles, pointer, dtype, integers
        self.size, self.by_rows = ITEMSIZES[dtype], by_rows
        self.rows, self.depths = sides
        self.places, self.taps = sides if by_rows else sides[::-1]
        reach = sum((c.extent - 1) * roles.memory_step(c) for c in (*roles.rows, *roles.depths) if roles.is_along(c))
        self.length = reach + 1
        self.row = ceil(self.length, WHOLE) * WHOLE
        self.row += WHOLE if self.row % SETS == 0 else 0
        self.height, self.step = _height(roles, self.places), self._step_across(self.places)

    def operand(self, machine) -> StagedOperand | None:
        """None where tiles would read the operand in pieces too small. machine: sizes of its caches."""
        (line, row_step), (run, depth_step) = self.rows.inner, self.depths.inner
        if line < SHORTEST_LINE or run < SHORTEST_RUN:
            return None
        _, m, _, k = self.roles.extents
        # Whether there is an image, and its steps, which order the sums, are the same for all machines.
        fitting = self._lines_in(room.LEFT_BYTES // self.size)
        units = min(room.DEPTH // run if self.by_rows else min(max(PLACES // run, 1), fitting), k // run, room.OFFSETS)
        few = fitting < 2 or fitting * line < min(FEWEST, m)
        if units < 1 or units * run < min(k, FEWEST) or (self.by_rows and few):
            return None
        units = ceil(k // run, ceil(k // run, units))
        area = min(block_area(machine, self.size) * 3 // 2, room.staged_bytes() // self.size)
        near = max(self._lines_in(area) - 1, 1)
        most = min(near * line, NEAR_ROWS, room.EDGE_ROWS) if self.by_rows else room.EDGE_ROWS
        most = min(most, room.rows_in_lines(room.OFFSETS, line))
        window = math.prod(c.extent for c in self.taps.outer) * self.taps.inner[0]
        share = 1.5 * self.length * self.step / (self.places.inner[0] * window)
        self.fill(self._probe())  # written once to know its integer arguments
        return StagedOperand(
            self.fill,
            self.number("c_row_step", row_step).name,
            self.number("c_depth_step", depth_step).name,
            line,
            self.number("c_line", line).name,
            run,
            self.number("c_run", run).name,
            units * run,
            most,
            min(1.0, share),
            self.by_rows,
            lambda lines: self._elements(lines if self.by_rows else units),
        )

    def number(self, name: str, value: int) -> Var:
        self.integers[name] = value
        return self.names.index(name)

    def _probe(self) -> Names:
        """Names of all that the statements use besides."""
        probe = Names(by_name)
        for name in ("t_b", "t_i0", "t_rows", "t_p0", "t_depth", "t_first"):
            probe.index(name)
        for name, kind in ((self.pointer, self.dtype), ("t_left", self.dtype), ("t_lines", "s64"), ("t_runs", "s64")):
            probe.declare(name, f"*{kind}")
        return probe

    def _step_across(self, side: Side) -> int:
        return next((c.step for c in side.outer if _is_across(self.roles, c)), 1)

    @cached_property
    def span(self) -> int:
        """Rows of the image that a line of positions reads."""
        return (_height(self.roles, self.taps) - 1) * self._step_across(self.taps) + 1

    def _elements(self, lines: int) -> int:
        """Elements of the rows of the image that so many lines of positions read: each image among them, of which the
        first and the last may lie in it in part, has rows that only its last line reads."""
        more, images = max(self.span - self.step, 0), (lines - 2) // self.height + 2
        return (lines * self.step + images * more) * self.row

    def _lines_in(self, area: int) -> int:
        """Lines of positions whose rows there is room for."""
        fitting = 0
        while fitting < room.OFFSETS - 2 and self._elements(fitting + 1) <= area:
            fitting += 1
        return fitting

    # --- the statements ---

    def fill(self, names: Names) -> list[Stmt]:
        """Fill `t_left`, `t_lines` and `t_runs` for the rows from t_i0 on, and the products from t_p0 on."""
        self.names = names
        return [*self._taps(), *self._places()]

    def _begin(self, side: Side) -> tuple[Var, Var, Var, Var]:
        """(first value, how many, the table of distances, the extent of a line or run) of a side in a block."""
        v = self.names
        if (side is self.places) == self.by_rows:
            return v["t_i0"], v["t_rows"], v["t_lines"], v.index("c_line")
        return v["t_p0"], v["t_depth"], v["t_runs"], v.index("c_run")

    def _counted(self, side: Side, name: str) -> list[Stmt]:
        begin, count, _, extent = self._begin(side)
        first = self.names.let(f"w_{name}", quotient(begin, extent))
        behind = plus(quotient(minus(plus(begin, count), ONE), extent), ONE)
        return [first, self.names.let(f"w_{name}s", minus(behind, first.var))]

    def _taps(self) -> list[Stmt]:
        v, table = self.names, self._begin(self.taps)[2]
        t, rest = v.index("w_t"), v.index("w_rest")
        terms: list[Expr] = []
        digits: list[Stmt] = []
        for k in range(len(self.taps.outer) - 1, -1, -1):
            component = self.taps.outer[k]
            step = component.step * self.row if component.space == self.roles.across else self._step_along(component)
            if k:
                extent = self.number(f"c_tap{k}", component.extent)
                digits.append(v.let("w_q", quotient(rest, extent)))
                digits.append(v.let(f"w_d{k}", minus(rest, times(v["w_q"], extent))))
                digits.append(v.let("w_rest", v["w_q"]))
            else:
                digits.append(v.let("w_d0", rest))
            terms.append(times(v[f"w_d{k}"], self.number(f"c_tap{k}_step", step * self.size)))
        origin = v.let("t_origin", ZERO)
        counted = self._counted(self.taps, "tap")
        away = v.let("w_away", plus(*terms) if terms else ZERO)
        body: list[Stmt] = [v.let("w_rest", plus(v["w_tap"], t)), *digits, away]
        if self.by_rows:  # runs are counted from the first one, where the operand begins
            body.append(If(compared("==", t, ZERO), [v.let("t_origin", away.var)]))
            body.append(store(table, t, minus(away.var, origin.var)))
        else:
            body.append(store(table, t, away.var))
        return [origin, *counted, For(t, ZERO, v["w_taps"], ONE, body)]

    def _step_along(self, component: Component) -> int:
        return component.step * (1 if component.space is None else self.roles.spaces[component.space].stride)

    def _places(self) -> list[Stmt]:
        v, table = self.names, self._begin(self.places)[2]
        height = self.number("c_height", self.height)
        step, span = self.number("c_across", self.step), self.number("c_span", self.span)
        row, size = self.number("c_image_row", self.row), constant(self.size)
        begin = together(v, w_from=ZERO, t_soon=ZERO, t_soon_bytes=ZERO)
        counted = self._counted(self.places, "line")
        line, lines, image = v["w_line"], v["w_lines"], v.index("w_image")
        start: list[Stmt] = [
            v.let("w_image", quotient(line, height)),
            v.let("w_y", minus(line, times(image, height))),
            v.let("w_top", v["w_y"]),
            v.let("w_at", ZERO),
            v.let("w_ready", ZERO),
        ]
        y, top, at, ready = v["w_y"], v["w_top"], v["w_at"], v["w_ready"]
        place, r = v.index("w_l"), v.index("w_r")
        copy, length = self._copied_row(step, row)
        need = v.let("w_need", plus(times(minus(y, top), step), span))
        next_image: list[Stmt] = [
            v.let("w_y", ZERO),
            increased(image, ONE),
            increased(at, times(ready, row)),
            v.let("w_top", ZERO),
            v.let("w_ready", ZERO),
        ]
        body: list[Stmt] = [
            need,
            For(r, ready, need.var, ONE, copy),
            v.let("w_ready", greatest(ready, need.var)),
            store(table, place, times(plus(at, times(times(minus(y, top), step), row)), size)),
            increased(y, ONE),
            If(compared("==", y, height), next_image),
        ]
        made: list[Stmt] = [
            *counted,
            *start,
            For(place, ZERO, lines, ONE, body),
            # The next rows, which a block or step copies after this one, follow the last.
            v.let("t_soon", plus(address(v[self.pointer]), times(v["w_from"], size))),
            v.let("t_soon_bytes", times(times(plus(times(lines, step), ONE), length), size)),
        ]
        # The rows of a block are the same for each of its steps.
        if self.by_rows:
            made = [If(compared("==", v["t_p0"], v["t_first"]), made)]
        return [begin, *made]

    def _copied_row(self, step: Expr, row: Expr) -> tuple[list[Stmt], Expr]:
        """(the statements that copy row w_r of the image, with the zeros around it; its length)."""
        roles, number, v = self.roles, self.number, self.names
        along, across = roles.spaces[roles.along], None if roles.across is None else roles.spaces[roles.across]
        source, inside = v.index("w_in"), list[Expr]()
        batch = [times(v["w_image"], number("c_image", c.step)) for c in self.places.outer if roles.is_batch(c)]
        first = along.start * along.stride
        memory = [times(v["t_b"], number("c_batch", roles.batch_stride)), *batch, number("c_first", first)]
        if across is not None:
            memory.append(times(source, number("c_stride", across.stride)))
            if across.checked:
                inside = [compared(">=", source, ZERO), compared("<", source, number("c_rows", across.extent))]
        left = number("c_left", max(-first, 0))
        right = number("c_right", max(min(self.length, along.extent * along.stride - first), 0))
        length = number("c_length", self.length)
        bounds: list[Stmt] = [v.let("w_0", left), v.let("w_1", right)]
        if inside:
            bounds = [v.let("w_0", ZERO), v.let("w_1", ZERO), If(all_of(inside), bounds)]
        start = number("c_start", across.start) if across is not None else ZERO
        e, target = v.index("w_e"), v["t_left"]

        def over(begin: Expr, end: Expr, value: Expr) -> For:
            return For(e, begin, end, ONE, [store(target, plus(v["w_to"], e), value)])

        nothing = cast(self.dtype, ZERO)
        return [
            v.let("w_in", plus(times(v["w_top"], step), start, v["w_r"])),
            v.let("w_to", plus(v["w_at"], times(v["w_r"], row))),
            v.let("w_from", plus(*memory)),
            *bounds,
            over(ZERO, v["w_0"], nothing),
            over(v["w_0"], v["w_1"], load(v[self.pointer], plus(v["w_from"], e))),
            over(v["w_1"], length, nothing),
        ], length
