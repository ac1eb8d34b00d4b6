"""Index expressions as sums of variables, and what is known of integers (docs/reference/kernels.md)."""
