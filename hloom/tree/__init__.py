"""Pytrees, under `jax.tree`'s names: nested containers whose leaves are arrays, and their structure without the leaves.

Containers are tuples, lists, dicts, named tuples, None, and classes registered as nodes (`hloom.jax.tree_util`). Inside
hloom the same functions work on optree's structures (`tree.pytrees`); here a structure is a `PyTreeDef`, and an array
of random keys is a leaf.
"""

from __future__ import annotations

import functools

from hloom.tree import ending

# isort: split
import optree

from hloom.tree import pytrees
from hloom.tree.pytrees import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    SequenceKey,
    flatten_one_level_with_keys,
    is_tree_node,
    keystr,
    paths,
    register,
    register_keys,
    static,
)

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "PyTreeDef",
    "SequenceKey",
    "all",
    "broadcast",
    "flatten",
    "flatten_one_level_with_keys",
    "flatten_with_path",
    "is_tree_node",
    "keystr",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "paths",
    "reduce",
    "reduce_associative",
    "register",
    "register_keys",
    "static",
    "structure",
    "transpose",
    "unflatten",
]
__dir__ = __all__.copy


class PyTreeDef:
    """The structure of a tree: its containers and their keys, with `*` for each leaf. Compares and hashes."""

    __slots__ = ("spec",)

    def __init__(self, spec: optree.PyTreeSpec):
        self.spec = spec

    @property
    def num_leaves(self) -> int:
        return self.spec.num_leaves

    @property
    def num_nodes(self) -> int:
        return self.spec.num_nodes

    def unflatten(self, leaves):
        """The tree with these leaves. Raises TreeError when their number differs."""
        return pytrees.unflatten(self.spec, leaves)

    def flatten_up_to(self, tree) -> list:
        """The subtrees at the leaves of this structure. Raises ValueError where the tree differs."""
        return self.spec.flatten_up_to(tree)

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        """Returns this structure with another one in place of each leaf."""
        return PyTreeDef(self.spec.compose(specification(inner)))

    def children(self) -> list[PyTreeDef]:
        """The structures of the children of the root."""
        return [PyTreeDef(child) for child in self.spec.children()]

    def node_data(self):
        """(class, metadata) of the root, or None for a leaf."""
        if self.spec.is_leaf():
            return None
        root = self.spec.one_level()
        if root is None or root.type is None:
            return None
        if root.type is dict:
            return dict, root.entries()
        if not is_tree_node(root.type) or root.type in (tuple, list):
            return root.type, None
        return root.type, optree.tree_flatten_one_level(
            root.unflatten([0] * root.num_leaves), namespace=pytrees.NAMESPACE
        )[1]

    def __eq__(self, other) -> bool:
        return self.spec == specification(other)

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        text = str(self.spec).removeprefix("PyTreeSpec(").removesuffix(")")
        text = text.removesuffix(f", namespace={pytrees.NAMESPACE!r}")
        return f"PyTreeDef({text.replace('CustomTreeNode(', 'CustomNode(')})"

    def __reduce__(self):
        return PyTreeDef, (self.spec,)


def specification(structure):
    """optree's structure of a PyTreeDef, or what is given."""
    return structure.spec if isinstance(structure, PyTreeDef) else structure


# --- leaves -------------------------------------------------------------------------------------------------------

_whole: list[type] = []  # classes that are leaves for users and nodes inside hloom


def count_as_leaf(cls: type) -> None:
    """Treats instances of a node class as leaves in the functions of this module."""
    _whole.append(cls)


def _stops(is_leaf):
    """The user's is_leaf combined with `count_as_leaf`."""
    if not _whole:
        return is_leaf
    classes = tuple(_whole)
    if is_leaf is None:
        return lambda *node: isinstance(node[-1], classes)
    return lambda *node: isinstance(node[-1], classes) or is_leaf(*node)


def _with_leaves(function, position: int):
    """A function of `hloom.tree.pytrees` whose argument `is_leaf`, at this position, is completed by `_stops`."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if _whole:
            if len(args) > position:
                args = (*args[:position], _stops(args[position]), *args[position + 1 :])
            else:
                kwargs["is_leaf"] = _stops(kwargs.get("is_leaf"))
        return function(*args, **kwargs)

    return call


_MANY = 1 << 30  # functions that take is_leaf by name only
all = _with_leaves(pytrees.all, 1)  # noqa: A001  (JAX's names)
broadcast = _with_leaves(pytrees.broadcast, 2)
leaves = _with_leaves(pytrees.leaves, 1)
leaves_with_path = _with_leaves(pytrees.leaves_with_path, 1)
map = _with_leaves(pytrees.map, _MANY)  # noqa: A001
map_with_path = _with_leaves(pytrees.map_with_path, _MANY)
reduce = _with_leaves(pytrees.reduce, 3)
reduce_associative = _with_leaves(pytrees.reduce_associative, _MANY)


def flatten(tree, is_leaf=None):
    """(leaves, structure).

    >>> leaves, structure = hl.tree.flatten({"b": 1, "a": (2, [3])})
    >>> leaves
    [2, 3, 1]
    >>> structure
    PyTreeDef({'a': (*, [*]), 'b': *})
    """
    found, spec = pytrees.flatten(tree, _stops(is_leaf))
    return found, PyTreeDef(spec)


def structure(tree, is_leaf=None) -> PyTreeDef:
    """The structure without the leaves.

    >>> hl.tree.structure((1, {"a": 2})) == hl.tree.structure((3, {"a": 4}))
    True
    """
    return PyTreeDef(pytrees.structure(tree, _stops(is_leaf)))


def unflatten(treedef, leaves):
    """The tree of this structure with these leaves. Raises TreeError when their numbers differ.

    >>> structure = hl.tree.structure((0, {"a": 0}))
    >>> hl.tree.unflatten(structure, [10, 20])
    (10, {'a': 20})
    """
    return pytrees.unflatten(specification(treedef), leaves)


def flatten_with_path(tree, is_leaf=None, is_leaf_takes_path: bool = False):
    """([(path, leaf), ...], structure).

    >>> (first, *rest), structure = hl.tree.flatten_with_path({"a": [1, 2]})
    >>> hl.tree.keystr(first[0]), first[1]
    ("['a'][0]", 1)
    """
    pairs, spec = pytrees.flatten_with_path(tree, _stops(is_leaf), is_leaf_takes_path)
    return pairs, PyTreeDef(spec)


def transpose(outer_treedef, inner_treedef, pytree_to_transpose):
    """A tree of structure `outer_treedef` of trees of structure `inner_treedef`, transposed. Raises TreeError.

    inner_treedef=None: the structure of the first inner tree.

    >>> pairs = {"a": (1, 2), "b": (3, 4)}
    >>> hl.tree.transpose(hl.tree.structure({"a": 0, "b": 0}), hl.tree.structure((0, 0)), pairs)
    ({'a': 1, 'b': 3}, {'a': 2, 'b': 4})
    """
    return pytrees.transpose(specification(outer_treedef), specification(inner_treedef), pytree_to_transpose)
