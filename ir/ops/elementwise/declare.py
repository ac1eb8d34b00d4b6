"""Declaration of element-wise ops with one or two operands of equal shape and dtype."""

from __future__ import annotations

import functools

from hloom.ir.op_table import No, elementwise_batch, op
from hloom.ir.ops.rules import elementwise, in_float32, partials
from hloom.ir.spmd.factors import pointwise

ARITHMETIC = ("signed", "unsigned", "float", "complex")
ANALYTIC = ("float", "complex")
FLOAT = ("float",)
INTEGER = ("signed", "unsigned")
BITS = ("pred", "signed", "unsigned")
NOT_LINEAR = No("not linear in any operand")
NO_TANGENT = No("its operands have no tangents")


def _elementwise_op(
    arity,
    name,
    kinds,
    reference,
    code,
    jvp,
    transpose=NOT_LINEAR,
    result=None,
    family="elementwise",
    **facts,
):
    """Declares an element-wise op of `arity` operands of one dtype of some kinds.

    code: a template, or templates by kind. result: operand dtype -> result dtype. The rest as in `op_table.Op`.
    """
    op(
        name,
        family=family,
        arity=arity,
        kinds=kinds,
        infer=elementwise(name, arity, kinds, result),
        reference=in_float32(reference),
        code={"any": code} if isinstance(code, str) else code,
        jvp=jvp,
        transpose=transpose,
        **facts,
    )


unary = functools.partial(_elementwise_op, 1)
binary = functools.partial(_elementwise_op, 2)
hlo_unary = functools.partial(unary, dialects="hlo stablehlo")
hlo_binary = functools.partial(binary, dialects="hlo stablehlo")


def _math_function(name, reference, derivative, flops, kernel="", kinds=ANALYTIC, **facts):
    """Declares a unary function computed by the kernel `kernel_DTYPE`, by default its own name; derivative(g, y, x)."""
    code = f"{kernel or name}_{{t}}({{0}})"
    unary(name, kinds, reference, code, partials(derivative), flops=flops, transcendental=True, **facts)


# StableHLO's functions take an accuracy; CHLO's do not.
hlo_function = functools.partial(_math_function, dialects="hlo stablehlo", takes_accuracy=True)
chlo_function = functools.partial(_math_function, dialects="hlo chlo")


def host_function(name, arity, reference, jvp, flops, **facts):
    """Declares an element-wise function of floats that the host computes, between two native segments."""
    _elementwise_op(
        arity, name, FLOAT, reference, No("computed on the host by SciPy"), jvp, family="library",
        batch=elementwise_batch, factors=pointwise, flops=flops, transcendental=True, **facts,
    )  # fmt: skip


def wrapped(template: str) -> dict[str, str]:
    """The template by kind. Integers are cast back, because Numba widens the results of integer arithmetic."""
    return {"integer": "{r}(" + template + ")", "any": template}
