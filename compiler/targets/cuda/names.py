"""What each name of the kernel dialect means on CUDA: the table beside `vmath.FUNCTIONS`.

Importing this module needs no CUDA package: `intrinsics` writes the LLVM for the meanings named here.
"""

from __future__ import annotations

from dataclasses import dataclass

from hloom.compiler.kernels.vmath import FUNCTIONS
from hloom.compiler.kernels.vmath.registry import INTEGERS

# stem -> libdevice function of float64; the one of float32 has an `f` at its end. Always the precise form.
LIBDEVICE = {
    stem: f"__nv_{stem}"
    for stem in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
        "erfc", "exp", "exp2", "expm1", "floor", "fma", "hypot", "log", "log10", "log1p", "log2", "nextafter", "pow",
        "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    )
} | {"abs": "__nv_fabs", "rem": "__nv_fmod", "round_even": "__nv_rint", "round_afz": "__nv_round"}  # fmt: skip

# Names whose LLVM on the CPU uses operations that NVVM's dialect (LLVM 7) does not have, or has in a better form.
WRITTEN = {
    "max": "max.NaN for f32; a comparison and a select",
    "min": "min.NaN for f32; a comparison and a select",
    "accmax": "as max",
    "accmin": "as min",
    "sum": "an addition in the order of the text",
    "prod": "a multiplication in the order of the text",
    "logistic": "1 / (1 + exp(-x)), or exp(x) / (1 + exp(x)) below 0, with libdevice's exp",
    "sign": "by comparisons; keeps NaN and the sign of zero",
}

# Plain functions that serve only other functions of the table: libdevice has those as a whole.
_PART = "a step of {} on the CPU; kernels do not call it"
MISSING = {
    "scale": _PART.format("exp"),
    "exp_parts": _PART.format("exp"),
    "exp_sum": _PART.format("exp and pow"),
    "expm1_parts": _PART.format("expm1"),
    "half_exp": _PART.format("sinh and cosh"),
    "erfc_positive": _PART.format("erf and erfc"),
    "log_exponent": _PART.format("log"),
    "log_mantissa": _PART.format("log"),
    "log_mantissa_parts": _PART.format("log"),
    "log_parts": _PART.format("log and pow"),
    "log_edges": _PART.format("log"),
    "power_edges": _PART.format("pow"),
    "remainder_step": _PART.format("rem"),
    "sine_quadrant": _PART.format("sin and cos"),
    "sine_shifted": _PART.format("sin and cos"),
    "sine_parts": _PART.format("sin and cos"),
    "cosine_parts": _PART.format("sin and cos"),
    "quarter_turn_rest": _PART.format("sin and cos"),
    "asin_core": _PART.format("asin"),
    "atan_quotient": _PART.format("atan and atan2"),
}


@dataclass(frozen=True)
class Meaning:
    """How a name of the dialect is written for CUDA.

    how: 'libdevice' (`what` is its function), 'written' (LLVM of our own, `what` says how), 'saturate' (a conversion
        from a float to an integer), 'shared' (the LLVM that the CPU has), or 'missing' (`what` is the reason).
    """

    how: str
    what: str


def split(name: str) -> tuple[str, str]:
    """('exp', 'f32') of `exp_f32`."""
    stem, _, dtype = name.rpartition("_")
    return stem, dtype


def meaning(name: str) -> Meaning:
    """The meaning of a name of `vmath.FUNCTIONS`. Raises KeyError for a name that has none."""
    entry = FUNCTIONS[name]
    stem, dtype = split(name)
    if stem in MISSING:
        return Meaning("missing", MISSING[stem])
    if stem in LIBDEVICE and dtype in ("f32", "f64"):
        return Meaning("libdevice", LIBDEVICE[stem] + ("f" if dtype == "f32" else ""))
    if stem in WRITTEN and dtype in ("f32", "f64", *INTEGERS) and (entry.kind == "function" or stem != "sign"):
        return Meaning("written", WRITTEN[stem])
    if name.startswith("convert_"):
        _, source, target = name.split("_")
        if target in INTEGERS and source not in ("pred", *INTEGERS):
            return Meaning("saturate", "truncated, clamped to the range, NaN to 0")
    if entry.kind == "intrinsic":
        return Meaning("shared", "the same LLVM as on the CPU")
    raise KeyError(f"{name} has no meaning on CUDA: add it to LIBDEVICE, WRITTEN or MISSING of {__name__}")
