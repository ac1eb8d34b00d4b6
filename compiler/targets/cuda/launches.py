"""CUDA launches: a kernel's text with the grid that does its items, and the way from a nest or lines to one."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Protocol

from hloom.compiler.kernel_ir import printer
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.codegen.serial import indent
from hloom.compiler.kernels.codegen.source import KernelSource, parsed
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.windows.loops import Windows
from hloom.compiler.targets.cuda.codegen.render import THREADS, WARP, CudaSource, render, text_divisors
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


class _Loops(ast.NodeTransformer):
    """`for x in range(a, b, c)` as `while`, without a trip count (docs/reference/cuda_kernels.md)."""

    def __init__(self):
        self.count = 0

    def visit_For(self, node: ast.For):
        self.generic_visit(node)
        assert isinstance(node.iter, ast.Call)  # range(...)
        words = [ast.unparse(argument) for argument in node.iter.args]
        start, stop, step = (["0", *words, "1"] if len(words) == 1 else [*words, "1"])[:3]
        name = ast.unparse(node.target)
        lines = [f"{name} = s64({start})"]
        if not stop.replace("_", "a").isalnum():
            lines.append(f"stop{self.count} = {stop}")
            stop, self.count = f"stop{self.count}", self.count + 1
        order = ">" if step.startswith("-") else "<"
        if _continues(node.body):  # the next value is made before the statements, which may end early
            lines[0] = f"{name} = s64({start}) - {step}"
            condition = ast.parse(f"{name} + {step} {order} {stop}", mode="eval").body
            loop = ast.While(condition, [*parsed(f"{name} += {step}").body, *node.body], [])
            return [*parsed("\n".join(lines)).body, loop]
        condition = ast.parse(f"{name} {order} {stop}", mode="eval").body
        loop = ast.While(condition, [*node.body, *parsed(f"{name} += {step}").body], [])
        return [*parsed("\n".join(lines)).body, loop]


def _continues(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements of a loop may go on with its next iteration."""
    return any(
        isinstance(s, ast.Continue) or (isinstance(s, ast.If) and (_continues(s.body) or _continues(s.orelse)))
        for s in statements
    )


@functools.lru_cache(256)
def _rewritten(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The lines of a text with its loops rewritten, and the names in it. Passes of a sort share their texts."""
    tree = _Loops().visit(parsed(text))
    lines = ast.unparse(ast.fix_missing_locations(tree)).splitlines()
    return tuple(lines), frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def cuda_source(
    name: str,
    pointers: Sequence[tuple[str, str]],
    integers: dict[str, int],
    lines: Sequence[str],
    *,
    grain: str,
    items: int,
    threads: int | None = None,
    shared: dict[str, str] | None = None,
    item: str = "item",
) -> CudaSource:
    """The CUDA text whose work item `item` is done by `lines` (no lo and hi; loops may be `for ... in range(...)`).

    grain: 'serial' or 'element': a thread for an item. 'warp', 'block': what the lanes of an item do, who are `lane`
    of 32 or of `threads`; all of them come to every collective in `lines`. items: how many there are. pointers: (name,
    HLO dtype). shared: name of a shared array -> the expression that makes it.
    """
    threads = threads or THREADS[grain]
    integers = {**integers, "items": items}
    if grain in ("element", "serial"):
        text = [
            f"{item} = s64(cuda.blockIdx.x) * {threads} + cuda.threadIdx.x", f"if {item} < items:", *indent(list(lines))
        ]  # fmt: skip
    else:
        warps = threads // WARP
        text = (
            ["lane = cuda.threadIdx.x & 31", f"{item} = s64(cuda.blockIdx.x * {warps} + (cuda.threadIdx.x >> 5))"]
            if grain == "warp"
            else ["lane = cuda.threadIdx.x", f"{item} = s64(cuda.blockIdx.x)"]
        )
        text.append("stride = cuda.gridDim.x" + (f" * {warps}" if grain == "warp" else ""))
        text += [f"while {item} < items:", *indent([*lines, f"{item} += stride"])]
    rewritten, loaded = _rewritten("\n".join(text))
    divided = text_divisors(rewritten)
    literal = [word for word in integers if word in divided]
    arguments = tuple(word for word in integers if word not in divided and word in loaded)
    pointers = [(word, dtype) for word, dtype in pointers if word in loaded]
    parameters = (*(word for word, _ in pointers), *arguments)
    body = [
        *(f"{word} = {integers[word]}" for word in literal),
        *(f"{word} = {made}" for word, made in (shared or {}).items()),
        *rewritten,
    ]
    whole = "\n".join([f"def {name}({', '.join(parameters)}):", *indent(body)]) + "\n"
    types = tuple(f"{dtype}*" for _, dtype in pointers) + ("s64",) * len(arguments)
    return CudaSource(name, whole, types, (), parameters, arguments, grain, threads, items, 1)


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
    integers, lines = made.integers, printer.lines(made.root.statements())
    source = cuda_source(request.title(kind), pointers, integers, lines, items=items, **how)
    temporaries = {name: DTYPES[dtype].itemsize * count for name, (dtype, count) in arrays.items()}
    return launch_of_source(source, {**integers, "items": items}, items * work, temporaries, processors=processors)
