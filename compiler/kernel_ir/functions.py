"""Functions of the kernel language: the type of what a call returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.compiler.kernel_ir.types import FLOATS, INTEGERS, PART, REGISTER, TypeMismatch, is_integer

__all__ = ["EFFECTS", "Signature", "UnknownFunction", "by_name", "is_slow", "returned"]

# HLO dtypes of the parameters and of the result of a function of the math library; None where there is none.
Signature = Callable[[str], tuple[tuple[str, ...], str] | None]

EFFECTS = ("call_kernel", "prefetch")  # what is called for its effect alone

# Functions that take much longer for one number than for one of a vector.
_SLOW = frozenset(
    ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "pow", "sin", "cos", "tan", "tanh", "sinh", "cosh",
     "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "logistic", "cbrt", "erf", "erfc", "erf_inv",
     "lgamma", "digamma")
)  # fmt: skip


class UnknownFunction(Exception):
    """A name that is no function of the language."""


def _of_names() -> dict[str, str]:
    """The functions whose name says what they return."""
    found = {"address": "s64", "quotient": "s64", "complex_f32": "c64", "complex_f64": "c128"}
    for kind in FLOATS:
        for name in ("sqrt", "floor", "ceil", "trunc", "round_afz", "abs", "copysign", "fma"):
            found[f"{name}_{kind}"] = kind
    for kind in (*FLOATS, *INTEGERS):
        for name in ("sum", "prod", "max", "min", "accmax", "accmin"):
            found[f"{name}_{kind}"] = kind
        for other in (*FLOATS, *INTEGERS):
            if kind != other and kind[1:] == other[1:]:
                found[f"bitcast_{kind}_{other}"] = other
    for name in ("and", "or", "accand", "accor"):
        found[f"{name}_pred"] = "pred"
    return found | {f"mul_{kind}": kind for kind in PART}


_NAMED = _of_names()


# The functions of ops whose name does not end with the type of the result.
_RESULTS = {"is_finite_f32": "pred", "is_finite_f64": "pred", "abs_c64": "f32", "abs_c128": "f64"} | {
    f"{key}_{kind}": f"s{kind[1:]}" for key in ("maxkey", "minkey") for kind in FLOATS
}
_TYPES = frozenset(("pred", "f16", "bf16", *FLOATS, *INTEGERS, *PART))


def by_name(name: str) -> tuple[tuple[str, ...], str] | None:
    """The signature that the name of a function says: its result, but no parameters, and not whether there is such a
    function. For those who write calls, before anything is compiled."""
    kind = _RESULTS.get(name) or name.rpartition("_")[2]
    return ((), kind) if kind in _TYPES else None


def is_slow(name: str) -> bool:
    """Whether a loop of a function is to be vectorized, whatever its elements cost."""
    stem, _, kind = name.rpartition("_")
    return stem in _SLOW and kind in FLOATS


def returned(name: str, arguments: Sequence[str], signature: Signature) -> str:
    """The type of the result of a call with arguments of these types. Raises UnknownFunction, TypeMismatch."""
    if name in ("min", "max"):
        return _extremum(name, arguments)
    if name == "select":
        return arguments[1]
    if (kind := _NAMED.get(name)) is not None:
        return kind
    if (entry := signature(name)) is not None:
        return REGISTER.get(entry[1], entry[1])
    if name.endswith("_c64") and signature(f"{name[:-4]}_c128"):
        return "c64"  # `kernels.math.complex.single_precision`: complex128's, rounded
    raise UnknownFunction(name)


def _extremum(name: str, arguments: Sequence[str]) -> str:
    """Of Python's min or max of two or more numbers of one kind."""
    if len(arguments) > 1 and all(map(is_integer, arguments)):
        return "s64"
    if len(arguments) > 1 and {*arguments} in ({"f32"}, {"f64"}):
        return arguments[0]
    raise TypeMismatch(f"{name} of {', '.join(arguments)}")
