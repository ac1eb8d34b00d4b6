"""CudaSource: a kernel for CUDA as Python text, from the statements of one thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hloom.compiler.kernel_ir.builder import assign, call, cast, compared, constant, plus
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import ATOM, Binary, Call, Do, Expr, Kernel, Scratch, Stmt, Var
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.records import record

WARP = 32


@record(frozen=True)
class Special(Expr):
    """A register that the machine sets: the number of a thread in its block, of a block, or how many blocks there
    are."""

    type: str
    name: str

    def text(self) -> tuple[str, int]:
        return self.name, ATOM


THREAD, BLOCK, BLOCKS = (Special("s32", f"cuda.{name}.x") for name in ("threadIdx", "blockIdx", "gridDim"))


@record(frozen=True)
class CudaSource(KernelSource):
    """A kernel's text with what a launch needs to know.

    params: types of the pointers and of the integers that are arguments, in order; no lo and hi.
    parameters: their names.
    arguments: names of the integers that are arguments, the last parameters. The others, by which something is divided,
        are literals in the text: a 64-bit division by a run-time value costs some hundred instructions, one by a
        literal a multiplication.
    grain: 'element', 'serial', 'warp', 'block', 'tile' or 'product': what one work item is given to.
    threads: threads a block; a multiple of 32, and fixed, as the text counts with it.
    items: work items of this launch; not part of the text.
    alignment: bytes to which the addresses of all pointers have to be aligned (1: nothing beyond the element's own).
        Allocations are; a view into one may not be, and needs the text of `render(nest, vectors=False)`.
    shared: bytes of dynamic shared memory that a block needs.
    together: blocks that a multiprocessor is to have room for at once, which bounds the registers of a thread.
    """

    parameters: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    grain: str = "element"
    threads: int = 256
    items: int = 0
    alignment: int = 1
    shared: int = 0
    together: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return self.parameters

    def blocks(self, most: int = 2112) -> int:
        """Blocks to launch.

        'element' and 'serial': so many that each thread has one item. The others loop over their items in strides of
        the grid, so any number is right: at most `most`, by default 16 for each of an H100's 132 cores. 'product':
        a block for each item.
        """
        if self.grain == "product":
            return self.items
        if self.grain in ("element", "serial"):
            return max(1, -(-self.items // self.threads))
        return max(1, min(-(-self.items // (self.threads // WARP if self.grain == "warp" else 1)), most))

    @classmethod
    def made(
        cls, name: str, pointers: Sequence[tuple[str, str]], integers: Mapping[str, int], literal: Collection[str],
        body: Sequence[Stmt], **launch: Any,
    ) -> CudaSource:  # fmt: skip
        """The source of statements. pointers: (name, HLO dtype) of the parameters. integers: the values of the others.
        literal: the names of those that are no parameters. launch: the other fields."""
        arguments = tuple([word for word in integers if word not in literal])
        params = [Var(f"*{dtype}", word) for word, dtype in pointers] + [Var("s64", word) for word in arguments]
        known = [assign(Var("s64", word), constant(value)) for word, value in integers.items() if word in literal]
        text = printed(Kernel(name, tuple(params), [*known, *body]))
        types = tuple([f"{dtype}*" for _, dtype in pointers]) + ("s64",) * len(arguments)
        return cls(name, text, types, (), tuple([var.name for var in params]), arguments, **launch)


def divisors(statements: Sequence[Stmt]) -> set[str]:
    """The names by which something is divided."""
    return names_of(statements)[1]


def names_of(statements: Sequence[Stmt]) -> tuple[set[str], set[str]]:
    """(the names of the variables that statements read and of the arrays that they write, those of them by which
    something is divided)."""
    used: set[str] = set()
    divided: set[str] = set()
    blocks: list[Sequence[Stmt]] = [statements]
    for block in blocks:
        for statement in block:
            parts = [*statement.expressions()]
            for part in parts:
                if isinstance(part, Var):
                    used.add(part.name)
                    continue
                if isinstance(part, Binary) and part.op in ("//", "%"):
                    divided |= {one.name for one in part.right.walk() if isinstance(one, Var)}
                parts += part.children()
            blocks += statement.blocks()
    return used, divided


# --- what only CUDA's text has ----------------------------------------------------------------------------------------


def barrier() -> Do:
    """All threads of a block have come here."""
    return Do("cuda.syncthreads", ())


def warp_barrier() -> Do:
    return Do("cuda.syncwarp", ())


def shuffled(value: Expr, distance: int) -> Call:
    """The value that the lane `lane ^ distance` of the warp has."""
    return Call(value.type, "shuffle_xor", (value, constant(distance)))


def divided(value: Expr, by: Expr) -> Expr:
    """A quotient of numbers that are not negative and have 32 bits."""
    return cast("s64", call("div_u32", (cast("u32", value), cast("u32", by)), by_name))


def thread_of_grid(threads: int) -> Expr:
    """The number of a thread among those of all blocks."""
    return plus(cast("s64", BLOCK) * threads, THREAD)


def shared_array(name: str, dtype: str, size: int) -> Scratch:
    """Memory of a block for so many registers of a dtype."""
    return Scratch(Var(f"*{ {'pred': 'u8', 'f16': 'f32', 'bf16': 'f32'}.get(dtype, dtype) }", name), size, shared=True)


def to_shared(value: Expr) -> Expr:
    """A register as a shared array holds it."""
    return cast("u8", value) if value.type == "pred" else value


def from_shared(element: Expr, dtype: str) -> Expr:
    """A register of a dtype, of what a shared array holds."""
    return compared("!=", element, cast("u8", constant(0))) if dtype == "pred" else element
