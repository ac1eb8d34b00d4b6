"""Kernel source to LLVM IR by Numba."""
