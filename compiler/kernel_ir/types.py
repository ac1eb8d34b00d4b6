"""Types of the kernel language: what arithmetic makes of its operands, as Numba defines it.

Arithmetic of two integers is done in 64 bits, `-x` and `~x` have the type of x, a float and an integer make float64,
f32 and f64 make f64, and quotients of integers are float64. f16 and bf16 exist in memory only.
"""

from __future__ import annotations

__all__ = [
    "BITS", "FLOATS", "INTEGERS", "PART", "REGISTER", "STORED", "TypeMismatch", "arithmetic", "is_integer",
    "is_pointer", "joined", "negated",
]  # fmt: skip

INTEGERS = tuple([f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)])
FLOATS = ("f32", "f64")
# The type of the real and of the imaginary part.
PART = {"c64": "f32", "c128": "f64"}
# The register type of a parameter or result of a math function.
REGISTER = {"f16": "f32", "bf16": "f32"}
# What a pointer points at in memory, where that is not the type of the value.
STORED = {"pred": "u8", "f16": "u16", "bf16": "u16"}
BITS = {"pred": 1, "f32": 32, "f64": 64} | {f"{sign}{bits}": bits for sign in "su" for bits in (8, 16, 32, 64)}


class TypeMismatch(Exception):
    """Operands whose types an operation does not take together."""


def is_pointer(kind: str) -> bool:
    return kind[0] == "*"


def is_integer(kind: str) -> bool:
    return kind[0] in "su"


def joined(left: str, right: str) -> str:
    """The type in which two operands of arithmetic, of a comparison or of a choice come together. Raises
    TypeMismatch."""
    kinds = {left, right}
    if any(is_pointer(kind) for kind in kinds):
        raise TypeMismatch("arithmetic with pointers")
    if len(kinds) == 1 and kinds <= {"s64", "u64", "f32", "f64", "pred", *PART}:
        return left
    if kinds & {*PART}:
        raise TypeMismatch("complex with other numbers")
    if "pred" in kinds:
        if kinds & {"u64", "f32", "f64"}:
            raise TypeMismatch("truth values with floats")
        return "s64"
    if "f64" in kinds or kinds & {"f32"}:
        if any(BITS[kind] < 32 for kind in kinds):
            raise TypeMismatch("floats with narrow integers")
        return "f64"
    if all(kind[0] == "u" for kind in kinds):
        return "u64"
    if "u64" in kinds:
        raise TypeMismatch("u64 with signed integers")
    return "s64"


def arithmetic(op: str, left: str, right: str) -> str:
    """The type of an operation of two numbers. Raises TypeMismatch."""
    kind = joined(left, right)
    if op == "/" and is_integer(kind):
        return "f64"
    if kind in PART and op not in "+-":
        raise TypeMismatch(f"{op} of complex numbers")
    if kind in FLOATS and op not in ("+", "-", "*", "/"):
        raise TypeMismatch(f"{op} of floats")
    if kind == "pred" and op not in ("&", "|", "^"):
        raise TypeMismatch(f"{op} of truth values")
    if kind == "u64" and op in ("//", "%"):
        raise TypeMismatch(f"{op} of u64")
    return kind


def negated(op: str, kind: str) -> str:
    """The type of `-x`, `~x` and `not x`. Raises TypeMismatch."""
    if op == "not":
        if kind != "pred" and not is_integer(kind):
            raise TypeMismatch(f"the truth of {kind}")
        return "pred"
    if is_pointer(kind) or (kind == "pred" and op == "-") or (op == "~" and kind != "pred" and not is_integer(kind)):
        raise TypeMismatch(f"{op} of {kind}")
    return kind
