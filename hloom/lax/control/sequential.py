"""sequential_vmap: batching as a loop."""

from __future__ import annotations

from hloom import lax
from hloom.transforms.custom_batching import custom_vmap
from hloom.tree import pytrees as tree


def sequential_vmap(fun):
    """The function, applied to batch elements sequentially under vmap (`lax.map`)."""
    function = custom_vmap(fun)

    @function.def_vmap
    def rule(axis_size, in_batched, *args):
        flags = tree.leaves(in_batched)
        leaves, structure = tree.flatten(args)
        moving = [v for v, m in zip(leaves, flags, strict=True) if m]

        def one(slices):
            given = iter(slices)
            return function(
                *tree.unflatten(structure, [next(given) if m else v for v, m in zip(leaves, flags, strict=True)])
            )

        result = lax.map(one, moving)
        return result, tree.map(lambda _: True, result)

    return function
