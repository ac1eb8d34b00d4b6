"""Names that C accepts, and the trees of arguments and results as data."""

from __future__ import annotations

import re
from typing import Any

from hloom.errors import ExportError
from hloom.export.c_text import LONGEST, WORDS
from hloom.tree import pytrees as tree

__all__ = ["checked_name", "described_tree", "output_names"]

OWN = frozenset("create destroy run error library output_shape read_state write_state save_state load_state".split())


def checked_name(name: str, what: str) -> str:
    """The name of a library or function. Raises ExportError where C does not accept it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or len(name) > LONGEST or name in WORDS:
        raise ExportError(
            f"export: the name of {what} is {name!r}",
            f"C accepts letters, digits and underscores, at most {LONGEST}, beginning with a letter, and no word of "
            "the language",
            "pass another name: hl.export({'predict': f}, ..., name='model')",
        )
    if what == "the library" and name.lower() == "hloom":
        raise ExportError(
            f"export: the name of the library is {name!r}",
            "its header would replace hloom.h, which all libraries share",
            "pass another name: hl.export(f, ..., name='model')",
        )
    if what == "a function" and (name in OWN or re.fullmatch(r"constant_\d+", name)):
        raise ExportError(
            f"export: a function has the name {name!r}",
            "the library has a function of its own with this name",
            f"pass another name: hl.export({{'{name}_step': f}}, ...)",
        )
    return name


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
            made = {str(key): described_tree(value[key]) for key in value}
            if len(made) < len(value):
                raise ExportError(
                    f"export of a dictionary with {len(value)} keys",
                    f"some are equal as text: {list(value)!r:.200}",
                    "use keys whose texts differ",
                )
            return {"dict": made}
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
