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

Every sum has the order of the contraction, every decision is one about a row: results have the same bits for every
size of the blocks and any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hloom.compiler.kernels.affine import ZERO, Affine, Index, linear, merge_groups, reshape_groups, variables
from hloom.compiler.kernels.attention_structure import Attention, untransposed
from hloom.compiler.kernels.combine import Reduction
from hloom.compiler.kernels.contraction import (
    PRODUCT,
    ContractionKernels,
    ContractionSpec,
    PlainOperand,
    PlainStore,
    render,
)
from hloom.compiler.kernels.contraction_plan import SERIAL_WORK
from hloom.compiler.kernels.contraction_shared import PRODUCT_PARAMS, indent
from hloom.compiler.kernels.description import Block, Serial
from hloom.compiler.kernels.product import Operand, Roles, accumulation_dtype, operand_of
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.row import EXPENSIVE
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.kernels.writer import load
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import HLO_NAME, compute_dtype

SCORES = 256 << 10  # bytes of scratch memory for scores: with the product's own, within half a megabyte of stack
SUMS = 64 << 10  # bytes of scratch memory for the sums, and for queries that are computed
ROWS = 128  # rows of a block at most
MANY = 1 << 16  # rows: keys and values are packed for several blocks
WANTED = 128 << 10  # bytes of scores in a block, where that is some rows: keys and values stay in the cache beside them


@dataclass
class AttentionLaunch:
    """A kernel with the values of its parameters (but lo and hi): a pointer's name, an integer, or a kernel whose
    address it is. As `emit.Launch`."""

    source: KernelSource
    arguments: list[str | int | KernelSource]
    items: int
    grain: int
    temporaries: dict[str, int] = field(default_factory=dict)


def attention_launches(request: KernelRequest, attention: Attention, machine) -> list[AttentionLaunch]:
    """The launches: packing of keys, packing of values, and the kernel of all rows."""
    return _Kernel(request, attention, machine).launches()


@dataclass
class _Contraction:
    """One of the two contractions. number: 1 or 2. right: its right operand. arguments: what the shared product gets,
    by its parameters' names; this kernel's parameters for them end with the number."""

    number: int
    kernels: ContractionKernels
    right: Operand
    arguments: dict[str, int]
    packing: list[AttentionLaunch]

    def product(self, values: dict[str, str]) -> list[str]:
        """The call of the shared product for one block. values: of its parameters; of others this contraction's own."""
        code, number, size = self.right.code, self.number, self.kernels.blocking.size
        in_place = isinstance(code, PlainOperand) and code.dtype == self.kernels.spec.accumulate
        pointer = code.pointer if in_place else f"t_packed{number}"
        given = {
            "rhs": f"address({pointer}) + t_b * t_rhs_sb{number} * {size}",
            "packed": f"address(t_packed{number}) + t_b * t_packed_sb{number} * {size}",
            "lhs_sb": "0", "lhs_sp": "1", "rhs_sb": "0", "packed_sb": "0", "out_sb": "0", "row_blocks": "1",
            "column_blocks": "1", "block_rows": "t_rows", "m": "t_rows", "block_panels": f"t_panels{number}",
            "full_panels": f"t_panels{number}", "pack_lhs": "0", "accumulate": "0",
        } | values  # fmt: skip
        words = [given.get(name, f"t_{name}{number}") for name in list(PRODUCT_PARAMS)[:-2]]
        return [f"call_kernel(t_product, 0, 1, {', '.join(words)})"]


