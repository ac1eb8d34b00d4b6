"""From a fused computation to launches: which kind of kernel it is, and its nests, which targets make launches of."""

from __future__ import annotations

import math

from hloom.compiler.compile_timings import stage
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.launch import WORK, Launch
from hloom.compiler.kernels.loops.elementwise import loop_nest
from hloom.compiler.kernels.loops.reduce import reduce_nests
from hloom.compiler.kernels.loops.row_fusion import row_nest
from hloom.compiler.kernels.loops.update import is_update, update_nest
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.scatter import scatter_nests
from hloom.ir.module import Computation
from hloom.ir.ops import OPS

ROWS = 16  # so many rows keep every core busy; fewer long rows are reduced in chunks
FEW_ROWS, LONG_ROW = 256, 8192  # likewise where items are blocks of threads


def nest_kind(computation: Computation) -> str:
    """'product', 'attention', 'window', 'topk', 'sort', 'fft', 'scatter', 'row', 'reduce' or 'loop'."""
    instructions = computation.instructions
    if any(i.opcode == "sort" for i in instructions):
        return "sort"
    if any(i.opcode == "topk" for i in instructions):
        return "topk"
    if any(i.opcode == "fft" for i in instructions):
        return "fft"
    if computation.root.opcode == "scatter":
        return "scatter"
    if any(OPS[i.opcode].family == "window" for i in instructions):
        return "window"
    if any(i.opcode in ("dot", "convolution") for i in instructions):
        return "attention" if sum(i.opcode == "dot" for i in instructions) > 1 else "product"
    reduces = [i for i in instructions if i.opcode == "reduce"]
    if not reduces:
        return "loop"
    return "row" if is_row(reduces[0]) or _is_used_inside(computation, set(reduces)) else "reduce"


def _is_used_inside(computation: Computation, reduces: set) -> bool:
    """Whether elements of the rows, or other reductions, are computed from the result of a reduction."""
    behind: set = set()
    for instruction in computation.instructions:
        if not behind.isdisjoint(instruction.operands):
            if instruction in reduces:
                return True
            behind.add(instruction)
        elif instruction in reduces:
            behind.add(instruction)
    dims = next(iter(reduces)).operands[0].dims
    kept = len(dims) - len(next(iter(reduces))["dimensions"])
    return any(o in behind and len(o.dims) > kept and o.dims == dims for o in computation.outputs())


def is_row(reduce) -> bool:
    """Whether a reduction is done row by row: over trailing dimensions, with enough rows or short ones."""
    dims, reduced = reduce.operands[0].dims, set(reduce["dimensions"])
    kept = len(dims) - len(reduced)
    if reduced != set(range(kept, len(dims))):
        return False
    rows = length = 1
    for k, extent in enumerate(dims):
        if k < kept:
            rows *= extent
        else:
            length *= extent
    return rows >= ROWS or length <= WORK // 4


def nests(request: KernelRequest) -> list[Nest]:
    """The target-neutral nests of a computation that is no contraction."""
    kind = nest_kind(request.computation)
    if kind == "scatter":
        return scatter_nests(request)
    if kind == "loop":
        return [update_nest(request) if is_update(request) else loop_nest(request)]
    return [row_nest(request)] if kind == "row" and not _is_cut(request) else reduce_nests(request)


def _is_cut(request: KernelRequest) -> bool:
    """Whether few long rows, of which nothing but their reductions is wanted, are too few for the threads there are."""
    computation = request.computation
    reduces = [i for i in computation.instructions if i.opcode == "reduce"]
    dims = reduces[0].operands[0].dims
    length = math.prod(dims[k] for k in reduces[0]["dimensions"])
    rows = math.prod(dims) // max(length, 1)
    long = length >= LONG_ROW and rows < FEW_ROWS
    return long and not request.cuts_loops and not _is_used_inside(computation, set(reduces))


@stage("source")
def launches(request: KernelRequest, target) -> list[Launch]:
    """The launches of one fused computation: the target says how a kind of kernel becomes launches."""
    return target.launches(request, nest_kind(request.computation))
