"""Kernels: from fused computations to target-neutral loop nests and their source."""
