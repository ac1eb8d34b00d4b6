"""Kernels that users write (`hloom.kernel`) on a GPU: a thread for each iteration of a parallel loop."""

from __future__ import annotations

from hloom.compiler.kernel_ir.nodes import Const, For, Stmt, Var
from hloom.compiler.kernel_ir.rewrite import with_variables
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.user import Phase, phases_of
from hloom.compiler.targets.cuda.launches import CudaLaunch, cuda_source, launch_of_source
from hloom.ir.records import replace

__all__ = ["user_launches"]


def user_launches(request: KernelRequest, processors: int) -> list[CudaLaunch]:
    """The launches of a computation of one kernel."""
    program, phases = phases_of(request)
    return [
        replace(_launch(phase, program.temporaries_of(phase), processors), tables=program.tables_of(phase))
        for phase in phases
        if phase.items
    ]


def _launch(phase: Phase, temporaries: dict[str, int], processors: int) -> CudaLaunch:
    kernel = phase.kernel
    given = list(zip(kernel.params[:-2], phase.arguments, strict=True))
    names = {var: Var(var.type, argument) for var, argument in given if isinstance(argument, str)}
    pointers = [(var.name, var.type[1:]) for var in names.values()]
    integers = {var.name: argument for var, argument in given if not isinstance(argument, str)}
    *before, loop = [with_variables(statement, names) for statement in kernel.body]
    assert isinstance(loop, For)
    body: list[Stmt] = [*before, *loop.body]
    items = phase.items
    if phase.whole and items > 1:  # one thread does all of them in their order
        all_items = For(loop.var, Const("s64", 0), Const("s64", items), Const("s64", 1), loop.body)
        body, items = [*before, all_items], 1
    source = cuda_source(
        kernel.name, pointers, integers, body, grain="serial", items=items, item=loop.var.name if items > 1 else "item"
    )
    values = {**integers, "items": items}
    return launch_of_source(source, values, phase.items * phase.work, temporaries, processors=processors)
