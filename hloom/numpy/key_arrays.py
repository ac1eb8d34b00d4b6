"""Data movement functions for arrays of random keys: each word of the keys is moved alike."""

from __future__ import annotations

import functools

from hloom.arrays.keys import KeyArray
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree


def takes_keys(function):
    """The function, extended to key arrays (`hl.random.key`) among its arguments."""

    @functools.wraps(function)
    def moved(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception:  # keys are looked for only after an error, so calls without keys have no overhead
            result = _moved(function, args, kwargs)
            if result is None:
                raise
        return result

    return moved


def _moved(function, args, kwargs):
    """The result if some argument is a key array; None otherwise."""
    leaves, structure = tree.flatten((args, kwargs), is_leaf=lambda x: isinstance(x, KeyArray))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, KeyArray)]
    if not places:
        return None
    implementations = {leaves[k]._implementation for k in places}
    if len(implementations) != 1:
        return None

    def on_words(*words):
        given = list(leaves)
        for place, word in zip(places, words, strict=True):
            given[place] = word
        positional, named = tree.unflatten(structure, given)
        return function(*positional, **named)

    result = vmap(on_words, in_axes=-1, out_axes=-1)(*[leaves[k]._data for k in places])
    (implementation,) = implementations
    return tree.map(lambda data: KeyArray(data, implementation), result)
