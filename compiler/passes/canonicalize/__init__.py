"""Canonicalization: every op in the form that kernels take."""
