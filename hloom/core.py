"""Traced values and shapes under `jax.core`'s names."""

from hloom.compatibility import ensure_compile_time_eval
from hloom.shapes import ShapeDtypeStruct
from hloom.tracing import Trace, Tracer

ShapedArray = ShapeDtypeStruct

__all__ = ["ShapedArray", "Trace", "Tracer", "ensure_compile_time_eval"]
