"""Transformations of loops, each with a proof that results stay the same (docs/reference/kernels.md)."""
