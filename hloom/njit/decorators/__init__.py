"""Numba's other decorators out of the machinery of `hl.njit`: `hl.vectorize`, `hl.guvectorize`, `hl.stencil`."""
