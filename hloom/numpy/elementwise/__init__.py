"""Element-wise functions: arithmetic, logic, signs, bits, and ufunc objects."""
