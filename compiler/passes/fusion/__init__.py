"""Fusion: grouping instructions into kernels."""
