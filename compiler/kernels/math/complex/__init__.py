"""Complex arithmetic and functions of the math library."""
