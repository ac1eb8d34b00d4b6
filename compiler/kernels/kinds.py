"""The kernel kinds whose nests all targets share: scatters, rows, other reductions and element-wise work."""

from __future__ import annotations

import math
from collections.abc import Callable

from hloom.compiler.fusibility import CONTRACTIONS, is_row_reduction
from hloom.compiler.kernels.accepts import accepts_element, accepts_reduction, accepts_scatter
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.loops.elementwise import loop_nest
from hloom.compiler.kernels.loops.reduce import reduce_nests
from hloom.compiler.kernels.loops.row_fusion import row_nest
from hloom.compiler.kernels.loops.update import is_update, update_nest
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.scatter import has_scatter_kernel, scatter_nests
from hloom.compiler.targets.base import KernelKind
from hloom.ir.module import Computation

FEW_ROWS, LONG_ROW = 256, 8192  # fewer and longer rows are reduced in chunks where items are blocks of threads


def contains(*opcodes: str) -> Callable[[Computation], bool]:
    """A `matches` of computations with an instruction of one of the opcodes."""
    return lambda computation: any(i.opcode in opcodes for i in computation.instructions)


def is_contraction(computation: Computation) -> bool:
    """Whether a computation has one contraction, and perhaps element-wise work around it."""
    opcodes = [i.opcode for i in computation.instructions]
    return sum(opcode in CONTRACTIONS for opcode in opcodes) == 1 and "reduce" not in opcodes


def _is_row(computation: Computation) -> bool:
    reduces = _reduces(computation)
    return bool(reduces) and (is_row_reduction(reduces[0]) or _is_used_inside(computation, set(reduces)))


def _is_elementwise(computation: Computation) -> bool:
    return not any(i.opcode in CONTRACTIONS for i in computation.instructions)


def _reduces(computation: Computation) -> list:
    """The reductions of a computation without contractions."""
    return [i for i in computation.instructions if i.opcode == "reduce"] if _is_elementwise(computation) else []


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


def _is_cut(request: KernelRequest) -> bool:
    """Whether few long rows, of which only the reductions are wanted, are too few for the threads there are."""
    reduces = _reduces(request.computation)
    dims = reduces[0].operands[0].dims
    length = math.prod(dims[k] for k in reduces[0]["dimensions"])
    rows = math.prod(dims) // max(length, 1)
    long = length >= LONG_ROW and rows < FEW_ROWS
    return long and not request.supports_loop_splitting and not _is_used_inside(request.computation, set(reduces))


def _row_nests(request: KernelRequest) -> list[Nest]:
    return reduce_nests(request) if _is_cut(request) else [row_nest(request)]


def _loop_nests(request: KernelRequest) -> list[Nest]:
    return [update_nest(request) if is_update(request) else loop_nest(request)]


def launches_of(nests: Callable[[KernelRequest], list[Nest]]) -> Callable:
    """The `launches` of a kind whose kernels are nests."""
    return lambda request, target: [target.launch_of(nest) for nest in nests(request) if nest.items]


SCATTER = KernelKind(
    "scatter",
    lambda computation: computation.root.opcode == "scatter",
    launches_of(scatter_nests),
    frozenset(["scatter"]),
    has_scatter_kernel,
    accepts_scatter,
    "kLoop",
)
ROW = KernelKind(
    "row", _is_row, launches_of(_row_nests), frozenset(["reduce"]), accepts=accepts_reduction, fusion_kind="kInput"
)
REDUCE = KernelKind(
    "reduce",
    lambda computation: bool(_reduces(computation)),
    launches_of(reduce_nests),
    accepts=accepts_reduction,
    fusion_kind="kInput",
)
LOOP = KernelKind("loop", _is_elementwise, launches_of(_loop_nests), accepts=accepts_element, fusion_kind="kLoop")
