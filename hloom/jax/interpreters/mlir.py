"""How primitives (`hloom.jax.extend.core.Primitive`) are compiled, under the names of `jax.interpreters.mlir`.

hloom compiles a primitive by tracing a function of arrays: what `lower_fun` was given, or the primitive's own
implementation.
"""

from __future__ import annotations

lowerings: dict = {}  # Primitive -> Lowering


class Lowering:
    """A function of arrays that a primitive is compiled as. multiple_results: it returns a sequence."""

    def __init__(self, fun, multiple_results: bool):
        self.fun, self.multiple_results = fun, multiple_results

    def __call__(self, *args, **params):
        return self.fun(*args, **params)


def lower_fun(fun, multiple_results: bool = True) -> Lowering:
    """The rule that compiles a primitive as a function of arrays."""
    return Lowering(fun, multiple_results)


def register_lowering(prim, rule, platform: str | None = None, inline: bool = True, cacheable: bool = True, **options):
    """How a primitive is compiled; returns the rule. Rules that are no `lower_fun` write MLIR, which hloom does not
    read: then the implementation is traced or, where it cannot be, called as a Python function."""
    if isinstance(rule, Lowering) and platform in (None, "cpu"):
        lowerings[prim] = rule
    return rule


__all__ = ["Lowering", "lower_fun", "lowerings", "register_lowering"]
__dir__ = __all__.copy
