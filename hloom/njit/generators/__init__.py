"""Generators of `np.random` in NumPy programs: their state as an array, their draws as kernels."""
