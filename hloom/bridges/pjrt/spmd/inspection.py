"""`jax.debug.inspect_array_sharding` in programs for several devices: a custom call that names jax's function.

The functions are called once, when the program is compiled, with the layouts that propagation finds; the program that
runs does not have the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jax._src import debugging
from jax._src.lib import xla_client
from jaxlib.mlir import ir

from hloom.bridges.pjrt.names import Named, rename
from hloom.bridges.pjrt.spmd.layouts import hlo_sharding
from hloom.compiler.passes.spmd.propagate import propagate
from hloom.compiler.pipeline import BEFORE_PARTITION, run_passes
from hloom.errors import UnsupportedError
from hloom.ir.errors import ReplicationWarning
from hloom.ir.module import Computation, Instruction, Module, map_module
from hloom.ir.spmd.sharding import Sharding

__all__ = ["lowering", "report"]

_functions: Named[Callable] = Named("jax.inspect_sharding")


def lowering(context, value, *, callback):
    """jax's rule, whose call names the function by a number in place of its address."""
    kept = context.module_context.keepalives
    count = len(kept)
    made = debugging._inspect_sharding_lowering_rule(context, value, callback=callback)
    if len(kept) > count:  # a program for several devices
        context.module_context.add_host_callback(kept[-1])  # such programs cannot be stored
        rename(list(ir.InsertionPoint.current.block.operations)[-1].operation, _functions.add(kept[-1]))
    return made


def report(module: Module) -> Module:
    """Calls the functions that a module names, and returns it without their calls. Raises UnsupportedError where one is
    not of this process."""
    if not any(_is_call(i) for c in module.computations() for i in c.instructions):
        return module
    with ReplicationWarning.silenced():  # of these calls; compilation warns of the others
        laid_out = propagate(run_passes(module, BEFORE_PARTITION))
    for call, is_manual in _calls(laid_out.entry, False):
        function = _functions.get(call["custom_call_target"])
        if function is None:
            raise UnsupportedError(
                "jax.debug.inspect_array_sharding", "a function that is not in this process any more",
                "trace the program again: programs that inspect layouts cannot be stored", "",
            )  # fmt: skip
        function(_found(call.operands[0].sharding, module.partitions, is_manual))
    return map_module(module, lambda i: Instruction("copy", i.operands, i.shape) if _is_call(i) else i)


def _is_call(instruction: Instruction) -> bool:
    return _functions.is_name(instruction.attributes.get("custom_call_target"))


def _calls(computation: Computation, is_manual: bool) -> Iterator[tuple[Instruction, bool]]:
    """(the call with the value to inspect, whether all axes are manual there), in the order of the program."""
    for instruction in computation.instructions:
        if _is_call(instruction):
            yield instruction, is_manual
        axes = instruction.attributes.get("manual_axes")
        for callee in instruction.called():
            yield from _calls(callee, is_manual or (axes is not None and _are_all(axes, instruction)))


def _are_all(axes: tuple[str, ...], instruction: Instruction) -> bool:
    """Whether these are all axes of the mesh of a manual computation."""
    shardings = (*instruction["in_shardings"], *instruction["out_shardings"])
    return all(name in axes or mesh.axis_size(name) == 1 for mesh in (s.mesh for s in shardings) for name in mesh.names)


def _found(sharding: Sharding, devices: int, is_manual: bool):
    return xla_client.HloSharding.manual() if is_manual else hlo_sharding(sharding, devices)
