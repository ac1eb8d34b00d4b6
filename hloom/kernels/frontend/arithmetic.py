"""Arithmetic of numbers: NumPy's promotion, the op table's expressions for one element, ranges of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from hloom.compiler.kernel_ir.nodes import Assign, Binary, Call, Cast, Choice, Const, Expr, Stmt, Unary, Var
from hloom.compiler.kernel_ir.of_ops import expression
from hloom.compiler.kernel_ir.reader import KernelSyntaxError
from hloom.errors import DTypeError, HloomError
from hloom.ir.source import Source
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, PRED, compute_dtype, default_dtype, promote
from hloom.kernels.frontend import ranges
from hloom.kernels.frontend.values import S64, UNKNOWN, Number, integer
from hloom.kernels.programs import Names

__all__ = ["COMPARISONS", "Arithmetic", "register"]

COMPARISONS = {"<": "LT", "<=": "LE", ">": "GT", ">=": "GE", "==": "EQ", "!=": "NE"}
_OPCODES = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "&": "and", "|": "or", "^": "xor",
            "<<": "shift-left", ">>": "shift-right-arithmetic", "**": "power", "max": "maximum",
            "min": "minimum"}  # fmt: skip
_KNOWN: dict[str, Callable] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "/": lambda a, b: a / b, "**": lambda a, b: a**b, "min": min, "max": max,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip
_F64 = DTYPES["f64"]


def register(dtype: np.dtype) -> str:
    """The type of a number of a dtype in a register."""
    return HLO_NAME[compute_dtype(dtype)]


class Arithmetic(Names):
    """Makes nodes of numbers. block: where statements go. source: the user's line."""

    def __init__(self, source: Source, taken: frozenset[str] = frozenset()):
        self.source, self.block = source, list[Stmt]()
        super().__init__(taken)
        self.spans: dict[Var, ranges.Range] = {}

    def refuse(self, error: type[HloomError], asked: str, found: str, repair: str) -> NoReturn:
        raise error(asked, found, repair, self.source)

    # --- statements and names

    def named(self, value: Expr, hint: str = "v") -> Var:
        """A variable that holds a value."""
        var = Var(value.type, self.fresh(hint))
        self.block.append(Assign(var, value))
        return var

    # --- numbers

    def number(self, value) -> Number:
        """A Python or NumPy number."""
        if isinstance(value, (bool, np.bool_)):
            return Number(Const("pred", bool(value)), PRED, known=bool(value))
        if isinstance(value, int):
            return integer(value)
        if isinstance(value, float):
            return Number(Const("f64", value), _F64, True, known=value)
        if isinstance(value, np.generic) and value.dtype in HLO_NAME and value.dtype not in COMPLEX:
            return self.cast(self.number(value.item()), value.dtype)
        if isinstance(value, (complex, np.complexfloating)):
            parts = [self.cast(self.number(float(part)), _F64) for part in (value.real, value.imag)]
            made = self.of_parts(*parts)
            if isinstance(value, np.generic):
                return self.cast(made, value.dtype)
            return Number(made.expr, made.dtype, weak=True)
        self.refuse(DTypeError, "a kernel computes with numbers", f"{value!r:.60}", "use integers, floats and booleans")

    def of_parts(self, real: Number, imaginary: Number) -> Number:
        """A complex number of its parts in f64."""
        return self._of_op("complex", [real, imaginary], DTYPES["c128"])

    def cast(self, value: Number, dtype: np.dtype, weak: bool = False) -> Number:
        """A number in another dtype."""
        if dtype == value.dtype:
            return value if value.weak == weak else Number(value.expr, dtype, weak, value.span, value.known)
        if isinstance(value.expr, Const) and not isinstance(value.expr.value, bool) and dtype not in COMPLEX:
            made = self._constant(value.expr.value, dtype)
            if made is not None:
                return Number(made, dtype, weak, value.span if dtype.kind in "iu" else UNKNOWN, value.known)
        if value.is_integer and dtype.kind in "iu":
            made = Cast(register(dtype), value.expr)
            fits = dtype.itemsize >= value.dtype.itemsize and dtype.kind == value.dtype.kind
            info = np.iinfo(dtype)
            span = value.span if fits else (int(info.min), int(info.max))
            return Number(made, dtype, weak, span, value.known if fits else None)
        made = expression("convert", [(value.dtype, value.expr)], dtype, self.named)
        return Number(made, dtype, weak)

    @staticmethod
    def _constant(value, dtype: np.dtype) -> Expr | None:
        kind = register(dtype)
        if kind in ("s64", "f64"):
            if kind == "s64" and not -(2.0**63) <= value < 2.0**63:
                return None
            return Const(kind, int(value) if kind == "s64" else float(value))
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            return Cast(kind, Const("s64", int(value))) if info.min <= value <= info.max else None
        return Cast(kind, Const("f64", float(value))) if kind == "f32" else None

    promote = staticmethod(promote)  # the common dtype of (dtype, weak) pairs, and whether it is weak

    def promoted(self, *values: Number) -> tuple[list[Number], np.dtype, bool]:
        """The values in their common dtype, the dtype, and whether it is weak."""
        try:
            dtype, weak = self.promote(*[(v.dtype, v.weak) for v in values])
        except HloomError as error:
            self.refuse(type(error), error.asked, error.found, error.repair)
        if weak and all(v.weak for v in values):  # Python's own numbers are of 64 bits
            dtype = {"i": S64, "f": _F64}.get(dtype.kind, dtype)
        for value in values:
            self.require_fit(value, dtype)
        return [self.cast(v, dtype) for v in values], dtype, weak

    def require_fit(self, value: Number, dtype: np.dtype) -> None:
        """Refuses a Python integer that a dtype does not hold."""
        if value.weak and dtype.kind in "iu" and isinstance(value.known, int) and dtype != S64:
            info = np.iinfo(dtype)
            if not info.min <= value.known <= info.max:
                self.refuse(
                    DTypeError, f"the Python integer {value.known} with the dtype {HLO_NAME[dtype]}",
                    f"{HLO_NAME[dtype]} holds {info.min} to {info.max}",
                    "convert the other operand to a wider dtype first, for example with astype(np.int64)",
                )  # fmt: skip

    def binary(self, op: str, left: Number, right: Number) -> Number:
        """`left op right` for arithmetic, comparisons, 'min' and 'max'."""
        if left.known is not None and right.known is not None and (made := self._folded(op, left, right)) is not None:
            return made
        if op in COMPARISONS:
            return self.compare(op, left, right)
        if op == "/" and left.dtype.kind in "iub" and right.dtype.kind in "iub":
            wide = left.weak and right.weak
            left = self.cast(left, _F64 if wide else default_dtype(float), wide)
        if op == "**":
            return self._power(left, right)
        (left, right), dtype, weak = self.promoted(left, right)
        if op == ">>" and dtype.kind == "u":
            return self._of_op("shift-right-logical", [left, right], dtype, weak)
        if op in ("//", "%"):
            return self._floored(op, left, right, dtype, weak)
        span = ranges.of_operation(op, left.span, right.span) if dtype.kind in "iu" else UNKNOWN
        if dtype == S64 and op in ("+", "-", "*"):
            return Number(_simple(op, left.expr, right.expr), S64, weak, span)
        made = self._of_op(_OPCODES[op], [left, right], dtype, weak)
        if dtype == S64 and op in ("min", "max"):
            return Number(Call("s64", op, (left.expr, right.expr)), S64, weak, span)
        return made

    def _folded(self, op: str, left: Number, right: Number) -> Number | None:
        """Of numbers that are known."""
        exact = left.dtype == right.dtype and left.dtype in (S64, _F64)
        weak = left.weak and right.weak
        if not exact or op not in _KNOWN or (op in ("//", "%", "/", "**") and not right.known):
            return None
        value = _KNOWN[op](left.known, right.known)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            return None
        if op in COMPARISONS:
            return self.number(bool(value))
        if type(value) is not int or (isinstance(left.expr, Const) and isinstance(right.expr, Const)):
            made = self.number(value)
            return Number(made.expr, made.dtype, weak, made.span, made.known)
        if op in ("+", "-", "*"):
            return Number(_simple(op, left.expr, right.expr), S64, weak, (value, value), value)
        kept = (op in ("min", "max") and Call("s64", op, (left.expr, right.expr))) or Binary(
            "s64", op, left.expr, right.expr
        )
        return Number(kept, S64, weak, (value, value), value)

    def _of_op(self, opcode: str, values: list[Number], dtype: np.dtype, weak: bool = False, **attributes) -> Number:
        try:
            made = expression(
                opcode, [(v.dtype, v.expr) for v in values], dtype, self.named, **attributes
            )  # fmt: skip
        except (KeyError, HloomError, KernelSyntaxError):
            kinds = ", ".join([HLO_NAME[v.dtype] for v in values])
            self.refuse(DTypeError, f"{opcode} in a kernel", f"numbers of {kinds}", "convert them with astype")
        return Number(made, dtype, weak)

    def compare(self, op: str, left: Number, right: Number) -> Number:
        left, right = self._of_one_range(left, right), self._of_one_range(right, left)
        (left, right), _, _ = self.promoted(left, right)
        if left.is_integer and left.span != UNKNOWN and right.span != UNKNOWN:
            difference = ranges.of_operation("-", left.span, right.span)
            known = _decided(op, difference)
            if known is not None:
                return self.number(known)
        if left.dtype in COMPLEX or left.dtype == PRED:
            return self._of_op("compare", [left, right], PRED, direction=COMPARISONS[op])
        return Number(Binary("pred", op, left.expr, right.expr), PRED)

    @staticmethod
    def holds(dtype: np.dtype, value: Number) -> bool:
        """Whether a dtype of integers has an integer's value for certain."""
        info, (low, high) = np.iinfo(dtype), value.span
        return dtype == S64 or (low is not None and low >= info.min and high is not None and high <= info.max)

    def _of_one_range(self, value: Number, other: Number) -> Number:
        """A number that is compared with another one, as s64 where one of them is an integer that the dtype of the
        other, an array's, need not hold."""
        pair = (value, other)
        if not (value.is_integer and other.is_integer) or value.weak is other.weak:
            return value
        free, bound = pair if value.weak else pair[::-1]
        if self.holds(bound.dtype, free):
            return value
        if bound.dtype.itemsize == 8 and not (free.span[0] is not None and free.span[0] >= 0):
            self.refuse(DTypeError, "a comparison of u64 with a Python integer", "it may be negative",
                        "convert one of them: np.uint64(k), or astype(np.int64)")  # fmt: skip
        return value if bound.dtype.itemsize == 8 else self.cast(value, S64)

    def _power(self, left: Number, right: Number) -> Number:
        exponent = right.known
        if isinstance(exponent, int) and 0 <= exponent <= 4 and right.weak:
            if exponent < 2:
                return left if exponent else self.cast(self.number(1), left.dtype, left.weak)
            base = Number(self._held(left.expr), left.dtype, left.weak, left.span)
            square = self.binary("*", base, base)
            if exponent == 2:
                return square
            return self.binary("*", square, base) if exponent == 3 else self._power(square, integer(2))
        if exponent == 0.5 and right.weak and left.dtype.kind == "f":
            return self._of_op("sqrt", [left], left.dtype, left.weak)
        (left, right), dtype, weak = self.promoted(left, right)
        return self._of_op("power", [left, right], dtype, weak)

    def _held(self, expr: Expr) -> Expr:
        return expr if isinstance(expr, (Var, Const)) else self.named(expr)

    def _floored(self, op: str, left: Number, right: Number, dtype: np.dtype, weak: bool) -> Number:
        """Python's quotient and remainder, which has the sign of the divisor."""
        if dtype.kind not in "iuf":
            self.refuse(DTypeError, f"{op} in a kernel", f"numbers of {HLO_NAME[dtype]}", "convert them with astype")
        span = ranges.of_operation(op, left.span, right.span) if dtype == S64 else UNKNOWN
        if dtype == S64 and right.span[0] is not None and right.span[0] > 0:  # the index arithmetic of kernels
            return Number(Binary("s64", op, left.expr, right.expr), S64, weak, span)
        a, b = [Number(self._held(v.expr), dtype, weak) for v in (left, right)]
        if dtype.kind == "u":
            return self._of_op("divide" if op == "//" else "remainder", [a, b], dtype, weak)
        rest = self._of_op("remainder", [a, b], dtype, weak)
        rest = Number(self._held(rest.expr), dtype, weak)
        zero = self.cast(self.number(0), dtype)
        differs = self.binary("!=", self.compare("<", rest, zero), self.compare("<", b, zero))
        moved = self._held(Binary("pred", "&", self.compare("!=", rest, zero).expr, differs.expr))
        remainder = Number(self.choice(moved, self.binary("+", rest, b), rest).expr, dtype, weak)
        if op == "%":
            return remainder
        if dtype.kind == "f":
            exact = self.binary("/", self.binary("-", a, remainder), b)
            return self._of_op("round-nearest-even", [exact], dtype, weak)
        quotient = self._of_op("divide", [a, b], dtype, weak)
        one = self.cast(self.number(1), dtype)
        quotient = Number(self._held(quotient.expr), dtype, weak)
        return Number(self.choice(moved, self.binary("-", quotient, one), quotient).expr, dtype, weak, span)

    def choice(self, test: Expr, yes: Number, no: Number) -> Number:
        """One of two numbers; both may be computed."""
        (yes, no), dtype, weak = self.promoted(yes, no)
        return Number(
            Choice(register(dtype), test, yes.expr, no.expr), dtype, weak, ranges.union(yes.span, no.span)
        )  # fmt: skip

    def truth(self, value: Number) -> Number:
        """Whether a number is not zero."""
        if value.dtype == PRED:
            return value
        if value.known is not None:
            return self.number(bool(value.known))
        return self.compare("!=", value, self.cast(self.number(0), value.dtype))

    def negative(self, value: Number) -> Number:
        if value.known is not None and value.weak:
            return self.number(-value.known)
        if value.dtype == S64:
            span = ranges.of_operation("-", (0, 0), value.span)
            return Number(Unary("s64", "-", value.expr), S64, value.weak, span)
        return self._of_op("negate", [value], value.dtype, value.weak)

    def as_python(self, name: str, first: Number, second: Number) -> Number:
        """Python's max and min: the first one, unless the second is greater or less; a NaN is neither."""
        if first.dtype.kind != "f" and second.dtype.kind != "f":
            return self.binary(name, first, second)
        if first.known is not None and second.known is not None:
            return self.binary(name, first, second)
        a, b = [Number(self._held(v.expr), v.dtype, v.weak, v.span, v.known) for v in (first, second)]
        return self.choice(self.compare(">" if name == "max" else "<", b, a).expr, b, a)

    def direct(self, name: str, values: Sequence[Number]) -> Number:
        """A function of floats that the kernel language has by this name."""
        given, dtype, weak = self.promoted(*values)
        if dtype.kind in "iub":
            dtype = _F64 if weak else default_dtype(float)
            given = [self.cast(v, dtype) for v in given]
        kind = register(dtype)
        return Number(Call(kind, f"{name}_{kind}", tuple([v.expr for v in given])), dtype, weak)

    def inverted(self, value: Number) -> Number:
        """`not x` of truth values, `~x` of integers."""
        if value.dtype == PRED:
            return (
                self.number(not value.known)
                if value.known is not None
                else Number(Unary("pred", "not", value.expr), PRED)
            )
        return self._of_op("not", [value], value.dtype, value.weak)

    def call(self, opcode: str, *values: Number) -> Number:
        """An op of the table, of numbers in their common dtype; integers become floats where it takes no others."""
        given, dtype, weak = self.promoted(*values)
        if dtype.kind in "iub" and opcode in _FLOAT_ONLY:
            dtype = _F64 if weak else default_dtype(float)
            given = [self.cast(v, dtype) for v in given]
        if dtype in COMPLEX and opcode in ("abs", "real", "imag"):
            return self._of_op(opcode, given, np.dtype(f"f{dtype.itemsize // 2}"))
        result = PRED if opcode == "is-finite" else dtype
        return self._of_op(opcode, given, result, weak and result == dtype)


