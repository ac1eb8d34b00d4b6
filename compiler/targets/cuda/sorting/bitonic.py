"""sort by any comparator: a bitonic network on an order of the row's elements, which are moved once at the end.

What is exchanged are places of elements, so operands of any number and dtype cost the same. Of two elements that the
comparator does not order the first one stays first, so sorts are stable, and have one result. Rows up to CHUNK elements
are sorted in shared memory by one block; of longer ones a block sorts a chunk, and exchanges over more than a chunk go
through memory, one kernel each. `radix` sorts long rows by keys that it knows, with the pieces of this file; `choice`
says which of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hloom.compiler.kernel_ir.builder import both, cast, compared, constant, element, load, unary
from hloom.compiler.kernel_ir.nodes import Expr, Scratch, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.loops.accumulators import inline_scalars
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.targets.cuda.codegen.source import CudaSource, barrier, shared_array
from hloom.compiler.targets.cuda.launches import CudaLaunch, cuda_source, launch_of_source
from hloom.ir.records import replace
from hloom.ir.types import HLO_NAME

CHUNK = 2048  # elements whose order a block keeps in shared memory: 8 KiB


class Sort:
    """The kernels of a sort; the order alone is of use to others (`scatter`)."""

    def __init__(self, request: KernelRequest, instruction, processors: int):
        self.request, self.instruction, self.processors = request, instruction, processors
        dims, (axis,) = instruction.operands[0].dims, instruction["dimensions"]
        self.set_rows(dims[axis], math.prod(dims[axis + 1 :]), instruction.operands[0].shape.size // dims[axis])

    def set_rows(self, count: int, below: int, rows: int) -> None:
        """rows of `count` elements, `below` apart."""
        self.count, self.below, self.rows = count, below, rows
        self.width = 1 << max(self.count - 1, 1).bit_length()  # places of the network: the next power of two
        self.chunk = min(self.width, CHUNK)
        self.integers = {"n": self.count, "below": self.below, "width": self.width}
        self.sources: dict[tuple, CudaSource] = {}

    def launches(self) -> list[CudaLaunch]:
        if self.width <= CHUNK:
            return [self.chunk_kernel("all")]
        return [*self.order_kernels(), self.move_kernel()]

    def order_kernels(self) -> list[CudaLaunch]:
        """After them `order` has the places of each row's elements in their order, then those past its end."""
        made = [self.chunk_kernel("first")]
        size = 2 * self.chunk
        while size <= self.width:
            half = size // 2
            while half >= self.chunk:
                made.append(self.exchange_kernel(size, half))
                half //= 2
            made.append(self.chunk_kernel("merge", size))
            size *= 2
        return made

    def network_launches(self) -> int:
        """How many launches the network takes to find the order of rows longer than a chunk."""
        levels = (self.width // self.chunk).bit_length() - 1
        return 1 + sum(level + 1 for level in range(1, levels + 1))

    def begun(self, pointers: list[tuple[str, str]]) -> Block:
        """The block of a kernel's work item, in which pointers and indexes have their variables."""
        block = Block()
        for name, dtype in pointers:
            block.names.declare(name, f"*{dtype}")
        return block

    def finish(
        self, kind, write: Callable[[Block], list[Scratch]], items, work, integers, pointers, which=(), named=None,
        together=1, **how,
    ) -> CudaLaunch:  # fmt: skip
        """A kernel's launch. write: writes a work item, and returns the shared arrays; launches of the same kind that
        `which` says nothing else of have one kernel. pointers: it uses those that its statements name. named: which of
        `arrays` a pointer is that has another name in the kernel. together: of `CudaSource`."""
        source = self.sources.get((kind, *which))
        if source is None:
            block = self.begun(pointers)
            shared = write(block)
            title, body = self.request.title(kind), block.statements()
            source = cuda_source(title, pointers, integers, body, items=items, shared=shared, **how)
            source = self.sources[kind, *which] = replace(source, together=together)
        values = {**integers, "items": items}
        made = launch_of_source(source, values, items * work, processors=self.processors)
        made.arguments = [(named or {}).get(argument, argument) for argument in made.arguments]
        made.temporaries = {
            name: size * count for name, (_, size, count) in self.arrays().items() if name in made.arguments
        }
        return made

    def arrays(self) -> dict[str, tuple[str, int, int]]:
        """What is between kernels: name -> (HLO dtype, bytes of an element, elements)."""
        return {"order": ("s32", 4, self.rows * self.width)}

    def pointers(self, outputs: bool) -> list[tuple[str, str]]:
        operands = dict.fromkeys(self.instruction.operands)
        result = [(self.request.names[o], HLO_NAME[o.dtype]) for o in operands]
        if outputs:
            result += [(self.request.output_name(k), HLO_NAME[o.dtype]) for k, o in enumerate(self.request.outputs)]
        return [*result, *((name, dtype) for name, (dtype, _, _) in self.arrays().items())]

    # --- pieces of kernels ---

    def base(self, block: Block) -> None:
        """The first element of the row `row`, whose elements are `below` apart."""
        row, n = index(block, "row"), index(block, "n")
        if self.below == 1:
            block.let("base", row * n)
            return
        below = index(block, "below")
        across = block.let("across", row // below)
        block.let("base", across * n * below + row - across * below)

    def element(self, block: Block, place: Expr) -> Expr:
        """Where the element at a place of the row is in its array."""
        far: Expr = cast("s64", place)
        return index(block, "base") + (far if self.below == 1 else far * index(block, "below"))

    def operands(self, block: Block, place: Expr) -> list[Expr]:
        """The operands' elements at a place of the row."""
        return [load(block.names[self.request.names[o]], self.element(block, place)) for o in self.instruction.operands]

    def exchange(self, block: Block, order: Var, shift: Expr | None) -> None:
        """Puts the places a and b at low and high into order; places from n on come last."""
        at = [index(block, name) if shift is None else shift + index(block, name) for name in ("low", "high")]
        a, b, n = block.let("a", element(order, at[0])), block.let("b", element(order, at[1])), index(block, "n")
        before = block.let("before", b < a)
        inside = block.branch(both("and", (a < n, b < n)))
        less, more = self.comparison(inside, a, b)
        first = both("and", (more, unary("not", less)))
        inside.let("before", both("or", (first, both("and", (compared("==", more, less), b < a)))))
        swap = block.branch(compared("==", before, block.names["ascending"]))
        swap.store(order, at[0], b)
        swap.store(order, at[1], a)

    def comparison(self, block: Block, a: Var, b: Var) -> tuple[Expr, Expr]:
        """Whether the element at a comes before that at b, and that at b before that at a."""
        writer, arguments, swapped = self.request.writer(()), [], []
        for k, values in enumerate(zip(self.operands(block, a), self.operands(block, b), strict=True)):
            pair = [block.let(f"{side}{k}", value) for side, value in zip("ab", values, strict=True)]
            arguments += pair
            swapped += pair[::-1]
        (less,) = inline_scalars(writer, block, self.instruction["to_apply"], arguments)
        (more,) = inline_scalars(writer, block, self.instruction["to_apply"], swapped)
        return less, more

    # --- kernels ---

    def chunk_kernel(self, which: str, size: int = 0) -> CudaLaunch:
        """A block for a chunk, its order in shared memory. which: 'all' sorts rows of one chunk and moves the elements,
        'first' sorts each chunk, 'merge' does what is left of the exchanges of a larger size."""
        chunk, integers, pointers = self.chunk, dict(self.integers), self.pointers(which == "all")
        threads = min(max(chunk // 2, 32), 256)
        chunks = self.width // chunk
        if which != "all":
            integers["chunks"] = chunks
        if which == "merge":
            integers["size"] = size
        stages = (chunk.bit_length() - 1) ** 2 / 2 if which != "merge" else chunk.bit_length()
        return self.finish(
            {"all": "sort", "first": "sort_chunks", "merge": "sort_merge"}[which],
            lambda block: self.write_chunk(block, which, threads), self.rows * chunks, chunk * stages, integers,
            pointers, grain="block", threads=threads,
        )  # fmt: skip

    def write_chunk(self, block: Block, which: str, threads: int) -> list[Scratch]:
        chunk = self.chunk
        kept = shared_array("kept", "s32", chunk)
        item, lane, n, width = (index(block, name) for name in ("item", "lane", "n", "width"))
        if which == "all":
            row, start = block.let("row", item), block.let("start", cast("s64", constant(0)))
        else:
            row = block.let("row", item // index(block, "chunks"))
            start = block.let("start", (item - row * index(block, "chunks")) * chunk)
        self.base(block)
        place = lambda t: row * width + start + t  # noqa: E731
        t, inside = block.loop("t", lane, constant(chunk), constant(threads))
        order = block.names.get("order")
        given = element(order, place(t)) if which == "merge" and order else cast("s32", start + t)
        inside.store(kept.var, t, given)
        block.body.append(barrier())
        if which == "merge":
            self.exchanges(block, kept.var, block.let("half", cast("s64", constant(chunk // 2))), threads)
        else:
            sizes = block.let("size", cast("s64", constant(2)))
            level = block.repeat(sizes <= chunk)
            self.exchanges(level, kept.var, level.let("half", sizes >> 1), threads)
            level.let("size", sizes * 2)
        if which == "all":
            t, inside = block.loop("t", lane, n, constant(threads))
            self.moves(inside, t, inside.let("a", element(kept.var, t)))
        else:
            assert order is not None
            t, inside = block.loop("t", lane, constant(chunk), constant(threads))
            inside.store(order, place(t), element(kept.var, t))
        block.body.append(barrier())
        return [kept]

    def exchanges(self, block: Block, kept: Var, half: Var, threads: int) -> None:
        """Exchanges over `half` places and less of a chunk in shared memory."""
        stage = block.repeat(half > 0)
        t, inside = stage.loop("t", index(block, "lane"), constant(self.chunk // 2), constant(threads))
        low = _halves(inside, t, half)
        far = (index(block, "start") + low) & index(block, "size")
        inside.let("ascending", compared("==", far, constant(0)))
        self.exchange(inside, kept, None)
        stage.body.append(barrier())
        stage.let("half", half >> 1)

    def exchange_kernel(self, size: int, half: int) -> CudaLaunch:
        """A thread for each pair of places `half` apart."""
        integers = {**self.integers, "pairs": self.width // 2, "half": half, "size": size}
        items = self.rows * self.width // 2
        pointers = self.pointers(False)
        return self.finish("sort_exchange", self.write_exchange, items, 8.0, integers, pointers, grain="element")

    def write_exchange(self, block: Block) -> list[Scratch]:
        item, pairs = index(block, "item"), index(block, "pairs")
        row = block.let("row", item // pairs)
        t = block.let("t", item - row * pairs)
        self.base(block)
        low = _halves(block, t, index(block, "half"))
        block.let("ascending", compared("==", low & index(block, "size"), constant(0)))
        self.exchange(block, block.names["order"], row * index(block, "width"))
        return []

    def moves(self, block: Block, to: Expr, source: Expr) -> None:
        """The elements at a place of each operand's row to another one of the result's."""
        for k, value in enumerate(self.operands(block, source)):
            block.store(block.names[self.request.output_name(k)], self.element(block, to), value)

    def move_kernel(self) -> CudaLaunch:
        """The elements to their places."""
        items, pointers = self.rows * self.count, self.pointers(True)
        return self.finish("sort_move", self.write_moves, items, 2.0, self.integers, pointers, grain="element")

    def write_moves(self, block: Block) -> list[Scratch]:
        item, n = index(block, "item"), index(block, "n")
        row = block.let("row", item // n)
        t = block.let("t", item - row * n)
        self.base(block)
        order = block.names["order"]
        self.moves(block, t, block.let("a", element(order, row * index(block, "width") + t)))
        return []


def index(block: Block, name: str) -> Var:
    """An integer of the kernel by its name."""
    return block.names.declare(name, "s64")


def _halves(block: Block, t: Expr, half: Var) -> Var:
    """The places `low` and `high` of pair t, `half` apart; returns the first."""
    low = block.let("low", 2 * (t - (t & (half - 1))) + (t & (half - 1)))
    block.let("high", low + half)
    return low
