"""Arithmetic of the kernel language on what is known of numbers (`facts`).

What might not fit into its type is a new symbol of which nothing but the type is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.affine.facts import Facts, Symbol
from hloom.compiler.kernel_ir.affine.sums import Affine, multiple
from hloom.compiler.kernel_ir.nodes import Var
from hloom.compiler.kernel_ir.types import BITS, is_integer, is_pointer
from hloom.ir.records import record

__all__ = ["Arithmetic", "Truth", "Value", "limits"]

ADDRESSES = 1 << 56  # no address of a process is as large

# A fact: (whether it says that a sum is at least 0, or else that it is not 0; the sum).
Fact = tuple[bool, Affine]


@record(frozen=True)
class Truth:
    """A pred. yes, no: what holds where it is true, and where it is false. known: its value, where that is known."""

    yes: tuple[Fact, ...] = ()
    no: tuple[Fact, ...] = ()
    known: bool | None = None


Value = Affine | Truth | None


def limits(kind: str) -> tuple[int, int]:
    """The least and the greatest integer of a type; of a pointer, addresses."""
    if is_pointer(kind):
        return 0, ADDRESSES
    bits = BITS[kind]
    return (0, (1 << bits) - 1) if kind[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _number(value: int) -> Affine:
    return Affine(value)


class Arithmetic:
    """What expressions make of values. environment: the value of each variable; one that is missing has any."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.environment: dict[Var, Value] = {}

    # --- values of which little is known

    def unknown(self, name: str, kind: str, lo: int | None = None, hi: int | None = None) -> Value:
        """Any value of a type. lo, hi: where more is known of it."""
        if kind == "pred":
            return Truth()
        if not (is_integer(kind) or is_pointer(kind)):
            return None
        least, most = limits(kind)
        made = self.facts.symbol(name, least if lo is None else lo, most if hi is None else hi)
        return multiple(made)

    def base(self, name: str, nbytes: Affine | None) -> Affine:
        """The address of an array of so many bytes; None: nobody knows."""
        made = self.facts.symbol(name, 1, ADDRESSES)
        made.is_base = made.points = True
        made.region = nbytes
        return multiple(made)

    def fitting(self, value: Affine, kind: str) -> Affine:
        """A result, where it surely fits into its type."""
        least, most = limits(kind)
        lo = hi = value.constant
        for symbol, factor in value.terms.items():
            lo += factor * (symbol.lo if factor > 0 else symbol.hi)
            hi += factor * (symbol.hi if factor > 0 else symbol.lo)
        if (lo >= least or self.facts.is_at_least(value, least)) and (hi <= most or self.facts.is_at_most(value, most)):
            return value
        return multiple(self.facts.symbol("any", least, most))

    # --- preds

    def truth(self, value: Value) -> Truth:
        """A value as a pred."""
        if isinstance(value, Truth):
            return value
        if isinstance(value, Affine):
            return self.compared("!=", value, _number(0), set())
        return Truth()

    def number(self, value: Value) -> Affine:
        """A value as an integer."""
        if isinstance(value, Affine):
            return value
        if isinstance(value, Truth):
            known = self.decided(value)
            if known is not None:
                return _number(int(known))
            made = self.facts.symbol("pred", 0, 1)
            made.implied = tuple([fact for at_least, fact in value.yes if at_least])
            return multiple(made)
        return multiple(self.facts.symbol("any", *limits("s64")))

    def decided(self, test: Truth) -> bool | None:
        if test.known is not None:
            return test.known
        if any([self._is_false(fact) for fact in test.yes]):
            return False
        if any([self._is_false(fact) for fact in test.no]):
            return True
        return None

    def _is_false(self, fact: Fact) -> bool:
        at_least, value = fact
        return self.facts.is_at_most(value, -1) if at_least else value.number == 0

    def assume(self, given: Sequence[Fact]) -> bool:
        """From here on these facts hold. False where they cannot."""
        for at_least, value in given:
            if not (self.facts.assume(value) if at_least else self.facts.assume_differs(value)):
                return False
        return True

    def combined(self, op: str, tests: Sequence[Truth]) -> Truth:
        """`and`, `or` and `xor` of preds."""
        known = [self.decided(test) for test in tests]
        if op == "^":
            return Truth(known=None if None in known else known[0] != known[1])
        if op == "|":
            made = self.combined("&", [Truth(t.no, t.yes, None if t.known is None else not t.known) for t in tests])
            return Truth(made.no, made.yes, None if made.known is None else not made.known)
        if False in known:
            return Truth(known=False)
        if None not in known:
            return Truth(known=True)
        open_ones = [test for test, value in zip(tests, known, strict=True) if value is None]
        facts = tuple([fact for test in tests for fact in test.yes])
        return Truth(facts, open_ones[0].no if len(open_ones) == 1 else ())

    def compared(self, op: str, left: Value, right: Value, kinds: set[str]) -> Truth:
        if isinstance(left, Truth) and isinstance(right, Truth):
            return Truth()
        if left is None or right is None or any([k[0] not in "su*p" for k in kinds]):
            return Truth()
        a, b = self.number(left), self.number(right)
        if "u64" in kinds and len(kinds) > 1 and not (self.facts.is_at_least(a) and self.facts.is_at_least(b)):
            return Truth()
        if op in (">", ">="):
            a, b, op = b, a, "<" if op == ">" else "<="
        if op in ("==", "!="):
            equal, differs = ((True, a - b), (True, b - a)), ((False, a - b),)
            made = Truth(equal, differs) if op == "==" else Truth(differs, equal)
            if self.facts.is_at_least(a - b, 1) or self.facts.is_at_most(a - b, -1):
                return Truth(known=op == "!=")
            return Truth(known=op == "==") if (a - b).number == 0 else made
        yes, no = (b - a - 1, a - b) if op == "<" else (b - a, a - b - 1)
        made = Truth(((True, yes),), ((True, no),))
        return Truth(made.yes, made.no, self.decided(made))

    # --- integers

    def unary(self, kind: str, op: str, value: Value) -> Value:
        if op == "not":
            test = self.truth(value)
            return Truth(test.no, test.yes, None if test.known is None else not test.known)
        if kind == "pred":
            return Truth()
        if not is_integer(kind):
            return None
        number = self.number(value)
        if op == "-":
            return self.fitting(-number, kind)
        return self.fitting(-number - 1, kind) if op == "~" and kind[0] == "s" else self.unknown("any", kind)

    def cast(self, kind: str, value: Value) -> Value:
        if not is_integer(kind):
            return None
        return self.unknown("cast", kind) if value is None else self.fitting(self.number(value), kind)

    def binary(self, kind: str, op: str, left: Affine, right: Affine) -> Value:
        facts = self.facts
        match op:
            case "+":
                return self.fitting(left + right, kind)
            case "-":
                return self.fitting(left - right, kind)
            case "*":
                return self.fitting(facts.product(left, right), kind)
            case "//":
                made = facts.quotient(left, right)
                return self.unknown("quotient", kind) if made is None else self.fitting(made, kind)
            case "%":
                return self._remainder(kind, left, right)
            case "&":
                return self._masked(kind, left, right)
            case "<<" if right.number is not None and 0 <= right.number < 63:
                return self.fitting(left * (1 << right.number), kind)
            case ">>" if right.number is not None and 0 <= right.number < 63:
                made = facts.quotient(left, _number(1 << right.number))
                return self.unknown("shift", kind) if made is None else made
            case "|" | "^" if facts.is_at_least(left) and facts.is_at_least(right):
                most = max(facts.sup(left), facts.sup(right))
                return self.unknown("bits", kind, 0, min((1 << most.bit_length()) - 1, limits(kind)[1]))
        return self.unknown("any", kind)

    def _remainder(self, kind: str, left: Affine, right: Affine) -> Value:
        by = right.number
        if by is not None and by >= 1:
            made = self.facts.quotient(left, right)
            assert made is not None
            return left - made * by
        least, most = self.facts.interval(right)
        if least < 1:
            return self.unknown("remainder", kind)
        found = self.facts.symbol("remainder", 0, most - 1, (), [((right - 1,), 1)])
        if self.facts.is_at_least(left):
            found.uppers.append(((left,), 1))
            found.hi = min(found.hi, self.facts.sup(left))
        return multiple(found)

    def _masked(self, kind: str, left: Affine, right: Affine) -> Value:
        if left.number is not None:
            left, right = right, left
        mask = right.number
        if mask is not None and mask >= 0 and mask & (mask + 1) == 0:
            return self._remainder(kind, left, _number(mask + 1))
        if mask is not None and mask < 0 and -mask & (-mask - 1) == 0:
            rest = self._remainder(kind, left, _number(-mask))
            return self.fitting(left - rest, kind) if isinstance(rest, Affine) else rest
        tops = [self.facts.sup(value) for value in (left, right) if self.facts.is_at_least(value)]
        return self.unknown("bits", kind, 0, min(tops)) if tops else self.unknown("bits", kind)

    def call(self, kind: str, name: str, arguments: list[Value]) -> Value:
        numbers = [value for value in arguments if isinstance(value, Affine)]
        stem = name.partition("_")[0]
        if name == "address" and numbers:
            return numbers[0]
        if name == "quotient" and len(arguments) == 2:
            left, right = (self.number(value) for value in arguments)
            made = self.facts.quotient(left, right) if self.facts.is_at_least(left) else None
            return self.unknown("quotient", kind) if made is None else made
        if name == "select" and is_integer(kind):
            return self._selected(kind, *arguments)
        if is_integer(kind) and len(arguments) >= 2:
            all_numbers = [self.number(value) for value in arguments]
            if stem in ("min", "accmin") and name in ("min", f"{stem}_{kind}"):
                return self.facts.minimum(all_numbers)
            if stem in ("max", "accmax") and name in ("max", f"{stem}_{kind}"):
                return self.facts.maximum(all_numbers)
            if name == f"sum_{kind}":
                return self.fitting(all_numbers[0] + all_numbers[1], kind)
        return self.unknown(stem, kind)

    def _selected(self, kind: str, test: Value, yes: Value, no: Value) -> Value:
        chosen = self.truth(test)
        values = [self.number(yes), self.fitting(self.number(no), kind)]
        known = self.decided(chosen)
        if known is not None:
            return values[0 if known else 1]
        bounds = []
        for given, value in zip((chosen.yes, chosen.no), values, strict=True):
            mark = self.facts.mark()
            if self.assume(given):
                bounds.append(self.facts.interval(value))
            self.facts.undo(mark)
        if not bounds:
            return self.unknown("choice", kind)
        return self.facts.one_of("choice", values, min([b[0] for b in bounds]), max([b[1] for b in bounds]))

    @staticmethod
    def base_of(value: Affine) -> tuple[Symbol, Affine] | None:
        """The address of an array that another address is made from, and its distance; None for other numbers."""
        bases = [symbol for symbol in value.terms if symbol.points]
        if len(bases) != 1 or value.terms[bases[0]] != 1:
            return None
        return bases[0], value.without(bases[0])
