"""Repairs that depend on the text of the user's line."""

from __future__ import annotations

import re

from hloom.ir.source import current_source


def _line() -> str:
    """The user's line without strings and comments."""
    source = current_source()
    return re.sub(r"""#.*|"[^"]*"|'[^']*'""", "", source.code()) if source else ""


def of_truth_value(otherwise: str) -> str:
    """The repair where an array is used as a Python bool."""
    word = re.search(r"\b(and|or|not)\b", _line())
    if word is None:
        return otherwise
    symbol = {"and": "a & b", "or": "a | b", "not": "~a"}[word[1]]
    return f"write {symbol} instead of `{word[1]}`, with comparisons in parentheses: (x > 0) & (x < 1)"


def of_index(otherwise: str) -> str:
    """The repair where a traced number is used as a Python integer."""
    if re.search(r"\brange\(", _line()):
        return "use lax.fori_loop(0, n, body, init), or mark the number as static (static_argnums) to unroll the loop"
    return otherwise


__all__ = ["of_index", "of_truth_value"]
