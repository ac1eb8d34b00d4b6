"""What each name of the kernel dialect means on CUDA: the table beside `vmath.FUNCTIONS`.

Importing this module needs no CUDA package: `intrinsics` writes the LLVM for the meanings named here.
"""

from __future__ import annotations

import functools

from hloom.compiler.kernels.math import FUNCTIONS, callees
from hloom.compiler.kernels.math.registry import INTEGERS
from hloom.ir.records import record

# stem -> libdevice function of float64; the one of float32 has an `f` at its end. Always the precise form.
LIBDEVICE = {
    stem: f"__nv_{stem}"
    for stem in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
        "erfc", "exp", "exp2", "expm1", "floor", "fma", "hypot", "log", "log10", "log1p", "log2", "nextafter", "pow",
        "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    )
} | {"abs": "__nv_fabs", "rem": "__nv_fmod", "round_even": "__nv_rint", "round_afz": "__nv_round"}  # fmt: skip
# For angles past 2^45, which alone use them; libdevice's functions take any angle.
LIBDEVICE |= {"huge_sin": "__nv_sin", "huge_cos": "__nv_cos"}
LIBDEVICE |= {"library_exp": "__nv_exp", "library_log1p": "__nv_log1p"}  # its own bits

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

# Prefix of a stem -> why names with it do not exist on CUDA.
MISSING = {
    "huge_tan": "calls the C library for angles past 2^45; libdevice's tan takes any angle itself",
}


@record(frozen=True)
class Meaning:
    """How a name of the dialect is written for CUDA.

    how: 'libdevice' (`what` is its function), 'written' (LLVM of our own, `what` says how), 'saturate' (a conversion
        from a float to an integer), 'shared' (the LLVM that the CPU has), 'composed' (the CPU's function, over the
        names that it calls), or 'missing' (`what` is the reason; no kernel text uses it).
    """

    how: str
    what: str


def split(name: str) -> tuple[str, str]:
    """('exp', 'f32') of `exp_f32`."""
    stem, _, dtype = name.rpartition("_")
    return stem, dtype


@functools.cache
def meaning(name: str) -> Meaning:
    """The meaning of a name of `vmath.FUNCTIONS`; KeyError for others."""
    entry = FUNCTIONS[name]
    stem, dtype = split(name)
    for prefix, reason in MISSING.items():
        if stem.startswith(prefix):
            return Meaning("missing", reason)
    if stem in LIBDEVICE and dtype in ("f32", "f64"):
        return Meaning("libdevice", LIBDEVICE[stem] + ("f" if dtype == "f32" else ""))
    if stem in WRITTEN and dtype in ("f32", "f64", *INTEGERS) and (entry.kind == "function" or stem != "sign"):
        return Meaning("written", WRITTEN[stem])
    if dtype == "f16" and (stem == "load" or stem.startswith("bitcast_")):
        return Meaning("written", "by an intrinsic: NVVM fails at vectors of halves, which it makes of four bit casts")
    if name.startswith("convert_"):
        _, source, target = name.split("_")
        if target == "f16" and source in ("f64", "c128"):
            return Meaning("written", "rounded once by cvt.rn.f16.f64")
        if target in INTEGERS and source not in ("pred", *INTEGERS):
            return Meaning("saturate", "truncated, clamped to the range, NaN to 0")
    if entry.kind == "intrinsic":
        return Meaning("shared", "the same LLVM as on the CPU")
    for used in sorted(callees(name)):
        if meaning(used).how == "missing":
            return Meaning("missing", f"calls {used}")
    return Meaning("composed", "the same Python function as on the CPU")
