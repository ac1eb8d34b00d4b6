"""A lock-step simulator of CUDA kernels that needs no GPU."""
