"""Transformations of computations: jvp, vjp, batching."""
