"""Functions with derivative rules of their own, and the names of their calls, as in `jax.custom_derivatives`."""

from hloom.tracing.custom_rules import SymbolicZero
from hloom.transforms.custom_derivatives import (
    CustomVJPPrimal,
    closure_convert,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    custom_vjp_primal_tree_values,
    zero_from_primal,
)

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "custom_vjp_primal_tree_values",
    "zero_from_primal",
]
__dir__ = __all__.copy
