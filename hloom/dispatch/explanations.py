"""The explanation that `HLOOM_DEBUG=1` prints when a function is recompiled: each argument or setting that changed,
with its old and new value."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hloom.dispatch.signature import Key, Settings
from hloom.tracing.signatures import argument_names, parameter_names
from hloom.tree import pytrees as tree

_SHOWN = 3  # changes that are listed one by one


def changes(function: Callable, known: Iterable[Key], key: Key) -> str:
    """The differences between a key and the nearest known one, the first of equally near ones.

    'argument x: f32[128] → f32[96]'
    """
    return min((_changes(function, old, key) for old in known), key=lambda found: found[0])[1]


def _changes(function: Callable, old: Key, new: Key) -> tuple[int, str]:
    """The number of changes, and their descriptions."""
    before, after = _parts(function, old), _parts(function, new)
    found = [f"{n}: {v} → {after[n]}" for n, v in before.items() if n in after and after[n] != v]
    found += [f"{n}: {v} → missing" for n, v in before.items() if n not in after]
    found += [f"{n}: new, {v}" for n, v in after.items() if n not in before]
    if not found:
        found = [f"tree structure of the arguments: {tree.written(old.structure)} → {tree.written(new.structure)}"]
    listed = "; ".join(found[:_SHOWN])
    return len(found), listed + (f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _parts(function: Callable, key: Key) -> dict[str, str]:
    settings = zip(Settings._fields, key.settings, strict=True)
    return {
        **_arguments(function, key),
        **_statics(function, key),
        **{f"hl.config.{name}": repr(value) for name, value in settings},
    }


def _arguments(function: Callable, key: Key) -> dict[str, str]:
    """The type of each dynamic leaf by its name in the user's program."""
    static = {entry[0] for entry in key.statics if _is_static(entry) and isinstance(entry[0], int)}
    names = [f"argument {name}" for name in argument_names(function, key.structure, static)]
    return dict(zip(names, map(_described, key.leaves), strict=True))


def _described(leaf) -> str:
    shape, weak, place = leaf if isinstance(leaf, tuple) else (leaf, False, None)
    kind = "" if not weak else " (weak)" if shape.dims else " (a Python number)"
    return f"{shape!r}{kind}" + (f" on {place}" if place is not None else "")


def _is_static(entry) -> bool:
    """Whether it is a static value, its type and the value."""
    return isinstance(entry, tuple) and len(entry) == 3 and isinstance(entry[1], type)


def _statics(function: Callable, key: Key) -> dict[str, str]:
    """The static values by name, and the settings in effect around the call."""
    parameters = parameter_names(function)
    found = {}
    for entry in key.statics:
        if _is_static(entry):
            where, kind, value = entry
            name = parameters[where] if isinstance(where, int) and where < len(parameters) else where
            text = value if kind in (float, complex) else repr(value)
            found[f"static argument {name}"] = f"{text:.60}"
        else:
            found[_around(entry)] = f"{entry!s:.60}"
    return found


def _around(entry) -> str:
    if isinstance(entry, tuple):
        return "the layouts" if entry[:1] == ("untyped",) else "the named axes around the call"
    return "the device scope" if isinstance(entry, str) else "the mesh"
