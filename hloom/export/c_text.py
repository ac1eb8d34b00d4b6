"""Text as C: literals, comments and identifiers that hold any name as data, in C11 and C++, with or without trigraphs.

Everything that writes C takes names from here. The escapes of JSON or Python are not those of C: C11 reads `??/` as a
backslash, a backslash at the end of a line joins it with the next one, and `*/` ends a comment.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

__all__ = ["c_comment", "c_string", "identifier", "identifiers", "parameters", "words"]

LONGEST = 100  # characters of an identifier
# A question mark may begin a trigraph, a percent sign a digraph or a format: both are written by their numbers.
_PLAIN = frozenset(string.ascii_letters + string.digits + " !#&'()*+,-./:;<=>@[]^_`{|}~$")
_IN_COMMENTS = _PLAIN | {'"'}
# Words of C11 and C++20, and what the header of a library declares itself.
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
    """The text for the inside of a comment: what could end the comment or join its lines is written as <U+...>."""
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
