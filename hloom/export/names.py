"""Names that C accepts, and the trees of arguments and results as data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hloom.errors import ExportError
from hloom.tree import pytrees as tree

__all__ = ["checked_name", "described_tree", "output_names", "unique"]

# Words of C11 and C++20, and what the header of a library declares itself.
_WORDS = frozenset(
    "alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do "
    "double else enum explicit export extern false float for friend goto if inline int long mutable namespace new not "
    "nullptr operator or private protected public register requires restrict return short signed sizeof static struct "
    "switch template this throw true try typedef typeid typename union unsigned using virtual void volatile while xor "
    "program int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t".split()
)
OWN = frozenset("create destroy run error library output_shape read_state write_state save_state load_state".split())


def checked_name(name: str, what: str) -> str:
    """The name of a library or function. Raises ExportError where C does not accept it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name) or name in _WORDS:
        raise ExportError(
            f"export: the name of {what} is {name!r}",
            "C accepts letters, digits and underscores, beginning with a letter, and no word of the language",
            "pass another name: hl.export({'predict': f}, ..., name='model')",
        )
    if what == "a function" and name in OWN:
        raise ExportError(
            f"export: a function has the name {name!r}",
            "the library has a function of its own with this name",
            f"pass another name: hl.export({{'{name}_step': f}}, ...)",
        )
    return name


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names as identifiers of C, each once."""
    used = set(taken) | _WORDS
    found = []
    for name in names:
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
        base = f"x{base}" if base[0].isdigit() else base
        made, number = base, 2
        while made in used:
            made, number = f"{base}_{number}", number + 1
        used.add(made)
        found.append(made)
    return found


def output_names(structure: Any, count: int) -> list[str]:
    """A name for each leaf of a result, from its path: keys of dictionaries and fields; "out0" for the first of a
    tuple, "result" for a single one."""
    marked = tree.unflatten(structure, list(range(count)))
    names = [""] * count
    for (path, leaf), _ in zip(tree.leaves_with_path(marked), range(count), strict=True):
        parts = [_part(key) for key in path]
        names[leaf] = "_".join(f"out{p}" if p.isdigit() and k == 0 else p for k, p in enumerate(parts)) or "result"
    return names


def _part(key: Any) -> str:
    for field in ("key", "idx", "name"):
        if hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


def described_tree(value: Any) -> Any:
    """A tree as JSON: {"dict": {key: tree}}, {"tuple": [...]}, {"list": [...]}, null, and the number of a leaf. Other
    containers become dicts of their fields or tuples of their children."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, dict):
            return {"dict": {str(key): described_tree(value[key]) for key in value}}
        if isinstance(value, list):
            return {"list": [described_tree(one) for one in value]}
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return {"tuple": [described_tree(one) for one in value]}
        children, _ = tree.flatten_one_level_with_keys(value)
        pairs = [(_part(key), described_tree(child)) for key, child in children]
        if all(not key.isdigit() for key, _ in pairs):
            return {"dict": dict(pairs)}
        return {"tuple": [child for _, child in pairs]}
    return value
