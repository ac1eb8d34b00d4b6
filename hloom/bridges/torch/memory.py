"""The memory of a graph's tensors: nodes that are views of others, and views of tensors made at run time.

    same_elements(node)   the node whose memory holds the elements of this one, unchanged and in its dtype
    storage_of(node)      the node that created the memory, however views read it: other dtypes, conjugates, negatives
    View(...).of(tensor)  the view of a tensor's memory

A functionalized graph represents an in-place change as a new tensor, of which all views are made again; so two results
share memory in torch exactly if the graph makes both as views of one node.

Dense tensors, in any dimension order, are read and written directly: a program's parameter is the memory in its
physical order; a transposition, which is free when fused with another op, turns it into the tensor. Channels-last
images are one case.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hloom.ir.records import record
from hloom.ir.sizes.expressions import Size, greatest

__all__ = [
    "View", "contiguous_strides", "inverse", "is_identity", "order_of", "reinterpreted", "same_elements",
    "shares_storage", "storage_of", "views_between",
]  # fmt: skip

aten = torch.ops.aten
# Views whose elements are computed from those in memory: conjugates and negatives, which torch marks by a bit.
_LAZY = frozenset((aten._conj.default, aten._neg_view.default))
# Views that are hidden from autograd, as their schema does not declare them. And ops that may copy although their
# schema declares views.
_HIDDEN = frozenset((aten._unsafe_view.default,))
_MAY_COPY = frozenset((aten.reshape.default, aten.contiguous.default))


def _viewed(node):
    """The node of which a node is a view; None for one with its own memory."""
    if node.op != "call_function":
        return None
    source = node.args[0] if node.args else None
    if node.target is operator.getitem and isinstance(source, torch.fx.Node) and _is_view(source):
        source = source.args[0]
    elif not _is_view(node):
        return None
    return source if isinstance(source, torch.fx.Node) else None


def _is_view(node) -> bool:
    target = getattr(node, "target", None)
    return target in _HIDDEN or (getattr(target, "is_view", False) and target not in _MAY_COPY)


def storage_of(node):
    """The node that made the memory which a node has."""
    while (source := _viewed(node)) is not None:
        node = source
    return node


def views_between(base, node) -> list:
    """The nodes that make a view of `base`, the first of them first."""
    found = []
    while node is not base:
        found.append(node)
        node = node.args[0]
    return found[::-1]


def same_elements(node):
    """The node furthest back whose elements, in memory, are those of a node."""
    while (source := _viewed(node)) is not None:
        if node.target in _LAZY or _dtype_of(source) != _dtype_of(node):
            return node
        node = source
    return node


def shares_storage(tensors) -> bool:
    """Whether some of these have the same memory."""
    storages = [StorageWeakRef(t.untyped_storage()) for t in tensors if isinstance(t, torch.Tensor)]
    return len(set(storages)) < len(storages)


def reinterpreted(graph_module) -> bool:
    """Whether a result of a graph that Dynamo captured has the memory of an argument, in elements of another size."""
    sizes: dict[StorageWeakRef, set[int]] = {}
    output = graph_module.graph.output_node()
    for node in (*graph_module.graph.find_nodes(op="placeholder"), *output.all_input_nodes):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            sizes.setdefault(StorageWeakRef(value.untyped_storage()), set()).add(value.itemsize >> value.is_complex())
    return any(len(found) > 1 for found in sizes.values())


def _dtype_of(node):
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


@record(frozen=True)
class View:
    """The part of another tensor's memory that a view reads. offset: in bytes, from that tensor's first element.
    conjugated, negated: torch's bits for lazy conjugates and negatives."""

    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    conjugated: bool = False
    negated: bool = False

    def of(self, base: torch.Tensor) -> torch.Tensor:
        """The view of the memory of `base`; elements of another dtype, or lazy ones, are read as stored in memory."""
        if base.is_conj():
            base = torch._conj(base)
        if base.is_neg():
            base = torch._neg_view(base)
        first = base.storage_offset() * base.itemsize + self.offset
        if base.dtype != self.dtype:
            base = self._read(base)
        found = torch.as_strided(base, self.sizes, self.strides, first // self.dtype.itemsize)
        if self.conjugated:
            found = torch._conj(found)
        return torch._neg_view(found) if self.negated else found

    def _read(self, base: torch.Tensor) -> torch.Tensor:
        """All memory of a tensor in elements of this dtype; autograd knows real and imaginary parts."""
        count = base.untyped_storage().nbytes() // max(base.itemsize, self.dtype.itemsize)
        if base.is_complex() and base.dtype.to_real() == self.dtype:
            return torch.view_as_real(torch.as_strided(base, (count,), (1,), 0))
        if self.dtype.is_complex and self.dtype.to_real() == base.dtype:
            return torch.view_as_complex(torch.as_strided(base, (count, 2), (2, 1), 0))
        count *= max(self.dtype.itemsize // base.itemsize, 1)
        return torch.as_strided(base, (count,), (1,), 0).view(self.dtype)


# --- the order of the dimensions in memory ---


def order_of(sizes: Sequence[Size], strides: Sequence[Size]) -> tuple[int, ...] | None:
    """The dimensions in memory order, the outermost first; None if the memory has gaps or elements overlap. The
    identity for a contiguous tensor."""
    identity = tuple(range(len(sizes)))
    if 0 in sizes:
        return identity
    wide = [k for k in identity if sizes[k] > 1]
    wide.sort(key=lambda k: -strides[k])
    expected: Size = 1
    for k in reversed(wide):
        if strides[k] != expected:
            return None
        expected *= sizes[k]
    if wide == sorted(wide):
        return identity
    return (*wide, *(k for k in identity if sizes[k] <= 1))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def is_identity(order: Sequence[int]) -> bool:
    return all(k == place for place, k in enumerate(order))


def contiguous_strides(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of a contiguous tensor, in elements."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= greatest(size, 1)
    return tuple(reversed(strides))
