"""Canonicalization: converts every op to the form that kernels expect."""
