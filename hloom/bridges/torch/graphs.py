"""Graphs as passed by torch: the declarations of their nodes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["ASSERTIONS", "COPY", "OF_SIZES", "WITH_EFFECTS", "declare", "has_open_sizes", "is_evaluated", "is_op",
           "keeps_state", "op_of", "placeholders", "position_of_op", "tensors_in"]  # fmt: skip

aten = torch.ops.aten
# Sizes and strides as integers, for a tensor whose declared value is known.
OF_SIZES: dict[Any, Callable] = {
    aten.sym_size.int: lambda sizes, strides, offset, dim: sizes[dim],
    aten.sym_stride.int: lambda sizes, strides, offset, dim: strides[dim],
    aten.sym_numel.default: lambda sizes, strides, offset: math.prod(sizes),
    aten.sym_storage_offset.default: lambda sizes, strides, offset: offset,
}
# Ops that only check sizes, which are known here: torch has guards for them.
ASSERTIONS = frozenset(
    found
    for name in ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
    if (found := getattr(getattr(aten, name, None), "default", None)) is not None
)
COPY = aten.copy_.default
# with_effects(token, op, *arguments) -> (token, *results): ops that have to run in their order. Calls pass None for a
# token.
WITH_EFFECTS = torch.ops.higher_order.with_effects
# Random ops that are recomputed in the backward pass with the same random numbers. The generator state of torch is the
# op's key here, in the first bytes.
_KEPT_STATES = frozenset(("run_and_save_rng_state", "run_with_rng_state"))


def keeps_state(node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") in _KEPT_STATES


def op_of(node):
    """The op that a node computes, if need be by an op on ops."""
    if node.target is WITH_EFFECTS:
        return node.args[1]
    return node.args[position_of_op(node)] if keeps_state(node) else node.target


def position_of_op(node) -> int:
    """The position of the op among the arguments of a node that keeps a generator's state."""
    return 0 if node.target.__name__ == "run_and_save_rng_state" else 1


def is_evaluated(node) -> bool:
    """Whether a node computes sizes, not elements."""
    return isinstance(node.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)) or (
        node.target in OF_SIZES or node.target in ASSERTIONS
    )


def is_op(node) -> bool:
    """Whether a node computes tensors, not sizes or a part of another's results."""
    return node.target is not operator.getitem and not is_evaluated(node)


def declare(graph_module) -> None:
    """Adds declarations that torch omits: the results of random ops whose generator's state is kept."""
    for node in graph_module.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem and keeps_state(node.args[0]):
            node.meta["val"] = node.args[0].meta["val"][node.args[1]]
        elif keeps_state(node):
            place = position_of_op(node)
            op, *arguments = torch.fx.node.map_arg(node.args[place:], lambda n: n.meta["val"])
            size = torch.get_rng_state().numel()
            mode = torch._guards.detect_fake_mode([n.meta["val"] for n in node.all_input_nodes]) or FakeTensorMode()
            with mode:
                value = op(*arguments, **torch.fx.node.map_arg(node.kwargs, lambda n: n.meta["val"]))
                state = torch.empty(size, dtype=torch.uint8)
            node.meta["val"] = value if place else (state, value)


def tensors_in(value):
    """The tensors in a declared value."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)


def placeholders(graph_module) -> list:
    return [node for node in graph_module.graph.nodes if node.op == "placeholder"]


def has_open_sizes(graph_module) -> bool:
    """Whether torch left sizes open (`hloom.bridges.torch.open_sizes.symbols`)."""
    for node in placeholders(graph_module):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) or (
            isinstance(value, torch.Tensor)
            and any(isinstance(s, torch.SymInt) for s in (*value.shape, *value.stride()))
        ):
            return True
    return False
