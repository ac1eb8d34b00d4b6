"""sort by any comparator: a bitonic network on an order of the row's elements, which are moved once at the end.

What is exchanged are places of elements, so operands of any number and dtype cost the same. Of two elements that the
comparator does not order the first one stays first, so sorts are stable, and have one result. Rows up to CHUNK elements
are sorted in shared memory by one block; of longer ones a block sorts a chunk, and exchanges over more than a chunk go
through memory, one kernel each. `radix_sort` sorts long rows by keys that it knows, with the pieces of this file;
`sort_ways` says which of the two.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.codegen.serial import block_lines
from hloom.compiler.kernels.loops.accumulators import inline_scalars
from hloom.compiler.kernels.request import KernelRequest
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

    def finish(self, kind, lines, items, work, integers, pointers, named=None, together=1, **how) -> CudaLaunch:
        """A kernel's launch; it uses those of the pointers that its lines name. named: which of `arrays` a pointer is
        that has another name in the text. together: of `CudaSource`."""
        title = self.request.title(kind)
        source = replace(cuda_source(title, pointers, integers, lines, items=items, **how), together=together)
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

    # --- pieces of text ---

    def _base(self) -> list[str]:
        """The first element of the row `row`, whose elements are `below` apart."""
        if self.below == 1:
            return ["base = row * n"]
        return ["across = row // below", "base = across * n * below + row - across * below"]

    def _element(self, place: str) -> str:
        return f"base + s64({place})" + (" * below" if self.below != 1 else "")

    def exchange(self, order: str, shift: str) -> list[str]:
        """Statements that put the places a and b at low and high into order; places from n on come last."""
        lines, less, more = self.comparison()
        return [
            f"a = {order}[{shift}low]",
            f"b = {order}[{shift}high]",
            "before = b < a",
            "if a < n and b < n:",
            *("    " + line for line in lines),
            f"    before = ({more} and not {less}) or ({more} == {less} and b < a)",
            "if before == ascending:",
            f"    {order}[{shift}low] = b",
            f"    {order}[{shift}high] = a",
        ]

    def comparison(self) -> tuple[list[str], str, str]:
        """(statements, whether the element at a comes before that at b, whether that at b comes before that at a)."""
        writer = self.request.writer(())
        block, arguments = writer.root.child(), []
        for name in ("base", "a", "b", "below"):
            writer.index(name)
        for k, operand in enumerate(self.instruction.operands):
            for side in "ab":
                block.add(f"{side}{k} = {load(self.request.names[operand], self._element(side), operand.dtype)}")
                arguments.append(block.names[f"{side}{k}"])
        swapped = [value for k in range(0, len(arguments), 2) for value in (arguments[k + 1], arguments[k])]
        (less,) = inline_scalars(writer, block, self.instruction["to_apply"], arguments)
        (more,) = inline_scalars(writer, block, self.instruction["to_apply"], swapped)
        return block_lines(block), str(less), str(more)

    # --- kernels ---

    def chunk_kernel(self, which: str, size: int = 0) -> CudaLaunch:
        """A block for a chunk, its order in shared memory. which: 'all' sorts rows of one chunk and moves the elements,
        'first' sorts each chunk, 'merge' does what is left of the exchanges of a larger size."""
        chunk, integers = self.chunk, dict(self.integers)
        threads = min(max(chunk // 2, 32), 256)
        chunks = self.width // chunk
        if which == "all":
            lines = ["row = item", "start = s64(0)"]
        else:
            integers["chunks"] = chunks
            lines = ["row = item // chunks", f"start = (item - row * chunks) * {chunk}"]
        lines += self._base()
        first = "order[row * width + start + {}]" if which == "merge" else "s32(start + {})"
        lines += [
            f"for t in range(lane, {chunk}, {threads}):",
            f"    kept[t] = {first.format('t')}",
            "cuda.syncthreads()",
        ]
        exchange = [
            "while half > 0:",
            f"    for t in range(lane, {chunk // 2}, {threads}):",
            "        low = 2 * (t - (t & (half - 1))) + (t & (half - 1))",
            "        high = low + half",
            "        ascending = (start + low) & size == 0",
            *("        " + line for line in self.exchange("kept", "")),
            "    cuda.syncthreads()",
            "    half = half >> 1",
        ]
        if which == "merge":
            integers["size"] = size
            lines += [f"half = s64({chunk // 2})", *exchange]
        else:
            lines += [
                "size = s64(2)",
                f"while size <= {chunk}:",
                "    half = size >> 1",
                *("    " + line for line in exchange),
                "    size = size * 2",
            ]
        if which == "all":
            moves = ("    " + line for line in self._moves("t", "a"))
            lines += [f"for t in range(lane, n, {threads}):", "    a = kept[t]", *moves]
        else:
            lines += [f"for t in range(lane, {chunk}, {threads}):", "    order[row * width + start + t] = kept[t]"]
        lines.append("cuda.syncthreads()")
        shared = {"kept": f"cuda.shared.array({chunk}, s32)"}
        stages = (chunk.bit_length() - 1) ** 2 / 2 if which != "merge" else chunk.bit_length()
        return self.finish(
            {"all": "sort", "first": "sort_chunks", "merge": "sort_merge"}[which], lines, self.rows * chunks,
            chunk * stages, integers, self.pointers(which == "all"), grain="block", threads=threads, shared=shared,
        )  # fmt: skip

    def exchange_kernel(self, size: int, half: int) -> CudaLaunch:
        """A thread for each pair of places `half` apart."""
        integers = {**self.integers, "pairs": self.width // 2, "half": half, "size": size}
        lines = [
            "row = item // pairs",
            "t = item - row * pairs",
            *self._base(),
            "low = 2 * (t - (t & (half - 1))) + (t & (half - 1))",
            "high = low + half",
            "ascending = low & size == 0",
            *self.exchange("order", "row * width + "),
        ]
        items = self.rows * self.width // 2
        return self.finish("sort_exchange", lines, items, 8.0, integers, self.pointers(False), grain="element")

    def _moves(self, to: str, source: str) -> list[str]:
        lines = []
        for k, operand in enumerate(self.instruction.operands):
            value = load(self.request.names[operand], self._element(source), operand.dtype)
            lines.append(store(self.request.output_name(k), self._element(to), operand.dtype, value))
        return lines

    def move_kernel(self) -> CudaLaunch:
        """The elements to their places."""
        lines = ["row = item // n", "t = item - row * n", *self._base(), "a = order[row * width + t]"]
        lines += self._moves("t", "a")
        items = self.rows * self.count
        return self.finish("sort_move", lines, items, 2.0, self.integers, self.pointers(True), grain="element")
