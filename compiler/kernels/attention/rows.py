"""The row nest of attention, and what consumes its result, as statements for one row of a block.

Scratch memory of the kernel that they use: `t_scores[t_at + t_j]`, the scores of row `t_r` of the block, which
become its weights; `t_sums[t_r * t_width + t_j]`, its sums; and, one element a row, `t_divisors` by which the sums are
divided, `t_exact` (1: the weights have been), `t_kept0`, ... (results of reductions that what follows reads), `t_ends`
(how much of the row a mask leaves) and `t_tails` (the weight of all behind that).
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    both,
    call,
    cast,
    compared,
    greatest,
    least,
    load,
    minus,
    operation,
    plus,
    times,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr
from hloom.compiler.kernels.attention.masks import Mask, mask_of
from hloom.compiler.kernels.attention.structure import Attention, untransposed
from hloom.compiler.kernels.codegen.affine import ZERO as ORIGIN
from hloom.compiler.kernels.codegen.affine import Affine, Index, linear, merge_groups, variables
from hloom.compiler.kernels.codegen.description import Block, Lanes
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.compiler.kernels.loops.row_fusion import EXPENSIVE, reduction_levels
from hloom.compiler.kernels.request import KernelRequest, name_dims
from hloom.compiler.reshapes import without_ones_groups
from hloom.ir.module import Instruction, walk
from hloom.ir.ops import OPS
from hloom.ir.types import HLO_NAME, compute_dtype

# What the statements read besides.
_INTEGERS = (
    "t_b", "t_i", "t_i0", "t_r", "t_at", "t_j", "t_width", "t_limit", "t_length", "t_again", "t_end", "n", "d",
)  # fmt: skip
_ARRAYS = ("t_scores", "t_sums", "t_divisors", "t_tails")


class RowNest:
    """The blocks of a row. names: of the kernel that they become a part of.

    item: before all rows of a block. row: the row nest for row `t_i`. result: what consumes its sums.
    limit: raises `t_limit` to where the row's mask ends, where it has one (`mask`).
    divides: whether the sums are divided, by `t_divisors`.

    A target may do without a mask (`find_mask`) and divisors of sums (`quotient`).
    """

    def __init__(
        self, request: KernelRequest, attention: Attention, dtype: str, integers: dict[str, int], names: Names
    ):
        self.request, self.attention, self.dtype, self.integers = request, attention, dtype, integers
        self.names = names
        self.levels = reduction_levels(request.computation, set(attention.reduces))
        self.depth = max(self.levels[r] for r in attention.reduces)
        self.numerator, self.divisor = self.quotient()
        self.divides = self.divisor is not None
        self.stash, self.stash_level = self._stash()
        outputs = [request.outputs[k] for k in attention.scores]
        self.mask: Mask | None = self.find_mask([self.numerator, *outputs])
        self.counter = 0
        self.item: list[Block] = []
        self.limit: Block | None = None
        if mask := self.mask:

            def write_limit(writer: Writer, row: Block) -> None:
                row.let("t_limit", greatest(row.names["t_limit"], writer.position(mask.bound, "bound")))

            self.limit = self._block(attention.domain, write_limit)
        self.row = self._block(attention.domain, _Row(self).write)
        source = untransposed(request.outputs[attention.results[0]])
        self.result = self._block(source.dims, self._write_result)

    def _block(self, dims: tuple[int, ...], write: Callable[[Writer, Block], None]) -> Block:
        """The block of a row that `write(writer, row)` writes for arrays of these dims: batch and row are `t_b` and
        `t_i`, the index in the row `t_j`. What the row does not change goes into the item."""
        last = len(dims) - 1
        split = _dims_of_parts((*self.attention.rows, dims[last]), dims)
        probe = self._writer(dims, Names(by_name))
        probe.root.variables = frozenset(f"i{k}" for k in range(len(dims)))
        probe.merged[last] = "t_j"
        write(probe, probe.root.child())
        merged = merge_groups(dims, probe.used, [news[0] for news in split if news])
        writer = self._writer(dims, self.names)
        writer.integers, writer.counter = self.integers, self.counter
        writer.merged = dict.fromkeys(range(len(dims)))
        item = writer.root
        item.variables = frozenset({"t_b"})
        name_dims(writer, item, dims, [g for g in merged if set(g) <= set(split[0])], "t_b")
        row = item.child("t_i")
        name_dims(writer, row, dims, [g for g in merged if set(g) <= set(split[1])], "t_i")
        writer.merged[last] = "t_j"
        write(writer, row)
        self.counter = writer.counter
        self.item.append(item)
        return row

    def _writer(self, dims: tuple[int, ...], names: Names) -> Writer:
        """A writer that knows what the kernel has besides."""
        writer = self.request.writer(dims, names)
        for name in _INTEGERS:
            writer.index(name)
        kept = [f"t_kept{k}" for k in range(len(self.attention.needed))]
        for name in (*_ARRAYS, *kept):
            writer.names.declare(name, f"*{self.dtype}")
        for name in ("t_ends", "t_exact"):
            writer.names.declare(name, "*s64")
        return writer

    def find_mask(self, targets: list[Instruction]) -> Mask | None:
        """The mask behind which nothing is computed."""
        return mask_of(self.attention.domain, self.attention.reduces, targets)

    def _write_result(self, writer: Writer, row: Block) -> None:
        attention, request, v = self.attention, self.request, writer.names
        sources = {k: untransposed(request.outputs[k]) for k in attention.results}
        r = row.let("t_r", minus(v["t_i"], v["t_i0"]))
        divisor = row.let("t_divisor", load(v["t_divisors"], r)) if self.divides else None
        for k, reduce in enumerate(attention.needed):
            writer.overrides[reduce] = (row.let(f"t_row{k}", load(v[f"t_kept{k}"], r)), row)
        block = row.child("t_j")
        own = HLO_NAME[compute_dtype(attention.second.dtype)]
        value: Expr = load(v["t_sums"], plus(times(r, v["t_width"]), v["t_j"]))
        if divisor is not None:
            value = operation("/", value, divisor)
        total = block.let("t_sum", value if own == self.dtype else cast(own, value))
        writer.overrides[attention.second] = (total, block)
        index = variables(sources[attention.results[0]].dims)
        # All values before all stores: an output may overwrite an input that another output still reads.
        values = {k: writer.value(source, index, block) for k, source in sources.items()}
        for k, source in sources.items():
            output = request.outputs[k]
            order = range(len(index)) if source is output else output["dimensions"]
            place = linear(tuple(index[d] for d in order), output.dims)
            writer.store(request.output_name(k), place, values[k], block)
        if not self.divides:
            row.body.append(Lanes(writer.index("t_j"), writer.index("d"), block))
            return
        # Whether the sums of undivided weights are finite; rows where they are not are computed again.
        zero = row.let("t_zero", cast(self.dtype, ZERO))
        block.set([zero], [added(zero, times(total, cast(self.dtype, ZERO)))])  # NaN from infinity and NaN
        row.body.append(Lanes(writer.index("t_j"), writer.index("d"), block))
        exact = v["t_exact"]
        again = row.branch(both("and", [compared("!=", zero, ZERO), compared("==", load(exact, r), ZERO)]))
        again.store(exact, r, ONE)
        again.let("t_again", ONE)

    def index(self, dims, row: bool = False) -> Index:
        """The index of a score, or of a row, in an array of other dims, from the domain's."""
        domain = self.attention.domain
        if dims == domain:
            return variables(domain)
        parts: tuple[int, ...] = (*self.attention.rows, self.attention.extent)
        if row:
            parts, domain = parts[:-1], domain[:-1]
            if dims == domain:
                return variables(self.attention.domain)[:-1]
        index = [ORIGIN] * len(dims)
        for mine, theirs in zip(_dims_of_parts(parts, domain), _dims_of_parts(parts, dims), strict=True):
            place, below = ORIGIN, 1
            for k in reversed(mine):
                if domain[k] != 1:
                    place = place + Affine(0, {k: below})
                below *= domain[k]
            if len(theirs) > 1:
                raise AssertionError(f"scores have the dimensions {domain} and {dims}")
            for k in theirs:
                index[k] = place
        return tuple(index)

    def cast(self, value: Expr, instruction: Instruction) -> Expr:
        same = HLO_NAME[compute_dtype(instruction.dtype)] == self.dtype
        return value if same else cast(self.dtype, value)

    def quotient(self) -> tuple[Instruction, Instruction | None]:
        """(numerators, divisor of the row) where the weights are a quotient that nothing else needs, else (weights,
        None)."""
        attention = self.attention
        weights = attention.weights
        if self.request.shared:
            return weights, None  # a block that is computed again would read what it has overwritten
        inner = weights
        while inner.opcode == "reshape":
            inner = inner.operands[0]
        if inner.opcode == "divide" and inner.dims in (attention.domain, weights.dims):
            outputs = [self.request.outputs[k] for k in attention.scores]
            numerator, divisor = inner.operands
            if _is_of_row(divisor, len(inner.dims) - 1) and inner not in _scores(outputs, attention.first):
                return numerator, divisor
        return weights, None

    def _stash(self) -> tuple[Instruction | None, int]:
        """(an expensive value that a sweep and a later one need, and which then stands for the scores, since all later
        needs of the scores go through it; the level of the sweep)."""
        attention = self.attention
        first = attention.first
        later: list[Instruction] = [self.numerator, *(self.request.outputs[k] for k in attention.scores)]
        for level in range(self.depth, 0, -1):
            arrays = [r.operands[0] for r in attention.reduces if self.levels[r] == level]
            for value in _scores(arrays, first):
                other = value.dims != attention.domain or HLO_NAME[value.dtype] != self.dtype
                if OPS[value.opcode].flops < EXPENSIVE or other:
                    continue
                others = walk(later, {value, *attention.reduces}.__contains__)
                if value in _scores(later, first) and first not in others:
                    return value, level
            later += arrays
        return None, 0


