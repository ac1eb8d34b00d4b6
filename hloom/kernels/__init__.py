"""`hl.kernel`: kernels that users write (docs/guides/kernels.md)."""
