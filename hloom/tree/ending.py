"""Trees when Python ends: optree forgets all classes then, but functions of `atexit` that run later use trees too.

Functions of `atexit` run in the reverse order of their registration, so this module is imported before optree.
"""

from __future__ import annotations

import atexit
import contextlib
from collections import OrderedDict, defaultdict

registered: dict[type, tuple] = {}  # class -> (to_children, from_children)
NAMESPACE = "hloom"


def _of_items(cls):
    """Functions for a kind of dictionary, whose keys are its metadata; sorted, unless it is about their order."""

    def to_children(node):
        keys = list(node)
        if cls is not OrderedDict:
            with contextlib.suppress(TypeError):  # keys that have no order
                keys.sort()
        return [node[key] for key in keys], (keys, getattr(node, "default_factory", None))

    def from_children(metadata, children):
        items = dict(zip(metadata[0], children, strict=True))
        return defaultdict(metadata[1], items) if cls is defaultdict else cls(items)

    return to_children, from_children


_BUILT_IN: dict[type, tuple] = {
    tuple: (lambda node: (node, None), lambda _, children: tuple(children)),
    list: (lambda node: (node, None), lambda _, children: list(children)),
    type(None): (lambda node: ((), None), lambda _, children: None),
    **{cls: _of_items(cls) for cls in (dict, OrderedDict, defaultdict)},
}


@atexit.register
def _register_again() -> None:
    import optree  # later than this module: see above

    for cls, functions in {**_BUILT_IN, **registered}.items():
        with contextlib.suppress(ValueError):  # the program had imported optree before hloom: it forgets them later
            optree.register_pytree_node(cls, *functions, namespace=NAMESPACE)
