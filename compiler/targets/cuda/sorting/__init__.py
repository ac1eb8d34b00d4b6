"""Sorting and top-k on CUDA."""