class _Kernel:
    """The making of one attention kernel."""

    def __init__(self, request: KernelRequest, attention: Attention, machine):
        self.request, self.attention, self.machine = request, attention, machine
        self.dtype = accumulation_dtype(attention.first)
        self.integers: dict[str, int] = {}
        one, two = Roles(attention.first), Roles(attention.second)
        self.batch, self.m, self.n, self.k = one.extents
        self.d = two.extents[2]
        first, second = attention.first, attention.second
        operand = lambda array, roles, order: operand_of(  # noqa: E731
            request, array, roles, self.integers, self.dtype, order
        )
        self.queries = operand(first.operands[0], one.left, ("p", "i"))
        keys = operand(first.operands[1], one.right, ("j", "p"))
        values = operand(second.operands[1], two.right, ("j", "p"))
        self.numerator, self.divisor = self._quotient()
        self.counter = 0
        self.item: list[str] = []
        self.row = self._rows_text()
        self.result = self._result_text()
        self.one = self._contraction(1, one, keys)
        self.two = self._contraction(2, two, values)
        self.tile, self.size = self.one.kernels.blocking.tile, self.one.kernels.blocking.size

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
        kernels = render(spec, self.machine)
        batch, m, n, k = roles.extents
        steps = kernels.step_plan(batch, max(m, MANY), n, k, (k, k, 1), right.strides)
        packing = [self._packing(number, kernels, step) for step in steps[:-1]]
        return _Contraction(number, kernels, right, steps[-1].arguments, packing)

    def _packing(self, number: int, kernels: ContractionKernels, step) -> AttentionLaunch:
        rename = lambda name: f"{name}{number}" if name == "t_packed" else name  # noqa: E731
        arguments: list[str | int | KernelSource] = []
        for name in kernels.parameters[step.kernel][:-2]:
            if name in step.arguments:
                value = step.arguments[name]
                arguments.append(kernels.kernels[value.kernel] if hasattr(value, "kernel") else value)
            elif name in self.integers:
                arguments.append(self.integers[name])
            else:
                arguments.append(rename(step.pointers.get(name, name)))
        temporaries = {rename(name): size for name, size in step.temporaries.items()}
        return AttentionLaunch(kernels.kernels[step.kernel], arguments, step.items, step.grain, temporaries)

    # --- the row nest ---

    def _text_of(self, dims, last: str, write) -> list[str]:
        """The lines of a row that `write(writer, row)` writes for arrays of these dims: batch and row are `t_b` and
        `t_i`, the last dimension's index has the name `last`. What the row does not change goes into the item."""
        from hloom.compiler.targets.cpu.render import block_lines

        length = dims[-1]
        split = _dims_of_parts((*self.attention.rows, length), dims)
        probe = self.request.writer(dims)
        probe.root.variables = frozenset(f"i{k}" for k in range(len(dims)))
        probe.set_domain_plain()
        probe.merged[len(dims) - 1] = (last, 1)
        write(probe, probe.root.child())
        merged = merge_groups(dims, probe.used, [news[0] for news in split if news])
        writer = self.request.writer(dims)
        writer.integers, writer.counter = self.integers, self.counter
        writer.merged = dict.fromkeys(range(len(dims)))
        item = writer.root
        item.variables = frozenset({"t_b"})
        _name_dims(writer, item, dims, [g for g in merged if set(g) <= set(split[0])], "t_b")
        row = item.child("t_i")
        _name_dims(writer, row, dims, [g for g in merged if set(g) <= set(split[1])], "t_i")
        writer.merged[len(dims) - 1] = (last, 1)
        write(writer, row)
        self.counter = writer.counter
        self.item += block_lines(item)
        return block_lines(row)

    def _rows_text(self) -> list[str]:
        """The statements for a row `t_i` whose scores begin at t_at."""
        return self._text_of(self.attention.domain, "t_j", self._write_rows)

    def _result_text(self) -> list[str]:
        """The statements that consume a row of sums."""
        attention = self.attention
        outputs = [(k, self.request.outputs[k]) for k in attention.results]
        sources = {k: untransposed(o) for k, o in outputs}
        dims = sources[attention.results[0]].dims
        own = HLO_NAME[compute_dtype(attention.second.dtype)]

        def write(writer, row):
            for k, reduce in enumerate(attention.needed):
                writer.overrides[reduce] = (f"t_row{k}", row)
            block = row.child("t_j")
            divided = "" if self.divisor is None else " / t_divisor"
            value = f"t_sums[t_r * t_width + t_j]{divided}"
            block.body.append(f"t_sum = {value if own == self.dtype else f'{own}({value})'}")
            writer.overrides[attention.second] = ("t_sum", block)
            index = variables(dims)
            # All values before all stores: an output may overwrite an input that another output still reads.
            values = {k: writer.value(source, index, block) for k, source in sources.items()}
            for k, output in outputs:
                order = output["dimensions"] if sources[k] is not output else range(len(dims))
                place = linear(tuple(index[d] for d in order), output.dims)
                writer.store(self.request.output_name(k), place, output.dtype, values[k], block)
            row.body.append(Serial("t_j", "0", "d", block))

        lines = ["t_r = t_i - t_i0", *([] if self.divisor is None else ["t_divisor = t_divisors[t_r]"])]
        lines += [f"t_row{k} = t_kept{k}[t_r]" for k in range(len(attention.needed))]
        return _loop("for t_i in range(t_i0, t_i0 + t_rows):", lines + self._text_of(dims, "t_j", write))

    def _write_rows(self, writer, row: Block) -> None:
        attention = self.attention
        first, dims, reduces = attention.first, attention.domain, attention.reduces
        index = variables(dims)
        levels = _levels(self.request.computation, set(reduces))
        depth = max(levels[r] for r in reduces)
        stash = self._stash(levels, depth)
        stashed = False

        def sweep() -> Block:
            block = row.child("t_j")
            block.body.append("t_score = t_scores[t_at + t_j]")
            if stashed:
                block.memo[(stash, index)] = ("t_score", block)
                writer.overrides.pop(first, None)  # nothing may ask for it any more
            else:
                own = HLO_NAME[compute_dtype(first.dtype)]
                value = "t_score" if own == self.dtype else f"{own}(t_score)"
                writer.overrides[first] = (value, block)
            return block

        def swept(block: Block) -> None:
            row.body.append(Serial("t_j", "0", "n", block))

        for level in range(1, depth + 1):
            here = [Reduction(r) for r in reduces if levels[r] == level]
            for reduction in here:
                reduction.start(writer, row)
            block = sweep()
            for reduction in here:
                reduction.take(writer, block, [writer.value(reduction.arrays[0], index, block)])
            if stash is not None and not stashed and level == self.stash_level:
                value = writer.value(stash, index, block)
                block.body.append(f"t_scores[t_at + t_j] = {value}")
                stashed = True
            swept(block)
            for reduction in here:
                (result,) = reduction.finish(writer, row)
                writer.overrides[reduction.instruction] = (result, row)
        self._last_sweep(writer, sweep, swept, stashed and stash is self.numerator)
        outputs = self.request.outputs
        for k in attention.of_rows:
            place = self._index(outputs[k].dims, row=True)
            value = writer.value(outputs[k], place, row)
            writer.store(self.request.output_name(k), linear(place, outputs[k].dims), outputs[k].dtype, value, row)
        if self.divisor is not None:
            value = writer.value(self.divisor, self._index(self.divisor.dims), row)
            row.body += [
                f"t_divisor = {self._cast(value, self.divisor)}",
                f"if t_divisor >= {self.dtype}(1) and t_exact[t_r] == 0:",
                "    t_divisors[t_r] = t_divisor",
                "else:",
                "    for t_j in range(n):",
                "        t_scores[t_at + t_j] = t_scores[t_at + t_j] / t_divisor",
                f"    t_divisors[t_r] = {self.dtype}(1)",
                "    t_exact[t_r] = 1",
            ]
        for k, reduce in enumerate(attention.needed):
            row.body.append(f"t_kept{k}[t_r] = {writer.overrides[reduce][0]}")

    def _last_sweep(self, writer, sweep, swept, in_place: bool) -> None:
        """Puts the weights in the place of the scores, and stores what else there is for each score."""
        target, outputs = self.numerator, self.request.outputs
        if in_place and not self.attention.scores:
            return
        block = sweep()
        places = {k: self._index(outputs[k].dims) for k in self.attention.scores}
        values = {k: writer.value(outputs[k], place, block) for k, place in places.items()}
        if not in_place:
            value = writer.value(target, self._index(target.dims), block)
            block.body.append(f"t_scores[t_at + t_j] = {self._cast(value, target)}")
        for k, place in places.items():
            writer.store(
                self.request.output_name(k), linear(place, outputs[k].dims), outputs[k].dtype, values[k], block
            )
        swept(block)

    def _cast(self, value: str, instruction: Instruction) -> str:
        return value if HLO_NAME[compute_dtype(instruction.dtype)] == self.dtype else f"{self.dtype}({value})"

    def _index(self, dims, row: bool = False) -> Index:
        """The index of a score, or of a row, in an array of other dims, from the domain's."""
        domain = self.attention.domain
        if dims == domain:
            return variables(domain)
        parts = (*self.attention.rows, self.attention.extent)
        if row:
            parts, domain = parts[:-1], domain[:-1]
            if dims == domain:
                return variables(self.attention.domain)[:-1]
        index = [ZERO] * len(dims)
        for mine, theirs in zip(_dims_of_parts(parts, domain), _dims_of_parts(parts, dims), strict=True):
            place, below = ZERO, 1
            for k in reversed(mine):
                if domain[k] != 1:
                    place = place + Affine(0, {k: below})
                below *= domain[k]
            if len(theirs) > 1:
                raise AssertionError(f"scores have the extents {domain} and {dims}")
            for k in theirs:
                index[k] = place
        return tuple(index)

    def _quotient(self) -> tuple[Instruction, Instruction | None]:
        """(numerators, divisor of the row) where the weights are a quotient that nothing else needs, else (weights,
        None)."""
        attention = self.attention
        weights = attention.weights
        if any(k in self.request.shared for k in (*attention.scores, *attention.of_rows)):
            return weights, None  # a block that is computed again would read what it has overwritten
        inner = weights
        while inner.opcode == "reshape":
            inner = inner.operands[0]
        if inner.opcode == "divide" and inner.dims in (attention.domain, weights.dims):
            outputs = [self.request.outputs[k] for k in attention.scores]
            numerator, divisor = inner.operands
            if _is_of_row(divisor, len(inner.dims) - 1) and not any(
                inner in _scores([o], attention.first) for o in outputs
            ):
                return numerator, divisor
        return weights, None

    def _stash(self, levels, depth) -> Instruction | None:
        """An expensive value that a sweep and a later one need, and which then stands for the scores: all later needs
        of the scores go through it."""
        attention = self.attention
        later: list[Instruction] = [self.numerator, *(self.request.outputs[k] for k in attention.scores)]
        self.stash_level = 0
        for level in range(depth, 0, -1):
            arrays = [r.operands[0] for r in attention.reduces if levels[r] == level]
            for value in _scores(arrays, attention.first):
                other = value.dims != attention.domain or HLO_NAME[value.dtype] != self.dtype
                if OPS[value.opcode].flops < EXPENSIVE or other:
                    continue
                if value in _scores(later, attention.first) and not _reaches(later, attention.first, value):
                    self.stash_level = level
                    return value
            later += arrays
        return None

    # --- the kernel ---

    def launches(self) -> list[AttentionLaunch]:
        computation = self.request.computation
        text, own = self._text()
        pointers = {self.request.names[p]: f"{HLO_NAME[p.dtype]}*" for p in computation.parameters}
        pointers |= {self.request.output_name(k): f"{HLO_NAME[o.dtype]}*" for k, o in enumerate(self.request.outputs)}
        pointers |= {"t_packed1": f"{self.dtype}*", "t_packed2": f"{self.dtype}*"}
        integers = dict(self.integers) | own
        words = _words(text)
        names = [name for name in pointers if name in words] + [name for name in integers if name in words]
        types = [pointers.get(name, "s64") for name in names] + ["s64", "s64"]
        name = self.request.title("attention")
        source = KernelSource(name, f"def {name}({', '.join([*names, 'lo', 'hi'])}):\n" + text, tuple(types))
        arguments = [name if name in pointers else integers[name] for name in names]
        packing = [*self.one.packing, *self.two.packing]
        temporaries = {name: 0 for name in ("t_packed1", "t_packed2") if name in words}
        for launch in packing:
            temporaries |= {name: size for name, size in launch.temporaries.items() if name in words}
        rows = own["t_block_rows"]
        work = rows * (self.n * self.k + self.n * self.d)
        items = self.batch * own["t_row_blocks"]
        return [*packing, AttentionLaunch(source, arguments, items, max(1, SERIAL_WORK // work), temporaries)]

    def _text(self) -> tuple[str, dict[str, object]]:
        """The body of the kernel, and the values of its own integer parameters."""
        size, columns, dtype = self.size, self.tile.columns, self.dtype
        line = (self.one.arguments["panels"] + 1) * columns  # one more panel: rows are no power of two apart
        width = self.two.arguments["panels"] * columns
        sums = {
            "lhs": "address(t_scores)", "lhs_si": "t_line", "k": "n", "n": "d",
            "out": "address(t_sums)", "out_si": "t_width",
        }  # fmt: skip
        scores = {
            "lhs": "address(t_left)", "lhs_si": "t_left_row", "k": "k", "n": "n",
            "out": "address(t_scores)", "out_si": "t_line",
        }  # fmt: skip
        attempt = [
            *self.one.product(scores),
            *_loop("for t_i in range(t_i0, t_i0 + t_rows):", ["t_r = t_i - t_i0", "t_at = t_r * t_line", *self.row]),
            *self.two.product(sums),
        ]
        scratch = [f"t_scores = scratch_{dtype}({SCORES // size})"]
        scratch += [f"{name} = scratch_{dtype}({SUMS // size})" for name in ("t_left", "t_sums")]
        scratch += [f"t_kept{k} = scratch_{dtype}({ROWS})" for k in range(len(self.attention.needed))]
        if self.divisor is None:
            body = [*attempt, *self.result]
        else:
            scratch += [f"t_divisors = scratch_{dtype}({ROWS})", f"t_exact = scratch_s64({ROWS})"]
            body = [
                *_loop("for t_r in range(t_rows):", ["t_exact[t_r] = 0"]),
                "t_again = 1",
                *_loop("while t_again != 0:", [*attempt, *self._check(), *_loop("if t_again == 0:", self.result)]),
            ]
        text = [
            *scratch,
            *_loop(
                "for t_item in range(lo, hi):",
                [
                    "t_b = quotient(t_item, t_row_blocks)",
                    "t_i0 = (t_item - t_b * t_row_blocks) * t_block_rows",
                    "t_rows = min(t_block_rows, m - t_i0)",
                    *self.item,
                    *self._queries(),
                    *body,
                ],
            ),
        ]
        rows = self._block_rows(line, width)
        own: dict[str, object] = {
            "m": self.m, "n": self.n, "k": self.k, "d": self.d,
            "t_row_blocks": ceil(self.m, rows), "t_block_rows": rows,
            "t_line": line, "t_width": width, "t_left_row": self._left_row(),
            "t_product": self.one.kernels.kernels[PRODUCT],
        }  # fmt: skip
        own |= {f"t_queries_s{role}": stride for role, stride in zip("bip", self.queries.strides, strict=True)}
        for contraction in (self.one, self.two):
            own |= {f"t_{name}{contraction.number}": value for name, value in contraction.arguments.items()}
        return "\n".join(indent(text)) + "\n", own

    def _left_row(self) -> int:
        return (ceil(self.k, self.tile.lanes) + 1) * self.tile.lanes

    def _block_rows(self, line: int, width: int) -> int:
        """Rows of a block: as many as scratch memory takes, fewer where every core should have some."""
        tile, size = self.tile.rows, self.size
        most = min(SCORES // size // line, SUMS // size // width, SUMS // size // self._left_row(), ROWS)
        wanted = max(WANTED // size // line, 4 * tile)
        rows = max(min(most, wanted) // tile * tile, min(most, tile))
        while self.batch * ceil(self.m, rows) < 4 * self.machine.cores and rows >= 4 * tile:
            rows = ceil(rows, 2 * tile) * tile
        blocks = ceil(self.m, rows)
        return min(rows, ceil(ceil(self.m, blocks), tile) * tile)

    def _queries(self) -> list[str]:
        """Statements that copy or compute a block of queries, of which tiles then read rows that lie well."""
        code = self.queries.code
        if isinstance(code, PlainOperand):
            queries = self.attention.first.operands[0]
            at = "t_b * t_queries_sb + t_i * t_queries_si + t_p" + (
                "" if self.queries.strides[2] == 1 else " * t_queries_sp"
            )
            statements, value = [], self._cast(load(code.pointer, at, queries.dtype), queries)
        else:
            statements, value = code("t_b", "t_i", "t_p")
        inner = _loop("for t_p in range(k):", [*statements, f"t_left[t_at + t_p] = {value}"])
        return _loop("for t_i in range(t_i0, t_i0 + t_rows):", ["t_at = (t_i - t_i0) * t_left_row", *inner])

    def _check(self) -> list[str]:
        """Whether sums of undivided weights are finite; rows where they are not are computed again."""
        dtype = self.dtype
        add = f"t_zero = sum_{dtype}(t_zero, t_sums[t_r * t_width + t_j] * {dtype}(0))"  # NaN from infinity and NaN
        return [
            "t_again = 0",
            *_loop(
                "for t_r in range(t_rows):",
                [
                    f"t_zero = {dtype}(0)",
                    *_loop("for t_j in range(d):", [add]),
                    *_loop("if t_zero != 0 and t_exact[t_r] == 0:", ["t_exact[t_r] = 1", "t_again = 1"]),
                ],
            ),
        ]  # fmt: skip


def _is_of_row(value: Instruction, last: int) -> bool:
    """Whether a value of the scores' extents is one for each row."""
    if value.opcode == "broadcast":
        return last not in value["dimensions"]
    if OPS[value.opcode].family != "elementwise":
        return False
    return all(_is_of_row(o, last) for o in value.operands if o.dims)


def _scores(roots, first) -> list[Instruction]:
    """What the evaluation of `roots` computes for each score, from the last to the first."""
    found: dict[Instruction, None] = {}
    stack = list(roots)
    while stack:
        instruction = stack.pop()
        if instruction in found or instruction is first or instruction.opcode in ("reduce", "parameter", "constant"):
            continue
        found[instruction] = None
        stack.extend(instruction.operands)
    return [i for i in found if i.dims and i.opcode not in ("broadcast", "iota", "reshape")]


def _reaches(roots, target, *barriers) -> bool:
    """Whether `roots` need `target` for each element other than through `barriers` or reductions."""
    seen, stack = set(barriers), list(roots)
    while stack:
        instruction = stack.pop()
        if instruction is target:
            return True
        if instruction not in seen and instruction.opcode != "reduce":
            seen.add(instruction)
            stack.extend(instruction.operands)
    return False


def _levels(computation, reduces) -> dict[Instruction, int]:
    """How many reductions, one after the other, each value depends on (a reduction counts itself)."""
    levels: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        levels[instruction] = max((levels[o] for o in instruction.operands), default=0) + (instruction in reduces)
    return levels


def _dims_of_parts(parts, dims) -> list[list[int]]:
    """For each part the dimensions that it has become; a part of extent 1 has none."""
    news = iter([news for _, news in reshape_groups(parts, dims)])
    return [next(news) if part != 1 else [] for part in parts]


def _name_dims(writer, block: Block, dims, merged: list[list[int]], name: str) -> None:
    """Makes the index variable `name` the merged dimensions: divided where they are used apart."""
    rest = name
    for g, group in enumerate(merged[:-1]):
        below = 1
        for later in merged[g + 1 :]:
            for k in later:
                below *= dims[k]
        quotient, remainder = writer.fresh("q"), writer.fresh("q")
        divisor = writer.integer("q_s", below)
        block.body += [f"{quotient} = {rest} // {divisor}", f"{remainder} = {rest} - {quotient} * {divisor}"]
        writer.merged[group[-1]] = (quotient, 1)
        block.variables = block.variables | {quotient, remainder}
        rest = remainder
    if merged:
        writer.merged[merged[-1][-1]] = (rest, 1)


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def _loop(header: str, body: list[str]) -> list[str]:
    return [header, *indent(body)]


def _words(text: str) -> set[str]:
    import re

    return set(re.findall(r"[A-Za-z_]\w*", text))
