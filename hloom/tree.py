"""Pytrees through `optree`: nested tuples, lists, dicts, named tuples, dataclasses registered with optree, and None."""

from __future__ import annotations

import optree

from hloom.errors import TreeError

_NAMESPACE = "hloom"


def flatten(tree, is_leaf=None):
    """(leaves, structure)."""
    return optree.tree_flatten(tree, is_leaf, namespace=_NAMESPACE)


def unflatten(structure, leaves):
    """The tree of this structure with these leaves. Raises TreeError when their numbers differ."""
    leaves = list(leaves)
    if structure.num_leaves != len(leaves):
        raise TreeError(
            "a tree was to be put together",
            f"{len(leaves)} leaves for a structure with {structure.num_leaves}: {structure}",
            "flatten a tree of the same structure",
        )
    return optree.tree_unflatten(structure, leaves)


def leaves(tree, is_leaf=None):
    """The leaves in order."""
    return optree.tree_leaves(tree, is_leaf, namespace=_NAMESPACE)


def structure(tree, is_leaf=None):
    """The structure without the leaves."""
    return optree.tree_structure(tree, is_leaf, namespace=_NAMESPACE)


def map(function, tree, *rest, is_leaf=None):  # noqa: A001  (JAX's name)
    """Applies a function to the leaves of trees of one structure. Raises TreeError where structures differ."""
    given, first = flatten(tree, is_leaf)
    try:
        others = [first.flatten_up_to(t) for t in rest]
    except ValueError:
        raise TreeError(
            "trees were to be mapped together",
            "; ".join(str(structure(t)) for t in (tree, *rest)),
            "give all trees one structure",
        ) from None
    return optree.tree_unflatten(first, [function(*leaves) for leaves in zip(given, *others, strict=True)])


def reduce(function, tree, initializer=None, is_leaf=None):
    """Combines the leaves from left to right."""
    if initializer is None:
        return optree.tree_reduce(function, tree, is_leaf=is_leaf, namespace=_NAMESPACE)
    return optree.tree_reduce(function, tree, initializer, is_leaf=is_leaf, namespace=_NAMESPACE)


def all(tree, is_leaf=None):  # noqa: A001  (JAX's name)
    """True when every leaf is true."""
    return optree.tree_all(tree, is_leaf=is_leaf, namespace=_NAMESPACE)


def transpose(outer, inner, tree):
    """A tree of structure `outer` of trees of structure `inner`, turned inside out. Raises TreeError."""
    if structure(tree) != outer.compose(inner):
        raise TreeError(
            "a tree of trees was to be turned inside out",
            f"{structure(tree)}; outer {outer}, inner {inner}",
            "give the structures that the tree is made of",
        )
    return optree.tree_transpose(outer, inner, tree)


def paths(tree):
    """The path of each leaf, a tuple of keys and indexes."""
    return optree.tree_paths(tree, namespace=_NAMESPACE)


def register(cls, to_children, from_children):
    """Makes a class a node: to_children(node) -> (children, metadata), from_children(metadata, children) -> node."""
    optree.register_pytree_node(cls, to_children, from_children, namespace=_NAMESPACE)
    return cls


tree_map, tree_leaves, tree_flatten, tree_unflatten, tree_structure = map, leaves, flatten, unflatten, structure
