"""Proofs that the accesses of kernels are within their arrays (docs/reference/kernels.md)."""
