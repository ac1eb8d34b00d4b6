"""Transformations of computations: jvp, vjp, batching."""

from hloom.compiler.transforms import control, manual
