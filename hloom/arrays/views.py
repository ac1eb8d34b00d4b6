"""Views of arrays, with NumPy's meaning of writes to them (`hl.config.item_assignment`).

Arrays do not share memory: a write gives an array new memory, so that traces and other libraries keep what they saw. A
view records the array that it is a part of; a write to a view is a write to that array, after which all its live views
are recomputed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from hloom.ir.process.living import Living


class Viewed(Protocol):
    """An array that views are of, or that is one: `hloom.arrays.array.Array`. Most arrays never have the two links."""

    _data: Any
    _link: Link
    _views: Any  # a `Living` of links

    @property
    def shape(self) -> tuple[int, ...]: ...

    def _value(self) -> np.ndarray:
        """Its data in the host's memory."""


class Link:
    """The origin of a view: `root`, and the functions of NumPy arrays that derive the view's data from the root's."""

    __slots__ = ("__weakref__", "chain", "root", "view")

    def __init__(self, root: Viewed, chain: tuple[Callable, ...], view: Viewed):
        self.root, self.chain, self.view = root, chain, weakref.ref(view)

    def part(self, data: np.ndarray) -> np.ndarray:
        return taken(data, self.chain)


def taken(data: np.ndarray, chain: tuple[Callable, ...]) -> np.ndarray:
    for part in chain:
        data = part(data)
    return data


def origin(x: Viewed) -> tuple[Viewed, tuple[Callable, ...]]:
    """(the array that x is a part of, how it is derived); x itself if it is not a view."""
    link: Any = getattr(x, "_link", None)
    return (x, ()) if link is None else (link.root, link.chain)


def join(view: Viewed, root: Viewed, chain: tuple[Callable, ...]) -> None:
    """Makes an array a view of another one."""
    view._link = Link(root, chain, view)
    links = getattr(root, "_views", None)
    if links is None:
        links = root._views = Living()
    links.add(view._link)


def write(x: Viewed, value: np.ndarray) -> None:
    """Writes these elements to an array, its root and the root's other views."""
    root, chain = origin(x)
    if chain:
        data = np.array(root._value())
        taken(data, chain)[...] = value
        root._data = data
    else:
        root._data = value
    for link in getattr(root, "_views", None) or ():
        view = link.view()
        if view is not None:
            view._data = np.ascontiguousarray(link.part(root._value())).reshape(view.shape)
