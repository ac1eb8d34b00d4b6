"""Loop nests: element-wise loops, rows, reductions and in-place updates."""
