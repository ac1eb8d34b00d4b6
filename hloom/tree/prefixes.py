"""Tree prefixes: one entry of a smaller tree stands for a whole subtree."""

from __future__ import annotations

import optree

from hloom.errors import TreeError
from hloom.tree import pytrees as tree


def _is_axis(value) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def mapped_axes(prefix, value, what: str) -> list:
    """For each leaf of `value` the entry of `prefix`, a tree whose leaves (None too) stand for whole subtrees.

    Raises TreeError, which names `what`, where the prefix is no prefix of the tree.
    """
    if _is_axis(prefix):
        return [prefix] * len(tree.leaves(value))
    try:
        children, first, keys, _ = _one_level(prefix)
        others, second, found, _ = _one_level(value)
    except ValueError:
        children, others, first, second, keys, found = (), (), 0, 1, (), ()
    if len(children) != len(others) or (first != second and not (keys == found and type(prefix) is type(value))):
        raise TreeError(
            f"{what} has to be a prefix of the tree that it describes",
            f"{prefix!r} for {tree.written(tree.structure(value))}",
            "use one integer (or None) per subtree",
        )
    return [leaf for a, b in zip(children, others, strict=True) for leaf in mapped_axes(a, b, what)]


def _one_level(value):
    children, metadata, entries, restore = optree.tree_flatten_one_level(value, namespace=tree.NAMESPACE)
    return tuple(children), metadata, tuple(entries), restore
