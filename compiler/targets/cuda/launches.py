"""CUDA launches: a kernel's text with the grid that does its items, and the way from a nest or lines to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hloom.compiler.kernel_ir.builder import assign, cast, compared, increased
from hloom.compiler.kernel_ir.nodes import Assign, Const, For, If, Jump, Scratch, Stmt, Var, While
from hloom.compiler.kernel_ir.rewrite import mapped
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.windows.loops import Windows
from hloom.compiler.targets.cuda.codegen.render import THREADS, render
from hloom.compiler.targets.cuda.codegen.source import (
    BLOCK,
    BLOCKS,
    THREAD,
    WARP,
    CudaSource,
    names_of,
    thread_of_grid,
)
from hloom.ir.records import record
from hloom.ir.types import DTYPES, HLO_NAME


class Choice(Protocol):
    """What a device decides on by measurement."""

    def pointers(self) -> tuple[str, ...]:
        """The arrays that it reads and writes, by the launches' pointers."""


@record
class CudaLaunch(Launch):
    """A launch on a GPU: `blocks` blocks of `threads` threads, each block with `shared_bytes` of dynamic shared memory
    (static shared memory is part of the text). `items` and `grain` are the work items; nothing is cut by them.

    choice: what the launches of an instruction that have this object do, where there is another way of doing it: what
    a library would be asked for, or a `SortChoice`. way: of a sort, which of its two ways this launch is part of.
    """

    source: CudaSource
    threads: int = 0
    blocks: int = 1
    shared_bytes: int = 0
    choice: Choice | None = None
    way: int = 0

    def grid(self) -> str:
        """How the work is handed out, for people."""
        shared = f", {self.shared_bytes} bytes of shared memory each" if self.shared_bytes else ""
        return f"items {self.items}, by {self.blocks} blocks of {self.threads} threads{shared}"


def launch_of_source(
    source: CudaSource, integers: dict[str, int], work: float, temporaries=None, *, processors: int, prefix: str = ""
) -> CudaLaunch:
    """The launch of a text. integers: values of `source.arguments`, others may be there. processors: of the GPU, for
    texts whose grid is free: at most 16 blocks for each."""
    pointers = source.parameters[: len(source.params) - len(source.arguments)]
    arguments: list[str | int | KernelSource] = [*pointers, *(integers[name] for name in source.arguments)]
    items = max(source.items, 1)
    return CudaLaunch(
        source, arguments, items, items, work, temporaries or {},
        threads=source.threads, blocks=source.blocks(16 * processors),
    )  # fmt: skip


def launch_of_nest(nest: Nest, processors: int, vectors: bool = True) -> CudaLaunch:
    """The launch of a nest."""
    source = render(nest, vectors=vectors)
    work = nest.items * nest.inner_work
    return launch_of_source(source, nest.integers, work, nest.temporaries, processors=processors)


def _without_ranges(statements: Sequence[Stmt]) -> list[Stmt]:
    """Loops over ranges as loops without a trip count (docs/reference/cuda_kernels.md)."""
    stops = 0

    def loop(s: Stmt) -> list[Stmt] | None:
        nonlocal stops
        if not isinstance(s, For):
            return None
        stop, before = s.stop, []
        if not isinstance(stop, Var) and not (isinstance(stop, Const) and stop.value >= 0):
            stop = Var("s64", f"stop{stops}")
            stops += 1
            before.append(assign(stop, s.stop))
        step = Assign(s.var, s.var + s.step, True)
        order = ">" if isinstance(s.step, Const) and s.step.value < 0 else "<"
        start = cast("s64", s.start)
        if _continues(s.body):  # the next value is made before the statements, which may end early
            again = compared(order, s.var + s.step, stop)
            return [assign(s.var, start - s.step), *before, While(again, [step, *s.body])]
        return [assign(s.var, start), *before, While(compared(order, s.var, stop), [*s.body, step])]

    return mapped(statements, loop)


def _continues(statements: Sequence[Stmt]) -> bool:
    """Whether statements of a loop may go on with its next iteration."""
    return any(
        (isinstance(s, Jump) and s.how == "continue")
        or (isinstance(s, If) and (_continues(s.then) or _continues(s.other)))
        for s in statements
    )


def cuda_source(
    name: str,
    pointers: Sequence[tuple[str, str]],
    integers: dict[str, int],
    body: Sequence[Stmt],
    *,
    grain: str,
    items: int,
    threads: int | None = None,
    shared: Sequence[Scratch] = (),
    item: str = "item",
) -> CudaSource:
    """The source whose work item `item` is done by `body`, in which loops may be those over ranges.

    grain: 'serial' or 'element': a thread for an item. 'warp', 'block': what the lanes of an item do, who are `lane`
    of 32 or of `threads`; all of them come to every collective in `body`. items: how many there are. pointers: (name,
    HLO dtype) of those that it may use; the names of variables are those of pointers and integers.
    """
    threads = threads or THREADS[grain]
    integers = {**integers, "items": items}
    number, count, lane, stride = (Var("s64", word) for word in (item, "items", "lane", "stride"))
    if grain in ("element", "serial"):
        made = [assign(number, thread_of_grid(threads)), If(number < count, list(body))]
    else:
        warps = threads // WARP
        if grain == "warp":
            head = [assign(lane, THREAD & 31), assign(number, cast("s64", BLOCK * warps + (THREAD >> 5)))]
        else:
            head = [assign(lane, THREAD), assign(number, cast("s64", BLOCK))]
        step = BLOCKS * warps if grain == "warp" else BLOCKS
        loop = While(number < count, [*body, increased(number, stride)])
        made = [*head, assign(stride, step), loop]
    made = _without_ranges(made)
    used, divided = names_of(made)
    return CudaSource.made(
        name, [pointer for pointer in pointers if pointer[0] in used],
        {word: value for word, value in integers.items() if word in divided or word in used}, divided,
        [*shared, *made], grain=grain, threads=threads, items=items, alignment=1,
    )  # fmt: skip


def launch_of_windows(
    made: Windows, kind: str, items: int, work: float, processors: int, *, arrays=None, outputs: bool = True, **how
) -> CudaLaunch:
    """The launch of the kernel whose statements `made` holds. arrays: name -> (HLO dtype, elements) of temporaries
    between kernels; how: arguments of `cuda_source`."""
    request, arrays = made.request, arrays or {}
    pointers = [(request.names[p], HLO_NAME[p.dtype]) for p in request.computation.parameters]
    pointers = [p for p in pointers if p[0].startswith("in")]
    pointers += [(name, dtype) for name, (dtype, _) in arrays.items()]
    if outputs:
        pointers += [(request.output_name(k), HLO_NAME[o.dtype]) for k, o in enumerate(request.outputs)]
    integers = made.integers
    source = cuda_source(request.title(kind), pointers, integers, made.root.statements(), items=items, **how)
    temporaries = {name: DTYPES[dtype].itemsize * count for name, (dtype, count) in arrays.items()}
    return launch_of_source(source, {**integers, "items": items}, items * work, temporaries, processors=processors)
