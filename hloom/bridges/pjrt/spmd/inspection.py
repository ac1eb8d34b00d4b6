"""`jax.debug.inspect_array_sharding` in programs for several devices: a custom call that names jax's function.

Each becomes a call that returns its operand and has an observer, which the pass `report-layouts` tells the layout that
propagation has found.
"""

from __future__ import annotations

from collections.abc import Callable

from jax._src import debugging
from jax._src.lib import xla_client
from jaxlib.mlir import ir

from hloom.bridges.pjrt.names import Named, rename
from hloom.bridges.pjrt.spmd.layouts import hlo_sharding
from hloom.errors import UnsupportedError
from hloom.ir.build import Builder
from hloom.ir.module import Instruction, Module, map_module
from hloom.ir.spmd.sharding import Sharding

__all__ = ["lowering", "with_observers"]

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


def with_observers(module: Module) -> Module:
    """The module with calls that have an observer in place of those that name a function. Raises UnsupportedError if
    one is not of this process."""
    return map_module(module, lambda i: _observed(i, module.partitions) if _is_call(i) else i)


def _is_call(instruction: Instruction) -> bool:
    return _functions.is_name(instruction.attributes.get("custom_call_target"))


def _observed(instruction: Instruction, devices: int) -> Instruction:
    function = _functions.get(instruction["custom_call_target"])
    if function is None:
        raise UnsupportedError(
            "jax.debug.inspect_array_sharding", "a function that is not in this process any more",
            "trace the program again: programs that inspect layouts cannot be stored", "",
        )  # fmt: skip
    builder = Builder("inspect_array_sharding")
    same = builder.finish(builder.parameter(instruction.shape, "x"))
    attributes = {"to_apply": same, "observer": _Inspection(function, devices)}
    return Instruction("call", instruction.operands, instruction.shape, attributes, "", instruction.source)


class _Inspection:
    """Tells a function of jax's a layout, as XLA's (`hloom.compiler.passes.spmd.custom.LayoutObserver`)."""

    def __init__(self, function: Callable, count: int):
        self.function, self.count = function, count

    def laid_out(self, sharding: Sharding, devices: tuple[str, ...], is_manual: bool) -> None:
        self.function(xla_client.HloSharding.manual() if is_manual else hlo_sharding(sharding, self.count))
