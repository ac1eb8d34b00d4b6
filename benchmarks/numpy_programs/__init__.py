"""NumPy programs, source unchanged: `hl.njit` beside NumPy, Numba and jax. `python -m benchmarks.numpy_programs`."""
