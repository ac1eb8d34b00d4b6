"""Matrix products and convolutions: dimensions, blocking, packing and the kernels that do them."""
