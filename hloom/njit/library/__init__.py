"""NumPy's functions in a NumPy program."""
