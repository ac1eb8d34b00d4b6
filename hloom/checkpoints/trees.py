"""Trees as named leaves, and as JSON that restores dicts, lists, tuples and numbers without the program's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.keys import KeyArray
from hloom.errors import CheckpointError
from hloom.ir.types import HLO_NAME, Shape
from hloom.tree import pytrees as tree

NUMBERS = (bool, int, float, str)  # stored in JSON directly


def named_leaves(value: Any, what: str) -> dict[str, Any]:
    """The leaves by their paths, such as `params/layers/0/kernel`. None is not a leaf. Raises CheckpointError for two
    leaves of one name."""
    found: dict[str, Any] = {}
    for path, leaf in tree.leaves_with_path(value, is_keys):
        name = tree.keystr(path, simple=True, separator="/") or "value"
        if name in found:
            raise CheckpointError(
                f"{what}: one name for each leaf",
                f"two leaves are {name!r}",
                "use keys without '/', all strings or all numbers",
            )
        found[name] = leaf
    return found


def is_keys(value) -> bool:
    """Whether random keys are saved as such: for trees they are nodes of their words."""
    return isinstance(value, KeyArray)


def is_array(leaf) -> bool:
    return isinstance(leaf, (Array, np.ndarray, np.generic, KeyArray))


def encoded_leaf(leaf, name: str) -> Any:
    """The JSON of a non-array leaf. Raises CheckpointError for other objects."""
    if isinstance(leaf, complex):
        return {"complex": [leaf.real, leaf.imag]}
    if isinstance(leaf, NUMBERS):
        return leaf
    raise CheckpointError(
        f"a checkpoint of arrays, keys, numbers and texts: {name}",
        f"{type(leaf).__name__}: {leaf!r:.60}",
        "leave it out of the tree, or make its class a tree node (hl.tree.register)",
    )


def decoded_leaf(value) -> Any:
    return complex(*value["complex"]) if isinstance(value, dict) else value


def structure_of(value: Any, names: Iterable[str]) -> Any:
    """The containers of a tree as JSON, with the names of leaves in their order; user-defined classes remain unknown
    (restoring them needs `like`)."""
    return _structure(value, iter(names))


def _structure(value, names) -> Any:
    if value is None:
        return {"none": True}
    if type(value) is dict and all(type(k) in (str, int) for k in value):
        children = tree.flatten_one_level_with_keys(value)[0]
        return {"dict": [[key.key, _structure(child, names)] for key, child in children]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_structure(child, names) for child in value]}
    if tree.is_tree_node(type(value)) and not is_keys(value):
        children = tree.flatten_one_level_with_keys(value)[0]
        return {"class": type(value).__qualname__, "children": [_structure(child, names) for _, child in children]}
    return {"leaf": next(names)}


def built(structure: Any, leaves: Mapping[str, Any], what: str) -> Any:
    """The tree of a structure and leaves by name. Raises CheckpointError if it has classes of programs."""
    ((kind, inner),) = structure.items() if len(structure) == 1 else (("class", structure["class"]),)
    if kind == "none":
        return None
    if kind == "leaf":
        return leaves[inner]
    if kind == "dict":
        return {key: built(child, leaves, what) for key, child in inner}
    if kind in ("list", "tuple"):
        children = [built(child, leaves, what) for child in inner]
        return children if kind == "list" else tuple(children)
    raise CheckpointError(
        f"{what} without like=",
        f"it has a {inner}, whose class the file does not name",
        "pass like=, a tree of the same structure",
    )


def described(leaf) -> str:
    """A leaf as errors show it: f32[3,4], key<fry>[2], int."""
    if isinstance(leaf, KeyArray):
        return f"{leaf.dtype.name}{list(leaf.shape)}".replace(" ", "")
    shape = getattr(leaf, "_shape", None)
    if shape is None and isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype in HLO_NAME:
        shape = Shape(leaf.dtype, leaf.shape)
    return repr(shape) if shape is not None else type(leaf).__name__


__all__ = ["built", "decoded_leaf", "described", "encoded_leaf", "is_array", "is_keys", "named_leaves", "structure_of"]
