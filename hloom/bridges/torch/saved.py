"""Tensors that a forward graph saves for its derivative: they keep the layout in which they were computed.

torch compiles the backward graph for the strides that the forward graph reports (`TracingContext.output_strides`). So
around convolutions, which are computed with features last, nothing is converted back to torch's order in between.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch._functorch._aot_autograd.schemas import OutputType
from torch._guards import TracingContext

from hloom.bridges.torch.graphs import placeholders
from hloom.bridges.torch.memory import contiguous_strides, order_of
from hloom.bridges.torch.translation import New, Translation
from hloom.compiler.free_layouts import with_free_layouts
from hloom.ir.records import replace
from hloom.ir.sizes.expressions import Size

__all__ = ["lying_otherwise", "places_of_saved", "report", "strides_of_results", "wanted_strides", "with_own_layouts"]


def places_of_saved(count: int) -> Collection[int]:
    """Which of `count` results of the forward graph that torch compiles now are saved tensors."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return ()
    metadata = context.fw_metadata
    if metadata is None or metadata.tokens:
        return ()
    return range(count)[metadata.tensors_saved_for_backwards_slice]


def strides_of_results(graph_module) -> list:
    """Strides of the results of a graph that Dynamo captured, as in eager mode; None if they are open.

    AOTAutograd's graphs represent in-place changes as new tensors, with the layout that their ops produce.
    """
    found: list[tuple[int, ...] | None] = []
    for node in graph_module.graph.output_node().args[0]:
        value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        if isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in (*value.shape, *value.stride())):
            found.append(tuple(value.stride()))
        else:
            found.append(None)
    return found


def wanted_strides(strides: list | None) -> dict[int, tuple[int, ...]]:
    """The strides in which the graph that torch compiles now has to return the user's results with their own memory, by
    index. strides: of all of the user's results."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if not strides or metadata is None or metadata.tokens or len(metadata.output_info) != len(strides):
        return {}
    return {
        metadata.num_mutated_inp_runtime_indices + k: wanted
        for k, (wanted, info) in enumerate(zip(strides, metadata.output_info, strict=True))
        if wanted is not None and info.output_type == OutputType.non_alias
    }


def with_own_layouts(translation: Translation) -> Translation:
    """The translation with the free tensors in the order in which the module computes them."""
    if translation.module is None or not translation.free:
        return translation
    module, moved = with_free_layouts(translation.module, translation.free)
    new = list(translation.new)
    for number, permutation in moved.items():
        tensor = new[number]
        # Dimension k of the output in its declared layout is dimension permutation[k] of the computed array.
        lying = order_of(tensor.sizes, tensor.strides)
        assert lying is not None
        sizes: list[Size] = [0] * len(lying)
        for k, d in enumerate(lying):
            sizes[permutation[k]] = tensor.sizes[d]
        steps = contiguous_strides(sizes)
        strides: list[Size] = [0] * len(lying)
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
    """Strides of the arguments whose layout differs from the declaration of a graph without open sizes, by position."""
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
