"""Tensors that a forward graph saves for its derivative: they lie in memory as they are computed.

torch compiles the backward graph for the strides that the forward graph reports (`TracingContext.output_strides`). So
around convolutions, which are computed with features last, nothing is put back into torch's order in between.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch._guards import TracingContext

from hloom.bridges.torch.graphs import placeholders
from hloom.bridges.torch.layouts import contiguous_strides, order_of
from hloom.bridges.torch.translate import New, Translation
from hloom.compiler.free_layouts import with_free_layouts
from hloom.ir.records import replace

__all__ = ["lying_otherwise", "places_of_saved", "report", "with_own_layouts"]


def places_of_saved(count: int) -> Collection[int]:
    """Which of `count` results of the forward graph that torch compiles now are saved tensors."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return ()
    metadata = context.fw_metadata
    if metadata is None or metadata.tokens:
        return ()
    return range(count)[metadata.tensors_saved_for_backwards_slice]


def with_own_layouts(translation: Translation) -> Translation:
    """The translation with the free tensors in the order in which the module computes them."""
    if translation.module is None or not translation.free:
        return translation
    module, moved = with_free_layouts(translation.module, translation.free)
    new = list(translation.new)
    for number, permutation in moved.items():
        tensor = new[number]
        # Dimension k of the output, as it was declared to lie, is dimension permutation[k] of what is computed.
        lying = order_of(tensor.sizes, tensor.strides)
        assert lying is not None
        sizes = [0] * len(lying)
        for k, d in enumerate(lying):
            sizes[permutation[k]] = tensor.sizes[d]
        steps, strides = contiguous_strides(sizes), [0] * len(lying)
        for k, d in enumerate(lying):
            strides[d] = steps[permutation[k]]
        new[number] = replace(tensor, strides=tuple(strides))
    results = [new[r.number] if isinstance(r, New) else r for r in translation.results]
    return replace(translation, module=module, new=new, results=results)


def report(translation: Translation) -> None:
    """Tells torch the strides of saved tensors."""
    free, context = set(translation.free), TracingContext.try_get()
    if not free or context is None or context.output_strides is None:
        return
    for result in translation.results:
        known = isinstance(result, New) and result.number in free
        context.output_strides.append(result.strides if known else None)


def lying_otherwise(graph_module, examples) -> dict[int, tuple[int, ...]]:
    """Strides of the arguments that lie otherwise than a graph without open sizes declares, by position."""
    found = {}
    for k, (node, example) in enumerate(zip(placeholders(graph_module), examples, strict=True)):
        declared = node.meta.get("val")
        if not (isinstance(declared, torch.Tensor) and isinstance(example, torch.Tensor)):
            continue
        strides = tuple(example.stride())
        if declared.shape == example.shape and strides != tuple(declared.stride()):
            if order_of(tuple(declared.shape), strides) is not None:
                found[k] = strides
    return found
