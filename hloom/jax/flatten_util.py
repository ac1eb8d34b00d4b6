"""Trees as vectors."""

from __future__ import annotations

from hloom import numpy as hnp
from hloom.errors import ShapeError
from hloom.tree import pytrees as tree


def ravel_pytree(pytree):
    """(the elements of all leaves as one vector of their common dtype, the function that undoes it).

    Raises DTypeError; the function raises ShapeError for a vector of another length.
    """
    leaves, structure = tree.flatten(pytree)
    if not leaves:
        return hnp.zeros(0), lambda vector: tree.unflatten(structure, [])
    leaves = [hnp.asarray(leaf) for leaf in leaves]
    vector = hnp.concatenate([hnp.ravel(leaf) for leaf in leaves])
    shapes = [(leaf.shape, leaf.dtype, leaf.size) for leaf in leaves]

    def unravel(flat):
        flat = hnp.asarray(flat)
        if flat.shape != vector.shape:
            raise ShapeError(
                f"a vector of {vector.size} elements for {structure}",
                f"{flat._shape!r}",
                "match the length",
            )
        parts, start = [], 0
        for dims, dtype, size in shapes:
            parts.append(hnp.astype(hnp.reshape(flat[start : start + size], dims), dtype))
            start += size
        return tree.unflatten(structure, parts)

    return vector, unravel


__all__ = ["ravel_pytree"]
__dir__ = __all__.copy
