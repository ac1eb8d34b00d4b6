"""Functions with derivative rules of their own, and the names of their calls, as in `jax.custom_derivatives`."""

from hloom.jax.extend.primitive import named
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

# Keys of tables only: programs of hloom have calls with rules.
custom_jvp_call_p = named("custom_jvp_call_p", None)
custom_vjp_call_p = named("custom_vjp_call_p", None)

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "custom_vjp_primal_tree_values",
    "zero_from_primal",
]
__dir__ = __all__.copy
