"""Kernel source for CUDA and its compilation to cubins."""
