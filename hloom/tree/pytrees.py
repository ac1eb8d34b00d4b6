"""Pytrees through `optree`: nested tuples, lists, dicts, named tuples, dataclasses registered with optree, and None."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from hloom.tree.ending import NAMESPACE, registered

# isort: split
import optree

from hloom.errors import TreeDepthError, TreeError
from hloom.ir.records import asdict, record


def flatten(tree, is_leaf=None):
    """(leaves, structure)."""
    try:
        return optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    except RecursionError as error:
        raise _too_deep(error) from None


def unflatten(structure, leaves):
    """The tree of this structure with these leaves. Raises TreeError when their numbers differ."""
    leaves = list(leaves)
    if structure.num_leaves != len(leaves):
        raise TreeError(
            "unflatten of a tree",
            f"{len(leaves)} leaves for a structure with {structure.num_leaves}: {written(structure)}",
            "flatten a tree of the same structure",
        )
    return optree.tree_unflatten(structure, leaves)


def leaves(tree, is_leaf=None):
    """The leaves in order.

    >>> hl.tree.leaves({"b": 1, "a": (2, [3])})
    [2, 3, 1]
    """
    try:
        return optree.tree_leaves(tree, is_leaf, namespace=NAMESPACE)
    except RecursionError as error:
        raise _too_deep(error) from None


def structure(tree, is_leaf=None):
    """The structure without the leaves."""
    try:
        return optree.tree_structure(tree, is_leaf, namespace=NAMESPACE)
    except RecursionError as error:
        raise _too_deep(error) from None


def written(structure) -> str:
    """A structure as it stands in messages, with `array` for each leaf: "(array, {'a': array})"."""
    text = _written(getattr(structure, "spec", structure))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _written(spec: optree.PyTreeSpec) -> str:
    if spec.is_leaf():
        return "array"
    if spec.type is None or spec.type is type(None):
        return "None"
    inner = [_written(child) for child in spec.children()]
    if issubclass(spec.type, dict):
        return f"{{{', '.join(f'{key!r}: {text}' for key, text in zip(spec.entries(), inner, strict=True))}}}"
    if spec.type is list:
        return f"[{', '.join(inner)}]"
    if spec.type is tuple:
        return f"({', '.join(inner)}{',' * (len(inner) == 1)})"
    names = getattr(spec.type, "_fields", None) or spec.entries()
    fields = [f"{n}={t}" if isinstance(n, str) else t for n, t in zip(names, inner, strict=True)]
    return f"{spec.type.__name__}({', '.join(fields)})"


_LONGEST = 400  # characters of a structure in a message


def _too_deep(error: RecursionError) -> TreeDepthError:
    return TreeDepthError(
        "a tree is flattened to its leaves",
        f"it is nested too deeply, or contains itself ({error})",
        "use lists of many elements instead of nested ones, or stack equal parts into one array",
    )


def map(function, tree, *rest, is_leaf=None):  # noqa: A001  (JAX's name)
    """Applies a function to the leaves of trees of one structure. Raises TreeError where structures differ.

    >>> hl.tree.map(lambda x, y: x + y, {"a": 1, "b": [2, 3]}, {"a": 10, "b": [20, 30]})
    {'a': 11, 'b': [22, 33]}
    """
    given, first = flatten(tree, is_leaf)
    others = _flattened_like(first, tree, rest)
    return optree.tree_unflatten(first, [function(*leaves) for leaves in zip(given, *others, strict=True)])


def _flattened_like(structure_of_first, first, rest) -> list[list]:
    """The leaves of the other trees, flattened up to the structure of the first. Raises TreeError."""
    try:
        return [structure_of_first.flatten_up_to(t) for t in rest]
    except ValueError:
        raise TreeError(
            "map over several trees",
            "; ".join(written(structure(t)) for t in (first, *rest)),
            "pass trees of one structure",
        ) from None


_UNSET = object()


def reduce(function, tree, initializer=_UNSET, is_leaf=None):
    """Combines the leaves from left to right.

    >>> hl.tree.reduce(lambda total, x: total + x.size, {"w": hnp.ones((2, 3)), "b": hnp.ones(3)}, 0)
    9
    """
    if initializer is _UNSET:
        return optree.tree_reduce(function, tree, is_leaf=is_leaf, namespace=NAMESPACE)
    return optree.tree_reduce(function, tree, initializer, is_leaf=is_leaf, namespace=NAMESPACE)


def all(tree, is_leaf=None):  # noqa: A001  (JAX's name)
    """True when every leaf is true.

    >>> hl.tree.all({"a": True, "b": [True, False]})
    False
    """
    return optree.tree_all(tree, is_leaf=is_leaf, namespace=NAMESPACE)


def transpose(outer_treedef, inner_treedef, pytree_to_transpose):
    """A tree of structure `outer_treedef` of trees of structure `inner_treedef`, transposed. Raises TreeError.

    inner_treedef=None: the structure of the first inner tree.
    """
    outer, inner, tree = outer_treedef, inner_treedef, pytree_to_transpose
    if inner is None:
        inner = structure(outer.flatten_up_to(tree)[0])
    if structure(tree) != outer.compose(inner):
        raise TreeError(
            "transpose of a tree of trees",
            f"{written(structure(tree))}; outer {written(outer)}, inner {written(inner)}",
            "pass the structures of the tree and of its subtrees",
        )
    return optree.tree_transpose(outer, inner, tree)


def paths(tree):
    """The path of each leaf, a tuple of keys and indexes.

    >>> hl.tree.paths({"a": [1, 2]})
    [('a', 0), ('a', 1)]
    """
    return optree.tree_paths(tree, namespace=NAMESPACE)


def register(cls, to_children, from_children):
    """Registers a class: to_children(node) -> (children, metadata), from_children(metadata, children) -> node.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> hl.tree.register(Pair, lambda p: ((p.a, p.b), None), lambda metadata, children: Pair(*children))
    <class 'Pair'>
    >>> hl.tree.leaves(hl.tree.map(lambda x: 10 * x, Pair(1, 2)))
    [10, 20]
    """
    optree.register_pytree_node(cls, to_children, from_children, namespace=NAMESPACE)
    registered[cls] = (to_children, from_children)
    return cls


def static(**options):
    """A field of a dataclass that is part of the structure: `dataclasses.field` with the metadata static."""
    return dataclasses.field(**{**options, "metadata": {**options.get("metadata", {}), "static": True}})


_VALUES = re.compile(r"; (?!expected: |got: )\w+: ")  # of optree's messages: '; tuple: (array(...), ...)'


def broadcast(prefix_tree, full_tree, is_leaf=None):
    """prefix_tree with the structure of full_tree: each leaf at all leaves below it. Raises TreeError.

    >>> hl.tree.broadcast({"a": 0, "b": 1}, {"a": [5, 6], "b": 7})
    {'a': [0, 0], 'b': 1}
    """
    try:
        return optree.tree_broadcast_prefix(prefix_tree, full_tree, is_leaf, namespace=NAMESPACE)
    except ValueError as error:
        prefix, whole = written(structure(prefix_tree)), written(structure(full_tree))
        raise TreeError(
            "broadcast of a tree prefix",
            # Without the values, which may be large arrays.
            f"{prefix} is no prefix of {whole}: {_VALUES.split(str(error))[0]}",
            "pass a tree of the same structure, or with leaves in place of branches",
        ) from None


def reduce_associative(operation, tree, *, identity=_UNSET, is_leaf=None):
    """Combines the leaves pairwise; the operation must be associative. Raises TreeError without leaves.

    >>> hl.tree.reduce_associative(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
    6
    """
    level = leaves(tree, is_leaf)
    if not level:
        if identity is _UNSET:
            raise TreeError("reduction of a tree", "it has no leaves", "pass identity=")
        return identity
    while len(level) > 1:
        pairs = [operation(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


# --- keys and paths -----------------------------------------------------------------------------------------------


class _PathKey:
    """A key with one field, which its text shows."""

    _text = "[{!r}]"

    def __str__(self) -> str:
        return self._text.format(*asdict(self).values())


@record(frozen=True)
class DictKey(_PathKey):
    """The key of a child of a dictionary."""

    key: Any


@record(frozen=True)
class SequenceKey(_PathKey):
    """The position of a child of a list or tuple."""

    idx: int


@record(frozen=True)
class GetAttrKey(_PathKey):
    """The attribute of a child of a named tuple or a dataclass."""

    _text = ".{}"
    name: str


@record(frozen=True)
class FlattenedIndexKey(_PathKey):
    """The position of a child of a class registered without keys."""

    _text = "[<flat index {}>]"
    key: int


_KEYS: dict[type, Any] = {}


def register_keys(cls, keys) -> None:
    """keys(node): the keys of its children, in their order."""
    _KEYS[cls] = keys


def keystr(keys, *, simple: bool = False, separator: str = "") -> str:
    """A path as text: ['a'][0].name, or with simple=True a, 0 and name with the separator between them.

    >>> (path, leaf), *rest = hl.tree.leaves_with_path({"a": [7, 8]})
    >>> hl.tree.keystr(path), hl.tree.keystr(path, simple=True, separator="/")
    ("['a'][0]", 'a/0')
    """
    if not simple:
        return separator.join(str(key) for key in keys)
    names = [next((getattr(k, n) for n in ("key", "idx", "name") if hasattr(k, n)), k) for k in keys]
    return separator.join(str(name) for name in names)


def is_tree_node(cls: type) -> bool:
    """Whether instances of a class have children.

    >>> hl.tree.is_tree_node(dict), hl.tree.is_tree_node(float)
    (True, False)
    """
    known = optree.register_pytree_node.get(cls, namespace=NAMESPACE)
    return known is not None or optree.is_namedtuple_class(cls)


def flatten_one_level_with_keys(tree):
    """((key, child) pairs, metadata) of the root of a tree. Raises TreeError for a leaf."""
    cls = type(tree)
    if not is_tree_node(cls):
        raise TreeError("flatten_one_level of a tree", f"a leaf: {tree!r:.60}", "pass a node")
    children, metadata, entries, _ = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    children = list(children)
    if cls in _KEYS:
        keys = list(_KEYS[cls](tree))
    elif isinstance(tree, dict):
        keys = [DictKey(e) for e in entries]
    elif optree.is_namedtuple_class(cls):
        keys = [GetAttrKey(n) for n in cls._fields]
    elif isinstance(tree, (list, tuple)):
        keys = [SequenceKey(k) for k in range(len(children))]
    else:
        keys = [FlattenedIndexKey(k) for k in range(len(children))]
    return list(zip(keys, children, strict=True)), metadata


def leaves_with_path(tree, is_leaf=None, is_leaf_takes_path: bool = False) -> list[tuple[tuple, Any]]:
    """(path, leaf) of each leaf in order; a path is a tuple of keys (`DictKey`, `SequenceKey`, ...).

    >>> [(hl.tree.keystr(path), leaf) for path, leaf in hl.tree.leaves_with_path({"a": [1, 2]})]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    found = []

    def walk(node, path):
        stop = is_leaf is not None and (is_leaf(path, node) if is_leaf_takes_path else is_leaf(node))
        if stop or (not is_tree_node(type(node)) and node is not None):
            found.append((path, node))
        elif node is not None:
            for key, child in flatten_one_level_with_keys(node)[0]:
                walk(child, (*path, key))

    walk(tree, ())
    return found


def flatten_with_path(tree, is_leaf=None, is_leaf_takes_path: bool = False):
    """([(path, leaf), ...], structure)."""
    pairs = leaves_with_path(tree, is_leaf, is_leaf_takes_path)
    stops = iter([leaf for _, leaf in pairs])
    waiting = [next(stops, _UNSET)]

    def reached(node) -> bool:
        # The same leaves in the same order, known by identity.
        if node is not waiting[0]:
            return False
        waiting[0] = next(stops, _UNSET)
        return True

    return pairs, structure(tree, reached if is_leaf is not None else None)


def map_with_path(f, tree, *rest, is_leaf=None, is_leaf_takes_path: bool = False):
    """f(path, leaf, *other leaves) of the leaves of trees of one structure. Raises TreeError.

    >>> hl.tree.map_with_path(lambda path, x: hl.tree.keystr(path), {"a": [1, 2]})
    {'a': ["['a'][0]", "['a'][1]"]}
    """
    pairs, first = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = _flattened_like(first, tree, rest)
    mapped = [f(path, leaf, *more) for (path, leaf), *more in zip(pairs, *others, strict=True)]
    return unflatten(first, mapped)
