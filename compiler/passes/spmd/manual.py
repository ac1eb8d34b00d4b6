"""Partitioning of manual computations: their bodies are inlined as the work of each device on its parts."""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.passes.spmd.resharding.layouts import Layout
from hloom.compiler.passes.spmd.scope import Held, Scope, Tree, leaves
from hloom.ir.module import Computation, Instruction
from hloom.ir.spmd.axes import mesh_axes, with_groups
from hloom.ir.spmd.sharding import Sharding

Walk = Callable[[Scope, Computation], Tree]


def manual(scope: Scope, instruction: Instruction, walk: Walk) -> None:
    """Emits a manual computation. Its arrays are the parts along the manual axes, split further along the others.

    walk(scope, computation): emits a computation whose parameters are held; returns the tree of its root.
    """
    attributes, mesh = instruction.attributes, scope.layouts.mesh
    axes = frozenset(mesh_axes(mesh, attributes["manual_axes"]))
    body = with_groups(attributes["to_apply"], mesh)
    for k, (parameter, operand, sharding) in enumerate(
        zip(body.parameters, instruction.operands, attributes["in_shardings"], strict=True)
    ):
        held = scope.values[operand]
        layout = _outer(scope, sharding, held.layout, axes)
        scope.mover.why = f"operand {k} of a manual computation"
        value = scope.read(held, layout)
        scope.values[parameter] = Held(parameter.shape, {_without(scope, layout, axes): value})
    values, layouts = [], []
    for k, (held, sharding) in enumerate(zip(leaves(walk(scope, body)), attributes["out_shardings"], strict=True)):
        layout = _outer(scope, sharding, held.layout, axes)
        scope.mover.why = f"result {k} of a manual computation"
        values.append(scope.read(held, _without(scope, layout, axes)))
        layouts.append(layout)
    scope.hold(instruction, values, layouts)


def _outer(scope: Scope, sharding: Sharding, have: Layout, manual_axes: frozenset[str]) -> Layout:
    """The layout outside: given by the sharding along manual and other axes, plus the existing axes of dimensions that
    the sharding leaves open."""
    layout = scope.partitioner.layout(sharding, sharding.rank)
    assert layout is not None
    if not sharding.open:
        return layout
    used = {*layout.axes, *layout.unreduced}
    dims = list(layout.dims)
    for d in sharding.open:
        more = tuple(a for a in have.dims[d] if a not in manual_axes and a not in used)
        used.update(more)
        dims[d] = (*dims[d], *more)
    return scope.layouts.of(tuple(dims), layout.unreduced)


def _without(scope: Scope, layout: Layout, axes: frozenset[str]) -> Layout:
    """A layout inside: without the manual axes."""
    return scope.layouts.of(tuple(tuple(a for a in own if a not in axes) for own in layout.dims))
