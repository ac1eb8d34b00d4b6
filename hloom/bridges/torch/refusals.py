"""Calls that torch refuses in eager mode for the dtypes of their operands, although it captures them without an error.

Kernels refuse dtypes (a softmax of integers, a product of f64 and f32); the functions by which torch captures a graph
only compute shapes and don't. So they are tested: calls of a graph with unusual dtypes run once, on small tensors of
zeros and of ones. A call is refused if it fails for both but succeeds for f32 operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guarding_hint_or_throw
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["is_refused"]

MOST_ELEMENTS = 1 << 16  # of a call's operands together; larger ones are not tried
_ERRORS = (RuntimeError, TypeError, ValueError, IndexError)
_FILLS = (0, 1)


def is_refused(graph_module) -> bool:
    """Whether torch refuses a call of a graph that Dynamo captured."""
    calls = [call for node in graph_module.graph.nodes if (call := _unusual(node)) is not None]
    if not calls or torch.is_autocast_enabled("cpu") or any(map(_enters_autocast, graph_module.graph.nodes)):
        return False
    state = torch.get_rng_state()
    try:
        with _disable_current_modes(), torch.no_grad():
            return any(_fails(*call) for call in calls)
    finally:
        torch.set_rng_state(state)


def _enters_autocast(node) -> bool:
    return getattr(node.target, "__name__", "") == "_enter_autocast"


def _unusual(node) -> tuple[Callable, Any] | None:
    """A call of torch's and its operands, as captured, where their dtypes are mixed, or not those of real floats."""
    if node.op == "call_method":
        target = getattr(torch.Tensor, node.target, None)
    else:
        target = node.target if node.op == "call_function" and _is_of_torch(node.target) else None
    if target is None:
        return None
    try:
        operands = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["example_value"])
    except KeyError:
        return None
    tensors = [v for v in pytree.tree_leaves(operands) if isinstance(v, torch.Tensor)]
    if not tensors or any(
        type(t) not in _PLAIN or t.device.type != "cpu" or t.layout != torch.strided for t in tensors
    ):
        return None
    inexact = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()}
    if len(inexact) < 2 and tensors[0].is_floating_point():
        return None
    try:
        if sum(math.prod(map(_hint, t.shape)) for t in tensors) > MOST_ELEMENTS:
            return None
        return target, pytree.tree_map(_known, operands)
    except (RuntimeError, ValueError):  # sizes that depend on data
        return None


def _hint(value):
    """The number that torch captures an open one with. To ask for it leaves the number open."""
    return guarding_hint_or_throw(value) if isinstance(value, (torch.SymInt, torch.SymBool)) else value


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch._subclasses.FakeTensor)


def _is_of_torch(target) -> bool:
    """Whether a function is one of torch's ops: others may do more than to compute."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims")
    module = getattr(target, "__module__", None) or ""
    return module in ("_operator", "torch", "torch.functional", "torch.nn.functional", "torch._C._nn") or (
        isinstance(getattr(target, "__self__", None), type) and target.__self__.__module__.startswith("torch._C")
    )


def _known(value):
    """A declared operand: (shape, strides, dtype) of a tensor, a number for one that is open."""
    if isinstance(value, torch.Tensor):
        return _Declared(tuple(map(_hint, value.shape)), tuple(map(_hint, value.stride())), value.dtype)
    return _hint(value)


class _Declared:
    """The known properties of a tensor operand."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype):
        self.shape, self.strides, self.dtype = shape, strides, dtype

    def filled(self, value: int, dtype: torch.dtype) -> torch.Tensor:
        found = torch.empty_strided(self.shape, self.strides, dtype=dtype)
        return torch.full(self.shape, value, dtype=dtype) if 0 in self.strides else found.fill_(value)


def _fails(target: Callable, operands) -> bool:
    flat, structure = pytree.tree_flatten(operands)

    def runs(fill: int, dtypes: list[torch.dtype | None]) -> bool:
        made = [v.filled(fill, d) if d is not None else v for v, d in zip(flat, dtypes, strict=True)]
        args, kwargs = pytree.tree_unflatten(made, structure)
        try:
            target(*args, **kwargs)
        except torch.linalg.LinAlgError:
            return True  # of the values
        except _ERRORS:
            return False
        return True

    own = [v.dtype if isinstance(v, _Declared) else None for v in flat]
    if any(runs(fill, own) for fill in _FILLS):
        return False
    return any(runs(fill, dtypes) for dtypes in _usual(own) for fill in _FILLS)


def _usual(own: list[torch.dtype | None]) -> Iterator[list[torch.dtype | None]]:
    """The dtypes of operands with f32 instead of other floats, of the first one, of all of them."""
    yield [torch.float32 if d is not None and (d.is_floating_point or d.is_complex) else d for d in own]
    first = next(k for k, d in enumerate(own) if d is not None)
    yield [torch.float32 if k == first else d for k, d in enumerate(own)]
    yield [torch.float32 if d is not None else d for d in own]
