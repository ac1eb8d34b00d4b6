"""From a fused computation to launches: which nest it is, its kernels, and the arguments of each."""

from __future__ import annotations

from hloom.compiler.kernels.attention import attention_launches
from hloom.compiler.kernels.attention_structure import attention_of
from hloom.compiler.kernels.description import Nest
from hloom.compiler.kernels.fft import fft_launches
from hloom.compiler.kernels.launch import WORK, Launch, launch_by_work
from hloom.compiler.kernels.loop import loop_nest
from hloom.compiler.kernels.product import product_launches
from hloom.compiler.kernels.reduce import reduce_nests
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.row import row_nest
from hloom.compiler.kernels.scatter import scatter_nests
from hloom.compiler.kernels.topk import topk_launches
from hloom.compiler.kernels.update import is_update, update_nest
from hloom.compiler.kernels.window import window_launches
from hloom.compiler.stages import stage
from hloom.ir.module import Computation
from hloom.ir.ops import OPS

ROWS = 16  # so many rows keep every core busy; fewer long rows are reduced in chunks


def nest_kind(computation: Computation) -> str:
    """'product', 'attention', 'window', 'topk', 'fft', 'scatter', 'row', 'reduce' or 'loop'."""
    instructions = computation.instructions
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
    return [row_nest(request)] if kind == "row" else reduce_nests(request)


@stage("source")
def launches(request: KernelRequest, target) -> list[Launch]:
    """The launches of one fused computation. `target` has `machine` and `render(nest) -> KernelSource`."""
    kind = nest_kind(request.computation)
    if kind == "product":
        return product_launches(request, target.machine)
    if kind == "attention":
        attention = attention_of(request.computation)
        if attention is None:
            raise ValueError(f"{request.computation.name}: no kernel has two contractions but attention")
        return attention_launches(request, attention, target.machine)
    if kind == "fft":
        return fft_launches(request, target.machine)
    if kind == "window":
        return window_launches(request)
    if kind == "topk":
        return topk_launches(request)
    result = []
    for nest in nests(request):
        if nest.items == 0:
            continue
        arguments = [name for name, _ in nest.pointers] + list(nest.integers.values())
        launch = launch_by_work(target.render(nest), arguments, nest.items, nest.inner_work, nest.temporaries)
        if nest.kind == "row" and nest.items >= 256:
            launch.grain = -(-launch.grain // 4) * 4  # a processor may do so many rows at once
        result.append(launch)
    return result
