"""Typed values of the LLVM emitter: casts and arithmetic as Numba defines them, as LLVM IR.

Integers of arithmetic with two operands are widened to 64 bits, and `-x` and `~x` have the type of x. A float and an
integer make float64, f32 and f64 make f64, and quotients of integers are float64.
"""

from __future__ import annotations

import math
import struct

from hloom.compiler.kernel_ir.types import BITS, PART, STORED, TypeMismatch, is_integer, is_pointer, joined
from hloom.ir.records import record

LLVM = {
    "pred": "i1", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "u8": "i8", "u16": "i16", "u32": "i32",
    "u64": "i64", "f32": "float", "f64": "double", "c64": "{ float, float }", "c128": "{ double, double }", "*": "ptr",
}  # fmt: skip


class Unsupported(Exception):
    """The source has something that Numba's front end has to compile."""


@record(frozen=True)
class Value:
    """kind: an HLO dtype, or "*f32" for a pointer. text: a name or constant of LLVM IR."""

    kind: str
    text: str


def element(kind: str) -> str:
    """The type of an element of a pointer, as it is stored."""
    dtype = STORED.get(kind[1:], kind[1:])
    if dtype not in LLVM:
        raise Unsupported(dtype)
    return dtype


class Values:
    """The lines of a function, fresh names, and arithmetic."""

    def __init__(self):
        self.lines: list[str] = []
        self.operations = 0  # additions, products and quotients of floats
        self._names = 0

    def add(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def name(self) -> str:
        self._names += 1
        return f"%t{self._names}"

    def result(self, text: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    def block(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def go_to(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def next_block(self, label: str) -> str:
        """Ends the block with a jump to the next one, which begins here."""
        self.go_to(label)
        self.block(label)
        return label

    def typed(self, value: Value) -> str:
        return f"{'ptr' if is_pointer(value.kind) else LLVM[value.kind]} {value.text}"

    def parts(self, value: Value) -> tuple[Value, Value]:
        """The real and the imaginary part of a complex number."""
        if value.kind not in PART:
            raise Unsupported(f"parts of {value.kind}")
        real, imaginary = (
            Value(PART[value.kind], self.result(f"extractvalue {self.typed(value)}, {k}")) for k in range(2)
        )
        return real, imaginary

    def complex(self, real: Value, imaginary: Value) -> Value:
        kind = {part: kind for kind, part in PART.items()}[real.kind]
        half = self.result(f"insertvalue {LLVM[kind]} poison, {self.typed(real)}, 0")
        return Value(kind, self.result(f"insertvalue {LLVM[kind]} {half}, {self.typed(imaginary)}, 1"))

    def choice(self, test: str, yes: Value, no: Value) -> Value:
        """`yes if test else no`, both at hand and of one type. test: an i1."""
        if yes.kind in PART:  # LLVM's vectorizer knows no structs
            return self.complex(
                *(self.choice(test, *both) for both in zip(self.parts(yes), self.parts(no), strict=True))
            )
        return Value(yes.kind, self.result(f"select i1 {test}, {self.typed(yes)}, {self.typed(no)}"))

    def truth(self, value: Value) -> str:
        """`bool(value)`, an i1."""
        if value.kind == "pred":
            return value.text
        if is_integer(value.kind):
            return self.result(f"icmp ne {self.typed(value)}, 0")
        raise Unsupported(f"the truth of {value.kind}")

    def float_constant(self, kind: str, number: float) -> Value:
        if kind == "f32" and math.isfinite(number):
            try:
                number = struct.unpack("f", struct.pack("f", number))[0]
            except OverflowError:
                number = math.copysign(math.inf, number)
        return Value(kind, f"0x{struct.unpack('Q', struct.pack('d', number))[0]:016X}")

    def cast(self, value: Value, kind: str) -> Value:
        """The value as another type, as C converts."""
        old = value.kind
        if old == kind:
            return value
        if is_pointer(old) or is_pointer(kind):
            if is_pointer(old) and is_pointer(kind):
                return Value(kind, value.text)
            raise Unsupported(f"{old} as {kind}")
        if old in PART and kind in PART:
            return self.complex(*(self.cast(part, PART[kind]) for part in self.parts(value)))
        if kind in PART and (is_integer(old) or old in PART.values()):
            return self.complex(self.cast(value, PART[kind]), self.float_constant(PART[kind], 0.0))
        if kind not in LLVM or old not in LLVM or kind == "pred" or old in PART or kind in PART:
            raise Unsupported(f"{old} as {kind}")
        to = LLVM[kind]
        if is_integer(old) and value.text.lstrip("-").isdigit():
            return self.integer_constant(int(value.text), kind)
        if old == "f64" and kind == "f32" and value.text.startswith("0x"):
            return self.float_constant("f32", struct.unpack("d", struct.pack("Q", int(value.text, 16)))[0])
        if is_integer(old) or old == "pred":
            if kind in ("f32", "f64"):
                how = "sitofp" if old[0] == "s" else "uitofp"
            elif BITS[old] == BITS[kind]:
                return Value(kind, value.text)
            elif BITS[old] > BITS[kind]:
                how = "trunc"
            else:
                how = "sext" if old[0] == "s" else "zext"
        elif kind in ("f32", "f64"):
            how = "fptrunc" if kind == "f32" else "fpext"
        else:
            how = "fptosi" if kind[0] == "s" else "fptoui"
        return Value(kind, self.result(f"{how} {self.typed(value)} to {to}"))

    def integer_constant(self, number: int, kind: str) -> Value:
        if kind in ("f32", "f64"):
            if abs(number) >= 1 << 53:
                raise Unsupported("a large integer as a float")
            return self.float_constant(kind, float(number))
        bits = BITS[kind]
        number &= (1 << bits) - 1
        if kind[0] == "s" and number >> (bits - 1):
            number -= 1 << bits
        return Value(kind, str(number))

    def together(self, left: Value, right: Value) -> tuple[Value, Value]:
        """Both operands of an arithmetic operation or comparison in the type of that operation."""
        try:
            kind = joined(left.kind, right.kind)
        except TypeMismatch as error:
            raise Unsupported(str(error)) from None
        return self.cast(left, kind), self.cast(right, kind)

    def negative(self, value: Value) -> Value:
        if value.kind in PART:
            return self.complex(*map(self.negative, self.parts(value)))
        if value.kind in ("f32", "f64"):
            if value.text.startswith("0x"):
                return Value(value.kind, f"0x{int(value.text, 16) ^ 1 << 63:016X}")
            return Value(value.kind, self.result(f"fneg {self.typed(value)}"))
        if not is_integer(value.kind):
            raise Unsupported(f"- of {value.kind}")
        if value.text.lstrip("-").isdigit():
            return self.integer_constant(-int(value.text), value.kind)
        return Value(value.kind, self.result(f"sub {LLVM[value.kind]} 0, {value.text}"))

    def arithmetic(self, operator: str, left: Value, right: Value) -> Value:
        left, right = self.together(left, right)
        kind = left.kind
        if kind in PART:
            if operator not in ("+", "-"):
                raise Unsupported(f"{operator} of complex numbers")
            both = zip(self.parts(left), self.parts(right), strict=True)
            return self.complex(*(self.arithmetic(operator, *parts) for parts in both))
        if kind in ("f32", "f64"):
            name = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}.get(operator)
            if name is None:
                raise Unsupported(f"{operator} of floats")
            self.operations += 1
            return Value(kind, self.result(f"{name} {self.typed(left)}, {right.text}"))
        if operator in ("&", "|", "^"):
            name = {"&": "and", "|": "or", "^": "xor"}[operator]
            return Value(kind, self.result(f"{name} {self.typed(left)}, {right.text}"))
        if kind == "pred":
            raise Unsupported(f"{operator} of truth values")
        if operator in ("+", "-", "*"):
            name = {"+": "add", "-": "sub", "*": "mul"}[operator]
            return Value(kind, self.result(f"{name} i64 {left.text}, {right.text}"))
        if operator in ("<<", ">>"):
            name = "shl" if operator == "<<" else "ashr" if kind == "s64" else "lshr"
            return Value(kind, self.result(f"{name} i64 {left.text}, {right.text}"))
        if operator == "/":
            return self.arithmetic(operator, self.cast(left, "f64"), self.cast(right, "f64"))
        if operator in ("//", "%") and kind == "s64":
            return self._floor(operator == "//", left.text, right.text)
        raise Unsupported(f"{operator} of {kind}")

    def _floor(self, quotient: bool, left: str, right: str) -> Value:
        """Python's `//` and `%`; 0 where the divisor is, as Numba has it with NumPy's error model."""
        known = right.lstrip("-").isdigit() and int(right) != 0
        zero = None if known else self.result(f"icmp eq i64 {right}, 0")
        divisor = right if known else self.result(f"select i1 {zero}, i64 1, i64 {right}")
        rest = self.result(f"srem i64 {left}, {divisor}")
        differ = self.result(f"icmp slt i64 {self.result(f'xor i64 {rest}, {divisor}')}, 0")
        wrong = self.result(f"and i1 {differ}, {self.result(f'icmp ne i64 {rest}, 0')}")
        if quotient:
            toward_zero = self.result(f"sdiv i64 {left}, {divisor}")
            made = self.result(f"sub i64 {toward_zero}, {self.result(f'zext i1 {wrong} to i64')}")
        else:
            made = self.result(f"add i64 {rest}, {self.result(f'select i1 {wrong}, i64 {divisor}, i64 0')}")
        return Value("s64", made if known else self.result(f"select i1 {zero}, i64 0, i64 {made}"))
