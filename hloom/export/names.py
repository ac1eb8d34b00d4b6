"""Names and other text as C, in literals, comments and identifiers that hold any text as data, in C11 and C++, with or
without trigraphs; and the trees of arguments and results as data.

Everything that writes C takes names from here. The escapes of JSON or Python are not those of C: C11 reads `??/` as a
backslash, a backslash at the end of a line joins it with the next one, and `*/` ends a comment.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import Any

from hloom.errors import ExportError
from hloom.tree import pytrees as tree

__all__ = [
    "c_comment", "c_string", "checked_name", "described_tree", "identifier", "identifiers", "output_names",
    "parameters", "words",
]  # fmt: skip

LONGEST = 100  # characters of an identifier
# A question mark may begin a trigraph, a percent sign a digraph or a format: both are written as numeric escapes.
_PLAIN = frozenset(string.ascii_letters + string.digits + " !#&'()*+,-./:;<=>@[]^_`{|}~$")
_IN_COMMENTS = _PLAIN | {'"'}
# Keywords of C11 and C++20, and the names that a library's header declares.
WORDS = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class "
    "compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype "
    "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline "
    "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq program int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t".split()
)
# Macros in lower case, of C's headers and of compilers for Linux, Windows and macOS.
_MACROS = frozenset(
    "assert complex errno far huge i386 imaginary interface isfinite isinf isnan isnormal linux major makedev max min "
    "minor near noreturn offsetof setjmp signbit small stderr stdin stdout thrd_local unix va_arg va_copy va_end "
    "va_start".split()
)  # fmt: skip


def c_string(text: str) -> str:
    """A literal with the bytes of the text in UTF-8. Raises ValueError for a NUL, which would end it."""
    if "\0" in text:
        raise ValueError(f"a string of C cannot hold the NUL in {text[:80]!r}")
    data = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(b) if chr(b) in _PLAIN else f"\\{b:03o}" for b in data) + '"'


def c_comment(text: str) -> str:
    """The text for the inside of a comment: characters that could end the comment or join its lines are written as
    <U+...>."""
    made = "".join(c if c in _IN_COMMENTS else f"<U+{ord(c):04X}>" for c in text)
    return made.replace("*/", "* /").replace("/*", "/ *")


def identifier(name: str) -> str:
    """The name as an identifier of C: letters, digits and underscores of ASCII, at most `LONGEST`; no word of the
    language."""
    return identifiers([name])[0]


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names as identifiers of C, each once, and none of those that are taken."""
    used = set(taken) | WORDS
    next_number: Counter[str] = Counter()
    found = []
    for name in names:
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:LONGEST].strip("_") or "value"
        base = f"x{base}" if base[0].isdigit() else base
        made = base
        while made in used:
            next_number[base] += 1
            made = f"{base}_{next_number[base] + 1}"
        used.add(made)
        found.append(made)
    return found


def parameters(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Identifiers as parameters of a function: each once, and none that a header may define as a macro. Macros of
    headers are in upper case, but for a few."""
    made = [identifier(name) for name in names]
    return identifiers([f"{n}_arg" if n in _MACROS or (len(n) > 1 and n.isupper()) else n for n in made], taken)


def words(text: str) -> frozenset[str]:
    """The identifiers of a C text, those in its comments and strings among them."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", text, re.ASCII))


OWN = frozenset("create destroy run error library output_shape read_state write_state save_state load_state".split())


def checked_name(name: str, what: str) -> str:
    """The name of a library or function. Raises ExportError if C does not accept it."""
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
            "the library itself has a function of this name",
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
