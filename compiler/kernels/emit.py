"""From a fused computation to launches: which nest it is, its kernels, and the arguments of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hloom.compiler.kernels.attention import attention_launches
from hloom.compiler.kernels.attention_structure import attention_of
from hloom.compiler.kernels.contraction import KernelAddress
from hloom.compiler.kernels.description import Nest
from hloom.compiler.kernels.fft import fft_launches
from hloom.compiler.kernels.loop import loop_nest
from hloom.compiler.kernels.product import product
from hloom.compiler.kernels.reduce import reduce_nests
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.row import row_nest
from hloom.compiler.kernels.scatter import scatter_nests
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.kernels.topk import topk_kernels
from hloom.compiler.kernels.update import is_update, update_nest
from hloom.compiler.kernels.window import window_kernels
from hloom.compiler.stages import stage
from hloom.ir.module import Computation
from hloom.ir.ops import OPS

WORK = 65536  # element operations that a chunk should have: some 10 microseconds, against 1 to hand it to a thread
ROWS = 16  # so many rows keep every core busy; fewer long rows are reduced in chunks


@dataclass
class Launch:
    """One kernel of a program.

    arguments: for each parameter but lo and hi a pointer's name, an integer, or a KernelSource whose address it is.
    items, grain: work items, and how many of them are one chunk. work: element operations of all, roughly.
    temporaries: bytes by pointer name. tables: constant arrays by pointer name.
    """

    source: KernelSource
    arguments: list[str | int | KernelSource]
    items: int
    grain: int
    work: float = 0.0
    temporaries: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)


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
        return _product_launches(request, target)
    if kind == "attention":
        attention = attention_of(request.computation)
        if attention is None:
            raise ValueError(f"{request.computation.name}: no kernel has two contractions but attention")
        made = attention_launches(request, attention, target.machine)
        return [Launch(x.source, x.arguments, x.items, x.grain, x.items * WORK / x.grain, x.temporaries) for x in made]
    if kind == "fft":
        return [
            Launch(f.source, f.arguments, f.items, grain_of(f.items, f.work), f.items * f.work, f.temporaries, f.tables)
            for f in fft_launches(request, target.machine)
        ]
    if kind in ("window", "topk"):
        made = window_kernels(request) if kind == "window" else topk_kernels(request)
        result = []
        for x in made:
            grain = min(max(grain_of(x.items, x.work), x.least), x.items)
            result.append(Launch(x.source, x.arguments, x.items, grain, x.items * x.work, x.temporaries))
        return result
    result = []
    for nest in nests(request):
        if nest.items == 0:
            continue
        arguments = [name for name, _ in nest.pointers] + list(nest.integers.values())
        grain = grain_of(nest.items, nest.inner_work)
        if nest.kind == "row" and nest.items >= 256:
            grain = -(-grain // 4) * 4  # a processor may do so many rows at once
        work = nest.items * nest.inner_work
        result.append(Launch(target.render(nest), arguments, nest.items, grain, work, nest.temporaries))
    return result


def grain_of(items: int, work: float) -> int:
    """Items in a chunk, from their work; small kernels stay in one piece. Depends on the shape only."""
    if items * work <= 2 * WORK:
        return items
    grain = max(1, int(WORK / work))
    return -(-grain // 64) * 64 if grain >= 64 else grain


def _product_launches(request: KernelRequest, target) -> list[Launch]:
    made = product(request, target.machine)
    result = []
    for step in made.kernels.step_plan(*made.extents, made.lhs_strides, made.rhs_strides):
        arguments: list[str | int | KernelSource] = []
        source = made.kernels.kernels[step.kernel]
        for name in made.kernels.parameters[step.kernel][:-2]:
            if name in step.arguments:
                value = step.arguments[name]
                arguments.append(made.kernels.kernels[value.kernel] if isinstance(value, KernelAddress) else value)
            elif name in made.integers:
                arguments.append(made.integers[name])
            else:
                arguments.append(step.pointers.get(name, name))
        work = step.items * WORK / step.grain
        result.append(Launch(source, arguments, step.items, step.grain, work, step.temporaries))
    return result
