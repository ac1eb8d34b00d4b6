"""Comprehensions of NumPy programs, of which long ones are loops."""
