"""partition: derives the per-device program from a program with layouts over a mesh.

Each instruction is computed on parts of its operands, along the axes that move the fewest bytes (`choice`, by the
factors of its op). An array is held in the layouts in which it was computed or read; a reader that needs another layout
gets it along the cheapest path (`paths`). Split sums remain partial until they are needed: the reader determines
whether they are all-reduced or reduce-scattered. The padding of dimensions not divisible by their axes is arbitrary;
ops whose results would depend on it mask it first.
"""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.spmd.compute import compute
from hloom.compiler.passes.spmd.control import Controls
from hloom.compiler.passes.spmd.scope import Partitioner, Scope, tree_shape
from hloom.compiler.passes.spmd.special import indexing, reduce_windows, windows  # noqa: F401  (they register)
from hloom.ir.module import Instruction, Module
from hloom.ir.rewrite import sweep
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import result_shapes


@module_pass("partition")
def partition(module: Module) -> Module:
    """The per-device program of a program in which every value has a layout, with collectives.

    A module for one device is returned unchanged.

    Every instruction of the given module may have a sharding; those of parameters and of the root define the split of
    arguments and results, and are kept. Parameters and results then are the devices' parts. An alias of an output and a
    parameter is kept if their parts have equal shapes.
    """
    mesh = module_mesh(module)
    if module.partitions == 1 or mesh is None:
        return module
    partitioner = Partitioner(mesh, module.replicas)
    controls = Controls(partitioner, compute)
    entry = module.entry
    scope = Scope(partitioner, entry.name)
    for parameter in entry.parameters:
        _parameter(scope, parameter)
    tree = controls.walk(scope, entry)
    root = entry.root
    layouts = scope.layout_tree(root.shape, root.sharding)
    scope.builder.source, scope.mover.why = root.source, "the layout of the results"
    made = scope.joined(tree, layouts)
    if made.opcode == "parameter" or made.sharding is not None:
        made = scope.builder.emit("copy", made)
    made.sharding = root.sharding
    shapes = result_shapes(made.shape)
    parameters = [p.shape for p in scope.builder.parameters]
    aliases = {o: p for o, p in module.aliases.items() if shapes[o] is parameters[p]}
    computation = sweep(scope.builder.finish(made))
    return Module(module.name, computation, aliases, module.replicas, module.partitions)


def _parameter(scope: Scope, parameter: Instruction) -> None:
    layouts = scope.layout_tree(parameter.shape, parameter.sharding)
    local = scope.builder.parameter(tree_shape(parameter.shape, layouts), parameter.hint, parameter.source)
    local.sharding = parameter.sharding
    scope.values[parameter] = scope.taken_apart(local, parameter.shape, layouts)


def module_mesh(module: Module) -> DeviceMesh | None:
    """The mesh of a module's shardings, with axes of prime size; None if there is none."""
    for computation in (module.entry, *module.computations()):
        for instruction in computation.instructions:
            given = instruction.sharding
            for sharding in given if isinstance(given, (tuple, list)) else (given,):
                if isinstance(sharding, Sharding) and sharding.mesh.size == module.partitions:
                    return sharding.mesh.atomic()
    return None
