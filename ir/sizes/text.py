"""Printing of sizes: `2*n + 1`, `n//2`, `(n + 3) % 4`, `min(n, 5)`. `hloom.ir.sizes.reading` parses them."""

from __future__ import annotations

from hloom.ir.sizes import terms as t
from hloom.ir.sizes.terms import Atom, Extremum, Monomial, Quotient, Symbol, Terms

__all__ = ["written"]


class _Word(str):
    """A factor of a term: a name, a call, or a quotient, which is parenthesized next to others."""

    __slots__ = ("is_quotient",)
    is_quotient: bool

    def __new__(cls, text: str, is_quotient: bool = False) -> _Word:
        made = super().__new__(cls, text)
        made.is_quotient = is_quotient
        return made


def written(terms: Terms) -> str:
    """The text of a polynomial."""
    parts: list[tuple[list[_Word], int]] = []
    rest = terms
    while (found := _remainder(rest)) is not None:
        word, factor, rest = found
        parts.append(([word], factor))
    parts += [_term(monomial, factor) for monomial, factor in rest]
    if len(parts) == 1 and len(parts[0][0]) == 1 and parts[0][1] == 1:
        return str(parts[0][0][0])
    text = ""
    for words, factor in parts:
        shown = [f"({word})" if word.is_quotient else word for word in words]
        number = [str(abs(factor))] if abs(factor) != 1 or not words else []
        sign = "-" if factor < 0 else "+"
        text += (f" {sign} " if text else sign.strip("+")) + "*".join([*number, *shown])
    return text or "0"


def _term(monomial: Monomial, factor: int) -> tuple[list[_Word], int]:
    words = []
    for atom in monomial:
        if isinstance(atom, Symbol) and factor % atom.multiple == 0:
            factor //= atom.multiple  # the symbol of a dimension that is a multiple of 8 is an eighth of it
            words.append(_Word(atom.name))
        else:
            words.append(_atom(atom))
    return words, factor


def _atom(atom: Atom) -> _Word:
    if isinstance(atom, Symbol):
        return _Word(f"{atom.name}//{atom.multiple}", True)
    if isinstance(atom, Extremum):
        return _Word(f"{atom.kind}({', '.join(map(written, atom.operands))})")
    divisor, monomial = t.value_of(atom.divisor), atom.numerator[0][0]
    if divisor and len(atom.numerator) == len(monomial) == 1 and isinstance(monomial[0], Symbol):
        if atom.numerator[0][1] == 1:
            return _Word(f"{monomial[0].name}//{monomial[0].multiple * divisor}", True)
    return _Word(f"{_operand(atom.numerator)}//{_operand(atom.divisor)}", True)


def _operand(terms: Terms) -> str:
    text = written(terms)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _remainder(terms: Terms) -> tuple[_Word, int, Terms] | None:
    """(a % b, its factor, the other terms) if a polynomial contains k*(a - b*(a//b))."""
    for monomial, factor in terms:
        if len(monomial) != 1 or not isinstance(atom := monomial[0], Quotient):
            continue
        divisor = t.value_of(atom.divisor)
        if not divisor or factor % divisor:
            continue
        times = -factor // divisor
        part = t.scaled(t.minus(atom.numerator, t.scaled(t.of(atom), divisor)), times)
        rest = t.minus(terms, part)
        if len(rest) <= len(terms) - len(part):
            return _Word(f"{_operand(atom.numerator)} % {divisor}", True), times, rest
    return None
