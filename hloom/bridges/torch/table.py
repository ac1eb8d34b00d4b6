"""The table of ops: for each overload of ATen and of torch's prims a function that builds it of hloom's ops.

    @rule("flip.default")
    def flip(x, dims):
        return hnp.flip(x, tuple(dims))

A rule gets what the node of the graph has: hloom arrays (tracers) for tensors, Python numbers, lists and dtypes
otherwise; arguments about devices, layouts and memory are left out. It returns an array, or a tuple of arrays and None
for an op with several results. `result=True`: it gets the declared shapes of its results too, as `result` (a Shape, or
a tuple of them). `random=True`: it gets a key of its own, as `key`. A result must have the declared dims; its dtype is
converted to the declared one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hloom.ir.records import record

IGNORED = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "sparse_grad"))


@record(frozen=True)
class Rule:
    """How an overload is built. result, random: what it is given beside the arguments."""

    build: Callable[..., Any]
    result: bool = False
    random: bool = False


RULES: dict[Any, Rule] = {}


def overload(name: str):
    """The OpOverload of a name such as 'add.Tensor' or 'prims::sum.default'; None where this torch has none."""
    space, _, rest = name.rpartition("::")
    packet, _, overload_name = rest.partition(".")
    found = getattr(getattr(torch.ops, space or "aten"), packet, None)
    return getattr(found, overload_name, None) if found is not None else None


def rule(*names: str, result: bool = False, random: bool = False):
    """Makes a function the rule of the overloads of these names; those that this torch lacks are left out."""

    def register(function):
        for name in names:
            found = overload(name)
            if found is not None:
                RULES[found] = Rule(function, result, random)
        return function

    return register
