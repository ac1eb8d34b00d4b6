"""Conversion of sizes and their comparisons to run-time numbers (`hloom.ir.sizes.numbers`)."""

from __future__ import annotations

from hloom.ir.sizes.expressions import Comparison, Size, SizeExpression
from hloom.ir.sizes.numbers import Nodes, Number, higher_of, lower_of
from hloom.ir.sizes.terms import Atom, Extremum, Quotient, Symbol, Terms

__all__ = ["holds", "number_of"]


def number_of(nodes: Nodes, size: Size) -> Number:
    """The number of a size. The given nodes are the sizes of its dimensions, by name."""
    return _terms(nodes, size.terms) if isinstance(size, SizeExpression) else size


def holds(nodes: Nodes, comparison: Comparison) -> Number:
    """1 if a comparison of sizes holds, else 0."""
    left, right = number_of(nodes, comparison.left), number_of(nodes, comparison.right)
    how = comparison.how
    if how in ("==", "!="):
        same = nodes.equal(left, right)
        return same if how == "==" else 1 - same
    if how in (">=", ">"):
        left, right, how = right, left, how.replace(">", "<")
    return nodes.at_most(left, right) if how == "<=" else 1 - nodes.at_most(right, left)


def _terms(nodes: Nodes, terms: Terms) -> Number:
    total: Number = 0
    for monomial, factor in terms:
        product: Number = factor
        for atom in monomial:
            product = product * _atom(nodes, atom)
        total = total + product
    return total


def _atom(nodes: Nodes, atom: Atom) -> Number:
    if isinstance(atom, Symbol):
        return nodes.given(atom.name) // atom.multiple
    if isinstance(atom, Quotient):
        return nodes.quotient(_terms(nodes, atom.numerator), _terms(nodes, atom.divisor))
    assert isinstance(atom, Extremum)
    found, *parts = [_terms(nodes, part) for part in atom.operands]
    for part in parts:
        found = lower_of(found, part) if atom.kind == "min" else higher_of(found, part)
    return found
