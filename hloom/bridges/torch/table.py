"""The table of ops: for each overload of ATen and of torch's prims a function that builds it from hloom's ops.

    @rule("flip.default")
    def flip(x, dims):
        return hnp.flip(x, tuple(dims))

A rule gets the node's arguments: hloom arrays (tracers) for tensors, Python numbers, lists and dtypes
otherwise; arguments about devices, layouts and memory are left out. It returns an array, or a tuple of arrays and None
for an op with several results. `result=True`: it also gets the declared shapes of its results, as `result` (a Shape, or
a tuple of them). `random=True`: it gets its own key, as `key`. `memory=True`: it gets the memory of its first argument,
as a Memory, instead of that argument. `checks=True`: it gets `check(info, name, is_matrix=...)`, which makes a call
raise torch's error of linear algebra where `info` is not 0. `bounds=True`: it gets `bounds`, with which it records the
indices and divisors that a call has to refuse. `lies=K`: it gets whether its argument K is contiguous, as `contiguous`,
for ops whose results or speed depend on it. A result must have the declared dims; its dtype is converted to the
declared one.

An op that a library registers when it is imported has a rule by its name: `rule_of` finds it in any order of imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hloom.ir.records import record
from hloom.ir.sizes.expressions import Size

IGNORED = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "sparse_grad"))


@record(frozen=True)
class Rule:
    """How an overload is built. result, random, memory, checks, bounds, lies: inputs passed in addition to the
    arguments, or instead of one."""

    build: Callable[..., Any]
    result: bool = False
    random: bool = False
    memory: bool = False
    checks: bool = False
    bounds: bool = False
    lies: int | None = None


@record(frozen=True)
class Memory:
    """The memory of a tensor: `elements`, one dimension, in memory order.

    origin: torch's storage offset of the first of them. start: the index of the tensor's own first element among them.
    dims, order: of the tensor that fills the memory; order is None if the rule's tensor is a part of it.
    """

    elements: Any
    origin: Size
    start: Size
    dims: tuple[Size, ...]
    order: tuple[int, ...] | None

    def place(self, storage_offset: Size | None) -> Size:
        """The number among the elements of a storage offset; the tensor's own where that is None."""
        return self.start if storage_offset is None else storage_offset - self.origin


RULES: dict[Any, Rule] = {}
_OF_LIBRARIES: dict[str, Rule] = {}  # by the ops' names, such as 'library.op.default'


def rule_of(op) -> Rule | None:
    return RULES.get(op) or _OF_LIBRARIES.get(str(op))


def overload(name: str):
    """The OpOverload of a name such as 'add.Tensor' or 'prims::sum.default'; None if this torch has none."""
    space, _, rest = name.rpartition("::")
    packet, _, overload_name = rest.partition(".")
    found = getattr(getattr(torch.ops, space or "aten"), packet, None)
    return getattr(found, overload_name, None) if found is not None else None


def rule(*names: str, lies: int | None = None, **given: bool):
    """Makes a function the rule of the overloads of these names, and of their copying forms (`view_copy.default`) where
    these have no rule; those that this torch lacks are left out. lies, given: as Rule has it."""

    def register(function):
        made = Rule(function, lies=lies, **given)
        for name in names:
            packet, _, kind = name.partition(".")
            space, separator, _ = name.partition("::")
            if separator and space != "prims":
                _OF_LIBRARIES[name.replace("::", ".")] = made
                continue
            if (found := overload(name)) is not None:
                RULES[found] = made
            if (found := overload(f"{packet}_copy.{kind}")) is not None:
                RULES.setdefault(found, made)
        return function

    return register
