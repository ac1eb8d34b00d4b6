"""NumPy programs as they are: `hl.njit` compiles a function of NumPy arrays as it is written."""
