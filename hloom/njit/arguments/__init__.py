"""What NumPy programs are called with: declared types, and trees of arrays."""
