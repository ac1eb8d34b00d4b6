"""Products, einsum, convolution and polynomials."""
