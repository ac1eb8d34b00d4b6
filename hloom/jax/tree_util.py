"""Pytrees under `jax.tree_util`'s names: classes as nodes, keys and paths. `hloom.tree` has the short names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable
from typing import Any

import optree

from hloom import tree as _tree
from hloom.errors import TreeError
from hloom.tree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    PyTreeDef,
    SequenceKey,
    flatten_one_level_with_keys,
    is_tree_node,
    keystr,
    register,
    register_keys,
)
from hloom.tree.pytrees import NAMESPACE

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]
__dir__ = __all__.copy

# The entries of a path, for annotations.
KeyEntry = Hashable
KeyPath = tuple[Any, ...]

tree_all, tree_broadcast, tree_map, tree_map_with_path = _tree.all, _tree.broadcast, _tree.map, _tree.map_with_path
tree_flatten, tree_flatten_with_path, tree_unflatten = _tree.flatten, _tree.flatten_with_path, _tree.unflatten
tree_leaves, tree_leaves_with_path, tree_structure = _tree.leaves, _tree.leaves_with_path, _tree.structure
tree_reduce, tree_reduce_associative, tree_transpose = _tree.reduce, _tree.reduce_associative, _tree.transpose


def all_leaves(iterable, is_leaf=None) -> bool:
    """Whether no element of the iterable is a tree with nodes of its own."""
    return all((is_leaf is not None and is_leaf(x)) or not is_tree_node(type(x)) for x in iterable)


def treedef_children(treedef) -> list:
    """The structures of the children of a structure's root."""
    return treedef.children()


def treedef_is_leaf(treedef) -> bool:
    """Whether the structure is one leaf."""
    return _tree.specification(treedef).is_leaf()


def treedef_tuple(treedefs):
    """The structure of a tuple of trees of these structures."""
    return PyTreeDef(optree.treespec_tuple([_tree.specification(t) for t in treedefs], namespace=NAMESPACE))


def flatten_one_level(tree):
    """(children, metadata) of the root of a tree. Raises TreeError for a leaf."""
    pairs, metadata = flatten_one_level_with_keys(tree)
    return [child for _, child in pairs], metadata


# --- classes as nodes ---------------------------------------------------------------------------------------------


def register_pytree_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func=None) -> None:
    """Registers a class: flatten_func(node) -> (children, metadata), unflatten_func(metadata, children) -> node.

    metadata must be comparable and hashable. flatten_with_keys_func returns (key, child) pairs instead, for paths.
    """
    register(nodetype, flatten_func, unflatten_func)
    if flatten_with_keys_func is not None:
        register_keys(nodetype, lambda node: [key for key, _ in flatten_with_keys_func(node)[0]])


def register_pytree_node_class(cls):
    """The decorator of a class with tree_flatten() and the class method tree_unflatten(metadata, children)."""
    register_pytree_node(cls, lambda node: node.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys(nodetype, flatten_with_keys, unflatten_func, flatten_func=None):
    """`register_pytree_node` of a class with keys: flatten_with_keys returns ((key, child) pairs, metadata)."""

    def flatten(node):
        pairs, metadata = flatten_with_keys(node)
        return tuple(child for _, child in pairs), metadata

    register_pytree_node(nodetype, flatten_func or flatten, unflatten_func, flatten_with_keys)
    return nodetype


def register_pytree_with_keys_class(cls):
    """The decorator of a class with tree_flatten_with_keys() and tree_unflatten(metadata, children)."""
    plain = (lambda node: node.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(cls, lambda node: node.tree_flatten_with_keys(), cls.tree_unflatten, plain)
    return cls


def register_dataclass(nodetype: type, data_fields=None, meta_fields=None, drop_fields=()):
    """Registers a class as a node whose data_fields are children and whose meta_fields are static; also a decorator.

    Without them the fields of a dataclass are children, except those created with `field(metadata={"static": True})`.
    drop_fields are omitted and keep their defaults. Raises TreeError where a field of a dataclass is missing.
    """
    if data_fields is None or meta_fields is None:
        if not dataclasses.is_dataclass(nodetype):
            raise TreeError(
                f"register_dataclass of {nodetype.__name__}",
                "it is not a dataclass",
                "name data_fields and meta_fields",
            )
        fields = [f for f in dataclasses.fields(nodetype) if f.init and f.name not in drop_fields]
        data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
    data_fields, meta_fields = tuple(data_fields), tuple(meta_fields)
    if dataclasses.is_dataclass(nodetype):
        wanted = {f.name for f in dataclasses.fields(nodetype) if f.init} - set(drop_fields)
        if wanted != set(data_fields) | set(meta_fields):
            raise TreeError(
                f"register_dataclass of {nodetype.__name__}",
                f"fields {sorted(wanted)}, named {sorted({*data_fields, *meta_fields})}",
                "name each field once, as data or as metadata",
            )

    def flatten(node):
        children = tuple(getattr(node, n) for n in data_fields)
        return children, tuple(getattr(node, n) for n in meta_fields), data_fields

    def unflatten(metadata, children):
        return nodetype(
            **dict(zip(data_fields, children, strict=True)), **dict(zip(meta_fields, metadata, strict=True))
        )

    register(nodetype, flatten, unflatten)
    register_keys(nodetype, lambda node: [GetAttrKey(n) for n in data_fields])
    return nodetype


def register_static(cls):
    """Registers instances of a class as part of the structure. They must be comparable and hashable."""
    register(cls, lambda node: ((), node), lambda node, _: node)
    register_keys(cls, lambda node: [])
    return cls


class Partial(functools.partial):
    """A `functools.partial` that is a node: its arguments are children, its function is static."""


register(
    Partial,
    lambda p: ((p.args, p.keywords), p.func),
    lambda function, children: Partial(function, *children[0], **children[1]),
)