def added(total: Expr, value: Expr) -> Expr:
    """A sum whose order is free."""
    return call(f"sum_{total.type}", (total, value), by_name)


class _Row:
    """Writes the row nest: a sweep for each level of reductions, then one for the weights."""

    def __init__(self, nest: RowNest):
        self.nest, self.attention, self.mask = nest, nest.attention, nest.mask
        self.index = variables(self.attention.domain)
        # The index of the first position that the mask hides: nothing there depends on the position.
        self.behind = (*self.index[:-1], Affine(0, {"t_end": 1}))

    def write(self, writer: Writer, row: Block) -> None:
        nest, attention = self.nest, self.attention
        self.writer, self.row, self.names, self.stashed = writer, row, writer.names, False
        self.column, self.stop = writer.index("t_j"), writer.index("t_end" if self.mask else "n")
        if self.mask:
            bound = greatest(writer.position(self.mask.bound, "bound"), ZERO)
            row.let("t_end", least(bound, writer.index("n")))
        for level in range(1, nest.depth + 1):
            here = [r for r in attention.reduces if nest.levels[r] == level]
            self._reductions([Reduction(r, keys=nest.request.supports_loop_splitting) for r in here], level)
        self._weights()
        outputs = nest.request.outputs
        for k in attention.of_rows:
            place = nest.index(outputs[k].dims, row=True)
            value = writer.value(outputs[k], place, row)
            writer.store(nest.request.output_name(k), linear(place, outputs[k].dims), value, row)
        if nest.divisor is not None:
            self._divide(nest.divisor)
        for k, reduce in enumerate(attention.needed):
            row.store(self.names[f"t_kept{k}"], self.names["t_r"], writer.overrides[reduce][0])
        if self.mask:
            v = self.names
            row.store(v["t_ends"], v["t_r"], v["t_end"])
            row.store(v["t_tails"], v["t_r"], v["t_tail"])
            behind = compared("<", v["t_end"], v["n"])
            row.branch(both("and", [compared("!=", v["t_tail"], ZERO), behind])).let("t_length", v["n"])

    def _at(self) -> Expr:
        """The place of a score."""
        return plus(self.names["t_at"], self.names["t_j"])

    def _sweep(self) -> Block:
        """The body of a loop over the row, in which scores have values."""
        block = self.row.child("t_j")
        score: Expr = block.let("t_score", load(self.names["t_scores"], self._at()))
        first, writer = self.attention.first, self.writer
        if self.stashed:
            block.memo[(self.nest.stash, self.index)] = (score, block)
            writer.overrides.pop(first, None)  # nothing may ask for it any more
            return block
        own = HLO_NAME[compute_dtype(first.dtype)]
        writer.overrides[first] = (score if own == self.nest.dtype else cast(own, score), block)
        if self.mask and self.mask.alone:
            block.memo[(self.mask.select, self.index)] = (writer.value(self.mask.inside, self.index, block), block)
        return block

    def _tail(self, value: Instruction, mask: Mask) -> Expr:
        """A value behind the mask, computed in the row."""
        writer = self.writer
        outside = writer.value(mask.outside, self.behind, self.row)
        writer.overrides[mask.select] = (outside, self.row)
        index = self.behind if value.dims == self.attention.domain else self.nest.index(value.dims)
        if value.dims != self.attention.domain:
            index = (*index[:-1], self.behind[-1])
        result = writer.value(value, index, self.row)
        del writer.overrides[mask.select]
        return result

    def _reductions(self, here: list[Reduction], level: int) -> None:
        nest, writer, row = self.nest, self.writer, self.row
        for reduction in here:
            reduction.start(writer, row)
        block = self._sweep()
        for reduction in here:
            reduction.take(writer, block, [writer.value(reduction.arrays[0], self.index, block)])
        if nest.stash is not None and level == nest.stash_level:
            value = writer.value(nest.stash, self.index, block)
            block.store(self.names["t_scores"], self._at(), value)
            self.stashed = True
        row.body.append(Lanes(self.column, self.stop, block))
        for reduction in here:
            reduction.settle(writer, row)
            row.body.append(reduction.collective())  # rows are reduced in parts
        if self.mask:
            tails = [self._tail(reduction.arrays[0], self.mask) for reduction in here]
            end, stop = self.names["t_end"], self.names["n"]
            behind = row.branch(compared("<", end, stop))
            for reduction, tail in zip(here, tails, strict=True):
                (name,) = reduction.names
                if reduction.opcode == "add":
                    made: Expr = plus(name, times(cast(nest.dtype, minus(stop, end)), tail))
                else:
                    made = call(f"acc{str(reduction.opcode)[:3]}_{nest.dtype}", (name, tail), by_name)
                behind.set([name], [made])
        for reduction in here:
            (result,) = reduction.finish(writer, row)
            writer.overrides[reduction.instruction] = (result, row)

    def _weights(self) -> None:
        """Puts the weights in the place of the scores, and stores what else there is for each score."""
        nest, writer = self.nest, self.writer
        request, outputs = nest.request, nest.request.outputs
        in_place = self.stashed and nest.stash is nest.numerator
        places = {k: nest.index(outputs[k].dims) for k in self.attention.scores}
        if places or not in_place:
            block = self._sweep()
            values = {k: writer.value(outputs[k], place, block) for k, place in places.items()}
            if not in_place:
                value = writer.value(nest.numerator, nest.index(nest.numerator.dims), block)
                block.store(self.names["t_scores"], self._at(), nest.cast(value, nest.numerator))
            for k, place in places.items():
                at, streamed = linear(place, outputs[k].dims), request.streamed(k)
                writer.store(request.output_name(k), at, values[k], block, streamed)
            self.row.body.append(Lanes(self.column, self.stop, block))
        if self.mask:
            tails = {k: self._tail(outputs[k], self.mask) for k in places}
            self.row.let("t_tail", nest.cast(self._tail(nest.numerator, self.mask), nest.numerator))
            block = self.row.child("t_j")
            for k, place in places.items():
                writer.store(request.output_name(k), linear(place, outputs[k].dims), tails[k], block)
            if places:
                self.row.body.append(Lanes(self.column, writer.index("n"), block, self.stop))

    def _divide(self, divisor: Instruction) -> None:
        nest, row = self.nest, self.row
        value = self.writer.value(divisor, nest.index(divisor.dims), row)
        v, one = self.names, cast(nest.dtype, ONE)
        by, r, scores = row.let("t_divisor", nest.cast(value, divisor)), v["t_r"], v["t_scores"]
        asked = both("and", [compared(">=", by, one), compared("==", load(v["t_exact"], r), ZERO)])
        later, now = row.branches(asked)
        later.store(v["t_divisors"], r, by)
        _, inside = now.loop("t_j", ZERO, self.stop)
        inside.store(scores, self._at(), operation("/", load(scores, self._at()), by))
        if self.mask:
            now.let("t_tail", operation("/", v["t_tail"], by))
        now.store(v["t_divisors"], r, one)
        now.store(v["t_exact"], r, ONE)


def _is_of_row(value: Instruction, last: int) -> bool:
    """Whether a value with the scores' dimensions is one per row."""
    if value.opcode == "broadcast":
        return last not in value["dimensions"]
    if OPS[value.opcode].family != "elementwise":
        return False
    return all(_is_of_row(o, last) for o in value.operands if o.dims)


def _scores(roots, first) -> list[Instruction]:
    """What the evaluation of `roots` computes for each score, from the last to the first."""
    found = walk(roots, lambda i: i is first or i.opcode == "reduce")
    others = ("reduce", "parameter", "constant", "broadcast", "iota", "reshape")
    return [i for i in found if i is not first and i.dims and i.opcode not in others]


def _dims_of_parts(parts, dims) -> list[list[int]]:
    """For each part the dimensions that it has become; a part of size 1 has none."""
    news = iter([news for _, news in without_ones_groups(parts, dims)])
    return [next(news) if part != 1 else [] for part in parts]