_FLOAT_ONLY = frozenset(
    ("sqrt", "rsqrt", "cbrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "sine", "cosine", "tan",
     "tanh", "sinh", "cosh", "asin", "acos", "atan2", "atan", "asinh", "acosh", "atanh", "logistic", "erf")
)  # fmt: skip


def _simple(op: str, left: Expr, right: Expr) -> Expr:
    """Sums and products of indices, without zeros and ones."""
    zero, one = Const("s64", 0), Const("s64", 1)
    if op in ("+", "-") and right == zero:
        return left
    if op == "+" and left == zero:
        return right
    if op == "*" and zero in (left, right):
        return zero
    if op == "*" and one in (left, right):
        return left if right == one else right
    return Binary("s64", op, left, right)


def _decided(op: str, difference: ranges.Range) -> bool | None:
    """A comparison with zero, where the range decides it."""
    low, high = difference
    if op in ("!=", "=="):
        differs = (low is not None and low > 0) or (high is not None and high < 0)
        if differs:
            return op == "!="
        return op == "==" if (low, high) == (0, 0) else None
    if op in (">", ">="):
        low, high = None if high is None else -high, None if low is None else -low
    if op in ("<", ">"):
        return True if high is not None and high < 0 else False if low is not None and low >= 0 else None
    return True if high is not None and high <= 0 else False if low is not None and low > 0 else None
