"""Accumulators: `acc = sum_f32(acc, x[i])` in a plain loop, which LLVM may then split over vector lanes.

Floating sums and products carry the flag `reassoc` on that one instruction; every other operation of the kernel keeps
its exact meaning. The order depends on the machine's vector width, never on the run.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import call_overloaded, instruction
from hloom.compiler.kernels.math.integer import extremum
from hloom.compiler.kernels.math.registry import FLOATS, INTEGERS, SIGNED


def _sum(builder, accumulator, x):
    return builder.fadd(accumulator, x, flags=("reassoc",))


def _product(builder, accumulator, x):
    return builder.fmul(accumulator, x, flags=("reassoc",))


for _dtype in FLOATS:
    _two = f"{_dtype} {_dtype}"
    instruction(f"sum_{_dtype}", _two, _dtype, _sum, "add, free to reassociate")
    instruction(f"prod_{_dtype}", _two, _dtype, _product, "multiply, free to reassociate")
    for _name, _stem in (("max", "maximum"), ("min", "minimum")):
        instruction(
            f"acc{_name}_{_dtype}", _two, _dtype,
            lambda builder, accumulator, x, stem=_stem: call_overloaded(builder, f"llvm.{stem}", accumulator, x),
            f"{_stem}; a NaN stays, -0 < +0",
        )  # fmt: skip

for _dtype in INTEGERS:
    _two = f"{_dtype} {_dtype}"
    instruction(f"sum_{_dtype}", _two, _dtype, lambda builder, accumulator, x: builder.add(accumulator, x), "wrapping")
    instruction(f"prod_{_dtype}", _two, _dtype, lambda builder, accumulator, x: builder.mul(accumulator, x), "wrapping")
    for _name in ("max", "min"):
        instruction(f"acc{_name}_{_dtype}", _two, _dtype, extremum(_name, _dtype in SIGNED), f"running {_name}")

instruction("accand_pred", "pred pred", "pred", lambda builder, accumulator, x: builder.and_(accumulator, x), "all")
instruction("accor_pred", "pred pred", "pred", lambda builder, accumulator, x: builder.or_(accumulator, x), "any")
